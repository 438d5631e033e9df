"""Trains all optimizers in one cell; a process of `benchmarks.defaults`."""

import json
import math
import sys
import time

from benchmarks import measure
from benchmarks.defaults import model
from benchmarks.defaults import tasks
from benchmarks.defaults.cells import CELLS

DEFAULT_RATE, ENCODER_RATE = 1e-3, 1e-3
#: The encoder's other rate, which is tried at the best one of a rule.
OTHER_RATE = 3e-3
#: Rates at which HeadAdam was tried besides its default.
HEAD_RATES = (3e-4, 3e-3, 1e-2)
SEEDS = 3
SAMPLERS = ("uniform", "log_uniform", "auto", "forest", "lsh", "full")


class CellRun:
    """Runs of one cell; results are printed as lines of JSON.

    Args:
        number: int, of the cell in `CELLS`.
        folder: of the shared data.
        done: list of dicts, results that exist already.
    """

    def __init__(self, number, folder, done):
        self.cell = CELLS[number]
        self.task = tasks.load(self.cell.task, folder)
        self.rows = [row for row in done if row["cell"] == self.cell.name]

    def rules(self):
        """All rules at all rates, the best with more seeds."""
        for name in model.OPTIMIZERS:
            rates = model.rates_of(name)
            trainer = self._train(name, [(r, ENCODER_RATE, 0) for r in rates])
            if self.cell.encoder not in ("none", "tied"):
                rate = self._best(name)["rate"]
                self._train(name, [(rate, OTHER_RATE, 0)], trainer)
        best = self._best(*model.OPTIMIZERS)
        rates = best["rate"], best["encoder_rate"]
        seeds = range(1, SEEDS)
        self._train(best["optimizer"], [(*rates, seed) for seed in seeds])

    def default(self):
        """`HeadAdam` with three seeds, and at other rates."""
        keys = [(DEFAULT_RATE, DEFAULT_RATE, seed) for seed in range(SEEDS)]
        keys += [(rate, rate, 0) for rate in HEAD_RATES]
        self._train("HeadAdam", keys)

    def samplers(self):
        """`HeadAdam` with each sampler; seconds are of the CPU."""
        keys = [(DEFAULT_RATE, DEFAULT_RATE, seed) for seed in range(SEEDS)]
        for name in SAMPLERS:
            # Classes of the language model are sorted by frequency.
            if name != "log_uniform" or self.cell.task == "language_model":
                self._train("HeadAdam", keys, sampler=name)

    def _best(self, *names):
        """The row of the best validation rows of some rules."""
        rows = [
            row
            for row in self.rows
            if row["optimizer"] in names and row.get("seed") == 0
        ]
        return max(rows, key=lambda row: row["validation"])

    def _train(self, name, keys, trainer=None, **of_sampler):
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
                trainer = self._trainer(name, **of_sampler)
            self._tell(key, self._result(trainer, rate, encoder_rate, seed))
        return trainer

    def _trainer(self, name, sampler=None):
        rule = "default" if name == "HeadAdam" else name
        made = model.Trainer(self.cell, self.task, rule, sampler or "uniform")
        if sampler:
            # The first steps trace graphs, and are in no time.
            first = model.batches_of(self.cell, self.task, 0)[:20]
            made.train(DEFAULT_RATE, DEFAULT_RATE, first)
        return made

    def _result(self, trainer, rate, encoder_rate, seed):
        batches = model.batches_of(self.cell, self.task, seed)
        begin = time.process_time()
        loss = trainer.train(rate, encoder_rate, batches, seed)
        seconds = time.process_time() - begin
        if not math.isfinite(loss):
            return {"validation": 0.0, "test": 0.0, "diverged": True}
        return {
            "validation": trainer.hits(self.task.validation).mean(),
            "test": trainer.hits(self.task.test).mean(),
            "seconds": round(seconds, 2),
        }

    def _tell(self, key, result):
        for name in ("validation", "test"):
            result[name] = round(float(result[name]), 5)
        row = {"cell": self.cell.name, **key, **result}
        self.rows.append(row)
        print(json.dumps(row), flush=True)


def main(number, folder, part):
    """Runs a part of a cell: "rules", "default" or "samplers"."""
    measure.use_one_thread()
    getattr(CellRun(int(number), folder, json.load(sys.stdin)), part)()


if __name__ == "__main__":
    main(*sys.argv[1:])
