"""Class rows as files, for faiss, ScaNN and vector databases."""

import json
import os
from typing import Literal

import keras
import numpy as np
import tensorflow as tf

from tfxclass.core.forward import flatten
from tfxclass.export import labels as labels_lib
from tfxclass.export import version_folder
from tfxclass.inference.graph import check_plain_logits
from tfxclass.inference.graph import encoder_of
from tfxclass.ops import bfloat16_rows
from tfxclass.types import Array
from tfxclass.types import Labels
from tfxclass.types import Path

ROWS, IDS, REPORT = "rows.npy", "ids.npy", "vectors.json"
# Rows at a time: the temporaries stay small.
_BLOCK = 65_536
# Biases of classes that are never answers are below.
_MIN_BIAS = -1e8
_INSTEAD = "Use tfxclass.export.saved_model."


def vectors(
    model: keras.Model,
    path: Path,
    labels: Labels | Path | Literal[False] | None = None,
) -> str:
    """Writes class vectors to files, for a nearest neighbor search.

    Use it to load the classes into a vector database or a library such as
    Faiss. The inner product of a class vector with a query from
    `vector_queries` is the logit of the class. The folder `path` appears
    complete or not at all, with these files:

    - `rows.npy`, float32 `[n, dim]`, which can be memory-mapped. If the head
      has a bias, it is the last column.
    - `ids.npy`, int64 `[n]`, the class of each vector. Removed classes and
      those with a bias of -inf are left out.
    - `labels.txt`, with `labels`: the name of the class of vector i in line i.
    - `vectors.json`, the meaning of the columns.

    Args:
        model: as for `saved_model`, with one class vector for each class.
        path: str, folder to make, which is returned. It must not exist.
        labels: as for `saved_model`.

    Raises:
        ValueError: if the path exists, or an argument does not fit the head.

    Example:

    ```python
    head = tfxclass.layers.FullSoftmax(100)
    model = keras.Sequential([keras.Input([20]), head])
    tfxclass.export.vectors(model, "class_vectors")
    rows = np.load("class_vectors/rows.npy")
    queries = tfxclass.export.vector_queries(model, np.ones([2, 20], "float32"))
    logits = queries @ rows.T
    ```
    """
    path = version_folder.new_path(path)
    _, head = encoder_of(model)
    check_plain_logits("`vectors`", head, _INSTEAD)
    names = labels_lib.of_head(labels, head)
    (served,) = head.export_weights()
    ids = _answers(head, served)
    # A bias of removed classes alone is zero for the others.
    bias = None if head.bias is None else served.bias
    with version_folder.new_folder(path) as folder:
        rows_path = os.path.join(folder, ROWS)
        columns = _write_rows(rows_path, served.kernel, bias, ids)
        np.save(os.path.join(folder, IDS), ids)
        if names is not None:
            labels_lib.write([names[i] for i in ids], folder)
        report = {
            "classes": len(ids),
            "columns": columns,
            "bias_column": None if bias is None else columns - 1,
            "measure": "inner product",
        }
        with open(os.path.join(folder, REPORT), "w", encoding="utf-8") as f:
            json.dump(report, f, indent=2)
    return path


def vector_queries(model: keras.Model, inputs: Array) -> np.ndarray:
    """Queries for a search in the files of `vectors`.

    Args:
        model: the model that was passed to `vectors`.
        inputs: inputs of the model, `[batch, ...]`.

    Returns:
        float32 `[batch, columns]`: the features as the head multiplies them
        and, with a bias, a column of ones. Each position of a sequence is a
        row.
    """
    encoder, head = encoder_of(model)
    check_plain_logits("`vector_queries`", head, _INSTEAD)
    queries = head.queries(flatten(encoder(inputs, training=False)))
    if head.bias is not None:
        queries = tf.pad(queries, [[0, 0], [0, 1]], constant_values=1.0)
    return queries.numpy()


def _answers(head, served):
    """The classes that may be answers, int64 `[n]`."""
    ids = np.setdiff1d(np.arange(head.num_classes), head.removed)
    if served.bias is None:
        return ids
    bias = tf.convert_to_tensor(served.bias).numpy()
    return ids[bias[ids] > _MIN_BIAS]


def _write_rows(path, kernel, bias, ids):
    """Writes some rows and their biases in blocks; returns their width."""
    kernel = tf.convert_to_tensor(kernel)
    shape = len(ids), kernel.shape[1] + (bias is not None)
    rows = np.lib.format.open_memmap(path, "w+", np.float32, shape)
    for start in range(0, len(ids), _BLOCK):
        part = ids[start : start + _BLOCK]
        block = rows[start : start + _BLOCK]
        block[:, : kernel.shape[1]] = bfloat16_rows.take(kernel, part)
        if bias is not None:
            block[:, -1] = tf.gather(bias, part)
    rows.flush()
    return shape[1]
