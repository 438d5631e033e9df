"""Word of work that takes long, on stderr."""

import contextlib
import sys
import threading
import time
from collections.abc import Iterator

# Seconds that pass without a word.
PATIENCE = 2.0


@contextlib.contextmanager
def told(what: str) -> Iterator[None]:
    """Prints `what` if the block takes over two seconds, and then how many.

    For work in one compiled op, which knows no callbacks.

    Args:
        what: str, "Clustering 1,000,000 class rows".
    """
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
