"""Gradients that cannot be differentiated once more, and say so."""

from collections.abc import Sequence

import tensorflow as tf

from tfxclass.keras_internals import custom_gradient


def gradients(
    name: str, grads: Sequence[tf.Tensor], inputs: Sequence[tf.Tensor]
) -> list[tf.Tensor]:
    """`grads` as they are; their own gradients raise ValueError.

    A loss that hides its inputs from the tape and computes its gradients
    itself is a constant to a second tape, whose gradients would be None: a
    gradient penalty, or a Hessian, that is silently nothing.

    Args:
        name: str, the loss, for the message.
        grads: sequence of tensors, the gradients of the loss.
        inputs: sequence of tensors of rank 1 or more, as the loss was given
            them.

    Returns:
        list of tensors.
    """

    @custom_gradient
    def sealed(gradient, *tensors):
        def grad(*upstream):
            raise ValueError(
                f"{name} has first-order gradients only. For others (gradient "
                "penalties, Hessians, MAML) differentiate "
                "`tf.nn.softmax_cross_entropy_with_logits(y, "
                "head.logits(features))`, which holds [batch, num_classes]; "
                "or put `tf.stop_gradient` around the gradients."
            )

        return tf.identity(gradient), grad

    # A row of each is enough to be known to the tape: no matrix is copied to
    # another device for this. Each gradient apart: what nobody reads is pruned.
    first_rows = [x[:1] for x in inputs]
    return [sealed(gradient, *first_rows) for gradient in grads]


def refuse(tensor: tf.Tensor, message: str) -> tf.Tensor:
    """`tensor`; its gradient raises ValueError with `message`."""

    @custom_gradient
    def sealed(tensor):
        def grad(upstream):
            raise ValueError(message)

        return tf.identity(tensor), grad

    return sealed(tensor)
