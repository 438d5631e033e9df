"""Which status is right for a body: written from the protocol's rules.

It checks a document against the shapes that the models have, from the outside
in; the server's codec finds the shape of any lists first.
"""

import json
import re
from typing import NamedTuple

_BASE64 = re.compile(
    r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?"
)
_LARGEST = (2 - 2**-23) * 2.0**127


class Input(NamedTuple):
    """An input: its type, its sizes after the batch, a rule for its rows."""

    kind: str
    sizes: tuple = ()
    rule: object = None


# The models of serving_cases.py.
INPUTS = {
    "numbers": {"x": Input("float", (3,))},
    "words": {"text": Input("string")},
    "pairs": {
        "a": Input("float", (2,)),
        # It gathers from 4 rows; Keras counts negative ones from the end.
        "b": Input("int", (), lambda value: -4 <= value < 4),
    },
}
_SIGNATURES = {"", "serving_default", "embed"}


def is_bytes(value):
    return (
        isinstance(value, dict)
        and set(value) == {"b64"}
        and isinstance(value["b64"], str)
    )


def _is_text(value):
    return isinstance(value, str) and not re.search("[\ud800-\udfff]", value)


def is_leaf(value, kind):
    """Whether a value of JSON is one of a type."""
    if kind == "string":
        if is_bytes(value):
            return bool(_BASE64.fullmatch(value["b64"]))
        return _is_text(value)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    if kind == "int":
        return isinstance(value, int) and -(2**63) <= value < 2**63
    if isinstance(value, int):
        return abs(value) < 2**24  # Each one is a float32.
    return not _LARGEST < abs(value) < float("inf")


def _is_row(value, wanted, sizes):
    if not sizes:
        is_right = is_leaf(value, wanted.kind)
        return is_right and (wanted.rule is None or wanted.rule(value))
    if not isinstance(value, list) or len(value) != sizes[0]:
        return False
    return all(_is_row(part, wanted, sizes[1:]) for part in value)


def _rows(values, wanted):
    """How many rows a list has, or None if they are not `wanted`'s."""
    if not isinstance(values, list) or (wanted.sizes and not values):
        return None
    if not all(_is_row(value, wanted, wanted.sizes) for value in values):
        return None
    return len(values)


def _is_named(value):
    return isinstance(value, dict) and not is_bytes(value)


def parsed(body):
    """The object that is in a body, or None."""
    try:
        document = json.loads(body.decode("utf-8"))
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None


def predict(model, body):
    """`(status, rows)` of a predict request with this body."""
    document, infos = parsed(body), INPUTS[model]
    if document is None or ("inputs" in document) == ("instances" in document):
        return 400, None
    key = document.get("signature_name", "")
    if not isinstance(key, str) or key not in _SIGNATURES:
        return 400, None
    if "instances" in document:
        count = _rows_of_instances(document["instances"], infos)
    else:
        count = _rows_of_inputs(document["inputs"], infos)
    return (400, None) if count is None else (200, count)


def _rows_of_instances(rows, infos):
    if not isinstance(rows, list) or not rows:
        return None
    if not _is_named(rows[0]):
        if len(infos) > 1 or any(map(_is_named, rows)):
            return None
        return _rows(rows, *infos.values())
    if not all(_is_named(row) and set(row) == set(infos) for row in rows):
        return None
    return _common(
        _rows([row[name] for row in rows], wanted)
        for name, wanted in infos.items()
    )


def _rows_of_inputs(value, infos):
    if not _is_named(value):
        return _rows(value, *infos.values()) if len(infos) == 1 else None
    if not set(infos) <= set(value):
        return None
    return _common(_rows(value[k], wanted) for k, wanted in infos.items())


def _common(counts):
    counts = set(counts)
    return counts.pop() if len(counts) == 1 else None


FEATURES = {"numbers": ("x", float, 3), "words": ("text", bytes, 1)}


def classify(model, body):
    """`(status, rows)` of a classify request with this body."""
    document = parsed(body)
    if document is None or document.get("signature_name") != "classify":
        return 400, None
    context = _features(document.get("context", {}))
    examples = document.get("examples")
    if context is None or not isinstance(examples, list) or not examples:
        return 400, None
    name, kind, size = FEATURES[model]
    for example in map(_features, examples):
        if example is None:
            return 400, None
        found = {**context, **example}.get(name, [])
        if found != [kind] * size:
            return 400, None
    return 200, len(examples)


def _features(value):
    """Types of the values of each feature, or None."""
    if not isinstance(value, dict) or not all(map(_is_text, value)):
        return None
    found = {}
    for name, content in value.items():
        content = content if isinstance(content, list) else [content]
        found[name] = [_kind(item) for item in content]
        if None in found[name] or len(set(found[name])) > 1:
            return None
    return found


def _kind(item):
    if is_bytes(item) or isinstance(item, str):
        return bytes if is_leaf(item, "string") else None
    if isinstance(item, (bool, int)):
        return int if is_leaf(int(item), "int") else None
    if isinstance(item, float):
        return float if is_leaf(item, "float") else None
    return None
