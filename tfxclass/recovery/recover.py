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
    slim. docs/recovery.md compares the methods. Train the result further with
    `fit`: the paper's second stage.

    - `"step"` begins with the slim class vectors times the projection, V R^T,
      which has exactly the slim model's answers. One preconditioned gradient
      step of the full objective follows. Its length is searched on rows that
      the step does not see, where it is never worse than the slim model
      (`StepRecovery`).
    - `"dual"`, the paper's, is `W = (Y - P)^T X / (n l2)` with the slim model's
      probabilities P (`DualRecovery`): a gradient step of length 1 / l2. A
      warning says where it may overshoot.
    - `"lift"` is V R^T alone, and needs no data.

    Memory: `tfxclass.estimate(head, dim, batch).recovery_bytes`, plus the
    model. Each batch is multiplied once by `[dim, num_classes]`, unless there
    is a `top_k`, twice in the projected width and once by `[dim, dim]`.

    Cosine heads are refused, because no head in full width has their answers:
    their logits are divided by the length of the projected features.

    Args:
        model: a Sequential or functional model that ends in a
            `ProjectedSoftmax` or an `AdaptiveProjectedSoftmax`; for a step
            also in a `FullSoftmax`, whose own matrix it begins at. It is left
            as it is; its encoder is shared.
        dataset: the training data, in any order; not for the lift. As
            `fit` takes them: arrays `(inputs, labels)` or `(inputs, labels,
            sample_weight)`, or batches of them, a `tf.data.Dataset` or a
            `keras.utils.PyDataset`.
        l2: float > 0, for the dual and the stationarity error; that of the
            head by default.
        reduction: `"mean"` of the losses, as Keras trains, or `"sum"`; goes
            with `l2`.
        method: `"step"`, `"dual"` or `"lift"`.
        top_k: int, probabilities kept of a row; None keeps all.
        checkpoint: path of a file (.npz) that keeps the sums every
            `checkpoint_interval` batches; a run that finds it goes on from
            there (with the same head, arguments and batches), and removes it
            at the end.
        checkpoint_interval: int, in batches.
        verbose: 1 shows a progress bar, what was chosen for the step with its
            loss on held-out rows, and the stationarity error of the slim
            model (0 at the optimum of its loss with `l2`); 0 shows nothing.
        batch_size: int, rows of arrays that are computed at a time; a dataset
            has batches of its own.
        steps: int >= 1, for `method="step"`: passes over the data, each of
            them with a step from where the one before it ended. From the
            second one on, a pass costs two products in full width. Keep the
            order of the data: the rows that are held out are then the same.
        num_sampled: int, for millions of classes: probabilities are estimated
            from a batch's labels and so many classes, drawn uniformly for each
            batch, so give large ones (`batch_size=1024`). The pass costs what
            sampled training of the slim head does; the search of the step
            still needs all classes, for 1,024 rows or more. Not beside
            `top_k`.

    Returns:
        A built, uncompiled `keras.Model` that ends in a `FullSoftmax`.

    Raises:
        ValueError: another head, cosine logits, `l2` of the dual not positive,
            a dataset without labels, batches or rows, numbers that are not
            finite, or a checkpoint of something else.

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
