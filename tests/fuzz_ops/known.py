"""Calls that once ended the process, hung or gave nonsense.

`python -m tests.fuzz_ops.known` prints what becomes of each, as JSON.
"""

import functools
import json
import os
import resource

# A test that imports this would pass them on to all processes it starts.
if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    # oneDNN's allocator waits 10 s for memory before it says there is none.
    os.environ["TF_ENABLE_ONEDNN_OPTS"] = "0"

import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

from tests.fuzz_ops import forks  # noqa: E402
from tests.fuzz_ops.calls import Call  # noqa: E402
from tests.fuzz_ops.calls import Index  # noqa: E402
from tests.fuzz_ops.calls import Variable  # noqa: E402
from tests.fuzz_ops.calls import advance  # noqa: E402
from tests.fuzz_ops.calls import index_op  # noqa: E402
from tests.fuzz_ops.calls import run  # noqa: E402
from tests.fuzz_ops.forks import mapped  # noqa: E402

NARROW = Variable(np.zeros((200, 0), np.float32))
#: 40 of them would be more numbers than 63 bits count.
NO_ROWS = np.zeros((0, 2**58), np.float32)
#: A row for each of 40 queries would be more numbers than 63 bits count.
NO_TARGETS = np.zeros((0, 2**58), np.int64)
ROWS = np.ones((6, 3), np.float32)
WIDE = Variable(np.ones((2, 1100), np.float32))
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


def exact_softmax(targets):
    return Call(
        "tfxclass_exact_softmax",
        {
            "queries": np.ones((40, 3), np.float32),
            "kernel": ROWS,
            "bias": [],
            "targets": targets,
            "deltas": np.zeros(targets.shape, np.float32),
            "wants_rows": False,
            "kept_bytes": 0,
            "epsilon": 0.0,
            "bfloat16_products": False,
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


def one_vs_rest(value):
    one, none = np.array([0, 1]), np.zeros(1, np.int64)
    names = ["label", "group_label", "group_row"]
    ragged = {f"{name}_splits": one for name in names}
    lists = {name: none for name in ("labels", "group_labels", "group_rows")}
    return Call(
        "tfxclass_linear_one_vs_rest",
        {
            "feature_splits": one,
            "features": none,
            "values": np.array([value], np.float32),
            **ragged,
            **lists,
            "start_splits": np.zeros(0, np.int64),
            "start_columns": np.zeros(0, np.int32),
            "start_values": np.zeros(0, np.float32),
            "start_biases": np.zeros(0, np.float32),
            "num_features": 1,
            "num_labels": 1,
            "c": 1.0,
            "bias": 1.0,
            "num_epochs": 2,
            "tolerance": 0.0,
            "threshold": 0.0,
            "seed": 0,
        },
    )


def lsh_marked_past():
    """Rows that the kernel does not have are no rows to hash."""
    rows = np.ones((100, 3), np.float32)
    options = {"seed": 0, "hash": "simhash", "num_hashes": 2, "num_tables": 3}
    index, kernel = index_op("lsh", "handle")(), tf.Variable(rows)
    index_op("lsh", "build")(index, kernel.handle, **options)
    index_op("lsh", "mark")(index, [0, 10**8])
    advance("lsh", index, kernel.handle, 5, options)
    index_op("lsh", "save")(index)


def forests_of_two_shapes():
    """Trees of 200 rows are no part of a forest of 20."""
    random = np.random.default_rng(0)
    options = {"num_trees": 4, "leaf_size": 5, "seed": 0}
    few, many = (
        tf.Variable(random.normal(size=(n, 8)).astype("f4")) for n in (20, 200)
    )
    forest = index_op("forest", "handle")()
    index_op("forest", "build")(forest, few.handle, **options)
    for step in (0, 1):
        advance("forest", forest, many.handle, step, options)
    for step in (1, 2, 3):
        ids, _ = index_op("forest", "query")(
            forest, few.handle, few, num_neighbors=6, bucket=0,
            num_candidates=0, normalize=False,
        )  # fmt: skip
        assert np.all(ids < 20), ids


def saved_in_little_memory():
    """Tables whose bytes fit, and a copy of them does not."""
    options = {"hash": "simhash", "num_hashes": 30, "num_tables": 1, "seed": 0}
    kernel = tf.Variable(np.ones((2, 300_000), np.float32))
    index = index_op("lsh", "handle")()
    index_op("lsh", "build")(index, kernel.handle, **options)
    advance("lsh", index, kernel.handle, 5, options)
    most, failed = resource.getrlimit(resource.RLIMIT_AS), None
    for megabytes in range(96, 260, 12):
        soft = mapped() + megabytes * 2**20
        resource.setrlimit(resource.RLIMIT_AS, (soft, most[1]))
        try:
            saved = index_op("lsh", "save")(index)
        except tf.errors.ResourceExhaustedError as e:
            failed = e
        else:
            del saved
        finally:
            resource.setrlimit(resource.RLIMIT_AS, most)
    raise failed


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
    "tables_past_16_bits": (
        lsh_build(Variable(ROWS), hash="simhash", num_tables=2**16),
        INVALID,
    ),
    "tables_past_memory": (
        lsh_build(WIDE, hash="simhash", num_hashes=30, num_tables=60000),
        MEMORY,
    ),
    "hash_functions_past_31_bits": (
        lsh_build(WIDE, hash="simhash", num_hashes=30, num_tables=65535),
        INVALID,
    ),
    "marked_rows_that_are_not_there": (lsh_marked_past, INVALID),
    "forests_of_two_shapes": (forests_of_two_shapes, "done"),
    "saved_where_its_copy_does_not_fit": (saved_in_little_memory, MEMORY),
    "nodes_fewer_than_neighbors": (tree_top_k(TWO_LEAVES, 10**6), INVALID),
    "squares_past_float32": (one_vs_rest(1e20), INVALID),
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
    "targets_past_63_bits": (exact_softmax(NO_TARGETS), INVALID),
}


def outcome(call):
    """Of a `Call`, or of a function that makes several."""
    try:
        run(call) if isinstance(call, Call) else call()
    except Exception as e:
        return type(e).__name__
    return "done"


def main():
    jobs = [functools.partial(outcome, call) for call, _ in KNOWN.values()]
    results = dict(zip(KNOWN, (r for _, r in forks.run_jobs(jobs))))
    print(json.dumps(results))


if __name__ == "__main__":
    main()
