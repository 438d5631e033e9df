"""Calls that once ended the process, hung or gave nonsense.

`python -m tests.fuzz_ops.known` prints what becomes of each, as JSON.
"""

import functools
import json
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
# oneDNN's allocator waits 10 s for memory before it says that there is none.
os.environ["TF_ENABLE_ONEDNN_OPTS"] = "0"

import numpy as np  # noqa: E402

from tests.fuzz_ops import forks  # noqa: E402
from tests.fuzz_ops.calls import Call  # noqa: E402
from tests.fuzz_ops.calls import Index  # noqa: E402
from tests.fuzz_ops.calls import Variable  # noqa: E402
from tests.fuzz_ops.calls import run  # noqa: E402

NARROW = Variable(np.zeros((200, 0), np.float32))
#: 40 of them would be more numbers than 63 bits count.
NO_ROWS = np.zeros((0, 2**58), np.float32)
ROWS = np.ones((6, 3), np.float32)
#: Root and one leaf, of class 0.
TWO_LEAVES = [[-1, 1, 2, 0, -1], [0, 0, 0, 0, 0], [0, 0, 0, 0, 1]]
#: Each node has all later ones as children, whatever they say.
TANGLED = [[i - 1, i + 1, 38 - i, 0, -(i < 38)] for i in range(39)]


def forest_build(kernel=NARROW, num_trees=2, leaf_size=4, seed=0):
    return Call(
        "tfxclass_forest_build",
        {
            "forest": Index("forest"),
            "kernel": kernel,
            "num_trees": np.int64(num_trees),
            "leaf_size": np.int64(leaf_size),
            "seed": np.asarray(seed, np.int64),
        },
    )


def pca_hash(name, **more):
    return Call(
        f"tfxclass_pca_hash_{name}",
        {
            "index": Index("pca_hash"),
            "kernel": NARROW,
            **more,
            "num_groups": np.int64(3),
            "seed": np.int64(0),
            "normalize": False,
        },
    )


def lsh_build(kernel, **options):
    options = {"hash": "dwta", "num_hashes": 2, "num_tables": 3, **options}
    return Call(
        "tfxclass_lsh_build",
        {"index": Index("lsh"), "kernel": kernel, "seed": np.int64(0)}
        | options,
    )


def forest_query(queries, num_neighbors):
    return Call(
        "tfxclass_forest_query",
        {
            "forest": Index("forest"),
            "kernel": Variable(ROWS),
            "queries": queries,
            "num_neighbors": np.int64(num_neighbors),
            "bucket": np.zeros(0, np.int64),
            "num_candidates": np.int64(0),
            "normalize": False,
        },
    )


def write_rows(buffer, rows, start):
    return Call(
        "tfxclass_write_rows",
        {
            "buffer": buffer,
            "rows": rows,
            "start": np.int64(start),
        },
    )


def tree_logs(num_classes, independent):
    return Call(
        "tfxclass_tree_log_probabilities",
        {
            "logits": np.ones((3, 2 if independent else 1), np.float32),
            "nodes": np.array(TWO_LEAVES, np.int64),
            "num_classes": num_classes,
            "independent": independent,
        },
    )


def tree_top_k(nodes, k):
    return Call(
        "tfxclass_tree_top_k",
        {
            "queries": np.ones((2, 2), np.float32),
            "kernel": np.ones((len(nodes), 2), np.float32),
            "nodes": np.array(nodes, np.int64),
            "least": np.float32(-np.inf),
            "k": k,
            "independent": False,
        },
    )


def top_k_block(offset):
    return Call(
        "tfxclass_top_k_block",
        {
            "logits": np.ones((1, 4), np.float32),
            "offset": np.int64(offset),
            "scores": np.full((1, 2), -np.inf, np.float32),
            "ids": np.full((1, 2), -1, np.int64),
        },
    )


def sgd_catch_up(clock, capacity=8):
    return Call(
        "tfxclass_lazy_sgd_catch_up",
        {
            "variable": Variable(ROWS),
            "slots": [Variable(ROWS)],
            "history": [
                Variable(np.ones(6, np.int64)),
                Variable(np.int64(clock)),
                Variable(np.zeros(9, np.float64)),
            ],
            "capacity": capacity,
            "ids": np.arange(6),
            "terms": np.ones((1, 8), np.float32),
            "momentum": 1.0,
        },
    )


INVALID, MEMORY = "InvalidArgumentError", "ResourceExhaustedError"

#: Name to the call and what it must give: the name of an error, or "done".
KNOWN = {
    "forest_of_width_0": (forest_build(), INVALID),
    "pca_hash_of_width_0": (pca_hash("build"), INVALID),
    "pca_hash_advance_of_width_0": (
        pca_hash(
            "advance",
            step=np.int64(0),
            interval=np.int64(2),
            rebuild=np.bool_(True),
        ),
        INVALID,
    ),
    "dwta_of_width_0": (lsh_build(NARROW), INVALID),
    "trees_past_32_bits": (
        forest_build(Variable(ROWS), num_trees=2**32 + 1),
        INVALID,
    ),
    "trees_past_memory": (
        forest_build(Variable(ROWS), num_trees=10**8),
        MEMORY,
    ),
    "no_seed": (
        forest_build(Variable(ROWS), seed=np.zeros(0)),
        INVALID,
    ),
    "no_bucket": (forest_query(ROWS, 2), INVALID),
    "tables_past_memory": (
        lsh_build(Variable(ROWS), hash="simhash", num_tables=7 * 10**7),
        MEMORY,
    ),
    "neighbors_past_63_bits": (
        tree_top_k(TWO_LEAVES, 2**62),
        INVALID,
    ),
    "classes_past_memory": (tree_logs(2**62, True), INVALID),
    "classes_past_memory_of_a_softmax": (tree_logs(2**62, False), INVALID),
    "tree_that_is_none": (tree_top_k(TANGLED, 100), INVALID),
    "rows_past_the_buffer": (write_rows(ROWS, ROWS[:1], 2**63 - 1), INVALID),
    "rows_of_a_huge_empty_buffer": (
        write_rows(NO_ROWS, np.zeros((40, 0), np.float32), 0),
        INVALID,
    ),
    "offset_past_63_bits": (top_k_block(2**63 - 1), INVALID),
    "offset_below_0": (top_k_block(-3), INVALID),
    "momentum_that_never_falls": (sgd_catch_up(2**62), "done"),
    "clock_below_0": (sgd_catch_up(-1), INVALID),
    "clock_past_63_bits": (sgd_catch_up(2**63 - 1), INVALID),
    "capacity_past_63_bits": (sgd_catch_up(1, 2**63 - 1), INVALID),
    "transpose_of_a_huge_empty_matrix": (
        Call(
            "tfxclass_transpose",
            {"matrix": np.zeros((0, 2**50), np.float32)},
        ),
        "done",
    ),
}


def outcome(call):
    try:
        run(call)
    except Exception as e:
        return type(e).__name__
    return "done"


def main():
    jobs = [functools.partial(outcome, call) for call, _ in KNOWN.values()]
    results = dict(zip(KNOWN, (r for _, r in forks.run_jobs(jobs))))
    print(json.dumps(results))


if __name__ == "__main__":
    main()
