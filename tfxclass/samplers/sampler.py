"""The contract of a sampler: which classes a training step computes."""

from typing import Any
from typing import NamedTuple

import keras
import tensorflow as tf

from tfxclass.checks import check_positive_int
from tfxclass.growth.change import Change
from tfxclass.ops.active_classes import ActiveClasses
from tfxclass.ops.active_classes import active_classes
from tfxclass.saved_random import SavedRandom
from tfxclass.types import Config
from tfxclass.types import Scalar
from tfxclass.types import Variable


class Sample(NamedTuple):
    """Classes of a step.

    Attributes:
        ids: int64 `[num_sampled]`, distinct, all targets among them.
        log_expected_count: float32 `[num_sampled]`, or `[batch,
            num_sampled]`; the loss subtracts it from the logits.
        positions: int64, shape of the targets' ids: columns of the targets,
            -1 for padding.
        target_log_expected_count: float32, shape of the targets' ids: log of
            the expected count of each target, were it none of its row's; what
            noise contrastive estimation subtracts. None counts as 0, as if
            the sampler always found the class.
        mask: bool `[batch, num_sampled]`, which classes count for a row, its
            targets among them; None is all.
    """

    ids: Any
    log_expected_count: Any
    positions: Any
    target_log_expected_count: Any = None
    mask: Any = None

    @property
    def inverse_counts(self) -> tf.Tensor:
        """1 / expected count of each class; 0 for those the mask leaves out.

        float32, `[num_sampled]` or `[batch, num_sampled]`: with these weights
        a sum over the sample is an estimate of that over all classes.
        """
        inverse = tf.exp(-self.log_expected_count)
        return (
            inverse if self.mask is None else tf.where(self.mask, inverse, 0.0)
        )

    def of_labels(self, num_negatives: int) -> "Sample":
        """Without the columns of negatives in what is of targets."""
        if not num_negatives:
            return self
        log_count = self.target_log_expected_count
        return self._replace(
            positions=self.positions[:, num_negatives:],
            target_log_expected_count=None
            if log_count is None
            else log_count[:, num_negatives:],
        )


class Sampler(SavedRandom, keras.layers.Layer):
    """Chooses the classes that a training step computes.

    A head builds its sampler, so a sampler belongs to one head. State that it
    keeps is saved with the model.

    Args:
        num_sampled: int, number of classes a step, targets included.
        seed: int.
    """

    #: Whether `sample` returns exactly what its definition says, rather than
    #: what an approximate index finds.
    is_exact = True

    #: Whether sums over a sample, weighted by its `inverse_counts`, estimate
    #: those over all classes.
    estimates_sums = True

    #: Whether it reads every row, which must be up to date then.
    reads_all_rows = False

    #: Whether its compiled ops run on GPUs.
    has_gpu_ops = True

    #: Whether they read rows in bfloat16 there, too.
    has_gpu_half_ops = True

    #: Whether each of several replicas may `sample` by itself: it keeps
    #: nothing but its random state, and needs no `update`.
    draws_alone = False

    def __init__(
        self, num_sampled: int, seed: int | None = None, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        num_sampled = check_positive_int("num_sampled", num_sampled)
        self.num_sampled = num_sampled
        self.seed = seed
        self.head_name = None
        #: Of the head.
        self.num_negatives = 0
        #: What `sample` measures of itself: float32 weights by name.
        self.measured = {}
        self.make_random(seed)

    def build_for(self, head: keras.layers.Layer) -> None:
        """Prepares for the class matrix of `head`, which has been built."""
        if self.head_name not in (None, head.name):
            raise ValueError(
                "A sampler belongs to one head. Received: the sampler of "
                f"{self.head_name!r} for {head.name!r}."
            )
        self.check_for(head.num_classes)
        is_new = self.head_name is None
        self.head_name = head.name
        self.num_classes = head.num_classes
        self.similarity = head.similarity
        self.num_negatives = head.num_negatives
        if self.num_sampled > self.num_classes:
            self.num_sampled = self.num_classes
        if is_new:
            self.build((head.num_classes, head.kernel.shape[1]))

    def get_build_config(self) -> None:
        """None: a loaded head builds its sampler, beside its rows."""

    def build_from_config(self, config: Config) -> None:
        """Does nothing, for files that have one: see `get_build_config`."""

    def check_for(self, num_classes: int) -> None:
        """Raises ValueError unless this can sample so many classes."""

    def for_rows(
        self, first: int, num_rows: int, num_sampled: int, seed: int | None
    ) -> "Sampler":
        """A copy that samples some rows of the class matrix: a shard.

        Args:
            first: int, the class of the first row.
            num_rows: int; rows behind the last class are padding.
            num_sampled: int, of the copy.
            seed: int, of the copy.

        Raises:
            ValueError: what a subclass cannot cut.
        """
        config = {"num_sampled": num_sampled, "seed": seed}
        return type(self).from_config({**self.get_config(), **config})

    def changed_config(self, change: Change) -> Config:
        """The configuration of this sampler for a head after `change`."""
        return self.get_config()

    @property
    def lasting_weights(self) -> list[keras.Variable]:
        """The weights that stay as they are when classes come and go."""
        return self.weights

    def weight(self, name: str, value: float) -> keras.Variable:
        """A float32 weight that is not trained."""
        return self.add_weight(
            name=name,
            shape=(),
            dtype="float32",
            trainable=False,
            initializer=keras.initializers.Constant(value),
        )

    def gauge(self, name: str, value: float = 0.0) -> keras.Variable:
        """A weight in `measured`, for `metrics.SamplerState`."""
        self.measured[name] = self.weight(name, value)
        return self.measured[name]

    def note_places(self, used: tf.Tensor) -> None:
        """Told which part of the places for candidates is used, float32."""

    def figures(self) -> dict[str, float]:
        """What it measures of itself, as it is now, by name."""
        return {name: float(value) for name, value in self.measured.items()}

    def sample(
        self, queries: tf.Tensor, target_ids: tf.Tensor, kernel: Variable
    ) -> Sample:
        """Classes for a batch.

        Args:
            queries: float32 `[batch, dim]`, logits are `queries . rows`.
            target_ids: int64 `[batch, p]`, -1 is padding. The first
                `num_negatives` columns are no labels, but negatives that were
                given.
            kernel: the class matrix, a Keras variable.

        Returns:
            A `Sample`.

        Raises:
            InvalidArgumentError: more distinct targets than `num_sampled`.
        """
        raise NotImplementedError

    def update(self, kernel: Variable, touched_ids: tf.Tensor) -> None:
        """Keeps the index current; called each step after `sample`."""

    def rows_moved(self, ids: tf.Tensor) -> None:
        """Told of rows, int64 `[n]`, that moved without being sampled."""

    def next_seed(self) -> tf.Tensor:
        seed = super().next_seed()
        context = tf.distribute.get_replica_context()
        if context is None or context.num_replicas_in_sync == 1:
            return seed
        # Replicas that draw by themselves draw other classes; the low bits
        # count the steps.
        number = tf.cast(context.replica_id_in_sync_group, tf.int64)
        return seed + tf.stack([tf.zeros_like(number), number * 2**32])

    def index_bytes(self, num_classes: int, dim: int) -> int:
        """Bytes of the index for `[num_classes, dim]` rows, refresh included.

        An index that is refreshed in the background is there twice while the
        next one is built, beside a copy of the rows.
        """
        return 0

    def choose(
        self,
        target_ids: tf.Tensor,
        num_sampled: Scalar | None = None,
        **options: Any,
    ) -> ActiveClasses:
        """`active_classes` for this sampler's sizes."""
        return active_classes(
            target_ids,
            num_sampled=self.num_sampled
            if num_sampled is None
            else num_sampled,
            num_classes=self.num_classes,
            seed=self.next_seed(),
            **options,
        )

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "num_sampled": self.num_sampled,
            "seed": self.seed,
        }
