"""Latency of exported classifiers, top 10, on one core.

    python benchmarks/serving.py [num_classes ...]

128 dimensions; class rows are in 2,000 clusters, queries are near to rows.
Each export is made and asked in a fresh process that has one core, through
TensorFlow's C API and by ONNX Runtime. One query a request. `floor_ms` is one
product of the class matrix with a query by NumPy, which reads the matrix once.
Rows with requests a second are of the commit that they name.
"""

import functools
import itertools
import json
import os
import statistics
import tempfile
import time

import measure

DIM, K, SECONDS = 128, 10, 3.0


def make_data(num_classes):
    import numpy as np

    rng = np.random.default_rng(0)
    centres = rng.normal(size=(2_000, DIM)).astype("float32")
    rows = centres[rng.integers(2_000, size=num_classes)]
    for start in range(0, num_classes, 65_536):
        part = rows[start : start + 65_536]
        part += 0.7 * rng.normal(size=part.shape).astype("float32")
    near = rows[rng.integers(num_classes, size=512)]
    noise = 0.7 * rng.normal(size=near.shape).astype("float32")
    return rows, near + noise


def child(num_classes, kind):
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:1])
    # After the cores are chosen: it counts them.
    import keras

    import tfxclass

    rows, queries = make_data(num_classes)
    product = functools.partial(rows.dot, queries[0])
    floor = measure.median_ms(product, 9)["median_ms"]
    head = tfxclass.layers.FullSoftmax(
        num_classes, activation=None, kernel_initializer="zeros"
    )
    model = keras.Sequential([keras.Input((DIM,), name="x"), head])
    head.kernel.assign(rows)
    del rows, product
    # ONNX Runtime searches exactly.
    search = "lists" if kind == "lists" else "exact"
    result = {"search": search, "floor_ms": floor, "recall": 1.0}
    with tempfile.TemporaryDirectory() as folder:
        if kind == "onnx":
            path = os.path.join(folder, "m")
            path = tfxclass.export.onnx(model, path, K, verify=False)
            del model, head
            return {**result, **of_onnx(path, queries)}
        begin = time.perf_counter()
        lists = tfxclass.export.InvertedLists() if kind == "lists" else None
        path = tfxclass.export.saved_model(
            model,
            os.path.join(folder, "m"),
            top_k=K,
            search=lists,
            verify=False,
            example_inputs=queries[:256],
        )
        result["export_s"] = time.perf_counter() - begin
        if lists is not None:
            with open(os.path.join(path, "assets.extra/search.json")) as f:
                report = json.load(f)
            result["recall"] = report["recall"]
            result["probes"] = report["num_probes"]
        del model, head
        return {**result, **of_c_api(path, queries)}


def timed(through, ask, queries):
    """Row of a table: the latency of one client."""
    turn, times = itertools.cycle(queries), []
    end = time.perf_counter() + SECONDS
    while time.perf_counter() < end:
        with measure.Stopwatch() as clock:
            ask({"x": next(turn)[None]})
        times.append(clock.wall * 1e3)
    times = sorted(times[5:])
    return {
        "through": through,
        "p50_ms": statistics.median(times),
        "p99_ms": times[int(0.99 * len(times))],
    }


def of_onnx(path, queries):
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(path, options)
    ask = functools.partial(session.run, ["ids", "scores"])
    return timed("ONNX Runtime", ask, queries)


def of_c_api(path, queries):
    from tfxclass_serve import c_loader
    from tfxclass_serve.servable import Servable
    from tfxclass_serve.server import library_folder

    servable = Servable(c_loader.CApi(library_folder()), path)
    ask = functools.partial(servable.predict, "")
    result = timed("C API", ask, queries)
    servable.close()
    return result


if __name__ == "__main__":
    measure.compare(
        "serving",
        child,
        measure.cases(
            classes=measure.numbers(31_077, 147_306, 1_000_000),
            search=("exact", "lists", "onnx"),
        ),
        ("classes", "search", "through"),
    )
