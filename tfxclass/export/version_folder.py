"""Folders of versions, as TensorFlow Serving polls them."""

import contextlib
import os
import shutil
import uuid
from collections.abc import Iterator

from tfxclass.paths import local_path
from tfxclass.types import Path


class _Folder:
    """A folder that will be renamed; `name` is where it is now."""

    def __init__(self, name: str) -> None:
        self.name = name


@contextlib.contextmanager
def version_folder(path: Path) -> Iterator[_Folder]:
    """A folder to fill, which becomes `path/<next version>` at the end."""
    path = local_path(path)
    if os.path.exists(path) and not os.path.isdir(path):
        raise ValueError(f"`path` must be a folder. Received: {path!r}")
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
