"""A head's forward pass, which travels with the output that it made.

Keras hands a loss `y_pred` alone, where a head wants the features that it came
from. So `call` attaches them to its output, as Keras attaches `_keras_mask`.
"""

import contextlib
import contextvars
import weakref
from collections.abc import Iterator
from typing import Any
from typing import NamedTuple

import keras
import tensorflow as tf

from tfxclass.types import Array

_FORWARD = "_tfxclass_forward"
# A context variable: Keras hands a layer no arguments of ours, and another
# thread may call the head meanwhile.
_features_only = contextvars.ContextVar("features_only", default=False)


class Ranking(NamedTuple):
    """The logits by which metrics rank the labels of a training step.

    Attributes:
        logits: float32 `[rows, n]`, of the classes that the step computed.
        positions: int64 `[rows, p]`, columns of the labels, -1 for padding.
        rows: int64 `[rows]`, which rows of the batch these are, where rows
            without a label were left out; None is all.
    """

    logits: Any
    positions: Any
    rows: Any = None


class Step(NamedTuple):
    """The results of a training step.

    Attributes:
        losses: float32 `[rows]`.
        ranking: `Ranking`, or None where all classes were computed.
    """

    losses: Any
    ranking: Any = None


class Forward:
    """A forward pass of a head.

    Attributes:
        features: float `[..., dim]`.
        training: bool, or None.
        logits: float32 `[..., num_classes]` in training, else None. They are
            from before the optimizer's update; Keras updates metrics after it.
            In a `tf.function`, they are pruned where no metric reads them.
        losses: float32 `[...]`, once the loss is computed, or None.
        ranking: `Ranking` of the loss, once it is computed, or None.
        answers: `{graph: {k: (ids, scores)}}`, searches that metrics share.
    """

    def __init__(
        self,
        head: keras.layers.Layer,
        features: tf.Tensor,
        training: bool | None,
    ) -> None:
        # A graph, and with it this, may outlive the model.
        self._head = weakref.ref(head)
        self.features = features
        self.training = training
        self.losses = None
        self.ranking = None
        self.logits = None
        self.answers: dict[Any, dict[int, Any]] = {}

    @property
    def head(self) -> Any:
        """The head, or None once it is gone."""
        return self._head()

    def has_diverged(self, rows: tf.Tensor) -> tf.Tensor:
        """bool `[rows]`: where the loss, if it is computed, is not finite."""
        if self.losses is None:
            return tf.zeros([rows], tf.bool)
        return ~tf.math.is_finite(tf.reshape(self.losses, [-1]))


def attach(output: tf.Tensor, forward: Forward) -> tf.Tensor:
    """`output`, a tensor, with the pass that made it."""
    setattr(output, _FORWARD, forward)
    return output


def of(output: Any) -> Forward | None:
    """The `Forward` that made `output`, or None."""
    return getattr(output, _FORWARD, None)


@contextlib.contextmanager
def features_only() -> Iterator[None]:
    """Within it heads attach their features to zeros, and read no weights."""
    token = _features_only.set(True)
    try:
        yield
    finally:
        _features_only.reset(token)


def is_features_only() -> bool:
    """Whether only the features of heads are of interest."""
    return _features_only.get()


def forward_of(y_pred: Any, head_name: str, reader: str) -> Forward:
    """The `Forward` that made `y_pred`, for the loss or metric `reader`."""
    forward = of(y_pred)
    if forward is not None and forward.head is not None:
        if forward.head.name == head_name:
            return forward
        raise ValueError(
            f"`{reader}` is of the head {head_name!r}. Received: the output of "
            f"another head, {forward.head.name!r}. Fix: take the loss and the "
            "metrics from the head that is the model's last layer"
        )
    shape = getattr(y_pred, "shape", None)
    received = f"a {type(y_pred).__name__} of shape {shape}, which is not "
    received += "a head's output"
    if forward is not None:
        received = "the output of a head that no longer exists"
    raise ValueError(
        f"`{reader}` works with what the head {head_name!r} returned, as it "
        "is. Make the head the last layer, without an Activation, a cast or a "
        "tf.identity after it; features [batch, time, dim] go straight into "
        "it, without TimeDistributed; the gradient of a pass that is computed "
        f"again needs head.compute_loss. Received: {received}."
    )


def flatten(features: tf.Tensor) -> tf.Tensor:
    """Features `[..., dim]` as float32 `[rows, dim]`, a row a position."""
    features = tf.cast(features, tf.float32)
    if features.shape.rank == 2:
        return features
    return tf.reshape(features, [-1, features.shape[-1]])


def unflatten(values: tf.Tensor, features: tf.Tensor) -> tf.Tensor:
    """Values `[rows, ...]` in the leading dimensions of `features`."""
    if features.shape.rank == 2:
        return values
    leading = tf.shape(features)[:-1]
    shape = tf.concat([leading, tf.shape(values)[1:]], axis=0)
    static = features.shape[:-1].concatenate(values.shape[1:])
    return tf.ensure_shape(tf.reshape(values, shape), static)


def row_weights(sample_weight: Array, features: tf.Tensor) -> tf.Tensor:
    """Sample weights of positions, or of sequences, as float32 `[rows]`."""
    weights = tf.cast(sample_weight, tf.float32)
    rank = features.shape.rank - 1
    weights = tf.broadcast_to(with_rank(weights, rank), tf.shape(features)[:-1])
    return tf.reshape(weights, [-1])


def with_rank(weights: Array, rank: int) -> tf.Tensor:
    """Weights of sequences as weights of their positions, of a rank."""
    # A trace for weights of several shapes does not know theirs.
    shape = tf.pad(tf.shape(weights), [[0, rank]], constant_values=1)
    return tf.ensure_shape(tf.reshape(weights, shape[:rank]), [None] * rank)


def check_weight_shape(weight: tf.Tensor, leading: tf.TensorShape) -> None:
    """Raises ValueError for weights that rows, or positions, do not have."""
    shape, leading = tf.TensorShape(weight.shape), tf.TensorShape(leading)
    if shape.rank in (None, 0) or leading.rank is None:
        return
    own = shape[:-1] if shape.rank > 1 and shape[-1] == 1 else shape
    # A weight for each sequence is one for all of its positions.
    fits = own.rank <= leading.rank and all(
        size is None or wanted is None or size in (1, wanted)
        for size, wanted in zip(own, leading)
    )
    if not fits:
        wanted = ["[batch]", "[batch, time]"][: leading.rank]
        raise ValueError(
            f"`sample_weight` must have shape {' or '.join(wanted)}: a row has "
            "one weight, however many labels it has. Fix: for a weight of each "
            "class, loss_options=tfxclass.losses.LossOptions(class_weight=...)"
            f". Received: shape {shape}."
        )


def mean(losses: tf.Tensor, mask: tf.Tensor | None) -> tf.Tensor:
    """Mean loss, a scalar, over the positions that a mask, or None, leaves."""
    if mask is None:
        return tf.reduce_mean(losses)
    count = tf.reduce_sum(tf.cast(mask, losses.dtype))
    return tf.math.divide_no_nan(tf.reduce_sum(losses), count)
