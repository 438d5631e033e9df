"""Counts of near items, added to the logits of a model of next items.

A ranker is such a model with the layer `Ranking`, whose table of counts is made
without training. Both examples of next items have one, since a count alone is
often close to a model, and both together are better. `docs/next_item.md` has
the reasons.
"""

import keras
import numpy as np
import tensorflow as tf

import tfxclass

# Items are near each other within WINDOW steps. The LATEST items of a history
# have counts of NEIGHBORS others each.
WINDOW, LATEST, NEIGHBORS = 10, 10, 200
# Weights of the counts in the logits, from none to nothing but counts.
ALONE, COUNTS = 0.0, 1e9
WEIGHTS = ALONE, 0.25, 0.5, 1.0, 1.5, COUNTS


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
    """Ids `[batch, k]`, by probabilities, counts of `nearby`, and seen items.

    `weight * log(1 + 100 * count)` is added to each logit. `boost` is added to
    the logits of seen items: -inf where these are no answers. An id of -1
    stands for no item.
    """

    def __init__(self, num_items, k, **kwargs):
        super().__init__(**kwargs)
        shape, options = (num_items, NEIGHBORS), {"trainable": False}
        self.num_items, self.k = num_items, k
        self.others = self.add_weight(shape, "zeros", "int64", **options)
        self.counts = self.add_weight(shape, "zeros", **options)
        self.weight = self.add_weight((), "zeros", **options)
        self.boost = self.add_weight((), "zeros", **options)

    def call(self, probabilities, latest, seen):
        latest = latest[:, ::-1][:, :LATEST]
        counts = tf.gather(self.counts, latest)
        ago = tf.range(1, tf.shape(latest)[1] + 1)
        counts /= tf.cast(ago, counts.dtype)[:, None]
        shape = tf.shape(probabilities, tf.int64)
        rows = tf.range(shape[0])[:, None]
        places = rows[:, None] * shape[1] + tf.gather(self.others, latest)
        counts = tf.math.unsorted_segment_sum(
            counts, places, shape[0] * shape[1]
        )
        counts = tf.reshape(counts, shape)
        logits = tf.math.log(probabilities)
        logits += self.weight * tf.math.log1p(100 * counts)
        # Padding is item 0, which no head answers.
        places = tf.stack([tf.broadcast_to(rows, tf.shape(seen)), seen], -1)
        raised = tf.gather_nd(logits, places) + self.boost
        logits = tf.tensor_scatter_nd_update(logits, places, raised)
        best, ids = tf.math.top_k(logits, self.k)
        return tf.where(best > float("-inf"), ids, -1)

    def get_config(self):
        own = {"num_items": self.num_items, "k": self.k}
        return {**super().get_config(), **own}


def make_ranker(answers, k, boost):
    """A model from the latest and all seen items to ids, best first.

    `answers` is a model from the latest items to probabilities of all items.
    Both inputs are padded with 0 in front, `seen` to any width.
    """
    num_items = answers.output.shape[-1]
    if k >= num_items:
        raise ValueError(
            f"`k` must be below the number of items, {num_items} with padding. "
            f"Received: {k}"
        )
    latest = keras.Input(answers.input_shape[1:], dtype="int64", name="latest")
    seen = keras.Input([None], dtype="int64", name="seen")
    ranking = Ranking(num_items, k, name="ranking")
    ids = ranking(answers(latest), latest, seen)
    ranking.boost.assign(boost)
    return keras.Model([latest, seen], ids)


def count(ranker, sequences):
    """Counts items in sequences, in place of those that were counted."""
    ranking = ranker.get_layer("ranking")
    others, counts = nearby(sequences, ranking.num_items)
    ranking.others.assign(others)
    ranking.counts.assign(counts)


def evaluate(ranker, questions, train=None, **values):
    """Figures of answers, with `weight=` or `boost=` if they are given."""
    histories, labels = questions
    for name, value in values.items():
        getattr(ranker.get_layer("ranking"), name).assign(value)
    latest = tfxclass.retrieval.pad(histories, ranker.input_shape[0][1])
    seen = tfxclass.retrieval.pad(histories, max(map(len, histories)))
    ids = ranker.predict([latest, seen], verbose=0)
    return tfxclass.retrieval.evaluate(ids, labels, train=train)


def choose(ranker, questions, name, values, measure="ndcg"):
    """The value of `weight` or `boost` that is best; the ranker has it then."""
    found = {
        value: evaluate(ranker, questions, **{name: value})[measure]
        for value in values
    }
    print(f"{measure} in validation, by {name}: {found}")
    best = max(found, key=found.get)
    getattr(ranker.get_layer("ranking"), name).assign(best)
    return best
