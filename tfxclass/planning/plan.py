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
    """A training step with one strategy.

    Values that are impossible are None, and `note` says why.

    Attributes:
        strategy: `"mirrored"`, `"sharded"`, `"servers"` or `"host"`.
        machine_bytes: int, memory on each machine in a step.
        variable_bytes: int, its part for class vectors and optimizer state.
        host_or_server_bytes: int, memory of each server, or of the host.
        start_bytes: int, the most that a process holds on the host while the
            class matrix is initialized.
        sent_bytes, received_bytes: int, network traffic of a machine per step.
        compute_s: float, seconds of a step that a machine computes.
        link_s: float, seconds of a step for network traffic.
        fits: bool, whether everything fits into memory.
        note: str, what else to know.
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
    def step_s(self) -> float:
        """Seconds of a step of the whole batch, without overlap."""
        return self.compute_s + self.link_s

    def cells(self) -> list[str]:
        """The cells of its row in the printed table, a list of str."""
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
    """Training steps with each strategy; `print` shows a Markdown table.

    Attributes:
        title: str, the sizes that were asked for.
        rows: tuple of `PlanRow`, one for each strategy.
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
    """Compares strategies for many machines: memory, traffic and time.

    Use it before you rent machines. Memory comes from `tfxclass.estimate`,
    traffic is counted, and time is computed from measurements of one machine
    and the bandwidth of the link. Nothing is built. The encoder is not
    included. `docs/scale.md` shows how the results were checked.

    - `"mirrored"`: every machine has all class vectors (`distribute.fit` under
      `MultiWorkerMirroredStrategy`).
    - `"sharded"`: each machine has a range of the classes (`ShardedSoftmax`
      under the same strategy).
    - `"servers"`: class vectors are on parameter servers, and every machine is
      a worker with a part of the batch (`ShardedSoftmax` under
      `ParameterServerStrategy`). Workers do not wait for each other.
    - `"host"`: one machine, with class vectors in host memory
      (`placement="host"`).

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
        machine: `Machine` with measurements, from
            `tfxclass.planning.measure_machine`. By default a machine
            with two cores.
        servers: int, number of parameter servers. Defaults to `machines`.

    Returns:
        A `Plan`. If a strategy is impossible, the note of its row says why.

    Raises:
        ValueError: if sizes are not positive, there are fewer examples or
            classes than machines, or it is called within `strategy.scope()`.

    Example:

    ```python
    link = tfxclass.planning.Link(bytes_per_s=1.2e9, latency_s=5e-5)
    found = tfxclass.plan(
        100_000_000, 128, 4096, machines=16, link=link, num_sampled=16_384
    )
    print(found)
    ```
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
