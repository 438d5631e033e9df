"""`recover`: a model with its class matrix in full width."""

from typing import Any

import keras
import numpy as np

from tfxclass import progress
from tfxclass.checks import check_choice
from tfxclass.checks import check_number
from tfxclass.data.batches import Batches
from tfxclass.inference.graph import encoder_of
from tfxclass.layers.block_heads import AdaptiveProjectedSoftmax
from tfxclass.layers.class_head import FullSoftmax
from tfxclass.layers.projected_softmax import ProjectedSoftmax
from tfxclass.recovery.step import lifted_blocks
from tfxclass.recovery.step import recovered_by_step
from tfxclass.recovery.step import row_blocks
from tfxclass.recovery.step import rows_held_out
from tfxclass.recovery.sums import RecoverySums

_HEADS = (ProjectedSoftmax, AdaptiveProjectedSoftmax)
# Rows of arrays that are computed at a time: a sample of the classes serves
# more rows.
_BATCH, _BATCH_OF_SAMPLE = 256, 1024


def recover(
    model: keras.Model,
    dataset: Any = None,
    l2: float | None = None,
    method: str = "step",
    num_sampled: int | None = None,
    verbose: int = 1,
) -> keras.Model:
    """A model with class vectors in full width, after one pass over the data.

    Use it after training with a `ProjectedSoftmax`, whose class vectors are
    short. `docs/recovery.md` compares the methods, and says how to fine-tune.

    - `"step"` starts with the short class vectors times the projection, V R^T,
      which gives exactly the same answers. One preconditioned gradient step of
      the full objective follows. Its length is chosen on held-out examples (a
      tenth of all, at most 4,096), where it is never worse than V R^T.
    - `"dual"`, the method of the paper, is `W = (Y - P)^T X / (n l2)` with the
      probabilities P of the projected model, a gradient step of length 1 / l2.
      A warning says where it may overshoot.
    - `"lift"` is V R^T alone, and needs no data.

    Memory: three class matrices in full width, plus the model.

    Args:
        model: a Sequential or functional model that ends in a
            `ProjectedSoftmax` or an `AdaptiveProjectedSoftmax`. It is not
            changed, and its encoder is shared.
        dataset: the training data, in any order, as for `fit`: arrays `(inputs,
            labels)` or `(inputs, labels, sample_weight)`, or a
            `tf.data.Dataset` or `keras.utils.PyDataset` of such batches. Arrays
            come in batches of 256, 1,024 with `num_sampled`. None for the lift.
        l2: float > 0, weight of `|W|^2 / 2` in the mean loss, for the dual.
            Defaults to the head's own.
        method: `"step"` (default), `"dual"` or `"lift"`.
        num_sampled: int, for millions of classes: probabilities are estimated
            from the labels of a batch, which should be large, and so many
            classes, sampled uniformly. The pass costs as much as a sampled
            training epoch. The search of the step still needs all classes.
        verbose: 1 shows a progress bar and the chosen step with its loss on
            held-out examples. 0 shows nothing.

    Returns:
        A built, uncompiled `keras.Model` that ends in a `FullSoftmax`.

    Raises:
        ValueError: if the head is of another kind or has cosine logits, `l2` of
            the dual is not positive, or the dataset has no labels, no examples
            or numbers that are not finite.

    Example:

    ```python
    head = tfxclass.layers.ProjectedSoftmax(500, 16)
    model = keras.Sequential([keras.Input([64]), head])
    model.compile(tfxclass.optimizers.LazyAdam(), loss=head.loss)
    x = np.random.default_rng(0).normal(size=[1000, 64])
    y = np.arange(1000) % 500
    model.fit(x, y, verbose=0)
    full = tfxclass.recovery.recover(model, (x, y), verbose=0)
    ```

    References:
        Yuan et al., Accelerating Deep Learning with Millions of Classes, ECCV
        2020, dual recovery.
    """
    encoder, head = encoder_of(model)
    check_choice("method", method, ("step", "dual", "lift"))
    similarity = getattr(head, "similarity", "dot")
    if not isinstance(head, _HEADS) or similarity != "dot":
        raise ValueError(
            "`model` must end in a ProjectedSoftmax or an "
            'AdaptiveProjectedSoftmax with similarity="dot". Received: '
            f"{type(head).__name__} {head.name!r} with similarity="
            f"{similarity!r}."
        )
    if method == "lift":
        kernel = np.concatenate([rows for _, rows in lifted_blocks(head)])
        return _with_full_head(encoder, head, kernel)
    l2 = getattr(head, "l2", 0.0) if l2 is None else l2
    if method == "dual":
        # Without the penalty, the best class matrix does not follow from P.
        wanted = 'finite and > 0 with method="dual": give it, or train with it'
        check_number("l2", l2, lambda x: 0 < x < np.inf, wanted)
    max_held_out = rows_held_out(head.num_classes) if method == "step" else 0
    sums = RecoverySums(head, num_sampled, max_held_out)
    size = _BATCH if num_sampled is None else _BATCH_OF_SAMPLE
    batches = Batches("dataset", dataset, size)
    bar = keras.utils.Progbar(batches.count, verbose=verbose)
    for number, batch in enumerate(batches, 1):
        x, y, weight = keras.utils.unpack_x_y_sample_weight(batch)
        sums.add(encoder(x, training=False), y, weight)
        bar.update(number)
    if method == "dual":
        kernel = sums.dual(l2)
    else:
        with progress.log_if_slow("Solving for the class rows"):
            kernel, report = recovered_by_step(sums)
        if verbose:
            print(report)
    del sums  # It is as large as the class matrix.
    return _with_full_head(encoder, head, kernel)


def _with_full_head(encoder, head, kernel):
    """A model that ends in `FullSoftmax`, with the bias of `head`, if any."""
    bias = getattr(head, "bias", None)
    full = FullSoftmax(
        head.num_classes,
        use_bias=bias is not None,
        activation=head.activation,
        # Others hold two more matrices for a moment.
        kernel_initializer="zeros",
        seed=head.seed,
        name=f"{head.name}_recovered",
        class_names=head.class_names,
        removed=head.removed,
    )
    full.build((None, kernel.shape[1]))
    # At once, it would be copied twice.
    for at in row_blocks(*kernel.shape):
        full.kernel.value[at].assign(kernel[at])
    if bias is not None:
        full.bias.assign(bias)
    return keras.Model(encoder.input, full(encoder.output))
