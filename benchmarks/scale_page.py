"""Fills the tables of docs/scale.md and draws docs/scale.png.

    python benchmarks/scale_page.py

A table stands between `<!-- table: name -->` and `<!-- end -->`.
"""

import os
import re

import figure_style
import measure
import numpy as np

import tfxclass
from tfxclass.optimizers import LazyAdam
from tfxclass.optimizers import LazySGD
from tfxclass.planning import Link

DOCS = os.path.join(os.path.dirname(measure.FOLDER), "docs")
PAGE = os.path.join(DOCS, "scale.md")
DIM, BATCH, MACHINES, SAMPLED = 128, 4096, 8, 16_384
SIZES = (10**6, 10**7, 10**8, 10**9)
# 10 Gbit/s and what a message takes between machines of one room.
LINK = Link(bytes_per_s=1.25e9, latency_s=5e-5)
COLUMNS = {
    "machine GB": lambda row: row.machine_bytes / 1e9,
    "start GB": lambda row: row.start_bytes / 1e9,
    "MB sent": lambda row: row.sent_bytes / 1e6,
    "link ms": lambda row: 1e3 * row.link_s,
    "fits 24 GB": lambda row: "yes" if row.fits else "no",
}
# Partial FC's own tables, MB a GPU: arcface_torch, README, Speed Benchmark.
PARTIAL_FC = {1_400_000: 6056, 5_500_000: 9854, 8_000_000: 12310}
PARTIAL_FC |= {16_000_000: 19950, 29_000_000: 32324}


def planned(num_classes, machines=MACHINES, dim=DIM, batch=BATCH, **options):
    options = {"num_sampled": SAMPLED, "optimizer": LazyAdam(), **options}
    return tfxclass.plan(num_classes, dim, batch, machines, LINK, **options)


def cells(row, **first):
    return first | {name: shown(find(row)) for name, find in COLUMNS.items()}


def shown(value):
    if isinstance(value, int):
        return f"{value:,}"
    if not isinstance(value, float):
        return value
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def by_strategy():
    return [
        cells(row, classes=shown(size), strategy=row.strategy)
        for size in SIZES
        for row in planned(size).rows
    ]


def exact():
    return [
        cells(found[name], classes=shown(size), strategy=name)
        for size in SIZES[:3]
        for found in [planned(size, num_sampled=None)]
        for name in ("mirrored", "sharded")
    ]


def more_machines():
    """How many machines a hundred and a thousand million classes take."""
    return [
        cells(row, classes=shown(size), machines=machines)
        for size in SIZES[2:]
        for machines in (8, 64, 256)
        for row in [planned(size, machines)["sharded"]]
    ]


def options():
    """What bfloat16 and compact optimizer state do, at 10M classes."""
    small = LazyAdam(second_moment="row", slot_dtype="bfloat16")
    half = {"kernel_dtype": "bfloat16"}
    kinds = {
        "float32, LazyAdam": {},
        "bfloat16, LazyAdam": half,
        "float32, compact state": {"optimizer": small},
        "bfloat16, compact state": {**half, "optimizer": small},
    }
    return [
        {"class vectors, optimizer": name}
        | cells(found[strategy], strategy=strategy)
        for name, kind in kinds.items()
        for found in [planned(SIZES[1], **kind)]
        for strategy in ("mirrored", "sharded")
    ]


def partial_fc():
    """Partial FC's memory on eight V100 against the plan's."""
    rows, sgd = [], LazySGD(0.1, momentum=0.9)
    for size, published in PARTIAL_FC.items():
        found = planned(
            size, 8, 512, 1024, num_sampled=size // 10, optimizer=sgd
        )["sharded"]
        ours = found.machine_bytes / 1e6
        row = {"classes": shown(size), "published MB": shown(published)}
        row["plan MB, head alone"] = shown(ours)
        rows.append({**row, "difference": shown(published - ours)})
    return rows


TABLES = by_strategy, exact, more_machines, options, partial_fc
_TABLE = re.compile(r"<!-- table: (\w+) -->.*?<!-- end -->", re.DOTALL)


def filled(text):
    """`text` with its tables as the plan makes them now."""
    makers = {make.__name__: make for make in TABLES}

    def fill(found):
        table = measure.table(makers[found[1]]())
        return f"<!-- table: {found[1]} -->\n\n{table}\n\n<!-- end -->"

    return _TABLE.sub(fill, text)


def draw():
    """docs/scale.png: memory of a machine against the number of classes."""
    sizes = [int(10 ** (6 + i / 2)) for i in range(7)]
    plans = [planned(size) for size in sizes]
    labels = {
        "mirrored": "all classes on each machine",
        "sharded": "classes split over 8 machines",
    }
    limits, lines = [], []
    for name, label in labels.items():
        each = [plan[name].machine_bytes / 1e9 for plan in plans]
        lines.append((sizes, each, {"label": label}))
        limits.append(np.exp(np.interp(np.log(24), *np.log([each, sizes]))))
    rows = [planned(size, 256)["sharded"] for size in sizes]
    each = [row.machine_bytes / 1e9 for row in rows]
    lines.append((sizes, each, {"label": "split over 256 machines"}))
    published = "Partial FC as published: 8 GPUs, width 512"
    each = [mb / 1e3 for mb in PARTIAL_FC.values()]
    style = {"marker": "^", "ls": "", "color": "black", "label": published}
    lines.append((list(PARTIAL_FC), each, style))
    style = {"color": "gray", "ls": "--", "label": "24 GB, a large GPU"}
    lines.append(((sizes[0], sizes[-1]), (24, 24), style))
    whole, shared = (limit / 1e6 for limit in limits)
    figure_style.curves(
        lines,
        os.path.join(DOCS, "scale.png"),
        f"24 GB hold {whole:.0f} million classes, or {shared:.0f} million "
        "split over 8 machines",
        xlabel="number of classes",
        ylabel="GB on each machine",
        ylim=(0.02, 1e6),
    )


def main():
    with open(PAGE) as f:
        text = filled(f.read())
    with open(PAGE, "w") as f:
        f.write(text)
    draw()


if __name__ == "__main__":
    main()
