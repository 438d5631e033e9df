"""Sparsemax: the softmax that gives most classes exactly zero."""

import tensorflow as tf

from tfxclass.core import targets as targets_lib
from tfxclass.keras_internals import custom_gradient
from tfxclass.ops import library
from tfxclass.ops import placement
from tfxclass.types import Array

tf.no_gradient("Tfxclass>SparsemaxThreshold")


def sparsemax(logits: Array, axis: int = -1) -> tf.Tensor:
    """Projects logits onto the probability simplex (Euclidean distance).

    The result, of the shape and type of `logits`, is `max(z - tau, 0)` with the
    tau that makes it sum to 1. One pass finds tau, but for float64 a sort. Rows
    with a NaN or an infinite maximum become NaN.

    Args:
        logits: floats of rank 1 or more. float64 is computed in float64, and
            other types in float32. Integers become float32.
        axis: int, the dimension of the classes.

    Raises:
        ValueError: if `axis` is out of range, or `logits` are not numbers.

    Example:

    ```python
    probabilities = tfxclass.losses.sparsemax(tf.constant([[2.0, 1.5, -1.0]]))
    ```

    References:
        Martins & Astudillo, From Softmax to Sparsemax, ICML 2016, algorithm 1.
    """
    logits = tf.convert_to_tensor(logits)
    if not (logits.dtype.is_floating or logits.dtype.is_integer):
        raise ValueError(
            f"`logits` must be numbers. Received: {logits.dtype.name}"
        )
    rank = logits.shape.rank
    if not isinstance(axis, int) or (
        rank is not None and not -rank <= axis < rank
    ):
        raise ValueError(
            "`axis` must be an integer, a dimension of `logits`. Received: "
            f"axis={axis!r} for shape {logits.shape}"
        )
    dtype = logits.dtype if logits.dtype.is_floating else tf.float32
    exact = tf.float64 if dtype == tf.float64 else tf.float32
    swap = tf.experimental.numpy.swapaxes
    turned = swap(tf.cast(logits, exact), axis, -1)
    shape = tf.shape(turned)
    rows = tf.reshape(turned, [tf.size(turned) // shape[-1], shape[-1]])
    result = swap(tf.reshape(_sparsemax(rows), shape), axis, -1)
    return tf.ensure_shape(tf.cast(result, dtype), logits.shape)


@custom_gradient
def _sparsemax(logits):
    top, tau = _threshold(logits)
    probabilities = _above(logits, top, tau)

    def grad(upstream):
        """s * (u - mean of u over the support s), their equation 9."""
        support = tf.cast(probabilities > 0, logits.dtype)
        count = tf.reduce_sum(support, axis=1, keepdims=True)
        total = tf.reduce_sum(support * upstream, axis=1, keepdims=True)
        return support * (upstream - total / count)

    return probabilities, grad


def _threshold(logits):
    """`(top, tau)` of rows: the greatest logit, and tau less that."""
    if logits.dtype == tf.float32:
        ops = placement.ops_for(logits, library.inference_ops())
        return ops.tfxclass_sparsemax_threshold(logits)[:2]
    top = tf.reduce_max(logits, axis=1)
    z = tf.sort(logits - top[:, tf.newaxis], axis=1, direction="DESCENDING")
    sums = tf.cumsum(z, axis=1)
    ranks = tf.cast(tf.range(1, tf.shape(z)[1] + 1), z.dtype)
    # The support is where 1 + k z_k is above the sum of the k greatest.
    count = tf.reduce_sum(tf.cast(1 + ranks * z > sums, tf.int32), axis=1)
    last = tf.maximum(count, 1)
    total = tf.gather(sums, last - 1, axis=1, batch_dims=1)
    tau = (total - 1) / tf.cast(last, z.dtype)
    is_sound = tf.math.is_finite(top)
    is_sound &= ~tf.reduce_any(tf.math.is_nan(logits), axis=1)
    return top, tf.where(is_sound, tau, float("nan"))


def _above(logits, top, tau):
    # In this order: at 1e4 a float32 is 1e-3 from the next.
    shifted = logits - top[:, tf.newaxis]
    return tf.nn.relu(shifted - tau[:, tf.newaxis])


def sparsemax_loss(
    logits: tf.Tensor, targets: targets_lib.Targets
) -> tf.Tensor:
    """The loss whose gradient is `sparsemax(z) - q`.

    q is uniform on the labels of an example. The loss is 0 if the logit of each
    label is large enough (1 above all other classes, for a single label).
    Logits are float32 `[batch, num_classes]`, and losses `[batch]`, 0 for
    examples without labels (Martins & Astudillo, ICML 2016, section 3).
    """

    @custom_gradient
    def loss_of(logits):
        ops = placement.ops_for(logits, library.ops)
        top, tau, squares = ops.tfxclass_sparsemax_threshold(logits)
        of_targets = targets_lib.take_columns(logits, targets.ids)
        # Padding may be infinite.
        along = tf.math.multiply_no_nan(
            of_targets - top[:, tf.newaxis], targets.weights
        )
        # With p = max(z - tau, 0), which sums to 1, the sum over the support
        # of z^2 - tau^2 is |p|^2 + 2 tau; z less its maximum keeps it small.
        norm = tf.reduce_sum(targets.weights**2, axis=1)
        loss = 0.5 * (squares + norm) + tau - tf.reduce_sum(along, axis=1)

        def grad(upstream):
            upstream = (upstream * targets.is_labelled)[:, tf.newaxis]
            places, at = targets_lib.places_of(targets.ids)
            of_labels = tf.gather_nd(-targets.weights * upstream, places)
            return tf.tensor_scatter_nd_add(
                _above(logits, top, tau) * upstream, at, of_labels
            )

        return tf.where(targets.is_labelled > 0, loss, 0.0), grad

    return loss_of(logits)
