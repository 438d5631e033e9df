"""Labels as every loss of the library sees them, and margins on them."""

import contextlib
import math
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import NamedTuple

import tensorflow as tf

from tfxclass.types import Array
from tfxclass.types import Labels
from tfxclass.types import Margin

# Rows of as many ids do not repeat two classes only.
_FEW_IDS = 10
#: What to do about ids that are out of range.
RANGE_FIX = (
    "Fix: make the head with more classes, or number the classes from 0 "
    "(names, y = np.unique(y, return_inverse=True))."
)
# Classes whose ids a type holds exactly.
_EXACT = {
    tf.bfloat16: 1 << 8,
    tf.float16: 1 << 11,
    tf.float32: 1 << 24,
    tf.float64: 1 << 53,
}
_SHAPES = (
    "`labels` must have the shape of the features without their last "
    "dimension, or one dimension more."
)


class Targets(NamedTuple):
    """Labels of a batch, padded.

    Attributes:
        ids: int64 `[batch, p]`, padded with -1, distinct in each row.
        weights: float32 `[batch, p]`: 1 / (number of labels), or 1 if labels
            are independent. 0 for padding.
        negatives: int64 `[batch, m]`, padded with -1, hard negatives that a
            sampled step includes, or None.
    """

    ids: tf.Tensor
    weights: tf.Tensor
    negatives: tf.Tensor | None = None

    def map(self, function: Callable[[tf.Tensor], tf.Tensor]) -> "Targets":
        """Applies a function to each tensor."""
        return Targets(*(x if x is None else function(x) for x in self))

    @property
    def is_labelled(self) -> tf.Tensor:
        """float32 `[batch]`: 1 for examples with a label, else 0."""
        return tf.cast(tf.reduce_any(self.ids >= 0, axis=1), tf.float32)


def as_targets(
    labels: Labels,
    num_classes: int,
    leading_shape: tf.Tensor | None = None,
    mask: tf.Tensor | None = None,
) -> Targets:
    """Checks labels and pads them; returns `Targets`.

    Args:
        labels: integers, `[batch]`, or `[batch, p]` padded with -1. An example
            without labels has loss 0. A repeated label counts once. Floats are
            taken where they are whole numbers and exact: float64, and float32
            for up to 16,777,216 classes.
        num_classes: int.
        leading_shape: int32 tensor, shape of the features without their last
            dimension, if it is not `[batch]`. Labels have this shape, or one
            dimension more, and become `[rows, p]`.
        mask: bool of that shape, or None: False where there are no labels.

    Raises:
        ValueError: if labels are no class ids, or have another rank.
        InvalidArgumentError: if ids are outside `[-1, num_classes)`, labels
            have another length than the features, are one-hot, or floats that
            are not whole.
    """
    labels = as_tensor(labels)
    if labels.dtype == tf.string:
        raise ValueError(
            "`labels` must be integer class ids. Received: strings. Number "
            "them: names, y = np.unique(y, return_inverse=True). In a tf.data "
            "pipeline use keras.layers.StringLookup(vocabulary=names, "
            "num_oov_indices=0)."
        )
    is_float = labels.dtype.is_floating
    if num_classes <= _EXACT.get(labels.dtype, 0):
        labels = _whole(labels, num_classes)
    if not labels.dtype.is_integer:
        raise ValueError(
            "`labels` must be integer class ids of shape [batch], or "
            "[batch, p] padded with -1. Received: dtype="
            f"{labels.dtype.name} with num_classes={num_classes}, which it "
            "cannot hold exactly. Cast them, e.g. y.astype('int64'); "
            "one-hot labels become ids by argmax. In `compile`, pass "
            "loss=head.loss, and not the head."
        )
    ids = _as_rows(labels, leading_shape)
    not_one_hot = _require_no_one_hot(ids, num_classes, is_float)
    if mask is not None:
        ids = tf.where(tf.reshape(mask, [-1, 1]), ids, -1)
    with not_one_hot, _require_range(ids, num_classes):
        return uniform_targets(_without_repeats(ids))


def _whole(labels, num_classes):
    """Floats as int64, where all are whole numbers; probabilities are not."""
    is_whole = (tf.floor(labels) == labels) & tf.math.is_finite(labels)
    with require(
        tf.reduce_all(is_whole),
        "labels_must_be_whole_numbers",
        "`labels` must be integer class ids, and these floats are not whole "
        "numbers. Fix: probabilities and one-hot rows become ids by argmax, "
        "missing labels are -1; in `compile`, pass loss=head.loss, and not "
        f"the head. Received: dtype={labels.dtype.name} with "
        f"num_classes={num_classes}, and among them",
        tf.boolean_mask(labels, ~is_whole)[:1],
    ):
        return tf.cast(labels, tf.int64)


def as_tensor(labels: Labels) -> tf.Tensor:
    """Labels as a tensor; ragged ones are padded with -1."""
    if isinstance(labels, tf.RaggedTensor):
        is_text = labels.dtype == tf.string
        return labels.to_tensor("" if is_text else -1)
    if isinstance(labels, tf.SparseTensor):
        raise ValueError(
            "`labels` must be dense class ids. Received: a SparseTensor of "
            f"shape {labels.shape}. If its values are ids, use "
            "tf.sparse.to_dense(labels, default_value=-1)."
        )
    return tf.convert_to_tensor(labels)


def _as_rows(labels, leading_shape):
    """int64 `[rows, p]`."""
    ids = tf.cast(labels, tf.int64)
    leading = tf.shape(ids)[:1] if leading_shape is None else leading_shape
    rank = 1 if leading_shape is None else leading.shape[0]
    if labels.shape.rank not in (None, rank, rank + 1):
        wanted = ", ".join(["batch", "time", *"abcdefgh"][:rank])
        raise ValueError(
            f"`labels` must have shape [{wanted}] or [{wanted}, p], since the "
            f"features have {rank + 1} dimensions. Received: shape "
            f"{labels.shape}."
        )
    _check_static_shape(labels, leading)
    shape = tf.shape(ids)
    # -1 where there are fewer dimensions.
    known = tf.pad(shape, [[0, rank]], constant_values=-1)[:rank]
    with require(
        tf.reduce_all(known == leading) & (tf.size(shape) <= rank + 1),
        "labels_must_have_the_shape_of_features",
        f"{_SHAPES} Received: shapes of labels and features",
        shape,
        leading,
    ):
        # A trace may be of labels of either rank.
        width = tf.reduce_prod(shape[rank:])
        ids = tf.reshape(ids, [tf.reduce_prod(leading), width])
    if labels.shape.rank == rank:
        return tf.ensure_shape(ids, [None, 1])
    if labels.shape.rank == rank + 1 and labels.shape[-1]:
        return tf.ensure_shape(ids, [None, labels.shape[-1]])
    # No row may have a label: [rows, 0] is a column of padding.
    missing = tf.cast(tf.equal(tf.shape(ids)[1], 0), tf.int32)
    return tf.pad(ids, [[0, 0], [0, missing]], constant_values=-1)


def _check_static_shape(labels, leading):
    """Raises ValueError for a wrong shape that is known while tracing."""
    if tf.executing_eagerly():
        return
    # Never computed: it has the shape that is known of `leading`.
    known = tf.zeros(leading, tf.bool).shape
    shape = labels.shape
    if not shape[: known.rank].is_compatible_with(known):
        raise ValueError(
            f"{_SHAPES} Received: labels of shape {shape} with features of "
            f"shape {known} without their last dimension."
        )


def _require_range(ids, num_classes):
    return require(
        tf.reduce_all((ids >= -1) & (ids < num_classes)),
        "labels_must_be_less_than_num_classes",
        "Received labels from",
        tf.reduce_min(ids),
        "to",
        tf.reduce_max(ids),
        f"but the head has num_classes={num_classes}: ids from 0 to "
        f"{num_classes - 1}, and -1 for padding. {RANGE_FIX}",
    )


def _require_no_one_hot(ids, num_classes, is_float):
    """Refuses rows of many ids that are all 0 and 1.

    Rows that repeat one class pass. Floats are seldom class ids, so two columns
    of them are enough.
    """
    if num_classes < 3 and not is_float:
        return contextlib.nullcontext()
    least = 2 if is_float else min(num_classes, _FEW_IDS)
    if ids.shape[1] is not None and ids.shape[1] < least:
        return contextlib.nullcontext()
    is_one_hot = (tf.size(ids) > 0) & (tf.shape(ids)[1] >= least)
    is_one_hot &= tf.reduce_all((ids == 0) | (ids == 1))
    is_one_hot &= tf.reduce_any(ids[:, :1] != ids)
    return require(
        ~is_one_hot,
        "labels_must_be_class_ids_not_one_hot",
        "`labels` must be class ids, and these look like one-hot or "
        "multi-hot rows. Use their places: one-hot labels become ids by "
        f"argmax. Received: num_classes={num_classes} with zeros and ones of "
        "shape",
        tf.shape(ids),
    )


def uniform_targets(ids: tf.Tensor) -> Targets:
    """`Targets` of distinct ids, with equal weights in each row."""
    present = tf.cast(ids >= 0, tf.float32)
    count = tf.reduce_sum(present, axis=1, keepdims=True)
    return Targets(ids, tf.math.divide_no_nan(present, count))


def _without_repeats(ids):
    if ids.shape[1] == 1:
        return tf.identity(ids)
    earlier = tf.linalg.band_part(tf.cast(_same(ids), tf.int8), -1, 0)
    repeated = tf.reduce_sum(earlier, axis=2) > 1
    return tf.where(repeated, tf.constant(-1, tf.int64), ids)


def _same(ids):
    return ids[:, :, tf.newaxis] == ids[:, tf.newaxis, :]


def with_negatives(targets: Targets) -> tf.Tensor:
    """Negatives, then labels: int64 `[batch, m + p]`, -1 is padding."""
    if targets.negatives is None:
        return targets.ids
    return tf.concat([targets.negatives, targets.ids], axis=1)


def merge_repeats(targets: Targets) -> Targets:
    """`Targets` in which repeated ids are one, their weights summed."""
    ids, weights = targets.ids, targets.weights
    if ids.shape[1] == 1:
        return targets
    same = tf.cast(_same(ids), tf.float32)
    weights = tf.linalg.matvec(same, weights)
    ids = _without_repeats(ids)
    return Targets(ids, tf.where(ids >= 0, weights, 0.0))


def pick_one(targets: Targets, seed: tf.Tensor) -> Targets:
    """One label of each row of `Targets` with equal weights, at random."""
    keys = tf.random.stateless_uniform(tf.shape(targets.ids), seed)
    keys = tf.where(targets.ids >= 0, keys, -1.0)
    place = tf.argmax(keys, axis=1)[:, tf.newaxis]
    ids = tf.gather(targets.ids, place, axis=1, batch_dims=1)
    return Targets(ids, tf.cast(ids >= 0, tf.float32))


def take_columns(logits: tf.Tensor, ids: tf.Tensor) -> tf.Tensor:
    """`logits[i, ids[i, j]]`, column 0 for padding; `[batch, p]`."""
    return tf.gather(logits, tf.maximum(ids, 0), axis=1, batch_dims=1)


def places_of(ids: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """`(places, at)` of the labels without padding, both int64 `[n, 2]`.

    Places are (row, position) in `ids`, and `at` is (row, column) in a matrix
    whose columns `ids` names.
    """
    places = tf.where(ids >= 0)
    return places, tf.stack([places[:, 0], tf.gather_nd(ids, places)], axis=1)


def with_margin(
    logits: tf.Tensor, margin: Margin | None
) -> tuple[tf.Tensor, tf.Tensor]:
    """`logits` with their margin, and its derivative; both of their shape."""
    if margin is None:
        return logits, tf.ones_like(logits)
    with tf.GradientTape() as tape:
        tape.watch(logits)
        adjusted = margin(logits)
    return adjusted, tape.gradient(adjusted, logits)


def cosface(logits: tf.Tensor, margin: float, scale: float) -> tf.Tensor:
    """CosFace (Wang et al., CVPR 2018, eq. 4): cos - margin, times scale."""
    return logits - scale * margin


def arcface(logits: tf.Tensor, margin: float, scale: float) -> tf.Tensor:
    """ArcFace (Deng et al., CVPR 2019, eq. 3): cos(angle + margin).

    Past pi the angle would decrease again. From there on the cosine falls
    linearly, as in the authors' code.
    """
    cosine = tf.clip_by_value(logits / scale, -1.0, 1.0)
    sine = tf.sqrt(tf.maximum(1.0 - cosine * cosine, 1e-12))
    turned = cosine * math.cos(margin) - sine * math.sin(margin)
    past = cosine - math.sin(margin) * margin
    return scale * tf.where(cosine > -math.cos(margin), turned, past)


def require(
    condition: tf.Tensor, name: str, *message: str | Array
) -> AbstractContextManager:
    """Raises InvalidArgumentError with `message` unless it holds.

    `name` says what must hold, in words joined by `_`. The message may have
    tensors in it. Returns a context: what a graph computes within it waits for
    the check. The node is imported, so that its error has no stack of calls
    above the message.
    """
    if tf.executing_eagerly():
        if condition:
            return contextlib.nullcontext()
        shown = [x if isinstance(x, str) else _shown(x) for x in message]
        raise tf.errors.InvalidArgumentError(None, None, " ".join(shown))
    values = [x for x in message if not isinstance(x, str)]
    inputs = list(map(tf.convert_to_tensor, [condition, *values]))
    # The import fails within `tf.control_dependencies`; inputs are enough.
    with tf.control_dependencies(None):
        (node,) = tf.graph_util.import_graph_def(
            _assertion(inputs, message),
            {f"x{i}:0": x for i, x in enumerate(inputs)},
            return_elements=["check"],
            # Node names have no spaces, and errors show this many letters.
            name=name[:60],
        )
    return tf.control_dependencies([node])


def _shown(tensor):
    value = tf.convert_to_tensor(tensor).numpy()
    return value.decode() if isinstance(value, bytes) else str(value)


def _assertion(inputs, message):
    """A graph with the node `check`, of the inputs `x0`, `x1`, ..."""
    with tf.Graph().as_default() as graph:
        condition, *values = [
            tf.compat.v1.placeholder(x.dtype, x.shape, f"x{i}")
            for i, x in enumerate(inputs)
        ]
        data = [x if isinstance(x, str) else values.pop(0) for x in message]
        tf.raw_ops.Assert(
            condition=condition, data=data, summarize=10, name="check"
        )
    return graph.as_graph_def()
