"""Runs what has no result yet: rates to choose from, then the final models."""

import os

from benchmarks import measure
from benchmarks.hierarchical import data as data_lib
from benchmarks.hierarchical import methods
from benchmarks.hierarchical import peer

# Of LazyAdam and of fastText's SGD.
RATES = {"ours": (0.1, 0.3, 0.03, 0.01), "fastText": (1.0, 2.0, 0.5, 0.2)}
# The slowest last.
METHODS = ["fastText hs", *methods.METHODS, "fastText softmax"]


class Group:
    """The jobs of a data set, which are its results' files.

    Args:
        folder: of the results.
        data: `data.Set`.
        epochs: int.
        fasttext: path of a Python with fastText, or None.
        seconds: float or None: no epoch begins after these.
        num_rates: int or None, rates to choose from, the first ones.
        dim: int, numbers of a word.
        evaluate_every: int, epochs between two scores of our models.
        seed: int, of fastText.
    """

    def __init__(
        self,
        folder,
        data,
        epochs,
        fasttext=None,
        seconds=None,
        num_rates=None,
        dim=methods.DIM,
        evaluate_every=1,
        seed=0,
    ):
        self.folder = folder
        self.data = data
        self.epochs = epochs
        self.fasttext = fasttext
        self.seconds = seconds
        self.num_rates = num_rates
        self.dim = dim
        self.evaluate_every = evaluate_every
        self.seed = seed

    def rates(self, method):
        rates = RATES["fastText" if method in peer.METHODS else "ours"]
        return rates[: self.num_rates]

    def best_rate(self, method):
        """The one with the best macro-F1 on validation rows; all are tried."""
        data = data_lib.for_search(self.data)
        found = {
            rate: self._result(method, rate, "search", data)["curve"][-1]["f1"]
            for rate in self.rates(method)
        }
        return max(found, key=found.get)

    def final(self, method, rate):
        return self._result(method, rate, "final", self.data)

    def _result(self, method, rate, kind, data):
        path = os.path.join(self.folder, f"{method}, {rate:g}, {kind}.json")

        def run():
            result = self._run(method, rate, data)
            print(f"{path}: {result['curve'][-1]}", flush=True)
            return {**result, "method": method, "rate": rate}

        return measure.kept(path, run)

    def _run(self, method, rate, data):
        if method in peer.METHODS:
            return peer.run(
                method,
                data,
                rate,
                self.epochs,
                self.fasttext,
                self.dim,
                self.seed,
            )
        return methods.run(
            method,
            data,
            rate,
            self.epochs,
            self.seconds,
            self.dim,
            self.evaluate_every,
        )
