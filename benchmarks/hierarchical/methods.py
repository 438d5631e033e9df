"""Models of this library: the heads, the trees, training and its curve."""

import time

import numpy as np

from benchmarks.hierarchical.data import scores

DIM, BATCH, STEPS_PER_EXECUTION = 100, 512, 8
LABEL_DIM = 64
PREDICT_BATCH = 512
# name: (tree, multi_label, use_bias); None is the full softmax.
METHODS = {
    "softmax": None,
    "hs huffman, one label drawn": ("huffman", "pick_one", False),
    "hs huffman": ("huffman", "all", False),
    "hs clustered": ("clustered", "all", False),
    "hs clustered, wide": ("wide", "all", False),
    "plt huffman": ("huffman", "plt", True),
    "plt clustered": ("clustered", "plt", True),
    "plt clustered, wide": ("wide", "plt", True),
}


def make_tree(name, data):
    from tfxclass import trees

    if name == "huffman":
        labels = data.train.labels
        return trees.huffman(
            np.bincount(labels[labels >= 0], minlength=data.num_classes)
        )
    options = {"arity": 16, "leaf_size": 32} if name == "wide" else {}
    return trees.clustered(label_vectors(data), **options)


def label_vectors(data):
    """The mean TF-IDF of the rows of each label, in a random projection."""
    from tfxclass import trees

    ids, values, labels = data.train
    counts = np.bincount(ids[values > 0], minlength=data.num_words)
    idf = np.log(len(ids) / np.maximum(counts, 1))
    parts = [slice(i, i + BATCH) for i in range(0, len(ids), BATCH)]
    batches = (
        ({"feature_ids": ids[at], "feature_values": values[at]}, labels[at])
        for at in parts
    )
    return trees.class_vectors(
        batches,
        data.num_words,
        data.num_classes,
        dim=LABEL_DIM,
        feature_weights=idf,
    )


def make_model(method, data, rate, epochs, dim=DIM):
    import keras

    import tfxclass

    if METHODS[method] is None:
        head = tfxclass.layers.FullSoftmax(data.num_classes)
    else:
        tree, multi_label, use_bias = METHODS[method]
        head = tfxclass.layers.HierarchicalSoftmax(
            data.num_classes,
            make_tree(tree, data),
            multi_label=multi_label,
            use_bias=use_bias,
            seed=0,
        )
    ids = keras.Input([None], dtype="int64")
    values = keras.Input([None])
    features = tfxclass.layers.SparseDense(
        data.num_words,
        dim,
        use_bias=False,
        # As fastText's.
        kernel_initializer=keras.initializers.RandomUniform(
            -1 / dim, 1 / dim, seed=0
        ),
    )(ids, values)
    model = keras.Model([ids, values], head(features))
    steps = epochs * -(-len(data.train.ids) // BATCH)
    schedule = keras.optimizers.schedules.PolynomialDecay(rate, steps, 0.0)
    model.compile(
        tfxclass.optimizers.LazyAdam(schedule),
        loss=head.loss,
        steps_per_execution=STEPS_PER_EXECUTION,
    )
    return model


def run(method, data, rate, epochs, dim=DIM, evaluate_every=1):
    """Trains, and scores the test rows after each epoch or some of them.

    Args:
        method: str, name in `METHODS`.
        data: `Set`.
        rate: float, learning rate at the beginning; it falls to 0.
        epochs: int.
        dim: int, numbers of a word.
        evaluate_every: int, epochs between two scores; the last has one.

    Returns:
        dict with `curve`, a list of dicts: seconds of training (the tree and
        tracing included) of the clock and of the CPU, and `data.scores`.
    """
    import keras

    import tfxclass

    keras.utils.set_random_seed(0)
    clock, cpu = time.perf_counter(), time.process_time()
    model = make_model(method, data, rate, epochs, dim)
    spent = [time.perf_counter() - clock, time.process_time() - cpu]
    count = min(max(data.k, 10), data.num_classes)
    best = tfxclass.top_k(model, count)
    curve = []
    for epoch in range(1, epochs + 1):
        clock, cpu = time.perf_counter(), time.process_time()
        model.fit(list(data.train[:2]), data.train.labels, BATCH, verbose=0)
        spent[0] += time.perf_counter() - clock
        spent[1] += time.process_time() - cpu
        if epoch % evaluate_every and epoch < epochs:
            continue
        ids, _ = best.predict(
            list(data.test[:2]), batch_size=PREDICT_BATCH, verbose=0
        )
        found = scores(data.test.labels, ids, data.num_classes, data.k)
        point = {"epoch": epoch, "seconds": spent[0], "cpu_seconds": spent[1]}
        curve.append({**point, **found})
    return {"curve": curve}
