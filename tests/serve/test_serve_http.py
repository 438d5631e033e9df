"""HTTP: what is refused, deadlines, and clients that misbehave."""

import collections
import gzip
import http.client
import json
import socket
import threading
import time

import pytest

from tests.fuzz_server.raw_client import NoAnswer
from tests.fuzz_server.raw_client import RawClient
from tests.fuzz_server.raw_client import request as raw_request
from tests.support.serving_cases import X
from tests.support.serving_cases import call
from tests.support.serving_cases import predict
from tests.support.serving_cases import raw
from tests.support.serving_cases import read_all
from tfxclass_serve import http_head
from tfxclass_serve.http_server import HttpServer

POST = b"POST /v1/models/numbers:predict HTTP/1.1\r\nHost: a\r\n"
GET = b"GET /v1/models/numbers HTTP/1.1\r\nHost: a\r\n"
BODY = json.dumps({"instances": X.tolist()}).encode()


@pytest.fixture
def small():
    """A server of 3 places that answers every request with its body."""
    server = HttpServer(
        lambda method, target, body: (200, "text/plain", body),
        lambda status, message: (status, "text/plain", message.encode()),
        ("127.0.0.1", 0),
        timeout=5.0,
        header_timeout=1.0,
        max_connections=3,
    )
    server.start()
    yield server
    server.close(grace=1.0, linger=0.0)


def connect(server):
    address = "127.0.0.1", server.port
    return socket.create_connection(address, timeout=10)


@pytest.mark.parametrize(
    "data, status",
    [
        (POST + b"Content-Length: -1\r\n\r\n{}", 400),
        (POST + b"Content-Length: +2\r\n\r\n{}", 400),
        (POST + b"Content-Length: x\r\n\r\n{}", 400),
        (POST + b"Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}", 400),
        (POST + b"Content-Length: 2\r\nContent-Length: 9\r\n\r\n{}", 400),
        (POST + b"Content-Length: 2, 2\r\n\r\n{}", 400),
        (POST + b"Content-Length : 2\r\n\r\n{}", 400),
        (POST + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 501),
        (POST + b"Content-Length: 100001\r\n\r\n", 413),
        (GET + b"Content-Length: 2\r\n\r\n{}", 400),
        (GET + b"no colon\r\n\r\n", 400),
        (GET + b"A: b\r\n folded\r\n\r\n", 400),
        (GET + b": b\r\n\r\n", 400),
        (GET + b"A: \x00\r\n\r\n", 400),
        (GET + b"A: b\n\r\n\r\n", 400),
        (GET + b"Host: b\r\n\r\n", 400),
        (GET + b"A: b\r\n" * 101 + b"\r\n", 431),
        (GET + b"A: " + b"b" * 70_000, 431),
        (b"GET / HTTP/1.1\r\n\r\n", 400),
        (b"GET / HTTP/1.1\n\n", 400),
        (b"GET /\r\n\r\n", 400),
        (b"GET  / HTTP/1.1\r\n\r\n", 400),
        (b"\x00\xff\r\n\r\n", 400),
        (b"GET / HTTP/2.0\r\n\r\n", 505),
        (b"PUT / HTTP/1.1\r\nHost: a\r\n\r\n", 405),
    ],
)
def test_refused_and_closed(server, data, status):
    # The second request is not answered: the first may have held it.
    answer = raw(server, data + GET + b"\r\n")
    assert answer.startswith(f"HTTP/1.1 {status} ".encode()), answer
    assert answer.count(b"HTTP/1.1") == 1
    assert b"\r\nConnection: close\r\n" in answer
    assert list(json.loads(answer.partition(b"\r\n\r\n")[2])) == ["error"]


def test_several_requests_in_one_packet(server):
    length = b"Content-Length: %d\r\n\r\n" % len(BODY)
    answer = raw(
        server,
        b"\r\n"
        + GET
        + b"\r\n"
        + POST
        + length
        + BODY
        + GET
        + b"\r\n"
        + POST
        # The last: a header that names two options.
        + b"Connection: x, Close\r\n"
        + length
        + BODY,
    )
    assert answer.count(b"HTTP/1.1 200 OK\r\n") == 4


def test_http_1_0_ends(server):
    answer = raw(server, b"GET /v1/models/numbers HTTP/1.0\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")


def test_expect_continue(server):
    with socket.create_connection(("127.0.0.1", server.rest.port)) as one:
        one.settimeout(10)
        head = b"Expect: 100-continue\r\nConnection: close\r\n"
        one.sendall(POST + head + b"Content-Length: %d\r\n\r\n" % len(BODY))
        assert one.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        one.sendall(BODY)
        assert read_all(one).startswith(b"HTTP/1.1 200 OK\r\n")


class TestGzip:
    def ask(self, server, body, encoding="gzip"):
        headers = {"Content-Encoding": encoding}
        path = "/v1/models/numbers:predict"
        return call(server, "POST", path, body, headers)

    def test_it_is_inflated(self, server):
        plain = predict(server, {"instances": X.tolist()})
        assert plain[0] == 200
        assert self.ask(server, gzip.compress(BODY)) == plain
        assert self.ask(server, BODY, "identity") == plain

    @pytest.mark.parametrize(
        "body, encoding, status, message",
        [
            (BODY, "gzip", 400, "is not gzip"),
            (b"", "gzip", 400, "not one whole gzip"),
            (gzip.compress(BODY)[:-9], "gzip", 400, "not one whole gzip"),
            (gzip.compress(BODY) * 2, "gzip", 400, "not one whole gzip"),
            # A thousand times as much, inflated.
            (gzip.compress(bytes(10**8)), "gzip", 413, "when inflated"),
            (BODY, "br", 415, "must be gzip"),
            (gzip.compress(BODY), "gzip, gzip", 415, "must be gzip"),
        ],
    )
    def test_refused(self, server, body, encoding, status, message):
        got, answer = self.ask(server, body, encoding)
        assert got == status and message in answer["error"]


class TestDeadlines:
    def test_a_slow_head(self, small):
        """A line now and then does not put the deadline off."""
        with connect(small) as one:
            one.sendall(b"GET / HTTP/1.1\r\n")
            begin, ended = time.monotonic(), threading.Event()

            def drip():
                while not ended.wait(0.1):
                    one.sendall(b"A: b\r\n")

            thread = threading.Thread(target=drip)
            thread.start()
            assert one.recv(100).startswith(b"HTTP/1.1 408 ")
            assert time.monotonic() - begin < 4.0
            ended.set()
            thread.join()

    def test_a_slow_body(self, server):
        answer = raw(server, POST + b"Content-Length: 9\r\n\r\n{")
        assert answer.startswith(b"HTTP/1.1 408 ")

    def test_a_client_that_ends_early(self, server):
        with socket.create_connection(("127.0.0.1", server.rest.port)) as one:
            one.sendall(POST + b"Content-Length: 9\r\n\r\n{")
            one.shutdown(socket.SHUT_WR)
            assert read_all(one).startswith(b"HTTP/1.1 400 ")
        assert call(server, "GET", "/v1/models/numbers")[0] == 200

    @pytest.mark.parametrize(
        "sent",
        [
            b"",
            b"GET / HTTP/1.1\r\n",
            b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
        ],
        ids=["nothing", "half a head", "no body", "kept alive"],
    )
    def test_waiting_clients_lock_nobody_out(self, small, sent):
        """Many more of them than there are places; the oldest one goes."""
        waiting = []
        for _ in range(20):
            one = connect(small)
            one.sendall(sent)
            waiting.append(one)
            time.sleep(0.005)
        begin = time.monotonic()
        with connect(small) as one:
            one.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            assert one.recv(100).startswith(b"HTTP/1.1 200 ")
        # Before any deadline.
        assert time.monotonic() - begin < 0.9
        for one in waiting:
            one.close()


def test_all_places_are_at_work(served_answer_gate):
    server, gate, begun = served_answer_gate
    clients = [connect(server) for _ in range(3)]
    for one in clients:
        one.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        assert begun.acquire(timeout=10)
    with connect(server) as one:
        answer = read_all(one)
        assert answer.startswith(b"HTTP/1.1 503 ")
        assert b"Too many connections." in answer
    gate.set()
    for one in clients:
        assert one.recv(100).startswith(b"HTTP/1.1 200 ")
        one.close()


@pytest.fixture
def served_answer_gate():
    """A server whose answers wait for `gate`, and what counts their begin."""
    gate, begun = threading.Event(), threading.Semaphore(0)

    def answer(method, target, body):
        begun.release()
        gate.wait(20)
        return 200, "text/plain", target.encode()

    server = HttpServer(
        answer,
        lambda status, message: (status, "text/plain", message.encode()),
        ("127.0.0.1", 0),
        max_connections=3,
    )
    server.start()
    yield server, gate, begun
    gate.set()
    server.close(grace=1.0, linger=0.0)


class TestStop:
    """A server that is to stop loses no request."""

    def close(self, server, **options):
        """Calls `close` in a thread; a function that waits for its result."""
        results = []
        thread = threading.Thread(
            target=lambda: results.append(server.close(**options))
        )
        thread.start()
        while not server.is_draining:
            time.sleep(0.001)

        def result():
            thread.join(20)
            return results[0]

        return result

    def test_what_is_under_way_is_answered(self, served_answer_gate):
        server, gate, begun = served_answer_gate
        with connect(server) as one:
            one.sendall(b"GET /one HTTP/1.1\r\nHost: a\r\n\r\n")
            assert begun.acquire(timeout=10)
            result = self.close(server, grace=10.0, linger=0.1)
            time.sleep(0.3)
            gate.set()
            answer = read_all(one)
        assert answer.startswith(b"HTTP/1.1 200 ") and answer.endswith(b"/one")
        assert b"\r\nConnection: close\r\n" in answer
        assert result() is True
        with pytest.raises(OSError):
            connect(server)

    def test_a_body_that_is_on_its_way(self, small):
        with connect(small) as one:
            one.sendall(
                b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nab"
            )
            time.sleep(0.1)
            result = self.close(small, grace=10.0, linger=0.1)
            time.sleep(0.4)
            one.sendall(b"cd")
            answer = read_all(one)
        assert answer.startswith(b"HTTP/1.1 200 ") and answer.endswith(b"abcd")
        assert result() is True

    def test_kept_alive_connections_are_told(self, small):
        client = http.client.HTTPConnection("127.0.0.1", small.port)
        client.request("POST", "/", b"a")
        assert client.getresponse().read() == b"a"
        result = self.close(small, grace=10.0, linger=5.0)
        client.request("POST", "/", b"b")
        response = client.getresponse()
        assert response.status == 503
        assert response.getheader("Connection") == "close"
        assert b"about to stop" in response.read()
        client.close()
        assert result() is True

    def test_those_that_stay_silent_are_closed(self, small):
        begin = time.monotonic()
        with connect(small) as one:
            time.sleep(0.1)
            result = self.close(small, grace=20.0, linger=0.2)
            assert one.recv(100) == b""
        assert result() is True
        assert time.monotonic() - begin < 5.0

    def test_many_clients_at_that_moment(self):
        """16 that ask without a pause: each request has its answer."""
        counts = collections.Counter()
        for _ in range(5):
            server = HttpServer(
                lambda method, target, body: (200, "text/plain", body),
                lambda status, told: (status, "text/plain", told.encode()),
                ("127.0.0.1", 0),
            )
            server.start()
            clients = [
                threading.Thread(target=ask_to_the_end, args=[server, counts])
                for _ in range(16)
            ]
            for one in clients:
                one.start()
            time.sleep(0.05)
            assert server.close(grace=10.0) is True
            for one in clients:
                one.join()
        assert set(counts) == {200, 503}
        assert counts[503] == 5 * 16 and counts[200] > 100

    def test_the_grace_ends(self, served_answer_gate):
        server, _, begun = served_answer_gate
        with connect(server) as one:
            one.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            assert begun.acquire(timeout=10)
            begin = time.monotonic()
            assert server.close(grace=0.3) is False
            assert time.monotonic() - begin < 3.0
            assert one.recv(100) == b""


def ask_to_the_end(server, counts):
    """Asks until a 503, which must be the first answer that is no 200."""
    client = RawClient(server.port)
    status = None
    while status != 503:
        try:
            status = client.ask(raw_request("POST", "/", b"abc")).status
        except (NoAnswer, OSError) as e:
            counts[repr(e)] += 1
            return
        counts[status] += 1


def test_a_head_of_any_bytes_is_refused_or_read():
    """Nothing but `Refused` is raised, whatever the bytes."""
    import numpy as np

    rng = np.random.default_rng(0)
    pieces = [b"GET / HTTP/1.1", b"\r\n", b"\n", b"A: b", b":", b" ", b"\xff"]
    read = 0
    for _ in range(3_000):
        chosen = rng.integers(len(pieces), size=rng.integers(1, 12))
        data = b"".join(pieces[i] for i in chosen)
        data = b"GET / HTTP/1.1\r\nHost: a\r\n" + data + b"\r\n\r\n"
        try:
            head = http_head.parse(data[: http_head.end_of(data)])
        except http_head.Refused as e:
            assert e.status == 400
            continue
        read += 1
        assert head.method == "GET" and head.fields["host"] == "a"
    assert read > 50
