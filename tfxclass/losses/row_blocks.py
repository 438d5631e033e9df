"""Losses of matrices, some rows at a time.

A loss of many terms holds, between its passes, several matrices of the shape
of its logits for each. In blocks of rows it holds them for one block: the
forward pass keeps the losses alone, the backward pass computes each block once
more.
"""

from collections.abc import Callable
from collections.abc import Sequence

import tensorflow as tf

from tfxclass.core.softmax import first_order_gradients
from tfxclass.keras_internals import custom_gradient
from tfxclass.ops import library

# Numbers of a matrix in a block: half a MiB of float32, so that a dozen
# of them stay in a cache.
BLOCK_NUMBERS = 1 << 17


def in_row_blocks(
    name: str,
    loss_of: Callable[..., tf.Tensor],
    matrices: Sequence[tf.Tensor],
    others: Sequence[tf.Tensor] = (),
    copies: int = 1,
) -> tf.Tensor:
    """`loss_of` of all rows, in blocks; gradients are of first order.

    Args:
        name: str, the loss, for the message of second-order gradients.
        loss_of: function of a block: int64 scalar, its first row; then the
            block's rows of `matrices` and of `others`; returns float32
            `[rows]`. Its variables, and what else it reads, get no gradient.
        matrices: float32 tensors `[batch, n]`, which get gradients.
        others: tensors without gradients. Blocks get rows of the matrices
            among them, and vectors as they are.
        copies: int, how often `loss_of` repeats a matrix; blocks are smaller by
            as much.
    """
    batch, width = tf.unstack(tf.shape(matrices[0], tf.int64))
    numbers = tf.constant(BLOCK_NUMBERS // copies, tf.int64)
    size = tf.maximum(numbers // tf.maximum(width, 1), 1)

    def rows(x, start):
        return x[start : start + size] if x.shape.rank == 2 else x

    def fold(step, state):
        return tf.while_loop(
            lambda start, *_: start < batch,
            lambda start, *state: (start + size, *step(start, *state)),
            (tf.zeros([], tf.int64), *state),
            parallel_iterations=1,
        )[1:]

    @custom_gradient
    def losses_of(*matrices):
        # Out of sight of an eager tape, which would keep every block.
        unseen = [tf.stop_gradient(x) for x in matrices]

        def losses_at(start, taken):
            return loss_of(start, *taken, *[rows(x, start) for x in others])

        def forward(start, losses):
            taken = [rows(x, start) for x in unseen]
            return [_write(losses, losses_at(start, taken), start)]

        def grad(upstream):
            def backward(start, *grads):
                taken = [rows(x, start) for x in unseen]
                with tf.GradientTape() as tape:
                    tape.watch(taken)
                    losses = losses_at(start, taken)
                of_rows = tape.gradient(
                    losses,
                    taken,
                    upstream[start : start + size],
                    tf.UnconnectedGradients.ZERO,
                )
                return [_write(*x, start) for x in zip(grads, of_rows)]

            empty = [library.ops.tfxclass_empty_like(x) for x in unseen]
            grads = fold(backward, empty)
            return first_order_gradients(name, grads, matrices)

        return fold(forward, [tf.zeros([batch])])[0], grad

    return losses_of(*matrices)


def _write(matrix, rows, start):
    return library.ops.tfxclass_write_rows(matrix, rows, start)
