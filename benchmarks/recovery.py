"""Error of dual recovery against the projected width: the paper's Theorem 1.

    python benchmarks/recovery.py

Features of rank r in 64 dimensions and, as the paper's, in 2,048, where the
projection saves memory; 13 classes, 200 rows, mean cross-entropy with l2 =
0.01. The slim and the full problem are solved to optimality (L-BFGS); the error
is |W' - W| / |W| of the recovered W', the median of five projections, and for
comparison the error of the lifted V R^T. The bound is e / (1 - e), e = sqrt(4
(r + 1) log(2 r / 0.1) / m). The theorem has e <= 1 / 2, so it says something
only where the bound is at most 1.
"""

import measure
import numpy as np
import scipy.optimize
import scipy.special

import tfxclass.recovery.sums

CLASSES, ROWS, L2, DELTA, DRAWS = 13, 200, 1e-2, 0.1, 5
RANKS, WIDTHS = (3, 10, 30), (10, 30, 100, 300, 1000, 3000)
# Ranks and widths for each number of dimensions.
JOBS = {64: (RANKS, WIDTHS), 2048: ((*RANKS, 200), WIDTHS[:-1])}


def problem(rank, dim):
    """Features of the same lengths for all ranks and dimensions, and labels."""
    random = np.random.default_rng(rank)
    x = random.normal(size=(ROWS, rank)) @ random.normal(size=(rank, dim))
    return x * (64 / dim / rank) ** 0.5, random.integers(0, CLASSES, ROWS)


def optimum(x, y, l2=L2, classes=CLASSES):
    """Minimum of mean cross-entropy + l2 / 2 |W|^2, [classes, width]."""
    target = np.eye(classes)[y]
    # The optimum lies in the span of the features, which is small.
    left, values, span = np.linalg.svd(x, full_matrices=False)
    kept = values > 1e-9 * values[0]
    x, span = (left * values)[:, kept], span[kept]

    def objective(flat):
        rows = flat.reshape(classes, -1)
        logs = scipy.special.log_softmax(x @ rows.T, axis=1)
        loss = -(logs * target).sum() / len(x) + l2 / 2 * (rows * rows).sum()
        grad = (np.exp(logs) - target).T @ x / len(x) + l2 * rows
        return loss, grad.ravel()

    found = scipy.optimize.minimize(
        objective,
        np.zeros(classes * x.shape[1]),
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": 3000, "ftol": 1e-15, "gtol": 1e-9},
    )
    return found.x.reshape(classes, -1) @ span


def recovered(x, y, projection):
    dim, width = projection.shape
    head = tfxclass.layers.ProjectedSoftmax(CLASSES, width)
    head.build((None, dim))
    head.projection.assign(projection)
    slim = optimum(x @ projection, y)
    head.kernel.assign(slim)
    sums = tfxclass.recovery.sums.RecoverySums(head)
    sums.add(x.astype(np.float32), y)
    # It warns: 1 / l2 is above 2 / L, and right where the rank is low.
    return sums.dual(L2), slim @ projection.T


def row(dim, rank, width):
    x, y = problem(rank, dim)
    best = optimum(x, y)
    errors = []
    for seed in range(DRAWS):
        draws = np.random.default_rng([rank, width, seed])
        projection = draws.normal(size=(dim, width)) / width**0.5
        found = np.stack(recovered(x, y, projection)) - best
        errors.append(np.linalg.norm(found, axis=(1, 2)))
    error, lifted = np.median(errors, axis=0) / np.linalg.norm(best)
    e = (4 * (rank + 1) * np.log(2 * rank / DELTA) / width) ** 0.5
    return {
        "dim": dim,
        "rank": rank,
        "projection_dim": width,
        "relative_error": float(error),
        "lift_error": float(lifted),
        "bound": float(e / (1 - e)) if e <= 0.5 else "",
    }


def main():
    rows = [
        row(dim, rank, width)
        for dim, (ranks, widths) in JOBS.items()
        for rank in ranks
        for width in widths
    ]
    measure.save("recovery", rows)


if __name__ == "__main__":
    main()
