"""Fallback of the parser of the extreme-classification text format."""

import math
import re
from typing import Any

import numpy as np
import tensorflow as tf

from tfxclass.ops.fallback.registry import Ids
from tfxclass.ops.fallback.registry import InvalidInput
from tfxclass.ops.fallback.registry import Strings
from tfxclass.ops.fallback.registry import check_number
from tfxclass.ops.fallback.registry import check_shape
from tfxclass.ops.fallback.registry import fallback
from tfxclass.ops.fallback.registry import on_host

_INTEGER = re.compile(rb"-?[0-9]+\Z")
_NUMBER = re.compile(rb"-?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\Z")
_BLANKS = b" \t\r"


@fallback
def parse_xc_lines(
    lines: Strings,
    line_numbers: Ids,
    num_features: int,
    num_classes: int,
    path: str = "",
) -> list[tf.Tensor]:
    """See `tfxclass.ops.xc_lines.parse_xc_lines`."""
    check_shape("lines", lines, [None])
    check_number("num_features", num_features, 1)
    check_number("num_classes", num_classes, 1)

    def parse(lines: Any, numbers: Any) -> tuple[np.ndarray, ...]:
        if lines.shape != numbers.shape:
            raise InvalidInput(
                "`line_numbers` must have the shape of `lines` "
                f"{lines.shape}. Received: shape {numbers.shape}"
            )
        rows = []
        for line, number in zip(lines, numbers):
            try:
                rows.append(_parse(line, num_features, num_classes))
            except _Malformed as e:
                place = f"{path}, " if path else ""
                raise InvalidInput(f"{place}line {number}: {e}") from e
        labels, features, values = zip(*rows) if rows else ((), (), ())
        return (
            _splits(features),
            _joined(features, np.int64),
            _joined(values, np.float32),
            _splits(labels),
            _joined(labels, np.int64),
        )

    types = (tf.int64, tf.int64, tf.float32, tf.int64, tf.int64)
    return on_host(parse, types, [lines, line_numbers], [[None]] * 5)


class _Malformed(Exception):
    pass


def _splits(lists):
    return np.cumsum([0, *map(len, lists)]).astype(np.int64)


def _joined(lists, dtype):
    return np.array([x for each in lists for x in each], dtype)


def _parse(line, num_features, num_classes):
    if line in (b"", b"\r"):
        raise _Malformed(
            "the line is empty; a row without labels starts with a space"
        )
    head = re.match(rb"[^ \t\r]*", line).group()
    if b":" in head:
        raise _Malformed(
            f"the line starts with the feature {_quoted(head)}; a row "
            "without labels starts with a space"
        )
    labels = [_id("label", x, num_classes) for x in head.split(b",") if head]
    pairs = [
        _feature(token, num_features)
        for token in re.split(rb"[ \t\r]+", line[len(head) :].strip(_BLANKS))
        if token
    ]
    features, values = zip(*pairs) if pairs else ((), ())
    return labels, features, values


def _id(what, text, count):
    if not _INTEGER.match(text):
        raise _Malformed(f"{what} {_quoted(text)} is not an integer")
    if not 0 <= int(text) < count:
        raise _Malformed(f"{what} {_quoted(text)} is not in [0, {count})")
    return int(text)


def _feature(text, num_features):
    name, colon, number = text.partition(b":")
    if not colon:
        raise _Malformed(
            f"feature {_quoted(text)} has no colon, not feature:value"
        )
    feature = _id("feature", name, num_features)
    value = float(number) if _NUMBER.match(number) else math.nan
    with np.errstate(over="ignore"):
        is_finite = np.isfinite(np.float32(value))
    if not is_finite:
        raise _Malformed(
            f"value {_quoted(number)} of feature {feature} is not a finite "
            "number"
        )
    return feature, value


def _quoted(text):
    """Short, and printable whatever it holds."""
    shown = "".join(
        chr(c) if 32 <= c < 127 else f"\\x{c:02x}" for c in text[:40]
    )
    return f"'{shown}{'...' if len(text) > 40 else ''}'"
