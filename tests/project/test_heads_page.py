"""The table of docs/heads.md says what the heads take and refuse."""

import pathlib
import re

import keras
import numpy as np
import pytest

from tfxclass import layers

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "heads.md"
CLASSES, DIM = 20, 4
OPTIONS = {
    "AdaptiveProjectedSoftmax": {
        "group_sizes": [8, 12],
        "projection_dims": [3, 2],
    },
    "AdaptiveSoftmax": {"cutoffs": [8]},
    "DifferentiatedSoftmax": {"blocks": [(8, 3), (12, 1)]},
    "HierarchicalSoftmax": {"tree": "balanced"},
    "ProjectedSoftmax": {"projection_dim": DIM},
    "TwoTowerSoftmax": {
        "class_tower": layers.ClassTower(
            keras.Sequential([keras.layers.Dense(DIM)]), np.zeros((CLASSES, 2))
        ),
    },
}
SAMPLED = (
    "TwoTowerSoftmax",
    "SampledSoftmax",
    "SelectiveSoftmax",
    "LSHSoftmax",
)
SAMPLED += ("NoiseContrastive", "NegativeSampling")
NO_HEADS = ("ClassHead", "OutputHead", "BlockHead")
NO_HEADS += ("ClassTower", "Cosine", "SparseDense", "split_by_frequency")
COLUMNS = {
    "`only` in exports": lambda make: make().has_class_rows,
    "`search=`, ONNX": lambda make: make().has_plain_logits,
    "exports exact": lambda make: make().has_class_rows,
    "`tied_to`": lambda make: takes(make, tied_to=embedding()),
    "bfloat16 rows": lambda make: takes(make, kernel_dtype="bfloat16"),
    "a sampler": lambda make: (
        takes(make, sampler="uniform", num_sampled=9)
        or takes(make, num_sampled=9)
    ),
    "independent labels": lambda make: takes(make, loss="sigmoid"),
}


def embedding():
    layer = keras.layers.Embedding(CLASSES, DIM)
    layer.build()
    return layer


def maker(name):
    options = dict(OPTIONS.get(name, {}))
    if name in SAMPLED:
        options["num_sampled"] = 9

    def make(**more):
        head = getattr(layers, name)(CLASSES, **{**options, **more})
        head.build((None, DIM))
        return head

    return make


def takes(make, **options):
    """Whether a head with these options is built."""
    try:
        make(**options)
    except (TypeError, ValueError):
        return False
    return True


def table():
    """The rows of the table, as they have to be."""
    names = [x for x in layers.__all__ if x not in NO_HEADS]
    yield "| head | " + " | ".join(COLUMNS) + " |"
    yield "| --- |" + " --- |" * len(COLUMNS)
    for name in names:
        make = maker(name)
        found = ["yes" if has(make) else "" for has in COLUMNS.values()]
        yield f"| `{name}` | " + " | ".join(found) + " |"


@pytest.mark.filterwarnings("ignore")
def test_the_table_is_that_of_the_code():
    expected = "\n".join(table())
    assert expected in PAGE.read_text(encoding="utf8"), expected


@pytest.mark.parametrize("name", sorted({*layers.__all__} - {*NO_HEADS}))
def test_help_names_the_arguments_that_are_passed_on(name):
    head = getattr(layers, name)
    found = re.search(
        r"kwargs: (?:other )?arguments of `(\w+)`(?:, without ([^.]*))?\.",
        head.__doc__,
    )
    base = getattr(layers, found[1])
    assert issubclass(head, base) and head is not base
    refused = set(re.findall(r"`(\w+)`", found[2] or ""))
    takes = {
        "loss": len(head.loss_kinds) > 1,
        "kernel_dtype": "bfloat16" in head.kernel_dtypes,
    }
    assert refused & takes.keys() == {x for x in takes if not takes[x]}
