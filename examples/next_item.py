"""What comes next: sequences of items, with one table for input and output.

    python -m examples.next_item [--plot accuracy.png]

What it shows: a causal transformer over sequences of items (SASRec, Kang &
McAuley, 2018) whose head has the rows of the item embedding (`tied_to`), takes
features `[batch, time, dim]` with a Keras mask, trains on all items or on a
sample of them, and answers without the items that a sequence has already
(`top_k(exclude=True)`). `--plot` draws the accuracy after each epoch against
the seconds of training (`tfxclass.plot`).

Data: no log of users comes with the installed packages, so a sequence is the
words of a definition in WordNet 3.0, in their order and each once, without the
most frequent ones: real sequences, of no users. The last word of each is for
the test, the others are learned.

Result: a test's item is among the first ten (hit@10) in 0.108 of the tests when
all items are trained on, in 0.103 with a sample of them, and in 0.011 of the
most popular items; NDCG@10 is 0.071, 0.068 and 0.005. 11,270 sequences of 3,468
items, 200 CPU seconds.
"""

import argparse
import re

import keras
import numpy as np

import tfxclass
from examples.reverse_dictionary import data as wordnet

LENGTH, WIDTH, BLOCKS, HEADS = 12, 64, 2, 2
BATCH, RATE, DROPOUT = 128, 0.002, 0.2
MOST_FREQUENT, LEAST_COUNT, LEAST_LENGTH = 60, 8, 4
NUM_SAMPLED = 1792

# ## Data
#
# Item 0 is padding: a class that was removed, so it is never an answer. A
# sequence ends at the right end of its row, where the next item is asked for.


def sequences_of(texts):
    """`(items, sequences)`: names by id, and lists of ids."""
    words = [
        list(dict.fromkeys(re.findall("[a-z]+", text.lower())))
        for text in texts
    ]
    names, counts = np.unique(np.concatenate(words), return_counts=True)
    order = np.argsort(-counts, kind="stable")
    order = order[MOST_FREQUENT:]
    order = order[counts[order] >= LEAST_COUNT]
    ids = {names[place]: i + 1 for i, place in enumerate(order)}
    found = [[ids[word] for word in row if word in ids] for row in words]
    items = ["", *names[order]]
    return items, [row for row in found if len(row) >= LEAST_LENGTH]


def padded(rows, value):
    """int64 `[rows, LENGTH]`, the ends of the rows at the right."""
    rows = [row[-LENGTH:] for row in rows]
    rows = [[value] * (LENGTH - len(row)) + row for row in rows]
    return np.array(rows, np.int64)


def split(sequences):
    """`((x, y) to learn, (x, y) to test)`."""
    learned = [row[:-1] for row in sequences]
    x = padded([row[:-1] for row in learned], 0)
    y = padded([row[1:] for row in learned], -1)
    test_y = np.array([row[-1] for row in sequences])
    return (x, y), (padded(learned, 0), test_y)


# ## Model
#
# The mask of the embedding goes along with the features: positions of padding
# have no part in attention, nor in the loss.


class Positions(keras.layers.Layer):
    """Adds a learned vector to each position."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.supports_masking = True

    def build(self, input_shape):
        self.table = self.add_weight(name="table", shape=input_shape[1:])

    def call(self, x):
        return x + self.table


def block(x):
    """Causal self-attention and two dense layers, each beside its input."""
    norm = keras.layers.LayerNormalization()(x)
    attention = keras.layers.MultiHeadAttention(HEADS, WIDTH // HEADS)
    found = attention(norm, norm, use_causal_mask=True)
    x = keras.layers.Add()([x, keras.layers.Dropout(DROPOUT)(found)])
    found = keras.layers.LayerNormalization()(x)
    found = keras.layers.Dense(WIDTH, activation="relu")(found)
    found = keras.layers.Dense(WIDTH)(found)
    return keras.layers.Add()([x, keras.layers.Dropout(DROPOUT)(found)])


def make_models(num_items, num_sampled=None, with_accuracy=False):
    """`(model, best)`: what is trained, and what answers."""
    items = keras.layers.Embedding(
        num_items,
        WIDTH,
        mask_zero=True,
        embeddings_initializer=keras.initializers.RandomNormal(
            stddev=WIDTH**-0.5
        ),
        name="items",
    )
    options = {"tied_to": items, "removed": [0], "seed": 0}
    x = keras.Input([LENGTH], dtype="int64", name="seen")
    features = keras.layers.Dropout(DROPOUT)(Positions()(items(x)))
    for _ in range(BLOCKS):
        features = block(features)
    features = keras.layers.LayerNormalization()(features)
    if num_sampled is None:
        head = tfxclass.layers.FullSoftmax(num_items, **options)
    else:
        head = tfxclass.layers.SampledSoftmax(num_items, num_sampled, **options)
    model = keras.Model(x, head(features))
    top = tfxclass.metrics.TopKAccuracy(head, k=10, name="top10")
    reported = [top] if with_accuracy else []
    optimizer = tfxclass.optimizers.LazyAdam(RATE)
    model.compile(optimizer, loss=head.loss, metrics=reported)
    # Another head with the same rows, for the last position alone.
    last = tfxclass.layers.FullSoftmax(num_items, **options)
    answers = keras.Model(x, last(features[:, -1]))
    return model, tfxclass.top_k(answers, k=10, exclude=True)


# ## Result


def scores(ids, y):
    """`(hit@10, NDCG@10)` of the best ten items."""
    found = ids == y[:, np.newaxis]
    gains = 1 / np.log2(np.arange(2, found.shape[1] + 2))
    return float(found.any(axis=1).mean()), float((found @ gains).mean())


def popular(learned, x, num_items):
    """The ten items most often learned, without those of a row."""
    counts = np.bincount(learned[learned > 0], minlength=num_items)
    # A row has LENGTH items at most.
    best = np.argsort(-counts, kind="stable")[: LENGTH + 10]
    rows = [best[~np.isin(best, row)][:10] for row in x]
    return np.array(rows)


def plot(runs, path):
    from matplotlib import pyplot

    figure, ax = pyplot.subplots()
    tfxclass.plot.plot_accuracy(runs, "val_top10", ax=ax)
    figure.savefig(path)
    pyplot.close(figure)


def held_out(test_x, test_y):
    """`(x, y)` as in training: the last position alone has a label."""
    y = np.full(test_x.shape, -1)
    y[:, -1] = test_y
    return test_x, y


def compare(items, sequences, epochs, num_sampled, verbose=2, picture=None):
    """Returns `(hit@10, NDCG@10)` by name."""
    (x, y), (test_x, test_y) = split(sequences)
    num_items = len(items)
    print(f"{len(x):,} sequences of {num_items - 1:,} items.")
    found = {"popular": scores(popular(x, test_x, num_items), test_y)}
    # Evaluations take time: only for the figure.
    watched = {"validation_data": held_out(test_x, test_y)} if picture else {}
    runs = {}
    for name, size in {"full": None, "sampled": num_sampled}.items():
        keras.utils.set_random_seed(0)
        model, best = make_models(num_items, size, bool(picture))
        seconds = tfxclass.callbacks.SecondsLog()
        options = {"callbacks": [seconds], "verbose": verbose, **watched}
        runs[name] = model.fit(x, y, BATCH, epochs=epochs, **options)
        # What is in a sequence is no answer to it.
        ids, _ = best.predict([test_x, test_x], BATCH, verbose=0)
        found[name] = scores(ids, test_y)
    if picture:
        plot(runs, picture)
    for name, (hit, ndcg) in found.items():
        print(f"{name:8} hit@10 {hit:.3f}   NDCG@10 {ndcg:.3f}")
    return found


def main(count=24_000, epochs=12, picture=None):
    texts = [synset.gloss for synset in wordnet.read_wordnet().values()]
    random = np.random.default_rng(0)
    texts = [texts[i] for i in random.permutation(len(texts))[:count]]
    compare(*sequences_of(texts), epochs, NUM_SAMPLED, picture=picture)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--definitions", type=int, default=24_000)
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--plot", help="file of a figure")
    arguments = parser.parse_args()
    main(arguments.definitions, arguments.epochs, arguments.plot)
