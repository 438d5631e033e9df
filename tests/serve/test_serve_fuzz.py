"""The server under odd requests, and under load; see fuzz_server/."""

import collections
import json
import socket
import struct
import threading

import pytest

from tests.fuzz_server import bodies
from tests.fuzz_server.raw_client import Answer
from tests.fuzz_server.raw_client import NoAnswer
from tests.fuzz_server.raw_client import RawClient
from tests.fuzz_server.raw_client import request
from tests.support.serving_cases import needs_grpc


def test_bodies(server):
    assert bodies.run(server.rest.port, 600, seed=7) == []


def test_they_are_of_all_kinds():
    cases = [bodies.make(7, number) for number in range(600)]
    counts = collections.Counter(case.status for case in cases)
    assert counts[200] > 100 and counts[400] > 150
    assert {404, 405, 413, 415, 431, 501} <= set(counts)


@pytest.mark.parametrize(
    "answer, is_right",
    [
        (Answer(200, b'{"predictions": [1, 2]}', False), True),
        (Answer(200, b'{"outputs": {"ids": [1, 2]}}', False), True),
        (Answer(200, b'{"predictions": [1]}', False), False),
        (Answer(500, b'{"error": "no"}', False), False),
        (Answer(400, b'{"error": "no"}', False), False),
    ],
)
def test_wrong_answers_are_seen(answer, is_right):
    assert bodies.is_right(bodies.Case(b"", 200, 2), answer) is is_right


def test_long_errors_are_seen():
    answer = Answer(400, b'{"error": "%s"}' % (b"x" * 2_000), False)
    assert not bodies.is_right(bodies.Case(b"", 400, None), answer)


@pytest.mark.parametrize("is_own", [True, False])
def test_answers_of_other_rows_are_seen(is_own, monkeypatch):
    load = pytest.importorskip("tests.fuzz_server.load")
    told = load.Load.__new__(load.Load)
    told.counts, told.lost = collections.Counter(), []
    told._lock, told._is_stopping = threading.Lock(), False
    scores = [0.5, 0.25] if is_own else [0.5, 0.2501]
    body = json.dumps({"predictions": [{"scores": scores}]}).encode()
    told._judge(Answer(200, body, False), [0.5, 0.25])
    assert (told.answered, len(told.lost)) == ((1, 0) if is_own else (0, 1))


@needs_grpc
def test_calls(server):
    from tests.fuzz_server import calls

    wrong, counts = calls.run(server.grpc.port, 400, seed=7)
    assert wrong == []
    assert min(counts[code] for code in ("OK", "INVALID_ARGUMENT")) > 20


@pytest.mark.parametrize("is_kept_alive", [False, True])
def test_a_client_tells_how_a_connection_ended(is_kept_alive):
    """Reset before a byte of an answer, the first one or the second."""
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = RawClient(listener.getsockname()[1])

        def serve():
            one, _ = listener.accept()
            one.setsockopt(  # reset where it is closed
                socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
            )
            for told in [answer] * is_kept_alive:
                one.recv(1 << 16)
                one.sendall(told)
            one.recv(1 << 16)
            one.close()

        thread = threading.Thread(target=serve)
        thread.start()
        asked = request("GET", "/")
        if is_kept_alive:
            assert client.ask(asked).status == 200
        with pytest.raises(NoAnswer, match="ConnectionReset") as told:
            client.ask(asked)
        thread.join()
    assert told.value.is_safe == is_kept_alive
    assert told.value.is_new != is_kept_alive


@needs_grpc
@pytest.mark.parametrize(
    "seconds", [2, pytest.param(60, marks=pytest.mark.slow)]
)
def test_load(seconds, served_models, tmp_path):
    """Versions come, break and go; SIGTERM; the command line, too."""
    from tests.fuzz_server.load import Load

    load = Load(served_models, tmp_path / "served")
    load.run(seconds)
    assert load.lost == []
    # Connections that nobody had accepted when the port closed.
    assert load.counts["connections reset after TERM"] <= 2
    assert load.counts["answered over REST"] > 500
    assert load.counts["answered over gRPC"] > 50
    # The versions that come, and what may stay of a request.
    assert load.growth < 40e6 + 200 * load.answered
    # All that it prints is for its user.
    assert (load.status, load.errors) == (0, "")
    assert load.seconds < 10.0
    assert "for development" in load.printed[0]
    wanted = [
        "numbers version 1 AVAILABLE",
        "numbers version 2 AVAILABLE",
        "numbers version 3 did not load; the next try is",
        "numbers version 3 AVAILABLE",
        "numbers version 4 AVAILABLE",
        "numbers version 4 unloaded",
        "numbers version 5 did not load; the next try is",
        "Stopped.",
    ]
    printed = iter(load.printed)
    assert all(any(line.startswith(x) for line in printed) for x in wanted)
