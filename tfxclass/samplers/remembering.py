"""Samplers that search an index for some rows, and remember the others."""

from collections.abc import Callable

import keras
import tensorflow as tf

from tfxclass.ops import placement
from tfxclass.samplers.remembered import Remembered
from tfxclass.samplers.remembered import label_of
from tfxclass.samplers.remembered import width_of
from tfxclass.types import Variable


class Remembering:
    """Mixin of samplers with an `index` and a `query_share`.

    Neighbours are remembered on a CPU, by each process for itself: not where
    rows lie on parameter servers, and not in shards, most of whose labels are
    elsewhere (`query_share` of their samplers is 1).
    """

    #: The part of the rows that the index is asked for, unless it is given.
    usual_share = 0.0625
    query_share: float | None = None
    is_on_servers = False
    remembered: Remembered | None = None

    def check_share(self) -> None:
        """Raises ValueError where `query_share` is no share."""
        if self.query_share is not None and not 0 < self.query_share <= 1:
            raise ValueError(
                f"`query_share` must be in (0, 1]. Received: {self.query_share}"
            )

    def build_memory(self, kernel_shape: tuple[int, ...]) -> None:
        """Makes what is remembered, if anything is; `build` calls it."""
        self.is_on_servers = _is_on_servers()
        if self.share_of_queries() < 1:
            # Its ops are for CPUs and read rows, too: it lies where they do.
            with placement.on(self.index and self.index.device):
                self.remembered = Remembered(self, *kernel_shape)

    def share_of_queries(self) -> float:
        """The part of the rows that a step searches the index for.

        All on a GPU, which searches for all at once.
        """
        if self.is_on_servers or self.is_on_gpu() or not self.may_remember():
            return 1.0
        return self.query_share or self.usual_share

    def may_remember(self) -> bool:
        """Whether classes may be chosen by what was found before."""
        return self.query_share is not None or self.correct_fill

    def is_on_gpu(self) -> bool:
        return self.index is not None and "GPU" in (self.index.device or "")

    @property
    def lasting_weights(self) -> list[keras.Variable]:
        forgotten = self.remembered.weights if self.remembered else ()
        names = {each.path for each in forgotten}
        return [each for each in self.weights if each.path not in names]

    def search_some(
        self,
        queries: tf.Tensor,
        target_ids: tf.Tensor,
        kernel: Variable,
        wanted: tf.Tensor,
        find: Callable[[tf.Tensor], tf.Tensor],
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """`(ids, shares)` `[n, k]`, k >= `wanted`; see `Remembered.search`."""
        step = tf.convert_to_tensor(self.step)
        return self.remembered.search(
            queries,
            target_ids,
            label_of(target_ids[:, self.num_negatives :], step),
            kernel,
            step,
            self._num_asked(queries),
            find,
            tf.maximum(wanted, width_of(self.num_classes)),
            self.similarity == "cosine",
        )

    def _num_asked(self, queries):
        """For how many rows the index is searched, int64 scalar."""
        share = self.share_of_queries()
        if share == 0:
            return tf.zeros([], tf.int64)
        rows = tf.cast(tf.shape(queries)[0], tf.float32)
        return tf.cast(tf.math.ceil(share * rows), tf.int64)


def _is_on_servers():
    strategy = tf.distribute.get_strategy()
    return isinstance(strategy, tf.distribute.ParameterServerStrategy)
