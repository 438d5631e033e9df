"""Paths that users give: `~` is their home, and addresses are refused."""

import os
import re

from tfxclass.types import Path

# `pathlib.Path("gs://a")` is "gs:/a". One letter is a drive.
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")


def local_path(path: Path, name: str = "path") -> str:
    """A path of the local file system as a str; `~` is expanded.

    A ValueError, which names the argument `name`, is raised for what is no
    path, is empty, or is an address of remote storage, such as `gs://bucket`.
    """
    try:
        text = os.fsdecode(path)
    except TypeError as e:
        raise ValueError(
            f"`{name}` must be a path, a str or os.PathLike. Received: "
            f"{path!r} ({type(path).__name__})"
        ) from e
    if not text:
        raise ValueError(f"`{name}` must not be empty. Received: {path!r}")
    if _ADDRESS.match(text):
        raise ValueError(
            f"`{name}` must be a path of a local file or folder. Received: "
            f"{text!r}. Write to or read from a local folder, and copy it with "
            "the tool of your storage, such as `gcloud storage cp` or `aws s3 "
            "cp`."
        )
    return os.path.expanduser(text)


def check_folder(path: Path, name: str) -> None:
    """Raises ValueError unless a folder can be made and written at `path`."""
    path = os.path.abspath(local_path(path, name))
    there = path
    while not os.path.exists(there):
        there = os.path.dirname(there)
    if not os.path.isdir(there) or not os.access(there, os.W_OK | os.X_OK):
        raise ValueError(
            f"`{name}` must be a folder that can be written. Received: "
            f"{path!r}, where {there!r} cannot be written or is a file"
        )
