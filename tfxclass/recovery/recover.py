"""`recover`: a model with its class matrix in full width."""

import os
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfxclass.checks import check_choice
from tfxclass.data.batches import Batches
from tfxclass.inference.graph import encoder_of
from tfxclass.inference.graph import inputs_as_given
from tfxclass.layers.adaptive_projected_softmax import AdaptiveProjectedSoftmax
from tfxclass.layers.full_softmax import FullSoftmax
from tfxclass.layers.projected_softmax import ProjectedSoftmax
from tfxclass.recovery.dual_recovery import DualRecovery
from tfxclass.recovery.dual_recovery import check_l2
from tfxclass.types import Path


def recover(
    model: keras.Model,
    dataset: Any = None,
    l2: float | None = None,
    reduction: str = "mean",
    method: str = "dual",
    top_k: int | None = None,
    checkpoint: Path | None = None,
    checkpoint_interval: int = 100,
    verbose: int = 1,
    batch_size: int = 32,
) -> keras.Model:
    """The model with its class matrix in full width, from one pass.

    `method="dual"`, the paper's: a slim model, trained to the optimum of its
    loss with `l2`, has almost the probabilities P of the full one, and these
    give the full class matrix `W = (Y - P)^T X / (n l2)` (`DualRecovery`).
    Short of the optimum W is worse than the slim model was; the
    `stationarity_error`, printed at the end, tells. `method="lift"` needs no
    data: W is the slim rows times the projection, which gives exactly the slim
    model's answers in full width. Train the result further with `fit`: the
    paper's second stage.

    Memory: O(num_classes x dim + batch x block). A pass costs one product of
    `[batch, dim]` by `[dim, num_classes]`, and two in the projected width;
    with `top_k` only the latter.

    Args:
        model: a Sequential or functional model that ends in a
            `ProjectedSoftmax` or an `AdaptiveProjectedSoftmax`. It is left as
            it is; its encoder is shared.
        dataset: the training data, once, in any order; only for the dual. As
            `fit` takes them: arrays `(inputs, labels)` or `(inputs, labels,
            sample_weight)`, or batches of them, a `tf.data.Dataset` or a
            `keras.utils.PyDataset`.
        l2: float > 0; that of the head by default.
        reduction: `"mean"` of the losses, as Keras trains, or `"sum"`.
        method: `"dual"` or `"lift"`.
        top_k: int, probabilities kept of a row; None keeps all. For millions
            of classes.
        checkpoint: path of a file (.npz) that keeps the sums every
            `checkpoint_interval` batches; a run that finds it goes on from
            there (over the same batches), and removes it at the end.
        checkpoint_interval: int, in batches.
        verbose: 1 shows a progress bar, 0 does not.
        batch_size: int, rows of arrays that are computed at a time; a dataset
            has batches of its own.

    Returns:
        A built, uncompiled `keras.Model` that ends in a `FullSoftmax`.

    Raises:
        ValueError: another head, cosine logits, `l2` not positive, a dataset
            without labels, batches or rows, or numbers that are not finite.

    References:
        Yuan et al., Accelerating Deep Learning with Millions of Classes, ECCV
        2020, dual recovery.
    """
    inputs, features, head = encoder_of(model)
    _check_head(head)
    inputs = inputs_as_given(model, inputs)
    check_choice("method", method, ("dual", "lift"))
    if method == "lift":
        kernel = _lifted(head)
    else:
        sums = DualRecovery(head, top_k)
        l2 = head.l2 if l2 is None else l2
        _check_dual(l2, reduction)
        encoder = keras.Model(inputs, features)
        batches = Batches("dataset", dataset, batch_size)
        _run(sums, encoder, batches, checkpoint, checkpoint_interval, verbose)
        kernel = sums.result(l2, reduction)
        if verbose:
            error = sums.stationarity_error(l2, reduction)
            print(f"stationarity error: {error:.3g} (0 at the optimum)")
    return _full_model(inputs, features, head, kernel)


def _check_dual(l2, reduction):
    check_l2(l2)
    check_choice("reduction", reduction, ("mean", "sum"))


def _lifted(head):
    return np.concatenate(
        [
            tf.matmul(rows, projection, transpose_b=True).numpy()
            for projection, rows in head.projected_rows()
        ]
    )


def _check_head(head):
    heads = (ProjectedSoftmax, AdaptiveProjectedSoftmax)
    similarity = getattr(head, "similarity", "dot")
    if not isinstance(head, heads) or similarity != "dot":
        raise ValueError(
            "`model` must end in a ProjectedSoftmax or an "
            'AdaptiveProjectedSoftmax with similarity="dot". Received: '
            f"{type(head).__name__} {head.name!r} with "
            f"similarity={similarity!r}."
        )


def _run(sums, encoder, batches, checkpoint, interval, verbose):
    if checkpoint is not None and os.path.exists(checkpoint):
        sums.load(checkpoint)
    done = sums.num_batches
    bar = keras.utils.Progbar(batches.count, verbose=verbose)
    for number, batch in enumerate(batches.after(done), done + 1):
        x, y, weight = keras.utils.unpack_x_y_sample_weight(batch)
        sums.add(encoder(x, training=False), y, weight)
        if checkpoint is not None and number % interval == 0:
            sums.save(checkpoint)
        bar.update(number)
    if checkpoint is not None and os.path.exists(checkpoint):
        os.remove(checkpoint)


def _full_model(inputs, features, head, kernel):
    bias = getattr(head, "bias", None)
    full = FullSoftmax(
        head.num_classes,
        use_bias=bias is not None,
        activation=head.activation,
        seed=head.seed,
        name=f"{head.name}_recovered",
    )
    model = keras.Model(inputs, full(features))
    full.kernel.assign(kernel)
    if bias is not None:
        full.bias.assign(bias)
    return model
