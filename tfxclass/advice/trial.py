"""A copy of the user's model, whose head and optimizer are exchanged."""

import math
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfxclass.advice import budget
from tfxclass.advice.batches import Split
from tfxclass.advice.budget import Budget
from tfxclass.advice.report import DEFAULT
from tfxclass.advice.report import new_head
from tfxclass.advice.report import rate_text
from tfxclass.advice.runner import Runner
from tfxclass.advice.runner import State
from tfxclass.advice.runner import at_rate
from tfxclass.advice.runner import class_vectors
from tfxclass.advice.runner import is_scheduled
from tfxclass.advice.runner import rate_of
from tfxclass.inference.graph import encoder_of
from tfxclass.inference.graph import inputs_as_given
from tfxclass.layers.full_softmax import FullSoftmax
from tfxclass.layers.sampled_softmax import SampledSoftmax
from tfxclass.optimizers import HeadAdam
from tfxclass.optimizers import MultiOptimizer
from tfxclass.rows.class_rows import ClassRows
from tfxclass.samplers.effective import effective_classes
from tfxclass.samplers.sample_size import check_num_sampled
from tfxclass.samplers.sample_size import sample_size
from tfxclass.types import Config

# Rows whose softmax is computed in full.
_PROBED = 64
# The fraction of the time at which training with uniform samples ends.
_TRAINED = 0.25
# Steps without the first one: at least, and whose times are kept.
_LEAST_STEPS, _TIMED = 2, 50
# What a head hands to the others.
_KEPT = (
    "num_classes",
    "similarity",
    "use_bias",
    "activation",
    "kernel_initializer",
    "seed",
    "loss_options",
    "kernel_dtype",
)


def _copy_of(encoder):
    """A model with the layers of `encoder` and new weights."""
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
    """A copy of a model, whose head and optimizer are exchanged.

    Args:
        model: of `advise`.
        time: `Budget`.

    Attributes:
        own: str, class name of the optimizer that the model begins with.
        rate: float, its learning rate.
        optimizers: dict of optimizer configurations by class name.
        optimizer_of_head: the optimizer of class vectors, for estimates.
        steps: int, steps of `train`.
        uniform: `Runner` that has learned with uniform samples.
        first_step: float, seconds of its first step.
        step_times: list of floats, seconds of its last steps.
        trained: `State`, what it has learned.
        positions: int, rows of class scores in a batch.
        notes: list of str, what the advice has to say.
    """

    def __init__(self, model: keras.Model, time: Budget) -> None:
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
                '`advise` needs a head with loss="softmax". Received: '
                f'loss="{loss}"'
            )
        self.head, self.time = head, time
        self.config: Config = {name: head.get_config()[name] for name in _KEPT}
        encoder = keras.Model(inputs_as_given(model, inputs), features)
        self.encoder = _copy_of(encoder)
        rows = [w.numpy() for w in class_vectors(head)]
        self.start = self.trained = State(encoder.get_weights(), rows)
        self.options: Config = {}
        self.notes: list[str] = []
        self.steps = 0
        optimizer = getattr(model, "optimizer", None)
        self._take_optimizer(optimizer, model.trainable_variables)

    def _take_optimizer(self, optimizer, variables):
        """The model's optimizer, if it can have another rate."""
        self.own, self.rate = DEFAULT, 1e-3
        self.optimizer_of_head = HeadAdam(self.rate)
        default = keras.optimizers.serialize(self.optimizer_of_head)
        self.optimizers: Config = {DEFAULT: default}
        if optimizer is None:
            return
        try:
            config = keras.optimizers.serialize(optimizer)
            if isinstance(optimizer, MultiOptimizer) and not optimizer.built:
                config["config"] = optimizer.config_for(variables)
            rate = rate_of(optimizer)
            rate = 1e-3 if math.isnan(rate) else rate
            at_rate(config, rate)
        except (
            AttributeError,
            KeyError,
            NotImplementedError,
            TypeError,
            ValueError,
        ):
            self.notes.append(
                f"{DEFAULT} was tried in place of the model's "
                f"{type(optimizer).__name__}, which cannot be copied with "
                "another learning rate."
            )
            return
        if is_scheduled(optimizer):
            self.notes.append(
                "The rates were tried as constants, without the schedule of "
                "your optimizer."
            )
        inner = getattr(optimizer, "inner_optimizer", optimizer)
        self.own, self.rate = type(inner).__name__, rate
        self.optimizers = {self.own: config, **self.optimizers}
        self.optimizers[self.own] = config
        self.optimizer_of_head = inner
        if isinstance(inner, MultiOptimizer):
            # Its groups name this head, not those that are tried.
            self.optimizer_of_head = inner.optimizer_of(self.head)

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

    def sizes(self, name: str) -> Config:
        """Arguments of a new head, by the name of its kind."""
        options = {} if name == "full" else self.options
        return {**self.config, **options}

    def runner(self, name: str, optimizer: str | None = None) -> Runner:
        """A new head under a new optimizer, at the start.

        Args:
            name: str, one of `NAMES`.
            optimizer: str, one of `optimizers`; the model's own by default.
        """
        optimizer = optimizer or self.own
        rate = self.rate if optimizer == self.own else 1e-3
        return Runner(
            self.encoder,
            new_head(name, self.sizes(name)),
            at_rate(self.optimizers[optimizer], rate),
            self.start,
        )

    def train(self, data: Split, x: Any, y: tf.Tensor) -> None:
        """Trains with uniform samples, and times the steps."""
        self.uniform = runner = self.runner("uniform")
        runner.trace(x, y)
        for rate in (self.rate, self.rate / 10):
            loss, seconds = self._trained(runner, rate, data.batches())
            if math.isfinite(loss):
                break
            self.notes.append(
                f"Training at your learning rate {rate_text(self.rate)} "
                "diverged."
            )
        else:
            raise ValueError(
                "The training loss of `model` on `data` must be finite. "
                f"Received: {loss} after {self.steps} steps. Fix: a lower "
                "learning rate, or look for NaN and infinity in `data`"
            )
        self.trained = runner.state()
        self.step_times = seconds[1:] or seconds

    def _trained(self, runner, rate, batches):
        """`(loss, seconds of each step)` of training until time is over."""
        runner.begin(rate)
        seconds, loss, self.steps = [], 0.0, 0
        while math.isfinite(loss):
            begin = budget.clock()
            loss = runner.step(*next(batches))
            self.steps += 1
            seconds = [*seconds[-_TIMED:], budget.clock() - begin]
            if self.steps == 1:
                self.first_step = seconds[0]
            # The first step, which prepares much, says little of the others.
            is_enough = self.steps > _LEAST_STEPS
            is_enough |= self.time.left() < 3 * seconds[-1]
            if is_enough and self.time.left(_TRAINED) < seconds[-1]:
                break
        return loss, seconds

    def noise(self, x: Any, y: tf.Tensor) -> tuple[float, float, float]:
        """`(k_eff, v, noise)` of rows of a batch; see `Advice`."""
        head = self.uniform.head
        features = self.encoder(x, training=False)
        self.positions = math.prod(features.shape[:-1])
        targets = head.targets(features, y).ids
        queries = head.queries(features)
        rows = ClassRows(
            head.class_matrix(),
            head.bias,
            normalize=self.uniform.head.similarity == "cosine",
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
