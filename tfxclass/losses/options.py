"""Losses for long tails: what a head's training loss is made of."""

from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import ArrayLike

from tfxclass.core.class_update import ClassUpdate
from tfxclass.core.targets import Targets
from tfxclass.rows.class_rows import ClassRows
from tfxclass.types import Config

#: Options of a row's labels: they weigh the loss, whatever it is.
LABEL_OPTIONS = ("class_weight", "propensities", "teacher_weight")
#: Those of a row's cross-entropy, too.
LOSS_OPTIONS = (*LABEL_OPTIONS, "focal_gamma")
#: Those of the logits, too.
ALL_OPTIONS = (
    *LOSS_OPTIONS,
    "label_smoothing",
    "class_counts",
    "temperature",
)

_PLAIN = {
    "class_weight": None,
    "propensities": None,
    "focal_gamma": 0.0,
    "label_smoothing": 0.0,
    "class_counts": None,
    "temperature": 1.0,
    "teacher_weight": 0.0,
}
_TINY = float(np.finfo(np.float32).tiny)


@keras.saving.register_keras_serializable("tfxclass")
class LossOptions:
    """How a head's training loss differs from plain cross-entropy.

    For data with few rows for most classes. A head takes it as
    `loss_options`; predictions and the loss of an evaluation are the plain
    ones, so that runs can be compared. Penalties of a head (`l2`, DropMax's
    regularisers) are not weighed. Heads whose loss is no cross-entropy of one
    softmax refuse what has no meaning there, by name: a class that `DropMax`
    drops has no share of `label_smoothing`, a cluster of an `AdaptiveSoftmax`
    no one count, trees, NCE and sparsemax no logits to adjust. With a sampler,
    what is a function of a row's own labels (`class_weight`, `propensities`)
    is exact; `focal_gamma` takes the probability that the sample estimates,
    and `label_smoothing` an unbiased estimate of the mean logit of all
    classes; `class_counts` and `temperature` change the logits that are
    computed, exactly.

    With z the logits, and the mean over the labels l of a row:

    * `class_weight`: a row's loss is times the mean of its labels' weights,
      and is against its labels in the ratio of these.
    * `propensities`: each label weighs 1 / its propensity, as above: labels
      that are often missed count for those that were.
    * `focal_gamma`: times (1 - p)^gamma, where -log p is the row's loss.
    * `label_smoothing`: (1 - s) of the mass is the labels', s uniform on all
      classes, as in `keras.losses.CategoricalCrossentropy`.
    * `class_counts`: cross-entropy of z + `logit_adjustment` log(share of the
      class): predictions by z then do not favour frequent classes.
    * `temperature`: cross-entropy of z / temperature.
    * `teacher_weight`: w of the mass is that of a teacher's best classes, by
      their probabilities, and 1 - w the labels': with labels that carry them
      (`tfxclass.losses.with_teacher`). Those classes are targets like labels:
      a sample holds them, class weights weigh them, `DropMax` retains them. A
      teacher at a temperature T is learned with `temperature=T`, and gradients
      fall as 1 / T.

    Where labels are independent (`loss="sigmoid"` or `"squared_hinge"`),
    `class_weight` and `propensities` multiply the loss of a label itself, not
    that of classes that are no labels. With `"sigmoid"`, for each class:

    * `focal_gamma`: its loss is times (1 - p)^gamma, p what it gives the truth.
    * `label_smoothing`: a label is one with 1 - s / 2, others with s / 2.
    * `temperature`: the same.
    * `teacher_weight`: its probability is w times the teacher's, plus 1 - w if
      it is a label; not with weights of classes. Classes that the teacher does
      not name have 0 of it.

    Others are refused.

    Args:
        class_weight: numbers >= 0, `[num_classes]`, or a dict by class, of
            which others weigh 1; as in `fit`, but for any number of labels.
        propensities: numbers in (0, 1], `[num_classes]`, as
            `tfxclass.metrics.propensities` gives.
        focal_gamma: float >= 0; not with `label_smoothing`.
        label_smoothing: float in [0, 1); not with a sampler whose counts are
            not corrected (`correct_fill=False`, `correction="none"`).
        class_counts: numbers >= 0, `[num_classes]`, training rows of each
            class; a count of 0 counts as the least above it.
        logit_adjustment: float, tau of `class_counts`; 1 without them.
        temperature: float > 0. With cosine logits use `scale`.
        teacher_weight: float in [0, 1]; not with `focal_gamma`.

    Raises:
        ValueError: an argument out of range.

    Example:

    >>> options = tfxclass.losses.LossOptions(class_counts=counts)
    >>> head = tfxclass.layers.FullSoftmax(10_000, loss_options=options)

    References:
        Menon et al., Long-tail learning via logit adjustment, ICLR 2021,
        equation 10 (`class_counts`). Lin et al., Focal loss for dense object
        detection, ICCV 2017, equation 4. Jain, Prabhu and Varma, Extreme
        Multi-label Loss Functions, KDD 2016, section 4 (`propensities`).
        Szegedy et al., Rethinking the Inception architecture, CVPR 2016,
        section 7 (`label_smoothing`). Hinton et al., Distilling the Knowledge
        in a Neural Network, 2015 (`teacher_weight`).
    """

    def __init__(
        self,
        class_weight: ArrayLike | Mapping[int, float] | None = None,
        propensities: ArrayLike | None = None,
        focal_gamma: float = 0.0,
        label_smoothing: float = 0.0,
        class_counts: ArrayLike | None = None,
        logit_adjustment: float = 1.0,
        temperature: float = 1.0,
        teacher_weight: float = 0.0,
    ) -> None:
        self.class_weight = _class_weight(class_weight)
        self.propensities = _numbers("propensities", propensities)
        self.focal_gamma = focal_gamma
        self.label_smoothing = label_smoothing
        self.class_counts = _numbers("class_counts", class_counts)
        self.logit_adjustment = logit_adjustment
        self.temperature = temperature
        self.teacher_weight = teacher_weight
        self._check()
        self._tables = {}

    def _check(self):
        p = self.propensities
        ranges = {
            "focal_gamma": (0 <= self.focal_gamma < np.inf, ">= 0"),
            "label_smoothing": (0 <= self.label_smoothing < 1, "in [0, 1)"),
            "temperature": (0 < self.temperature < np.inf, "> 0"),
            "teacher_weight": (0 <= self.teacher_weight <= 1, "in [0, 1]"),
            "logit_adjustment": (np.isfinite(self.logit_adjustment), "finite"),
            "propensities": (
                p is None or np.all((p > 0) & (p <= 1)),
                "in (0, 1]",
            ),
            "class_counts": (
                self.class_counts is None or np.any(self.class_counts > 0),
                "above 0 for one class at least",
            ),
        }
        for name, (is_right, wanted) in ranges.items():
            if not is_right:
                raise ValueError(
                    f"`{name}` must be {wanted}. Received: "
                    f"{getattr(self, name)}"
                )
        if self.class_counts is None and self.logit_adjustment != 1:
            raise ValueError(
                "`logit_adjustment` needs `class_counts`. Received: "
                f"logit_adjustment={self.logit_adjustment} without them"
            )
        for name in ("label_smoothing", "teacher_weight"):
            value = getattr(self, name)
            if self.focal_gamma and value:
                raise ValueError(
                    f"`focal_gamma` and `{name}` exclude each other: their "
                    "loss is no -log p. Received: focal_gamma="
                    f"{self.focal_gamma}, {name}={value}"
                )

    @property
    def used(self) -> list[str]:
        """Names of the options that are not as they are by default."""
        return [
            name
            for name, plain in _PLAIN.items()
            if (value := getattr(self, name)) is not plain
            and (plain is None or value != plain)
        ]

    def check_for(self, head: keras.layers.Layer) -> None:
        """Raises ValueError unless `head`, an `OutputHead`, has the options."""
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
            if isinstance(value, np.ndarray) and len(value) != head.num_classes:
                raise ValueError(
                    f"`{name}` must have a number for each class. Received: "
                    f"{len(value)} numbers with num_classes="
                    f"{head.num_classes}."
                )
        if head.objective.is_sum and self.teacher_weight:
            self._check_soft()
        spread = {
            "label_smoothing": self.label_smoothing,
            "teacher_weight": self.teacher_weight,
        }
        for name, value in spread.items():
            if value and head.removed:
                raise ValueError(
                    f"`{name}` gives mass to classes that are no labels, "
                    f"removed ones, too. Received: {name}={value} with "
                    f"{len(head.removed)} removed classes"
                )
        if isinstance(self.class_weight, dict):
            unknown = [c for c in self.class_weight if c >= head.num_classes]
            if unknown:
                raise ValueError(
                    "`class_weight` must be of classes below num_classes="
                    f"{head.num_classes}. Received: {unknown[:5]}"
                )

    def _check_soft(self):
        used = [x for x in ("class_weight", "propensities") if x in self.used]
        if used:
            raise ValueError(
                f"`{used[0]}` and `teacher_weight` exclude each other where "
                "labels are independent: the weight of a label is its "
                f"probability. Received: teacher_weight={self.teacher_weight}"
            )

    def apply_class_weights(
        self, targets: Targets, num_classes: int
    ) -> tuple[Targets, tf.Tensor]:
        """The labels of rows with their masses, and the weights of rows.

        Args:
            targets: `Targets` whose ids are classes.
            num_classes: int.

        Returns:
            `(targets, row_weights)`: `Targets` whose weights sum up to 1 -
            `label_smoothing`; float32 `[batch, 1]`, for `finish`.
        """
        weights = self.masses(targets, num_classes)
        of_rows = tf.ones_like(weights[:, :1])
        if self._of_classes("weights", num_classes) is not None:
            of_rows = tf.reduce_sum(weights, axis=1, keepdims=True)
            weights = tf.math.divide_no_nan(weights, of_rows)
        weights *= 1 - self.label_smoothing
        return Targets(targets.ids, weights), of_rows

    def masses(self, targets: Targets, num_classes: int) -> tf.Tensor:
        """Weights of `Targets` times those of their classes, `[batch, p]`."""
        ids, weights = targets.ids, targets.weights
        table = self._of_classes("weights", num_classes)
        if table is None:
            return weights
        return weights * tf.gather(table, tf.maximum(ids, 0))

    def finish(self, losses: tf.Tensor, row_weights: tf.Tensor) -> tf.Tensor:
        """Losses `[batch]` of cross-entropies and weights `[batch, 1]`."""
        return finished(losses, row_weights, self.focal_gamma)

    def shape(
        self, logits: tf.Tensor, ids: tf.Tensor | None, num_classes: int
    ) -> tf.Tensor:
        """`logits` `[batch, n]` of the classes `ids` `[n]`, as trained on.

        None is all classes.
        """
        table = self._of_classes("shares", num_classes)
        if self.temperature != 1:
            logits /= self.temperature
        if table is None:
            return logits
        return logits + (table if ids is None else tf.gather(table, ids))

    def shape_parts(
        self,
        parts: Sequence[tuple[tf.Tensor, ClassRows]],
        num_classes: int,
        ids: Sequence[tf.Tensor] | None = None,
    ) -> list[tuple[tf.Tensor, ClassRows]]:
        """Parts of tensors whose logits are those of `shape`.

        Args:
            parts: list of `(queries, ClassRows)`.
            num_classes: int.
            ids: of parts that are samples, the classes of their rows, each
                int64 `[n]`; what rows of padding get does not matter.
        """
        table = self._of_classes("shares", num_classes)
        shaped = []
        for i, (queries, rows) in enumerate(parts):
            bias, last = rows.bias, rows.first + rows.num_classes
            if bias is not None and self.temperature != 1:
                bias /= self.temperature
            if table is not None:
                own = table[rows.first : last]
                if ids is not None:
                    own = tf.gather(table, tf.minimum(ids[i], num_classes - 1))
                bias = own if bias is None else bias + own
            queries = queries / self.temperature
            shaped.append((queries, rows._replace(bias=bias)))
        return shaped

    def smoothed(
        self,
        losses: tf.Tensor,
        logits: tf.Tensor,
        targets: Targets,
        class_weights: tf.Tensor,
        num_classes: int,
    ) -> tf.Tensor:
        """`losses` with the uniform share of `label_smoothing`, on a sample.

        Args:
            losses: float32 `[batch]`.
            logits: float32 `[batch, n]`, not corrected for the sampling.
            targets: `Targets`; rows without labels keep their loss of 0.
            class_weights: float32 `[n]` or `[batch, n]`, inverse expected
                counts; 0 where a logit is infinite.
            num_classes: int.
        """
        if not self.label_smoothing:
            return losses
        share = targets.is_labelled * self.label_smoothing / num_classes
        weighted = tf.math.multiply_no_nan(logits, class_weights)
        return losses - share * tf.reduce_sum(weighted, axis=1)

    def _of_classes(self, name, num_classes):
        """A table of float32 `[num_classes]`, or None."""
        key = name, num_classes
        if key not in self._tables:
            make = {"weights": self._weights, "shares": self._log_shares}[name]
            values = make(num_classes)
            if values is not None:
                with tf.init_scope():
                    values = tf.constant(values, tf.float32)
            self._tables[key] = values
        return self._tables[key]

    def _weights(self, num_classes):
        """What labels weigh, or None."""
        if self.class_weight is None and self.propensities is None:
            return None
        weights = np.ones(num_classes)
        if isinstance(self.class_weight, dict):
            for c, weight in self.class_weight.items():
                weights[c] = weight
        elif self.class_weight is not None:
            weights *= self.class_weight
        return (
            weights
            if self.propensities is None
            else (weights / self.propensities)
        )

    def _log_shares(self, num_classes):
        """What is added to the logits, or None."""
        counts = self.class_counts
        if counts is None:
            return None
        counts = np.maximum(counts, counts[counts > 0].min())
        return self.logit_adjustment * np.log(counts / counts.sum())

    def changed(self, change: ClassUpdate) -> "LossOptions":
        """The options of a head after `change`.

        New classes weigh 1, or the median of given weights, are as often
        missed as the rarest, and count as often as they occur.
        """
        config = self.get_config()
        if isinstance(self.class_weight, dict):
            config["class_weight"] = {
                c: weight
                for c, weight in self.class_weight.items()
                if c not in change.added
            }
        elif self.class_weight is not None:
            of_new = np.median(self.class_weight)
            config["class_weight"] = change.resize(self.class_weight, of_new)
        if self.propensities is not None:
            of_new = self.propensities.min()
            config["propensities"] = change.resize(self.propensities, of_new)
        if self.class_counts is not None:
            counts = change.resize_counts(self.class_counts)
            config["class_counts"] = counts
        return LossOptions(**config)

    def get_config(self) -> Config:
        names = (*ALL_OPTIONS, "logit_adjustment")
        config = {name: getattr(self, name) for name in names}
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


def as_loss_options(
    given: LossOptions | dict[str, Any] | None,
) -> LossOptions | None:
    """What a head's `loss_options` may be, deserialised if need be."""
    if isinstance(given, dict):
        given = keras.saving.deserialize_keras_object(given)
    if given is not None and not isinstance(given, LossOptions):
        raise ValueError(
            "`loss_options` must be a tfxclass.losses.LossOptions or None. "
            f"Received: {given!r}"
        )
    return given


def _class_weight(given):
    """A dict of ints and floats, or float64 `[num_classes]`, or None."""
    if not isinstance(given, Mapping) or "class_name" in given:
        return _numbers("class_weight", given)
    weights = {int(c): float(w) for c, w in given.items()}
    for c, weight in weights.items():
        if c < 0 or not 0 <= weight < float("inf"):
            raise ValueError(
                "`class_weight` must be finite and >= 0 for classes >= 0. "
                f"Received: {weight} for class {c}"
            )
    return weights


def _numbers(name, given):
    """float64 `[num_classes]`, finite and >= 0, or None."""
    if isinstance(given, dict):
        given = keras.saving.deserialize_keras_object(given)
    if given is None:
        return None
    values = np.array(given, np.float64)
    if values.ndim != 1:
        raise ValueError(
            f"`{name}` must have shape [num_classes]. Received: {values.shape}"
        )
    bad = np.flatnonzero(~(np.isfinite(values) & (values >= 0)))
    if len(bad):
        raise ValueError(
            f"`{name}` must be finite and >= 0. Received: {values[bad[0]]} "
            f"for class {bad[0]}"
        )
    return values
