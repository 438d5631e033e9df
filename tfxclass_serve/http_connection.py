"""A connection of an HTTP client, and its requests one after the other."""

import contextlib
import email.utils
import http
import socket
import time
import zlib

from tfxclass_serve import http_head
from tfxclass_serve.http_head import Refused

_CHUNK = 1 << 16
_METHODS = ("GET", "POST")


class Connection:
    """Serves one client.

    Attributes:
        is_waiting: bool, whether no whole request is there: nothing is done
            that the client would not know of.
        is_idle: bool, whether not even the first byte of one is there.
        since: when it began to wait, of `time.monotonic`.
        is_evicted: bool, whether another one has its place.
    """

    def __init__(self, server, client):
        self._server = server
        self._socket = client
        self._data = bytearray()
        self._wait()

    def _wait(self):
        self.is_waiting, self.is_idle, self.is_evicted = True, True, False
        self.since = time.monotonic()

    def close(self):
        self._socket.close()

    def shutdown(self, how):
        """Wakes the thread that reads or writes."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(how)

    def serve(self):
        """Answers requests until one of the two wants no more."""
        is_open = True
        while is_open:
            try:
                is_open = self._serve_one()
            except Refused as e:
                self.refuse(e.status, str(e))
                self._linger()
                is_open = False

    def _serve_one(self):
        data, is_late = self._read_head()
        if data is None:
            return False
        head = http_head.parse(data)
        if head.method not in _METHODS:
            raise Refused(405, "The method must be GET or POST.")
        length = http_head.body_length(head, self._server.max_request_bytes)
        if is_late:
            raise Refused(503, "The server is about to stop.")
        body = _inflated(head, self._read_body(head, length), self._server)
        with self._server.changed:
            if self.is_evicted:
                return False
            self.is_waiting = False
        answer = self._server.answer(head.method, head.target, body)
        is_open = not (head.is_last or self._server.is_draining)
        self._send(*answer, is_open)
        with self._server.changed:
            self._wait()
        return is_open

    def _read_head(self):
        """`(bytes, whether it began while the server stops)`; None: no more."""
        deadline = self.since + self._server.timeout
        is_late, is_begun, searched = False, False, 0
        while True:
            while self._data.startswith(b"\r\n"):
                del self._data[:2]
            if self._data and not is_begun:
                is_begun, is_late = True, self._server.is_draining
                self.is_idle = False
                deadline = time.monotonic() + self._server.header_timeout
            end = http_head.end_of(self._data, searched)
            searched = len(self._data)
            if end is not None:
                head = bytes(self._data[:end])
                del self._data[:end]
                return head, is_late
            try:
                part = self._receive(deadline)
            except TimeoutError as e:
                if not is_begun:
                    return None, False
                raise Refused(408, "The request came too slowly.") from e
            if not part:
                return None, False
            self._data += part

    def _receive(self, deadline):
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self._socket.settimeout(left)
        return self._socket.recv(_CHUNK)

    def _read_body(self, head, length):
        if head.fields.get("expect", "").lower() == "100-continue":
            self._socket.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        deadline = time.monotonic() + self._server.timeout
        while len(self._data) < length:
            try:
                part = self._receive(deadline)
            except TimeoutError as e:
                raise Refused(408, "The request came too slowly.") from e
            if not part:
                raise Refused(400, "The request ended early.")
            self._data += part
        body = bytes(self._data[:length])
        del self._data[:length]
        return body

    def refuse(self, status, message):
        """Answers, and says that it is the last answer."""
        with contextlib.suppress(OSError):
            self._send(*self._server.refuse(status, message), False)

    def _send(self, status, kind, body, is_open):
        lines = [
            f"HTTP/1.1 {status} {_phrase(status)}",
            f"Date: {email.utils.formatdate(usegmt=True)}",
            f"Content-Type: {kind}",
            f"Content-Length: {len(body)}",
            "X-Content-Type-Options: nosniff",
        ]
        if status == 405:
            lines.append("Allow: " + ", ".join(_METHODS))
        if not is_open:
            lines.append("Connection: close")
        head = "\r\n".join([*lines, "", ""]).encode("latin-1")
        self._socket.settimeout(self._server.timeout)
        # They leave as one packet.
        self._socket.sendall(head + body)

    def _linger(self):
        """Lets the client read: a close with bytes unread takes all back."""
        deadline = time.monotonic() + 1.0
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)
            while self._receive(deadline):
                pass


def _phrase(status):
    try:
        return http.HTTPStatus(status).phrase
    except ValueError:
        return "Error"


def _inflated(head, body, server):
    encoding = head.fields.get("content-encoding", "identity").lower()
    if encoding == "identity":
        return body
    if encoding not in ("gzip", "x-gzip"):
        raise Refused(415, "Content-Encoding must be gzip, or none.")
    most = server.max_request_bytes
    reader = zlib.decompressobj(wbits=31)
    try:
        # One more byte tells that it is too much.
        inflated = reader.decompress(body, most + 1)
    except zlib.error as e:
        raise Refused(400, f"The body is not gzip: {e}") from e
    if len(inflated) > most:
        raise Refused(413, f"A request may have {most} bytes when inflated.")
    if not reader.eof or reader.unused_data:
        raise Refused(400, "The body is not one whole gzip.")
    return inflated
