"""Folders of versions, as TensorFlow Serving polls them."""

import contextlib
import os
import shutil
import uuid
from collections.abc import Iterator

from tfxclass.checks import check_value
from tfxclass.paths import local_path
from tfxclass.types import Path

# What a folder with such a file holds.
_KINDS = {
    "saved_model.pb": "one version of a SavedModel",
    "model.onnx": "an ONNX model",
    "tagger.json": "a saved Tagger",
    "vectors.json": "exported class vectors",
}


def check_kind(name: str, path: str, own: str = "") -> None:
    """Raises ValueError if a folder has an export, but for the file `own`."""
    for file, what in _KINDS.items():
        if file != own and os.path.isfile(os.path.join(path, file)):
            raise ValueError(
                f"`{name}` must not hold another export. Received: {path!r} "
                f"with {file!r}, {what}. Fix: give a folder of its own."
            )


def check_versions(name: str, path: Path) -> str:
    """`path`, which may hold versions or be missing; ValueError for others."""
    path = local_path(path, name)
    is_free = os.path.isdir(path) or not os.path.exists(path)
    check_value(name, path, is_free, "a folder")
    check_kind(name, path)
    return path


def new_path(path: Path) -> str:
    """An absolute path; ValueError where it exists."""
    path = os.path.abspath(local_path(path))
    if os.path.exists(path):
        what = "folder" if os.path.isdir(path) else "file"
        raise ValueError(
            "`path` must not exist yet, since this export overwrites nothing. "
            f"Received: {path!r}, which is a {what}. Fix: give another path, "
            "or delete this one first."
        )
    return path


@contextlib.contextmanager
def scratch_folder(path: str) -> Iterator[str]:
    """A folder to fill near `path`, which is removed unless it is renamed."""
    parent = os.path.abspath(path)
    while not os.path.isdir(parent):
        parent = os.path.dirname(parent)
    folder = os.path.join(parent, f"incoming-{uuid.uuid4().hex}")
    os.mkdir(folder)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def new_folder(path: str) -> Iterator[str]:
    """A folder to fill, which becomes `path` at the end."""
    with scratch_folder(path) as folder:
        yield folder
        os.makedirs(os.path.dirname(path), exist_ok=True)
        os.rename(folder, path)


def publish_version(folder: str, path: str) -> str:
    """Renames a complete folder to `path/<next version>`, and returns that."""
    os.makedirs(path, exist_ok=True)
    while True:
        taken = [int(name) for name in os.listdir(path) if name.isdecimal()]
        target = os.path.join(path, str(max(taken, default=0) + 1))
        try:
            os.rename(folder, target)
            return target
        except OSError:
            # Another export took this number in the meantime.
            if not os.path.isdir(target):
                raise
