"""The next item of a user: a causal transformer, from a file to a server.

    python -m examples.next_item_users --data users.txt

`--data` is a text file with one user a line: a name, then item ids from 1 in
order. Without it, a small set is generated. The model is SASRec (Kang and
McAuley, 2018) with gated layers as in eSASRec (arXiv 2508.06450). Counts of
items that are near each other are added to its logits: with few items a user,
either alone is worse. `docs/next_item.md` explains each step.
"""

import argparse
import itertools
import math
import os

import keras
import numpy as np
import tensorflow as tf

import tfxclass

LENGTH, DIM, BLOCKS, HEADS, BATCH, NUM_SAMPLED, K = 20, 64, 2, 2, 128, 2048, 10
DROPOUT = 0.3
# The rate rises to RATE in a twentieth of the steps, and then falls to 0.
RATE = 2e-3
# Items are near each other within WINDOW steps. A user's LATEST items have
# counts of NEIGHBORS others each.
WINDOW, LATEST, NEIGHBORS = 10, 10, 200
# Weights of the counts in the logits, from none to nothing but counts.
ALONE, COUNTS = 0.0, 1e9
WEIGHTS = ALONE, 0.5, 1.0, 1.5, COUNTS


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


# ## Counts


def nearby(sequences, num_items):
    """`(others, counts)`, `[num_items, NEIGHBORS]`: items near each item.

    A pair counts 1 / distance, over the root of the other's popularity. Items
    that are new, with ids from `num_items` on, are left out.
    """
    items = np.concatenate(sequences)
    users = np.repeat(np.arange(len(sequences)), list(map(len, sequences)))
    items, users = items[items < num_items], users[items < num_items]
    keys, weights = [], []
    for distance in range(1, WINDOW + 1):
        same = users[:-distance] == users[distance:]
        first, second = items[:-distance][same], items[distance:][same]
        keys += [first * num_items + second, second * num_items + first]
        weights.append(np.full(2 * len(first), 1 / distance))
    keys, places = np.unique(np.concatenate(keys), return_inverse=True)
    found = np.bincount(places, np.concatenate(weights))
    items, others = np.divmod(keys, num_items)
    popularity = np.bincount(others, found, num_items)
    found = found / np.sqrt(np.maximum(popularity[others], 1))
    order = np.lexsort([-found, items])
    items, others, found = items[order], others[order], found[order]
    column = np.arange(len(items)) - np.searchsorted(items, items)
    best = column < NEIGHBORS
    table = np.zeros((2, num_items, NEIGHBORS))
    table[:, items[best], column[best]] = others[best], found[best]
    return table[0].astype(int), table[1].astype("float32")


@keras.saving.register_keras_serializable("examples")
class Ranking(keras.layers.Layer):
    """Ids `[batch, K]`, by probabilities, counts of `nearby`, and seen items.

    A logit grows by `weight * log(1 + 100 * count)`. -1 stands for no item.
    """

    def __init__(self, num_items, **kwargs):
        super().__init__(**kwargs)
        shape = num_items, NEIGHBORS
        self.num_items, options = num_items, {"trainable": False}
        self.others = self.add_weight(shape, "zeros", "int64", **options)
        self.counts = self.add_weight(shape, "zeros", **options)
        self.weight = self.add_weight((), "ones", **options)

    def call(self, probabilities, seen, excluded):
        latest = seen[:, ::-1][:, :LATEST]
        counts = tf.gather(self.counts, latest)
        ago = tf.range(1, tf.shape(latest)[1] + 1)
        counts /= tf.cast(ago, counts.dtype)[:, None]
        shape = tf.shape(probabilities, tf.int64)
        users = tf.range(shape[0])[:, None]
        places = users[:, None] * shape[1] + tf.gather(self.others, latest)
        counts = tf.math.unsorted_segment_sum(
            counts, places, shape[0] * shape[1]
        )
        counts = tf.reshape(counts, shape)
        logits = tf.math.log(probabilities)
        logits += self.weight * tf.math.log1p(100 * counts)
        # Padding is item 0, which is no answer either.
        users = tf.broadcast_to(users, tf.shape(excluded))
        places = tf.stack([users, excluded], axis=-1)
        never = tf.fill(tf.shape(excluded), float("-inf"))
        logits = tf.tensor_scatter_nd_update(logits, places, never)
        best, ids = tf.math.top_k(logits, K)
        return tf.where(best > float("-inf"), ids, -1)

    def get_config(self):
        return {**super().get_config(), "num_items": self.num_items}


def make_ranker(answers):
    """A model from the latest and all seen items to ids, best first."""
    seen = keras.Input(answers.input_shape[1:], dtype="int64", name="seen")
    excluded = keras.Input([None], dtype="int64", name="exclude_ids")
    ranking = Ranking(answers.output.shape[-1], name="ranking")
    ids = ranking(answers(seen), seen, excluded)
    return keras.Model([seen, excluded], ids)


def count(ranker, sequences):
    """Counts items in sequences, in place of those that were counted."""
    ranking = ranker.get_layer("ranking")
    others, counts = nearby(sequences, ranking.num_items)
    ranking.others.assign(others)
    ranking.counts.assign(counts)


# ## Evaluation and export


def before_test(sequences):
    """What is known when the test asks for the last item of each user."""
    return [s[:-1] if len(s) > 2 else s for s in sequences]


def evaluate(ranker, questions, weight, train=None):
    """Figures of answers without the items that a user has seen."""
    histories, longest = questions.histories, max(map(len, questions.histories))
    seen = tfxclass.retrieval.pad(histories, ranker.input_shape[0][1])
    excluded = tfxclass.retrieval.pad(histories, longest)
    ranker.get_layer("ranking").weight.assign(weight)
    ids = ranker.predict([seen, excluded], verbose=0)
    return tfxclass.retrieval.evaluate(ids, questions.labels, train=train)


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


def best_weight(ranker, questions):
    """The weight of the counts with the best NDCG."""
    ndcg = {w: evaluate(ranker, questions, w)["ndcg"] for w in WEIGHTS}
    print(f"NDCG@{K} in validation by the weight of the counts: {ndcg}")
    return max(ndcg, key=ndcg.get)


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
    ranker = make_ranker(answers)
    train(model, split, epochs)
    count(ranker, split.train)
    weight = best_weight(ranker, split.validation)
    # What users did last counts at once, without training.
    count(ranker, before_test(sequences))
    figures = evaluate(ranker, split.test, weight, split.train)
    print({name: round(value, 4) for name, value in figures.items()})
    if path:
        # A service counts all it has. It can load the model, count anew and
        # export again, without training.
        count(ranker, sequences)
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
