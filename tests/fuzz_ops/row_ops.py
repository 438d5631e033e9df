"""Optimizer steps on rows, active classes, lines of text."""

import numpy as np

from tests.fuzz_ops.block_ops import draw_class_gradient
from tests.fuzz_ops.calls import read
from tests.fuzz_ops.descriptions import assert_distinct
from tests.fuzz_ops.descriptions import assert_ids
from tests.fuzz_ops.descriptions import assert_near
from tests.fuzz_ops.descriptions import described
from tests.fuzz_ops.descriptions import is_moderate
from tests.fuzz_ops.values import Typed
from tests.fuzz_ops.values import Variable

EPSILON = float(np.finfo(np.float32).eps)


# bfloat16's name is NumPy's, once TensorFlow is imported.
ROW_DTYPES = ["float32", "float32", "float64", "float16", "bfloat16"]


def check_update(args, outputs, live):
    """Rows that were not touched stay as they are."""
    del outputs
    check_rows(args, live, np.ravel(args["ids"]))


def check_class_update(args, outputs, live):
    """A step that moves nothing leaves the rows as they are."""
    rate = args.get("alpha", args.get("learning_rate"))
    classes = len(args["variable"].value)
    assert len(outputs[0]) == (classes if args["bias"] else 0)
    is_still = np.all(rate == 0) and np.all(args["decay"] == 0)
    if is_still and args["T"] == "float32" and not args["slots"]:
        kernel = args["variable"].value
        # 0 times an infinite gradient is no number.
        given = [v for v in args.values() if isinstance(v, np.ndarray)]
        if is_moderate(kernel, args["uniform"], *args["bias"], *given):
            found = read(live["variable"], kernel.dtype)
            np.testing.assert_array_equal(found, kernel)


def check_rows(args, live, ids):
    """All rows but `ids` are as before, and so are their slots."""
    others = np.setdiff1d(np.arange(len(args["variable"].value)), ids)
    variables = [args["variable"], *args["slots"]]
    for variable, handle in zip(variables, [live["variable"], *live["slots"]]):
        after = read(handle, variable.value.dtype)
        np.testing.assert_array_equal(after[others], variable.value[others])


def draw_moments(d):
    """`(row_moments, bfloat16_moments)`."""
    has_row_moments = d.chance()
    return has_row_moments, has_row_moments and d.chance()


def draw_slot(d, shape, dtype, moments, is_moment):
    has_row_moments, has_bfloat16_moments = moments
    if is_moment and has_bfloat16_moments:
        dtype = "bfloat16"
    elif has_row_moments and not is_moment:
        dtype, shape = "float32", shape[:1]
    return Variable(np.abs(d.floats(*shape)).astype(dtype))


def slot_type(args):
    """The type of the gradients."""
    if args["row_moments"]:
        return "float32"
    for slot in args["slots"]:
        return slot.value.dtype.name
    return args["T"]


def describe_rule(rule, least_slots, most_slots, num_moments, attrs):
    is_adam = rule == "adam"

    def common(d):
        shape = (d.size(), *[d.size() for _ in range(d.choice([0, 1, 1, 2]))])
        dtype, slots = (
            d.choice(ROW_DTYPES),
            int(d.integer(least_slots, most_slots)),
        )
        slot_dtype, moments = dtype, (False, False)
        if dtype in ("float32", "bfloat16") and d.chance(0.3):
            slot_dtype, moments = "float32", draw_moments(d)
        args = {
            "variable": Variable(d.floats(*shape).astype(dtype)),
            "slots": [
                draw_slot(d, shape, slot_dtype, moments, s < num_moments)
                for s in range(slots)
            ],
            "T": dtype,
            "row_moments": moments[0],
            "bfloat16_moments": moments[1],
            "seed": int(d.seed()),
            "ids": d.ids((d.size() if shape[0] else 0,), shape[0]),
        }
        if rule == "adagrad":
            args["offset"] = np.float64(d.choice([0.9, 1e-7]))
        if is_adam:
            args["beta_1"] = np.float64(d.choice([0.0, 0.9]))
            args["beta_2"] = np.float64(d.choice([0.99, 0.999]))
        return args

    def drawn_attrs(d, names):
        return {
            name: d.chance() if name == "nesterov" else d.choice([0.9, 0.1])
            for name in names
        }

    @described(f"lazy_{rule}_update", check_update)
    def draw_update(d):
        args = common(d)
        value = args["variable"].value
        shape = (len(args["ids"]), *value.shape[1:])
        rate = "alpha" if is_adam else "learning_rate"
        return {
            **args,
            "grads": Typed(d.floats(*shape).astype(slot_type(args))),
            "step": d.integer(0, 10**6),
            rate: np.float64(d.choice([0, 0.01, 0.1])),
            "decay": np.float64(d.choice([0, 0.01, 0.1])),
            **drawn_attrs(d, attrs),
        }

    @described(f"class_{rule}_update", check_class_update)
    def draw_class_update(d):
        gradient = draw_class_gradient(d)
        kernel = gradient.pop("kernel")
        gradient["epsilon_of_norm"] = gradient.pop("epsilon")
        args = common(d)
        dtype = d.choice(["float32", "bfloat16"])
        moments = draw_moments(d)
        rate = "alpha" if is_adam else "learning_rate"
        return {
            **args,
            **gradient,
            "variable": Variable(kernel.astype(dtype)),
            "slots": [
                draw_slot(d, kernel.shape, "float32", moments, s < num_moments)
                for s in range(len(args["slots"]))
            ],
            "T": dtype,
            "S": "float32",
            "row_moments": moments[0],
            "bfloat16_moments": moments[1],
            "ids": np.zeros(0, np.int64),
            "step": d.integer(0, 10**6),
            rate: np.float64(d.choice([0, 0.01, 0.1])),
            "decay": np.float64(d.choice([0, 0.01, 0.1])),
            **drawn_attrs(d, attrs),
        }


describe_rule("sgd", 0, 1, 1, ["momentum", "nesterov"])
describe_rule("adagrad", 1, 1, 0, [])
describe_rule("adam", 2, 3, 1, ["epsilon"])


def check_sums(args, outputs, live):
    del live
    unique, sums = outputs
    expected, places = np.unique(args["ids"], return_inverse=True)
    np.testing.assert_array_equal(unique, expected)
    grads = args["grads"].value
    if not is_moderate(grads):
        return
    shape = (len(unique), *grads.shape[1:])
    total, size = np.zeros(shape), np.zeros(shape)
    np.add.at(total, places, grads.astype(np.float64))
    np.add.at(size, places, np.abs(grads.astype(np.float64)))
    assert_near(sums, total, len(grads) * EPSILON * size)


@described("sum_duplicate_rows", check_sums)
def _draw_sum_duplicate_rows(d):
    ids = d.ids((d.size(0),), d.choice([3, 100, 2**40, 2**62]))
    shape = (len(ids), *[d.size() for _ in range(d.choice([0, 1, 2]))])
    dtype = d.choice(["float32", "float64"])
    return {"ids": ids, "grads": Typed(d.floats(*shape).astype(dtype))}


def check_active(args, outputs, live):
    del live
    ids, log_count, positions, num_targets, num_candidates = outputs[:5]
    of_targets, used = outputs[5:]
    num_classes, targets = args["num_classes"], args["targets"]
    size = max(np.ravel(args["num_sampled"])[0], num_targets)
    assert len(ids) == len(log_count) == size
    assert_distinct(ids)
    assert_ids(ids, num_classes)
    assert positions.shape == of_targets.shape == targets.shape
    present = targets >= 0
    np.testing.assert_array_equal(ids[positions[present]], targets[present])
    assert np.all(positions[~present] == -1)
    assert num_targets == len(np.unique(targets[present]))
    assert 0 <= num_candidates <= len(ids) - num_targets
    assert 0 <= used <= 1
    if args["fill"] != "frequency" or np.all(
        np.diff(args["cumulative"].ravel()) > 0
    ):
        assert np.all(log_count <= 0) and not np.any(np.isnan(of_targets))


@described("active_classes", check_active)
def _draw_active(d):
    num_classes = int(d.choice([1, 5, 40, 300, 10**6]))
    fill = str(d.choice(["uniform", "log_uniform", "frequency"]))
    if fill == "frequency":
        num_classes = min(num_classes, 300)
    num_sampled = int(d.integer(1, min(num_classes, 60)))
    candidates = d.ids((d.size(0, 30),), num_classes, padded=True)
    weights = np.abs(d.floats(num_classes)) if fill == "frequency" else [1.0]
    return {
        "targets": d.ids((d.size(0),), num_classes, True),
        "candidates": candidates,
        "scores": d.floats(*candidates.shape),
        "seed": d.seed(2),
        "num_sampled": np.int64(num_sampled),
        "candidate_share": np.float32(d.choice([0, 0.3, 0.5, 1])),
        "cumulative": np.cumsum(weights, dtype=np.float64),
        "num_classes": num_classes,
        "fill": fill,
        "sample_overflow": d.chance(),
    }


def check_parsed(args, outputs, live):
    del live
    feature_splits, features, values, label_splits, labels = outputs
    for splits, items in ((feature_splits, features), (label_splits, labels)):
        assert splits[0] == 0 and splits[-1] == len(items)
        assert np.all(np.diff(splits) >= 0)
    assert_ids(features, args["num_features"])
    assert_ids(labels, args["num_classes"])
    assert np.all(np.isfinite(values))


@described("parse_xc_lines", check_parsed)
def _draw_lines(d):
    num_features, num_classes, lines = 50, 20, []
    for _ in range(d.size(0)):
        labels = d.ids((d.size(0, 4),), num_classes)
        features = d.ids((d.size(0, 6),), num_features)
        pairs = "".join(
            f" {f}:{v:.6g}" for f, v in zip(features, d.floats(len(features)))
        )
        line = ",".join(map(str, labels)) + (pairs or " ")
        lines.append(line.encode())
    array = np.empty(len(lines), object)
    array[:] = lines
    return {
        "lines": array,
        "line_numbers": np.arange(len(lines), dtype=np.int64),
        "num_features": num_features,
        "num_classes": num_classes,
        "path": "file.txt",
    }


def check_counted(args, outputs, live):
    """Each term of a text once, and no more than its bytes have."""
    del live
    splits, hashes, counts = outputs
    assert splits[0] == 0 and splits[-1] == len(hashes) == len(counts)
    for text, begin, end in zip(args["texts"], splits, splits[1:]):
        assert_distinct(hashes[begin:end])
        most = (len(text) + 2) * args["longest"]
        assert end - begin <= counts[begin:end].sum() <= most
    assert np.all(counts >= 1)


@described("count_terms", check_counted)
def _draw_texts(d):
    texts = [d.ids((d.size(0, 30),), 256) for _ in range(d.size(0))]
    array = np.empty(len(texts), object)
    array[:] = [text.astype(np.uint8).tobytes() for text in texts]
    return {
        "texts": array,
        "kind": d.choice(["words", "chars"]),
        "shortest": int(d.integer(1, 3)),
        "longest": int(d.integer(1, 5)),
    }
