"""Random projection on a language model: King James, by word.

    python benchmarks/language_model.py DATA [row ...] [--epochs 1]

DATA is a folder with kjv.tsv.xz (`verse<TAB>text`). One LSTM (512 units) reads
16 segments of 32 words a step; a tenth of the books is for tests, another for
choices; words that training does not have are no targets. Each row in a fresh
process, at equal epochs, with the rate that is best on the books for choices
after a tenth of an epoch; perplexity on the test books by the exact softmax.
Rows that are done are not run again: delete results/language_model.json to
start over.

"recovered": the full class matrix by the dual, at once. l2 is that of the
training, or the one that is best on the books for choices. "fine-tuned": half
of the epochs slim, then recovered (best l2), or lifted, then the other half
with the full softmax at the least of the rates. Times are of the processor (all
cores together), without the search for a rate.
"""

import json
import math
import time

import measure
import numpy as np
import verses_data

DIM, EMBEDDING, BATCH, LENGTH, L2 = 512, 128, 16, 32, 1e-7
RATES = (5e-3, 1e-2)
SEARCH_EPOCHS = 0.1
NUM_SAMPLED = 2048
ROWS = {
    "full": ("FullSoftmax", {}),
    "sampled": ("SampledSoftmax", {"num_sampled": NUM_SAMPLED}),
    "RP(10)": ("ProjectedSoftmax", {"projection_dim": 10, "l2": L2}),
    "RP(100)": ("ProjectedSoftmax", {"projection_dim": 100, "l2": L2}),
    "RP(500)": ("ProjectedSoftmax", {"projection_dim": 500, "l2": L2}),
    "RP(100) + sampled": (
        "ProjectedSoftmax",
        {
            "projection_dim": 100,
            "l2": L2,
            "sampler": "uniform",
            "num_sampled": NUM_SAMPLED,
        },
    ),
    "RP-A": ("AdaptiveProjectedSoftmax", {"l2": L2}),
}
RECOVERED = ("RP(100)", "RP-A")
FACTORS = 10.0 ** -np.arange(3, 11)


def read(folder):
    """`(counts, parts)`: of words by falling frequency, and id sequences."""
    verses, words = verses_data.read(folder, "kjv")
    books = np.array([int(verse) // 1_000_000 for verse in verses])
    of_part = {
        "train": books % 10 > 1,
        "choices": books % 10 == 0,
        "test": books % 10 == 1,
    }
    train = [w for w, kept in zip(words, of_part["train"]) if kept]
    names, counts = np.unique(np.concatenate(train), return_counts=True)
    order = np.argsort(-counts, kind="stable")
    ids = {names[place]: i for i, place in enumerate(order)}
    parts = {
        part: np.array(
            [ids.get(w, -1) for v, k in zip(words, kept) if k for w in v]
        )
        for part, kept in of_part.items()
    }
    return counts[order], parts


def dataset(words, shuffle):
    """Segments `[BATCH, LENGTH]` and the words after each."""
    import tensorflow as tf

    count = (len(words) - 1) // LENGTH
    x = words[: count * LENGTH].reshape(count, LENGTH)
    y = words[1 : count * LENGTH + 1].reshape(count, LENGTH)
    data = tf.data.Dataset.from_tensor_slices((np.maximum(x, 0), y))
    if shuffle:
        data = data.shuffle(count, seed=0)
    return data.batch(BATCH, drop_remainder=True)


def make_model(row, counts, rate):
    import keras

    import tfxclass

    name, options = ROWS[row]
    if name == "AdaptiveProjectedSoftmax":
        options = {**options, "counts": counts}
    head = getattr(tfxclass.layers, name)(len(counts), seed=0, **options)
    inputs = keras.Input([LENGTH], dtype="int32")
    hidden = keras.layers.Embedding(len(counts), EMBEDDING)(inputs)
    features = keras.layers.LSTM(DIM, return_sequences=True)(hidden)
    return compiled(keras.Model(inputs, head(features)), rate)


def compiled(model, rate=min(RATES)):
    import tfxclass

    head = model.layers[-1]
    model.compile(tfxclass.optimizers.LazyAdam(rate), loss=head.loss)
    return model


def perplexity(model, words):
    """exp of the mean loss over the words that have a class, or infinity."""
    data = dataset(words, shuffle=False)
    total = labels = 0.0
    for x, y in data:
        size = y.shape.num_elements()
        total += float(model.test_on_batch(x, y)) * size
        model.reset_metrics()
        labels += int((y >= 0).numpy().sum())
    mean = total / labels
    return math.exp(mean) if mean < 700 else math.inf


def train(model, words, epochs):
    """CPU seconds of the epochs; `epochs` may be a fraction."""
    data = dataset(words, shuffle=True)
    steps = int(epochs * int(data.cardinality()))
    start = time.process_time()
    model.fit(data.repeat(), steps_per_epoch=steps, epochs=1, verbose=0)
    return time.process_time() - start


def some_choices(parts):
    return parts["choices"][:16384]


def choose_rate(row, counts, parts):
    """The best of `RATES` after `SEARCH_EPOCHS`."""
    found = []
    for rate in RATES:
        model = make_model(row, counts, rate)
        train(model, parts["train"], SEARCH_EPOCHS)
        found.append((perplexity(model, some_choices(parts)), rate))
    return min(found)[1]


def recovered(model, parts):
    """The full model with l2 of the training, and the CPU seconds."""
    from tfxclass import recovery

    start = time.process_time()
    data = dataset(parts["train"], shuffle=False)
    full = recovery.recover(model, data, l2=L2, verbose=0)
    return compiled(full), time.process_time() - start


def choose_l2(full, parts):
    """Scales the class matrix to the best l2; `(l2, CPU seconds)`."""
    start = time.process_time()
    head = full.layers[-1]
    kernel = head.kernel.numpy()
    words = some_choices(parts)
    found = []
    for factor in FACTORS:
        head.kernel.assign(kernel * factor)
        found.append((perplexity(full, words), factor))
    factor = min(found)[1]
    head.kernel.assign(kernel * factor)
    return L2 / factor, time.process_time() - start


def child(folder, row, epochs):
    import keras

    from tfxclass import recovery

    keras.utils.set_random_seed(0)
    counts, parts = read(folder)
    rate = choose_rate(row, counts, parts)
    model = make_model(row, counts, rate)
    half = train(model, parts["train"], epochs / 2)
    lines = []
    for how in ("recovered", "lifted") if row in RECOVERED else ():
        if how == "recovered":
            full, seconds = recovered(model, parts)
            seconds += choose_l2(full, parts)[1]
        else:
            seconds = 0.0
            full = compiled(recovery.recover(model, method="lift"))
        # The encoder is shared: what follows must not move this one's.
        weights = model.get_weights()
        more = train(full, parts["train"], epochs / 2)
        lines.append(
            {
                "row": f"{row}, {how} + fine-tuned",
                "perplexity": perplexity(full, parts["test"]),
                "cpu_s": half + seconds + more,
            }
        )
        model.set_weights(weights)
    seconds = half + train(model, parts["train"], epochs / 2)
    lines.insert(
        0,
        {
            "row": row,
            "rate": rate,
            "perplexity": perplexity(model, parts["test"]),
            "cpu_s": seconds,
        },
    )
    if row in RECOVERED:
        full, took = recovered(model, parts)
        for how in ("of the training", "chosen"):
            l2 = L2
            if how == "chosen":
                l2, more = choose_l2(full, parts)
                took += more
            lines.append(
                {
                    "row": f"{row}, recovered, l2 = {l2:.1e}, {how}",
                    "perplexity": perplexity(full, parts["test"]),
                    "cpu_s": seconds + took,
                }
            )
    return lines


if __name__ == "__main__":
    args = measure.row_arguments(__doc__.splitlines()[0], 1.0)
    if args.child:
        print(json.dumps(child(args.folder, args.rows[0], args.epochs)))
    else:
        measure.run_rows("language_model", __file__, args, ROWS)
