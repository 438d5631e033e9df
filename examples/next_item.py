"""The next item of a session: from a file of sessions to a served model.

    python -m examples.next_item --data FOLDER/diginetica

`--data`: a text file with a session a line, item ids from 1 in the order of
time; or what names of `.train.txt.xz` (such lines) and `.test.txt.xz` (items so
far, a tab, the next item) begin with. Without it, a small set is generated.
`docs/next_item.md` explains each step and has the results.
"""

import argparse
import lzma
import os

import keras
import numpy as np

import tfxclass

LENGTH, DIM, WIDTH, BATCH, NUM_SAMPLED, K = 20, 96, 64, 512, 2048, 20
BOOSTS = (None, 2.0, 4.0, 8.0)

# ## Data


def read(path):
    """`(sessions, test)`: lists of ids, and questions or None."""
    if path is None:  # Walks among neighboring items.
        random = np.random.default_rng(0)
        steps = random.integers(0, 4, (2_000, 6)).cumsum(axis=1)
        walks = (random.integers(0, 200, (2_000, 1)) + steps) % 200 + 1
        return walks.tolist(), None
    if os.path.exists(path):
        with open(path, encoding="utf8") as f:
            return [ids_of(line) for line in f], None
    with lzma.open(f"{path}.train.txt.xz", "rt") as f:
        sessions = [ids_of(line) for line in f]
    with lzma.open(f"{path}.test.txt.xz", "rt") as f:
        rows = [ids_of(line) for line in f]
    labels = np.array([row[-1] for row in rows])
    return sessions, ([row[:-1] for row in rows], labels)


def ids_of(line):
    return [int(item) for item in line.split()]


def inputs_of(histories):
    """int64 `[rows, LENGTH]`, the latest item first, then zeros."""
    return tfxclass.retrieval.pad(histories, LENGTH, latest="first")


# ## Model: a mean of normalized item vectors, weighted by attention


def make_model(num_items):
    seen = keras.Input([LENGTH], dtype="int64", name="seen")
    small = keras.initializers.RandomNormal(stddev=DIM**-0.5)
    items = keras.layers.Embedding(num_items, DIM, small)
    is_item = keras.ops.cast(seen > 0, "float32")[:, :, None]
    vectors = keras.layers.UnitNormalization()(items(seen)) * is_item
    mean = keras.layers.UnitNormalization()(keras.ops.sum(vectors, axis=1))
    # A bias for each column says how long ago an item was.
    by_column = keras.layers.EinsumDense(
        "btd,dh->bth", (LENGTH, WIDTH), bias_axes="th"
    )
    terms = by_column(vectors) + keras.layers.Dense(WIDTH)(mean)[:, None]
    terms += keras.layers.Dense(WIDTH)(vectors[:, 0])[:, None]
    scores = keras.layers.EinsumDense(
        "bth,hk->btk", (LENGTH, 1), bias_axes="tk"
    )(keras.ops.tanh(terms))
    weights = keras.ops.softmax(scores + 1e9 * (is_item - 1), axis=1)
    head = tfxclass.layers.SampledSoftmax(
        num_items,
        num_sampled=min(NUM_SAMPLED, num_items),
        sampler="uniform",
        tied_to=items,
        removed=[0],  # padding
        similarity=tfxclass.layers.Cosine(scale=16.0),
    )
    return keras.Model(seen, head(keras.ops.sum(weights * vectors, axis=1)))


def train(sessions, num_items, epochs):
    """A model that has learned sessions, and their reverses."""
    both = [*sessions, *(session[::-1] for session in sessions)]
    histories, labels = tfxclass.retrieval.next_items(both)
    model = make_model(num_items)
    steps = epochs * -(-len(labels) // BATCH)
    rate = keras.optimizers.schedules.CosineDecay(1e-3, steps)
    model.compile(tfxclass.optimizers.HeadAdam(rate), model.layers[-1].loss)
    model.fit(inputs_of(histories), labels, BATCH, epochs=epochs, verbose=2)
    return model


# ## Evaluation and export


def evaluate(model, questions, boost, train=None):
    """Figures of answers where items of the session get `boost`."""
    histories, labels = questions
    seen = inputs_of(histories)
    best = tfxclass.top_k(model, K, boost=boost)
    ids, _ = best.predict(seen if boost is None else [seen, seen], verbose=0)
    return tfxclass.retrieval.evaluate(ids, labels, train=train)


def main(data=None, epochs=2, path=None):
    """Returns the figures of the test, a dict."""
    keras.utils.set_random_seed(0)
    sessions, test = read(data)
    split = tfxclass.retrieval.split_sessions(sessions, test=0.1 * (not test))
    num_items = 1 + max(map(max, sessions))
    model = train(split.train, num_items, epochs)
    asked = split.validation
    boost = max(BOOSTS, key=lambda x: evaluate(model, asked, x)["mrr"])
    print("Boost of items of the session:", boost)
    if test is not None:  # Learn the latest sessions, too.
        model = train(sessions, num_items, epochs)
    figures = evaluate(model, test or split.test, boost, split.train)
    print({name: round(value, 4) for name, value in figures.items()})
    if path is not None:
        tfxclass.export.saved_model(model, path, top_k=K, boost=boost)
    return figures


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--path", help="folder of the model's versions")
    main(**vars(parser.parse_args()))
