"""The next item of a session: from a file of sessions to a served model.

    python -m examples.next_item --data FOLDER/diginetica

`--data` is a text file with one session a line, item ids from 1 in the order
of time; or the beginning of the names of `.train.txt.xz` (such lines) and
`.test.txt.xz` (items so far, a tab, the next item). Without it, a small set is
generated. `docs/next_item.md` explains each step.
"""

import argparse
import lzma
import os

import keras
import numpy as np

import tfxclass

LENGTH, DIM, WIDTH, BATCH, NUM_SAMPLED, K = 30, 96, 64, 512, 2048, 20
BOOSTS = (None, 2.0, 4.0, 8.0)

# ## Data


def read(path):
    """`(sessions, questions)`: lists of ids; questions are None in one file."""
    if path is None:
        return generated(), None
    if os.path.exists(path):
        with open(path, encoding="utf8") as f:
            return [list(map(int, line.split())) for line in f], None
    with lzma.open(f"{path}.train.txt.xz", "rt") as f:
        sessions = [list(map(int, line.split())) for line in f]
    with lzma.open(f"{path}.test.txt.xz", "rt") as f:
        rows = [line.split("\t") for line in f]
    histories = [list(map(int, history.split())) for history, _ in rows]
    labels = np.array([int(label) for _, label in rows])
    return sessions, tfxclass.retrieval.Questions(histories, labels)


def generated(num_sessions=2_000, num_items=200):
    """Walks among neighboring items, some of which come back."""
    random = np.random.default_rng(0)
    steps = random.integers(0, 4, (num_sessions, 6)).cumsum(axis=1)
    starts = random.integers(0, num_items, (num_sessions, 1))
    return ((starts + steps) % num_items + 1).tolist()


def inputs_of(histories):
    """int64 `[rows, LENGTH]`, the latest item first, 0 behind the last."""
    return tfxclass.retrieval.pad(histories, LENGTH, latest="first")


# ## Model


def make_model(num_items):
    """A mean of the session's normalized item vectors, by attention."""
    seen = keras.Input([LENGTH], dtype="int64", name="seen")
    items = keras.layers.Embedding(
        num_items,
        DIM,
        embeddings_initializer=keras.initializers.RandomNormal(
            stddev=DIM**-0.5
        ),
        name="items",
    )
    is_item = keras.ops.cast(seen > 0, "float32")[:, :, None]
    vectors = keras.layers.UnitNormalization()(items(seen)) * is_item
    mean = keras.layers.UnitNormalization()(keras.ops.sum(vectors, axis=1))
    # A bias for each column: how long ago an item was.
    terms = keras.layers.EinsumDense(
        "btd,dh->bth", (LENGTH, WIDTH), bias_axes="th"
    )(vectors)
    terms += keras.layers.Dense(WIDTH)(vectors[:, 0])[:, None]
    terms += keras.layers.Dense(WIDTH)(mean)[:, None]
    scores = keras.layers.EinsumDense(
        "bth,hk->btk", (LENGTH, 1), bias_axes="tk"
    )(keras.ops.tanh(terms))
    weights = keras.ops.softmax(scores + 1e9 * (is_item - 1), axis=1)
    features = keras.ops.sum(weights * vectors, axis=1)
    head = tfxclass.layers.SampledSoftmax(
        num_items,
        num_sampled=min(NUM_SAMPLED, num_items),
        sampler="uniform",
        tied_to=items,
        removed=[0],
        similarity=tfxclass.layers.Cosine(scale=16.0),
    )
    return keras.Model(seen, head(features)), head


def train(sessions, num_items, epochs):
    """A model that has learned sessions and their reverses."""
    both = sessions + [session[::-1] for session in sessions]
    histories, labels = tfxclass.retrieval.next_items(both)
    model, head = make_model(num_items)
    steps = epochs * -(-len(labels) // BATCH)
    rate = keras.optimizers.schedules.CosineDecay(1e-3, steps)
    model.compile(tfxclass.optimizers.HeadAdam(rate), loss=head.loss)
    model.fit(inputs_of(histories), labels, BATCH, epochs=epochs, verbose=2)
    return model


# ## Evaluation


def evaluate(model, questions, boost, train=None):
    """Figures of answers where items of the session get `boost`."""
    seen = inputs_of(questions.histories)
    best = tfxclass.top_k(model, K, boost=boost)
    ids, _ = best.predict(seen if boost is None else [seen, seen], verbose=0)
    return tfxclass.retrieval.evaluate(ids, questions.labels, train=train)


def main(data=None, epochs=2, path=None):
    """Returns the figures of the test, a dict."""
    keras.utils.set_random_seed(0)
    sessions, test = read(data)
    split = tfxclass.retrieval.split_sessions(
        sessions, test=0.1 if test is None else 0.0
    )
    num_items = 1 + max(map(max, sessions))
    model = train(split.train, num_items, epochs)
    boost = max(
        BOOSTS, key=lambda x: evaluate(model, split.validation, x)["mrr"]
    )
    print("Boost of items of the session:", boost)
    if test is not None:
        model = train(sessions, num_items, epochs)
    figures = evaluate(model, test or split.test, boost, split.train)
    print({name: round(value, 4) for name, value in figures.items()})
    if path:
        tfxclass.export.saved_model(model, path, top_k=K, boost=boost)
    return figures


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--export", help="folder of the model's versions")
    arguments = parser.parse_args()
    main(arguments.data, arguments.epochs, arguments.export)
