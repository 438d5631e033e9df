"""Job titles to occupations: class vectors from names and descriptions.

    python -m examples.two_towers occupations.tsv.xz titles.tsv.xz

An occupation's class vector comes from its names and its description, by the
encoder that reads the question, too (`TwoTowerSoftmax`). So no title has to be
labeled, and a new occupation needs no training. In each epoch half of the names
are questions. The others are class features: no answer contains its question.
Results are in docs/two_towers.md.
"""

import lzma
import sys

import keras
import numpy as np
import tensorflow as tf

import tfxclass
from tfxclass.text import Field
from tfxclass.text import TextFeatures

WIDTH, EPOCHS, BATCH, NUM_SAMPLED = 256, 4, 256, 512
TERMS, DROPOUT, RATE = 256, 0.3, 50
ALL = {"min_count": 1, "max_share": 1.0}
FIELDS = [Field("text", longest=2, **ALL), Field("text", "chars", 3, 5, **ALL)]


def read_rows(path):
    with lzma.open(path, "rt", encoding="utf8") as file:
        return [line.rstrip("\n").split("\t") for line in file]


def features_of(terms, texts):
    """`[ids, values]` of the strongest terms of texts, `[texts, TERMS]`."""
    ids, values = terms({"text": tf.constant(list(texts))})
    short = [[0, 0], [0, max(TERMS - ids.shape[1], 0)]]
    values, places = tf.math.top_k(tf.pad(values, short), TERMS)
    ids = tf.gather(tf.pad(ids, short), places, batch_dims=1)
    return ids.numpy(), values.numpy()


def sparse_inputs():
    return [keras.Input([None], dtype="int64"), keras.Input([None])]


def make_encoder(num_features):
    """From the terms of a text to its vector."""
    ids, values = sparse_inputs()
    init = keras.initializers.RandomNormal(stddev=WIDTH**-0.5)
    options = {"use_bias": False, "kernel_initializer": init}
    embed = tfxclass.layers.SparseDense(num_features, WIDTH, **options)
    kept = keras.layers.Dropout(DROPOUT)(values)
    return keras.Model([ids, values], embed(ids, kept))


class Towers:
    """Answers texts with classes, known by `names` and `descriptions`."""

    def __init__(
        self, names, labels, descriptions, use_residual=False, **options
    ):
        self.names, self.labels = np.array(names), np.array(labels)
        self.terms = TextFeatures.from_texts({"text": names}, FIELDS)
        self.described = features_of(self.terms, descriptions)
        self.questions = features_of(self.terms, names)
        encoder = make_encoder(self.terms.num_features)
        named, described = sparse_inputs(), sparse_inputs()
        vectors = encoder(named) + 0.5 * encoder(described)
        self.head = tfxclass.layers.TwoTowerSoftmax(
            len(descriptions),
            tfxclass.layers.ClassTower(
                keras.Model([*named, *described], vectors),
                self.class_features(...),
                use_residual=use_residual,
            ),
            similarity=tfxclass.layers.Cosine(scale=8.0),
            **{"num_sampled": NUM_SAMPLED, **options},
        )
        inputs = sparse_inputs()
        self.model = keras.Model(inputs, self.head(encoder(inputs)))
        adam = tfxclass.optimizers.HeadAdam(embedding_rate=RATE)
        self.model.compile(adam, self.head.loss)
        # The same, from text: for `top_k` and exports.
        text = keras.Input([], dtype="string", name="text")
        terms = self.terms({"text": text})
        self.from_text = keras.Model(text, self.head(encoder(terms)))

    def class_features(self, kept):
        """Of the names that are `kept`, bool `[names]`, or `...` for all."""
        texts = [[] for _ in self.described[0]]
        for name, label in zip(self.names[kept], self.labels[kept]):
            texts[label].append(name)
        joined = [" ".join(each) for each in texts]
        return (*features_of(self.terms, joined), *self.described)

    def fit(self, epochs=EPOCHS, seed=0):
        random = np.random.default_rng(seed)
        classes = np.arange(self.head.num_classes)
        for _ in range(epochs):
            asked = random.random(len(self.names)) < 0.5
            self.head.set_class_features(classes, self.class_features(~asked))
            x = [array[asked] for array in self.questions]
            self.model.fit(x, self.labels[asked], BATCH, verbose=2)
        self.head.set_class_features(classes, self.class_features(...))


def main(occupations, titles, k=10):
    rows = read_rows(occupations)
    ids = {row[0]: number for number, row in enumerate(rows)}
    pairs = [(x, i) for i, row in enumerate(rows) for x in row[3].split(" | ")]
    towers = Towers(*zip(*pairs), [row[4] for row in rows])
    towers.fit()
    asked = [(x, ids[name]) for x, name in read_rows(titles) if name in ids]
    texts, labels = map(np.array, zip(*asked))
    best, _ = tfxclass.top_k(towers.from_text, k).predict(tf.constant(texts))
    found = best == labels[:, np.newaxis]
    hits = found[:, 0].mean(), found.any(axis=1).mean()
    print(f"hit@1 {hits[0]:.3f}   hit@{k} {hits[1]:.3f}")
    return hits


if __name__ == "__main__":
    main(*sys.argv[1:])
