"""Folders of versions, as TensorFlow Serving polls them."""

import contextlib
import os
import shutil
import uuid
from collections.abc import Iterator

from tfxclass.paths import local_path
from tfxclass.types import Path

#: What a folder with such a file holds.
_KINDS = {
    "saved_model.pb": "one version of a SavedModel",
    "model.onnx": "an ONNX model",
    "tagger.json": "a saved Tagger",
    "vectors.json": "exported class vectors",
}


def check_kind(name: str, path: str, own: str = "") -> None:
    """Raises ValueError if a folder holds an export of another kind.

    Args:
        name: str, the argument that `path` was given for.
        path: str, the folder. It may be missing.
        own: str, the file in `_KINDS` that may be there.
    """
    for file, what in _KINDS.items():
        if file != own and os.path.isfile(os.path.join(path, file)):
            raise ValueError(
                f"`{name}` must not hold another export. Received: {path!r} "
                f"with {file!r}, {what}. Fix: give a folder of its own."
            )


def check_versions(name: str, path: str) -> None:
    """Raises ValueError unless `path` may hold versions; it may be missing.

    Args:
        name: str, the argument that `path` was given for.
        path: str.
    """
    if os.path.exists(path) and not os.path.isdir(path):
        raise ValueError(f"`{name}` must be a folder. Received: {path!r}")
    check_kind(name, path)


class _Folder:
    """A folder that will be renamed; `name` is where it is now."""

    def __init__(self, name: str) -> None:
        self.name = name


@contextlib.contextmanager
def version_folder(path: Path, name: str = "path") -> Iterator[_Folder]:
    """A folder to fill, which becomes `path/<next version>` at the end.

    Args:
        path: str, the folder of the versions.
        name: str, the argument that an error names.
    """
    path = local_path(path, name)
    check_versions(name, path)
    made = _make_folders(path)
    # A server that polls `path` takes up numbers only.
    folder = _Folder(os.path.join(path, f"incoming-{uuid.uuid4().hex}"))
    try:
        os.mkdir(folder.name)
        yield folder
        folder.name = _rename_to_next_version(folder.name, path)
    except BaseException:
        shutil.rmtree(folder.name, ignore_errors=True)
        for parent in made:
            with contextlib.suppress(OSError):
                os.rmdir(parent)
        raise


@contextlib.contextmanager
def new_folder(path: str) -> Iterator[str]:
    """A folder to fill, which becomes `path` at the end."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    scratch = f"{path}-incoming-{uuid.uuid4().hex}"
    os.mkdir(scratch)
    try:
        yield scratch
        os.rename(scratch, path)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _make_folders(path):
    """Makes `path`; returns the folders made, innermost first."""
    path, made = os.path.abspath(path), []
    while not os.path.isdir(path):
        made.append(path)
        path = os.path.dirname(path)
    for folder in reversed(made):
        os.makedirs(folder, exist_ok=True)
    return made


def _rename_to_next_version(folder, path):
    while True:
        target = os.path.join(path, str(_next_version(path)))
        try:
            os.rename(folder, target)
            return target
        except OSError:
            # Another export took this number in the meantime.
            if not os.path.isdir(target):
                raise


def _next_version(path):
    taken = [int(name) for name in os.listdir(path) if name.isdecimal()]
    return max(taken, default=0) + 1
