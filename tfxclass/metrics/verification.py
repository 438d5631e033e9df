"""How well features tell identities apart: the metrics of face recognition."""

import numpy as np
from numpy.typing import ArrayLike

from tfxclass.checks import as_array
from tfxclass.checks import as_finite_floats
from tfxclass.checks import as_ids
from tfxclass.checks import as_numbers
from tfxclass.checks import check_k
from tfxclass.checks import check_number
from tfxclass.checks import check_value

_BLOCK_ROWS = 1024


def verification_accuracy(
    similarities: ArrayLike, same: ArrayLike, folds: int = 10
) -> float:
    """Accuracy of same-or-different decisions, measured as on LFW.

    Use it to evaluate embeddings of faces and other identities. It is the mean
    over folds, with the best threshold on all other folds.

    Args:
        similarities: float `[pairs]`, for example cosines.
        same: bool `[pairs]`, whether a pair shows the same identity. There are
            pairs of both kinds.
        folds: int from 2 to the number of pairs, number of consecutive parts.

    Example:

    ```python
    similarities = [0.9, 0.8, 0.1, 0.2]
    accuracy = tfxclass.metrics.verification_accuracy(
        similarities, [True, True, False, False], folds=2
    )
    ```

    References:
        Huang et al., Labeled Faces in the Wild, 2007.
    """
    values, is_same = _check_pairs(similarities, same)
    wanted = f"from 2 to the number of pairs, {len(is_same)}"
    check_value("folds", folds, 2 <= folds <= len(is_same), wanted)
    accuracies = []
    for rows in np.array_split(np.arange(len(is_same)), folds):
        others = np.delete(values, rows), np.delete(is_same, rows)
        threshold = _best_threshold(*others)
        is_right = (values[rows] > threshold) == is_same[rows]
        accuracies.append(is_right.mean())
    return float(np.mean(accuracies))


def true_positive_rate(
    similarities: ArrayLike, same: ArrayLike, false_positive_rate: float = 1e-3
) -> float:
    """Fraction of same pairs accepted at a given false positive rate (TAR@FAR).

    Args:
        similarities, same: as in `verification_accuracy`.
        false_positive_rate: float in [0, 1), largest fraction of the different
            pairs that may be accepted. There should be several times 1 /
            `false_positive_rate` different pairs.

    Example:

    ```python
    rate = tfxclass.metrics.true_positive_rate(
        [0.9, 0.8, 0.1, 0.2], [True, True, False, False], 0.01
    )
    ```
    """
    values, is_same = _check_pairs(similarities, same)
    rate = false_positive_rate
    check_number("false_positive_rate", rate, lambda x: 0 <= x < 1, "in [0, 1)")
    unequal = np.sort(values[~is_same])[::-1]
    # Not one fewer for the rounding of the product.
    allowed = int(rate * len(unequal) + 1e-9)
    return float((values[is_same] > unequal[allowed]).mean())


def hit_rate(
    queries: ArrayLike,
    gallery: ArrayLike,
    query_labels: ArrayLike,
    gallery_labels: ArrayLike,
    k: int = 1,
) -> float:
    """Fraction of queries with their label among the k nearest neighbors.

    Neighbors are the gallery vectors with the greatest cosine. The search is
    exact and runs in blocks. Equal cosines rank in the order of the gallery.

    Args:
        queries, gallery: finite floats, `[n, dim]` and `[m, dim]`.
        query_labels, gallery_labels: ints or str, `[n]` and `[m]`.
        k: int, at most m.

    Example:

    ```python
    gallery = np.eye(4, dtype="float32")
    rate = tfxclass.metrics.hit_rate(gallery, gallery, range(4), range(4), k=1)
    ```
    """
    asked = _normalized("queries", queries)
    known = _normalized("gallery", gallery)
    own_labels = as_array("query_labels", query_labels)
    labels = as_array("gallery_labels", gallery_labels)
    k = check_k(k, len(known))
    shapes = own_labels.shape, labels.shape
    if shapes != (asked.shape[:1], known.shape[:1]) or not len(asked):
        raise ValueError(
            "There must be queries, and a label for each row. Received: "
            f"{len(asked)} queries, {len(known)} in the gallery, "
            f"labels of shapes {shapes[0]} and {shapes[1]}."
        )
    are_texts = {x.dtype.kind in "OUST" for x in (own_labels, labels)}
    # Numbers and texts are never equal, so the rate would be 0.
    if len(are_texts) > 1:
        raise ValueError(
            "`query_labels` and `gallery_labels` must both be integers, or "
            f"both texts. Received: {own_labels.dtype.name} and "
            f"{labels.dtype.name} values"
        )
    if are_texts == {False}:
        own_labels = as_ids("query_labels", own_labels)
        labels = as_ids("gallery_labels", labels)
    hits = 0
    for start in range(0, len(asked), _BLOCK_ROWS):
        block = slice(start, start + _BLOCK_ROWS)
        cosines = asked[block] @ known.T
        is_own = labels == own_labels[block, np.newaxis]
        of_own = np.where(is_own, cosines, -np.inf)
        first = np.argmax(of_own, axis=1)[:, np.newaxis]
        best = np.take_along_axis(of_own, first, axis=1)
        # A count of those before: a sort would cost more than the product.
        is_before = (cosines == best) & (np.arange(len(known)) < first)
        ranks = ((cosines > best) | is_before).sum(axis=1)
        hits += int((is_own.any(axis=1) & (ranks < k)).sum())
    return hits / len(asked)


def _check_pairs(similarities, same):
    similarities = as_numbers("similarities", similarities)
    same = as_numbers("same", same)
    if similarities.ndim != 1 or similarities.shape != same.shape:
        raise ValueError(
            "`similarities` and `same` must have shape [pairs]. Received: "
            f"{similarities.shape} and {same.shape}."
        )
    if not np.isin(same, [0, 1]).all():
        raise ValueError(
            "`same` must be booleans, whether a pair shows the same identity. "
            f"Received: values such as {same[:3].tolist()}. Fix: compare the "
            "identities of each pair, or swap the arguments if they are swapped"
        )
    if np.isnan(similarities).any():
        raise ValueError("`similarities` must be numbers. Received: NaN.")
    same = same.astype(bool)
    if same.all() or not same.any():
        raise ValueError(
            "`same` must have pairs of both kinds. Received: "
            f"{int(same.sum())} of {len(same)} pairs with the same identity."
        )
    return similarities, same


def _best_threshold(similarities, same):
    """The one with the most pairs right; the least of equals."""
    order = np.argsort(similarities, kind="stable")
    ranked, same = similarities[order], same[order]
    # Right if the first i are judged unequal, i = 0 .. n, less a constant.
    right = np.concatenate([[0], np.cumsum(np.where(same, -1, 1))])
    # Between equal similarities no threshold can cut.
    cuts = np.concatenate([[True], ranked[1:] > ranked[:-1], [True]])
    place = int(np.argmax(np.where(cuts, right, -len(same) - 1)))
    return -np.inf if place == 0 else ranked[place - 1]


def _normalized(name, rows):
    rows = as_finite_floats(name, rows)
    if rows.ndim != 2:
        raise ValueError(
            f"`{name}` must have shape [rows, dim]. Received: {rows.shape}"
        )
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows / np.maximum(norms, np.finfo(np.float32).tiny)
