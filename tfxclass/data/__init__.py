"""Readers of data sets on disk."""

from tfxclass.data.xc_file import XCFile

__all__ = ["XCFile"]
__dir__ = __all__.copy  # For completion.
