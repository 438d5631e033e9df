"""Heads with one class vector a class, and the exact softmax."""

import sys
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import ArrayLike

from tfxclass.checks import as_numbers_of_classes
from tfxclass.checks import check_choice
from tfxclass.checks import check_one_per_class
from tfxclass.checks import check_positive
from tfxclass.core.class_update import ClassUpdate
from tfxclass.layers import cosine
from tfxclass.layers.head_config import offset_specs
from tfxclass.layers.head_weights import WeightSpec
from tfxclass.layers.output_head import OutputHead
from tfxclass.layers.tied_rows import Tie
from tfxclass.losses.objectives import ALL_OBJECTIVES
from tfxclass.ops import norms
from tfxclass.rows.class_matrix import ClassRows
from tfxclass.types import Config
from tfxclass.types import Initializer
from tfxclass.types import Margin

# A threshold that a probability of 1 is below.
_NEVER = np.nextafter(np.float32(1), np.float32(2))


class ClassHead(OutputHead):
    """Base class of heads with one class vector for each class.

    The class vectors are the rows of the weight `kernel`. A subclass overrides
    `training_step`.

    Args:
        similarity: `"dot"`, where logits are dot products of features and class
            vectors, or `"cosine"`, where both are normalized first. Or a
            `tfxclass.layers.Cosine` with a scale and a margin.
        use_bias: bool, whether logits have a bias. Not for cosines.
        bias_initializer: initializer of the bias, for example
            `tfxclass.initializers.LogOdds` with the frequencies of the labels.
        tied_to: a `keras.layers.Embedding`, or a float32 `keras.Variable`
            `[num_classes, dim]`, whose rows are the class vectors (tied
            weights). They are saved with their owner. Gradients of both uses
            are summed.
        **kwargs: other arguments of `OutputHead`.

    Attributes:
        answer_temperature: float > 0, 1 until `tfxclass.calibrate` sets it.
            Logits are divided by it before they become probabilities, but not
            in losses.
        thresholds: float32 `[num_classes]`, the lowest probability with which
            each class is an answer, for `threshold="calibrated"`; the float
            after 1 for never. None until `tfxclass.calibrate` sets it.
    """

    has_plain_logits = True
    bias: Any = None

    def __init__(
        self,
        num_classes: int,
        similarity: str | cosine.Cosine = "dot",
        use_bias: bool = False,
        bias_initializer: Initializer = "zeros",
        tied_to: Any = None,
        **kwargs: Any,
    ) -> None:
        # Files have them; `tfxclass.calibrate` sets them.
        temperature = kwargs.pop("answer_temperature", 1.0)
        thresholds = kwargs.pop("thresholds", None)
        for name in cosine.OPTIONS & kwargs.keys():
            raise ValueError(
                f"`{name}` belongs in `similarity`. Fix: similarity="
                f"tfxclass.layers.Cosine({name}={kwargs[name]!r}). Received: "
                f"{name}={kwargs[name]!r} as an argument of the head"
            )
        self.cosine = cosine.as_cosine(similarity)
        super().__init__(num_classes, **kwargs)
        self.use_bias = use_bias
        self.bias_initializer = keras.initializers.get(bias_initializer)
        self.answer_temperature = temperature
        self.thresholds = thresholds
        self.tie = None if tied_to is None else Tie(tied_to)
        if self.tie is not None and self.kernel_dtype != "float32":
            raise ValueError(
                "The class vectors of a head with `tied_to` are float32. "
                f'Received: kernel_dtype="{self.kernel_dtype}"'
            )
        self._check_options()

    def _check_options(self):
        is_zero = isinstance(self.bias_initializer, keras.initializers.Zeros)
        if not self.use_bias and not is_zero:
            raise ValueError(
                "`bias_initializer` needs `use_bias=True`. Received: "
                f"bias_initializer={self.bias_initializer!r}"
            )
        if self.use_bias and self.cosine is not None:
            raise ValueError(
                '`use_bias=True` needs similarity="dot". Received: '
                'similarity="cosine".'
            )
        used = self.options.used
        margin = self.cosine.margin if self.cosine is not None else 0
        if margin and {"class_counts", "label_smoothing"} & set(used):
            raise ValueError(
                "`margin` must be 0 with `class_counts` or `label_smoothing` "
                "in `loss_options`, which change logits or labels. Received: "
                f"margin={margin}, loss_options={used}"
            )

    @property
    def similarity(self) -> str:
        """`"dot"` or `"cosine"`."""
        return "dot" if self.cosine is None else "cosine"

    @property
    def answer_temperature(self) -> float:
        return self._answer_temperature

    @answer_temperature.setter
    def answer_temperature(self, value: float) -> None:
        check_positive("answer_temperature", value)
        if value != 1 and not self.has_plain_logits:
            raise ValueError(
                f"A {type(self).__name__} has no `answer_temperature`: its "
                "scores are no softmax of logits. Received: "
                f"answer_temperature={value}"
            )
        self._answer_temperature = value

    @property
    def thresholds(self) -> np.ndarray | None:
        return self._thresholds

    @thresholds.setter
    def thresholds(self, values: ArrayLike | None) -> None:
        if values is not None:
            values = as_numbers_of_classes(
                "thresholds",
                values,
                lambda x: (x >= 0) & (x <= _NEVER),
                "numbers in [0, 1]",
            ).astype(np.float32)
            check_one_per_class("thresholds", values, self.num_classes)
        self._thresholds = values

    def __call__(self, features: Any, *args: Any, **kwargs: Any) -> Any:
        if self.tie is not None and not self.tie.is_found:
            self.tie.find(features)
            # Keras says that what `build_from_config` passed over is built.
            self.built = False
        return super().__call__(features, *args, **kwargs)

    def build_from_config(self, config: Config) -> None:
        # From a file; the owner is found when the model is put together.
        if self.tie is None or self.tie.is_found:
            super().build_from_config(config)

    def shared_rows(self, dim: int) -> dict[str, keras.Variable]:
        if self.tie is None:
            return {}
        return {"kernel": self.tie.kernel((self.num_classes, dim))}

    def weight_specs(self, dim: int) -> list[WeightSpec]:
        shape = (self.num_classes, dim)
        initializer = self.kernel_initializer
        if self.tie is not None:
            initializer = self.tie.initializer
        kernel = WeightSpec(
            "kernel",
            shape,
            initializer,
            self.kernel_dtype,
            bias="bias" if self.use_bias else "offsets",
            normalize=self.cosine is not None,
            part=0,
        )
        if not self.use_bias:
            return [kernel, *offset_specs(self.removed, [kernel])]
        return [kernel, WeightSpec("bias", shape[:1], self.bias_initializer)]

    def changed_config(self, change: ClassUpdate) -> Config:
        if self.tie is not None:
            raise ValueError(
                "Classes of a head with `tied_to` are the rows of another "
                f"layer, which stay as many. Received: {self.name!r}, tied to "
                f"{self.tie.name!r}"
            )
        config = super().changed_config(change)
        if self.thresholds is not None:
            of_new = np.median(self.thresholds)
            config["thresholds"] = change.resize(self.thresholds, of_new)
        if "sampler" in config and self.sampler is not None:
            config["sampler"] = self.sampler.changed(change)
        return config

    @property
    def logit_scale(self) -> float:
        """The factor of the logits."""
        return 1.0 if self.cosine is None else float(self.cosine.scale)

    def target_margin(self) -> Margin | None:
        return None if self.cosine is None else self.cosine.target_margin()

    def queries(self, features: tf.Tensor) -> tf.Tensor:
        features = super().queries(features)
        if self.cosine is None:
            return features
        return self.logit_scale * norms.normalize(features)

    @property
    def rows(self) -> ClassRows:
        """The `ClassRows` of all classes."""
        return self.class_matrix.rows

    def class_rows(self) -> list[ClassRows]:
        return list(self.class_matrix.rows_by_shard().values())

    @property
    def is_exact_softmax(self) -> bool:
        """Whether the exact loss avoids a gradient matrix."""
        is_softmax = self.objective.name == "softmax"
        return is_softmax and self.objective.is_plain(self.options)

    def get_config(self) -> Config:
        initializer = keras.initializers.serialize(self.bias_initializer)
        return {
            **super().get_config(),
            "similarity": cosine.to_config(self.cosine),
            "use_bias": self.use_bias,
            "bias_initializer": initializer,
            "answer_temperature": self.answer_temperature,
            "thresholds": self.thresholds,
            "tied_to": None if self.tie is None else self.tie.name,
        }


@keras.saving.register_keras_serializable("tfxclass")
class FullSoftmax(ClassHead):
    """Exact softmax that need not hold the [batch, num_classes] matrix.

    Use it up to some ten thousand classes, and as a baseline. With
    `loss="sigmoid"` or `"squared_hinge"` it learns independent labels, exactly.

    With an optimizer of `tfxclass.optimizers` on a CPU, a training step does
    not hold the gradient of `kernel`. It is one tensor with an optimizer of
    Keras, gradient clipping or accumulation, constraints, loss scaling, a
    distribution strategy, `run_eagerly`, or loss options that change logits.
    Other losses hold a block of logits: 8 MiB, or 4 KiB for each example.

    Args:
        keep_exponentials: bool, whether a step with float32 products on a CPU
            keeps the exponentials of all logits, 4 bytes for each, and takes a
            fifth less time. Defaults to False: only up to 128 MiB.
        **kwargs: arguments of `ClassHead`.

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

    def __init__(
        self, num_classes: int, keep_exponentials: bool = False, **kwargs: Any
    ) -> None:
        super().__init__(num_classes, **kwargs)
        check_choice("keep_exponentials", keep_exponentials, (False, True))
        self.keep_exponentials = keep_exponentials
        if keep_exponentials:
            self.kept_bytes = sys.maxsize

    def class_rows(self) -> list[ClassRows]:
        rows = super().class_rows()
        return [x._replace(kept_bytes=self.kept_bytes) for x in rows]

    @property
    def steps_by_class(self) -> bool:
        return self.is_exact_softmax

    def get_config(self) -> Config:
        config = super().get_config()
        return {**config, "keep_exponentials": self.keep_exponentials}
