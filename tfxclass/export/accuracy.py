"""How near the answers of an export that approximates are to the model's."""

import json
import os

import numpy as np
import tensorflow as tf

from tfxclass.layers.output_head import OutputHead
from tfxclass.ops import bfloat16_rows
from tfxclass.types import Array
from tfxclass.types import Config

INT8 = "int8"
_QUERIES = 256


def check_quantize(quantize: str | None, head: OutputHead) -> bool:
    """Whether to quantize, bool.

    Raises:
        ValueError: another name, or a head without class rows.
    """
    if quantize is None:
        return False
    if quantize != INT8:
        raise ValueError(
            f'`quantize` must be None or "{INT8}". Received: {quantize!r}'
        )
    if not head.has_class_rows:
        raise ValueError(
            "`quantize` needs a head with class vectors. Received: "
            f"{type(head).__name__}. Leave it out."
        )
    return True


def check_min_recall(min_recall: float) -> None:
    """Raises ValueError unless it is in [0, 1]."""
    if not 0 <= min_recall <= 1:
        raise ValueError(
            f"`min_recall` must be in [0, 1]. Received: {min_recall}"
        )


def drawn(rows: tf.Tensor, seed: int = 0) -> tf.Tensor:
    """Some of the rows `[n, dim]`, float32; all where there are few."""
    rng = np.random.default_rng(seed)
    count = min(_QUERIES, rows.shape[0])
    ids = rng.choice(rows.shape[0], count, replace=False)
    return bfloat16_rows.widen(tf.gather(rows, np.sort(ids)))


def recall(found: np.ndarray, expected: np.ndarray) -> float:
    """Share of the ids `expected` `[n, k]` that are among `found`."""
    shared = [np.intersect1d(*pair).size for pair in zip(found, expected)]
    return sum(shared) / expected.size


def measure(
    answers: tuple[Array, Array], expected: tuple[Array, Array]
) -> Config:
    """Dict of the `recall`, and of the greatest and mean `score_error`.

    Args:
        answers: `(ids, scores)` `[n, k]`.
        expected: the same of the model.
    """
    ids, scores = map(np.asarray, answers)
    true_ids, true_scores = map(np.asarray, expected)
    same = ids[:, :, np.newaxis] == true_ids[:, np.newaxis]
    errors = np.abs(scores[:, :, np.newaxis] - true_scores[:, np.newaxis])[same]
    most, mean = (errors.max(), errors.mean()) if errors.size else (None, None)
    return {
        "recall": recall(ids, true_ids),
        "score_error": {
            "max": None if most is None else float(most),
            "mean": None if mean is None else float(mean),
        },
    }


def random_features(dim: int) -> np.ndarray:
    """Normal numbers where there are no examples, float32 `[n, dim]`."""
    rng = np.random.default_rng(0)
    return rng.normal(size=(_QUERIES, dim)).astype("float32")


def check_recall(received: float, min_recall: float, k: int) -> None:
    """Raises ValueError where int8 rows find too few of the best classes."""
    if received < min_recall:
        raise ValueError(
            f"Recall at {k} of int8 rows must be at least min_recall="
            f"{min_recall}. Received: {received:.4f}. Give real "
            "`example_inputs`, a lower `min_recall`, or no `quantize`."
        )


def write_report(path: str, report: Config) -> None:
    """Writes what was measured, in JSON, and the folder of it."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as f:
        json.dump(report, f, indent=2)
