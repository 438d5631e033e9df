"""Random projection on a language model: King James, by word.

    python benchmarks/language_model.py DATA [row ...] [--epochs 1] [--seeds 3]
        [--small]

DATA is a folder with kjv.tsv.xz (`verse<TAB>text`). One LSTM (512 units) reads
16 segments of 32 words a step; a tenth of the books is for tests, another for
choices; words that training does not have are no targets. Each row in a fresh
process, at equal epochs, with the rate that is best on the books for choices
after a tenth of an epoch; perplexity on the test books by the exact softmax.
Rows that are done are not run again: delete results/language_model.json, and
cache/language_model with a file for each seed, to start over. "--small": a
quarter of the books, 192 units, steps of 8 segments, the 3,000 most frequent
words as classes.

"tied": class rows are the rows of the words' embedding; a dense layer brings
the units to their width.

"step", "dual": the full class matrix at once, by that method (the lifted one is
as good as the slim one). "fine-tuned": half of the epochs slim, then one of
"step", "lift" and "dual", then the other half with the full softmax at the
least of the rates; after the lift for so much longer as the step's pass took.
With --epochs 8 and more this is the paper's protocol. Times are of the
processor (all cores together), without the search for a rate.
"""

import json
import math
import time
import warnings
from typing import NamedTuple

import measure
import numpy as np
import verses_data

LENGTH, L2 = 32, 1e-7
PASSED = 64  # segments of a batch of the pass that recovers
RATES = (5e-3, 1e-2)
SEARCH_EPOCHS = 0.1
NUM_SAMPLED = 2048
ROWS = {
    "full": ("FullSoftmax", {}),
    "sampled": ("SampledSoftmax", {"num_sampled": NUM_SAMPLED}),
    "full, tied": ("FullSoftmax", {"tied_to": "words"}),
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
SMALL_ROWS = {
    "full": ROWS["full"],
    "full, tied": ROWS["full, tied"],
    "RP(48)": ("ProjectedSoftmax", {"projection_dim": 48, "l2": L2}),
}
RECOVERED = ("RP(100)", "RP-A", "RP(48)")
# The lift comes after the step, whose time it gets.
METHODS = ("step", "lift", "dual")


class Size(NamedTuple):
    """Of the model and its data.

    Attributes:
        dim, embedding: ints, units and width of a word.
        batch: int, segments.
        classes: int or None, the most frequent words.
        every: int, one of so many books to train on.
    """

    dim: int = 512
    embedding: int = 128
    batch: int = 16
    classes: int | None = None
    every: int = 1


SMALL = Size(192, 64, 8, 3000, 4)


def read(folder, size):
    """`(counts, parts)`: of words by falling frequency, and id sequences."""
    verses, words = verses_data.read(folder, "kjv")
    books = np.array([int(verse) // 1_000_000 for verse in verses])
    of_part = {
        "train": (books % 10 > 1) & (books % size.every == 0),
        "choices": books % 10 == 0,
        "test": books % 10 == 1,
    }
    train = [w for w, kept in zip(words, of_part["train"]) if kept]
    names, counts = np.unique(np.concatenate(train), return_counts=True)
    order = np.argsort(-counts, kind="stable")[: size.classes]
    ids = {names[place]: i for i, place in enumerate(order)}
    parts = {
        part: np.array(
            [ids.get(w, -1) for v, k in zip(words, kept) if k for w in v]
        )
        for part, kept in of_part.items()
    }
    return counts[order], parts


def dataset(words, size, shuffle):
    """Segments `[batch, LENGTH]` and the words after each."""
    import tensorflow as tf

    count = (len(words) - 1) // LENGTH
    x = words[: count * LENGTH].reshape(count, LENGTH)
    y = words[1 : count * LENGTH + 1].reshape(count, LENGTH)
    data = tf.data.Dataset.from_tensor_slices((np.maximum(x, 0), y))
    if shuffle:
        data = data.shuffle(count, seed=0)
    return data.batch(size.batch, drop_remainder=True)


def make_model(row, counts, size, rate, seed):
    import keras

    import tfxclass

    name, options = {**ROWS, **SMALL_ROWS}[row]
    if name == "AdaptiveProjectedSoftmax":
        options = {**options, "counts": counts}
    inputs = keras.Input([LENGTH], dtype="int32")
    words = keras.layers.Embedding(len(counts), size.embedding)
    features = keras.layers.LSTM(size.dim, return_sequences=True)(words(inputs))
    if "tied_to" in options:
        options = {**options, "tied_to": words}
        features = keras.layers.Dense(size.embedding)(features)
    head = getattr(tfxclass.layers, name)(len(counts), seed=seed, **options)
    return compiled(keras.Model(inputs, head(features)), rate)


def compiled(model, rate=min(RATES)):
    import tfxclass

    head = model.layers[-1]
    model.compile(tfxclass.optimizers.LazyAdam(rate), loss=head.loss)
    return model


def perplexity(model, words, size):
    """exp of the mean loss over the words that have a class, or infinity."""
    data = dataset(words, size, shuffle=False)
    total = labels = 0.0
    for x, y in data:
        rows = y.shape.num_elements()
        total += float(model.test_on_batch(x, y)) * rows
        model.reset_metrics()
        labels += int((y >= 0).numpy().sum())
    mean = total / labels
    return math.exp(mean) if mean < 700 else math.inf


def train(model, words, size, epochs):
    """CPU seconds of the epochs; `epochs` may be a fraction."""
    data = dataset(words, size, shuffle=True)
    steps = int(epochs * int(data.cardinality()))
    start = time.process_time()
    model.fit(data.repeat(), steps_per_epoch=steps, epochs=1, verbose=0)
    return time.process_time() - start


def some_choices(parts):
    return parts["choices"][:16384]


def choose_rate(row, counts, parts, size, seed):
    """The best of `RATES` after `SEARCH_EPOCHS`."""
    found = []
    for rate in RATES:
        model = make_model(row, counts, size, rate, seed)
        train(model, parts["train"], size, SEARCH_EPOCHS)
        found.append((perplexity(model, some_choices(parts), size), rate))
    return min(found)[1]


def recovered(model, parts, size, method):
    """The full model, and the CPU seconds."""
    from tfxclass import recovery

    start = time.process_time()
    wide = size._replace(batch=PASSED)
    data = dataset(parts["train"], wide, shuffle=False)
    with warnings.catch_warnings():
        # The dual's step is too long here: that is what is shown.
        warnings.simplefilter("ignore")
        full = recovery.recover(model, data, method=method, verbose=0)
    return compiled(full), time.process_time() - start


def fine_tuned(row, model, parts, size, epochs, half):
    """Lines of half of the epochs slim (`half` seconds), and half in full.

    The lift, which needs no pass, trains on for what the step's pass took.
    """
    weights, lines, more = model.get_weights(), [], 0.0
    for method in METHODS:
        full, seconds = recovered(model, parts, size, method)
        took = train(full, parts["train"], size, epochs / 2 + more)
        lines.append(
            {
                "row": f"{row}, {method} + fine-tuned",
                "perplexity": perplexity(full, parts["test"], size),
                "cpu_s": half + seconds + took,
            }
        )
        if method == "step":
            more = epochs / 2 * seconds / took
        else:
            more = 0.0
        # The encoder is shared: what follows must not begin at this one's.
        model.set_weights(weights)
    return lines


def child(folder, row, size, epochs, seed):
    import keras

    keras.utils.set_random_seed(seed)
    counts, parts = read(folder, size)
    rate = choose_rate(row, counts, parts, size, seed)
    model = make_model(row, counts, size, rate, seed)
    seconds = train(model, parts["train"], size, epochs / 2)
    tuned = []
    if row in RECOVERED:
        tuned = fine_tuned(row, model, parts, size, epochs, seconds)
    seconds += train(model, parts["train"], size, epochs / 2)
    quality = perplexity(model, parts["test"], size)
    lines = [{"row": row, "rate": rate, "perplexity": quality}]
    lines[0]["cpu_s"] = seconds
    for method in ("step", "dual") if row in RECOVERED else ():
        full, took = recovered(model, parts, size, method)
        quality = perplexity(full, parts["test"], size)
        line = {"row": f"{row}, {method}", "perplexity": quality}
        lines.append({**line, "cpu_s": seconds + took})
    return lines + tuned


if __name__ == "__main__":
    args = measure.row_arguments(__doc__.splitlines()[0], 1.0)
    if args.child:
        size = SMALL if args.small else Size()
        row = args.rows[0]
        found = child(args.folder, row, size, args.epochs, args.seed)
        print(json.dumps(found))
    else:
        rows = SMALL_ROWS if args.small else ROWS
        measure.run_rows("language_model", __file__, args, rows)
