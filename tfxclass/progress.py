"""Messages about work that takes long, on stderr."""

import contextlib
import sys
import threading
import time
from collections.abc import Iterable
from collections.abc import Iterator
from typing import TypeVar

# Seconds that pass without a message.
PATIENCE = 2.0
# Seconds between two of them: on a terminal, and in a file.
_OFTEN, _SELDOM = 0.1, 30.0

Item = TypeVar("Item")


def progress_iter(
    items: Iterable[Item], what: str, count: int | None = None
) -> Iterator[Item]:
    """Yields `items`; after two seconds, tells how many there were.

    On a terminal in one line that is written again, in a file every 30
    seconds. `what` is as "Computing features", and `count` how many there will
    be, if that is known.
    """
    is_terminal = sys.stderr.isatty()
    begin, number, told_at = time.monotonic(), 0, None
    of_all = "" if count is None else f" of {count:,}"
    for number, item in enumerate(items, 1):
        yield item
        now = time.monotonic()
        pause = _OFTEN if is_terminal else _SELDOM
        is_late = told_at is None or now - told_at > pause
        if now - begin > PATIENCE and is_late:
            told_at = now
            end = "\r" if is_terminal else "\n"
            _print(f"{what}: {number:,}{of_all}{end}")
    if told_at is not None:
        seconds = time.monotonic() - begin
        _print(f"{what}: {number:,}, {seconds:.0f} s\n")


@contextlib.contextmanager
def log_if_slow(what: str) -> Iterator[None]:
    """Prints `what` if the block takes over two seconds, and then how many."""
    begin = time.monotonic()
    timer = threading.Timer(PATIENCE, _print, [f"{what} ... "])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        seconds = time.monotonic() - begin
        if seconds > PATIENCE:
            _print(f"{seconds:.0f} s\n")


def _print(text):
    print(text, end="", file=sys.stderr, flush=True)
