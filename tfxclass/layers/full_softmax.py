"""The exact softmax, without its memory."""

import keras

from tfxclass.layers.class_head import ClassHead
from tfxclass.losses.objectives import ALL_OBJECTIVES


@keras.saving.register_keras_serializable("tfxclass")
class FullSoftmax(ClassHead):
    """Exact softmax that never holds the [batch, num_classes] matrix.

    Use it up to some ten thousand classes, and as the baseline for the other
    heads. With `loss="sigmoid"` or `"squared_hinge"` it learns independent
    labels, also exactly.

    Each training step computes four matrix products of [batch, dim] by [dim,
    num_classes], and updates all class vectors. With an optimizer of
    `tfxclass.optimizers` on a CPU, a step holds neither the logits nor the
    gradient of `kernel`. Class vectors are updated as soon as their part of the
    gradient is known.

    In some cases the whole gradient is one tensor, with the same numbers up to
    rounding. These are an optimizer of Keras, gradient clipping, gradient
    accumulation, constraints, loss scaling, a distribution strategy,
    `run_eagerly`, and loss options that change logits. Losses other than the
    softmax hold a block of logits in addition to the gradient: 8 MiB, and 4 KiB
    for each example if there are 2,048 or more.

    Products are computed in float32. Under the policy `"mixed_bfloat16"`, on a
    processor with AMX, features, class vectors and gradients of logits are
    rounded to bfloat16 for them; their sums, logits and losses are float32 (see
    `docs/exact.md`).

    Args:
        num_classes: int, number of classes.
        **kwargs: arguments of `ClassHead` (`similarity`, `use_bias`, `tied_to`,
            `bias_initializer`) and of `OutputHead` (`loss`, `loss_options`,
            `class_names`, `activation`, `kernel_initializer`, `kernel_dtype`,
            `seed`).

    Example:

    ```python
    head = tfxclass.layers.FullSoftmax(num_classes=10_000)
    model = keras.Sequential([keras.layers.Dense(64), head])
    model.compile(tfxclass.optimizers.LazyAdam(), loss=head.loss)
    model.fit(np.ones([32, 20]), np.arange(32), verbose=0)
    ```

    References:
        Wijmans et al., Cut Your Losses in Large-Vocabulary Language Models,
        2024 (computation in blocks, forward and backward).
    """

    loss_kinds = ALL_OBJECTIVES

    @property
    def steps_by_class(self) -> bool:
        return self.is_exact_softmax
