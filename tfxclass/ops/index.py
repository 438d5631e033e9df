"""The indexes of class vectors: their base, a forest, and groups."""

import os
import uuid
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from tfxclass import keras_internals
from tfxclass.ops import library
from tfxclass.ops import placement
from tfxclass.ops.placement import handle_of
from tfxclass.types import Scalar
from tfxclass.types import Variable

for _name in ("ForestQuery", "ClusterMembers", "PcaHashMembers"):
    tf.no_gradient("Tfxclass>" + _name)

# The state of an index that was never used, in the order of the op.
_UNUSED: dict[str, np.ndarray] = {
    "ready": np.zeros(0, np.uint8),
    "pending": np.zeros(0, np.uint8),
    "steps": np.zeros(3, np.int64),
    "touched": np.zeros(0, np.int64),
}


def query_threads() -> int:
    """How many threads search an index at once, at most, in this process."""
    given = tf.config.threading.get_intra_op_parallelism_threads()
    given = given or int(os.environ.get("TF_NUM_INTRAOP_THREADS") or 0)
    if given > 0:
        return given
    has_affinity = hasattr(os, "sched_getaffinity")  # Linux
    return len(os.sched_getaffinity(0)) if has_affinity else os.cpu_count() or 1


class RefreshingIndex:
    """An index of the rows of a class matrix that follows their training.

    `options` are arguments of `build` and `advance`, if these get no others.
    """

    #: The names of its ops begin with it.
    prefix: str
    #: What `state` holds.
    state_names = tuple(_UNUSED)

    def __init__(self, **options: Any) -> None:
        #: Where it lies, if elsewhere than its user; set before the first use.
        self.device: str | None = None
        self.options = options
        self._handle = None

    @property
    def handle(self) -> tf.Tensor:
        """The resource, made at the first use."""
        if self._handle is None:
            with tf.init_scope(), placement.on(self.device):
                self._handle = self.op("handle")(
                    shared_name=f"{self.prefix}_{uuid.uuid4().hex}"
                )
            weakref.finalize(self, _destroy, self._handle)
        return self._handle

    def op(self, name: str) -> Callable[..., Any]:
        """The compiled op `name` of this kind of index."""
        return getattr(library.ops, f"tfxclass_{self.prefix}_{name}")

    def build(self, kernel: Variable, *inputs: Scalar, **sizes: Any) -> Any:
        """Builds from the rows as they are, now.

        The kernel is a float32 variable `[num_classes, dim]`, or on a CPU
        bfloat16 of a forest or hash tables. Same `seed` and rows, same index.
        `InvalidArgumentError` for rows that are not finite.
        """
        given = {**self.options, **sizes}
        rows = handle_of(kernel)
        return self.op("build")(self.handle, rows, *inputs, **given)

    def advance(
        self, kernel: Variable, step: Scalar, interval: Scalar, **sizes: Any
    ) -> Any:
        """Refreshes in the background as is due at `step`.

        The first call builds an index. Every `interval` steps, or where
        `drifted` and nothing is under way, a new one is begun. It takes the old
        one's place exactly `lag` steps later, at most `interval`.

        `step`, `interval` and `lag` are int64 scalars, and `drifted` is a bool.
        `RowGroups` take no `lag` and `drifted`.
        """
        given = {**self.options, **sizes, "step": step, "interval": interval}
        return self.op("advance")(self.handle, handle_of(kernel), **given)

    def mark(self, ids: tf.Tensor) -> Any:
        """Records rows that change, int64, for the next refresh.

        Without an index there is nothing to record: the first one reads all
        rows. `InvalidArgumentError` for ids that are no rows of the index.
        """
        return self.op("mark")(self.handle, ids)

    def state(self) -> dict[str, np.ndarray]:
        """All of the state as a dict of NumPy arrays, waiting for a build."""
        if self._handle is None:
            return dict(_UNUSED)
        saved = [x.numpy() for x in self.op("save")(self.handle)]
        saved[:2] = [np.frombuffer(x, np.uint8) for x in saved[:2]]
        return dict(zip(_UNUSED, saved, strict=True))

    def set_state(self, state: dict[str, np.ndarray]) -> None:
        """Restores `state`; InvalidArgumentError where it is no such index."""
        if self._handle is None and not any(map(np.any, state.values())):
            return
        values = [np.asarray(state[x], _UNUSED[x].dtype) for x in _UNUSED]
        ready, pending = (x.tobytes() for x in values[:2])
        self.op("restore")(self.handle, ready, pending, *values[2:])


class HashingForest(RefreshingIndex):
    """A forest of random partitions of the rows of a class matrix.

    Each tree splits the rows (by direction) with the max-margin hyperplane of
    two random rows, recursively, into cells of at most `leaf_size` rows. The
    rows' directions are rounded to 8 bits a number.

    Its options are `num_trees`, `leaf_size` and `seed`, ints. With `sketch`, an
    int > 0, trees split so many random projections of the rows; not on GPUs. On
    a CPU i of n new trees replace old ones i lag / n steps after the begin.

    Source: Zhang et al., Accelerated Training for Massive Classification via
    Dynamic Class Selection, AAAI 2018.
    """

    prefix = "forest"

    def query(
        self,
        kernel: Variable,
        queries: tf.Tensor,
        num_neighbors: Scalar,
        bucket: int = 0,
        num_candidates: Scalar = 0,
        normalize: bool = False,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """The classes with the greatest scores that the forest finds.

        Each tree gives the rows of the last node with at least `num_neighbors`
        of them, or at least `bucket` if that is not 0. At most `num_candidates`
        are scored, those that most trees agree on; 0 scores all. Scores are
        products of `queries` `[batch, dim]` with the rows as they are now, over
        their norms if `normalize`.

        Returns `(ids, scores)`, int64 and float32 `[batch, num_neighbors]`,
        best first. Ids are -1 past what was found, and without a forest.
        """
        return self.op("query")(
            self.handle,
            handle_of(kernel),
            queries,
            num_neighbors,
            bucket,
            num_candidates,
            normalize=normalize,
        )


class RowGroups(RefreshingIndex):
    """Each row of a class matrix is in one group; a subclass says which.

    Its options are `num_groups` (bits of `PCAHash`) and `seed`, ints, and
    `normalize`, whether logits are cosines. A refresh is begun where none is
    under way, and takes its place `interval` steps later.
    """

    def members(
        self, targets: tf.Tensor, limit: Scalar, seed: tf.Tensor
    ) -> tf.Tensor:
        """Classes in the groups that hold `targets`, these included.

        `targets` are int64 of any shape, -1 is padding. At most `limit` classes
        are drawn uniformly without replacement. Returns distinct int64 `[n]`,
        none before the first groups are ready.
        """
        return self.op("members")(self.handle, targets, limit, seed)


class PCAHash(RowGroups):
    """Rows by the signs of their projections on their principal axes."""

    prefix = "pca_hash"


class ClusterIndex(RowGroups):
    """Rows by their nearest centre of a spherical k-means."""

    prefix = "cluster"


def _destroy(handle):
    # The collector may run while any graph is being built, whose lock it
    # holds: the op must not become a node of that graph.
    with keras_internals.eager_mode():
        tf.raw_ops.DestroyResourceOp(resource=handle, ignore_lookup_error=True)
