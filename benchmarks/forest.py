"""The hashing forest: build, query and recall, against annoy.

    python benchmarks/forest.py [num_classes ...]

Clustered rows: centres drawn from a normal law in 128 dimensions, 100 rows
around each with half that spread; 256 queries from the same law; recall of the
100 greatest inner products. annoy (pip install annoy) is a row where it is
installed.
"""

import sys
import time

import measure
import numpy as np

DIM, QUERIES, K, TREES = 128, 256, 100, 50


def clustered(num_classes, seed=0):
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(num_classes // 100, DIM)).astype(np.float32)

    def draw(count):
        picked = centres[rng.integers(0, len(centres), count)]
        noise = rng.standard_normal((count, DIM), dtype=np.float32)
        return picked + 0.5 * noise

    return draw(num_classes), draw(QUERIES)


def exact(rows, queries):
    best = []
    for start in range(0, QUERIES, 32):
        scores = queries[start : start + 32] @ rows.T
        best.append(np.argpartition(-scores, K, axis=1)[:, :K])
    return np.concatenate(best)


def recall(found, truth):
    hits = [len(set(f) & set(t)) for f, t in zip(found, truth, strict=True)]
    return sum(hits) / truth.size


def forest_rows(rows, queries, truth):
    import tensorflow as tf

    from tfxclass.ops.hashing_forest import HashingForest

    kernel = tf.Variable(rows)
    forest = HashingForest()
    start = time.perf_counter()
    forest.build(kernel, num_trees=TREES, leaf_size=100)
    build = time.perf_counter() - start
    for name, options in (
        ("forest, the paper's rule", {}),
        ("forest, 400 most voted", {"num_candidates": 400}),
        ("forest, bucket 200", {"bucket": 200, "num_candidates": 300}),
        ("forest, bucket 300", {"bucket": 300, "num_candidates": 600}),
        ("forest, bucket 600", {"bucket": 600, "num_candidates": 1200}),
    ):
        timed = measure.median_ms(
            lambda o=options: forest.query(kernel, queries, K, **o)[0].numpy(),
            7,
        )
        found = forest.query(kernel, queries, K, **options)[0].numpy()
        yield name, build, timed["median_ms"], recall(found, truth)


def annoy_rows(rows, queries, truth):
    try:
        import annoy
    except ImportError:
        return
    index = annoy.AnnoyIndex(DIM, "dot")
    index.set_seed(0)
    start = time.perf_counter()
    for i, row in enumerate(rows):
        index.add_item(i, row)
    index.build(TREES, n_jobs=-1)
    build = time.perf_counter() - start
    for search_k in (-1, 20_000):

        def search(search_k=search_k):
            return [
                index.get_nns_by_vector(q, K, search_k=search_k)
                for q in queries
            ]

        timed = measure.median_ms(search, 3, warmup=1)["median_ms"]
        name = f"annoy dot, search_k {search_k}"
        yield name, build, timed, recall(search(), truth)


def main(sizes):
    table = []
    for num_classes in sizes:
        rows, queries = clustered(num_classes)
        truth = exact(rows, queries)
        for method in (forest_rows, annoy_rows):
            for name, build, query, found in method(rows, queries, truth):
                table.append(
                    {
                        "classes": num_classes,
                        "index": name,
                        "build_s": build,
                        "query_ms": query,
                        "recall@100": found,
                    }
                )
                print(table[-1], flush=True)
    measure.save("forest", table)


if __name__ == "__main__":
    main([int(n) for n in sys.argv[1:]] or [100_000, 1_000_000])
