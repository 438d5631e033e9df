"""Heads whose class rows lie in blocks of different width."""

import itertools

import keras
import tensorflow as tf

from tfxclass import optimizers
from tfxclass import stock_top_k
from tfxclass import streaming
from tfxclass.checks import check_k
from tfxclass.layers.output_head import OutputHead


class BlockHead(OutputHead):
    """Base class of the heads with a matrix of rows for each block of classes.

    Classes are numbered block by block, most often by falling frequency: the
    first ones get the widest rows. A subclass makes `kernels`, a list, in
    `build`, and overrides `block_queries`, `offsets` and the losses.

    Args:
        num_classes: int, number of classes.
        sizes: list of ints, classes of each block.
        kernel_initializer: initializer of all weights.
        **kwargs: `OutputHead`'s arguments.
    """

    def __init__(
        self,
        num_classes,
        sizes,
        kernel_initializer="glorot_uniform",
        **kwargs,
    ):
        super().__init__(num_classes, **kwargs)
        self.sizes = sizes
        self.starts = [0, *itertools.accumulate(sizes)][:-1]
        self.kernel_initializer = keras.initializers.get(kernel_initializer)

    def add_kernels(self, widths):
        """Makes `kernels`, `[sizes[i], widths[i]]`."""
        self.kernels = [
            self.add_rows(f"kernel_{i}", shape, self.kernel_initializer)
            for i, shape in enumerate(zip(self.sizes, widths))
        ]

    def weights_by_name(self):
        """Dict of lists of Keras variables; `kernels` among them."""
        return {"kernels": self.kernels}

    def tensors(self, settle=True):
        """`weights_by_name` as tensors, with `settle` all rows up to date."""
        if settle:
            for kernel in self.kernels:
                optimizers.catch_up(kernel)
        return _map(tf.convert_to_tensor, self.weights_by_name())

    def block_queries(self, queries, weights):
        """float32 `[batch, width_i]` for each block, from `[batch, dim]`."""
        raise NotImplementedError

    def offsets(self, queries, logsumexps, weights):
        """What is added to the logits of each block, float32 `[batch, 1]`.

        Args:
            queries: float32 `[batch, dim]`.
            logsumexps: list of float32 `[batch, 1]`, of the blocks' products.
            weights: dict as `tensors` gives.
        """
        return [tf.zeros_like(x) for x in logsumexps]

    def logits(self, features, settle=True):
        queries = self.queries(features)
        weights = self.tensors(settle)
        products = [
            tf.matmul(x, rows, transpose_b=True)
            for x, rows in self._blocks(queries, weights)
        ]
        sums = [tf.reduce_logsumexp(x, 1, keepdims=True) for x in products]
        offsets = self.offsets(queries, sums, weights)
        return tf.concat([x + y for x, y in zip(products, offsets)], axis=1)

    def _blocks(self, queries, weights):
        return zip(self.block_queries(queries, weights), weights["kernels"])

    def top_k(self, features, k):
        search = streaming.top_k_and_logsumexp
        return self._top_k(features, k, self.tensors(), search)

    def export_weights(self):
        """The variables that `export_top_k` reads, as `weights_by_name`."""
        return _map(lambda variable: variable.value, self.weights_by_name())

    def export_top_k(self, features, k, weights=None):
        weights = self.export_weights() if weights is None else weights
        weights = _map(tf.convert_to_tensor, weights)
        search = stock_top_k.top_k_and_logsumexp
        return self._top_k(features, k, weights, search)

    def _top_k(self, features, k, weights, search):
        check_k(k, self.num_classes)
        queries = self.queries(features)
        best = [
            search(x, rows, min(k, rows.shape[0]))
            for x, rows in self._blocks(queries, weights)
        ]
        ids, products, sums = zip(*best)
        offsets = self.offsets(queries, sums, weights)
        logits = tf.concat([x + y for x, y in zip(products, offsets)], axis=1)
        ids = tf.concat(
            [tf.where(x >= 0, x + y, x) for x, y in zip(ids, self.starts)],
            axis=1,
        )
        # Of equals top_k puts the first one first: the one of the lower id.
        scores, places = tf.math.top_k(logits, k)
        ids = tf.gather(ids, places, axis=1, batch_dims=1)
        if self.activation is None:
            return ids, scores
        totals = tf.concat([x + y for x, y in zip(sums, offsets)], axis=1)
        total = tf.reduce_logsumexp(totals, axis=1, keepdims=True)
        return ids, tf.exp(scores - total)

    def get_config(self):
        initializer = keras.initializers.serialize(self.kernel_initializer)
        return {**super().get_config(), "kernel_initializer": initializer}


def _map(function, weights):
    return {
        name: [function(x) for x in values] for name, values in weights.items()
    }
