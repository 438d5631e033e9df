"""Requests that run as one batch."""

import concurrent.futures
import threading
import time

import numpy as np
import pytest

from tfxclass_serve import batching
from tfxclass_serve.c_loader import TensorFlowError


class TestBatching:
    @staticmethod
    def run(key, inputs, outputs):
        TestBatching.seen.append(len(inputs["x"]))
        if np.any(inputs["x"] < 0):
            raise TensorFlowError(3, "negative")
        return {"y": 2 * inputs["x"]}

    @pytest.fixture
    def batcher(self):
        TestBatching.seen = []
        batcher = batching.Batcher(
            self.run, batching.Batching((2, 4, 8), timeout=0.1)
        )
        yield batcher
        batcher.close()

    def ask(self, batcher, *values):
        """Answers to requests at the same time, or their errors."""

        def one(value):
            try:
                return batcher.run("k", {"x": np.array(value)}, ("y",))["y"]
            except TensorFlowError as e:
                return str(e)

        with concurrent.futures.ThreadPoolExecutor(len(values)) as pool:
            return [np.array(x).tolist() for x in pool.map(one, values)]

    def test_together_and_padded(self, batcher):
        assert self.ask(batcher, [1], [2, 3], []) == [[2], [4, 6], []]
        assert self.seen == [4]

    def test_no_more_than_allowed(self, batcher):
        values = [[i, i, i] for i in range(5)]
        assert self.ask(batcher, *values) == [[2 * i] * 3 for i in range(5)]
        assert max(self.seen) <= 8 and set(self.seen) <= {2, 4, 8}

    def test_a_bad_request_fails_alone(self, batcher):
        assert self.ask(batcher, [1], [-1], [2]) == [[2], "negative", [4]]

    def test_too_large(self, batcher):
        (told,) = self.ask(batcher, [0] * 9)
        assert "Task size 9 is larger than maximum input batch size 8" in told

    def test_full_queue(self):
        gate = threading.Event()

        def wait(key, inputs, outputs):
            gate.wait()
            return {"y": inputs["x"]}

        batcher = batching.Batcher(wait, batching.Batching((1,), 0.0, 1))
        with concurrent.futures.ThreadPoolExecutor(3) as pool:
            waiting = []
            for _ in range(2):
                x = {"x": np.zeros(1)}
                waiting.append(pool.submit(batcher.run, "k", x, ("y",)))
                time.sleep(0.1)
            with pytest.raises(TensorFlowError, match="queue .* is full"):
                batcher.run("k", {"x": np.zeros(1)}, ("y",))
            gate.set()
            assert [x.result()["y"].shape for x in waiting] == [(1,), (1,)]
        batcher.close()
