"""Tells whether the built ops are those of the sources beside them."""

import glob
import hashlib
import os

HERE = os.path.dirname(os.path.abspath(__file__))


def source_digest(folder: str = HERE) -> str:
    """Of all that the ops are compiled from, their tests left out."""
    digest = hashlib.sha256()
    for path in sorted(glob.glob(os.path.join(folder, "**"), recursive=True)):
        name = os.path.relpath(path, folder)
        if name.endswith((".h", ".cc")) and not name.startswith("gpu_tests"):
            digest.update(name.encode() + b"\0")
            with open(path, "rb") as f:
                digest.update(f.read() + b"\0")
    return digest.hexdigest()
