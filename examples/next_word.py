"""The next word of a text: a recurrent model, from text files to a server.

    python -m examples.next_word --data FOLDER

FOLDER has `train.txt`, `valid.txt` and `test.txt`: a sentence a line, words
between spaces. Without it, a small text is generated. The class vectors are the
embedding of the words (`tied_to`). Most epochs sample words, and the last ones
train on all words (`ExactLast`). Words that a text has used come again, so a
cache of them helps: the neural cache of Grave et al., Improving Neural Language
Models with a Continuous Cache (ICLR 2017). The server's model answers without
it. `docs/language_models.md` has the choices.
"""

import argparse
import collections
import pathlib

import keras
import numpy as np
import tensorflow as tf

import tfxclass

UNITS, LAYERS, LENGTH, BATCH, DROPOUT = 256, 2, 32, 32, 0.5
# The rate rises to RATE in a twentieth of the steps, and then falls to 0.
RATE, EXACT, K = 2e-3, 3, 20
# The cache holds the CACHE latest words. SHARPNESS is theta in the paper, and
# WEIGHTS is lambda. Validation chooses both; a weight of 0 is no cache.
CACHE, SHARPNESS = 500, tuple(2.5 * 2**i for i in range(8))
WEIGHTS = 0.0, 0.05, 0.1, 0.2, 0.3, 0.4
PARTS = ("train", "valid", "test")
END, UNKNOWN = "<eos>", "<unk>"


def read(folder, min_words=BATCH * LENGTH + 1):
    """`(words, parts)`: words by falling frequency, and ids of each part.

    A word that training does not have is `<unk>`, or -1 without such a word.
    Each part must have `min_words` words.
    """
    if folder is None:
        texts = generated()
    else:
        paths = [pathlib.Path(folder, f"{part}.txt") for part in PARTS]
        texts = [path.read_text("utf-8-sig") for path in paths]
    texts = [text.replace("\n", f" {END} ").split() for text in texts]
    for part, text in zip(PARTS, texts):
        if len(text) < min_words:
            raise ValueError(
                f"{part}.txt must have at least {min_words:,} words, a step "
                f"and one more. Received: {len(text):,}. Fix: a smaller batch, "
                "or more text."
            )
    counts = collections.Counter(texts[0])
    words = [word for word, _ in counts.most_common()]
    ids = {word: i for i, word in enumerate(words)}
    other = ids.get(UNKNOWN, -1)
    parts = [np.array([ids.get(word, other) for word in t]) for t in texts]
    return words, dict(zip(PARTS, parts))


def generated():
    """Texts of paragraphs, each with a name of its own."""
    random, texts = np.random.default_rng(0), []
    for lines in (8_000, 1_000, 1_000):
        names = random.permutation(np.arange(lines // 10) % 200).repeat(10)
        things = random.integers(0, 50, (lines, 2))
        texts.append(
            "\n".join(
                f"name{name} has thing{a} and thing{b}"
                for name, (a, b) in zip(names, things)
            )
        )
    return texts


def steps_of(ids, batch, length):
    """`(x, y)`, int64 `[steps * batch, length]`.

    The text is cut into `batch` streams. A row goes on where the row before it
    in its stream ended. Words that do not fill a step are left out. A word of
    -1 is read as 0, the most frequent one.
    """
    steps = (len(ids) - 1) // (batch * length)
    count = steps * batch * length

    def rows(part):
        part = part.reshape(batch, steps, length)
        return part.swapaxes(0, 1).reshape(-1, length)

    return np.maximum(rows(ids[:count]), 0), rows(ids[1 : count + 1])


# ## Model


def make_model(num_words, units=UNITS, batch=BATCH, policy="float32"):
    """The model reads on where the last step of its stream ended.

    With a batch of None it reads texts of any length, each from its beginning.
    `policy` is Keras' for the computation; variables are float32.
    """
    shape, stateful = [batch, batch and LENGTH], batch is not None
    ids = keras.Input(batch_shape=shape, dtype="int64", name="ids")
    small = keras.initializers.RandomUniform(-0.05, 0.05)
    words = keras.layers.Embedding(num_words, units, small, dtype=policy)
    x = words(ids)
    options = {"return_sequences": True, "stateful": stateful, "dtype": policy}
    for _ in range(LAYERS):
        x = keras.layers.Dropout(DROPOUT, dtype=policy)(x)
        x = keras.layers.LSTM(units, **options)(x)
    x = keras.layers.Dropout(DROPOUT, dtype=policy)(x)
    head = tfxclass.layers.SampledSoftmax(
        num_words, sampler="log_uniform", tied_to=words, dtype=policy
    )
    return keras.Model(ids, head(x))


def in_float32(model, batch=None):
    """A float32 model with the same weights. A batch of None is a server's."""
    same = make_model(*model.layers[1].embeddings.shape, batch)
    pairs = zip(
        same.trainable_variables, model.trainable_variables, strict=True
    )
    for variable, trained in pairs:
        variable.assign(trained)
    return same


class Forget(keras.callbacks.Callback):
    """A text begins without what was read before."""

    def on_epoch_begin(self, epoch, logs=None):
        forget(self.model)

    def on_test_begin(self, logs=None):
        forget(self.model)


def forget(model):
    for layer in model.layers:
        if isinstance(layer, keras.layers.LSTM):
            layer.reset_state()


def train(model, parts, epochs, exact=EXACT, kept=None, verbose="auto"):
    """Compiles the model and trains it; the last `exact` epochs are exact.

    `kept` is a file, *.weights.h5, which has the weights after each epoch.
    """
    batch, length = model.input_shape
    x, y = steps_of(parts["train"], batch, length)
    steps = epochs * len(x) // batch
    warmup_steps = steps // 20
    rate = keras.optimizers.schedules.CosineDecay(
        RATE / 100,
        steps - warmup_steps,
        warmup_target=RATE,
        warmup_steps=warmup_steps,
    )
    callbacks = [Forget()]
    if exact:
        callbacks.append(tfxclass.callbacks.ExactLast(epochs=exact))
    if kept:
        callbacks.append(
            keras.callbacks.ModelCheckpoint(kept, save_weights_only=True)
        )
    optimizer = tfxclass.optimizers.HeadAdam(rate, global_clipnorm=1.0)
    model.compile(optimizer, loss=model.layers[-1].loss)
    return model.fit(
        *(x, y, batch, epochs),
        verbose=verbose,
        callbacks=callbacks,
        validation_data=steps_of(parts["valid"], batch, length),
        validation_batch_size=batch,
        shuffle=False,
    )


# ## Evaluation and export


def answers_of(model, ids):
    """`(features, p, y)`: features, the probability of y, and y.

    They are `[words, units]` and twice `[words]`. The model has a batch of 1,
    so the text is one stream. A last step is filled with words of -1.
    """
    _, length = model.input_shape
    filled = np.pad(ids, (0, -(len(ids) - 1) % length), constant_values=-1)
    x, y = steps_of(filled, 1, length)
    head = model.layers[-1]
    both = tf.function(keras.Model(model.input, [head.input, head.output]))
    features, probabilities = [], []
    forget(model)
    for row, labels in zip(x, y):
        found, p = both(tf.constant(row[None]), training=False)
        features.append(found[0].numpy())
        probabilities.append(p[0].numpy()[range(length), np.maximum(labels, 0)])
    return np.concatenate(features), np.concatenate(probabilities), y.ravel()


def cache_of(features, y, sharpness):
    """The cache's probability of each y, `[words]`; -1 where it is empty.

    A word in the cache weighs `exp(sharpness * h . h')`: h' are the features
    that predicted it, and h those that predict y.
    """
    found = np.full(len(y), -1.0)
    for first in range(1, len(y), CACHE):
        positions = np.arange(first, min(first + CACHE, len(y)))
        held = np.arange(max(first - CACHE, 0), positions[-1])
        ago = positions[:, None] - held
        logits = sharpness * (features[positions] @ features[held].T)
        logits[(ago < 1) | (ago > CACHE)] = -np.inf
        weights = np.exp(logits - logits.max(axis=1, keepdims=True))
        same = y[positions, None] == y[held]
        found[positions] = (weights * same).sum(1) / weights.sum(1)
    return found


def perplexity(p, y, cached=None, weight=0.0):
    """exp of the mean of -log p over the words that have a class."""
    if cached is not None:
        mixed = (1 - weight) * p + weight * cached
        p = np.where(cached < 0, p, mixed)
    return float(np.exp(-np.log(p[y >= 0]).mean()))


def evaluate(model, parts):
    """Perplexities of validation and test, alone and with the best cache.

    Words that have no class are left out. "unknown" is their share of
    the test.
    """
    model = in_float32(model, batch=1)
    features, p, y = answers_of(model, parts["valid"])
    found = {}
    for sharpness in SHARPNESS:
        cached = cache_of(features, y, sharpness)
        for weight in WEIGHTS:
            found[sharpness, weight] = perplexity(p, y, cached, weight)
    sharpness, weight = best = min(found, key=found.get)
    figures = {"sharpness": sharpness, "weight": weight}
    figures |= {"valid": perplexity(p, y), "valid, cache": found[best]}
    features, p, y = answers_of(model, parts["test"])
    cached = cache_of(features, y, sharpness)
    figures["unknown"] = float((parts["test"] < 0).mean())
    figures["test"] = perplexity(p, y)
    figures["test, cache"] = perplexity(p, y, cached, weight)
    return figures


def main(
    data=None, epochs=20, units=UNITS, batch=BATCH, policy="float32", path=None
):
    """Returns the perplexities, a dict."""
    if min(epochs, units, batch) < 1:
        raise ValueError(
            "epochs, units and batch must be at least 1. Received: "
            f"{epochs}, {units} and {batch}."
        )
    keras.utils.set_random_seed(0)
    words, parts = read(data, batch * LENGTH + 1)
    model = make_model(len(words), units, batch, policy)
    kept = None
    if path:
        folder = pathlib.Path(path)
        folder.mkdir(parents=True, exist_ok=True)
        kept = folder / "trained.weights.h5"
        # A folder that cannot be written is refused now.
        model.save_weights(kept)
    train(model, parts, epochs, min(EXACT, epochs - 1), kept)
    if path:
        served, top_k = in_float32(model), min(K, len(words))
        tfxclass.export.saved_model(served, path, top_k=top_k, labels=words)
    figures = evaluate(model, parts)
    print({name: round(value, 3) for name, value in figures.items()})
    return figures


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--data",
        help="folder of train.txt, valid.txt and test.txt: a sentence a line "
        "(default: a small text is generated)",
    )
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument(
        "--units",
        type=int,
        default=UNITS,
        help=f"width of the model (default: {UNITS}; 512 is better, slower)",
    )
    parser.add_argument("--batch", type=int, default=BATCH)
    parser.add_argument(
        "--policy",
        default="float32",
        help="mixed_bfloat16 is faster where the processor has it",
    )
    parser.add_argument(
        "--path",
        help="folder of the model's versions and of the trained weights",
    )
    main(**vars(parser.parse_args()))
