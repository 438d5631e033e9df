"""Parser of the extreme-classification text format."""

from typing import NamedTuple

import tensorflow as tf

from tfxclass.ops import library

tf.no_gradient("Tfxclass>ParseXcLines")


class XCRows(NamedTuple):
    """The result of `parse_xc_lines` for n lines.

    Attributes:
        feature_splits: int64 `[n + 1]`; row i has the features
            `feature_splits[i]` to `feature_splits[i + 1]`.
        features: int64 `[number of f:v]`, feature ids.
        values: float32, shape of `features`.
        label_splits: int64 `[n + 1]`, the same for the labels.
        labels: int64 `[number of labels]`, class ids.
    """

    feature_splits: tf.Tensor
    features: tf.Tensor
    values: tf.Tensor
    label_splits: tf.Tensor
    labels: tf.Tensor


def parse_xc_lines(
    lines: tf.Tensor,
    line_numbers: tf.Tensor,
    num_features: int,
    num_classes: int,
    path: str = "",
) -> XCRows:
    """Parses rows `l1,l2 f:v f:v ...`, in parallel over the lines.

    Lines are string `[n]`, without newlines. Their numbers, int64 `[n]`, and
    the path are for messages.

    Raises:
        InvalidArgumentError: a malformed line, the first of them, with what
            is wrong; or shapes that do not agree.
    """
    return XCRows(
        *library.ops.tfxclass_parse_xc_lines(
            lines,
            line_numbers,
            num_features=num_features,
            num_classes=num_classes,
            path=path,
        )
    )
