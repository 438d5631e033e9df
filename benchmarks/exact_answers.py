"""What an exact answer of one query costs in TensorFlow's own ops, by layout.

    python benchmarks/exact_answers.py [num_classes ...]
    python benchmarks/exact_answers.py --widening

128 dimensions, one core, a fresh process for each size. First the product
alone, in milliseconds: of a matrix with the classes as rows, as columns, as
columns of bfloat16, and as int8 rows, made float32 in the cache; beside
NumPy's, which reads the matrix once. Then a whole answer, the best ten through
TensorFlow's C API, of an export, and of one with `quantize="int8"`.
`--widening` times what makes float32 of smaller numbers, in a level-2 cache.
"""

import functools
import json
import os
import sys
import tempfile

import measure

import serving

SIZES = (31_077, 147_306, 1_000_000)


def child(num_classes):
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:1])
    # After the cores are chosen: they count them.
    import numpy as np
    import tensorflow as tf

    rows, queries = serving.make_data(num_classes)
    query = tf.constant(queries[:1])
    repeats = 31 if num_classes < 500_000 else 9
    time = functools.partial(measure.median_ms, repeats=repeats)
    found = {"classes": num_classes}
    found["numpy_ms"] = time(lambda: rows.dot(queries[0]))["median_ms"]
    for name, kernel in layouts(tf.constant(rows)):
        product = tf.function(functools.partial(all_products, query, kernel))
        error = np.max(np.abs(product()[0] - rows.dot(queries[0])))
        if error > 0.02 * np.abs(rows.dot(queries[0])).max():
            raise RuntimeError(f"{name} is wrong by {error}")
        found[f"{name}_ms"] = time(product)["median_ms"]
    del kernel, product
    for name, quantize in (("answer", None), ("int8_answer", "int8")):
        found[f"{name}_ms"] = answer_ms(rows, queries, quantize)
    found["answer/numpy"] = found["answer_ms"] / found["numpy_ms"]
    return found


def layouts(rows):
    """Name and class rows, one at a time."""
    import tensorflow as tf

    from tfxclass.rows import column_rows
    from tfxclass.rows import int8_rows

    yield "rows", rows
    half = tf.cast(rows, tf.bfloat16)
    # Read once: variables that were written in parts are copied when read.
    yield "columns", column_rows.in_columns(rows).read()
    yield "bfloat16_columns", column_rows.in_columns(half).read()
    yield "int8", int8_rows.quantize(rows).read()


def all_products(query, kernel):
    """Logits of all classes, block by block as an answer has them."""
    import tensorflow as tf

    from tfxclass.rows import stock_search
    from tfxclass.rows.class_rows import ClassRows

    rows = ClassRows(kernel)
    count = rows.num_classes
    block = stock_search.block_of(rows) or count
    if count <= block:
        return stock_search.all_logits(query, rows)
    parts = [
        stock_search.block_logits(query, rows, start, block)
        for start in range(0, count, block)
    ]
    return tf.concat(parts, axis=1)


def answer_ms(rows, queries, quantize):
    import keras

    import tfxclass

    head = tfxclass.layers.FullSoftmax(
        len(rows), activation=None, kernel_initializer="zeros"
    )
    model = keras.Sequential([keras.Input((rows.shape[1],), name="x"), head])
    head.kernel.assign(rows)
    with tempfile.TemporaryDirectory() as folder:
        path = tfxclass.export.saved_model(
            model,
            os.path.join(folder, "m"),
            top_k=serving.K,
            verify=False,
            quantize=quantize,
            example_inputs=queries[:64],
        )
        del model, head
        return serving.of_c_api(path, queries)["p50_ms"]


def widening():
    """Nanoseconds a number of 1,024 rows, a core, each op 200 times a call."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:1])
    import tensorflow as tf

    floats = tf.round(tf.random.uniform([1024, 128], 0, 100))
    query = tf.random.normal([1, 128])
    int32 = tf.cast(floats, tf.int32)
    small = {
        f"{dtype.name} to float32": (lambda x: tf.cast(x, tf.float32), dtype)
        for dtype in (tf.int8, tf.uint8, tf.bfloat16, tf.float16)
    }
    ops = {
        **small,
        "mask of int32": (lambda x: tf.bitwise.bitwise_and(x, 255), int32),
        "shift of int32": (lambda x: tf.bitwise.left_shift(x, 8), int32),
        "product with rows": (
            lambda x: tf.matmul(x, query, transpose_b=True),
            floats,
        ),
        "product with columns": (
            lambda x: tf.matmul(query, tf.reshape(x, [128, -1])),
            floats,
        ),
    }
    return [{"op": name, "ns": _nanoseconds(*op)} for name, op in ops.items()]


def _nanoseconds(op, numbers):
    import tensorflow as tf

    if isinstance(numbers, tf.DType):
        numbers = tf.cast(tf.random.uniform([1024, 128], 0, 100), numbers)
    # A variable: ops of constants are computed once.
    variable = tf.Variable(numbers)

    @tf.function
    def many():
        def step(i, total):
            found = tf.reshape(op(variable.read_value()), [-1])[0]
            return i + 1, total + tf.cast(found, tf.float32)

        start = tf.constant(0), tf.constant(0.0)
        return tf.while_loop(
            lambda i, _: i < 200, step, start, parallel_iterations=1
        )

    milliseconds = measure.median_ms(many, 9)["median_ms"]
    return milliseconds * 1e6 / 200 / variable.shape.num_elements()


def main(sizes):
    rows = [measure.in_fresh_process(__file__, "--child", n) for n in sizes]
    print(measure.table(rows))
    measure.save("exact_answers", rows)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        print(json.dumps(child(int(sys.argv[2]))))
    elif sys.argv[1:2] == ["--widening-child"]:
        print(json.dumps(widening()))
    elif sys.argv[1:2] == ["--widening"]:
        rows = measure.in_fresh_process(__file__, "--widening-child")
        print(measure.table(rows))
        measure.save("widening", rows)
    else:
        main([int(size) for size in sys.argv[1:]] or SIZES)
