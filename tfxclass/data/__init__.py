"""Data sets on disk as `tf.data` pipelines."""

from tfxclass.data.xc_file import XCFile

__all__ = ["XCFile"]
