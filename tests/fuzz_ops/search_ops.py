"""What the indexes of class rows find, and hash codes."""

import numpy as np

from tests.fuzz_ops.descriptions import assert_distinct
from tests.fuzz_ops.descriptions import assert_ids
from tests.fuzz_ops.descriptions import assert_near
from tests.fuzz_ops.descriptions import assert_ranked
from tests.fuzz_ops.descriptions import described
from tests.fuzz_ops.descriptions import is_moderate
from tests.fuzz_ops.index_ops import draw_hash
from tests.fuzz_ops.index_ops import draw_index
from tests.fuzz_ops.index_ops import queries_of
from tests.fuzz_ops.values import Variable

EPSILON = float(np.finfo(np.float32).eps)


def check_scores(args, outputs, live):
    del live
    ids, scores = outputs
    kernel, queries = args["kernel"].value, args["queries"]
    count = int(np.ravel(args["num_neighbors"])[0])
    assert ids.shape == scores.shape == (len(queries), count)
    index = args["forest"] if "forest" in args else args["index"]
    if index.kernel is None:
        assert np.all(ids == -1) and np.all(scores == 0)
        return
    if ids.size > 10**5 or not is_moderate(kernel, queries):
        return
    assert_ranked(ids, scores, len(kernel))
    rows = kernel[ids].astype(np.float64)
    if args["normalize"]:
        norms = np.linalg.norm(rows, axis=-1, keepdims=True)
        if np.any((norms > 0) & (norms < 1e-15)):
            return  # squares underflow
        rows /= np.where(norms > 0, norms, 1)
    products = queries[:, None].astype(np.float64) * rows
    bound = (kernel.shape[1] + 8) * EPSILON * np.abs(products).sum(-1)
    found = ids >= 0
    assert_near(scores[found], products.sum(-1)[found], bound[found] + 1e-37)


def check_members(args, outputs, live):
    del live
    (ids,) = outputs
    assert_distinct(ids)
    assert len(ids) <= np.ravel(args["limit"])[0]
    index = args["index"]
    bound = 0 if index.kernel is None else len(index.kernel)
    assert_ids(ids, bound)


@described("forest_query", check_scores)
def _draw_forest_query(d):
    index, kernel = draw_index(d, "forest")
    return {
        "forest": index,
        "kernel": Variable(kernel),
        "queries": queries_of(d, kernel),
        "num_neighbors": d.integer(1, 12),
        "bucket": d.integer(0, 9),
        "num_candidates": d.integer(0, 9),
        "normalize": d.chance(),
    }


def describe_members(kind):
    @described(f"{kind}_members", check_members)
    def draw_members(d):
        index, kernel = draw_index(d, kind)
        return {
            "index": index,
            "targets": d.ids((d.size(), d.size(1, 3)), len(kernel), True),
            "limit": d.integer(1, 30),
            "seed": d.seed(2),
        }


describe_members("cluster")
describe_members("pca_hash")


def draw_lsh_queries(d):
    index, kernel = draw_index(d, "lsh")
    samples, each = d.size(), d.size(1, 3)
    return kernel, {
        "index": index,
        "queries": d.floats(samples, each, kernel.shape[1]),
        "valid": d.flags(samples, each),
    }


def check_found(args, outputs, live):
    del live
    ids, probed, least_votes, last_fraction, pool, norm = outputs
    index = args["index"]
    if index.kernel is None:
        assert len(ids) == len(probed) == 0
        return
    assert_distinct(ids)
    assert_ids(ids, len(index.kernel))
    assert not np.intersect1d(ids, args["targets"]).size
    np.testing.assert_array_equal(probed, np.arange(len(probed)))
    assert len(probed) == index.options["num_tables"]
    assert len(ids) <= max(np.ravel(args["max_candidates"])[0], 0)
    assert 1 <= least_votes <= len(probed) and len(ids) <= pool
    assert 0 <= last_fraction <= 1 and np.isfinite(norm)


@described("lsh_query", check_found)
def _draw_lsh_query(d):
    kernel, args = draw_lsh_queries(d)
    return {
        **args,
        "targets": d.ids((d.size(),), len(kernel), padded=True),
        "num_sampled": d.integer(1, 40),
        "max_candidates": d.integer(0, 40),
        "seed": d.seed(2),
    }


def check_mask(args, outputs, live):
    del live
    assert outputs[0].shape == (len(args["queries"]), len(args["ids"]))


@described("lsh_members", check_mask)
def _draw_lsh_members(d):
    kernel, args = draw_lsh_queries(d)
    num_tables = args["index"].options.get("num_tables", 1)
    return {
        **args,
        "probed": d.ids((d.size(1, 4),), num_tables),
        "least_votes": d.integer(1, 3),
        "ids": d.ids((d.size(),), len(kernel)),
    }


def check_codes(args, outputs, live):
    del live
    (codes,) = outputs
    bits = args["num_hashes"]
    if args.get("hash", "dwta") == "dwta":
        bits *= int(args["bin_size"] - 1).bit_length()
    assert len(codes) == args["num_tables"]
    assert_ids(codes, 2**bits)


@described("lsh_hash", check_codes)
def _draw_lsh_hash(d):
    vectors = d.floats(d.size(), max(d.size(1, 20), 1))
    return {"vectors": vectors, "seed": d.seed(), **draw_hash(d)}


def check_clusters(args, outputs, live):
    del live
    (clusters,) = outputs
    count = int(np.ravel(args["num_clusters"])[0])
    assert clusters.shape == (len(args["rows"]),)
    assert_ids(clusters, count)


@described("k_means", check_clusters)
def _draw_k_means(d):
    rows = d.floats(d.size(1, 40), d.size())
    return {
        "rows": rows.astype("bfloat16") if d.chance(0.3) else rows,
        "num_clusters": d.integer(1, 12),
        "seed": d.integer(0, 9),
    }


def check_halves(args, outputs, live):
    """Each group has the ids that it had."""
    del live
    (ids,) = outputs
    ends = np.cumsum(args["sizes"])[:-1]
    groups = zip(np.split(args["ids"], ends), np.split(ids, ends), strict=True)
    for before, after in groups:
        assert np.array_equal(np.sort(before), np.sort(after))


@described("halve_groups", check_halves)
def _draw_halve_groups(d):
    rows = d.floats(d.size(1, 40), d.size())
    ids = d.ids([d.size(1, 40)], len(rows))
    groups = d.size()
    return {
        "rows": rows,
        "ids": ids,
        "sizes": np.diff(d.splits(groups, len(ids))),
        "splits": d.flags(groups),
        "passes": d.integer(1, 5),
        "seed": d.integer(0, 9),
    }


def check_recalled(args, outputs, live):
    del live
    asked, known = outputs
    labels, memory = args["labels"], args["memory"].value
    recent, width = args["recent"].value, memory.shape[1] - 2
    tables, _, places = recent.shape
    assert known.shape == (len(labels), 2 * width + tables * places)
    assert len(asked) == int(np.ravel(args["num_asked"])[0])
    assert_ids(asked, len(labels))
    assert_distinct(asked)
    for label, row in zip(labels, known):
        own = memory[label % len(memory)] if label >= 0 else [-1]
        if label < 0 or own[0] != label:
            assert np.all(row[: 2 * width] == -1), row
        else:
            np.testing.assert_array_equal(row[:width], own[2:])
        held = row[2 * width :].reshape(tables, places)
        for buckets, bucket in zip(recent, held):
            assert (buckets == bucket).all(axis=1).any(), (bucket, buckets)


def draw_memory(d, num_classes):
    slots, width = d.size(), d.size()
    memory = d.ids((slots, 2 + width), num_classes, padded=True)
    for place in range(slots):
        label = place + slots * int(d.integer(0, 2))
        memory[place, 0] = label if d.chance(0.7) else -1
    return Variable(memory)


@described("recall_neighbors", check_recalled)
def _draw_recall_neighbors(d):
    num_classes, rows = d.size(), d.size(least=0)
    tables, bits = d.size(), int(d.integer(0, 3))
    recent = d.ids((tables, 1 << bits, d.size()), num_classes, padded=True)
    return {
        "memory": draw_memory(d, num_classes),
        "recent": Variable(recent.astype(np.int32)),
        "centres": Variable(d.floats(tables * bits)),
        "products": d.floats(rows, tables * bits),
        "labels": d.ids((rows,), 2 * num_classes, padded=True),
        "num_asked": d.integer(0, rows),
        "step": d.integer(0, 99),
    }


def check_ranked(args, outputs, live):
    del live
    ids, shares = outputs
    kernel, targets = args["kernel"].value, args["target_ids"]
    count = int(np.ravel(args["count"])[0])
    assert ids.shape == shares.shape == (len(args["queries"]), count)
    assert_ranked(ids, shares, len(kernel))
    assert np.all((shares >= 0) & (shares <= 1)), shares
    assert np.all(shares.astype(np.float64).sum(axis=1) <= 1 + 1e-5), shares
    for row, own in zip(ids, targets):
        assert not np.intersect1d(row[row >= 0], own).size, (row, own)


@described("rank_neighbors", check_ranked)
def _draw_rank_neighbors(d):
    kernel = d.floats(d.size(), d.size())
    rows, asked = d.size(), d.size()
    return {
        "memory": draw_memory(d, len(kernel)),
        "kernel": Variable(kernel),
        "queries": d.floats(rows, kernel.shape[1]),
        "target_ids": d.ids((rows, d.size()), len(kernel), padded=True),
        "labels": d.ids((rows,), len(kernel), padded=True),
        "known": d.ids((rows, d.size()), len(kernel), padded=True),
        "asked": d.ids((asked,), rows),
        "found": d.ids((asked, d.size()), len(kernel), padded=True),
        "count": d.integer(1, 9),
        "step": d.integer(0, 99),
        "normalize": d.chance(),
    }
