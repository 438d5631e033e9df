"""A client that sends bytes as they are, and tells how a connection ended."""

import socket
from typing import NamedTuple


class Answer(NamedTuple):
    status: int
    body: bytes
    is_last: bool


class NoAnswer(Exception):
    """The connection ended without a whole answer.

    Attributes:
        is_safe: bool, whether it was kept alive from an earlier request and
            no byte came: the server had ended it, and has not read the
            request. Any client tries again.
        is_new: bool, whether it was a new one, reset before a byte came: what
            the system does with those that nobody accepted when a port closes.
    """

    def __init__(self, reason, is_safe, is_new):
        super().__init__(reason)
        self.is_safe, self.is_new = is_safe, is_new


class RawClient:
    """One connection, made anew where the server ended it."""

    def __init__(self, port, timeout=60.0):
        self._address = "127.0.0.1", port
        self._timeout = timeout
        self._socket = None

    def ask(self, data):
        """The `Answer` to the request that is in `data`."""
        is_reused = self._socket is not None
        if not is_reused:
            self._socket = socket.create_connection(
                self._address, self._timeout
            )
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        read = bytearray()
        try:
            self._socket.sendall(data)
            answer = self._read(read)
        except OSError as e:
            self.close()
            is_reset = isinstance(e, ConnectionResetError)
            raise NoAnswer(
                repr(e),
                is_safe=is_reused and not read,
                is_new=is_reset and not is_reused and not read,
            ) from e
        if answer.is_last:
            self.close()
        return answer

    def _read(self, read):
        while (end := read.find(b"\r\n\r\n")) < 0:
            self._receive(read)
        request, *lines = bytes(read[:end]).split(b"\r\n")
        fields = dict(line.lower().split(b": ", 1) for line in lines)
        end += 4 + int(fields[b"content-length"])
        while len(read) < end:
            self._receive(read)
        if len(read) != end:
            raise ConnectionError("More bytes came than one answer has.")
        body = bytes(read[end - int(fields[b"content-length"]) :])
        is_last = fields.get(b"connection") == b"close"
        return Answer(int(request.split()[1]), body, is_last)

    def _receive(self, read):
        part = self._socket.recv(1 << 16)
        if not part:
            raise ConnectionError("The server ended the connection.")
        read += part

    def close(self):
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def request(method, path, body=b"", fields=()):
    """The bytes of a request."""
    lines = [f"{method} {path} HTTP/1.1", "Host: a", *fields]
    if body or method == "POST":
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body
