"""Requests of REST, most of them wrong, each with the right status."""

import gzip
import json
import random
from typing import NamedTuple

from tests.fuzz_server import oracle
from tests.fuzz_server.raw_client import NoAnswer
from tests.fuzz_server.raw_client import RawClient
from tests.fuzz_server.raw_client import request

_NAMES = ["x", "text", "a", "b", "b64", "\ud800", "y" * 300]
_LEAVES = [
    *[None, True, False, 0, 1, 3, 4, -1, 2**24 - 1, 2**24, 2**63, -(2**63)],
    *[0.5, -2.5, 1e38, 3.5e38, 1e308, float("inf"), float("nan"), 10**400],
    *["", "nails", "\u00e9", "\ud800", "a" * 300, "YQ=="],
    *[{"b64": "YQ=="}, {"b64": "Y"}, {"b64": 1}, {"b64": "YQ==", "x": 1}],
]


class Case(NamedTuple):
    """A request, its right status, and the rows that its answer has."""

    data: bytes
    status: int
    rows: int | None


def _leaf(rng, kind):
    if rng.random() < 0.03:
        return rng.choice(_LEAVES)
    if kind == "float":
        return rng.choice([rng.randrange(-9, 9), rng.uniform(-9, 9)])
    return rng.randrange(4) if kind == "int" else rng.choice(["a", "nails"])


def _row(rng, wanted):
    value = [_leaf(rng, wanted.kind) for _ in range(sum(wanted.sizes) or 1)]
    if rng.random() < 0.02:
        value = value[:-1] or [value]
    return value if wanted.sizes else value[0]


def _anything(rng, depth=0):
    kind = rng.random()
    if depth > 4 or kind < 0.4:
        return rng.choice(_LEAVES)
    count = rng.randrange(4)
    if kind < 0.75:
        return [_anything(rng, depth + 1) for _ in range(count)]
    names = rng.sample(_NAMES, count)
    return {name: _anything(rng, depth + 1) for name in names}


def _predict_document(rng, infos):
    count = rng.randrange(1, 5)
    columns = {
        name: [_row(rng, wanted) for _ in range(count)]
        for name, wanted in infos.items()
    }
    rows = [dict(zip(columns, row)) for row in zip(*columns.values())]
    if len(infos) == 1 and rng.random() < 0.4:
        rows = columns = next(iter(columns.values()))
    key = rng.choice(["instances", "inputs"])
    document = {key: rows if key == "instances" else columns}
    _disturb(rng, document, ["instances", "inputs", "signature_name", "z"])
    if rng.random() < 0.3:
        document["signature_name"] = rng.choice(
            ["", "serving_default", "embed", "embed", "no", 1, None]
        )
    return document


def _classify_document(rng, model):
    name, kind, size = oracle.FEATURES[model]
    value = [rng.uniform(-9, 9) if kind is float else "a" for _ in range(size)]
    document = {"signature_name": "classify", "examples": []}
    for _ in range(rng.randrange(1, 4)):
        document["examples"].append({name: list(value)})
        _disturb(rng, document["examples"][-1], [name, "y", "b64"])
    if rng.random() < 0.2:
        document["context"] = {"other": _anything(rng, 3)}
    _disturb(rng, document, ["signature_name", "examples", "context"])
    return document


def _disturb(rng, document, keys):
    """Perhaps puts anything in a place, or takes it away."""
    kind = rng.random()
    if kind < 0.15:
        document[rng.choice(keys)] = _anything(rng)
    elif kind < 0.2 and document:
        del document[rng.choice(sorted(document))]


def _mutated(rng, body):
    """Bytes of a body with a few changes."""
    data = bytearray(body)
    for _ in range(rng.randrange(1, 4)):
        at = rng.randrange(len(data) + 1)
        kind = rng.randrange(4)
        if kind == 0:
            del data[at : at + rng.randrange(1, 9)]
        elif kind == 1:
            data[at:at] = rng.choice(
                [b"[", b"]", b"{", b'"', b",", b"\xff", b"\\", b"NaN", b"-"]
            )
        elif kind == 2:
            data[at:at] = rng.randbytes(rng.randrange(1, 5))
        else:
            end = at + rng.randrange(1, 9)
            data[at:at] = data[at:end]
    return bytes(data)


def _nested(rng):
    """Lists in lists, up to far more levels than an array has."""
    levels = rng.choice([1, 2, 3, 31, 32, 33, 63, 64, 65, 66, 254, 255, 5_000])
    open_end = rng.choice([(b"[", b"]"), (b'{"x":', b"}")])
    begin, end = (part * levels for part in open_end)
    key = rng.choice([b"instances", b"inputs"])
    return b'{"' + key + b'":' + begin + b"1" + end + b"}"


def _body(rng, model, is_predict):
    kind = rng.random()
    if is_predict and kind < 0.05:
        return _nested(rng)
    if kind < 0.1:
        return rng.randbytes(rng.randrange(40))
    if is_predict:
        document = _predict_document(rng, oracle.INPUTS[model])
    else:
        document = _classify_document(rng, model)
    if kind < 0.15:
        document = _anything(rng)
    body = json.dumps(document, ensure_ascii=rng.random() < 0.5)
    body = body.encode("utf-8", "surrogatepass")
    return _mutated(rng, body) if rng.random() < 0.3 else body


def make(seed, number):
    """The `Case` of this number."""
    rng = random.Random(f"{seed} {number}")
    is_predict = rng.random() < 0.75
    model = rng.choice(sorted(oracle.INPUTS if is_predict else oracle.FEATURES))
    body = _body(rng, model, is_predict)
    status, rows = (oracle.predict if is_predict else oracle.classify)(
        model, body
    )
    path = f"/v1/models/{model}" + rng.choice(["", "", "", "/versions/1"])
    path += ":predict" if is_predict else ":classify"
    if rng.random() < 0.85:
        return Case(request("POST", path, body), status, rows)
    return _odd_request(rng, path, body, status, rows)


def _odd_request(rng, path, body, status, rows):
    """A head that is odd, too."""
    packed = gzip.compress(body)
    length = f"Content-Length: {len(body)}"
    wrong = path.replace("models/", "models/" + "n" * rng.randrange(1, 2_000))
    version = path.partition(":")[0] + "/versions/"
    gzip_field = ["Content-Encoding: gzip"]
    huge = (
        f"POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: {10**11}\r\n\r\n"
    )
    choices = [
        (request("POST", path, packed, gzip_field), status, rows),
        (request("POST", path, packed[:-1], gzip_field), 400, None),
        (request("POST", path, b"x" + body, gzip_field), 400, None),
        (request("POST", path, body, ["Content-Encoding: br"]), 415, None),
        (request("POST", path, body, [length]), 400, None),
        (request("POST", path, body, ["Content-Length: 0"]), 400, None),
        (request("POST", path, body, [f"X: x{60_000 * ' '}x"]), status, rows),
        (huge.encode("latin-1"), 413, None),
        (request("POST", path, body, ["no colon"]), 400, None),
        (request("POST", path, body, [" folded: x"]), 400, None),
        (request("POST", path, body, ["Bad name: x"]), 400, None),
        (request("POST", path, body, ["Host: b"]), 400, None),
        (request("POST", path, body, ["a: b"] * 200), 431, None),
        (
            request("POST", path, body, ["Transfer-Encoding: chunked"]),
            501,
            None,
        ),
        (request("PUT", path, body), 405, None),
        (request("GET", path, b"x" + body), 400, None),
        (request("GET", path), 400, None),
        (request("POST", wrong, body), 404, None),
        (request("POST", path + "x", body), 400, None),
        (request("GET", version[: -len("/versions/")]), 200, None),
        (request("GET", "/v1/models/numbers/metadata"), 200, None),
        (request("GET", "/v1/models/numbers/versions/9"), 404, None),
        (request("GET", "/v1/models/numbers/versions/" + "9" * 19), 400, None),
        (request("GET", "/v1/models/" + "%ff%00" * 9), 404, None),
        (request("GET", "/v1/" + "." * rng.randrange(3_000)), 400, None),
    ]
    return Case(*rng.choice(choices))


def is_right(case, answer):
    """Whether an answer has the status, the rows and the form it must."""
    if answer.status != case.status:
        return False
    document = json.loads(answer.body)
    if answer.status != 200:
        error = document.pop("error")
        return not document and isinstance(error, str) and len(error) < 1_100
    if case.rows is None:
        return True
    (value,) = document.values()
    while isinstance(value, dict):  # Of `inputs` with several outputs.
        value = next(iter(value.values()))
    return len(value) == case.rows


def run(port, count, seed, note=None):
    """Sends `count` cases; a list of those that were answered wrongly.

    Args:
        note: function that is called with the number of each case.
    """
    client, wrong = RawClient(port), []
    for number in range(count):
        case = make(seed, number)
        try:
            answer = client.ask(case.data)
        except NoAnswer as e:
            wrong.append((number, case, e))
            continue
        if not is_right(case, answer):
            wrong.append((number, case, answer))
        if note is not None:
            note(number)
    client.close()
    return wrong
