"""`tfxclass.plan`: what a number of classes needs of many machines.

Bytes are those that `samplers/replicas.py` and `shards/exchange.py` send. On a
ring of N machines (Patarasuk and Yuan, 2009), each sends (N - 1) s bytes to
gather blocks of s, and 2 (N - 1) / N s to sum s bytes.
"""

import dataclasses
import math

import keras
import tensorflow as tf

from tfxclass import layers
from tfxclass.checks import check_optional_int
from tfxclass.checks import check_positive
from tfxclass.checks import check_positive_int
from tfxclass.checks import check_value
from tfxclass.planning.memory import estimate

_FLOAT, _ID = 4, 8
# Maximum, sum of exponentials and target of an example, of each shard.
_STATS = 3 * _FLOAT
# Collectives of a traced step (benchmarks/pages/scale.md, `collectives`); of an
# exact mirrored one two all-reduces, there and back.
_OF_SAMPLED, _OF_EXACT, _OF_SHARDS = 7, 2 * 2, 15


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


@dataclasses.dataclass(frozen=True)
class PlanRow:
    """A training step with one strategy.

    Attributes:
        strategy: `"mirrored"` or `"sharded"`.
        machine_bytes: int, memory on each machine in a step.
        variable_bytes: int, its part for class vectors and optimizer state.
        start_bytes: int, the most that a process holds on the host while the
            class matrix is initialized.
        sent_bytes: int, network traffic that a machine sends per step.
        link_s: float, seconds of a step for network traffic.
        fits: bool, whether everything fits into memory.
    """

    strategy: str
    machine_bytes: int
    variable_bytes: int
    start_bytes: int
    sent_bytes: int
    link_s: float
    fits: bool


@dataclasses.dataclass(frozen=True)
class Plan:
    """Training steps with each strategy; `print` shows a Markdown table.

    Attributes:
        rows: tuple of `PlanRow`, one for each strategy. `plan["sharded"]`
            is the row of that strategy.
    """

    rows: tuple[PlanRow, ...]

    def __getitem__(self, strategy: str) -> PlanRow:
        return {row.strategy: row for row in self.rows}[strategy]

    def __str__(self) -> str:
        lines = [
            "| strategy | machine GB | start GB | MB sent | link ms | fits |",
            "| --- " * 6 + "|",
        ]
        for row in self.rows:
            lines.append(
                f"| {row.strategy} | {row.machine_bytes / 1e9:,.2f} "
                f"| {row.start_bytes / 1e9:,.1f} "
                f"| {row.sent_bytes / 1e6:,.2f} | {1e3 * row.link_s:,.1f} "
                f"| {'yes' if row.fits else 'no'} |"
            )
        return "\n".join(lines)


def plan(
    num_classes: int,
    dim: int,
    batch: int,
    machines: int,
    link: Link,
    *,
    num_sampled: int | None = None,
    kernel_dtype: str = "float32",
    optimizer: keras.optimizers.Optimizer | str | None = None,
    memory_bytes: float = 24e9,
) -> Plan:
    """Compares two strategies for many machines: memory and network traffic.

    Use it before you rent machines. Memory comes from `tfxclass.estimate`, and
    traffic is counted. Both are without the encoder. `docs/scale.md` shows how
    the results were checked.

    - `"mirrored"`: every machine has all class vectors (`distribute.fit` under
      `MultiWorkerMirroredStrategy`).
    - `"sharded"`: each machine has a range of the classes (`ShardedSoftmax`
      under the same strategy).

    Args:
        num_classes: int, number of classes.
        dim: int, width of the features.
        batch: int, number of examples in a step, over all machines.
        machines: int, number of machines. Each is one replica.
        link: `Link` of a machine to the others.
        num_sampled: int, number of classes in a training step. None (default)
            is the exact softmax.
        kernel_dtype: `"float32"` or `"bfloat16"`, dtype of the class vectors.
        optimizer: as in `tfxclass.estimate`, for example
            `LazyAdam(second_moment="row")`. Defaults to `HeadAdam()`.
        memory_bytes: float, memory of a machine, or of its GPU if that has
            less. Defaults to 24 GB.

    Returns:
        A `Plan`.

    Raises:
        ValueError: if a size is out of range, or within `strategy.scope()`.

    Example:

    ```python
    link = tfxclass.planning.Link(bytes_per_s=1.2e9, latency_s=5e-5)
    found = tfxclass.plan(
        100_000_000, 128, 4096, machines=16, link=link, num_sampled=16_384
    )
    print(found)
    ```
    """
    num_classes = check_positive_int("num_classes", num_classes)
    dim = check_positive_int("dim", dim)
    batch = check_positive_int("batch", batch)
    machines = check_positive_int("machines", machines)
    num_sampled = check_optional_int("num_sampled", num_sampled)
    if num_sampled is not None:
        num_sampled = min(num_sampled, num_classes)
    wanted = f"at most num_classes={num_classes} and batch={batch}"
    is_valid = machines <= min(num_classes, batch)
    check_value("machines", machines, is_valid, wanted)
    is_link = isinstance(link, Link)
    check_value("link", link, is_link, "a tfxclass.planning.Link")
    check_positive("memory_bytes", memory_bytes)
    current = type(tf.distribute.get_strategy()).__name__
    is_outside = not tf.distribute.has_strategy()
    check_value("plan", current, is_outside, "called outside of strategies")
    sizes = num_classes, num_sampled, kernel_dtype, dim, batch, machines
    rows = []
    for strategy, head, examples, replicas, sent, collectives in _steps(*sizes):
        memory = estimate(head, dim, examples, optimizer, replicas)
        # In a collective, each machine sends messages to each other.
        latencies = collectives * (machines - 1) * link.latency_s
        row = PlanRow(
            strategy=strategy,
            machine_bytes=memory.weight_bytes + memory.step_bytes,
            variable_bytes=memory.weight_bytes + memory.slot_bytes,
            start_bytes=memory.weight_bytes + memory.initialization_bytes,
            sent_bytes=math.ceil(sent),
            link_s=latencies + sent / link.bytes_per_s,
            fits=memory.total_bytes <= memory_bytes,
        )
        rows.append(row)
    return Plan(tuple(rows))


def _steps(num_classes, num_sampled, kernel_dtype, dim, batch, machines):
    """`(strategy, head, examples, replicas, bytes sent, collectives)` each.

    Class vectors cross when mirrored, and when sharded features and sums.
    """
    options = {"kernel_dtype": kernel_dtype}
    others, part = machines - 1, -(-batch // machines)
    vector, share = _FLOAT * dim, 2 * others / machines
    head = layers.FullSoftmax(num_classes, **options)
    sent, collectives = share * vector * num_classes, _OF_EXACT
    sampled = None
    if num_sampled is not None:
        head = layers.SampledSoftmax(
            num_classes, num_sampled, "uniform", **options
        )
        sent = others * (part + num_sampled) * (vector + _ID)
        collectives, sampled = _OF_SAMPLED, -(-num_sampled // machines)
    yield "mirrored", head, part, machines, sent, collectives
    head = layers.ShardedSoftmax(
        -(-num_classes // machines), num_sampled=sampled, **options
    )
    of_machine = part * (vector + _ID + _FLOAT) + batch * _STATS
    sent = others * of_machine + share * vector * batch
    yield "sharded", head, batch, 1, sent, _OF_SHARDS
