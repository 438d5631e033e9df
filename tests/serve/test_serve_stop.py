"""How the gRPC server ends: what is under way, and what has not left yet."""

import contextlib
import socket
import threading
import time

import numpy as np
import pytest

from tests.support.serving_cases import needs_grpc

pytestmark = needs_grpc


class Stalling:
    """A port that passes bytes on, until `stall`: no answer from then on."""

    def __init__(self, port):
        self._target = "127.0.0.1", port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._is_stalled = threading.Event()
        self._sockets = [self._listener]
        threading.Thread(target=self._accept, daemon=True).start()

    def stall(self):
        self._is_stalled.set()

    def close(self):
        for one in self._sockets:
            one.close()

    def _accept(self):
        with contextlib.suppress(OSError):
            client = self._listener.accept()[0]
            server = socket.create_connection(self._target)
            self._sockets += [client, server]
            for pair in ((client, server, False), (server, client, True)):
                threading.Thread(target=self._pass, args=pair).start()

    def _pass(self, source, target, is_answer):
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 12):
                if is_answer and self._is_stalled.is_set():
                    return
                target.sendall(data)


class Fakes:
    """Models of one servable, that answers `size` numbers."""

    def __init__(self):
        self.size, self.answered = 1, threading.Semaphore(0)

    @contextlib.contextmanager
    def use(self, *_):
        yield self, 1

    def predict(self, *_):
        self.answered.release()
        return {"y": np.zeros(self.size, "float32")}

    def add(self, *_):
        pass


def ask(port, size=1):
    """`(channel, call)` of a Predict."""
    import grpc
    from tensorflow_serving.apis import predict_pb2
    from tensorflow_serving.apis import prediction_service_pb2_grpc

    options = [("grpc.max_receive_message_length", -1)]
    channel = grpc.insecure_channel(f"127.0.0.1:{port}", options)
    stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
    request = predict_pb2.PredictRequest()
    request.model_spec.name = "m"
    return channel, lambda: stub.Predict.future(request, timeout=60)


@pytest.fixture
def served():
    from tfxclass_serve.grpc_server import GrpcServer

    fakes = Fakes()
    server = GrpcServer(fakes, fakes, ("127.0.0.1", 0))
    server.start()
    yield server, fakes
    server.close(0.0)


def threads():
    return {x for x in threading.enumerate() if "PoolExecutor" in x.name}


@pytest.mark.slow
def test_an_answer_that_does_not_leave_is_told(served):
    """It was handed over, and is cut off: the stop is not clean."""
    server, fakes = served
    proxy = Stalling(server.port)
    channel, call = ask(proxy.port)
    assert call().result().outputs["y"].tensor_shape.dim[0].size == 1
    assert fakes.answered.acquire(timeout=10)
    fakes.size = 1 << 23  # More than the sockets and HTTP/2 take.
    proxy.stall()
    pending = call()
    assert fakes.answered.acquire(timeout=10)
    assert server.close(grace=1.0) is False
    pending.cancel()
    proxy.close()
    channel.close()


def test_the_threads_end(served):
    server, _ = served
    before = threads()
    channel, call = ask(server.port)
    call().result()
    assert server.close(grace=5.0) is True
    end = time.monotonic() + 10
    while threads() - before and time.monotonic() < end:
        time.sleep(0.01)
    assert not threads() - before
    channel.close()
