"""Many clients, while versions come, break, go, and the server is stopped.

A request is lost if the server has read it, or may have, and does not answer
it as it should. Not lost are those that any client may safely send again, to
another server: after SIGTERM a 503 that ends the connection, a connection that
is refused, or reset by the system as the port closes (few, `test_load` says how
many), UNAVAILABLE of gRPC, and CANCELLED, which gRPC itself answers to a
call that was not handed to the server (one that was, and was cut off, makes
the exit status 1); at any time the end of a connection that was kept alive,
before a byte of an answer. They are counted, too.
"""

import collections
import json
import os
import shutil
import threading
import time

import grpc
import numpy as np
import tensorflow as tf
from tensorflow_serving.apis import predict_pb2
from tensorflow_serving.apis import prediction_service_pb2_grpc

from tests.fuzz_server.own_process import OwnServer
from tests.fuzz_server.raw_client import NoAnswer
from tests.fuzz_server.raw_client import RawClient
from tests.fuzz_server.raw_client import request

_MODEL = "numbers"
_GRACE = 10.0
_NOT_READ = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)


def _predict(row):
    body = json.dumps({"instances": [row.tolist()]}).encode()
    return request("POST", f"/v1/models/{_MODEL}:predict", body)


class Load:
    """A server under load; `run` does it all.

    Each client asks for a row of its own: another one's answer is wrong.

    Attributes:
        answered: int, requests.
        counts: Counter of what became of the requests.
        lost: list of what was answered wrongly, or not at all.
        growth: bytes, of the server's memory under load.
        seconds: which the server took to stop.
        status: of its exit.
        errors: what it printed to stderr.
        printed: lines, what it printed to stdout.
    """

    def __init__(self, models, root, clients=16, grpc_clients=2):
        self._path = root / _MODEL
        self._first = self._path / "1"
        self._aside = root.parent / "aside"
        shutil.copytree(models / _MODEL, self._path)
        self._server = OwnServer(
            root,
            "--batch_sizes=1,4,16,64",
            "--poll_seconds=0.1",
            f"--grace_seconds={_GRACE}",
        )
        self.printed = self._server.printed
        self.counts, self.lost = collections.Counter(), []
        self._is_stopping, self._lock = False, threading.Lock()
        asks = [self._ask_rest] * clients + [self._ask_grpc] * grpc_clients
        random = np.random.default_rng(0)
        rows = random.normal(size=(len(asks), 3)).astype("float32")
        scores = [self._scores_alone(row) for row in rows]
        self._threads = [
            threading.Thread(target=ask, args=given)
            for ask, *given in zip(asks, rows, scores)
        ]

    @property
    def answered(self):
        return sum(
            self.counts[f"answered over {api}"] for api in ("REST", "gRPC")
        )

    def _scores_alone(self, row):
        """Where nobody else asks."""
        client = RawClient(self._server.rest_port)
        answer = client.ask(_predict(row))
        client.close()
        return _rest_scores(answer)

    def run(self, seconds):
        """Runs all steps, each for its part of `seconds`, then the stop."""
        steps = [
            self._swap,
            self._break,
            self._repair,
            self._copy_slowly,
            self._delete_the_latest,
            self._truncate,
        ]
        try:
            for thread in self._threads:
                thread.start()
            self._sleep(seconds / (len(steps) + 1))
            before = self._server.resident_bytes()
            for step in steps:
                end = time.monotonic() + seconds / (len(steps) + 1)
                step()
                self._sleep(end - time.monotonic())
            self.growth = self._server.resident_bytes() - before
            self._stop()
        finally:
            self._is_stopping = True
            self._server.end()
            for thread in self._threads:
                thread.join()

    def _sleep(self, seconds):
        time.sleep(max(seconds, 0.0))

    # What happens to the versions.

    def _swap(self):
        """A whole version appears at once, as an export does."""
        shutil.copytree(self._first, self._aside)
        os.rename(self._aside, self._path / "2")
        self._wait_for([("2", "AVAILABLE")])

    def _break(self):
        """A later one that cannot be loaded: the other one stays."""
        shutil.copytree(self._first, self._aside)
        (self._aside / "saved_model.pb").write_bytes(b"broken")
        os.rename(self._aside, self._path / "3")
        self._wait_for([("3", "END"), ("2", "AVAILABLE")])

    def _repair(self):
        """The same one, once its files are right."""
        right = (self._first / "saved_model.pb").read_bytes()
        (self._path / "3" / "saved_model.pb").write_bytes(right)
        self._wait_for([("3", "AVAILABLE")])

    def _copy_slowly(self):
        """A file now and then, some of them in halves."""
        for parent, _, names in os.walk(self._first):
            to = self._path / "4" / os.path.relpath(parent, self._first)
            to.mkdir(parents=True)
            for name in names:
                with open(os.path.join(parent, name), "rb") as f:
                    data = f.read()
                with open(to / name, "wb") as f:
                    f.write(data[: len(data) // 2])
                    f.flush()
                    time.sleep(0.1)
                    f.write(data[len(data) // 2 :])
        self._wait_for([("4", "AVAILABLE")])

    def _delete_the_latest(self):
        """Back to the one before."""
        shutil.rmtree(self._path / "4")
        self._wait_for([("3", "AVAILABLE")])

    def _truncate(self):
        """A later one that lacks half of its weights, and then goes."""
        shutil.copytree(self._first, self._aside)
        for data in (self._aside / "variables").glob("*.data-*"):
            os.truncate(data, data.stat().st_size // 2)
        os.rename(self._aside, self._path / "5")
        self._wait_for([("5", "END"), ("3", "AVAILABLE")])
        shutil.rmtree(self._path / "5")
        self._wait_for([("3", "AVAILABLE")])

    def _wait_for(self, wanted, seconds=120.0):
        client = RawClient(self._server.rest_port)
        end = time.monotonic() + seconds
        found = None
        while found != wanted and time.monotonic() < end:
            answer = client.ask(request("GET", f"/v1/models/{_MODEL}"))
            rows = json.loads(answer.body)["model_version_status"]
            found = [(row["version"], row["state"]) for row in rows]
            time.sleep(0.02)
        client.close()
        if found != wanted:
            self._note("lost", f"versions {found}, not {wanted}")

    def _stop(self):
        """SIGTERM, with requests under way and kept-alive connections."""
        self._is_stopping = True
        begin = time.monotonic()
        self._server.terminate()
        self.status, self.errors = self._server.wait(3 * _GRACE)
        self.seconds = time.monotonic() - begin
        for thread in self._threads:
            thread.join()

    # The clients.

    def _note(self, what, told=None):
        with self._lock:
            self.counts[what] += 1
            if told is not None:
                self.lost.append(told)

    def _ask_rest(self, row, scores):
        asked = _predict(row)
        client = RawClient(self._server.rest_port)
        while True:
            was_stopping = self._is_stopping
            try:
                answer = client.ask(asked)
            except NoAnswer as e:
                if e.is_new and self._is_stopping:
                    self._note("connections reset after TERM")
                    return
                if not e.is_safe:
                    self._note("lost", str(e))
                    return
                self._note("closed while kept alive")
                continue
            except ConnectionRefusedError:
                if not was_stopping and not self._is_stopping:
                    self._note("lost", "refused")
                self._note("connections refused after TERM")
                return
            self._judge(answer, scores)
            if answer.status == 503:
                # As one that goes elsewhere first: in a storm of new ones a
                # connection may be made as the kernel closes the port.
                time.sleep(0.1)

    def _judge(self, answer, scores):
        if answer.status == 200 and _is_of(_rest_scores(answer), scores):
            self._note("answered over REST")
        elif answer.status == 503 and answer.is_last and self._is_stopping:
            self._note("503 after TERM")
        else:
            self._note("lost", f"{answer}")

    def _ask_grpc(self, row, scores):
        tensor = tf.make_tensor_proto(row[None])
        asked = predict_pb2.PredictRequest()
        asked.model_spec.name = _MODEL
        asked.inputs["x"].CopyFrom(tensor)
        target = f"127.0.0.1:{self._server.grpc_port}"
        with grpc.insecure_channel(target) as channel:
            stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
            while True:
                try:
                    answer = stub.Predict(asked, timeout=60)
                except grpc.RpcError as e:
                    code = e.code()
                    if self._is_stopping and code in _NOT_READ:
                        self._note(f"{code.name} after TERM")
                    else:
                        self._note("lost", repr(e))
                    return
                found = tf.make_ndarray(answer.outputs["scores"])[0]
                if _is_of(found, scores):
                    self._note("answered over gRPC")
                else:
                    self._note("lost", f"{found}, not {scores}")


def _rest_scores(answer):
    return json.loads(answer.body)["predictions"][0]["scores"]


def _is_of(found, scores):
    # In another batch products are summed in another order.
    return np.allclose(found, scores, rtol=1e-4, atol=1e-6)
