"""Heads with a class matrix for each block of classes."""

import itertools
from collections.abc import Iterable
from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from tfxclass.checks import as_list
from tfxclass.checks import as_positive_ints
from tfxclass.checks import check_nonnegative
from tfxclass.checks import check_positive_int
from tfxclass.checks import check_value
from tfxclass.core.class_update import ClassUpdate
from tfxclass.core.forward import Step
from tfxclass.core.targets import Targets
from tfxclass.layers.head_config import offset_specs
from tfxclass.layers.head_weights import WeightSpec
from tfxclass.layers.head_weights import random_projection
from tfxclass.layers.output_head import OutputHead
from tfxclass.rows.class_matrix import ClassRows
from tfxclass.types import Config


class BlockHead(OutputHead):
    """Base class of heads with a matrix of its own width for each block.

    A subclass calls `kernel_specs` in `weight_specs`, and defines
    `part_queries`.
    """

    def kernel_specs(
        self, sizes: Sequence[int], widths: Sequence[int]
    ) -> list[WeightSpec]:
        """Matrices `[sizes[i], widths[i]]`, and offsets for removed classes."""
        starts = [0, *itertools.accumulate(sizes)]
        kernels = [
            WeightSpec(
                f"kernel_{i}",
                shape,
                self.kernel_initializer,
                self.kernel_dtype,
                bias=f"offsets_{i}",
                first=starts[i],
                part=i,
            )
            for i, shape in enumerate(zip(sizes, widths, strict=True))
        ]
        return kernels + offset_specs(self.removed, kernels)

    @property
    def kernels(self) -> list[keras.Variable]:
        """The class vectors of each block."""
        return [matrix.kernel for matrix in self.class_matrices.values()]

    def class_rows(self) -> list[ClassRows]:
        found, first = [], 0
        for matrix in self.class_matrices.values():
            rows, size = matrix.rows, matrix.kernel.shape[0]
            found.append(rows._replace(first=first, size=size, device=None))
            first += size
        return found


@keras.saving.register_keras_serializable("tfxclass")
class DifferentiatedSoftmax(BlockHead):
    """Exact softmax with longer class vectors for frequent classes (D-Softmax).

    Use it as a baseline that saves arithmetic and memory without sampling. The
    features are cut into slices, one for each block of classes. The logits of a
    block are products with its slice alone. Each training step computes four
    matrix products of [batch, width] by [width, size] for each block, and
    updates all `sum(size * width)` weights.

    Args:
        blocks: list of `(size, width)`, ints: the number of classes in each
            block, and the number of features that the block reads. The sizes
            sum to `num_classes`, and the widths to the number of features.
            Classes are numbered block by block, frequent classes first.
            `split_by_frequency` finds good sizes.
        **kwargs: other arguments of `OutputHead`, without `loss`.

    Example:

    ```python
    head = tfxclass.layers.DifferentiatedSoftmax(
        100_000, blocks=[(2_000, 128), (18_000, 64), (80_000, 32)]
    )
    model = keras.Sequential([keras.layers.Dense(224), head])
    model.compile("adam", loss=head.loss)
    ```

    References:
        Chen, Grangier & Auli, Strategies for Training Large Vocabulary Neural
        Language Models, ACL 2016.
    """

    def __init__(
        self, num_classes: int, blocks: Iterable[Sequence[int]], **kwargs: Any
    ) -> None:
        num_classes = check_positive_int("num_classes", num_classes)
        blocks = _check_blocks(blocks, num_classes)
        super().__init__(num_classes, **kwargs)
        self.blocks = blocks

    def weight_specs(self, dim: int) -> list[WeightSpec]:
        sizes, widths = map(list, zip(*self.blocks))
        if sum(widths) != dim:
            raise ValueError(
                "The widths of `blocks` must sum up to the number of features. "
                f"Received: widths {widths} = {sum(widths)} with {dim} "
                "features."
            )
        return self.kernel_specs(sizes, widths)

    def part_queries(self, features: tf.Tensor) -> list[tf.Tensor]:
        return tf.split(features, [width for _, width in self.blocks], axis=1)

    def changed_config(self, change: ClassUpdate) -> Config:
        # New classes are rare: they go to the last block.
        *others, (size, width) = self.blocks
        size += change.num_classes - self.num_classes
        config = super().changed_config(change)
        return {**config, "blocks": [*others, (size, width)]}

    def get_config(self) -> Config:
        return {**super().get_config(), "blocks": self.blocks}


def _check_blocks(blocks, num_classes):
    blocks = [
        tuple(as_positive_ints("blocks", block))
        for block in as_list("blocks", blocks, "(size, width)")
    ]
    are_pairs = bool(blocks) and all(len(block) == 2 for block in blocks)
    wanted = "a list of (size, width), one at least"
    check_value("blocks", blocks, are_pairs, wanted)
    total = sum(size for size, _ in blocks)
    if total != num_classes:
        raise ValueError(
            "The sizes of `blocks` must sum up to `num_classes`. Received: "
            f"blocks={blocks}, {total} classes, with "
            f"num_classes={num_classes}."
        )
    return blocks


@keras.saving.register_keras_serializable("tfxclass")
class AdaptiveProjectedSoftmax(BlockHead):
    """Exact softmax over random projections, wider for frequent classes (RP-A).

    Use it to compress the class matrix when a few classes are much more
    frequent than the others. Classes are numbered by falling frequency and lie
    in groups. The class vectors of group i have `projection_dims[i]` numbers.
    The features are projected once, by one random matrix. A group of width m
    reads the first m columns of the result, divided by sqrt(m).

    Each training step computes four matrix products of [batch, m] by [m, size]
    for each group, and updates all class vectors. Afterwards,
    `tfxclass.recovery.recover` gives the class matrix in full width.

    Args:
        group_sizes: list of ints >= 1, number of classes in each group.
            `split_by_frequency(counts, 4)` makes groups with about equal
            numbers of occurrences.
        projection_dims: list of ints, width of the class vectors of each group.
        l2: float >= 0. `l2 / 2` times the sum of all squared weights is added
            to the training loss.
        **kwargs: other arguments of `OutputHead`, without `loss`.

    Example:

    ```python
    head = tfxclass.layers.AdaptiveProjectedSoftmax(
        10_000, group_sizes=[1_000, 9_000], projection_dims=[64, 16]
    )
    ```

    References:
        Yuan et al., Accelerating Deep Learning with Millions of Classes, ECCV
        2020 ("RP-A").
    """

    def __init__(
        self,
        num_classes: int,
        group_sizes: Sequence[int],
        projection_dims: Sequence[int] = (100, 70, 40, 10),
        l2: float = 0.0,
        **kwargs: Any,
    ) -> None:
        num_classes = check_positive_int("num_classes", num_classes)
        projection_dims = as_positive_ints("projection_dims", projection_dims)
        check_nonnegative("l2", l2)
        group_sizes = as_positive_ints("group_sizes", group_sizes)
        total, groups = sum(group_sizes), len(group_sizes)
        if groups != len(projection_dims) or total != num_classes:
            raise ValueError(
                "`group_sizes` must have a size for each of `projection_dims` "
                f"and sum up to `num_classes`. Received: {group_sizes}, "
                f"{total} classes in {groups} groups, with "
                f"{len(projection_dims)} projection_dims and "
                f"num_classes={num_classes}."
            )
        super().__init__(num_classes, **kwargs)
        self.group_sizes = group_sizes
        self.projection_dims = projection_dims
        self.l2 = l2

    def weight_specs(self, dim: int) -> list[WeightSpec]:
        widest = max(self.projection_dims)
        return [
            *self.kernel_specs(self.group_sizes, self.projection_dims),
            random_projection(dim, widest, 1.0, self.seed),
        ]

    def part_queries(self, features: tf.Tensor) -> list[tf.Tensor]:
        projected = tf.matmul(features, tf.convert_to_tensor(self.projection))
        return [projected[:, :m] / m**0.5 for m in self.projection_dims]

    def query_weights(self) -> list[tf.Variable]:
        return [self.projection.value]

    def projected_rows(self) -> list[tuple[tf.Tensor, tf.Tensor]]:
        """Lists `(projection, rows)`: logits are `x . projection . rows`."""
        projection = tf.convert_to_tensor(self.projection)
        return [
            (projection[:, :m] / m**0.5, matrix.values())
            for m, matrix in zip(
                self.projection_dims, self.class_matrices.values()
            )
        ]

    def training_step(self, features: tf.Tensor, targets: Targets) -> Step:
        step = super().training_step(features, targets)
        if not self.l2:
            return step
        squares = [tf.nn.l2_loss(rows) for _, rows in self.projected_rows()]
        penalty = self.l2 * tf.add_n(squares)
        return step._replace(losses=step.losses + penalty)

    def changed_config(self, change: ClassUpdate) -> Config:
        # New classes are rare: they go to the last group.
        sizes = list(self.group_sizes)
        sizes[-1] += change.num_classes - self.num_classes
        return {**super().changed_config(change), "group_sizes": sizes}

    def get_config(self) -> Config:
        names = "group_sizes", "projection_dims", "l2"
        return super().get_config() | {x: getattr(self, x) for x in names}
