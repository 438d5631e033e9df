"""Readers of data sets on disk and of word vectors."""

from tfxclass.data.word_vectors import word_vectors
from tfxclass.data.xc_file import XCFile

__all__ = ["XCFile", "word_vectors"]


def __dir__() -> list[str]:
    return __all__
