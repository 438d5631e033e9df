"""What the library computes, in NumPy and float64, the plain way."""

import math

import numpy as np


def logsumexp(logits):
    """[batch, n] -> [batch]; -inf for an empty row."""
    logits = np.asarray(logits, np.float64)
    top = np.max(logits, axis=1, initial=-np.inf)
    shift = np.where(np.isfinite(top), top, 0.0)
    with np.errstate(divide="ignore"):
        return shift + np.log(np.exp(logits - shift[:, None]).sum(axis=1))


def softmax(logits):
    logits = np.asarray(logits, np.float64)
    return np.exp(logits - logsumexp(logits)[:, None])


def distinct_labels(row):
    """Labels of a row: padding and repeats left out, in order."""
    return list(dict.fromkeys(int(c) for c in np.atleast_1d(row) if c >= 0))


def cosface(cosine, margin):
    return cosine - margin


def arcface(cosine, margin):
    turned = math.cos(math.acos(min(max(cosine, -1.0), 1.0)) + margin)
    past = cosine - math.sin(margin) * margin
    return turned if cosine > -math.cos(margin) else past


def cross_entropy(logits, labels, adjust=None):
    """Loss of each row against the mean of its labels, [batch].

    `adjust` turns the logit of a target into the one with the margin.
    """
    losses = []
    for row, labels_of_row in zip(np.array(logits, np.float64), labels):
        ids = distinct_labels(labels_of_row)
        if not ids:
            losses.append(0.0)
            continue
        if adjust is not None:
            for c in ids:
                row[c] = adjust(row[c])
        losses.append(logsumexp(row[None])[0] - row[ids].mean())
    return np.array(losses)


def normalized(rows):
    rows = np.asarray(rows, np.float64)
    norms = np.linalg.norm(rows, axis=-1, keepdims=True)
    return np.divide(rows, norms, out=np.zeros_like(rows), where=norms > 0)


def head_logits(features, kernel, bias=None, similarity="dot", scale=24.0):
    """Logits of a head as its docstring says."""
    features = np.asarray(features, np.float64)
    kernel = np.asarray(kernel, np.float64)
    if similarity == "cosine":
        return scale * normalized(features) @ normalized(kernel).T
    logits = features @ kernel.T
    return logits if bias is None else logits + np.asarray(bias, np.float64)


def top_k(logits, k):
    """Ids and scores, best first, ties by rising id; NaN never enters."""
    ids = np.full((len(logits), k), -1, np.int64)
    scores = np.full((len(logits), k), -np.inf)
    for i, row in enumerate(np.asarray(logits, np.float64)):
        usable = [c for c in range(len(row)) if not np.isnan(row[c])]
        best = sorted(usable, key=lambda c: (-row[c], c))[:k]
        ids[i, : len(best)] = best
        scores[i, : len(best)] = row[best]
    return ids, scores


def numeric_gradient(function, x, direction, step=1e-6):
    """Derivative of a scalar function along `direction`, central."""
    return (function(x + step * direction) - function(x - step * direction)) / (
        2 * step
    )


def log_uniform_probability(ids, num_classes):
    ids = np.asarray(ids, np.float64)
    return np.log((ids + 2) / (ids + 1)) / np.log(num_classes + 1)


def propensity(count, num_rows, a, b):
    """Jain et al. 2016, section 3, of one label."""
    c = (math.log(num_rows) - 1) * (b + 1) ** a
    return 1 / (1 + c * math.exp(-a * math.log(count + b)))


def ranking_metrics(ids, labels, k, propensities, weights=None):
    """P@k, PSP@k and nDCG@k of the best classes `ids`, over labelled rows."""
    rows = [(best[:k], distinct_labels(y)) for best, y in zip(ids, labels)]
    weights = np.ones(len(rows)) if weights is None else weights
    total = precision = ndcg = gain = best_gain = 0.0
    for (best, row), weight in zip(rows, weights):
        if not row:
            continue
        hits = [c in row for c in best]
        total += weight
        precision += weight * sum(hits) / k
        dcg = sum(1 / math.log2(r + 2) for r, hit in enumerate(hits) if hit)
        ideal = sum(1 / math.log2(r + 2) for r in range(min(k, len(row))))
        ndcg += weight * dcg / ideal
        gains = sorted((1 / propensities[c] for c in row), reverse=True)
        gain += weight * sum(1 / propensities[c] for c in best if c in row)
        best_gain += weight * sum(gains[:k])
    return precision / total, gain / best_gain, ndcg / total
