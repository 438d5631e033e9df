"""The contract of a sampler: which classes a training step computes."""

import inspect
from typing import Any
from typing import NamedTuple

import keras
import tensorflow as tf

from tfxclass import saved_random
from tfxclass.checks import check_optional_int
from tfxclass.checks import suggesting_arguments
from tfxclass.core.class_update import ClassUpdate
from tfxclass.ops.active_classes import ActiveClasses
from tfxclass.ops.active_classes import active_classes
from tfxclass.rows.class_matrix import ClassRows
from tfxclass.samplers.label_overflow import LabelOverflow
from tfxclass.types import Config
from tfxclass.types import Scalar
from tfxclass.types import Store
from tfxclass.types import Variable

#: Queries of a probe, and the part of the time of all steps that probes take.
NUM_PROBES = 16
PROBE_SHARE = 0.02
# What a probe takes in addition to its time for each class.
_PROBE_NANOSECONDS = 1e6
_MOST_STEPS = 5000
# Products of greater numbers are infinite.
_MAX_QUERY = 1e15


class Sample(NamedTuple):
    """The classes of a training step.

    Attributes:
        ids: int64 `[num_sampled]`, distinct, with all targets. There are more
            if the batch has more distinct labels.
        log_expected_count: float32 `[num_sampled]`, or `[batch, num_sampled]`,
            which the loss subtracts from the logits.
        positions: int64, shape of the target ids: their columns, or -1.
        target_log_expected_count: float32, in the shape of `positions`: log of
            the expected count of each target if it were not a target, for
            noise-contrastive estimation. None counts as 0.
        mask: bool `[batch, num_sampled]`, which classes count for an example,
            with its targets. None means all.
    """

    ids: Any
    log_expected_count: Any
    positions: Any
    target_log_expected_count: Any = None
    mask: Any = None

    @property
    def inverse_counts(self) -> tf.Tensor:
        """1 / expected count of each class, 0 for masked ones, float32.

        With these weights, a sum over the sample estimates that over all.
        """
        inverse = tf.exp(-self.log_expected_count)
        if self.mask is None:
            return inverse
        return tf.where(self.mask, inverse, 0.0)

    def without_negatives(self, num_negatives: int) -> "Sample":
        """A copy without the columns of hard negatives."""
        if not num_negatives:
            return self
        count = self.target_log_expected_count
        return self._replace(
            positions=self.positions[:, num_negatives:],
            target_log_expected_count=(
                None if count is None else count[:, num_negatives:]
            ),
        )


class Sampler(keras.layers.Layer):
    """Base class: chooses the classes that a training step computes.

    A head builds its sampler and saves its state, so it belongs to one head.

    Args:
        num_sampled: int, number of classes in a training step, labels included.
            A batch with more distinct labels computes all of its labels.
            Defaults to 1 % of the classes, and at least twice the labels of
            each batch: then the attribute `follows_batch` is True.
        seed: int, seed of the sampling.
    """

    #: Whether sums over a sample, weighted by its `inverse_counts`, estimate
    #: those over all classes.
    estimates_sums = True

    #: Whether its compiled ops run on GPUs, and read rows in bfloat16 there.
    has_gpu_ops = has_gpu_half_ops = True

    #: Whether each of several replicas may `sample` by itself: it keeps
    #: nothing but its random state, and needs no `update`.
    is_stateless = False

    #: Whether `sample` reads class vectors, or an index of them.
    reads_class_vectors = True

    def __init__(
        self,
        num_sampled: int | None = None,
        seed: int | None = None,
        **kwargs: Any,
    ) -> None:
        with suggesting_arguments(type(self), kwargs):
            super().__init__(**kwargs)
        try:
            self.num_sampled: Any = check_optional_int(
                "num_sampled", num_sampled
            )
        except ValueError as error:
            raise ValueError(
                f"{error}. Use None, which computes 1 % of the classes and at "
                "least twice the labels of a batch, or an integer of more than "
                "the labels of a batch"
            ) from None
        self.follows_batch = num_sampled is None
        self.seed = seed
        self.head_name: str | None = None
        #: How many hard negatives come with the labels of the head.
        self.num_negatives = 0
        #: What `sample` measures of itself: float32 weights by name.
        self.measured: dict[str, Variable] = {}
        self.overflow: Any = None
        #: Shards that have a sampler like this one, with as many classes.
        self.num_shards = 1
        #: Whether logits are cosines, as the head says.
        self.normalize = False
        self.random = keras.random.SeedGenerator(seed)

    def build_for(
        self, head_name: str, rows: ClassRows, num_negatives: int = 0
    ) -> None:
        """Prepares for the `ClassRows` of a head, or of a shard of it."""
        if self.head_name not in (None, head_name):
            raise ValueError(
                "A sampler belongs to one head. Received: the sampler of "
                f"{self.head_name!r} for {head_name!r}."
            )
        num_classes, dim = rows.kernel.shape
        self.check_for(num_classes)
        self.normalize = rows.normalize
        self.num_negatives = num_negatives
        self.resolve_size(num_classes)
        if self.head_name is None:
            self.head_name = head_name
            self.overflow = LabelOverflow()
            self.build((num_classes, dim))

    def resolve_size(self, num_classes: int) -> None:
        """Sets `num_sampled` for a number of classes, if it was not given."""
        if self.follows_batch:
            self.num_sampled = max(num_classes // 100, 1)
        self.num_classes = num_classes
        self.num_sampled = min(self.num_sampled, num_classes)

    def size_for(self, num_labels: Scalar) -> Scalar:
        """How many classes a step with `num_labels` computes, int or int64."""
        if not self.follows_batch:
            return self.num_sampled
        return clip(2 * num_labels, self.num_sampled, self.num_classes)

    def get_build_config(self) -> None:
        """Returns None, since a loaded head builds its sampler."""

    def build_from_config(self, config: Config) -> None:
        """Does nothing, since a loaded head builds its sampler."""

    def check_for(self, num_classes: int) -> None:
        """Raises ValueError unless it can sample from so many classes."""

    def for_rows(self, first: int, num_rows: int, **options: Any) -> "Sampler":
        """A copy for `num_rows` rows of a shard, from class `first` on.

        The last rows may be padding. `options` are `num_sampled` and `seed`.
        """
        return type(self).from_config({**self.get_config(), **options})

    def changed(self, change: ClassUpdate) -> "Sampler":
        """A sampler like this one, for a head after `change`, without index."""
        return type(self).from_config(self.get_config())

    @property
    def persistent_weights(self) -> list[keras.Variable]:
        """The weights that are kept when classes are added or removed."""
        return self.weights

    def build(self, kernel_shape: tuple[int, ...]) -> None:
        """Makes the weights, for a class matrix of this shape."""

    def add_state(
        self,
        name: str,
        value: float,
        shape: tuple[int, ...] = (),
        dtype: str = "float32",
    ) -> keras.Variable:
        """Makes a weight that is not trained, of `value` at first."""
        return self.add_weight(
            name=name,
            shape=shape,
            dtype=dtype,
            trainable=False,
            initializer=keras.initializers.Constant(value),
        )

    def gauge(self, name: str) -> keras.Variable:
        """Makes a weight in `measured`, for `callbacks.SamplerLog`."""
        self.measured[name] = self.add_state(name, 0.0)
        return self.measured[name]

    @property
    def gauges(self) -> dict[str, Variable]:
        """All measurements: `measured`, and the labels beyond the sample."""
        if self.overflow is None:
            return self.measured
        return {**self.measured, **self.overflow.gauges}

    def sample(
        self, queries: tf.Tensor, target_ids: tf.Tensor, kernel: Variable
    ) -> Sample:
        """Chooses the classes for a batch.

        Args:
            queries: float32 `[batch, dim]`, multiplied with class vectors.
            target_ids: int64 `[batch, p]`, padded with -1. The first
                `num_negatives` columns are hard negatives, the others labels.
            kernel: the class matrix, a Keras variable.

        Returns:
            A `Sample`.
        """
        raise NotImplementedError

    def update(self, kernel: Variable, touched_ids: tf.Tensor) -> None:
        """Takes note of a step; called after `sample`, in each of them."""

    def rows_moved(self, ids: tf.Tensor) -> None:
        """Receives classes, int64 `[n]`, that moved without being sampled."""

    def next_seed(self) -> tf.Tensor:
        """The seed of a choice, int64 `[2]`, another one each time."""
        seed = tf.cast(self.random.next(), tf.int64)
        context = tf.distribute.get_replica_context()
        if context is None or context.num_replicas_in_sync == 1:
            return seed
        # Replicas sample other classes. The low bits count the steps.
        number = tf.cast(context.replica_id_in_sync_group, tf.int64)
        return seed + tf.stack([tf.zeros_like(number), number * 2**32])

    def index_bytes(self, num_classes: int, dim: int) -> int:
        """Bytes of the index, and of what its refresh takes meanwhile."""
        return 0

    def choose(
        self,
        target_ids: tf.Tensor,
        num_sampled: Scalar | None = None,
        **options: Any,
    ) -> ActiveClasses:
        """Calls `active_classes` with this sampler's sizes; sets gauges."""
        if num_sampled is None:
            num_sampled = self.size_for(count_labels(target_ids))
        chosen = active_classes(
            target_ids,
            num_sampled=num_sampled,
            num_classes=self.num_classes,
            seed=self.next_seed(),
            **options,
        )
        if "fill_rate" in self.measured:
            self.measured["fill_rate"].assign(chosen.fill_rate)
        most_labels = target_ids.shape.num_elements() or self.num_classes
        most_labels = min(most_labels, self.num_classes)
        if not self.follows_batch and most_labels > self.num_sampled:
            sizes = chosen.num_targets, self.num_sampled
            self.overflow.note(*sizes, self.head_name, self.num_shards)
        return chosen

    @property
    def option_names(self) -> list[str]:
        """Arguments for `get_config`, each an attribute of the same name."""
        found = [
            p
            for base in type(self).__mro__
            if issubclass(base, Sampler)
            for p in inspect.signature(base.__init__).parameters.values()
            if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)
        ]
        return sorted({p.name for p in found} - {"self", "num_sampled", "seed"})

    def save_own_variables(self, store: Store) -> None:
        super().save_own_variables(store)
        saved_random.save(self.random, store)

    def load_own_variables(self, store: Store) -> None:
        super().load_own_variables(saved_random.load(self.random, store))

    def get_config(self) -> Config:
        return {
            **{name: getattr(self, name) for name in self.option_names},
            # What Keras takes, it returns in its own form.
            **super().get_config(),
            "num_sampled": None if self.follows_batch else self.num_sampled,
            "seed": self.seed,
        }


def finite(queries: tf.Tensor) -> tf.Tensor:
    """`queries` `[batch, dim]`, zeros in rows with NaN or infinity."""
    # One odd row must not end a training: nothing is near zeros.
    is_finite = tf.reduce_all(tf.math.is_finite(queries), 1, keepdims=True)
    queries = tf.where(is_finite, queries, 0.0)
    return tf.clip_by_value(queries, -_MAX_QUERY, _MAX_QUERY)


def clip(size: Scalar, least: int, most: int) -> Scalar:
    """`size` within these bounds, of the same type."""
    if isinstance(size, int):
        return min(max(size, least), most)
    return tf.clip_by_value(size, least, most)


def count_labels(target_ids: tf.Tensor) -> Scalar:
    """The labels of a batch `[batch, p]`, an int if the shape tells it."""
    # Padding of one label a row counts, too.
    if target_ids.shape[1] != 1:
        return tf.math.count_nonzero(target_ids >= 0)
    known = target_ids.shape[0]
    return tf.shape(target_ids, tf.int64)[0] if known is None else known


def step_nanoseconds(batch: Scalar, num_sampled: Scalar, dim: int) -> tf.Tensor:
    """Roughly what a training step takes, float64 scalar.

    It is a model, so that a run can be repeated: 240 products a nanosecond,
    three passes, six times that for the rest, and a constant (two cores).
    """
    sizes = tf.cast(batch, tf.float64), tf.cast(num_sampled, tf.float64)
    return 1.5e6 + 0.075 * (sizes[0] * sizes[1] * dim)


def part_of_steps(
    nanoseconds: float, share: float, step_time: tf.Tensor
) -> tf.Tensor:
    """The steps of which work that takes so long is a share, int64 scalar."""
    steps = tf.math.ceil(nanoseconds / (share * step_time))
    return tf.cast(tf.clip_by_value(steps, 1, _MOST_STEPS), tf.int64)


def probe_interval(
    nanoseconds_a_class: float, num_classes: int, step_time: tf.Tensor
) -> tf.Tensor:
    """The steps from one probe of all classes to the next, int64 scalar."""
    cost = num_classes * nanoseconds_a_class + _PROBE_NANOSECONDS
    return part_of_steps(cost, PROBE_SHARE, step_time)
