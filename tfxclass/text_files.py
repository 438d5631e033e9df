"""Text files that users hand over: how they are packed and encoded."""

import bz2
import codecs
import contextlib
import gzip
import io
import lzma
import os
import zlib
from collections.abc import Iterator
from typing import Any

#: Functions that open a packed file, by the end of its name.
OPENERS: dict[str, Any] = {".gz": gzip.open, ".xz": lzma.open, ".bz2": bz2.open}
MARK = "\ufeff"
_DAMAGED = (EOFError, lzma.LZMAError, zlib.error)
# UTF-32's little-endian mark begins with UTF-16's.
_MARKS = {
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}


def is_one_line(name: str) -> bool:
    """Whether every reader of a UTF-8 file reads the name as one line."""
    if name.splitlines() != [name] or "\0" in name or name.startswith(MARK):
        return False
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def endings(path: str) -> tuple[str, str]:
    """`(suffix, packing)` in lower case: `(".csv", ".gz")` of "A.CSV.gz"."""
    plain, suffix = os.path.splitext(path.lower())
    if suffix not in OPENERS:
        return suffix, ""
    return os.path.splitext(plain)[1], suffix


def read_bytes(path: str, size: int) -> Iterator[bytes]:
    """Yields the bytes of a file, unpacked, `size` at a time; or ValueError."""
    with _opened(path) as f:
        while chunk := f.read(size):
            yield chunk


def read_lines(path: str, encoding: str = "utf-8") -> Iterator[str]:
    r"""Yields the lines of a text file, with their ends "\n", "\r\n" or "\r".

    Packed files are unpacked, and a byte order mark at the beginning is
    dropped. ValueError for an unknown encoding, bytes that it does not have, or
    a packed file that is damaged.
    """
    check_encoding(encoding)
    try:
        with _opened(path) as f:
            # Every other encoding has a use for the marks' bytes, or none.
            if codecs.lookup(encoding).name in ("utf-8", "utf-8-sig"):
                check_bytes(path, f.peek(4)[:4])
            lines = io.TextIOWrapper(f, encoding, newline="")
            for line in lines:
                yield line.removeprefix(MARK)
                break
            yield from lines
    except UnicodeDecodeError as e:
        number, e = _first_error(path, encoding) or ("?", e)
        raise ValueError(
            f"{path}, line {number}: byte 0x{e.object[e.start]:02x} cannot be "
            f"read as {encoding.upper()}. Save the file as UTF-8, or pass the "
            'encoding that it has, such as encoding="cp1252" (--encoding '
            "cp1252) for files of Excel in Western Europe."
        ) from e


def check_encoding(encoding: str) -> None:
    """Raises ValueError unless Python knows this encoding of texts."""
    try:
        io.TextIOWrapper(io.BytesIO(), encoding or "none")
    except (LookupError, TypeError, ValueError) as e:
        raise ValueError(
            '`encoding` must be the name of a text encoding, such as "utf-8", '
            f'"cp1252" or "utf-16". Received: {encoding!r}'
        ) from e


def check_bytes(path: str, begin: bytes) -> None:
    """Raises ValueError if a file that begins so is UTF-16 or UTF-32."""
    for mark, found in _MARKS.items():
        if begin.startswith(mark):
            raise ValueError(
                f"{path} is encoded as {found.upper()}, not as UTF-8. Save it "
                f'as UTF-8, or pass encoding="{found}" (--encoding {found}).'
            )


@contextlib.contextmanager
def _opened(path: str) -> Iterator[Any]:
    """The unpacked bytes of a file, as a file."""
    packing = endings(path)[1]
    try:
        with OPENERS.get(packing, open)(path, "rb") as f:
            yield f
    except (OSError, *_DAMAGED) as e:
        # Errors of the content of a packed file are no errors of the system.
        if getattr(e, "errno", None) is not None:
            raise
        raise ValueError(f"{path} is damaged, or no {packing} file: {e}") from e


def _first_error(path, encoding):
    """`(line, UnicodeDecodeError)`; None if there is no error."""
    decoder = codecs.getincrementaldecoder(encoding)()
    number = 1
    try:
        with _opened(path) as f:
            for number, line in enumerate(f, 1):
                decoder.decode(line)
        decoder.decode(b"", final=True)
    except UnicodeDecodeError as e:
        return number, e
    return None
