"""Blocks of logits and matrices."""

import numpy as np

from tests.fuzz_ops.descriptions import assert_near
from tests.fuzz_ops.descriptions import assert_ranked
from tests.fuzz_ops.descriptions import described
from tests.fuzz_ops.descriptions import is_moderate

EPSILON = float(np.finfo(np.float32).eps)


def draw_block(d, of_targets, fifth, sixth):
    batch, block, width = d.size(0), d.size(0, 150), d.size(0, 3)
    offset = d.choice([0, 10, 2**40])
    return {
        "logits": d.floats(batch, block),
        "targets": d.ids((batch, width), block, padded=True) + offset,
        of_targets: d.floats(batch, width),
        "offset": np.int64(offset),
        fifth: d.floats(batch),
        sixth: np.abs(d.floats(batch)),
    }


def check_stats(args, outputs, live):
    del live
    top, total = outputs
    names = ("logits", "delta", "running_max", "running_sum")
    if not is_moderate(*[args[name] for name in names]):
        return
    assert np.all(top >= args["running_max"]) and np.all(np.isfinite(total))


@described("softmax_block_stats", check_stats)
def _draw_stats(d):
    return draw_block(d, "delta", "running_max", "running_sum")


def check_grad(args, outputs, live):
    del live
    assert outputs[0].shape == args["logits"].shape
    if is_moderate(*[a for a in args.values()]):
        assert np.all(np.isfinite(outputs[0]))


@described("softmax_block_grad", check_grad)
def _draw_grad(d):
    return draw_block(d, "target_grad", "logsumexp", "upstream")


def check_top_k(args, outputs, live):
    del live
    scores, ids = outputs
    assert scores.shape == ids.shape == args["scores"].shape
    offset = int(np.ravel(args["offset"])[0])
    if np.any(args["ids"] >= 0) or not np.all(args["scores"] == -np.inf):
        return  # not the state that a search begins with
    if np.all(args["ids"] == -1):
        assert_ranked(ids, scores, offset + args["logits"].shape[1])


@described("top_k_block", check_top_k)
def _draw_top_k(d):
    batch, block, k = d.size(0), d.size(0, 150), max(d.size(), 1)
    return {
        "logits": d.floats(batch, block),
        "offset": np.int64(d.choice([0, 10, 2**40])),
        "scores": np.full((batch, k), -np.inf, np.float32),
        "ids": np.full((batch, k), -1, np.int64),
    }


def check_written(args, outputs, live):
    del live
    expected = np.array(args["buffer"])
    start = int(np.ravel(args["start"])[0])
    expected[start : start + len(args["rows"])] = args["rows"]
    np.testing.assert_array_equal(outputs[0], expected)


@described("write_rows", check_written)
def _draw_write_rows(d):
    rows, width, count = d.size(), d.size(), d.size(0)
    total = rows + count
    return {
        "buffer": d.floats(total, width),
        "rows": d.floats(count, width),
        "start": d.integer(0, rows),
    }


def check_shape(args, outputs, live):
    del live
    assert outputs[0].shape == np.shape(args["like"])


@described("empty_like", check_shape)
def _draw_empty_like(d):
    return {"like": d.floats(d.size(0), d.size(0))}


def check_threshold(args, outputs, live):
    del live
    logits, (top, tau, squares) = args["logits"], outputs
    if not is_moderate(logits) or not len(logits):
        return
    # TensorFlow's threads take denormal numbers for 0.
    np.testing.assert_allclose(top, logits.max(1), atol=1e-37, rtol=0)
    # Probabilities are differences of numbers of this size.
    bound = EPSILON * logits.shape[1] * (1 + np.abs(logits).max(1))
    p = np.maximum(logits.astype(np.float64) - top[:, None] - tau[:, None], 0)
    assert_near(p.sum(1), 1, 4 * bound)
    assert np.all(squares > 0)


@described("sparsemax_threshold", check_threshold)
def _draw_sparsemax(d):
    return {"logits": d.floats(d.size(0), max(d.size(1, 200), 1))}


def draw_exact(d, values):
    batch, classes, dim = d.size(0), d.size(0, 150), d.size()
    width = d.size(0, 3)
    ids = np.full((batch, width), -1, np.int64)
    for row in ids if classes >= width else ():
        row[:] = d.random.permutation(classes)[:width]
    return {
        "queries": d.floats(batch, dim),
        "kernel": d.floats(classes, dim),
        "bias": [d.floats(classes)] if d.chance() else [],
        "targets": ids,
        values: d.floats(batch, width),
        "epsilon": d.choice([0.0, 1e-6]),
        "bfloat16_products": d.chance(),
    }


def check_exact(args, outputs, live):
    del live
    top, total, rows, *_ = outputs
    assert top.shape == total.shape == args["queries"].shape[:1]
    floats = (args["queries"], args["kernel"], *args["bias"], args["deltas"])
    if not is_moderate(*floats):
        return
    assert np.all(np.isfinite(total)) and np.all(np.isfinite(rows))
    assert not len(args["kernel"]) or np.all(total >= 1 - 1e-6)


@described("exact_softmax", check_exact)
def _draw_exact(d):
    kept = {"kept_bytes": d.choice([0, 2**30])}
    return {**draw_exact(d, "deltas"), "wants_rows": d.chance(), **kept}


def check_exact_grad(args, outputs, live):
    del live
    assert outputs[0].shape == args["kernel"].shape
    assert len(outputs[1]) == (len(args["kernel"]) if args["bias"] else 0)


def draw_class_gradient(d):
    """Arguments of the gradients, in every op that computes them."""
    args = draw_exact(d, "target_grads")
    batch, (classes, dim) = len(args["queries"]), args["kernel"].shape
    rows = -(-batch // 32) * 32
    chunk = min(max(32_768 // max(dim, 1) // 12 * 12, 48), 252)
    kept = [d.floats(rows * classes), d.floats(rows * -(-classes // chunk))]
    return {
        **args,
        "kept": kept if d.chance() else [],
        "logsumexp": d.floats(batch),
        "factor": d.floats(batch),
        "uniform": d.choice([0.0, 0.1]),
    }


@described("exact_softmax_grad", check_exact_grad)
def _draw_exact_grad(d):
    return draw_class_gradient(d)
