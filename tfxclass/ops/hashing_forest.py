"""The hashing forest: built, kept fresh and queried by compiled ops."""

from typing import Any

import tensorflow as tf

from tfxclass.ops.index import RefreshingIndex
from tfxclass.ops.placement import handle_of
from tfxclass.types import Scalar
from tfxclass.types import Variable

tf.no_gradient("Tfxclass>ForestQuery")


class HashingForest(RefreshingIndex):
    """A forest of random partitions of the rows of a class matrix.

    Each tree splits the rows (by direction) with the max-margin hyperplane of
    two random rows, recursively, into cells of at most `leaf_size` rows. The
    rows' directions are rounded to 8 bits a number.

    References:
        Zhang et al., Accelerated Training for Massive Classification via
        Dynamic Class Selection, AAAI 2018.
    """

    prefix = "forest"
    has_gpu_ops = True

    def build(
        self,
        kernel: Variable,
        num_trees: Scalar = 50,
        leaf_size: Scalar = 100,
        seed: Scalar = 0,
        sketch: int = 0,
    ) -> Any:
        """Builds from the rows as they are, now.

        Args:
            kernel: float32 variable `[num_classes, dim]`, or bfloat16 on a
                CPU.
            num_trees: int.
            leaf_size: int, most rows of a cell.
            seed: int. Same seed and rows, same forest.
            sketch: int, trees split random projections of the rows on so
                many vectors; 0, or as many as `dim`, the rows themselves.
                Not on GPUs.

        Raises:
            InvalidArgumentError: rows that are not finite.
        """
        return self.op("build")(
            self.handle,
            handle_of(kernel),
            num_trees,
            leaf_size,
            seed,
            sketch=sketch,
        )

    def advance(
        self,
        kernel: Variable,
        step: Scalar,
        interval: Scalar,
        num_trees: Scalar,
        leaf_size: Scalar,
        seed: Scalar,
        lag: Scalar | None = None,
        drifted: bool | tf.Tensor = False,
        sketch: int = 0,
    ) -> Any:
        """Refreshes in the background as is due at `step`.

        The first call builds a forest. Every `interval` steps, or where
        `drifted` and none is under way, a new one is begun; its trees take the
        old ones' places one by one, i of n trees i lag / n steps after the
        begin (on a GPU all of them at the end). Arguments are int64 scalars;
        `lag` is `interval` by default, and at most that.
        """
        return self.op("advance")(
            self.handle,
            handle_of(kernel),
            step,
            interval,
            interval if lag is None else lag,
            drifted,
            num_trees,
            leaf_size,
            seed,
            sketch=sketch,
        )

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

        Args:
            kernel: variable `[num_classes, dim]`, of `build`.
            queries: float32 `[batch, dim]`.
            num_neighbors: int Q. Each tree gives the rows of the last node
                with at least Q of them.
            bucket: int, that least number of rows, if it is not Q.
            num_candidates: int, most rows that are scored, those that most
                trees agree on; 0 scores all.
            normalize: scores are over the norm of the row.

        Returns:
            `(ids, scores)`: int64 and float32 `[batch, Q]`, best first,
            scored by the rows as they are now; ids are -1 past what was
            found, everywhere before the first forest is ready.
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
