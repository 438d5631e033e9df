"""`tfxclass.advise`: a minute with the user's own model and data."""

import contextlib
import math
import time
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfxclass import progress
from tfxclass.advice.report import NAMES
from tfxclass.advice.report import Advice
from tfxclass.advice.report import Choice
from tfxclass.advice.report import new_head
from tfxclass.checks import check_batch
from tfxclass.checks import check_pair
from tfxclass.checks import check_positive_int
from tfxclass.inference.graph import encoder_of
from tfxclass.inference.graph import inputs_as_given
from tfxclass.layers.class_head import ClassHead
from tfxclass.layers.full_softmax import FullSoftmax
from tfxclass.layers.sampled_softmax import SampledSoftmax
from tfxclass.memory import estimate
from tfxclass.optimizers import LazyAdam
from tfxclass.optimizers import MultiOptimizer
from tfxclass.rows.class_rows import ClassRows
from tfxclass.samplers.auto import PAYS_ABOVE
from tfxclass.samplers.effective import effective_classes
from tfxclass.samplers.sample_size import check_num_sampled
from tfxclass.samplers.sample_size import sample_size
from tfxclass.types import Config

# Rows whose softmax is computed in full, and steps whose time is a median.
_PROBED = 64
_TIMED = 15
# Of the time, for training; the rest is for the steps of each head.
_TRAINING = 0.6
# What a head hands to the others.
_KEPT = (
    "num_classes",
    "similarity",
    "scale",
    "margin",
    "margin_type",
    "use_bias",
    "activation",
    "kernel_initializer",
    "seed",
    "loss_options",
    "kernel_dtype",
)


def advise(
    model: keras.Model,
    data: Any,
    batch_size: int = 256,
    num_sampled: int | None = None,
    seconds: float = 60.0,
    verbose: int = 1,
) -> Advice:
    """Which head `model` needs, measured on it and on its data.

    Trains a copy of the model with uniform draws for a part of `seconds`, then
    computes the softmax of a few rows in full: how noisy are uniform draws?
    Then takes some steps with each head, on the rows as they were trained, for
    their time. The model itself stays as it is. Confusions grow as a model
    learns: with a model that has been trained the advice is about where it
    stands, and more time gives a better one.

    Args:
        model: a built Sequential or functional model that ends in a
            `FullSoftmax`, `SampledSoftmax`, `SelectiveSoftmax` or
            `LSHSoftmax`. If it is compiled, its optimizer's settings are
            used, else `LazyAdam(1e-3)`.
        data: `(x, y)`, arrays (`x` may be a structure of them) as for
            `model.fit`; or a `tf.data.Dataset` of such batches.
        batch_size: int, rows a step; a dataset has its own.
        num_sampled: int, classes a step of the sampled heads; by default the
            head's own, or 1 % of the classes and twice the labels of a batch.
        seconds: float > 0, about how long it may take; indexes of many classes
            take their own time.
        verbose: 0 or 1, whether the advice is printed.

    Returns:
        An `Advice`: `recommended`, `head()`, and all that was measured.

    Raises:
        ValueError: another kind of model, no data, or sizes out of range.

    Example:

    >>> advice = tfxclass.advise(model, (x, y))
    >>> head = advice.head()
    """
    batch_size = check_positive_int("batch_size", batch_size)
    if not 0 < seconds < math.inf:
        raise ValueError(f"`seconds` must be > 0. Received: {seconds}")
    if tf.distribute.has_strategy():
        raise ValueError(
            "`advise` measures one device: call it outside of a strategy's "
            "scope. Received: a "
            f"{type(tf.distribute.get_strategy()).__name__}."
        )
    trial = Trial(model, seconds)
    batches = batches_of(data, batch_size)
    x, y = next(batches)
    num_sampled = trial.set_num_sampled(num_sampled, y)
    tell = progress.log_if_slow if verbose else contextlib.nullcontext
    with tell("Training with uniform draws"):
        steps = trial.train(batches)
    with tell("Computing the softmax of a few rows"):
        k_eff, v, noise = trial.noise(x, y)
    choices = []
    for name in NAMES:
        with tell(f'Taking steps with "{name}"'):
            choices.append(trial.measure(name, x, y))
    advice = Advice(
        choices=tuple(choices),
        trained_steps=steps,
        k_eff=k_eff,
        v=v,
        noise=noise,
        constant=PAYS_ABOVE,
        num_classes=trial.head.num_classes,
        num_sampled=num_sampled,
        batch=int(y.shape[0]),
        config=trial.config,
    )
    if verbose:
        print(advice)
    return advice


def batches_of(data: Any, batch_size: int) -> Iterator[tuple[Any, tf.Tensor]]:
    """Batches `(x, y)` of tensors, over and over.

    Args:
        data: `(x, y)`, structures of arrays, whose rows are drawn; or a
            `tf.data.Dataset` of batches, which is repeated.
        batch_size: int, of arrays; as many rows as there are, at most.

    Raises:
        ValueError: other data, none, or arrays of unequal length.
    """
    if isinstance(data, tf.data.Dataset):
        return _of_dataset(data)
    rows = check_pair(data)
    arrays = keras.tree.map_structure(np.asarray, tuple(data))
    return _of_arrays(arrays, rows, batch_size)


def _of_arrays(arrays, rows, batch_size):
    random = np.random.default_rng(0)
    while True:
        order = random.permutation(rows)
        size = min(batch_size, rows)
        for start in range(0, rows - size + 1, size):
            part = order[start : start + size]
            yield keras.tree.map_structure(
                lambda each, part=part: tf.constant(each[part]), arrays
            )


def _of_dataset(dataset):
    while True:
        batch = None
        for batch in dataset:
            yield check_batch(batch)
        if batch is None:
            raise ValueError("`data` must have a batch. Received: none.")


def _copy_of(encoder):
    """A model with the layers of `encoder`, and weights of its own."""
    try:
        copy = keras.models.clone_model(encoder)
    except (TypeError, NotImplementedError) as e:
        raise ValueError(
            "`advise` trains a copy of the model, made by its configuration. "
            "Fix: give a subclassed model a get_config, and register it with "
            "@keras.saving.register_keras_serializable(). Received: "
            f"{e}"
        ) from e
    copy.set_weights(encoder.get_weights())
    return copy


class Trial:
    """A copy of a model, whose head is exchanged.

    Args:
        model: of `advise`.
        seconds: float, for all of it.
    """

    def __init__(self, model: keras.Model, seconds: float) -> None:
        inputs, features, head = encoder_of(model)
        if not isinstance(head, (FullSoftmax, SampledSoftmax)):
            raise ValueError(
                "`model` must end in a FullSoftmax, SampledSoftmax, "
                "SelectiveSoftmax or LSHSoftmax, which `advise` compares. "
                f"Received: a {type(head).__name__}."
            )
        loss = head.get_config()["loss"]
        if loss != "softmax":
            raise ValueError(
                "`advise` compares softmax heads: v is of a sum over all "
                f'classes. Received: a head with loss="{loss}".'
            )
        self.seconds = seconds
        self.head = head
        self.config: Config = {name: head.get_config()[name] for name in _KEPT}
        encoder = keras.Model(inputs_as_given(model, inputs), features)
        self.encoder = _copy_of(encoder)
        self.optimizer = getattr(model, "optimizer", None) or LazyAdam(1e-3)
        self.optimizer_of_head = self.optimizer
        if isinstance(self.optimizer, MultiOptimizer):
            # Its groups name this head, not those that are tried.
            self.optimizer_of_head = self.optimizer.optimizer_of(head)
        self.rows = [w.numpy() for w in self._rows_of(head)]
        self.options: Config = {}

    @staticmethod
    def _rows_of(head: ClassHead) -> list[keras.Variable]:
        return [w for w in (head.kernel, head.bias) if w is not None]

    def set_num_sampled(self, given: int | None, labels: tf.Tensor) -> int:
        """Sets and returns how many classes a step of sampled heads has."""
        num_classes, num_labels = self.head.num_classes, int(tf.size(labels))
        chosen = check_num_sampled(given, num_classes)
        if chosen is None and isinstance(self.head, SampledSoftmax):
            chosen = self.head.sampler.size_for(num_labels)
        if chosen is None:
            chosen = sample_size(num_classes, num_labels)
        self.options = {"num_sampled": chosen}
        return chosen

    def model_with(self, name: str) -> tuple[keras.Model, ClassHead]:
        """`(model, head)`, compiled, with the encoder and rows so far."""
        options = {} if name == "full" else self.options
        head = new_head(name, {**self.config, **options})
        outputs = head(self.encoder.output)
        for weight, value in zip(self._rows_of(head), self.rows, strict=True):
            weight.assign(value)
        model = keras.Model(self.encoder.input, outputs)
        config = keras.optimizers.serialize(self.optimizer)
        model.compile(keras.optimizers.deserialize(config), loss=head.loss)
        model.optimizer.build(model.trainable_variables)
        return model, head

    def train(self, batches: Any) -> int:
        """Trains with uniform draws; how many steps."""
        model, head = self.model_with("uniform")
        step = _step_of(model)
        end = time.monotonic() + _TRAINING * self.seconds
        steps = 0
        while not steps or time.monotonic() < end:
            loss = step(*next(batches))
            steps += 1
        if not math.isfinite(float(loss)):
            raise ValueError(
                f"The loss of `model` on `data` was {float(loss)} after "
                f"{steps} steps. Fix: a lower learning rate, or features that "
                "are finite."
            )
        self.rows = [w.numpy() for w in self._rows_of(head)]
        self.trained = head
        return steps

    def noise(self, x: Any, y: tf.Tensor) -> tuple[float, float, float]:
        """`(k_eff, v, noise)` of rows of a batch; see `Advice`."""
        features = self.encoder(x, training=False)
        self.positions = math.prod(features.shape[:-1])
        targets = self.trained.targets(features, y).ids
        queries = self.trained.queries(features)
        rows = ClassRows(
            self.trained.class_matrix(),
            self.trained.bias,
            normalize=self.config["similarity"] == "cosine",
        )
        found = effective_classes(queries[:_PROBED], targets[:_PROBED], rows)
        k_eff, missed, counts = (each.numpy() for each in found[:3])
        if not counts.any():
            raise ValueError(
                f"`data` must have labels: the first {len(counts)} rows of a "
                "batch have none, or no class that is not one of them."
            )
        labels = np.unique(targets.numpy())
        sampled = self.options["num_sampled"]
        negatives = max(sampled - int((labels >= 0).sum()), 1)
        v = self.head.num_classes / (negatives * k_eff[counts])
        # Where all classes are computed there is no noise.
        v *= sampled < self.head.num_classes
        missed = missed[counts]
        return (
            float(np.exp(np.log(k_eff[counts]).mean())),
            float(v.mean()),
            float((v * missed).mean()),
        )

    def measure(self, name: str, x: Any, y: tf.Tensor) -> Choice:
        """Times steps of a head on one batch."""
        model, head = self.model_with(name)
        saved = self.encoder.get_weights()
        step = _step_of(model)
        step.get_concrete_function(x, y)
        first = _seconds_of(step, x, y)
        share = self.seconds * (1 - _TRAINING) / len(NAMES)
        count = int(np.clip(share / max(first, 1e-6), 3, _TIMED))
        times = [_seconds_of(step, x, y) for _ in range(count)]
        self.encoder.set_weights(saved)
        return Choice(
            name=name,
            step_ms=1e3 * float(np.median(times)),
            first_step_s=first,
            memory=estimate(
                head,
                dim=int(head.kernel.shape[1]),
                batch=self.positions,
                optimizer=self.optimizer_of_head,
            ),
        )


def _step_of(model: keras.Model) -> Any:
    """A training step as a function of a batch that returns the loss."""
    return tf.function(
        lambda x, y: model.train_step((x, y))["loss"], reduce_retracing=True
    )


def _seconds_of(step: Any, x: Any, y: tf.Tensor) -> float:
    begin = time.perf_counter()
    float(step(x, y))  # waits for a GPU
    return time.perf_counter() - begin
