"""Requests and answers as the JSON of TensorFlow Serving's REST API."""

import json

import tensorflow as tf

from tfxclass_serve.errors import invalid
from tfxclass_serve.errors import short
from tfxclass_serve.json_values import decode_base64
from tfxclass_serve.json_values import encode
from tfxclass_serve.json_values import is_base64
from tfxclass_serve.json_values import show
from tfxclass_serve.json_values import to_array
from tfxclass_serve.json_values import to_float
from tfxclass_serve.json_values import to_integer
from tfxclass_serve.json_values import to_lists


def parse_object(body):
    """The object that is in the bytes `body`; NaN and Infinity are allowed."""
    if not body:
        raise invalid("JSON Parse error: The document is empty")
    try:
        document = json.loads(body.decode("utf-8"))
    except (ValueError, RecursionError) as e:
        raise invalid(f"JSON Parse error: {e}") from e
    if not isinstance(document, dict):
        raise invalid(f"JSON Value: {show(document)} Is not object")
    name = document.get("signature_name", "")
    if not isinstance(name, str):
        raise invalid(
            f"JSON Value: {show(document)} not formatted correctly. "
            "'signature_name' key must be a string value."
        )
    return document


def predict_inputs(document, infos):
    """`(inputs, is_rows)` of a predict request.

    Args:
        document: dict, the request.
        infos: dict of TensorInfo by input name.

    Returns:
        Dict of arrays, and whether the format is `instances`.
    """
    if "instances" in document and "inputs" in document:
        raise invalid(
            f"JSON Value: {show(document)} Not formatted correctly expecting "
            "only one of 'inputs' or 'instances' keys to exist"
        )
    if "instances" in document:
        return _rows(document["instances"], infos), True
    if "inputs" in document:
        return _columns(document["inputs"], infos), False
    raise invalid("Missing 'inputs' or 'instances' key")


def _is_named(value):
    return isinstance(value, dict) and not is_base64(value)


def _rows(instances, infos):
    if not isinstance(instances, list):
        raise invalid(
            f"JSON Value: {show(instances)} Excepting 'instances' to be an "
            "list/array"
        )
    if not instances:
        raise invalid("JSON Value: [] No values in 'instances' array")
    if not _is_named(instances[0]):
        (name,) = _only_name(infos, "instances is a plain list")
        for number, row in enumerate(instances):
            if _is_named(row):
                raise invalid(
                    "Expecting value/list but got object at item "
                    f"{number} of input list"
                )
        return {name: to_array(instances, infos[name], name)}
    for number, row in enumerate(instances):
        if not _is_named(row):
            raise invalid(
                f"Expecting object but got list at item {number} of input list"
            )
        if set(row) != set(infos):
            raise invalid(
                f"Failed to process element: {number} of 'instances' list. "
                f"JSON object: {show(row)} keys must be equal to: "
                f"{','.join(sorted(infos))}"
            )
    return {
        name: to_array([row[name] for row in instances], info, name)
        for name, info in infos.items()
    }


def _columns(inputs, infos):
    if not _is_named(inputs):
        (name,) = _only_name(infos, "inputs is a plain value/list")
        return {name: to_array(inputs, infos[name], name)}
    for name in infos:
        if name not in inputs:
            raise invalid(f"Missing named input: {name} in 'inputs' object.")
    return {
        name: to_array(inputs[name], info, name) for name, info in infos.items()
    }


def _only_name(infos, what):
    if len(infos) != 1:
        raise invalid(
            f"{what}, but expecting an object as multiple input tensors "
            "required as per tensorinfo_map"
        )
    return list(infos)


def predict_answer(answers, is_rows):
    """The response of a predict request, a dict."""
    values = {k: to_lists(x, k.endswith("_bytes")) for k, x in answers.items()}
    if not is_rows:
        only = next(iter(values.values()))
        return {"outputs": only if len(values) == 1 else values}
    sizes = {len(x) if x.ndim else None for x in answers.values()}
    if len(sizes) != 1 or None in sizes:
        raise invalid(
            "Outputs have no batch dimension, or ones of different sizes: ask "
            "with 'inputs' instead of 'instances'."
        )
    if len(values) == 1:
        return {"predictions": next(iter(values.values()))}
    rows = [dict(zip(values, row)) for row in zip(*values.values())]
    return {"predictions": rows}


def examples_in(document, method):
    """Serialised tf.Examples of a request, list of bytes.

    Args:
        method: str, `"classify"` or `"regress"`.
    """
    context = _example(document.get("context", {}))
    if "examples" not in document:
        raise invalid(
            f"JSON Value: {show(document)} When method is {method}, key "
            "'examples' is expected and was not found"
        )
    examples = document["examples"]
    if not isinstance(examples, list):
        raise invalid(
            f"JSON Value: {show(document)} Expecting 'examples' value to be "
            "an list/array"
        )
    if not examples:
        raise invalid(
            f"JSON Value: {show(document)} 'examples' value is an empty array"
        )
    found = []
    for value in examples:
        example = tf.train.Example()
        example.CopyFrom(context)
        example.MergeFrom(_example(value))
        found.append(example.SerializeToString())
    return found


def _example(value):
    if not isinstance(value, dict):
        raise invalid(
            f"Example must be JSON object but got JSON {type(value).__name__}"
        )
    example = tf.train.Example()
    for name, content in value.items():
        encode(name)
        feature = example.features.feature[name]
        for item in content if isinstance(content, list) else [content]:
            _add(item, name, feature)
    return example


def _add(value, name, feature):
    if is_base64(value):
        kind, value = "bytes_list", decode_base64(value["b64"])
    elif isinstance(value, str):
        kind, value = "bytes_list", encode(value)
    elif isinstance(value, (bool, int)):
        kind, value = "int64_list", to_integer(int(value), tf.int64)
    elif isinstance(value, float):
        kind, value = "float_list", to_float(value, tf.float32)
    else:
        raise invalid(
            f"Feature: {short(name)} has element with unexpected JSON type: "
            f"{show(value)}"
        )
    if feature.WhichOneof("kind") not in (None, kind):
        raise invalid(f"Unexpected element type in feature: {short(name)}")
    getattr(feature, kind).value.append(value)


def classify_answer(classes, scores):
    """The response of a classify request, a dict."""
    size = len(classes if classes is not None else scores)
    results = []
    for row in range(size):
        names = [] if classes is None else to_lists(classes[row])
        values = [] if scores is None else to_lists(scores[row])
        names = names or [""] * len(values)
        values = values or [0.0] * len(names)
        results.append([list(pair) for pair in zip(names, values)])
    return {"results": results}
