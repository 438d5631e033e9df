"""Class names in an export: a text file with one name in each line."""

import os
from collections.abc import Iterable
from collections.abc import Sequence
from typing import Literal

import keras
import tensorflow as tf

from tfxclass import text_files
from tfxclass.checks import check_distinct_names
from tfxclass.checks import check_value
from tfxclass.layers.head_config import checked_names
from tfxclass.paths import local_path
from tfxclass.types import Path

FILE_NAME = "labels.txt"


def of_head(
    labels: Sequence[str] | Path | Literal[False] | None,
    head: keras.layers.Layer,
) -> list[str] | None:
    """The names that `labels`, an argument, says, or None; ValueError for bad.

    They are a list, or the path of a text file. By default a head's own.
    """
    if labels is False:
        return None
    # A head has checked its own.
    if labels is None:
        return head.class_names
    if isinstance(labels, (str, os.PathLike)):
        lines = text_files.read_lines(local_path(labels, "labels"))
        labels = [line.rstrip("\r\n") for line in lines]
    wanted = "a list of names, the path of a text file, or False for none"
    check_value("labels", labels, isinstance(labels, Iterable), wanted)
    names = checked_names("labels", labels, head.num_classes)
    check_distinct_names("labels", names, head.removed)
    return names


def write(names: Sequence[str] | None, folder: Path) -> str | None:
    """Writes the names; returns the file's path, or None for None."""
    if names is None:
        return None
    path = os.path.join(folder, FILE_NAME)
    with open(path, "w", encoding="utf-8", newline="\n") as f:
        f.writelines(name + "\n" for name in names)
    return path


def table(path: Path) -> tf.lookup.StaticHashTable:
    """Lookup table from int64 class ids to names, read when it is loaded."""
    initializer = tf.lookup.TextFileInitializer(
        path,
        key_dtype=tf.int64,
        key_index=tf.lookup.TextFileIndex.LINE_NUMBER,
        value_dtype=tf.string,
        value_index=tf.lookup.TextFileIndex.WHOLE_LINE,
    )
    return tf.lookup.StaticHashTable(initializer, default_value="")
