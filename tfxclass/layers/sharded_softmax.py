"""Softmax whose classes are shared out among the replicas of a strategy."""

import math
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfxclass import saved_random
from tfxclass import shards as shards_lib
from tfxclass.checks import check_fraction
from tfxclass.checks import check_optional_int
from tfxclass.core.forward import Step
from tfxclass.core.targets import Targets
from tfxclass.core.targets import with_negatives
from tfxclass.initializers import InBlocks
from tfxclass.layers import head_weights
from tfxclass.layers.class_head import ClassHead
from tfxclass.layers.head_weights import WeightSpec
from tfxclass.losses.objectives import ALL_OBJECTIVES
from tfxclass.ops.active_classes import active_classes
from tfxclass.rows import sharded_rows
from tfxclass.rows.class_matrix import ClassRows
from tfxclass.samplers import by_name
from tfxclass.samplers.replicas import ShardSamplers
from tfxclass.samplers.sampler import Sampler
from tfxclass.shards.exchange import ReplicaGroup
from tfxclass.types import Config
from tfxclass.types import Shape
from tfxclass.types import Store

# Begins the names of the samplers' state in files.
_SAMPLER = "sampler_state_"


@keras.saving.register_keras_serializable("tfxclass")
class ShardedSoftmax(ClassHead):
    """Softmax with a contiguous range of classes on each replica.

    Use it for a class matrix that is too large or too slow for one device.
    Build it within `strategy.scope()`, and train it with an optimizer of
    `tfxclass.optimizers`. Each replica holds the vectors of its classes and
    their optimizer state, and computes their logits for the whole batch.
    Replicas exchange features, labels, 12 bytes of softmax statistics for each
    example and shard, and gradients of features. The loss is `FullSoftmax`'s
    loss on the whole batch.

    With `sample_rate` or `num_sampled` it is Partial FC. Each shard computes
    and updates the labels of the batch that are among its classes, and other
    classes sampled uniformly.

    Files hold the class matrix and the optimizer state in the order of the
    classes, so they load on any number of replicas, or without a strategy.
    Under a `ParameterServerStrategy`, where each server holds a range of
    classes, a file with optimizer state needs the same number of servers. With
    several workers, the full output (`predict`) is not computed, but NaN: load
    the file in one process, or use `top_k`.

    Args:
        sampler: as in `SampledSoftmax`. Each shard gets a copy with its own
            index and an equal part of `num_sampled`. Indexes are saved for the
            same number of replicas, and are built again on another number.
            Defaults to None: uniform samples.
        num_sampled: as in `SampledSoftmax`, of all shards together. Without a
            `sampler` it defaults to all classes.
        sample_rate: float in (0, 1], fraction of the classes, instead of
            `num_sampled`.
        correct_fill: bool, whether sampled classes stand for the classes that
            were not sampled. Required for `loss="sigmoid"`. False restricts
            the softmax to the classes of the step, as Partial FC does.
        **kwargs: other arguments of `ClassHead`, without `tied_to`.

    Example:

    ```python
    with tf.distribute.MirroredStrategy(["CPU:0"]).scope():
        head = tfxclass.layers.ShardedSoftmax(
            10_000,
            similarity=tfxclass.layers.Cosine(margin=0.3),
            sample_rate=0.1,
        )
        model = keras.Sequential([keras.Input([64]), head])
        optimizer = tfxclass.optimizers.LazySGD(0.1, momentum=0.9)
        model.compile(optimizer, loss=head.loss)
    ```

    References:
        An et al., Killing Two Birds with One Stone: Efficient and Robust
        Training of Face Recognition CNNs by Partial FC, CVPR 2022.
    """

    loss_kinds = ALL_OBJECTIVES

    #: Whether the head has an exact training step, too.
    can_train_on_all = True

    def __init__(
        self,
        num_classes: int,
        sampler: str | Sampler | None = None,
        num_sampled: int | None = None,
        sample_rate: float = 1.0,
        correct_fill: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(num_classes, **kwargs)
        if self.tie is not None:
            raise ValueError(
                "`tied_to` must be None for a ShardedSoftmax. Received: "
                f"tied_to={self.tie.name!r}"
            )
        num_sampled = check_optional_int("num_sampled", num_sampled)
        if sampler is not None:
            self.sampler = by_name.get(
                sampler, num_sampled, self.seed, num_classes
            )
            num_sampled = self.sampler.num_sampled
        self.sample_rate = sample_rate
        self.num_sampled = num_sampled
        self.correct_fill = correct_fill
        self._check_sampling()
        self.random = keras.random.SeedGenerator(self.seed)

    def _check_sampling(self):
        """Refuses sums over all classes that a sample does not estimate."""
        rate, sampler = self.sample_rate, self.sampler
        check_fraction("sample_rate", rate)
        if self.num_sampled is not None and rate != 1:
            raise ValueError(
                "Give one of `num_sampled`, `sample_rate` and a `sampler` "
                f"with its own `num_sampled`. Received: sampler={sampler!r}, "
                f"num_sampled={self.num_sampled}, sample_rate={rate}."
            )
        if not self.is_sampled:
            return
        is_estimate = self.correct_fill and (
            sampler is None or sampler.estimates_sums
        )
        if self.objective.is_sum and not is_estimate:
            raise ValueError(
                f'`loss="{self.objective.name}"` of a sample is a sum over all '
                "classes and needs `correct_fill=True`, of the sampler, too. "
                f"Received: correct_fill={self.correct_fill} with "
                f"sampler={sampler!r}"
            )
        if self.options.label_smoothing and not self.objective.is_sum:
            raise ValueError(
                "`label_smoothing` of a ShardedSoftmax needs all classes. Fix: "
                "leave out `sampler`, `num_sampled` and `sample_rate`, or use "
                "a SampledSoftmax. Received: label_smoothing="
                f"{self.options.label_smoothing}"
            )

    @property
    def is_sampled(self) -> bool:
        has_sample = self.sampler is not None or self._rate < 1
        return has_sample and not self.trains_on_all

    @property
    def _rate(self):
        if self.num_sampled is None:
            return self.sample_rate
        return min(self.num_sampled / self.num_classes, 1.0)

    @property
    def measured(self) -> dict[str, Any]:
        return {} if self.sampler is None else self._samplers.measured

    def build(self, input_shape: Shape) -> None:
        self.shards = shards_lib.make_shards(self.num_classes)
        super().build(input_shape)
        if self.sampler is not None:
            self._samplers = ShardSamplers(self.sampler, self)

    def weight_specs(self, dim: int) -> list[WeightSpec]:
        # A shard draws its own rows alone.
        return [
            spec._replace(initializer=InBlocks(spec.initializer))
            for spec in super().weight_specs(dim)
        ]

    def device_specs(self, dim: int) -> list[WeightSpec]:
        capacity = shards_lib.make_shards(self.num_classes).capacity
        return [
            spec._replace(shape=(capacity, *spec.shape[1:]))
            for spec in self.weight_specs(dim)
        ]

    def exchange(self, features: tf.Tensor) -> ReplicaGroup:
        return shards_lib.batch_of(self.shards, features)

    def export_weights(self) -> Any:
        return [self.class_matrix.servable()]

    def all_logits(self, features: tf.Tensor, weights: Any = None) -> tf.Tensor:
        if weights is None and self.exchange(features).needs_collectives:
            return tf.fill([tf.shape(features)[0], self.num_classes], math.nan)
        return super().all_logits(features, weights)

    def training_step(self, features: tf.Tensor, targets: Targets) -> Step:
        exchange = self.exchange(features)
        self._check_can_train(exchange)
        exchange.check_equal_parts()
        if not self.is_sampled:
            return super().training_step(features, targets)
        negatives = targets.negatives
        targets, finish = self.objective.weighted_targets(self, targets)
        targets = targets._replace(negatives=negatives).map(exchange.gather)
        queries = self.queries(features)
        sampled = [
            self._sampled(number, rows, queries, exchange, targets)
            for number, rows in self.class_matrix.rows_by_shard().items()
        ]
        parts, columns, ids = map(list, zip(*sampled))
        losses = self.streamed_loss(parts, targets, exchange, columns, ids)
        return Step(finish(losses))

    def _check_can_train(self, exchange):
        if self.shards.count == 1 or not self.shards.is_of_replicas:
            return
        if exchange.shard is None:
            raise ValueError(
                f"{self.name!r} has its classes on {self.shards.count} "
                "replicas and trains in all of them together. Received: "
                "`training=True` outside of `strategy.run`."
            )
        if self.class_matrix.optimizer is None:
            raise ValueError(
                "`optimizer` must be one of tfxclass.optimizers, e.g. "
                "HeadAdam, and built before the training step is traced (fit "
                "does, else call optimizer.build(model.trainable_variables)): "
                "others would add up the gradients of different classes. "
                f"Received: none of them for {self.kernel.path!r}, which is "
                f"in {self.shards.count} shards."
            )

    def _sampled(self, number, rows, queries, exchange, targets):
        """The part that a shard computes, its rows of the targets, and the
        classes of its rows."""
        local = rows.local_ids(with_negatives(targets))
        if self.sampler is None:
            # Partial FC: labels, and others chosen uniformly.
            sample = active_classes(
                local,
                num_sampled=self._share(rows.num_classes),
                num_classes=rows.num_classes,
                # The replicas count their steps alike.
                seed=self.next_seed() + [0, number << 32],
            )
        else:
            everyone = exchange.gather(tf.stop_gradient(queries))
            sample = self._samplers.sample(exchange, everyone, local, number)
        kernel, bias = rows.gather(sample.ids)
        counts = sample.log_expected_count
        counts = counts if self.correct_fill else tf.zeros_like(counts)
        # A sampler may choose padding.
        counts = tf.where(sample.ids < rows.num_classes, counts, math.inf)
        part = ClassRows(kernel, bias, log_counts=counts)
        columns = sample.positions[:, self.num_negatives :]
        return (queries, part), columns, sample.ids + rows.first

    def _share(self, size):
        """Classes of `size` in a training step, int."""
        return max(math.ceil(self._rate * size), 1)

    def step_rows(self, batch: int) -> int | None:
        shards = shards_lib.make_shards(self.num_classes)
        if self.sampler is not None:
            return -(-self.sampler.size_for(batch) // shards.count)
        return self._share(shards.capacity) if self.is_sampled else None

    def save_own_variables(self, store: Store) -> None:
        # Rows are in the order of all classes, whatever the shards are.
        sharded_rows.save(self.class_matrix.variables, store)
        saved_random.save(self.random, store)
        if self.sampler is None:
            return
        # With several workers, none knows all indexes.
        if len(self.shards.components(self.kernel)) == self.shards.count:
            store["sampler_shards"] = np.array(self.shards.count)
            for name, value in self._samplers.state().items():
                store[_SAMPLER + name] = value

    def load_own_variables(self, store: Store) -> None:
        with head_weights.loading_into(self):
            saved_random.load(self.random, store)
            sharded_rows.load(self.class_matrix.variables, store)
        names = [x for x in store.keys() if x.startswith(_SAMPLER)]
        # Samplers of another number of shards are of other classes: the
        # indexes are built again, from the rows.
        if names and int(store["sampler_shards"][()]) == self.shards.count:
            self._samplers.set_state(
                {x.removeprefix(_SAMPLER): store[x] for x in names}
            )

    def get_config(self) -> Config:
        num_sampled = self.num_sampled
        if self.sampler is not None:
            num_sampled = self.sampler.get_config()["num_sampled"]
        return {
            **super().get_config(),
            "sample_rate": self.sample_rate,
            "sampler": keras.saving.serialize_keras_object(self.sampler),
            "num_sampled": num_sampled,
            "correct_fill": self.correct_fill,
        }
