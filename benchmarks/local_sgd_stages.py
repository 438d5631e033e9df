"""Algorithms 1 and 2 of the RP paper, with the constants of its Theorem 2.

    python benchmarks/local_sgd_stages.py [method ...] [--seeds 3]

The class matrix of a softmax on scikit-learn's digits, in 32 whitened
dimensions, with l2 = MU: all that the theorem assumes holds, with known L and
mu. L is the greatest of the losses of single images, as Assumption 1 has it;
"mean L" is the far smaller L of their mean. K replicas sample ROWS images each
a step, simulated: `LocalSGD` with stages and `gamma` is tested against that.

`theorem`: eta_1 = eta_0 K with eta_0 = 1 / (3 L 8), which eight replicas may
have; T_1 = 2 / (L eta_1), I_s = max(1, 1 / sqrt(K eta_s)), gamma = 1 / (2 L),
growth exp(c_1). `remark`: the same with eta_0 = 1 / (3 L K), as the theorem's
remark has it. `no proximal term`: `theorem` without gamma. `constant`: eta_1
of `theorem` for MOST / K steps and an average each step. `doubling`:
`growing_stages`, growth 2 and first DOUBLING / K steps, without and with the
proximal term. `steps to` is where the objective is first so near its optimum,
`averages` how many there were, `speed-up` against one replica.
"""

import math

import measure
import numpy as np
import recovery
from scipy import special
from sklearn import datasets

from tfxclass import optimizers

NAME = "local_sgd_stages"
DIM, MU, ROWS = 32, 0.01, 4
REPLICAS, DELTAS = (1, 2, 4, 8), (0.02, 0.005, 0.0001)
DOUBLING, MOST, EVERY = 512, 1 << 20, 32


class Problem:
    """Mean cross-entropy of digits in whitened dimensions + MU / 2 |W|^2."""

    def __init__(self):
        x, self.y = datasets.load_digits(return_X_y=True)
        left, _, _ = np.linalg.svd(x - x.mean(axis=0), full_matrices=False)
        self.x = left[:, :DIM] * len(x) ** 0.5
        self.best = self.value(recovery.optimum(self.x, self.y, MU, 10))

    def smoothness(self, method):
        """L: half of the greatest |x|^2, or second moment, and MU."""
        moments = np.linalg.eigvalsh(self.x.T @ self.x / len(self.x))
        images = (self.x * self.x).sum(axis=1)
        largest = moments if method.endswith("mean L") else images
        return float(largest.max() / 2 + MU)

    def value(self, kernel):
        logs = special.log_softmax(self.x @ kernel.T, axis=1)
        loss = -logs[np.arange(len(self.y)), self.y].mean()
        return loss + MU / 2 * (kernel * kernel).sum()

    def gradients(self, kernels, rows):
        """Of each replica's kernel on its rows, `[replicas, 10, DIM]`."""
        x, y = self.x[rows], self.y[rows]
        p = special.softmax(x @ kernels.swapaxes(1, 2), axis=2)
        p -= np.eye(10)[y]
        return p.swapaxes(1, 2) @ x / rows.shape[1] + MU * kernels


def stages(method, problem, replicas):
    """Yields `(rate, steps, interval, 1 / gamma)`."""
    smoothness = problem.smoothness(method)
    most = replicas if method.startswith("remark") else REPLICAS[-1]
    first = replicas / (3 * smoothness * most)
    if method == "constant":
        yield first, MOST // replicas, 1, 0.0
        return
    if method.startswith("doubling"):
        pull = 2 * smoothness if "gamma" in method else 0.0
        found = optimizers.growing_stages(first, DOUBLING // replicas, 1, 11)
        yield from ((*stage, pull) for stage in found)
        return
    ratio = MU / smoothness
    growth, steps = ratio / (5 + ratio), 2 / (smoothness * first)
    pull = 0.0 if method == "no proximal term" else 2 * smoothness
    for number in range(MOST):
        rate = first * math.exp(-number * growth)
        interval = max(1, int((replicas * rate) ** -0.5))
        yield rate, round(steps * math.exp(number * growth)), interval, pull


def run(problem, method, replicas, seed):
    """`{delta: (steps, averages, interval)}` of the deltas that are reached."""
    random = np.random.default_rng(seed)
    kernels = np.zeros((replicas, 10, DIM))
    found, done, averages = {}, 0, 0
    for rate, steps, interval, pull in stages(method, problem, replicas):
        start = kernels[0].copy()  # all are equal where a stage begins
        for step in range(1, steps + 1):
            rows = random.integers(0, len(problem.y), (replicas, ROWS))
            gradients = problem.gradients(kernels, rows)
            kernels -= rate * (gradients + pull * (kernels - start))
            done += 1
            if step % interval == 0 or step == steps:
                kernels[:] = kernels.mean(axis=0)
                averages += 1
            if done % EVERY == 0:
                error = problem.value(kernels.mean(axis=0)) - problem.best
                for delta in DELTAS:
                    if error <= delta:
                        found.setdefault(delta, (done, averages, interval))
                if len(found) == len(DELTAS) or done >= MOST:
                    return found
    return found


METHODS = (
    *("constant", "theorem", "remark", "no proximal term"),
    *("remark, mean L", "doubling, mean L", "doubling, gamma, mean L"),
)


def main():
    args = measure.arguments(
        __doc__, first=["methods"], methods=METHODS, seeds=3
    )
    problem, rows = Problem(), []
    for method in args.methods:
        alone, smoothness = {}, problem.smoothness(method)
        for replicas in REPLICAS:
            of_seeds = [
                run(problem, method, replicas, seed)
                for seed in range(args.seeds)
            ]
            row = {"method": method, "L": smoothness, "replicas": replicas}
            for delta in DELTAS:
                reached = [one[delta] for one in of_seeds if delta in one]
                if len(reached) < args.seeds:
                    continue
                steps, averages, interval = map(float, np.mean(reached, 0))
                if replicas == 1:
                    alone[delta] = steps
                row[f"steps to {delta:g}"] = steps
                row[f"deviation {delta:g}"] = float(np.std(reached, axis=0)[0])
                if delta in alone:
                    row[f"speed-up to {delta:g}"] = alone[delta] / steps
                row[f"averages to {delta:g}"] = averages
                row[f"interval at {delta:g}"] = interval
            rows.append({**row, "seeds": args.seeds})
            print(rows[-1], flush=True)
    measure.save(NAME, rows, ("method", "replicas"))


if __name__ == "__main__":
    main()
