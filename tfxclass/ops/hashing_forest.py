"""The hashing forest: built, kept fresh and queried by compiled ops."""

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

    `build` and `advance` take `num_trees`, `leaf_size` and `seed`, ints. With
    `sketch`, an int > 0, trees split random projections of the rows on so many
    vectors; not on GPUs. On a CPU i of n new trees take the old ones' places
    i lag / n steps after the begin.

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

        Args:
            kernel: variable `[num_classes, dim]`, of `build`.
            queries: float32 `[batch, dim]`.
            num_neighbors: int Q. Each tree gives the rows of the last node
                with at least Q of them, or at least `bucket` if that is not 0.
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
