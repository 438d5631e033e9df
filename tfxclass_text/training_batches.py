"""Labeled texts as batches that a Keras model is trained on."""

import tensorflow as tf

from tfxclass_text.sparse_rows import SparseRows


def training_batches(
    rows: SparseRows, labels: SparseRows, batch_size: int, seed: int
) -> tf.data.Dataset:
    """Shuffled batches `((ids, values), labels)`.

    Args:
        rows: `SparseRows`, the terms of each text.
        labels: `SparseRows`, ids of the labels of each text.
        batch_size: int, texts of a batch.
        seed: int, of the order.

    Returns:
        A dataset. `ids` int64 and `values` float32 are `[batch, n]`, padded
        with value 0; `labels` are int64 `[batch, m]`, padded with -1.
    """
    lists = [
        tf.RaggedTensor.from_row_splits(flat, splits)
        for splits, flat in (
            (rows.splits, rows.ids),
            (rows.splits, rows.values),
            (labels.splits, labels.ids),
        )
    ]

    def padded(ids, values, labels):
        given = ids.to_tensor(), values.to_tensor()
        return given, labels.to_tensor(default_value=-1)

    data = tf.data.Dataset.from_tensor_slices(tuple(lists))
    data = data.shuffle(len(rows), seed=seed).batch(batch_size)
    return data.map(padded).prefetch(2)
