"""`recover`: a model with its class matrix in full width."""

from typing import Any

import keras

from tfxclass.checks import check_choice
from tfxclass.checks import check_positive_int
from tfxclass.data.batches import Batches
from tfxclass.inference.graph import encoder_of
from tfxclass.inference.graph import inputs_as_given
from tfxclass.layers.adaptive_projected_softmax import AdaptiveProjectedSoftmax
from tfxclass.layers.full_softmax import FullSoftmax
from tfxclass.layers.projected_softmax import ProjectedSoftmax
from tfxclass.recovery.back_projection import back_projected
from tfxclass.recovery.dual_recovery import DualRecovery
from tfxclass.recovery.passes import Passes
from tfxclass.recovery.passes import full_head
from tfxclass.recovery.recovery_sums import check_l2
from tfxclass.types import Path


def recover(
    model: keras.Model,
    dataset: Any = None,
    l2: float | None = None,
    reduction: str = "mean",
    method: str = "step",
    top_k: int | None = None,
    checkpoint: Path | None = None,
    checkpoint_interval: int = 100,
    verbose: int = 1,
    batch_size: int = 32,
    steps: int = 1,
    num_sampled: int | None = None,
) -> keras.Model:
    """A model with class vectors in full width, after one pass over the data.

    Use it after training with a `ProjectedSoftmax`, whose class vectors are
    short. `docs/recovery.md` compares the methods. Train the result further
    with `fit`, which is the second stage of the paper.

    - `"step"` starts with the short class vectors times the projection, V R^T,
      which gives exactly the same answers. One preconditioned gradient step of
      the full objective follows. Its length is chosen on held-out examples,
      where it is never worse than the projected model (`StepRecovery`).
    - `"dual"`, the method of the paper, is `W = (Y - P)^T X / (n l2)` with the
      probabilities P of the projected model (`DualRecovery`). This is a
      gradient step of length 1 / l2. A warning says where it may overshoot.
    - `"lift"` is V R^T alone, and needs no data.

    Memory: `tfxclass.estimate(head, dim, batch).recovery_bytes`, plus the
    model. Each batch costs one product with `[dim, num_classes]` (unless
    `top_k` is given), two products in the projected width, and one with `[dim,
    dim]`.

    Cosine heads are refused: their logits are divided by the length of the
    projected features, which no head in full width does.

    Args:
        model: a Sequential or functional model that ends in a
            `ProjectedSoftmax` or an `AdaptiveProjectedSoftmax`. For a further
            step, also in a `FullSoftmax`, whose own matrix is the start. It is
            not changed, and its encoder is shared.
        dataset: the training data, in any order. Not for the lift. As for
            `fit`: arrays `(inputs, labels)` or `(inputs, labels,
            sample_weight)`, or batches of them, a `tf.data.Dataset` or a
            `keras.utils.PyDataset`.
        l2: float > 0, for the dual and the stationarity error. Defaults to the
            head's own.
        reduction: `"mean"` of the losses, as Keras trains, or `"sum"`. It
            belongs to `l2`.
        method: `"step"` (default), `"dual"` or `"lift"`.
        top_k: int, number of probabilities kept for each example. None
            (default) keeps all.
        checkpoint: str, path of a file (.npz) that keeps the sums every
            `checkpoint_interval` batches. A run that finds it continues from
            there (with the same head, arguments and batches), and removes it at
            the end.
        checkpoint_interval: int, in batches.
        verbose: 1 shows a progress bar, the chosen step with its loss on
            held-out examples, and the stationarity error of the projected model
            (0 at the optimum of its loss with `l2`). 0 shows nothing.
        batch_size: int, number of examples that are computed at a time. A
            dataset has batches of its own.
        steps: int >= 1, for `method="step"`: number of passes over the data,
            each with one step. From the second one on, a pass costs two
            products in full width. Keep the order of the data, so that the same
            examples are held out.
        num_sampled: int, for millions of classes: probabilities are estimated
            from the labels of a batch and so many classes, sampled uniformly
            for each batch. Use large batches (`batch_size=1024`). The pass
            costs as much as a sampled training epoch of the projected head. The
            search of the step still needs all classes, for 1,024 examples or
            more. Not with `top_k`.

    Returns:
        A built, uncompiled `keras.Model` that ends in a `FullSoftmax`.

    Raises:
        ValueError: if the head is of another kind or has cosine logits, or
            `l2` of the dual is not positive. Also if the dataset has no labels
            or examples, numbers are not finite, or a checkpoint belongs to
            something else.

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
    inputs, features, head = encoder_of(model)
    check_choice("method", method, ("step", "dual", "lift"))
    _check_head(head, method)
    _check_steps(steps, method)
    inputs = inputs_as_given(model, inputs)
    l2 = getattr(head, "l2", 0.0) if l2 is None else l2
    check_choice("reduction", reduction, ("mean", "sum"))
    if method == "lift":
        return _full_model(
            inputs, features, full_head(head, back_projected(head))
        )
    if method == "dual" or l2:
        check_l2(l2)
    passes = Passes(
        keras.Model(inputs, features),
        Batches("dataset", dataset, batch_size),
        checkpoint,
        checkpoint_interval,
        verbose,
    )
    if method == "step":
        head = passes.steps(
            head, steps, l2, reduction, top_k=top_k, num_sampled=num_sampled
        )
        return _full_model(inputs, features, head)
    sums = DualRecovery(head, top_k, num_sampled)
    passes.run(sums)
    passes.tell_stationarity(sums, l2, reduction)
    kernel = sums.result(l2, reduction)
    passes.end()
    del sums  # as large as the class matrix
    return _full_model(inputs, features, full_head(head, kernel))


def _check_steps(steps, method):
    steps = check_positive_int("steps", steps)
    if steps > 1 and method != "step":
        raise ValueError(
            f'`steps` is for method="step". Received: steps={steps} with '
            f"method={method!r}."
        )


def _check_head(head, method):
    heads = (ProjectedSoftmax, AdaptiveProjectedSoftmax)
    if method == "step":
        heads = (*heads, FullSoftmax)
    similarity = getattr(head, "similarity", "dot")
    if not isinstance(head, heads) or similarity != "dot":
        raise ValueError(
            "`model` must end in a ProjectedSoftmax or an "
            'AdaptiveProjectedSoftmax with similarity="dot", or for '
            'method="step" in such a FullSoftmax. Received: '
            f"{type(head).__name__} {head.name!r} with "
            f"similarity={similarity!r} and method={method!r}."
        )


def _full_model(inputs, features, head):
    return keras.Model(inputs, head(features))
