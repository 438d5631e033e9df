"""The loss and the search in a tree of classes."""

import numpy as np

from tests.fuzz_ops.calls import Call
from tests.fuzz_ops.calls import run
from tests.fuzz_ops.descriptions import assert_distinct
from tests.fuzz_ops.descriptions import assert_ids
from tests.fuzz_ops.descriptions import assert_ranked
from tests.fuzz_ops.descriptions import described
from tests.fuzz_ops.descriptions import is_moderate


def draw_tree(d):
    """`(nodes, leaves, number of rows, independent)` of a random tree."""
    independent = d.chance()
    parents, children = [-1], {0: []}
    open_nodes = [0]
    for _ in range(int(d.integer(0, 6))):
        if not open_nodes:
            break
        node = open_nodes.pop(0)
        for _ in range(int(d.integer(2, 4))):
            children[node].append(len(parents))
            open_nodes.append(len(parents))
            children[len(parents)] = []
            parents.append(node)
    nodes = np.zeros((len(parents), 5), np.int64)
    row, leaves = 0, []
    for i, parent in enumerate(parents):
        degree = len(children[i])
        if degree == 0:
            nodes[i] = parent, 0, 0, 0, len(leaves)
            leaves.append(i)
            continue
        nodes[i] = parent, children[i][0], degree, row, -1
        row += 1 if degree == 2 and not independent else degree
    return nodes, np.array(leaves, np.int64), row, independent


def draw_paths(d):
    nodes, leaves, rows, independent = draw_tree(d)
    batch, dim, p = d.size(0), d.size(), d.size(0, 3)
    labels = d.ids((batch, p), len(leaves), padded=True)
    return {
        "queries": d.floats(batch, dim),
        "kernel": d.floats(rows, dim),
        "nodes": nodes,
        "leaves": leaves,
        "labels": labels,
        "weights": np.abs(d.floats(batch, p)),
        "independent": independent,
        "max_depth": 64,
    }


def check_loss(args, outputs, live):
    del live
    losses, rows, slopes, splits = outputs
    assert len(splits) == len(args["queries"]) + 1 == len(losses) + 1
    assert splits[0] == 0 and splits[-1] == len(rows) == len(slopes)
    assert np.all(np.diff(splits) >= 0)
    assert_ids(rows, len(args["kernel"]))
    arrays = args["queries"], args["kernel"], args["weights"]
    if is_moderate(*arrays) and np.all(args["weights"] >= 0):
        assert np.all(losses >= -1e-4 * (1 + args["weights"].sum(1)))


@described("tree_path_loss", check_loss)
def _draw_path_loss(d):
    return draw_paths(d)


def check_path_grad(args, outputs, live):
    del live
    of_queries, touched, of_rows = outputs
    assert of_queries.shape == args["queries"].shape
    assert of_rows.shape == (len(touched), args["queries"].shape[1])
    assert_distinct(touched)
    assert_ids(touched, len(args["kernel"]))
    if all(is_moderate(a) for a in args.values()):
        assert np.all(np.abs(of_rows) < np.inf)


@described("tree_path_grad", check_path_grad)
def _draw_path_grad(d):
    args = draw_paths(d)
    if d.wild:  # what the loss refuses has no gradient
        args = {**args, "queries": d.floats(2, 3), "kernel": d.floats(9, 3)}
        rows = d.ids((6,), 9)
        slopes, splits = d.floats(6), d.splits(2, 6)
    else:
        _, rows, slopes, splits = run(Call("tfxclass_tree_path_loss", args))
    return {
        "queries": args["queries"],
        "kernel": args["kernel"],
        "rows": rows,
        "slopes": slopes,
        "splits": splits,
        "upstream": d.floats(len(args["queries"])),
    }


def check_best(args, outputs, live):
    del live
    ids, scores = outputs
    assert ids.shape == scores.shape == (len(args["queries"]), args["k"])
    classes = args["nodes"][:, 4]
    classes = classes[classes >= 0]
    if len(np.unique(classes)) < len(classes):
        return  # two leaves of a class are found twice
    assert_ranked(ids, scores, len(args["nodes"]))
    assert np.all(scores <= 0), scores


@described("tree_top_k", check_best)
def _draw_top_k(d):
    args = draw_paths(d)
    return {
        "queries": args["queries"],
        "kernel": args["kernel"],
        "nodes": args["nodes"],
        "least": np.float32(d.choice([-np.inf, -3.0, 0.0])),
        "k": int(d.integer(1, min(9, len(args["nodes"])))),
        "independent": args["independent"],
    }


def draw_logits(d):
    nodes, leaves, rows, independent = draw_tree(d)
    return {
        "logits": d.floats(d.size(0), rows),
        "nodes": nodes,
        "independent": independent,
    }, len(leaves)


def check_logs(args, outputs, live):
    del live
    (logs,) = outputs
    assert logs.shape == (len(args["logits"]), args["num_classes"])
    if is_moderate(args["logits"]):
        assert not np.any(np.isnan(logs)) and np.all(logs <= 0)


@described("tree_log_probabilities", check_logs)
def _draw_logs(d):
    args, num_classes = draw_logits(d)
    return {**args, "num_classes": num_classes}


def check_logs_grad(args, outputs, live):
    del live
    assert outputs[0].shape == args["logits"].shape
    if is_moderate(args["logits"], args["upstream"]):
        assert np.all(np.isfinite(outputs[0])), outputs[0]


@described("tree_log_probabilities_grad", check_logs_grad)
def _draw_logs_grad(d):
    args, num_classes = draw_logits(d)
    return {**args, "upstream": d.floats(len(args["logits"]), num_classes)}
