"""Requests that are small and would cost much; what a failure leaves behind."""

import contextlib
import time

import ml_dtypes
import numpy as np
import pytest
from tensorflow.core.framework import tensor_pb2

from tests.support.serving_cases import needs_grpc
from tfxclass_serve import c_loader
from tfxclass_serve import http_head
from tfxclass_serve import rest_api
from tfxclass_serve.c_loader import TensorFlowError
from tfxclass_serve.servable import to_array
from tfxclass_serve.server import library_folder

HEAD = b"GET / HTTP/1.1\r\nHost: a\r\nX: %s\r\n\r\n"


def seconds_of(data):
    begin = time.thread_time()
    http_head.parse(data)
    return time.thread_time() - begin


def test_the_time_of_a_head_is_that_of_its_bytes():
    """A line of spaces took 5 seconds, with the lock of Python."""
    plain, spaces = (HEAD % (b"x" + 32_000 * x + b"x") for x in (b"y", b" "))
    seconds = min(seconds_of(plain) for _ in range(5))
    assert seconds_of(spaces) < 100 * max(seconds, 1e-4)


@pytest.mark.parametrize(
    "line, value",
    [
        ("a:", ""), ("a: ", ""), ("a:b", "b"), ("a: \t b \t", "b"),
        ("a: b  c", "b  c"), ("a::b", ":b"), ("a: b: c ", "b: c"),
    ],
)  # fmt: skip
def test_values_of_fields(line, value):
    data = f"GET / HTTP/1.1\r\nHost: x\r\n{line}\r\n\r\n".encode()
    assert http_head.parse(data).fields["a"] == value


@pytest.mark.parametrize("ending", [b"\r\n\r\n", b"\n\n", b"\r\n\n", b"\n\r\n"])
def test_an_end_that_comes_in_parts(ending):
    data = b"GET / HTTP/1.1\r\nHost: a" + ending
    for cut in range(len(data)):
        assert http_head.end_of(data[:cut]) is None
        assert http_head.end_of(data, cut) == len(data)


def proto_of(shape, **values):
    proto = tensor_pb2.TensorProto(**values)
    for size in shape:
        proto.tensor_shape.dim.add(size=size)
    return proto


@pytest.mark.parametrize(
    "shape, is_right, values",
    [
        ([40], True, {"dtype": 7, "string_val": [b""]}),
        ([41], False, {"dtype": 7, "string_val": [b""]}),
        # The one string is copied for each.
        ([40], False, {"dtype": 7, "string_val": [b"xx"]}),
        ([2], True, {"dtype": 7, "string_val": [b"x" * 900, b""]}),
        ([240], True, {"dtype": 1, "float_val": [1.0]}),
        ([241], False, {"dtype": 1, "float_val": [1.0]}),
        ([960], True, {"dtype": 10, "bool_val": [True]}),
        ([1 << 40, 0], True, {"dtype": 1}),
    ],
)
def test_what_a_tensor_may_stand_for(shape, is_right, values):
    proto = proto_of(shape, **values)
    if is_right:
        assert to_array(proto, 960).shape == tuple(shape)
        return
    with pytest.raises(TensorFlowError, match="more than 960 bytes") as e:
        to_array(proto, 960)
    assert e.value.code == 3


def test_types_that_the_loader_does_not_know():
    api = c_loader.CApi(library_folder())
    with pytest.raises(TensorFlowError, match="bfloat16 are not") as e:
        api.to_tensor(np.zeros(2, ml_dtypes.bfloat16))
    assert e.value.code == 12


class CountingApi:
    """Notes what is made and freed; the second tensor fails."""

    def __init__(self):
        self.made, self.freed = [], []

    def call(self, *_):
        return 1

    def to_tensor(self, array):
        if self.made:
            raise MemoryError
        self.made.append(array)
        return "tensor"

    def delete_input(self, tensor, array):
        assert tensor == "tensor"
        self.freed.append(array)


def test_tensors_are_freed_where_the_next_one_fails():
    model = c_loader.Model.__new__(c_loader.Model)
    model.api, model.graph, model.session = CountingApi(), None, None
    with pytest.raises(MemoryError):
        model.run([("a:0", np.ones(1)), ("b:0", np.ones(2))], ["c:0"])
    assert len(model.api.made) == 1 and model.api.freed == model.api.made


def test_strings_that_are_none_are_freed():
    api = c_loader.CApi(library_folder())
    freed, call = [], api.call
    api.call = lambda name, *rest: freed.append(name) or call(name, *rest)
    with pytest.raises(TypeError):
        api.to_tensor(np.array([b"x" * 100, None], object))
    assert freed.count("TF_StringDealloc") == 2
    assert freed[-1] == "TF_DeleteTensor"


class Fakes:
    """Models and metrics; the one servable has a bug, or answers."""

    def __init__(self, error=None):
        self.error, self.statuses = error, []

    @contextlib.contextmanager
    def use(self, *_):
        yield self, 1

    def add(self, model, api, entrypoint, status, seconds):
        self.statuses.append(status)

    def signature(self, key):
        return self

    inputs = {}

    def predict(self, *_):
        if self.error is not None:
            raise self.error
        return {"y": np.zeros(1)}


@pytest.mark.parametrize(
    "error, status",
    [
        (None, "OK"),
        (KeyError("a bug"), "INTERNAL"),
        (TensorFlowError(12, "not done"), "UNIMPLEMENTED"),
    ],
)
class TestStatuses:
    """A bug of ours was counted as OK."""

    def test_rest(self, error, status):
        fakes = Fakes(error)
        api = rest_api.RestApi(fakes, fakes)
        expected = contextlib.nullcontext()
        if error is not None:
            expected = pytest.raises(type(error))
        with expected:
            api.answer("POST", "/v1/models/m:predict", b'{"inputs": {}}')
        assert fakes.statuses == [status]

    @needs_grpc
    def test_grpc(self, error, status):
        from tensorflow_serving.apis import predict_pb2

        from tfxclass_serve.grpc_services import OpenCalls
        from tfxclass_serve.grpc_services import Prediction

        fakes = Fakes(error)
        request = predict_pb2.PredictRequest()
        request.model_spec.name = "m"
        service = Prediction(fakes, fakes, OpenCalls(), 1 << 20)
        context = Context()
        expected = contextlib.nullcontext()
        if error is not None:
            expected = pytest.raises(Aborted)
        with expected:
            service.Predict(request, context)
        assert fakes.statuses == [status] and context.callbacks


class Aborted(Exception):
    pass


class Context:
    def __init__(self):
        self.callbacks = []

    def add_callback(self, callback):
        self.callbacks.append(callback)
        return True

    def abort(self, code, message):
        raise Aborted(code, message)
