"""One warning for a fallback that takes long, with what helps."""

import contextlib
import threading
import time
import warnings
from collections.abc import Iterator

from tfxclass.ops.fallback.refused import how_to_compile

#: Seconds of a fallback in NumPy, all calls together, without a warning.
PATIENCE = 10.0
#: What users call an op whose compiled form is many times faster, and how
#: many times (docs/works_with.md).
_WHAT = {
    "linear_one_vs_rest": ("Training a linear Tagger", "20 times or more"),
    "tree_top_k": ("A search in a large class tree", "about 20 times"),
}
_OTHERS = ("The op {name}", "some times")

_seconds: dict[str, float] = {}
_warned: set[str] = set()


def warn_once(name: str) -> None:
    """Warns, once a process, that the fallback of an op is slow.

    Not where the op is compiled and an export or a test asks for the fallback.

    Args:
        name: str, the op, without "tfxclass_".
    """
    from tfxclass.ops import library  # It imports the fallbacks.

    if name in _warned or library.build()["ops"] == "compiled":
        return
    _warned.add(name)
    what, times = _WHAT.get(name, _OTHERS)
    warnings.warn(
        f"{what.format(name=name)} is {times} slower here than with the "
        "compiled ops of tfxclass: this process has only the fallback ops. "
        f"Fix: {how_to_compile()}.",
        stacklevel=2,
    )


@contextlib.contextmanager
def warning_if_slow(name: str) -> Iterator[None]:
    """Warns when an op has taken `PATIENCE` seconds, while it goes on.

    Args:
        name: str, the op, without "tfxclass_".
    """
    begin, before = time.monotonic(), _seconds.get(name, 0.0)
    timer = threading.Timer(max(PATIENCE - before, 0.0), warn_once, [name])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        _seconds[name] = before + time.monotonic() - begin
