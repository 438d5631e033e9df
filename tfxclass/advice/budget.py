"""The time that `advise` may take."""

import time


def clock() -> float:
    """Seconds of a clock that never goes back."""
    return time.monotonic()


class Budget:
    """A number of seconds that begins now.

    Args:
        seconds: float > 0.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._begin = clock()

    def left(self, fraction: float = 1.0) -> float:
        """Seconds until this fraction of the budget is spent, or less than 0.

        Args:
            fraction: float in (0, 1].
        """
        return self._begin + fraction * self.seconds - clock()
