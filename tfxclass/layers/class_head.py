"""A head with one row a class: the class matrix and its similarities."""

import functools
import math
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import ArrayLike

from tfxclass.checks import check_choice
from tfxclass.core import targets as targets_lib
from tfxclass.core.change import Change
from tfxclass.layers.class_numbers import ClassWeight
from tfxclass.layers.class_numbers import offset_specs
from tfxclass.layers.head_weights import WeightSpec
from tfxclass.layers.partitioned_head import PartitionedHead
from tfxclass.layers.tied_rows import Tie
from tfxclass.losses.options import LOSS_OPTIONS
from tfxclass.ops import bfloat16_rows
from tfxclass.rows import class_matrix as matrices
from tfxclass.rows import exact
from tfxclass.rows import products
from tfxclass.rows.class_rows import ClassRows
from tfxclass.types import Config
from tfxclass.types import Initializer
from tfxclass.types import Margin

_MARGINS = {"cosface": targets_lib.cosface, "arcface": targets_lib.arcface}
_COSINE_SCALE = 24.0
_SET_BY_CALIBRATE = {"answer_temperature", "thresholds"}
# A threshold that a probability of 1 is below.
_NEVER = np.nextafter(np.float32(1), np.float32(2))


class ClassHead(PartitionedHead):
    """Base class of the heads with a matrix `kernel`, a row a class.

    A subclass overrides `training_step`.

    Logits are `features . row` (`similarity="dot"`), or with both sides
    normalised, times `scale` (`"cosine"`), where `margin` is taken off the
    target in training only (CosFace, Wang et al. 2018; ArcFace, Deng et al.
    2019).

    Args:
        num_classes: int, number of classes.
        similarity: `"dot"` or `"cosine"`.
        scale: float, factor of cosine logits; 24 by default. Not for `"dot"`.
        margin: float >= 0, margin on the target; 0 is none. Not for `"dot"`.
        margin_type: `"cosface"` (off the cosine) or `"arcface"` (radians).
        use_bias: whether logits have a bias. Not for `"cosine"`.
        bias_initializer: initializer of the bias, as
            `tfxclass.initializers.LogOdds` of the labels' frequencies.
        tied_to: a `keras.layers.Embedding`, or a `keras.Variable`, float32
            `[num_classes, dim]`: class rows are its rows. They are saved with
            it, and its gradients and the head's are summed. Or None.
        **kwargs: `OutputHead`'s arguments: `activation`, `kernel_initializer`,
            `seed`, `loss_options`, `loss`, `kernel_dtype`, and
            `keras.layers.Layer`'s.

    Call arguments and output shape are `OutputHead`'s.

    Attributes:
        answer_temperature: float > 0, divides logits before they become
            probabilities, but not in losses; 1 by default.
            `tfxclass.calibrate` sets it.
        thresholds: float32 `[num_classes]` in [0, 1], the least probability of
            each class in an answer, for `threshold="calibrated"`; None by
            default. `tfxclass.calibrate` sets them: to the float after 1 for a
            class that is never to be an answer.

    Raises:
        ValueError: an argument out of range, or features that are not rank 2.
    """

    has_plain_logits = True

    def __init__(
        self,
        num_classes: int,
        similarity: str = "dot",
        scale: float | None = None,
        margin: float = 0.0,
        margin_type: str = "cosface",
        use_bias: bool = False,
        bias_initializer: Initializer = "zeros",
        tied_to: Any = None,
        **kwargs: Any,
    ) -> None:
        for name in _SET_BY_CALIBRATE & kwargs.keys():
            raise ValueError(
                f"`{name}` is no argument of a head: tfxclass.calibrate sets "
                f"it. Fix: head.{name} = ... Received: {kwargs[name]!r}"
            )
        super().__init__(num_classes, **kwargs)
        check_choice("similarity", similarity, ("dot", "cosine"))
        check_choice("margin_type", margin_type, tuple(_MARGINS))
        self.similarity = similarity
        self.scale = scale
        self.margin = margin
        self.margin_type = margin_type
        self.use_bias = use_bias
        self.bias_initializer = keras.initializers.get(bias_initializer)
        self._answer_temperature = 1.0
        self._thresholds = None
        self.tie = None if tied_to is None else Tie(tied_to)
        if self.tie is not None and self.kernel_dtype != "float32":
            raise ValueError(
                "Rows of a head with `tied_to` are float32. Received: "
                f'kernel_dtype="{self.kernel_dtype}"'
            )
        self._check_bias()
        self._check_similarity()
        self._check_options()

    def _check_options(self):
        used = [] if self.loss_options is None else self.loss_options.used
        if "temperature" in used and self.similarity == "cosine":
            raise ValueError(
                '`temperature` of `loss_options` needs similarity="dot": '
                "cosine logits have a `scale`. Received: temperature="
                f"{self.loss_options.temperature}"
            )
        others = {"class_counts", "label_smoothing", "teacher_weight"}
        if self.margin and others & set(used):
            raise ValueError(
                "`margin` must be 0 with `class_counts`, `label_smoothing` or "
                "`teacher_weight` in `loss_options`: a margin is of plain "
                "cosine logits, against labels. "
                f"Received: margin={self.margin}, loss_options={used}"
            )

    @property
    def answer_temperature(self) -> float:
        """See the attributes of the class."""
        return self._answer_temperature

    @answer_temperature.setter
    def answer_temperature(self, value: float) -> None:
        if not 0 < value < math.inf:
            raise ValueError(
                "`answer_temperature` must be finite and > 0. Received: "
                f"{value}"
            )
        if value != 1 and not self.has_plain_logits:
            raise ValueError(
                f"A {type(self).__name__} has no `answer_temperature`: its "
                "scores are no softmax of logits. Received: "
                f"answer_temperature={value}"
            )
        self._answer_temperature = value

    @property
    def thresholds(self) -> np.ndarray | None:
        """See the attributes of the class."""
        return self._thresholds

    @thresholds.setter
    def thresholds(self, values: ArrayLike | None) -> None:
        self._thresholds = _checked_thresholds(values, self.num_classes)

    def _check_bias(self):
        is_zero = isinstance(self.bias_initializer, keras.initializers.Zeros)
        if not self.use_bias and not is_zero:
            raise ValueError(
                "`bias_initializer` needs `use_bias=True`. Received: "
                f"bias_initializer={self.bias_initializer!r}"
            )

    def _check_similarity(self):
        if self.similarity == "dot":
            if self.scale is not None or self.margin:
                raise ValueError(
                    '`scale` and `margin` need similarity="cosine". Received: '
                    f"scale={self.scale}, margin={self.margin} with "
                    'similarity="dot".'
                )
            return
        if self.use_bias:
            raise ValueError(
                '`use_bias=True` needs similarity="dot". Received: '
                'similarity="cosine".'
            )
        if self.scale is not None and not 0 < self.scale < math.inf:
            raise ValueError(
                f"`scale` must be > 0 and finite. Received: {self.scale}"
            )
        if not 0 <= self.margin < math.inf:
            raise ValueError(
                f"`margin` must be >= 0 and finite. Received: {self.margin}"
            )

    def __call__(self, features: Any, *args: Any, **kwargs: Any) -> Any:
        if self.tie is not None and not self.tie.is_found:
            self.tie.find(features)
            # Keras says that what `build_from_config` passed over is built.
            self.built = False
        return super().__call__(features, *args, **kwargs)

    def build_from_config(self, config: Config) -> None:
        # Of a file; what is tied is found when the model is put together.
        if self.tie is None or self.tie.is_found:
            super().build_from_config(config)

    def shared_rows(self, dim: int) -> dict[str, keras.Variable]:
        if self.tie is None:
            return {}
        return {"kernel": self.tie.kernel((self.num_classes, dim))}

    def weight_specs(self, dim: int) -> list[WeightSpec]:
        shape = (self.num_classes, dim)
        specs = [
            WeightSpec(
                "kernel", shape, self.kernel_initializer, self.kernel_dtype
            )
        ]
        if self.use_bias:
            specs.append(WeightSpec("bias", shape[:1], self.bias_initializer))
        else:
            specs += offset_specs(self.removed, shape[:1], ["offsets"])
        return specs

    def take_weights(self, made: dict[str, keras.Variable]) -> None:
        self.kernel, self.bias = made["kernel"], made.get("bias")
        matrix = matrices.of(self.kernel)
        matrix.is_tied = self.tie is not None
        matrix.is_normalized = self.similarity == "cosine"
        self.offsets = made.get("offsets")

    @property
    def row_bias(self) -> Any:
        """What is added to logits, a variable `[num_classes]` or None."""
        return self.offsets if self.bias is None else self.bias

    def class_weights(self) -> list[ClassWeight]:
        return [
            ClassWeight(
                spec.name,
                0,
                self.num_classes,
                0 if spec.name == "kernel" else None,
            )
            for spec in self.weight_specs(self.kernel.shape[1])
            if spec.is_rows
        ]

    def changed_config(self, change: Change) -> Config:
        if self.tie is not None:
            raise ValueError(
                "Classes of a head with `tied_to` are the rows of another "
                f"layer, which stay as many. Received: {self.name!r}, tied to "
                f"{self.tie.name!r}"
            )
        config = super().changed_config(change)
        if self.thresholds is not None:
            of_new = np.median(self.thresholds)
            config["thresholds"] = change.grown(self.thresholds, of_new)
        return config

    @property
    def logit_scale(self) -> float:
        """Factor of the logits, float."""
        if self.similarity == "dot":
            return 1.0
        return _COSINE_SCALE if self.scale is None else float(self.scale)

    def target_margin(self) -> Margin | None:
        """The margin as a function of target logits, or None."""
        if self.similarity == "dot" or not self.margin:
            return None
        return functools.partial(
            _MARGINS[self.margin_type],
            margin=self.margin,
            scale=self.logit_scale,
        )

    def activate(self, logits: tf.Tensor) -> tf.Tensor:
        """Probabilities of logits `[..., num_classes]`."""
        return self.objective.activate(self.answer_scale * logits)

    def queries(self, features: tf.Tensor) -> tf.Tensor:
        """float32 `[rows, dim]`: logits are `queries . class rows`."""
        features = super().queries(features)
        if self.similarity == "dot":
            return features
        return self.logit_scale * products.normalize(features)

    @property
    def rows(self) -> ClassRows:
        """The `ClassRows` of all classes."""
        normalize = self.similarity == "cosine"
        return ClassRows(
            self.kernel, self.row_bias, normalize, device=self.rows_device
        )

    def class_rows(self) -> list[ClassRows]:
        return [self.rows]

    @property
    def is_exact_softmax(self) -> bool:
        """Whether the exact loss has no gradient in memory: on a CPU."""
        options = self.loss_options
        plain = options is None or set(options.used) <= set(LOSS_OPTIONS)
        is_softmax = self.objective.name == "softmax"
        return is_softmax and plain and not exact.on_gpu(self.rows_device)

    def class_matrix(self) -> tf.Tensor:
        """The whole `kernel`, float32."""
        return bfloat16_rows.floats(tf.convert_to_tensor(self.kernel))

    def get_config(self) -> Config:
        names = ("similarity", "scale", "margin", "margin_type", "use_bias")
        own = {name: getattr(self, name) for name in names}
        initializer = keras.initializers.serialize(self.bias_initializer)
        return {
            **super().get_config(),
            **own,
            "bias_initializer": initializer,
            "answer_temperature": self.answer_temperature,
            "thresholds": self.thresholds,
            "tied_to": None if self.tie is None else self.tie.name,
        }

    @classmethod
    def from_config(cls, config: Config) -> "ClassHead":
        names = _SET_BY_CALIBRATE & config.keys()
        arguments = {k: v for k, v in config.items() if k not in names}
        head = super().from_config(arguments)
        for name in names:
            setattr(head, name, config[name])
        return head


def _checked_thresholds(given, num_classes):
    """float32 `[num_classes]` in [0, 1], or None."""
    if isinstance(given, dict):
        given = keras.saving.deserialize_keras_object(given)
    if given is None:
        return None
    values = np.array(given, np.float32)
    is_right = values.shape == (num_classes,)
    if not is_right or not np.all((values >= 0) & (values <= _NEVER)):
        raise ValueError(
            "`thresholds` must be numbers in [0, 1], one for each class. "
            f"Received: shape {values.shape} with num_classes={num_classes}"
        )
    return values
