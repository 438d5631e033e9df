"""What a training step needs by each strategy: memory, bytes and work.

Bytes count what tfxclass sends: see `samplers/replicas.py` and
`shards/exchange.py`. With N machines a ring all-gather of blocks of s bytes
sends (N - 1) s from each machine in N - 1 messages one after the other, an
all-reduce of s bytes 2 (N - 1) / N s in twice as many (Patarasuk and Yuan,
2009).
"""

import dataclasses
from collections.abc import Callable

import keras

from tfxclass import layers
from tfxclass.memory import Estimate
from tfxclass.memory import estimate
from tfxclass.planning.figures import Link
from tfxclass.planning.figures import Machine

_FLOAT, _ID = 4, 8
# Maximum, sum of exponentials and target of a row, of each shard.
_STATS = 3 * _FLOAT
# Collectives of a traced step (benchmarks/scale.py, column `collectives`); of
# an exact mirrored one two all-reduces, there and back.
_OF_SAMPLED, _OF_EXACT, _OF_SHARDS = 7, 2 * 2, 15


@dataclasses.dataclass(frozen=True)
class Asked:
    """The arguments of `plan`."""

    num_classes: int
    dim: int
    batch: int
    machines: int
    num_sampled: int | None
    kernel_dtype: str
    optimizer: keras.optimizers.Optimizer
    servers: int

    @property
    def part(self) -> int:
        """Rows of the batch on one machine, int."""
        return -(-self.batch // self.machines)

    def title(self) -> str:
        sampled = "all" if self.num_sampled is None else f"{self.num_sampled:,}"
        return (
            f"{self.num_classes:,} classes, {sampled} in a step, "
            f"{self.dim} dimensions in {self.kernel_dtype}, batch "
            f"{self.batch:,}, {self.machines} machines"
        )

    def head(self, num_classes: int) -> layers.FullSoftmax:
        """An unbuilt head of `num_classes` on one machine."""
        if self.num_sampled is None:
            return layers.FullSoftmax(
                num_classes, kernel_dtype=self.kernel_dtype
            )
        return layers.SampledSoftmax(
            num_classes,
            self.num_sampled,
            sampler="uniform",
            kernel_dtype=self.kernel_dtype,
        )

    def estimate(
        self, head: keras.layers.Layer, batch: int, replicas: int = 1
    ) -> Estimate:
        return estimate(head, self.dim, batch, self.optimizer, replicas)

    def whole_start_bytes(self) -> int:
        """Memory of a process that initializes all class vectors at once."""
        whole = layers.FullSoftmax(self.num_classes)
        found = self.estimate(whole, 1)
        return found.weight_bytes + found.initialization_bytes

    def gathered(self, num_bytes: float) -> float:
        """Sent from each machine to gather `num_bytes` of each."""
        return (self.machines - 1) * num_bytes

    def reduced(self, num_bytes: float) -> float:
        """Sent from each machine to sum `num_bytes` over all."""
        return 2 * (self.machines - 1) / self.machines * num_bytes

    def need_sampled(self) -> int:
        """`num_sampled`; ValueError without."""
        if self.num_sampled is None:
            raise ValueError(
                "needs `num_sampled`: an exact step would bring every row to "
                "the machine that computes"
            )
        return self.num_sampled


@dataclasses.dataclass(frozen=True)
class Needs:
    """The needs of a training step.

    Attributes:
        machine_bytes, variable_bytes, host_or_server_bytes, start_bytes,
            note: as in `PlanRow`.
        sent_bytes, received_bytes: float, of a machine in a step.
        compute_s: function of a `Machine`, seconds.
        messages: int, how many follow each other.
        server_load: float, how many machines one server serves.
        is_to_host: bool, whether what is sent goes to the machine's own host.
    """

    machine_bytes: int
    variable_bytes: int
    host_or_server_bytes: int
    start_bytes: int
    sent_bytes: float
    received_bytes: float
    compute_s: Callable[[Machine], float]
    messages: int = 0
    server_load: float = 1.0
    is_to_host: bool = False
    note: str = ""

    def link_s(self, link: Link, machine: Machine) -> float:
        """Seconds that the busiest link of a step takes."""
        if not self.sent_bytes:
            return 0.0
        used = machine.host_link if self.is_to_host else link
        size = max(self.sent_bytes, self.received_bytes)
        return used.seconds(max(self.server_load, 1.0) * size, self.messages)

    def fits(self, machine: Machine) -> bool:
        """Whether the memory of the machine and of its host is enough."""
        beside = max(self.host_or_server_bytes, self.start_bytes)
        is_enough = self.machine_bytes <= machine.memory_bytes
        return is_enough and beside <= machine.host_bytes


def mirrored(asked: Asked) -> Needs:
    """All rows on every machine; gradients of rows cross."""
    head = asked.head(asked.num_classes)
    found = asked.estimate(head, asked.part, asked.machines)
    row = _FLOAT * asked.dim
    if asked.num_sampled is None:
        sent = asked.reduced(row * asked.num_classes)
        messages = _OF_EXACT

        def compute_s(machine):
            return machine.exact.seconds(
                asked.part, asked.num_classes, asked.dim
            )
    else:
        of_batch = asked.part * (row + _ID)
        sent = asked.gathered(of_batch + asked.num_sampled * (row + _ID))
        messages = _OF_SAMPLED

        def compute_s(machine):
            # Each moves the rows of all machines' gradients.
            more = (asked.machines - 1) * asked.num_sampled
            costs = machine.sampled
            own = costs.seconds(asked.part, asked.num_sampled, asked.dim)
            return own + costs.moving_seconds(more, asked.dim)

    return Needs(
        machine_bytes=_step_bytes(found),
        variable_bytes=found.weight_bytes + found.slot_bytes,
        host_or_server_bytes=0,
        start_bytes=found.weight_bytes + found.initialization_bytes,
        sent_bytes=sent,
        received_bytes=sent,
        compute_s=compute_s,
        messages=messages * (asked.machines - 1),
    )


def sharded(asked: Asked) -> Needs:
    """A range of classes on each machine; features and sums cross."""
    shard = -(-asked.num_classes // asked.machines)
    sampled = asked.num_sampled and -(-asked.num_sampled // asked.machines)
    head = layers.ShardedSoftmax(
        shard, num_sampled=sampled, kernel_dtype=asked.kernel_dtype
    )
    found = asked.estimate(head, asked.batch)
    row = _FLOAT * asked.dim
    sent = asked.gathered(asked.part * (row + _ID + _FLOAT))
    sent += asked.gathered(asked.batch * _STATS)
    sent += asked.reduced(asked.batch * row)

    def compute_s(machine):
        costs = machine.exact if sampled is None else machine.sampled
        return costs.seconds(asked.batch, sampled or shard, asked.dim)

    return Needs(
        machine_bytes=_step_bytes(found),
        variable_bytes=found.weight_bytes + found.slot_bytes,
        host_or_server_bytes=0,
        start_bytes=asked.whole_start_bytes(),
        sent_bytes=sent,
        received_bytes=sent,
        compute_s=compute_s,
        messages=_OF_SHARDS * (asked.machines - 1),
        note="each process draws all initial rows",
    )


def servers(asked: Asked) -> Needs:
    """Rows on parameter servers; active ones cross, there and back."""
    sampled = asked.need_sampled()
    shard = -(-asked.num_classes // asked.servers)
    of_server = asked.estimate(asked.head(shard), asked.part)
    of_worker = asked.estimate(asked.head(asked.num_classes), asked.part)
    row = _FLOAT * asked.dim
    load = asked.machines / asked.servers

    def compute_s(machine):
        costs = machine.sampled
        of_worker = costs.seconds(asked.part, sampled, asked.dim)
        return max(of_worker, costs.moving_seconds(load * sampled, asked.dim))

    return Needs(
        machine_bytes=of_worker.gradient_bytes + of_worker.activation_bytes,
        variable_bytes=0,
        host_or_server_bytes=of_server.weight_bytes + of_server.slot_bytes,
        start_bytes=asked.whole_start_bytes(),
        # Ids twice, and gradients; rows come back.
        sent_bytes=sampled * (row + 2 * _ID),
        received_bytes=sampled * row,
        compute_s=compute_s,
        messages=2,
        server_load=load,
        note=f"{asked.servers} servers; the coordinator draws all initial rows",
    )


def host(asked: Asked) -> Needs:
    """Rows in the host's memory of one machine; active ones cross."""
    sampled = asked.need_sampled()
    found = asked.estimate(asked.head(asked.num_classes), asked.batch)
    row = _FLOAT * asked.dim
    return Needs(
        machine_bytes=found.gradient_bytes + found.activation_bytes,
        variable_bytes=0,
        host_or_server_bytes=found.weight_bytes
        + found.slot_bytes
        + found.index_bytes,
        start_bytes=found.weight_bytes + found.initialization_bytes,
        sent_bytes=sampled * row,
        received_bytes=sampled * row,
        compute_s=lambda machine: machine.sampled.seconds(
            asked.batch, sampled, asked.dim
        ),
        messages=2,
        is_to_host=True,
        note="one machine",
    )


def _step_bytes(found):
    """The part of an `Estimate` that a step holds, without the start."""
    step = found.gradient_bytes + found.activation_bytes + found.index_bytes
    return found.weight_bytes + found.slot_bytes + step


#: Functions of an `Asked`, by the name of the strategy. They raise a ValueError
#: where the strategy cannot do what is asked.
STRATEGIES = {
    "mirrored": mirrored,
    "sharded": sharded,
    "servers": servers,
    "host": host,
}
