"""Requests that run as one batch."""

import concurrent.futures
import threading
import time

import numpy as np
import pytest
import tensorflow as tf

from tfxclass_serve import batching
from tfxclass_serve import c_loader
from tfxclass_serve.c_loader import TensorFlowError
from tfxclass_serve.servable import Servable
from tfxclass_serve.server import library_folder


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

    @pytest.mark.parametrize("answer", [np.float32(1), np.ones(3), np.ones(2)])
    def test_an_output_without_rows(self, answer):
        """Slices of it would be anything."""
        batcher = batching.Batcher(
            lambda key, inputs, outputs: {"y": inputs["x"], "t": answer},
            batching.Batching((4,), 0.0),
        )
        with pytest.raises(TensorFlowError, match="'t' must have a row") as e:
            batcher.run("k", {"x": np.zeros(2)}, ("y", "t"))
        assert e.value.code == 9
        batcher.close()

    def test_a_model_with_such_outputs_is_not_batched(self, tmp_path):
        module = tf.Module()
        module.f = tf.function(
            lambda x: {"y": 2 * x, "t": tf.constant([7.0, 8.0, 9.0])},
            input_signature=[tf.TensorSpec([None, 3], name="x")],
        )
        tf.saved_model.save(module, tmp_path, signatures=module.f)
        api = c_loader.CApi(library_folder())
        model = Servable(api, tmp_path, batching.Batching((4,), 0.0))
        x = {"x": np.ones((2, 3), "float32")}
        found = model.predict("", x)
        assert found["t"].tolist() == [7, 8, 9]
        assert found["y"].tolist() == [[2, 2, 2]] * 2
        assert model.predict("", x, ["y"])["y"].tolist() == [[2, 2, 2]] * 2
        model.close()

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
