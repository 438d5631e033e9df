"""The next item of a user: a causal transformer, from a file to a server.

    python -m examples.next_item_users --data users.txt

`--data` is a text file with one user a line: a name, then item ids from 1 in
order. Without it, a small set is generated. The model is SASRec (Kang and
McAuley, 2018) with gated layers as in eSASRec (arXiv 2508.06450), and counts of
near items (`examples/counts.py`): with few items a user, either alone is worse.
`docs/next_item.md` explains each step.
"""

import argparse
import itertools
import math
import os

import keras
import numpy as np

import tfxclass
from examples import counts

LENGTH, DIM, BLOCKS, HEADS, BATCH, NUM_SAMPLED, K = 20, 64, 2, 2, 128, 2048, 10
DROPOUT = 0.3
# The rate rises to RATE in a twentieth of the steps, and then falls to 0.
RATE = 2e-3


def read(path):
    """Item ids of each user."""
    if path is None:  # Users who go from item to item in short steps.
        steps = np.random.default_rng(0).integers(1, 3, (1_000, 8))
        starts = np.arange(1_000)[:, None]
        return ((starts + steps.cumsum(1)) % 100 + 1).tolist()
    with open(path, encoding="utf8") as f:
        users = [line.split()[1:] for line in f]
    users = [items for items in users if items]
    for item in itertools.chain(*users or [["no items"]]):
        if not item.isdecimal() or int(item) < 1:
            raise ValueError(
                f"{path} must have users with item ids from 1 on. Received: "
                f"{item}. `tfxclass.retrieval.number_items` makes ids of names."
            )
    return [list(map(int, items)) for items in users]


def rows_of(sequences, length):
    """`(inputs, labels)`, int64 `[rows, length]`, padded with 0 and -1.

    A longer sequence is several rows, and each item but the first a label.
    """
    rows = [
        sequence[max(end - length - 1, 0) : end]
        for sequence in sequences
        for end in range(len(sequence), 1, -length)
    ]
    inputs = tfxclass.retrieval.pad([row[:-1] for row in rows], length)
    labels = [row[1:] for row in rows]
    return inputs, tfxclass.retrieval.pad(labels, length, value=-1)


# ## Model


def gated(x, found, dropout):
    """`x` plus what a layer found, as far as a gate lets it through."""
    gate = keras.layers.Dense(x.shape[-1], activation="sigmoid")(x)
    return x + keras.layers.Dropout(dropout)(found * gate)


def block(x, is_item, dropout):
    """Causal attention to items, then two dense layers (SwiGLU)."""
    dim = x.shape[-1]
    norm = keras.layers.RMSNormalization()(x)
    attention = keras.layers.MultiHeadAttention(HEADS, dim // HEADS)
    found = attention(norm, norm, attention_mask=is_item, use_causal_mask=True)
    x = gated(x, found, dropout)
    norm = keras.layers.RMSNormalization()(x)
    hidden = keras.layers.Dense(2 * dim, activation="silu")(norm)
    found = hidden * keras.layers.Dense(2 * dim)(norm)
    return gated(x, keras.layers.Dense(dim)(found), dropout)


def make_models(num_items, dim=DIM, length=LENGTH, dropout=DROPOUT):
    """`(model, answers)`: what is trained, and its last position."""
    seen = keras.Input([length], dtype="int64", name="seen")
    small = keras.initializers.RandomNormal(stddev=dim**-0.5)
    items = keras.layers.Embedding(num_items, dim, small)
    places = keras.layers.Embedding(length, dim, name="places")
    x = keras.layers.UnitNormalization()(items(seen))
    x += 0.5 * places(keras.ops.zeros_like(seen) + np.arange(length))
    x = keras.layers.Dropout(dropout)(x)
    is_item = (seen > 0)[:, None]
    for _ in range(BLOCKS):
        x = block(x, is_item, dropout)
    x = keras.layers.RMSNormalization()(x)
    cosine = tfxclass.layers.Cosine(scale=12.0)
    options = {"tied_to": items, "removed": [0], "similarity": cosine}
    size = min(NUM_SAMPLED, num_items)
    head = tfxclass.layers.SampledSoftmax(num_items, size, "top_k", **options)
    model = keras.Model(seen, head(x))
    last = tfxclass.layers.FullSoftmax(num_items, **options)
    return model, keras.Model(seen, last(x[:, -1]))


# ## Evaluation and export


def before_test(sequences):
    """What is known when the test asks for the last item of each user."""
    return [s[:-1] if len(s) > 2 else s for s in sequences]


def train(model, split, epochs, verbose="auto"):
    """Compiles the model, and trains it on all of `split.train`."""
    x, y = rows_of(split.train, model.input_shape[1])
    steps = epochs * math.ceil(len(x) / BATCH)
    rising = steps // 20
    rate = keras.optimizers.schedules.CosineDecay(
        RATE / 100, steps - rising, warmup_target=RATE, warmup_steps=rising
    )
    head = model.layers[-1]
    model.compile(tfxclass.optimizers.HeadAdam(rate), loss=head.loss)
    model.fit(x, y, BATCH, epochs, verbose=verbose)


def main(
    data=None, epochs=20, path=None, dim=DIM, length=LENGTH, dropout=DROPOUT
):
    """Returns the figures of the test, a dict."""
    keras.utils.set_random_seed(0)
    sequences = read(data)
    longest, last = max(map(len, sequences)), max(map(max, sequences))
    if longest < 3 or last < K:
        raise ValueError(
            f"{data} must have a user with three items, and {K} items in all. "
            f"Received: at most {longest} items a user, and ids up to {last}."
        )
    if path:
        os.makedirs(path, exist_ok=True)
    split = tfxclass.retrieval.leave_one_out(sequences)
    model, answers = make_models(last + 1, dim, length, dropout)
    ranker = counts.make_ranker(answers, K, boost=float("-inf"))
    train(model, split, epochs)
    counts.count(ranker, split.train)
    counts.choose(ranker, split.validation, "weight", counts.WEIGHTS)
    # What users did last counts at once, without training.
    counts.count(ranker, before_test(sequences))
    figures = counts.evaluate(ranker, split.test, split.train)
    print({name: round(value, 4) for name, value in figures.items()})
    if path:
        # A service counts all it has. It can load the model, count anew and
        # export again, without training.
        counts.count(ranker, sequences)
        ranker.save(f"{path}/model.keras")
        ranker.export(f"{path}/1", verbose=False)
    return figures


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--data",
        help="text file with a user a line: a name, then item ids from 1 in "
        "order (default: a small set is generated)",
    )
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--path", help="folder of the model's versions")
    parser.add_argument(
        "--dim",
        type=int,
        default=DIM,
        help=f"width of the model (default: {DIM}; 128 is better and slower)",
    )
    parser.add_argument(
        "--length",
        type=int,
        default=LENGTH,
        help=f"items that the model reads (default: {LENGTH})",
    )
    parser.add_argument(
        "--dropout",
        type=float,
        default=DROPOUT,
        help=f"fraction of what layers find that is left out while the model "
        f"trains (default: {DROPOUT})",
    )
    main(**vars(parser.parse_args()))
