"""Which optimizer of class vectors, at which rate, on many tasks.

    python -m benchmarks.defaults DATA [--report]

trains each cell of `cells.py` with `HeadAdam` at its default rate, and with
seven other rules for class vectors, each at five rates and with the better of
two rates for the encoder's Adam. Rates are chosen on validation rows. The best
choice of a cell is repeated with two other seeds. A run that is committed is
not repeated, nor a part of a cell that is in the cache. `--report` writes the
tables and the figure from these results alone.
"""

import functools
import json
import math

from benchmarks import measure
from benchmarks.defaults import model
from benchmarks.defaults import report
from benchmarks.defaults import tasks
from benchmarks.defaults.cells import CELLS

RATE = 1e-3  # the default of HeadAdam, and the usual one of the encoder
#: The encoder's other rate, which is tried at the best one of a rule.
OTHER_RATE = 3e-3
#: Rates at which HeadAdam was tried besides its default.
HEAD_RATES = (3e-4, 3e-3, 1e-2)
SEEDS = range(3)
SAMPLERS = ("uniform", "auto", "forest", "lsh", "full")


class CellRun:
    """Runs of one cell: `rows`, the committed results and then the new ones."""

    def __init__(self, folder, cell):
        self.cell = cell
        self.task = tasks.load(cell.task, folder)
        self.rows = [r for r in report.finished() if r["cell"] == cell.name]

    def rules(self):
        """All rules at all rates, the best with more seeds."""
        for name in model.OPTIMIZERS:
            keys = [(rate, RATE, 0) for rate in model.rates_of(name)]
            trainer = self.train(name, keys)
            if self.cell.encoder not in ("none", "tied"):
                rate = self.best(name)["rate"]
                self.train(name, [(rate, OTHER_RATE, 0)], trainer)
        best = self.best(*model.OPTIMIZERS)
        rates = best["rate"], best["encoder_rate"]
        self.train(best["optimizer"], [(*rates, seed) for seed in SEEDS])

    def default(self):
        """`HeadAdam` with three seeds, and at other rates."""
        keys = [(RATE, RATE, seed) for seed in SEEDS]
        keys += [(rate, rate, 0) for rate in HEAD_RATES]
        self.train("HeadAdam", keys)

    def samplers(self):
        """`HeadAdam` with each sampler; seconds are of the CPU."""
        keys = [(RATE, RATE, seed) for seed in SEEDS]
        for name in SAMPLERS:
            self.train("HeadAdam", keys, sampler=name)

    def best(self, *names):
        """The row of the best validation rows of some rules."""
        rows = [
            row
            for row in self.rows
            if row["optimizer"] in names and row.get("seed") == 0
        ]
        return max(rows, key=lambda row: row["validation"])

    def train(self, name, keys, trainer=None, **of_sampler):
        """Trains what has no result: rates and a seed each. The trainer."""
        for rate, encoder_rate, seed in keys:
            key = {"optimizer": name, "rate": rate}
            key |= {"encoder_rate": encoder_rate, "seed": seed, **of_sampler}
            # Rows of optimizers have no sampler: theirs is uniform.
            wanted = {"sampler": None, **key}
            if any(
                all(row.get(k) == v for k, v in wanted.items())
                for row in self.rows
            ):
                continue
            if trainer is None:
                sampler = of_sampler.get("sampler", "uniform")
                trainer = model.Trainer(self.cell, self.task, name, sampler)
                # The first steps trace graphs, and are in no time.
                first = model.batches_of(self.cell, self.task, 0)[:20]
                trainer.train(RATE, RATE, first)
            found = self.result(trainer, rate, encoder_rate, seed)
            self.rows.append({"cell": self.cell.name, **key, **found})
        return trainer

    def result(self, trainer, rate, encoder_rate, seed):
        batches = model.batches_of(self.cell, self.task, seed)
        with measure.Stopwatch() as clock:
            loss = trainer.train(rate, encoder_rate, batches, seed)
        if not math.isfinite(loss):
            return {"validation": 0.0, "test": 0.0, "diverged": True}
        validation, test = (
            round(float(trainer.hits(rows).mean()), 5)
            for rows in (self.task.validation, self.task.test)
        )
        seconds = round(clock.cpu, 2)
        return {"validation": validation, "test": test, "seconds": seconds}


PARTS = {
    "rules": CellRun.rules,
    "default": CellRun.default,
    "samplers": CellRun.samplers,
}


def child(folder, number, part):
    """Results of a part of a cell that are not committed, a list of dicts."""
    measure.use_one_thread()
    run = CellRun(folder, CELLS[number])
    known = len(run.rows)
    PARTS[part](run)
    return run.rows[known:]


def main():
    measure.run_child(child)
    args = measure.arguments(
        __doc__, first=["data"], data="../shared/data", report=False
    )
    rows, ask = report.finished(), functools.partial(measure.ask, args.data)
    for part in [] if args.report else PARTS:
        for number in range(len(CELLS)):
            job = number, part
            found = measure.once("defaults/runs", *job, run=ask)
            if isinstance(found, list):
                rows += found
    # A run that is committed may be in the cache as well.
    rows = {json.dumps(row, sort_keys=True): row for row in rows}
    report.write([*rows.values()])


if __name__ == "__main__":
    main()
