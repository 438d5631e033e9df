"""Any document, any bytes: a clear refusal, or the right arrays."""

import json

import hypothesis
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import strategies as st
from tensorflow.core.framework import types_pb2
from tensorflow.core.protobuf import meta_graph_pb2
from tensorflow.core.protobuf import saved_model_pb2

from tfxclass_serve import json_codec
from tfxclass_serve.c_loader import TensorFlowError


def json_values():
    leaves = (
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats()
        | st.text(max_size=5)
        | st.just({"b64": "YQ=="})
    )
    return st.recursive(
        leaves,
        lambda x: (
            st.lists(x, max_size=4)
            | st.dictionaries(st.sampled_from(["x", "b64", "y"]), x, max_size=3)
        ),
        max_leaves=12,
    )


@pytest.fixture(scope="module")
def infos(served_models):
    with open(served_models / "numbers" / "1" / "saved_model.pb", "rb") as f:
        saved = saved_model_pb2.SavedModel.FromString(f.read())
    return saved.meta_graphs[0].signature_def["serving_default"].inputs


class TestFuzz:
    @hypothesis.given(
        keys=st.sets(
            st.sampled_from(["instances", "inputs", "signature_name", "z"])
        ),
        value=json_values(),
        other=json_values(),
    )
    def test_any_document(self, infos, keys, value, other):
        values = {"inputs": other}
        body = json.dumps({key: values.get(key, value) for key in keys})
        try:
            document = json_codec.parse_object(body.encode())
            inputs, _ = json_codec.predict_inputs(document, infos)
        except TensorFlowError as e:
            assert e.code == 3
            return
        assert inputs["x"].dtype == np.float32

    @hypothesis.given(
        value=json_values(),
        context=json_values(),
        method=st.sampled_from(["classify", "regress"]),
    )
    def test_any_example(self, value, context, method):
        document = {"examples": value, "context": context}
        try:
            found = json_codec.examples_in(document, method)
        except TensorFlowError as e:
            assert e.code == 3
            return
        for example in found:
            tf.train.Example.FromString(example)

    @hypothesis.given(st.binary(max_size=50))
    def test_any_bytes(self, body):
        try:
            assert isinstance(json_codec.parse_object(body), dict)
        except TensorFlowError as e:
            assert e.code == 3

    @hypothesis.given(
        rows=st.lists(
            st.lists(st.floats(width=32), min_size=2, max_size=2), min_size=1
        )
    )
    def test_floats_come_back(self, rows):
        array = np.array(rows, "float32")
        document = json_codec.predict_answer({"y": array}, True)
        text = json.dumps(document)
        back = json.loads(text)["predictions"]
        np.testing.assert_array_equal(np.array(back, "float32"), array)


@pytest.mark.parametrize(
    "document",
    [
        {"instances": [{"exclude_ids": [1, 2]}, {"exclude_ids": [3]}]},
        {"inputs": {"exclude_ids": [[1, 2], [3]]}},
    ],
)
def test_ids_of_filters_must_be_padded(document):
    info = meta_graph_pb2.TensorInfo(dtype=types_pb2.DT_INT64)
    message = "size: 1 .*Pad the rows of exclude_ids with -1"
    with pytest.raises(TensorFlowError, match=message):
        json_codec.predict_inputs(document, {"exclude_ids": info})
