"""How near the answers of an export that approximates are to the model's."""

import numpy as np

from tfxclass.checks import check_number
from tfxclass.layers.output_head import OutputHead
from tfxclass.types import Array
from tfxclass.types import Config

INT8 = "int8"


def check_quantize(
    quantize: str | None, min_recall: float, head: OutputHead
) -> bool:
    """Whether to quantize, bool.

    A ValueError is raised for another name, a head without class vectors, and
    a recall that is not in [0, 1].
    """
    check_number("min_recall", min_recall, lambda x: 0 <= x <= 1, "in [0, 1]")
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


def recall(found: np.ndarray, expected: np.ndarray) -> float:
    """Share of the ids `expected` `[n, k]` that are among `found`."""
    shared = [np.intersect1d(*pair).size for pair in zip(found, expected)]
    return sum(shared) / max(expected.size, 1)


def measure(
    answers: tuple[Array, Array], expected: tuple[Array, Array]
) -> Config:
    """Dict of the `recall`, and of the greatest and mean `score_error`.

    Answers, and those expected of the model, are `(ids, scores)` `[n, k]`.
    """
    ids, scores = map(np.asarray, answers)
    true_ids, true_scores = map(np.asarray, expected)
    same = ids[:, :, np.newaxis] == true_ids[:, np.newaxis]
    errors = np.abs(scores[:, :, np.newaxis] - true_scores[:, np.newaxis])[same]
    most, mean = None, None
    if errors.size:
        most, mean = float(errors.max()), float(errors.mean())
    return {
        "recall": recall(ids, true_ids),
        "score_error": {"max": most, "mean": mean},
    }
