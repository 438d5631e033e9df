"""Readers of data sets on disk."""

from tfxclass.data.xc_file import XCFile

__all__ = ["XCFile"]


def __dir__() -> list[str]:
    return __all__
