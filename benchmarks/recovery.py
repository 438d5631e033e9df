"""Error of dual recovery against the projected width: the paper's Theorem 1.

    python benchmarks/recovery.py

Features of rank r in 64 dimensions, 13 classes, 200 rows, mean cross-entropy
with l2 = 0.01. The slim and the full problem are solved to optimality (L-BFGS);
the error is |W' - W| / |W| of the recovered W', the median of five projections.
The bound is e / (1 - e), e = sqrt(4 (r + 1) log(2 r / 0.1) / m), which says
something only where e < 1.
"""

import warnings

import measure
import numpy as np

CLASSES, DIM, ROWS, L2, DELTA = 13, 64, 200, 1e-2, 0.1
RANKS, WIDTHS, DRAWS = (3, 10, 30), (10, 30, 100, 300, 1000, 3000), 5


def problem(rank):
    random = np.random.default_rng(rank)
    x = random.normal(size=(ROWS, rank)) @ random.normal(size=(rank, DIM))
    return x / rank**0.5, random.integers(0, CLASSES, ROWS)


def optimum(x, y, l2=L2, classes=CLASSES):
    """Minimum of mean cross-entropy + l2 / 2 |W|^2, [classes, width]."""
    import scipy.optimize
    import scipy.special

    target = np.eye(classes)[y]

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
    return found.x.reshape(classes, -1)


def recovered(x, y, projection):
    import tfxclass

    width = projection.shape[1]
    head = tfxclass.layers.ProjectedSoftmax(CLASSES, width)
    head.build((None, DIM))
    head.projection.assign(projection)
    head.kernel.assign(optimum(x @ projection, y))
    sums = tfxclass.recovery.DualRecovery(head)
    sums.add(x.astype(np.float32), y)
    with warnings.catch_warnings():
        # 1 / l2 is above 2 / L, and right where the rank is low.
        warnings.simplefilter("ignore")
        return sums.result(L2), sums.stationarity_error(L2)


def row(rank, width):
    x, y = problem(rank)
    best = optimum(x, y)
    errors, left = [], []
    for seed in range(DRAWS):
        draws = np.random.default_rng([rank, width, seed])
        projection = draws.normal(size=(DIM, width)) / width**0.5
        found, stationarity = recovered(x, y, projection)
        errors.append(np.linalg.norm(found - best) / np.linalg.norm(best))
        left.append(stationarity)
    e = (4 * (rank + 1) * np.log(2 * rank / DELTA) / width) ** 0.5
    return {
        "rank": rank,
        "projection_dim": width,
        "relative_error": float(np.median(errors)),
        "bound": float(e / (1 - e)) if e < 1 else "",
        "stationarity_error": float(np.median(left)),
    }


def main():
    rows = [row(rank, width) for rank in RANKS for width in WIDTHS]
    measure.save("recovery", rows)

    def draw(axes):
        for rank, color in zip(RANKS, "brg"):
            own = [row for row in rows if row["rank"] == rank]
            axes.plot(
                [row["projection_dim"] for row in own],
                [row["relative_error"] for row in own],
                color + ".-",
                label=f"rank {rank}",
            )
            own = [row for row in own if row["bound"]]
            axes.plot(
                [row["projection_dim"] for row in own],
                [row["bound"] for row in own],
                color + ":",
                label=f"rank {rank}, bound",
            )

    scales = {"xscale": "log", "yscale": "log"}
    measure.plot("recovery", draw, "projected width m", "error", **scales)


if __name__ == "__main__":
    main()
