"""Exact selection: the 100 best of all classes for 256 queries.

    python benchmarks/selection.py [num_classes ...]

`search.top_k` against TensorFlow's product and `tf.math.top_k`, and against
the product alone, in one process, in turn.
"""

import sys

import measure

BATCH, DIM, K = 256, 128, 100


def main(sizes):
    import tensorflow as tf

    from tfxclass.rows import search

    rows = []
    for num_classes in sizes:
        queries = tf.random.normal([BATCH, DIM])
        kernel = tf.random.normal([num_classes, DIM])

        @tf.function
        def product(queries=queries, kernel=kernel):
            return tf.matmul(queries, kernel, transpose_b=True)[0, 0]

        @tf.function
        def product_top_k(queries=queries, kernel=kernel):
            logits = tf.matmul(queries, kernel, transpose_b=True)
            return tf.math.top_k(logits, K)

        @tf.function
        def blocks(queries=queries, kernel=kernel):
            return search.top_k(queries, kernel, K)

        for name, step in (
            ("product alone", product),
            ("product + tf.math.top_k", product_top_k),
            ("tfxclass.rows.search.top_k", blocks),
        ):
            timed = measure.median_ms(step, 7)
            rows.append({"classes": num_classes, "method": name, **timed})
            print(rows[-1], flush=True)
    measure.save("selection", rows)


if __name__ == "__main__":
    main([int(n) for n in sys.argv[1:]] or [100_000, 1_000_000])
