"""Softmax over the classes that a sampler chooses."""

from typing import Any

import keras
import tensorflow as tf

from tfxclass.checks import check_choice
from tfxclass.core.forward import Ranking
from tfxclass.core.forward import Step
from tfxclass.core.softmax import refuse_gradient
from tfxclass.core.targets import Targets
from tfxclass.core.targets import with_negatives
from tfxclass.layers.class_head import ClassHead
from tfxclass.losses.objectives import ALL_OBJECTIVES
from tfxclass.ops import placement as placement_lib
from tfxclass.samplers import by_name
from tfxclass.samplers.replicas import sample_for_replicas
from tfxclass.samplers.sampler import Sample
from tfxclass.samplers.sampler import Sampler
from tfxclass.samplers.sampler import finite
from tfxclass.types import Config
from tfxclass.types import Shape


@keras.saving.register_keras_serializable("tfxclass")
class SampledSoftmax(ClassHead):
    """Softmax that computes `num_sampled` classes in a training step.

    Use it from some ten thousand classes on. A training step costs a product of
    [batch, dim] by [dim, num_sampled] and updates `num_sampled` class vectors,
    whatever `num_classes` is. The batch shares its sampled classes: its labels,
    and classes chosen by the sampler. The log expected count of each class is
    subtracted from its logit, so the loss is a consistent estimate of the full
    softmax, and exact with `num_sampled >= num_classes`. A subclass with
    another loss overrides `sampled_loss`.

    Args:
        num_sampled: int, number of classes in a training step, labels included.
            Leave it out with a `Sampler` object, which has its own. Defaults
            to 1 % of the classes, and at least twice the labels of each batch.
            A batch with more distinct labels computes its labels alone, and the
            first such step prints a warning.
        sampler: a `tfxclass.samplers.Sampler`, or the name of one with default
            arguments: `"uniform"`, `"log_uniform"` (for classes numbered by
            falling frequency), `"top_k"`, `"pca_hash"`, `"kmeans"`,
            `"hashing_forest"`, `"lsh"`, `"batch"` (see `BatchSampler`) or
            `"auto"` (uniform, plus similar classes when that helps, see
            `AutoSampler`). Defaults to None, the head's own default: `"auto"`.
        loss: as in `OutputHead`. Binary losses do not work with a sampler whose
            counts are not corrected (`correct_fill=False`,
            `correction="none"`).
        placement: None, or `"host"` for a class matrix that is too large for
            the device. The class matrix, its optimizer state and the sampler's
            index then lie in host memory, where evaluation and `top_k` run. A
            training step copies the sampled class vectors to the device, and
            their gradients back. It needs an optimizer of
            `tfxclass.optimizers`, and no distribution strategy: see
            `ShardedSoftmax` and `tfxclass.distribute.fit` for these.
        **kwargs: other arguments of `ClassHead`.

    Example:

    ```python
    head = tfxclass.layers.SampledSoftmax(100_000, num_sampled=1024)
    model = keras.Sequential([keras.layers.Dense(32), head])
    model.compile(tfxclass.optimizers.HeadAdam(), loss=head.loss)
    model.fit(np.ones([32, 20]), np.arange(32), verbose=0)
    ```

    References:
        Jean et al., On Using Very Large Target Vocabulary for Neural Machine
        Translation, ACL 2015.
    """

    loss_kinds = ALL_OBJECTIVES

    #: The sampler where none is given; None computes all classes.
    default_sampler: str | None = "auto"

    #: Whether the head has an exact training step, too.
    can_train_on_all = True

    #: The class that the sampler must have.
    sampler_kind: type[Sampler] = Sampler

    def __init__(
        self,
        num_classes: int,
        num_sampled: int | None = None,
        sampler: str | Sampler | None = None,
        placement: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(num_classes, **kwargs)
        self.sampler = self._make_sampler(sampler, num_sampled)
        self.num_sampled = self.sampler and self.sampler.num_sampled
        if self.objective.is_sum:
            self.check_estimates("loss", self.objective.name)
        self.check_estimates("label_smoothing", self.options.label_smoothing)
        check_choice("placement", placement, (None, "host"))
        self.placement = placement
        if placement is None:
            return
        self.can_train_on_all = False
        if self.tie is not None:
            raise ValueError(
                "`placement` must be None with `tied_to`: class vectors lie "
                f'where their layer is. Received: placement="{placement}"'
            )
        if self.sampler is None:
            raise ValueError(
                '`placement="host"` needs a `sampler`: without one a step '
                "brings the whole matrix to the device. Received: sampler=None"
            )

    def _make_sampler(self, sampler, num_sampled):
        sampler = self.default_sampler if sampler is None else sampler
        if sampler is None and num_sampled is not None:
            raise ValueError(
                '`num_sampled` needs a `sampler`, e.g. "uniform". '
                f"Received: num_sampled={num_sampled} with sampler=None."
            )
        if sampler is None:
            return None
        found = by_name.get(sampler, num_sampled, self.seed, self.num_classes)
        by_name.check_kind(found, self.sampler_kind, self)
        return found

    def check_estimates(self, name: str, is_used: Any) -> None:
        """Refuses an option with a sum over classes, if the sampler cannot."""
        sampler = self.sampler
        if is_used and sampler is not None and not sampler.estimates_sums:
            raise ValueError(
                f"`{name}` is a sum over all classes, which a sampler without "
                "a correction of its counts (`correct_fill=False`, "
                '`correction="none"`, "fill" with `negatives="sample"`) does '
                f"not estimate. Received: {name}={is_used} with a "
                f"{type(sampler).__name__} of that kind"
            )

    def is_on_host(self) -> bool:
        if self.placement is None:
            return super().is_on_host()
        if tf.distribute.has_strategy():
            raise ValueError(
                '`placement="host"` is for one device, without a strategy. '
                f"Received: a {type(tf.distribute.get_strategy()).__name__}. "
                "With several, a ShardedSoftmax shares the matrix out, and a "
                "ParameterServerStrategy keeps it on servers."
            )
        return True

    def build(self, input_shape: Shape) -> None:
        super().build(input_shape)
        if self.sampler is not None:
            self.sampler.build_for(self.name, self.rows, self.num_negatives)
            self.class_matrix.on_moved = self.sampler.rows_moved
            self.num_sampled = self.sampler.num_sampled

    def guard(self, output: tf.Tensor, training: bool | None) -> tf.Tensor:
        if training and self.sampler is not None:
            # A loss on it would cost, silently, the full softmax.
            return refuse_gradient(
                output,
                f"Compile with loss=head.loss: {self.name!r}, a "
                f"{type(self).__name__}, has a training loss of its own, and "
                "another loss differentiates its full output. A FullSoftmax "
                "takes any loss.",
            )
        return output

    def may_skip_rows(self) -> bool:
        if self.sampler is None or self.num_negatives:
            # Negatives of a row are in the sample whether it has a label.
            return False
        # Replicas gather their rows, and need as many each.
        context = tf.distribute.get_replica_context()
        return context is not None and context.num_replicas_in_sync == 1

    def training_step(self, features: tf.Tensor, targets: Targets) -> Step:
        """The `Step` on the sampled classes, or on all without a sampler."""
        if not self.is_sampled:
            return super().training_step(features, targets)
        queries = self.queries(features)
        sample = self.sample(queries, targets)
        rows = self.sampled_rows(sample)
        logits = self.sampled_logits(queries, sample, rows)
        losses = self.sampled_loss(logits, sample, targets)
        losses += self.sampled_penalty(rows[0], sample)
        ranking = Ranking(tf.stop_gradient(logits), sample.positions)
        return Step(losses, ranking)

    def sample(self, queries: tf.Tensor, targets: Targets) -> Sample:
        """The `tfxclass.samplers.Sample` of a training step."""
        matrix = self.class_matrix
        batch = finite(tf.stop_gradient(queries)), with_negatives(targets)
        context = tf.distribute.get_replica_context()
        with placement_lib.on(self.rows_device):
            if context is not None and context.num_replicas_in_sync > 1:
                sample = sample_for_replicas(self.sampler, *batch, matrix)
            else:
                sample = self.sampler.sample(*batch, matrix.kernel)
                self.sampler.update(matrix.kernel, sample.ids)
        return sample.without_negatives(self.num_negatives)

    def sampled_rows(
        self, sample: Sample
    ) -> tuple[tf.Tensor, tf.Tensor | None]:
        """`(kernel, bias)` of the classes of a step; see `ClassRows.gather`."""
        return self.class_matrix.rows.gather(sample.ids)

    def sampled_logits(
        self,
        queries: tf.Tensor,
        sample: Sample,
        rows: tuple[tf.Tensor, tf.Tensor | None],
    ) -> tf.Tensor:
        """Logits `[rows, num_sampled]`, -inf where the mask leaves one out."""
        kernel, bias = rows
        logits = tf.matmul(queries, kernel, transpose_b=True)
        logits = logits if bias is None else logits + bias
        if sample.mask is None:
            return logits
        return tf.where(sample.mask, logits, float("-inf"))

    def sampled_loss(
        self, logits: tf.Tensor, sample: Sample, targets: Targets
    ) -> tf.Tensor:
        """Loss of each example over the classes of a step, float32 `[rows]`.

        `logits` are float32 `[rows, num_sampled]`; metrics rank labels by them.
        """
        targets, finish = self.objective.weighted_targets(self, targets)
        margin = self.target_margin()
        return finish(
            self.objective.sampled(self, logits, sample, targets, margin)
        )

    def sampled_penalty(
        self, kernel: tf.Tensor, sample: Sample
    ) -> tf.Tensor | float:
        """Penalty on class vectors `[num_sampled, dim]`, also of each row."""
        return 0.0

    @property
    def is_sampled(self) -> bool:
        """Whether a step has a sample: `ExactLast` may train on all."""
        return self.sampler is not None and not self.trains_on_all

    def step_rows(self, batch: int) -> int | None:
        return self.sampler.size_for(batch) if self.is_sampled else None

    def activation_bytes(self, batch: int, dim: int) -> int:
        if self.sampler is None:
            return super().activation_bytes(batch, dim)
        # Logits, adjusted logits, their gradient, and a copy for metrics.
        return 16 * batch * self.sampler.size_for(batch)

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "num_sampled": self.sampler
            and self.sampler.get_config()["num_sampled"],
            "placement": self.placement,
            "sampler": keras.saving.serialize_keras_object(self.sampler),
        }
