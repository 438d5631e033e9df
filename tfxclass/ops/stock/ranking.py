"""What queries of indexes share: the scores of what they found, in NumPy."""

import numpy as np
import tensorflow as tf

from tfxclass.ops.stock.twin import InvalidInput
from tfxclass.ops.stock.twin import check_finite


def score(
    query: np.ndarray, rows: np.ndarray, ids: np.ndarray, normalize: bool
) -> np.ndarray:
    """float32 `[ids]`: products, over the rows' norms if asked."""
    rows = np.asarray(rows[ids], np.float32)
    scores = rows @ query
    if normalize:
        norms = np.linalg.norm(rows, axis=1)
        zero = np.zeros_like(scores)
        scores = np.divide(scores, norms, out=zero, where=norms > 0)
    # Last: an order with NaN is none.
    return np.where(np.isnan(scores), -np.inf, scores)


def rank(
    ids: np.ndarray, scores: np.ndarray, count: int
) -> tuple[np.ndarray, np.ndarray]:
    """The best `count`, equals by rising id; -1 and 0 past what there is."""
    order = np.lexsort((ids, -scores))[:count]
    missing = (0, count - len(order))
    return (
        np.pad(ids[order], missing, constant_values=-1).astype(np.int64),
        np.pad(scores[order], missing).astype(np.float32),
    )


def check_queries(
    name: str, queries: np.ndarray, shape: np.ndarray, rows: np.ndarray
) -> None:
    """That queries and rows are those of an index of this shape."""
    check_finite("queries", queries)
    shape = tuple(int(n) for n in shape)
    if rows.shape != shape or queries.shape[1] != shape[1]:
        raise InvalidInput(
            f"The {name} is for a kernel of shape {shape}. Received: kernel "
            f"of shape {rows.shape}, queries of shape {queries.shape}"
        )


def nothing(batch: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """What queries find before there is an index."""
    return np.full([batch, count], -1, np.int64), np.zeros(
        [batch, count], np.float32
    )


def shape_of(queries: tf.Tensor, num_neighbors: tf.Tensor) -> list[int | None]:
    """What is known of the shape of ids and scores."""
    return [queries.shape[0], tf.get_static_value(num_neighbors)]
