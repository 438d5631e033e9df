"""Grouped class rows of many millions, and what finds the best of them."""

import json
import os
import statistics
import time

import measure
import numpy as np

IN_GROUP, QUERIES, K, SPREAD = 100, 256, 64, 0.5
# Rows that are drawn, or multiplied, at a time.
CHUNK = 1 << 18


def assign(kernel):
    """Sets the rows of a variable; returns questions, float32 [256, dim]."""
    import tensorflow as tf

    count, dim = kernel.shape
    rng = np.random.default_rng(0)
    groups = count // IN_GROUP
    centres = rng.standard_normal((groups, dim), np.float32)

    def draw(many):
        noise = rng.standard_normal((many, dim), np.float32)
        return centres[rng.integers(groups, size=many)] + SPREAD * noise

    for first in range(0, count, CHUNK):
        rows = draw(min(CHUNK, count - first))
        kernel.value[first : first + len(rows)].assign(
            tf.cast(rows, kernel.dtype)
        )
    return draw(QUERIES)


def exact(kernel, queries):
    """Ids of the K best classes of each question, by all products."""
    import tensorflow as tf

    best, ids = [], []
    for first in range(0, kernel.shape[0], CHUNK):
        rows = tf.cast(kernel.value[first : first + CHUNK], tf.float32)
        products = tf.matmul(queries, rows, transpose_b=True)
        found = tf.math.top_k(products, K)
        best.append(found.values)
        ids.append(found.indices.numpy().astype(np.int64) + first)
    columns = tf.math.top_k(tf.concat(best, 1), K).indices.numpy()
    return np.take_along_axis(np.concatenate(ids, 1), columns, 1)


def recall_of_forest(head, queries):
    sampler = head.sampler
    trees, sketch = sampler.forest.trees_and_sketch(*head.kernel.shape)
    start = time.perf_counter()
    sampler.rebuild(head.kernel)
    found = {"build_s": time.perf_counter() - start}
    truth = exact(head.kernel, queries)
    found |= {"trees": trees, "sketch": sketch, "peak_gb": measure.peak_gb()}
    for candidates in (64, 400, 0):
        ids, _ = sampler.index.query(
            head.kernel, queries, K, num_candidates=candidates
        )
        pairs = zip(ids.numpy(), truth, strict=True)
        shared = sum(len(set(a) & set(b)) for a, b in pairs)
        name = f"recall_of_{candidates}" if candidates else "recall_of_all"
        found[name] = shared / truth.size
    return found


def serve(folder, queries):
    """One question at a time through the C API, from a version folder."""
    from tfxclass_serve import c_loader
    from tfxclass_serve.servable import Servable
    from tfxclass_serve.server import library_folder

    (version,) = os.listdir(folder)
    version = os.path.join(folder, version)
    files = [os.path.join(a, f) for a, _, c in os.walk(version) for f in c]
    found = {"exported_gb": sum(map(os.path.getsize, files)) / 1e9}
    with open(os.path.join(version, "assets.extra/search.json")) as f:
        report = json.load(f)
    found |= {"recall": report["recall"], "probes": report["num_probes"]}
    start = time.perf_counter()
    servable = Servable(c_loader.CApi(library_folder()), version)
    found["serve_load_s"] = time.perf_counter() - start
    (name,) = servable.signature("").inputs
    times = []
    for query in queries:
        start = time.perf_counter()
        servable.predict("", {name: query[None]})
        times.append((time.perf_counter() - start) * 1e3)
    found["answer_ms"] = statistics.median(times)
    return {**found, "serve_peak_gb": measure.peak_gb()}
