"""Trains all optimizers in one cell; a process of `benchmarks.defaults`."""

import json
import math
import sys
import time

import numpy as np
import tensorflow as tf

from benchmarks.defaults import model
from benchmarks.defaults import tasks
from benchmarks.defaults.cells import CELLS

ENCODER_RATES = (1e-3, 3e-3)
DEFAULT_RATE = 1e-3
#: Rates at which HeadAdam was tried besides its default.
HEAD_RATES = (3e-4, 3e-3, 1e-2)
SEEDS = 3
SAMPLERS = ("uniform", "log_uniform", "auto", "forest", "lsh", "full")
DECILES = 10


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
        order = np.argsort(-self.task.counts(), kind="stable")
        rank = np.empty(len(order), np.int64)
        rank[order] = np.arange(len(order))
        labels = np.maximum(self.task.test[1][:, 0], 0)
        self.deciles = rank[labels] * DECILES // len(order)

    def run(self, part):
        if part == "rules":
            self.baseline()
            for name in model.OPTIMIZERS:
                self.of_optimizer(name)
            self.other_seeds()
        elif part == "default":
            self.of_default()
        else:
            self.of_samplers()

    def baseline(self):
        if self._find("class means") is None:
            result = {
                "validation": tasks.class_means(
                    self.task, self.task.validation
                ),
                "test": tasks.class_means(self.task, self.task.test),
            }
            self._tell({"optimizer": "class means"}, result)

    def of_default(self):
        trainer = None
        keys = [(DEFAULT_RATE, seed) for seed in range(SEEDS)]
        for rate, seed in [*keys, *((rate, 0) for rate in HEAD_RATES)]:
            if self._find("HeadAdam", rate, rate, seed) is None:
                trainer = trainer or self._trainer("default")
                self._train(trainer, "HeadAdam", rate, rate, seed)
        if self.task.num_ids and self.cell.encoder != "tied":
            key = DEFAULT_RATE, DEFAULT_RATE
            self._train_missing(model.ADAM_FOR_EMBEDDINGS, [key])

    def of_samplers(self):
        """`HeadAdam` with each sampler; seconds are of the CPU."""
        names = SAMPLERS
        if self.cell.task != "language_model":
            names = [name for name in names if name != "log_uniform"]
        for name in names:
            if self._find("HeadAdam", sampler=name) is not None:
                continue
            trainer = self._trainer("default", name)
            trainer.train(
                DEFAULT_RATE,
                DEFAULT_RATE,
                model.batches_of(self.cell, self.task, 0)[:20],
            )
            for seed in range(SEEDS):
                self._train(
                    trainer, "HeadAdam", DEFAULT_RATE, DEFAULT_RATE, seed,
                    sampler=name,
                )  # fmt: skip

    def of_optimizer(self, name):
        """All rates, then the encoder's other rate at the best one."""
        wanted = [(rate, ENCODER_RATES[0]) for rate in model.rates_of(name)]
        trainer = self._train_missing(name, wanted)
        if self.cell.encoder not in ("none", "tied"):
            rate = self._best(name)["rate"]
            wanted = [(rate, other) for other in ENCODER_RATES[1:]]
            self._train_missing(name, wanted, trainer)

    def other_seeds(self):
        """The best of all settings with other seeds."""
        best = self._best()
        key = best["rate"], best["encoder_rate"]
        trainer = None
        for seed in range(1, SEEDS):
            trainer = self._train_missing(
                best["optimizer"], [key], trainer, seed
            )

    def _train_missing(self, name, pairs, trainer=None, seed=0):
        for rate, encoder_rate in pairs:
            if self._find(name, rate, encoder_rate, seed) is None:
                trainer = trainer or self._trainer(name)
                self._train(trainer, name, rate, encoder_rate, seed)
        return trainer

    def _best(self, name=None):
        """The row of the best validation rows, of a rule or of all seven."""
        rows = [
            row
            for row in self.rows
            if row["optimizer"] in ([name] if name else model.OPTIMIZERS)
            and row["seed"] == 0
            and not row.get("sampler")
        ]
        return max(rows, key=lambda row: row["validation"])

    def _is(self, row, name, **values):
        """Rows of optimizers have no sampler: theirs is uniform."""
        values = {"optimizer": name, "sampler": None, **values}
        return all(row.get(key) == value for key, value in values.items())

    def _find(self, name, rate=None, encoder_rate=None, seed=None, **more):
        key = {"rate": rate, "encoder_rate": encoder_rate, "seed": seed}
        key = {k: v for k, v in key.items() if v is not None}
        found = (r for r in self.rows if self._is(r, name, **key, **more))
        return next(found, None)

    def _trainer(self, optimizer, sampler="uniform"):
        return model.Trainer(self.cell, self.task, optimizer, sampler)

    def _train(self, trainer, name, rate, encoder_rate, seed, **more):
        batches = model.batches_of(self.cell, self.task, seed)
        begin = time.process_time()
        loss = trainer.train(rate, encoder_rate, batches, seed)
        seconds = time.process_time() - begin
        result = {"validation": 0.0, "test": 0.0, "diverged": True}
        if math.isfinite(loss):
            hits = trainer.hits(self.task.test)
            result = {
                "validation": float(trainer.hits(self.task.validation).mean()),
                "test": float(hits.mean()),
                "deciles": self._by_decile(hits),
                "seconds": round(seconds, 2),
            }
        key = {
            "optimizer": name,
            "rate": rate,
            "encoder_rate": encoder_rate,
            "seed": seed,
            **more,
        }
        self._tell(key, result)

    def _by_decile(self, hits):
        """Share of right rows of each tenth of the classes, or None."""
        return [
            round(float(hits[part].mean()), 4) if part.any() else None
            for part in (self.deciles == i for i in range(DECILES))
        ]

    def _tell(self, key, result):
        for name in ("validation", "test"):
            result[name] = round(float(result[name]), 5)
        row = {"cell": self.cell.name, **key, **result}
        self.rows.append(row)
        print(json.dumps(row), flush=True)


def main(number, folder, part):
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    CellRun(int(number), folder, json.load(sys.stdin)).run(part)


if __name__ == "__main__":
    main(*sys.argv[1:])
