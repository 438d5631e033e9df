"""`tfxclass.plan`: what a number of classes needs of many machines.

Bytes count what tfxclass sends: see `samplers/replicas.py` and
`shards/exchange.py`. With N machines a ring all-gather of blocks of s bytes
sends (N - 1) s from each machine in N - 1 messages one after the other, an
all-reduce of s bytes 2 (N - 1) / N s in twice as many (Patarasuk and Yuan,
2009).
"""

import dataclasses
import math

import keras
import tensorflow as tf

from tfxclass import layers
from tfxclass.checks import check_positive_int
from tfxclass.planning.machine import Link
from tfxclass.planning.machine import Machine
from tfxclass.planning.machine import StepCosts
from tfxclass.planning.memory import estimate

#: Processor time of the steps of `measure_machine` (`benchmarks/scale.py`, row
#: "cpu"), products and rows over two cores: Intel Xeon with AVX-512.
TWO_CORES = Machine(
    exact=StepCosts(0.0, 5.4e-11, 5.8e-9),
    sampled=StepCosts(1.1e-3, 5.4e-11, 3.2e-9),
    memory_bytes=24e9,
    host_bytes=24e9,
    host_link=Link(5.9e9),
)
_FLOAT, _ID = 4, 8
# Maximum, sum of exponentials and target of a row, of each shard.
_STATS = 3 * _FLOAT
# Collectives of a traced step (benchmarks/scale.py, column `collectives`); of
# an exact mirrored one two all-reduces, there and back.
_OF_SAMPLED, _OF_EXACT, _OF_SHARDS = 7, 2 * 2, 15


@dataclasses.dataclass(frozen=True)
class PlanRow:
    """A training step with one strategy.

    Attributes:
        strategy: `"mirrored"`, `"sharded"`, `"servers"` or `"host"`.
        machine_bytes: int, memory on each machine in a step.
        variable_bytes: int, its part for class vectors and optimizer state.
        host_or_server_bytes: int, memory of each server, or of the host.
        start_bytes: int, the most that a process holds on the host while the
            class matrix is initialized.
        sent_bytes: int, network traffic that a machine sends per step.
        compute_s: float, seconds of a step that a machine computes.
        link_s: float, seconds of a step for network traffic.
        fits: bool, whether everything fits into memory.
    """

    strategy: str
    machine_bytes: int
    variable_bytes: int
    host_or_server_bytes: int
    start_bytes: int
    sent_bytes: int
    compute_s: float
    link_s: float
    fits: bool

    @property
    def step_s(self) -> float:
        """Seconds of a step of the whole batch, without overlap."""
        return self.compute_s + self.link_s


@dataclasses.dataclass(frozen=True)
class Plan:
    """Training steps with each strategy; `print` shows a Markdown table.

    Attributes:
        title: str, what was planned.
        rows: tuple of `PlanRow`, one for each strategy. `plan["sharded"]`
            is the row of that strategy.
    """

    title: str
    rows: tuple[PlanRow, ...]

    def __getitem__(self, strategy: str) -> PlanRow:
        """The row of a strategy; KeyError of another."""
        return {row.strategy: row for row in self.rows}[strategy]

    def __str__(self) -> str:
        lines = [
            self.title,
            "",
            "| strategy | machine GB | host or server GB | start GB | MB sent "
            "| compute ms | link ms | fits |",
            "| --- | --- | --- | --- | --- | --- | --- | --- |",
        ]
        for row in self.rows:
            lines.append(
                f"| {row.strategy} | {row.machine_bytes / 1e9:,.2f} "
                f"| {row.host_or_server_bytes / 1e9:,.2f} "
                f"| {row.start_bytes / 1e9:,.1f} "
                f"| {row.sent_bytes / 1e6:,.2f} | {1e3 * row.compute_s:,.1f} "
                f"| {1e3 * row.link_s:,.1f} | {'yes' if row.fits else 'no'} |"
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

    An exact softmax has no row for the last two: each step would bring every
    class vector to the machine that computes.

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
        A `Plan`.

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
    if servers is None:
        servers = machines
    num_classes = check_positive_int("num_classes", num_classes)
    dim = check_positive_int("dim", dim)
    batch = check_positive_int("batch", batch)
    machines = check_positive_int("machines", machines)
    servers = check_positive_int("servers", servers)
    if num_sampled is not None:
        num_sampled = check_positive_int("num_sampled", num_sampled)
        num_sampled = min(num_sampled, num_classes)
    if min(num_classes, batch) < machines:
        raise ValueError(
            "`num_classes` and `batch` must be at least `machines`. Received: "
            f"num_classes={num_classes}, batch={batch} with "
            f"machines={machines}"
        )
    if not isinstance(link, Link) or not isinstance(machine, Machine):
        raise ValueError(
            "`link` must be a tfxclass.planning.Link, and `machine` a "
            f"tfxclass.planning.Machine. Received: {link!r} and {machine!r}"
        )
    if tf.distribute.has_strategy():
        raise ValueError(
            "`plan` is for any number of machines and is called outside of "
            "strategies. Received: a call within a scope of "
            f"{type(tf.distribute.get_strategy()).__name__}."
        )
    planner = _Planner(
        num_classes, dim, batch, machines, servers, num_sampled, kernel_dtype,
        optimizer, link, machine,
    )  # fmt: skip
    rows = [planner.mirrored(), planner.sharded()]
    if num_sampled is not None:
        rows += [planner.on_servers(), planner.on_host()]
    sampled = "all" if num_sampled is None else f"{num_sampled:,}"
    title = (
        f"{num_classes:,} classes, {sampled} in a step, {dim} dimensions in "
        f"{kernel_dtype}, batch {batch:,}, {machines} machines"
    )
    return Plan(title, tuple(rows))


@dataclasses.dataclass(frozen=True)
class _Planner:
    """The arguments of `plan`, and a method for each strategy."""

    num_classes: int
    dim: int
    batch: int
    machines: int
    servers: int
    num_sampled: int | None
    kernel_dtype: str
    optimizer: keras.optimizers.Optimizer | str | None
    link: Link
    machine: Machine

    def mirrored(self):
        """All rows on every machine; gradients of rows cross."""
        part, others = self._part, self.machines - 1
        whole = self._head(self.num_classes)
        found = self._estimate(whole, part, self.machines)
        if self.num_sampled is None:
            sent, collectives = self._reduced(self.num_classes), _OF_EXACT
            costs = self.machine.exact
            compute_s = costs.seconds(part, self.num_classes, self.dim)
        else:
            sent = others * (part + self.num_sampled) * (self._row + _ID)
            collectives, costs = _OF_SAMPLED, self.machine.sampled
            compute_s = costs.seconds(part, self.num_sampled, self.dim)
            # Each machine moves the rows of all machines' gradients.
            compute_s += costs.number_s * others * self.num_sampled * self.dim
        return self._plan_row(
            "mirrored",
            _step_bytes(found),
            found.weight_bytes + found.slot_bytes,
            0,
            found.weight_bytes + found.initialization_bytes,
            sent,
            compute_s,
            self.link.seconds(sent, collectives * others),
        )

    def sharded(self):
        """A range of classes on each machine; features and sums cross."""
        others, shard = self.machines - 1, -(-self.num_classes // self.machines)
        sampled = self.num_sampled and -(-self.num_sampled // self.machines)
        head = layers.ShardedSoftmax(
            shard, num_sampled=sampled, kernel_dtype=self.kernel_dtype
        )
        found = self._estimate(head, self.batch)
        of_batch = self._part * (self._row + _ID + _FLOAT)
        sent = others * (of_batch + self.batch * _STATS)
        sent += self._reduced(self.batch)
        costs = self.machine.sampled if sampled else self.machine.exact
        return self._plan_row(
            "sharded",
            _step_bytes(found),
            found.weight_bytes + found.slot_bytes,
            0,
            self._whole_start_bytes(),
            sent,
            costs.seconds(self.batch, sampled or shard, self.dim),
            self.link.seconds(sent, _OF_SHARDS * others),
        )

    def on_servers(self):
        """Rows on parameter servers; active ones cross, there and back."""
        sampled, load = self.num_sampled, self.machines / self.servers
        shard = -(-self.num_classes // self.servers)
        of_server = self._estimate(self._head(shard), self._part)
        of_worker = self._estimate(self._head(self.num_classes), self._part)
        costs = self.machine.sampled
        # Ids twice, and gradients; rows come back.
        sent = sampled * (self._row + 2 * _ID)
        of_workers = costs.seconds(self._part, sampled, self.dim)
        of_servers = costs.number_s * load * sampled * self.dim
        return self._plan_row(
            "servers",
            of_worker.gradient_bytes + of_worker.activation_bytes,
            0,
            of_server.weight_bytes + of_server.slot_bytes,
            self._whole_start_bytes(),
            sent,
            max(of_workers, of_servers),
            # The busiest link is a server's, if machines share it.
            self.link.seconds(max(load, 1.0) * sent, 2),
        )

    def on_host(self):
        """Rows in the host's memory of one machine; active ones cross."""
        found = self._estimate(self._head(self.num_classes), self.batch)
        sent = self.num_sampled * self._row
        costs = self.machine.sampled
        return self._plan_row(
            "host",
            found.gradient_bytes + found.activation_bytes,
            0,
            found.weight_bytes + found.slot_bytes + found.index_bytes,
            found.weight_bytes + found.initialization_bytes,
            sent,
            costs.seconds(self.batch, self.num_sampled, self.dim),
            self.machine.host_link.seconds(sent, 2),
        )

    @property
    def _row(self):
        """Bytes of a class vector on the network."""
        return _FLOAT * self.dim

    @property
    def _part(self):
        """Rows of the batch on one machine, int."""
        return -(-self.batch // self.machines)

    def _head(self, num_classes):
        """An unbuilt head of `num_classes` on one machine."""
        options = {"kernel_dtype": self.kernel_dtype}
        if self.num_sampled is None:
            return layers.FullSoftmax(num_classes, **options)
        return layers.SampledSoftmax(
            num_classes, self.num_sampled, "uniform", **options
        )

    def _estimate(self, head, batch, replicas=1):
        return estimate(head, self.dim, batch, self.optimizer, replicas)

    def _whole_start_bytes(self):
        """Memory of a process that initializes all class vectors at once."""
        found = self._estimate(layers.FullSoftmax(self.num_classes), 1)
        return found.weight_bytes + found.initialization_bytes

    def _reduced(self, rows):
        """Bytes sent from each machine to sum vectors of `rows` over all."""
        return 2 * (self.machines - 1) / self.machines * self._row * rows

    def _plan_row(
        self, strategy, of_step, variables, elsewhere, start, sent, compute_s,
        link_s,
    ):  # fmt: skip
        """`PlanRow` from the bytes on a machine and on servers or the host."""
        on_machine, on_host = of_step + variables, max(elsewhere, start)
        fits = on_machine <= self.machine.memory_bytes
        fits = fits and on_host <= self.machine.host_bytes
        return PlanRow(
            strategy, on_machine, variables, elsewhere, start, math.ceil(sent),
            compute_s, link_s, fits,
        )  # fmt: skip


def _step_bytes(found):
    return found.gradient_bytes + found.activation_bytes + found.index_bytes
