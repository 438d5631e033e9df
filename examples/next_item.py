"""The next item of a session: from a file of sessions to a served model.

    python -m examples.next_item --data FOLDER/diginetica

`--data`: a text file with a session a line, item ids from 1 in order; or what
the names of `.train.txt.xz` (such lines) and `.test.txt.xz` (the next item is
last) begin with. Without it, a small set is generated.
`docs/next_item.md` explains each step and has the results.
"""

import argparse
import lzma
import os

import keras
import numpy as np

import tfxclass
from examples import counts

LENGTH, DIM, WIDTH, BATCH, NUM_SAMPLED, K = 20, 96, 64, 512, 2048, 20
# Options are chosen on so many questions of the validation.
BOOSTS, ASKED = (0.0, 2.0, 4.0, 8.0), 5_000


def read(path):
    """`(sessions, test)`: lists of ids, and questions or None."""
    if path is None:  # Walks among neighboring items.
        steps = np.random.default_rng(0).integers(0, 4, (2_000, 6))
        starts = np.arange(2_000)[::-1, None]
        return ((starts + steps.cumsum(1)) % 200 + 1).tolist(), None
    if os.path.exists(path):
        return lines_of(open(path, encoding="utf8")), None
    sessions = lines_of(lzma.open(f"{path}.train.txt.xz", "rt"))
    rows = lines_of(lzma.open(f"{path}.test.txt.xz", "rt"))
    labels = np.array([row[-1] for row in rows])
    return sessions, ([row[:-1] for row in rows], labels)


def lines_of(file):
    with file:
        return [list(map(int, line.split())) for line in file]


def inputs_of(histories):
    return tfxclass.retrieval.pad(histories, LENGTH)


# ## Model: a mean of normalized item vectors, weighted by attention


def by_column(x, width):
    """A dense layer with a bias for each column: how long ago an item was."""
    shape = LENGTH, width
    return keras.layers.EinsumDense("btd,dh->bth", shape, bias_axes="th")(x)


def make_model(num_items):
    seen = keras.Input([LENGTH], dtype="int64", name="seen")
    small = keras.initializers.RandomNormal(stddev=DIM**-0.5)
    items = keras.layers.Embedding(num_items, DIM, small)
    is_item = keras.ops.cast(seen > 0, "float32")[:, :, None]
    vectors = keras.layers.UnitNormalization()(items(seen)) * is_item
    mean = keras.layers.UnitNormalization()(keras.ops.sum(vectors, axis=1))
    terms = by_column(vectors, WIDTH)
    terms += keras.layers.Dense(WIDTH)(vectors[:, -1])[:, None]
    terms += keras.layers.Dense(WIDTH)(mean)[:, None]
    scores = by_column(keras.ops.tanh(terms), 1)
    weights = keras.ops.softmax(scores + 1e9 * (is_item - 1), axis=1)
    cosine = tfxclass.layers.Cosine(scale=12.0)
    options = {"tied_to": items, "removed": [0], "similarity": cosine}
    size = min(NUM_SAMPLED, num_items)
    head = tfxclass.layers.SampledSoftmax(num_items, size, "uniform", **options)
    return keras.Model(seen, head(keras.ops.sum(weights * vectors, axis=1)))


def train(sessions, num_items, epochs):
    """A model that has learned each beginning of each session."""
    histories, labels = tfxclass.retrieval.next_items(sessions)
    model = make_model(num_items)
    steps = epochs * -(-len(labels) // BATCH)
    rate = keras.optimizers.schedules.CosineDecay(1e-3, steps)
    model.compile(tfxclass.optimizers.HeadAdam(rate), model.layers[-1].loss)
    model.fit(inputs_of(histories), labels, BATCH, epochs=epochs, verbose=2)
    return model


# ## Evaluation and export


def make_ranker(sessions, num_items, epochs):
    """A model that has learned and counted the sessions."""
    model = train(sessions, num_items, epochs)
    ranker = counts.make_ranker(model, K, boost=0.0)
    counts.count(ranker, sessions)
    return ranker


def choose(ranker, questions):
    """`boost` and `weight`, chosen one after the other, by the MRR."""
    rows = np.random.default_rng(0).permutation(len(questions.labels))[:ASKED]
    asked = [questions.histories[row] for row in rows], questions.labels[rows]
    return {
        name: counts.choose(ranker, asked, name, values, "mrr")
        for name, values in (("boost", BOOSTS), ("weight", counts.WEIGHTS))
    }


def main(data=None, epochs=2, path=None):
    """Returns the figures of the test, a dict."""
    keras.utils.set_random_seed(0)
    sessions, test = read(data)
    split = tfxclass.retrieval.split_sessions(sessions, test=0.1 * (not test))
    # Questions may have items that no session has.
    num_items = 1 + max(map(max, sessions + (test[0] if test else [])))
    ranker = make_ranker(split.train, num_items, epochs)
    options = choose(ranker, split.validation)
    if test is not None:  # Learn the latest sessions, too.
        ranker = make_ranker(sessions, num_items, epochs)
    asked = test or split.test
    figures = counts.evaluate(ranker, asked, split.train, **options)
    print(options, {name: round(y, 4) for name, y in figures.items()})
    if path is not None:
        ranker.export(f"{path}/1", verbose=False)
    return figures


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--data",
        help="text file with a session a line: item ids from 1, in order "
        "(default: a small set is generated)",
    )
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--path", help="folder of the model's versions")
    main(**vars(parser.parse_args()))
