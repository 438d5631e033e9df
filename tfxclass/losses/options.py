"""Losses for long tails: what a head's training loss is made of."""

import dataclasses
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import ArrayLike

from tfxclass.checks import as_ids
from tfxclass.checks import as_numbers
from tfxclass.checks import as_numbers_of_classes
from tfxclass.checks import check_nonnegative
from tfxclass.checks import check_number
from tfxclass.checks import check_one_per_class
from tfxclass.checks import check_value
from tfxclass.core.class_update import ClassUpdate
from tfxclass.core.targets import Targets
from tfxclass.rows.class_matrix import ClassRows
from tfxclass.types import Config

#: Options of a row's labels: they weigh the loss, whatever it is.
LABEL_OPTIONS = ("class_weight", "propensities")
#: These, and options of the cross-entropy of an example.
LOSS_OPTIONS = (*LABEL_OPTIONS, "focal_gamma")
#: These, and options of the logits.
ALL_OPTIONS = (*LOSS_OPTIONS, "label_smoothing", "class_counts")

_TINY = float(np.finfo(np.float32).tiny)


@keras.saving.register_keras_serializable("tfxclass")
@dataclasses.dataclass(eq=False, repr=False)
class LossOptions:
    """Options of a head's training loss, for rare classes and noisy labels.

    Pass it to a head as `loss_options`. It changes the training loss only, but
    not predictions, evaluations, or penalties of a head (`l2`, DropMax's
    regularizers).

    With a sampler, `focal_gamma` uses the probability estimated from the
    sample, `label_smoothing` an unbiased estimate of the mean logit, and the
    other options are exact.

    A head refuses options that have no meaning for its loss, such as
    `label_smoothing` for `DropMax`, and `class_counts` for `AdaptiveSoftmax`,
    trees, NCE, sparsemax and `loss="sigmoid"`. `"squared_hinge"` takes
    `class_weight` and `propensities` alone.

    Args:
        class_weight: numbers >= 0, `[num_classes]`, or a dict by class, where
            other classes have weight 1. The loss of an example is multiplied by
            the mean weight of its labels, and each label counts in proportion
            to its weight. With independent labels, weights multiply the loss of
            the labels, but not the loss of other classes.
        propensities: numbers in (0, 1], `[num_classes]`, from
            `tfxclass.metrics.propensities`. Each label has weight 1 /
            propensity, as above: labels that are often missing count more.
        focal_gamma: float >= 0. The loss is multiplied by (1 - p)^gamma, where
            -log p is the loss of the example, or with `"sigmoid"` of a class.
            Not with `label_smoothing`.
        label_smoothing: float s in [0, 1). The labels have weight 1 - s, and
            weight s is spread over all classes, as in
            `keras.losses.CategoricalCrossentropy`. With `"sigmoid"` labels have
            the target 1 - s / 2, and other classes s / 2. Not with a sampler
            whose counts are not corrected.
        class_counts: numbers >= 0, `[num_classes]`, number of training examples
            of each class. The loss is the cross-entropy of logits plus
            `logit_adjustment` * log(frequency of the class). Predictions then
            do not favor frequent classes. 0 is replaced by the least positive
            count.
        logit_adjustment: float, factor for `class_counts`.

    Raises:
        ValueError: if an argument is out of range.

    Example:

    ```python
    counts = np.arange(10_000, 0, -1)
    options = tfxclass.losses.LossOptions(class_counts=counts)
    head = tfxclass.layers.FullSoftmax(10_000, loss_options=options)
    ```

    References:
        Menon et al., Long-tail learning via logit adjustment, ICLR 2021,
        equation 10 (`class_counts`).
        Lin et al., Focal loss for dense object detection, ICCV 2017, equation 4
        (`focal_gamma`).
        Jain, Prabhu and Varma, Extreme Multi-label Loss Functions, KDD 2016,
        section 4 (`propensities`).
        Szegedy et al., Rethinking the Inception architecture, CVPR 2016,
        section 7 (`label_smoothing`).
    """

    class_weight: ArrayLike | Mapping[int, float] | None = None
    propensities: ArrayLike | None = None
    focal_gamma: float = 0.0
    label_smoothing: float = 0.0
    class_counts: ArrayLike | None = None
    logit_adjustment: float = 1.0

    def __post_init__(self) -> None:
        self.class_weight = _class_weight(self.class_weight)
        self.propensities = _numbers(
            "propensities",
            self.propensities,
            lambda x: (x > 0) & (x <= 1),
            "in (0, 1]",
        )
        self.class_counts = _numbers("class_counts", self.class_counts)
        self._check()
        self._tables: dict[tuple[str, int], Any] = {}

    def _check(self):
        counts, smoothing = self.class_counts, self.label_smoothing
        check_nonnegative("focal_gamma", self.focal_gamma)
        check_number(
            "label_smoothing", smoothing, lambda x: 0 <= x < 1, "in [0, 1)"
        )
        wanted = "above 0 for one class at least"
        has_some = counts is None or np.any(counts > 0)
        check_value("class_counts", counts, has_some, wanted)
        check_number(
            "logit_adjustment", self.logit_adjustment, np.isfinite, "finite"
        )
        if counts is None and self.logit_adjustment != 1:
            raise ValueError(
                "`logit_adjustment` needs `class_counts`. Received: "
                f"logit_adjustment={self.logit_adjustment} without them"
            )
        if self.focal_gamma and smoothing:
            raise ValueError(
                "`focal_gamma` and `label_smoothing` exclude each other. "
                f"Received: focal_gamma={self.focal_gamma}, "
                f"label_smoothing={smoothing}"
            )

    @property
    def used(self) -> list[str]:
        """Names of the options that differ from their defaults."""
        return [
            x.name
            for x in dataclasses.fields(self)
            if x.name in ALL_OPTIONS
            and (value := getattr(self, x.name)) is not x.default
            and (x.default is None or value != x.default)
        ]

    def check_for(self, head: keras.layers.Layer) -> None:
        """Raises ValueError unless `head` supports the options in use."""
        own, reason = head.objective.options, ""
        allowed = [x for x in head.supported_options if x in own]
        if len(allowed) < len(head.supported_options):
            reason = (
                f' with loss="{head.objective.name}", where no distribution '
                "over the classes is learned"
            )
        refused = [x for x in self.used if x not in allowed]
        if refused:
            raise ValueError(
                f"`loss_options` of a {type(head).__name__}{reason} may have "
                f"{allowed}. Received: {refused}"
            )
        for name in ("class_weight", "propensities", "class_counts"):
            value = getattr(self, name)
            if isinstance(value, np.ndarray):
                check_one_per_class(name, value, head.num_classes)
        if self.label_smoothing and head.removed:
            raise ValueError(
                "`label_smoothing` gives mass to classes that are no labels, "
                "removed ones, too. Received: label_smoothing="
                f"{self.label_smoothing} with {len(head.removed)} removed "
                "classes"
            )
        if isinstance(self.class_weight, dict):
            unknown = [c for c in self.class_weight if c >= head.num_classes]
            if unknown:
                raise ValueError(
                    "`class_weight` must be of classes below num_classes="
                    f"{head.num_classes}. Received: {unknown[:5]}"
                )

    def normalized_targets(
        self, targets: Targets, num_classes: int
    ) -> tuple[Targets, tf.Tensor]:
        """Applies class weights: `Targets`, and float32 `[batch, 1]`.

        Weights sum to 1 - `label_smoothing`. The others are for `finished`.
        """
        weights = self.label_weights(targets, num_classes)
        of_rows = tf.ones_like(weights[:, :1])
        if weights is not targets.weights:
            of_rows = tf.reduce_sum(weights, axis=1, keepdims=True)
            weights = tf.math.divide_no_nan(weights, of_rows)
        weights *= 1 - self.label_smoothing
        return Targets(targets.ids, weights), of_rows

    def label_weights(self, targets: Targets, num_classes: int) -> tf.Tensor:
        """Weights of `Targets` times their class weights, `[batch, p]`."""
        table = self._table(self._weights, num_classes)
        if table is None:
            return targets.weights
        return targets.weights * tf.gather(table, tf.maximum(targets.ids, 0))

    def adjust_logits(
        self, logits: tf.Tensor, ids: tf.Tensor | None, num_classes: int
    ) -> tf.Tensor:
        """Adjusts logits `[batch, n]` of classes `ids` `[n]`, None for all."""
        table = self._table(self._log_shares, num_classes)
        if table is None:
            return logits
        return logits + (table if ids is None else tf.gather(table, ids))

    def shape_parts(
        self,
        parts: Sequence[tuple[tf.Tensor, ClassRows]],
        num_classes: int,
        ids: Sequence[tf.Tensor] | None = None,
    ) -> list[tuple[tf.Tensor, ClassRows]]:
        """Adjusts `(queries, ClassRows)` so that they give adjusted logits.

        `ids` has the classes of each part of a sample, int64 `[n]`.
        """
        table = self._table(self._log_shares, num_classes)
        if table is None:
            return list(parts)
        shaped = []
        for i, (queries, rows) in enumerate(parts):
            if ids is None:
                own = table[rows.first :][: rows.num_classes]
            else:
                # The ids of padding do not matter.
                own = tf.gather(table, tf.minimum(ids[i], num_classes - 1))
            bias = own if rows.bias is None else rows.bias + own
            shaped.append((queries, rows._replace(bias=bias)))
        return shaped

    def _table(self, make, num_classes):
        """What `make` returns, as float32 `[num_classes]`, or None."""
        key = make.__name__, num_classes
        if key not in self._tables:
            values = make(num_classes)
            if values is not None:
                with tf.init_scope():
                    values = tf.constant(values, tf.float32)
            self._tables[key] = values
        return self._tables[key]

    def _weights(self, num_classes):
        if self.class_weight is None and self.propensities is None:
            return None
        weights = np.ones(num_classes)
        if isinstance(self.class_weight, dict):
            for c, weight in self.class_weight.items():
                weights[c] = weight
        elif self.class_weight is not None:
            weights *= self.class_weight
        if self.propensities is not None:
            weights /= self.propensities
        return weights

    def _log_shares(self, num_classes):
        """The numbers that are added to the logits, or None."""
        counts = self.class_counts
        if counts is None:
            return None
        counts = np.maximum(counts, counts[counts > 0].min())
        return self.logit_adjustment * np.log(counts / counts.sum())

    def changed(self, change: ClassUpdate) -> "LossOptions":
        """The options for a head after `change`.

        A new class gets weight 1 or the median of given weights, the propensity
        of the rarest class, and a count from the data.
        """
        config, weights = self.get_config(), self.class_weight
        if isinstance(weights, dict):
            config["class_weight"] = {
                c: w for c, w in weights.items() if c not in change.added
            }
        elif config["class_weight"] is not None:
            weights = config["class_weight"]
            config["class_weight"] = change.resize(weights, np.median(weights))
        p, counts = config["propensities"], config["class_counts"]
        if p is not None:
            config["propensities"] = change.resize(p, p.min())
        if counts is not None:
            config["class_counts"] = change.resize_counts(counts)
        return LossOptions(**config)

    def get_config(self) -> Config:
        fields = dataclasses.fields(self)
        config = {field.name: getattr(self, field.name) for field in fields}
        if isinstance(self.class_weight, dict):
            # JSON's keys are texts.
            weights = self.class_weight.items()
            config["class_weight"] = {str(c): w for c, w in weights}
        return config

    @classmethod
    def from_config(cls, config: Config) -> "LossOptions":
        return cls(**config)


def finished(
    losses: tf.Tensor, row_weights: tf.Tensor, focal_gamma: float
) -> tf.Tensor:
    """`losses` `[batch]` with their focal factor, times `[batch, 1]`."""
    if focal_gamma:
        # Its logarithm is finite where rounding makes a loss 0 or less.
        missed = tf.maximum(-tf.math.expm1(-losses), _TINY)
        losses *= tf.exp(focal_gamma * tf.math.log(missed))
    return losses * row_weights[:, 0]


def as_loss_options(given: Any) -> LossOptions | None:
    """Reads a head's argument `loss_options`, also a serialized one."""
    if isinstance(given, dict):
        given = keras.saving.deserialize_keras_object(given)
    is_valid = given is None or isinstance(given, LossOptions)
    wanted = "a tfxclass.losses.LossOptions or None"
    check_value("loss_options", given, is_valid, wanted)
    return given


def _class_weight(given):
    """A dict of ints and floats, or float64 `[num_classes]`, or None."""
    if not isinstance(given, Mapping) or "class_name" in given:
        return _numbers("class_weight", given)
    # The keys of a saved file are texts.
    keys = [int(c) if str(c).isdecimal() else c for c in given]
    ids = as_ids("class_weight", keys).tolist()
    weights = as_numbers("class_weight", list(given.values())).tolist()
    weights = dict(zip(ids, weights, strict=True))
    for c, weight in weights.items():
        if c < 0 or not 0 <= weight < float("inf"):
            raise ValueError(
                "`class_weight` must be finite and >= 0 for classes >= 0. "
                f"Received: {weight} for class {c}"
            )
    return weights


def _numbers(name, given, *wanted):
    """As `as_numbers_of_classes`, or None."""
    if given is None:
        return None
    return as_numbers_of_classes(name, given, *wanted)
