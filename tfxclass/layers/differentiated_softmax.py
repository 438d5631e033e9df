"""Differentiated softmax: rarer classes have narrower rows."""

import itertools
from collections.abc import Iterable
from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from tfxclass.checks import as_list
from tfxclass.checks import check_positive_int
from tfxclass.core.class_update import ClassUpdate
from tfxclass.layers.block_head import BlockHead
from tfxclass.layers.head_weights import WeightSpec
from tfxclass.types import Config


@keras.saving.register_keras_serializable("tfxclass")
class DifferentiatedSoftmax(BlockHead):
    """Exact softmax with longer class vectors for frequent classes (D-Softmax).

    Use it as a baseline that saves arithmetic and memory without sampling. The
    features are cut into slices, one for each block of classes. The logits of a
    block are products with its slice alone. Each training step computes four
    matrix products of [batch, width] by [width, size] for each block, and
    updates all class vectors. The head has `sum(size * width)` weights, and
    `FullSoftmax` has `num_classes * dim`.

    Args:
        num_classes: int, number of classes.
        blocks: list of `(size, width)`, ints: the number of classes in each
            block, and the number of features that the block reads. The sizes
            sum to `num_classes`, and the widths to the number of features.
            Classes are numbered block by block, frequent classes first.
            `split_by_frequency` finds good sizes.
        **kwargs: arguments of `OutputHead` (`loss_options`, `class_names`,
            `activation`, `kernel_initializer`, `kernel_dtype`, `seed`).

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

    @property
    def widths(self) -> list[int]:
        """Number of features that each block reads, a list of int."""
        return [width for _, width in self.blocks]

    def weight_specs(self, dim: int) -> list[WeightSpec]:
        if sum(self.widths) != dim:
            raise ValueError(
                "The widths of `blocks` must sum up to the number of features. "
                f"Received: widths {self.widths} = {sum(self.widths)} with "
                f"{dim} features."
            )
        return self.kernel_specs([size for size, _ in self.blocks], self.widths)

    def part_queries(self, features: tf.Tensor) -> list[tf.Tensor]:
        return tf.split(features, self.widths, axis=1)

    def changed_config(self, change: ClassUpdate) -> Config:
        # New classes are rare: they go to the last block.
        *others, (size, width) = self.blocks
        size += change.num_classes - self.num_classes
        config = super().changed_config(change)
        return {**config, "blocks": [*others, (size, width)]}

    def get_config(self) -> Config:
        return {**super().get_config(), "blocks": self.blocks}


def _check_blocks(blocks, num_classes):
    """`blocks` as a list of tuples of ints."""
    items = "(size, width)"
    blocks = [
        tuple(as_list("blocks", block, items))
        for block in as_list("blocks", blocks, items)
    ]
    if not blocks or any(len(block) != 2 for block in blocks):
        raise ValueError(
            "`blocks` must be a list of (size, width), one at least. "
            f"Received: {blocks}"
        )
    for number in itertools.chain(*blocks):
        check_positive_int("blocks", number)
    blocks = [(int(size), int(width)) for size, width in blocks]
    total = sum(size for size, _ in blocks)
    if total != num_classes:
        raise ValueError(
            "The sizes of `blocks` must sum up to `num_classes`. Received: "
            f"blocks={blocks}, {total} classes, with "
            f"num_classes={num_classes}."
        )
    return blocks
