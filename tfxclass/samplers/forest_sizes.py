"""How many trees a forest has, what it takes, and how long it is built."""

from tfxclass.samplers import remembered

# Trees, where the index has room for so many.
_NUM_TREES = 50
_LEAST_TREES = 8
# What an index takes at most by itself, its refresh included.
_MOST_BYTES = 2 * 10**9
# Projections that trees are of where whole directions would take more.
_SKETCH = 32
# Trees that are built before the ones in front of them are swapped in, and
# those that are built side by side by the first step.
_TREES_AHEAD = 2


class ForestSizes:
    """Mixin of `HashingForestSampler`, whose attributes it reads."""

    def build_nanoseconds(self, num_classes: int, dim: int) -> float:
        """What a forest takes on one core, roughly."""
        num_trees, sketch = self.trees_and_sketch(num_classes, dim)
        of_row = self.levels * (2 + (sketch or dim) / 20)
        return num_trees * num_classes * of_row

    def trees_and_sketch(self, num_classes: int, dim: int) -> tuple[int, int]:
        """`(num_trees, sketch)`, ints: chosen where they are not given.

        A forest that would take more than 2 GB has trees of `sketch`
        projections of the rows instead of the rows, 0 if not; and fewer trees,
        if their number was not given.
        """
        num_trees = self.num_trees or _NUM_TREES
        sizes = num_classes, dim
        if self._bytes_of(*sizes, num_trees, 0) <= _MOST_BYTES:
            return num_trees, 0
        sketch = _SKETCH if dim > _SKETCH and not self.is_on_gpu() else 0
        if self.num_trees is None:
            fixed, with_one = (
                self._bytes_of(*sizes, n, sketch) for n in (0, 1)
            )
            room = (_MOST_BYTES - fixed) // (with_one - fixed)
            num_trees = min(max(room, _LEAST_TREES), num_trees)
        return num_trees, sketch

    def _bytes_of(self, num_classes, dim, num_trees, sketch):
        # Cells come out half full; a node has 16 bytes, a plane 16-bit
        # numbers and 8 bytes.
        width = -(-(sketch or dim) // 16) * 16
        cells = 2 * num_classes // self.leaf_size + 1
        tree = 4 * num_classes + cells * (2 * 16 + 2 * width + 8)
        # While it is built: where each row is, beside the directions of all;
        # and while it is queried, a vote a class.
        built = _TREES_AHEAD * (tree + 4 * num_classes)
        fixed = num_classes * (width + 2)
        if self.share_of_queries() < 1:
            fixed += remembered.bytes_of(num_classes, dim)
        return num_trees * tree + built + fixed

    def index_bytes(self, num_classes: int, dim: int) -> int:
        if self.share_of_queries() == 0:
            return remembered.bytes_of(num_classes, dim)
        sizes = self.trees_and_sketch(num_classes, dim)
        return self._bytes_of(num_classes, dim, *sizes)
