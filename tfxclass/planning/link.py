"""The network of a machine in numbers."""

import dataclasses

from tfxclass.checks import check_positive


@dataclasses.dataclass(frozen=True)
class Link:
    """The network connection of a machine.

    Attributes:
        bytes_per_s: float, bandwidth in bytes per second, in each direction.
        latency_s: float, time of the smallest message, in seconds.
    """

    bytes_per_s: float
    latency_s: float = 0.0

    def __post_init__(self) -> None:
        check_positive("bytes_per_s", self.bytes_per_s)

    def seconds(self, num_bytes: float, messages: float = 1) -> float:
        """Time of `messages` one after the other, with `num_bytes` in all."""
        return messages * self.latency_s + num_bytes / self.bytes_per_s
