"""Differentiated softmax: rarer classes have narrower rows."""

import itertools

import keras
import tensorflow as tf

from tfxclass.checks import check_positive_int
from tfxclass.layers.block_head import BlockHead
from tfxclass.losses.block_softmax import block_cross_entropy


@keras.saving.register_keras_serializable("tfxclass")
class DifferentiatedSoftmax(BlockHead):
    """Exact softmax whose rows are as wide as a class deserves: D-Softmax.

    The features are cut into slices, one for each block of classes, and the
    logits of a block are products with its slice alone. A baseline that saves
    arithmetic and memory rather than classes: a step costs four products of
    [batch, width] by [width, size] for each block and moves every row, `sum
    size * width` numbers where a `FullSoftmax` has `num_classes * dim`.

    Args:
        num_classes: int, number of classes.
        blocks: list of `(size, width)`, ints: how many classes a block has,
            and how many features it reads. Sizes sum up to `num_classes`,
            widths to the number of features. Classes are numbered block by
            block, so by falling frequency; `split_by_frequency` finds sizes.
        kernel_initializer: initializer of the rows.
        **kwargs: `OutputHead`'s arguments.

    Example:

    >>> head = tfxclass.layers.DifferentiatedSoftmax(
    ...     100_000, blocks=[(2_000, 128), (18_000, 64), (80_000, 32)]
    ... )
    >>> model = keras.Sequential([keras.layers.Dense(224), head])
    >>> model.compile("adam", loss=head.loss)

    References:
        Chen, Grangier & Auli, Strategies for Training Large Vocabulary Neural
        Language Models, ACL 2016.
    """

    def __init__(self, num_classes, blocks, **kwargs):
        check_positive_int("num_classes", num_classes)
        blocks = _check_blocks(blocks, num_classes)
        super().__init__(num_classes, [size for size, _ in blocks], **kwargs)
        self.blocks = blocks

    @property
    def widths(self):
        """Features that each block reads; list of ints."""
        return [width for _, width in self.blocks]

    def build(self, input_shape):
        self.check_features(input_shape)
        if sum(self.widths) != input_shape[-1]:
            raise ValueError(
                "The widths of `blocks` must sum up to the number of features. "
                f"Received: widths {self.widths} = {sum(self.widths)} with "
                f"{input_shape[-1]} features."
            )
        self.add_kernels(self.widths)

    def block_queries(self, queries, weights):
        return tf.split(queries, self.widths, axis=1)

    def compute_training_loss(self, queries, targets):
        return self.exact_loss(queries, targets)

    def exact_loss(self, queries, targets):
        weights = self.tensors()
        return block_cross_entropy(
            self.block_queries(queries, weights), weights["kernels"], targets
        )

    def get_config(self):
        return {**super().get_config(), "blocks": self.blocks}


def _check_blocks(blocks, num_classes):
    """`blocks` as a list of tuples of ints."""
    blocks = [tuple(block) for block in blocks]
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
