"""`tfxclass.plan`: what a number of classes needs of many machines."""

import dataclasses
import math

import keras
import tensorflow as tf

from tfxclass.checks import check_positive_int
from tfxclass.optimizers import HeadAdam
from tfxclass.planning import strategies
from tfxclass.planning.figures import Link
from tfxclass.planning.figures import Machine
from tfxclass.planning.measured import TWO_CORES

_GB = 1e9


@dataclasses.dataclass(frozen=True)
class PlanRow:
    """A step by one strategy. What is impossible is None, and `note` says why.

    Attributes:
        strategy: `"mirrored"`, `"sharded"`, `"servers"` or `"host"`.
        machine_bytes: int, memory of what computes, on each machine, in a
            step.
        variable_bytes: int, of it that of class rows and slots.
        host_or_server_bytes: int, memory of each server, or of the host.
        start_bytes: int, the most that a process holds on the host while the
            class matrix is initialised.
        sent_bytes, received_bytes: int, of a machine in a step.
        compute_s: float, seconds of a step that a machine computes.
        link_s: float, seconds of a step that its link takes.
        fits: bool, whether all that is in the memory there is.
        note: str, what to know.
    """

    strategy: str
    machine_bytes: int | None = None
    variable_bytes: int = 0
    host_or_server_bytes: int = 0
    start_bytes: int = 0
    sent_bytes: int = 0
    received_bytes: int = 0
    compute_s: float = 0.0
    link_s: float = 0.0
    fits: bool = False
    note: str = ""

    @property
    def beside_bytes(self) -> int:
        """The former name of `host_or_server_bytes`."""
        return self.host_or_server_bytes

    @property
    def step_s(self) -> float:
        """Seconds of a step of the whole batch; nothing overlaps."""
        return self.compute_s + self.link_s

    def cells(self) -> list[str]:
        """What `Plan` prints of it, a list of str."""
        if self.machine_bytes is None:
            return [self.strategy, *7 * ["-"], self.note]
        return [
            self.strategy,
            f"{self.machine_bytes / _GB:,.2f}",
            f"{self.host_or_server_bytes / _GB:,.2f}",
            f"{self.start_bytes / _GB:,.1f}",
            f"{self.sent_bytes / 1e6:,.2f}",
            f"{1e3 * self.compute_s:,.1f}",
            f"{1e3 * self.link_s:,.1f}",
            "yes" if self.fits else "no",
            self.note,
        ]


_TITLES = (
    "strategy",
    "machine GB",
    "host or server GB",
    "start GB",
    "MB sent",
    "compute ms",
    "link ms",
    "fits",
    "note",
)


@dataclasses.dataclass(frozen=True)
class Plan:
    """A training step by each strategy; printed, it is a Markdown table.

    Attributes:
        title: str, what was asked.
        rows: tuple of `PlanRow`, one a strategy.
    """

    title: str
    rows: tuple[PlanRow, ...]

    def __getitem__(self, strategy: str) -> PlanRow:
        """The row of a strategy; KeyError of another."""
        found = {row.strategy: row for row in self.rows}
        return found[strategy]

    def __str__(self) -> str:
        lines = [_TITLES, len(_TITLES) * ("---",)]
        lines += [row.cells() for row in self.rows]
        table = ["| " + " | ".join(line) + " |" for line in lines]
        return "\n".join([self.title, "", *table])


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
    machine: Machine = TWO_CORES,
    servers: int | None = None,
) -> Plan:
    """What a training step needs of memory, links and time, by strategy.

    Memory is `tfxclass.estimate`'s, bytes are counted from what a step sends,
    and time is computed from measured figures of one machine and the link:
    nothing is built. The encoder is left out: its gradient crosses under every
    strategy, its time is on each machine. docs/scale.md says how it was
    checked.

    - `"mirrored"`: every machine has all rows (`distribute.fit` under
      `MultiWorkerMirroredStrategy`).
    - `"sharded"`: each has a range of the classes (`ShardedSoftmax`, the same).
    - `"servers"`: rows lie on parameter servers, every machine is a worker
      with a part of the batch (`ShardedSoftmax` under
      `ParameterServerStrategy`). Workers do not wait for each other.
    - `"host"`: one machine, rows in its host's memory (`placement="host"`).

    Args:
        num_classes: int.
        dim: int, width of the features.
        batch: int, rows a step, of all machines together.
        machines: int, how many there are; each is one replica.
        link: `Link` of a machine to the others.
        num_sampled: int, classes a step; None is the exact softmax.
        kernel_dtype: `"float32"` or `"bfloat16"`, of the class rows.
        optimizer: as in `tfxclass.estimate`, e.g. `LazyAdam(
            second_moment="row")`; `HeadAdam()` by default.
        machine: `Machine`, measured figures; by default those of two cores
            (`tfxclass.planning.measure_machine` makes others).
        servers: int, how many parameter servers; by default as many as
            machines.

    Returns:
        A `Plan`. What a strategy cannot do is in the note of its row.

    Raises:
        ValueError: sizes that are not positive, a batch or classes that
            are fewer than the machines, or a call within `strategy.scope()`.

    Example:

    >>> link = tfxclass.planning.Link(bytes_per_s=1.2e9, latency_s=5e-5)
    >>> found = tfxclass.plan(
    ...     100_000_000, 128, 4096, machines=16, link=link, num_sampled=16_384
    ... )
    >>> print(found)
    """
    sizes = {
        "num_classes": num_classes,
        "dim": dim,
        "batch": batch,
        "machines": machines,
    }
    sizes = {n: check_positive_int(n, value) for n, value in sizes.items()}
    _check(sizes, link, machine)
    if num_sampled is not None:
        num_sampled = check_positive_int("num_sampled", num_sampled)
        num_sampled = min(num_sampled, sizes["num_classes"])
    if servers is None:
        servers = sizes["machines"]
    asked = strategies.Asked(
        **sizes,
        num_sampled=num_sampled,
        kernel_dtype=kernel_dtype,
        optimizer=keras.optimizers.get(
            HeadAdam() if optimizer is None else optimizer
        ),
        servers=check_positive_int("servers", servers),
    )
    rows = (
        _row(name, find, asked, link, machine)
        for name, find in strategies.STRATEGIES.items()
    )
    return Plan(asked.title(), tuple(rows))


def _check(sizes, link, machine):
    for name in ("num_classes", "batch"):
        if sizes[name] < sizes["machines"]:
            raise ValueError(
                f"`{name}` must be at least `machines`. Received: "
                f"{name}={sizes[name]} with machines={sizes['machines']}"
            )
    given = (("link", link, Link), ("machine", machine, Machine))
    for name, value, kind in given:
        if not isinstance(value, kind):
            raise ValueError(
                f"`{name}` must be a tfxclass.planning.{kind.__name__}. "
                f"Received: {value!r}"
            )
    if tf.distribute.has_strategy():
        raise ValueError(
            "`plan` is for any number of machines and is called outside of "
            "strategies. Received: a call within a scope of "
            f"{type(tf.distribute.get_strategy()).__name__}."
        )


def _row(name, find, asked, link, machine):
    try:
        step = find(asked)
    except ValueError as error:
        return PlanRow(name, note=" ".join(str(error).split()))
    return PlanRow(
        name,
        machine_bytes=step.machine_bytes,
        variable_bytes=step.variable_bytes,
        host_or_server_bytes=step.host_or_server_bytes,
        start_bytes=step.start_bytes,
        sent_bytes=math.ceil(step.sent_bytes),
        received_bytes=math.ceil(step.received_bytes),
        compute_s=step.compute_s(machine),
        link_s=step.link_s(link, machine),
        fits=step.fits(machine),
        note=step.note,
    )
