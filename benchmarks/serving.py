"""Latency and throughput of exported classifiers, top 10, on one core.

    python benchmarks/serving.py [num_classes ...]

128 dimensions; class rows are in 2,000 clusters, queries are near to rows.
Each export is made and asked in a fresh process that has one core: through
TensorFlow's C API, through the development server over REST and gRPC (client
and server in one process), and by ONNX Runtime. One query a request; requests
a second are of 8 clients at once. `floor_ms` is one product of the class
matrix with a query by NumPy, which reads the matrix once.
"""

import concurrent.futures
import functools
import http.client
import json
import os
import statistics
import sys
import tempfile
import time

import measure

DIM, K, CLIENTS, SECONDS = 128, 10, 8, 3.0


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
            return [{**result, **of_onnx(path, queries)}]
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
        rows = [of_c_api(path, queries), *of_apis(folder, queries)]
        return [{**result, **row} for row in rows]


def timed(through, make_ask, queries):
    """Row of a table: latency of one client, requests a second of several."""
    ask = make_ask()
    turn = iter(range(10**9))

    def step():
        ask(queries[next(turn) % len(queries)][None])

    for _ in range(5):
        step()
    times, end = [], time.perf_counter() + SECONDS
    while time.perf_counter() < end:
        begin = time.perf_counter()
        step()
        times.append((time.perf_counter() - begin) * 1e3)
    times.sort()
    end = time.perf_counter() + SECONDS

    def client(number):
        ask, count = make_ask(), 0
        while time.perf_counter() < end:
            ask(queries[(count + 31 * number) % len(queries)][None])
            count += 1
        return count

    with concurrent.futures.ThreadPoolExecutor(CLIENTS) as pool:
        total = sum(pool.map(client, range(CLIENTS)))
    return {
        "through": through,
        "p50_ms": statistics.median(times),
        "p99_ms": times[int(0.99 * len(times))],
        "per_s": total / SECONDS,
    }


def of_onnx(path, queries):
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(path, options)
    ask = functools.partial(session.run, ["ids", "scores"])
    return timed("ONNX Runtime", lambda: lambda x: ask({"x": x}), queries)


def of_c_api(path, queries):
    from tfxclass_serve import c_loader
    from tfxclass_serve.servable import Servable
    from tfxclass_serve.server import library_folder

    servable = Servable(c_loader.CApi(library_folder()), path)
    ask = functools.partial(servable.predict, "")
    result = timed("C API", lambda: lambda x: ask({"x": x}), queries)
    servable.close()
    return result


def of_apis(folder, queries):
    from tfxclass_serve.server import Server

    sys.path.insert(0, os.path.join(measure.FOLDER, os.pardir, "serving"))
    import grpc_client

    server = Server(os.path.join(folder, "m"), grpc_port=0)
    server.start()

    def make_rest():
        connection = http.client.HTTPConnection("127.0.0.1", server.rest.port)

        def ask(x):
            body = json.dumps({"instances": x.tolist()})
            connection.request("POST", "/v1/models/m:predict", body)
            response = connection.getresponse()
            text = response.read()
            if response.status != 200:
                raise RuntimeError(text)

        return ask

    client = grpc_client.Client(f"127.0.0.1:{server.grpc.port}")
    rows = [timed("REST", make_rest, queries)]
    ask = functools.partial(client.predict, "m")
    rows.append(timed("gRPC", lambda: lambda x: ask({"x": x}), queries))
    server.close()
    return rows


if __name__ == "__main__":
    measure.compare(
        "serving",
        child,
        measure.cases(
            classes=measure.numbers(31_077, 147_306, 1_000_000),
            search=("exact", "lists", "onnx"),
        ),
    )
