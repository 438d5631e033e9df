"""What happens when a process of the cluster is gone."""

import contextlib
from collections.abc import Iterator


@contextlib.contextmanager
def failures_told(
    errors: type[Exception] | tuple[type[Exception], ...], what: str
) -> Iterator[None]:
    """Turns what TensorFlow raises for a lost process into a RuntimeError.

    Args:
        errors: exception class of TensorFlow, or a tuple of them.
        what: str, the sentence that the message begins with.
    """
    try:
        yield
    except errors as error:
        last_line = error.message.strip().splitlines()[-1]
        raise RuntimeError(
            f"{what} Start all processes again: with `checkpoint`, training "
            f"goes on from the last state. TensorFlow says: {last_line}"
        ) from error
