"""Recovery of the full class matrix from a projected one, by its dual."""

import os

import keras
import numpy as np
import tensorflow as tf

from tfxclass import streaming
from tfxclass.checks import check_choice
from tfxclass.checks import check_k
from tfxclass.layers.full_softmax import FullSoftmax
from tfxclass.layers.projected_softmax import ProjectedSoftmax
from tfxclass.losses import softmax
from tfxclass.losses.targets import as_targets
from tfxclass.ops import library
from tfxclass.ops import products
from tfxclass.top_k import encoder_of


class DualRecovery:
    """The sum over rows from which the full class matrix follows.

    The best class matrix of `sum of losses + l2 / 2 |W|^2` has a gradient of
    zero: `l2 W = (Y - P)^T X`, with features X `[n, dim]`, labels Y and
    probabilities P `[n, num_classes]`, the dual variables. P is taken from the
    projected model. For the mean of losses, which Keras minimises, the factor
    is `1 / (n l2)`; the paper prints it both ways.

    Sums of several workers add up: `merge`.

    Args:
        head: a built `ProjectedSoftmax`.
        top_k: int, keep only the k greatest probabilities of a row, exactly
            normalised, so that a row touches k classes; None keeps all.

    Attributes:
        kernel: float32 array `[num_classes, dim]`, `(Y - P)^T X` so far.
        num_rows: int, rows so far.
        num_batches: int.
    """

    def __init__(self, head, top_k=None):
        if top_k is not None:
            check_k(top_k, head.num_classes)
        self.head = head
        self.top_k = top_k
        dim = head.projection.shape[0]
        self.kernel = np.zeros((head.num_classes, dim), np.float32)
        self.num_rows = 0
        self.num_batches = 0

    def add(self, features, labels, sample_weight=None):
        """Adds a batch.

        Args:
            features: float `[batch, dim]`.
            labels: as in `fit`; a row without any adds nothing.
            sample_weight: float `[batch]` or None.
        """
        targets = as_targets(labels, self.head.num_classes)
        features = tf.cast(features, tf.float32)
        queries = self.head.queries(features)
        if sample_weight is not None:
            # A row's dual times its weight: the same as its features.
            weight = tf.cast(sample_weight, tf.float32)
            features *= tf.reshape(weight, [-1, 1])
        if self.top_k is None:
            self._add_all(features, queries, targets)
        else:
            self._add_top_k(features, queries, targets)
        self.num_rows += int(features.shape[0])
        self.num_batches += 1

    def merge(self, other):
        """Adds the sums of `other`, of the same head over other rows."""
        if other.kernel.shape != self.kernel.shape:
            raise ValueError(
                "`other` must be of the same head. Received: a sum of shape "
                f"{other.kernel.shape} for one of {self.kernel.shape}."
            )
        self.kernel += other.kernel
        self.num_rows += other.num_rows

    def result(self, l2, reduction="mean"):
        """The class matrix, float32 `[num_classes, dim]`.

        Args:
            l2: float > 0, weight of `|W|^2 / 2` in what was minimised.
            reduction: `"mean"` where the losses were averaged, or `"sum"`.

        Raises:
            ValueError: `l2` is not positive, or there were no rows.
        """
        check_choice("reduction", reduction, ("mean", "sum"))
        check_l2(l2)
        if not self.num_rows:
            raise ValueError("There were no rows to recover from.")
        count = self.num_rows if reduction == "mean" else 1
        return self.kernel * np.float32(1 / (count * l2))

    def save(self, path):
        """Writes the sums so far; the file appears whole or not at all."""
        unfinished = f"{path}.unfinished"
        with open(unfinished, "wb") as f:
            counts = np.array([self.num_rows, self.num_batches])
            np.savez(f, kernel=self.kernel, counts=counts)
        os.replace(unfinished, path)

    def load(self, path):
        """Reads what `save` wrote for a head of the same sizes."""
        with np.load(path) as stored:
            kernel = stored["kernel"]
            if kernel.shape != self.kernel.shape:
                raise ValueError(
                    f"{path} is of another head. Received: a sum of shape "
                    f"{kernel.shape} for one of {self.kernel.shape}."
                )
            self.kernel = kernel
            self.num_rows, self.num_batches = map(int, stored["counts"])

    def _bias(self):
        bias = self.head.bias
        return None if bias is None else tf.convert_to_tensor(bias)

    def _blocks(self, queries):
        head = self.head
        return softmax.Blocks(
            head.class_matrix(),
            self._bias(),
            False,
            tf.shape(queries)[0],
        )

    def _add_all(self, features, queries, targets):
        blocks = self._blocks(queries)
        logsumexp = _logsumexp(blocks, queries)
        at_targets = self._target_probabilities(queries, targets, logsumexp)
        size = int(blocks.size)
        for start in range(0, self.head.num_classes, size):
            duals = library.ops.tfxclass_softmax_block_grad(
                blocks.logits(queries, start, blocks.rows(start)),
                targets.ids,
                at_targets - targets.weights,
                start,
                logsumexp,
                targets.is_labelled,
            )
            rows = products.rows_grad(duals, features).numpy()
            self.kernel[start : start + size] -= rows

    def _target_probabilities(self, queries, targets, logsumexp):
        rows = self.head.rows(tf.maximum(targets.ids, 0))
        logits = tf.einsum("bd,bpd->bp", queries, rows)
        if self.head.bias is not None:
            logits += tf.gather(self._bias(), tf.maximum(targets.ids, 0))
        return tf.exp(logits - logsumexp[:, tf.newaxis])

    def _add_top_k(self, features, queries, targets):
        ids, probabilities = streaming.top_k(
            queries,
            self.head.class_matrix(),
            self.top_k,
            bias=self._bias(),
            probabilities=True,
        )
        labelled = targets.is_labelled[:, tf.newaxis]
        ids = tf.concat([ids, targets.ids], axis=1)
        duals = tf.concat([probabilities * labelled, -targets.weights], axis=1)
        self._add_sparse(features, ids.numpy(), duals.numpy())

    def _add_sparse(self, features, ids, duals):
        """Takes off `duals[b, j] * features[b]` at row `ids[b, j]`."""
        row, column = np.nonzero(ids >= 0)
        touched, place = np.unique(ids[row, column], return_inverse=True)
        order = np.lexsort((row, place))
        matrix = tf.SparseTensor(
            np.stack([place[order], row[order]], axis=1),
            duals[row, column][order],
            (len(touched), len(ids)),
        )
        rows = tf.sparse.sparse_dense_matmul(matrix, features)
        self.kernel[touched] -= rows.numpy()


def check_l2(l2):
    """Raises ValueError unless `l2` is a number > 0."""
    if not 0 < l2 < float("inf"):
        raise ValueError(
            "`l2` must be > 0: without the penalty the best class matrix does "
            "not follow from the probabilities (W = (Y - P)^T X / l2). "
            f"Received: {l2}"
        )


def _logsumexp(blocks, queries):
    nothing = tf.fill([tf.shape(queries)[0], 1], tf.constant(-1, tf.int64))

    def stats(start, top, total):
        return library.ops.tfxclass_softmax_block_stats(
            blocks.logits(queries, start, blocks.rows(start)),
            nothing,
            tf.zeros_like(nothing, tf.float32),
            start,
            top,
            total,
        )

    top, total = blocks.fold(stats, softmax.empty_stats(tf.shape(queries)[0]))
    return top + tf.math.log(total)


def recover(
    model,
    dataset,
    l2=None,
    reduction="mean",
    top_k=None,
    checkpoint=None,
    checkpoint_interval=100,
    verbose=1,
):
    """The model with its class matrix in full width, from one pass.

    A slim model, trained to the optimum of its loss with `l2`, has almost the
    probabilities P of the full one, and these give the full class matrix
    `W = (Y - P)^T X / (n l2)` (`DualRecovery`). Train the result further with
    `fit`: the paper's second stage.

    Memory: O(num_classes x dim + batch x block). A pass costs one product of
    `[batch, dim]` by `[dim, num_classes]`, and two in the projected width;
    with `top_k` only the latter.

    Args:
        model: a Sequential or functional model that ends in a
            `ProjectedSoftmax`. It is left as it is; its encoder is shared.
        dataset: `tf.data.Dataset` of `(inputs, labels)` or `(inputs, labels,
            sample_weight)` batches: the training data, once, in any order.
        l2: float > 0; that of the head by default.
        reduction: `"mean"` of the losses, as Keras trains, or `"sum"`.
        top_k: int, probabilities kept of a row; None keeps all. For millions
            of classes.
        checkpoint: path of a file (.npz) that keeps the sums every
            `checkpoint_interval` batches; a run that finds it goes on from
            there (over the same batches), and removes it at the end.
        checkpoint_interval: int, in batches.
        verbose: 1 shows a progress bar, 0 does not.

    Returns:
        A built, uncompiled `keras.Model` that ends in a `FullSoftmax`.

    Raises:
        ValueError: another head, cosine logits, `l2` not positive, or a
            dataset without rows.

    References:
        Yuan et al., Accelerating Deep Learning with Millions of Classes, ECCV
        2020, dual recovery.
    """
    inputs, features, head = encoder_of(model)
    _check_head(head)
    l2 = head.l2 if l2 is None else l2
    check_l2(l2)
    sums = DualRecovery(head, top_k)
    encoder = keras.Model(inputs, features)
    if checkpoint is not None and os.path.exists(checkpoint):
        sums.load(checkpoint)
    _run(sums, encoder, dataset, checkpoint, checkpoint_interval, verbose)
    kernel = sums.result(l2, reduction)
    if checkpoint is not None and os.path.exists(checkpoint):
        os.remove(checkpoint)
    return _full_model(inputs, features, head, kernel)


def _check_head(head):
    if not isinstance(head, ProjectedSoftmax) or head.similarity != "dot":
        raise ValueError(
            '`model` must end in a ProjectedSoftmax with similarity="dot". '
            f"Received: {type(head).__name__} {head.name!r} with "
            f"similarity={getattr(head, 'similarity', None)!r}."
        )


def _run(sums, encoder, dataset, checkpoint, interval, verbose):
    done = sums.num_batches
    size = int(dataset.cardinality())
    bar = keras.utils.Progbar(size if size > 0 else None, verbose=verbose)
    for number, batch in enumerate(dataset.skip(done), done + 1):
        x, y, weight = keras.utils.unpack_x_y_sample_weight(batch)
        sums.add(encoder(x, training=False), y, weight)
        if checkpoint is not None and number % interval == 0:
            sums.save(checkpoint)
        bar.update(number)


def _full_model(inputs, features, head, kernel):
    full = FullSoftmax(
        head.num_classes,
        use_bias=head.use_bias,
        activation=head.activation,
        seed=head.seed,
        name=f"{head.name}_recovered",
    )
    model = keras.Model(inputs, full(features))
    full.kernel.assign(kernel)
    if head.bias is not None:
        full.bias.assign(head.bias)
    return model
