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


def optioned_losses(logits, labels, **options):
    """`LossOptions` of the softmax of each row, by the target distribution.

    `class_weight` and `propensities` are arrays `[n]` here.
    """
    logits = np.asarray(logits, np.float64)
    if (counts := options.get("class_counts")) is not None:
        counts = np.where(counts > 0, counts, counts[counts > 0].min())
        shares = counts / counts.sum()
        logits = logits + options.get("logit_adjustment", 1.0) * np.log(shares)
    weights = np.ones(logits.shape[1])
    weights *= options.get("class_weight", 1.0)
    weights /= options.get("propensities", 1.0)
    smoothing = options.get("label_smoothing", 0.0)
    masses = target_masses(labels, logits.shape[1])
    losses = []
    for log_p, of_row in zip(log_softmax(logits), masses * weights):
        if not of_row.sum():
            losses.append(0.0)
            continue
        q = np.full(len(log_p), smoothing / len(log_p))
        q += (1 - smoothing) * of_row / of_row.sum()
        loss = -(q @ log_p)
        loss *= (1 - np.exp(-loss)) ** options.get("focal_gamma", 0.0)
        losses.append(of_row.sum() * loss)
    return np.array(losses)


def target_masses(labels, classes):
    """What a row is to learn, `[batch, classes]`: sums are 1, or 0."""
    masses = np.zeros((len(labels), classes))
    for i, labels_of_row in enumerate(labels):
        ids = distinct_labels(labels_of_row)
        masses[i, ids] = 1 / max(len(ids), 1)
    return masses


def optioned_one_vs_rest(logits, labels, **options):
    """`LossOptions` of the sum of logistic losses, class by class.

    `class_weight` is an array `[n]` here.
    """
    logits = np.asarray(logits, np.float64)
    gamma = options.get("focal_gamma", 0.0)
    other = options.get("label_smoothing", 0.0) / 2
    losses = np.zeros(len(logits))
    for i, row in enumerate(logits):
        own = distinct_labels(np.atleast_1d(labels[i]))
        if not own:
            continue
        for c, z in enumerate(row):
            yes = softplus(-z) * sigmoid(-z) ** gamma
            no = softplus(z) * sigmoid(z) ** gamma
            yes, no = yes + other * (no - yes), no + other * (yes - no)
            if c in own:
                losses[i] += yes * options.get("class_weight", {c: 1.0})[c]
            else:
                losses[i] += no
    return losses


def one_vs_rest(logits, labels, kind, masses=None, adjust=None):
    """Sum over classes of binary losses, [batch]; `masses` weigh labels."""
    losses = []
    for row, own in zip(np.asarray(logits, np.float64), np.asarray(labels)):
        ids = distinct_labels(np.atleast_1d(own))
        if not ids:
            losses.append(0.0)
            continue
        sign, weight = np.full(len(row), 1.0), np.ones(len(row))
        sign[ids] = -1.0
        if masses is not None:
            weight[ids] = np.asarray(masses)[ids]
        if adjust is not None:
            row = row.copy()
            row[ids] = adjust(row[ids])
        if kind == "sigmoid":
            terms = np.logaddexp(0.0, sign * row)
        else:
            terms = np.maximum(0.0, 1.0 + sign * row) ** 2
        losses.append(weight @ terms)
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


def softplus(x):
    return np.logaddexp(0.0, np.asarray(x, np.float64))


def noise_contrastive(noise, targets, columns):
    """NCE of each row, [batch]: a label counts as a target with weight 1 /
    labels and as noise with the rest.

    `noise` [batch, n] and `targets` [batch, p] are logits less the log of the
    expected counts; `columns` [batch, p] those of the labels, -1 for padding.
    """
    losses = []
    for row, own, at in zip(noise, targets, columns):
        labels = [j for j, c in enumerate(at) if c >= 0]
        if not labels:
            losses.append(0.0)
            continue
        negatives = np.delete(row, [at[j] for j in labels])
        loss = softplus(negatives).sum()
        weight = 1 / len(labels)
        for j in labels:
            loss += weight * softplus(-own[j]) + (1 - weight) * softplus(own[j])
        losses.append(loss)
    return np.array(losses)


def negative_sampling(logits, columns):
    """word2vec's loss of each row, the mean over its labels, [batch]."""
    losses = []
    for row, at in zip(np.asarray(logits, np.float64), columns):
        labels = [c for c in at if c >= 0]
        if not labels:
            losses.append(0.0)
            continue
        negatives = np.delete(row, labels)
        losses.append(softplus(-row[labels]).mean() + softplus(negatives).sum())
    return np.array(losses)


def sparsemax(logits):
    """Martins & Astudillo's algorithm 1, by a full sort."""
    logits = np.asarray(logits, np.float64)
    falling = -np.sort(-logits, axis=1)
    place = np.arange(1, logits.shape[1] + 1)
    sums = np.cumsum(falling, axis=1)
    count = np.sum(1 + place * falling > sums, axis=1)
    tau = (sums[np.arange(len(logits)), count - 1] - 1) / count
    return np.maximum(logits - tau[:, None], 0.0)


def sparsemax_loss(logits, labels):
    """The loss of a row against the uniform distribution on its labels."""
    logits = np.asarray(logits, np.float64)
    losses = []
    for row, p, labels_of_row in zip(logits, sparsemax(logits), labels):
        ids = distinct_labels(labels_of_row)
        if not ids:
            losses.append(0.0)
            continue
        q = np.zeros(len(row))
        q[ids] = 1 / len(ids)
        support = p > 0
        tau = (row[support].sum() - 1) / support.sum()
        inside = (row[support] ** 2 - tau**2).sum()
        losses.append(-(q @ row) + inside / 2 + (q @ q) / 2)
    return np.array(losses)


def log_softmax(logits):
    return np.asarray(logits, np.float64) - logsumexp(logits)[:, None]


def adaptive_log_probabilities(features, kernels, clusters, projections):
    """Grave et al.'s hierarchy, entry by entry: the head's classes, then those
    of each cluster as log p(cluster) + log p(class | cluster)."""
    features = np.asarray(features, np.float64)
    head = log_softmax(features @ np.concatenate([kernels[0], *clusters]).T)
    first = len(kernels[0])
    columns = [head[:, :first]]
    for i, (projection, kernel) in enumerate(zip(projections, kernels[1:])):
        within = log_softmax(features @ projection @ kernel.T)
        columns.append(head[:, first + i : first + i + 1] + within)
    return np.concatenate(columns, axis=1)


def differentiated_logits(features, kernels):
    """Chen et al.'s: slice i of the features times the rows of block i."""
    features = np.asarray(features, np.float64)
    columns, start = [], 0
    for kernel in kernels:
        width = kernel.shape[1]
        columns.append(features[:, start : start + width] @ kernel.T)
        start += width
    assert start == features.shape[1]
    return np.concatenate(columns, axis=1)


def sigmoid(x):
    return np.exp(-softplus(-np.asarray(x, np.float64)))


def concrete_mask(retain_logits, draws, temperature):
    """z of Maddison et al.'s relaxation, from uniform draws."""
    draws = np.asarray(draws, np.float64)
    noise = np.log(draws) - np.log1p(-draws)
    return sigmoid((retain_logits + noise) / temperature)


def masked_log_softmax(logits, masks, epsilon=1e-20):
    """log of z exp(o) + epsilon over the sum of these numbers."""
    return log_softmax(np.log(masks * np.exp(np.float64(logits)) + epsilon))


def dropmax_terms(retain_logits, columns, residual=None):
    """Sums over classes of DropMax's regularisers, each float64 `[batch]`.

    Returns:
        dict: `target`, -log rho of the targets (equation 10); `entropy`, that
        of rho over all classes, and `other_entropy` over those that are no
        target; with `residual`, r, `kl` and `auxiliary`.
    """
    rho = sigmoid(retain_logits)
    is_target = np.zeros(rho.shape, bool)
    for row, ids in zip(is_target, columns):
        row[distinct_labels(ids)] = True
    entropy = rho * softplus(-retain_logits)
    entropy += (1 - rho) * softplus(retain_logits)
    terms = {
        "target": (is_target * softplus(-retain_logits)).sum(axis=1),
        "entropy": entropy.sum(axis=1),
        "other_entropy": (~is_target * entropy).sum(axis=1),
    }
    if residual is not None:
        logits = retain_logits + residual
        q = np.where(is_target, 1.0, sigmoid(logits))
        kl = q * (softplus(-retain_logits) - softplus(-logits) * ~is_target)
        kl += (1 - q) * (softplus(retain_logits) - softplus(logits))
        terms["kl"] = kl.sum(axis=1)
        signed = np.where(is_target, -residual, residual)
        terms["auxiliary"] = softplus(signed).sum(axis=1)
    return terms


def dropmax_loss(mode, logits, retain_logits, draws, columns, **options):
    """Equation 15, and the NeurIPS version's, of each row, [batch].

    `draws` [num_samples, batch, n]; `options`: temperature, residual, weights
    `kl`, `auxiliary` and `entropy`.
    """
    residual = options.get("residual")
    drawn_by = retain_logits if residual is None else retain_logits + residual
    losses = np.zeros(len(logits))
    for u in draws:
        if mode == "attention":
            masks = sigmoid(retain_logits)
        elif mode == "random":
            masks = (u < sigmoid(retain_logits)).astype(float)
        else:
            masks = concrete_mask(drawn_by, u, options["temperature"])
        for row, ids in zip(masks, columns):
            if mode != "attention":
                row[distinct_labels(ids)] = 1.0
        log_p = masked_log_softmax(logits, masks)
        for i, ids in enumerate(map(distinct_labels, columns)):
            losses[i] -= log_p[i, ids].mean() / len(draws) if ids else 0.0
    terms = dropmax_terms(retain_logits, columns, residual)
    if mode in ("adaptive", "attention"):
        losses += options["kl"] * terms["target"]
        losses -= options["entropy"] * terms["other_entropy"]
    if mode == "posterior":
        losses += options["kl"] * terms["kl"]
        losses += options["auxiliary"] * terms["auxiliary"]
        losses -= options["entropy"] * terms["entropy"]
    is_labelled = [bool(distinct_labels(ids)) for ids in columns]
    return np.where(is_labelled, losses, 0.0)


def tree_path(tree, class_id):
    """`(node, child's place)` from the root to the class."""
    node, path = int(tree.leaves[class_id]), []
    while node:
        parent = int(tree.parents[node])
        siblings = np.flatnonzero(tree.parents == parent)
        path.append((parent, int(np.searchsorted(siblings, node))))
        node = parent
    return path[::-1]


def tree_rows(tree, independent=False):
    """Rows of weights of each node, a list of lists."""
    rows, used = [], 0
    for children in tree.num_children:
        count = 1 if children == 2 and not independent else int(children)
        rows.append(list(range(used, used + count)))
        used += count
    return rows


def tree_child_logs(row, products, count, independent):
    """Log-probabilities of the children of a node, [count]."""
    own = np.array([products[r] for r in row])
    if independent:
        return -softplus(-own)
    logits = np.array([own[0], 0.0]) if count == 2 else own
    return log_softmax(logits[None])[0]


def tree_log_probabilities(features, kernel, tree, independent=False):
    """[batch, num_classes], each class by its own path from the root."""
    products = np.asarray(features, np.float64) @ np.asarray(kernel).T
    rows = tree_rows(tree, independent)
    paths = [tree_path(tree, c) for c in range(tree.num_classes)]
    logs = np.zeros((len(products), tree.num_classes))
    for i, own in enumerate(products):
        of_nodes = {
            n: tree_child_logs(rows[n], own, count, independent)
            for n, count in enumerate(tree.num_children)
            if count
        }
        for c, path in enumerate(paths):
            logs[i, c] = sum(of_nodes[node][place] for node, place in path)
    return logs


def tree_binary_loss(features, kernel, tree, labels):
    """A probabilistic label tree's: for every node above a label, the binary
    losses of its children, positive those above (or at) a label; [batch]."""
    products = np.asarray(features, np.float64) @ np.asarray(kernel).T
    rows, losses = tree_rows(tree, True), []
    for own, labels_of_row in zip(products, labels):
        steps = set()
        for c in distinct_labels(labels_of_row):
            steps.update(tree_path(tree, c))
        loss = 0.0
        for node in {node for node, _ in steps}:
            for place, r in enumerate(rows[node]):
                sign = -1 if (node, place) in steps else 1
                loss += softplus(sign * own[r])
        losses.append(loss)
    return np.array(losses)
