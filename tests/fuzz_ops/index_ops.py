"""The indexes of class rows: made, refreshed, saved and restored."""

import functools

import numpy as np
import tensorflow as tf

from tests.fuzz_ops.calls import REFUSALS
from tests.fuzz_ops.calls import Call
from tests.fuzz_ops.calls import advance
from tests.fuzz_ops.calls import index_op
from tests.fuzz_ops.calls import run
from tests.fuzz_ops.descriptions import assert_ids
from tests.fuzz_ops.descriptions import described
from tests.fuzz_ops.values import Draw
from tests.fuzz_ops.values import Index
from tests.fuzz_ops.values import Variable

KINDS = ["forest", "cluster", "pca_hash", "lsh"]


def draw_hash(d):
    family = d.choice(["simhash", "sparse_simhash", "dwta"])
    num_hashes = d.size(1, 4)
    return {
        "hash": family,
        "num_hashes": max(num_hashes, 1),
        "num_tables": max(d.size(1, 20), 1),
        "bin_size": max(d.size(2, 9), 2),
    }


def draw_options(d, kind):
    """Of a build, but for the index and the kernel."""
    if kind == "forest":
        return {
            "num_trees": d.integer(1, 4),
            "leaf_size": d.integer(1, 9),
            "seed": d.seed(),
            "sketch": d.choice([0, 0, 1, 3, 8, 40]),
        }
    if kind == "lsh":
        return {
            "seed": d.seed(),
            **draw_hash(d),
            "inner_product": d.chance(),
            "incremental": d.chance(),
            "bucket_size": d.choice([0, 1, 5]),
            "redraw_interval": d.choice([0, 1, 2]),
        }
    return {
        "num_groups": d.integer(1, 9),
        "seed": d.seed(),
        "normalize": d.chance(),
    }


def draw_index(d, kind):
    """An index, most often built, and the kernel."""
    rows = d.choice([1, 5, 20, 80, 300])
    kernel = d.floats(rows, max(d.size(1, 17), 1))
    if d.chance(0.2):
        kernel[d.ids((3,), rows)] = 0
    if d.chance(0.3):
        kernel = kernel.astype("bfloat16")
    if d.chance(0.1):
        return Index(kind), kernel
    return Index(kind, kernel, draw_options(d, kind), d.chance(0.3)), kernel


def queries_of(d, kernel):
    return d.floats(d.size(), kernel.shape[1])


def followed(kind, name):
    """A check: the index is used and refreshed, and what is built is saved."""

    def check(args, outputs, live):
        del outputs
        kernel = args["kernel"].value if "kernel" in args else args[name].kernel
        index_op(kind, "save")(live[name])
        if is_kernel(kernel):
            follow(kind, kernel, live[name])

    return check


def is_kernel(kernel):
    return (
        isinstance(kernel, np.ndarray)
        and kernel.dtype == np.float32
        and kernel.ndim == 2
        and 0 < kernel.size < 10**6
    )


def check_saved(args, outputs, live):
    del args, live
    assert outputs[2].shape == (3,) and np.all(outputs[3] >= 0)


def check_times(args, outputs, live):
    del args, live
    count, seconds = outputs
    assert count >= 0 and seconds >= 0


def follow(kind, kernel, handle):
    """Uses an index in every way while it is refreshed.

    From rows of another number, too: part-way, both kernels are asked for.
    """
    d, options = Draw(np.random.default_rng(0)), options_of(kind)
    many = np.resize(kernel, (7 * len(kernel) + 3, kernel.shape[1]))
    kernels = [kernel, many]
    # They live as long as their handles are used.
    variables = [tf.Variable(rows) for rows in kernels]
    for number, step in ((0, 0), (1, 3), (1, 4), (0, 5), (0, 6), (0, 7)):
        past = len(kernels[number]) + np.array([0, 1, 70, 10**6])
        with_refusals(index_op(kind, "mark"), handle, past)
        given = variables[number].handle, 10**6 + step, options
        with_refusals(advance, kind, handle, *given)
        for variable, rows in zip(variables, kernels):
            use(d, kind, handle, variable.handle, rows)
    with_refusals(index_op(kind, "save"), handle)


def with_refusals(op, *args, **kwargs):
    try:
        return op(*args, **kwargs)
    except REFUSALS:
        return None


def options_of(kind):
    return draw_options(Draw(np.random.default_rng(1)), kind)


def use(d, kind, handle, variable, kernel):
    queries, count = queries_of(d, kernel), len(kernel)
    ids = d.ids((4,), count)
    seed = d.seed(2)
    with_refusals(index_op(kind, "mark"), handle, ids)
    if kind in ("cluster", "pca_hash"):
        with_refusals(index_op(kind, "members"), handle, ids, 5, seed)
    if kind == "lsh":
        valid = d.flags(len(queries), 1)
        queries = queries[:, None]
        with_refusals(
            index_op(kind, "query"), handle, queries, valid, ids, 20, 9, seed
        )
        with_refusals(
            index_op(kind, "members"), handle, queries, valid, ids % 2, 1, ids
        )
    if kind == "forest":
        last = {"bucket": 0, "num_candidates": 0}
        found = with_refusals(
            index_op(kind, "query"),
            handle,
            variable,
            queries,
            num_neighbors=6,
            normalize=False,
            **last,
        )
        if found is not None:
            assert_ids(found[0], count, padded=True)


@functools.cache
def saved(kind, number):
    """State and kernel of an index, drawn from `number`."""
    d = Draw(np.random.default_rng([number, KINDS.index(kind)]))
    d.wild = False
    kernel = d.floats(d.choice([1, 6, 30]), d.choice([1, 3, 9]))
    options = draw_options(d, kind)
    index = Index(kind, kernel, options, d.chance())
    outputs = run(Call(f"tfxclass_{kind}_save", {"index": index}))
    ready, pending = (np.array(o, object) for o in outputs[:2])
    return kernel, {
        "ready": ready,
        "pending": pending,
        "steps": outputs[2],
        "touched": outputs[3],
    }


def describe_index(kind):
    name = "forest" if kind == "forest" else "index"

    @described(f"{kind}_handle")
    def draw_handle(d):
        return {"container": "", "shared_name": f"fuzzed_{d.seed()}"}

    @described(f"{kind}_mark", followed(kind, "index"))
    def draw_mark(d):
        index, kernel = draw_index(d, kind)
        return {"index": index, "ids": d.ids((d.size(),), len(kernel))}

    @described(f"{kind}_times", check_times)
    def draw_times(d):
        return {"index": draw_index(d, kind)[0]}

    @described(f"{kind}_save", check_saved)
    def draw_save(d):
        return {"index": draw_index(d, kind)[0]}

    def check_restored(args, outputs, live):
        kernel = args["index"].kernel
        if kernel is not None:
            follow(kind, kernel, live["index"])

    @described(f"{kind}_restore", check_restored)
    def draw_restore(d):
        kernel, state = saved(kind, int(d.integer(0, 15)))
        return {"index": Index(kind, kernel, options_of(kind)), **state}

    @described(f"{kind}_build", followed(kind, name))
    def draw_build(d):
        index, kernel = draw_index(d, kind)
        return {
            name: index,
            "kernel": Variable(kernel),
            **draw_options(d, kind),
        }

    @described(f"{kind}_advance", followed(kind, name))
    def draw_advance(d):
        index, kernel = draw_index(d, kind)
        more = {}
        if kind in ("forest", "lsh"):
            more = {"lag": d.integer(1, 3), "drifted": np.bool_(d.chance())}
        return {
            name: index,
            "kernel": Variable(kernel),
            "step": d.integer(0, 20),
            "interval": d.integer(3, 9),
            **more,
            **draw_options(d, kind),
        }


for _kind in KINDS:
    describe_index(_kind)
