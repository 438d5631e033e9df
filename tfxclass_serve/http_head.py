"""Heads of HTTP requests, read strictly.

What two readers may understand in two ways is refused: by such requests one
client slips its own between the requests of another.
"""

import re
import typing

LONGEST = 1 << 16
_MOST_FIELDS = 100
_END = re.compile(rb"\r?\n\r?\n")
_TOKEN = r"([!#-'*+.0-9A-Z^-z|~-]+)"
_REQUEST = re.compile(_TOKEN + r" ([!-~\x80-\xff]+) HTTP/(\d)\.(\d)")
_NAME = re.compile(_TOKEN + ":")
# Of each there may be one.
_SINGLE = {"content-encoding", "content-length", "host", "transfer-encoding"}


class Refused(Exception):
    """A request that is refused, and the connection with it."""

    def __init__(self, status, message):
        super().__init__(message)
        self.status = status


class Head(typing.NamedTuple):
    """The head of a request.

    Attributes:
        method, target: str.
        fields: dict of values by name in lower case.
        is_last: bool, whether the client wants no other answer after this.
    """

    method: str
    target: str
    fields: dict
    is_last: bool


def end_of(data, searched=0):
    """Where the head in the bytes `data` ends, or None.

    Args:
        searched: int, so many bytes of `data` had no end before.
    """
    found = _END.search(data, max(searched - 3, 0))
    if found is None and len(data) <= LONGEST:
        return None
    if found is None or found.end() > LONGEST:
        raise Refused(431, f"A head may have {LONGEST} bytes.")
    return found.end()


def parse(data):
    """The `Head` that is in the bytes `data`.

    Raises:
        Refused: they are none.
    """
    request, *lines = data.decode("latin-1")[:-4].split("\r\n")
    found = _REQUEST.fullmatch(request)
    if not data.endswith(b"\r\n\r\n") or not found:
        raise Refused(400, "The request line is malformed.")
    method, target, major, minor = found.groups()
    if major != "1":
        raise Refused(505, "The HTTP version is not supported.")
    fields = _fields(lines)
    if minor != "0" and "host" not in fields:
        raise Refused(400, "The request has no Host.")
    options = {
        x.strip().lower() for x in fields.get("connection", "").split(",")
    }
    is_last = "close" in options or (
        minor == "0" and "keep-alive" not in options
    )
    target = target.encode("latin-1").decode("utf-8", errors="replace")
    return Head(method, target, fields, is_last)


def _fields(lines):
    if len(lines) > _MOST_FIELDS:
        raise Refused(431, f"A head may have {_MOST_FIELDS} fields.")
    fields = {}
    for line in lines:
        # What comes after the name is no pattern: its time would be quadratic.
        found = _NAME.match(line)
        if not found or re.search(r"[\x00-\x08\x0a-\x1f\x7f]", line):
            raise Refused(400, "A header line is malformed.")
        name, value = found.group(1).lower(), line[found.end() :].strip(" \t")
        if name in fields and name in _SINGLE:
            raise Refused(400, f"The header has {name} more than once.")
        both = (fields[name], value) if name in fields else (value,)
        fields[name] = ", ".join(both)
    return fields


def body_length(head, most):
    """Bytes of the body that follows; at most `most`.

    Raises:
        Refused: it is not said, too large, or may not be.
    """
    if "transfer-encoding" in head.fields:
        raise Refused(501, "Transfer-Encoding is not supported.")
    text = head.fields.get("content-length", "0")
    if not (text.isascii() and text.isdecimal()) or len(text) > 18:
        raise Refused(400, "Content-Length is not a number.")
    length = int(text)
    if head.method == "GET" and length:
        raise Refused(400, "A GET request may not have a body.")
    if length > most:
        raise Refused(
            413, f"A request may have {most} bytes. Received: {length}."
        )
    return length
