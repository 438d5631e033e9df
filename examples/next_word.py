"""The next word of a text: a recurrent model, from text files to a server.

    python -m examples.next_word --data FOLDER

FOLDER has `train.txt`, `valid.txt` and `test.txt`: a sentence a line, words
between spaces. Without it, a small text is generated. The class vectors are the
embedding of the words (`tied_to`). Most epochs sample words, and the last ones
have all of them (`ExactLast`). Words that a text has used come again, so a
cache of them helps: the neural cache of Grave et al., Improving Neural Language
Models with a Continuous Cache (ICLR 2017). `docs/language_models.md` has the
choices.
"""

import argparse
import collections
import pathlib

import keras
import numpy as np
import tensorflow as tf

import tfxclass

UNITS, LAYERS, LENGTH, BATCH, DROPOUT, NUM_SAMPLED = 256, 2, 32, 32, 0.5, 2048
# The rate rises to RATE in a twentieth of the steps, and then falls to 0.
RATE, EXACT, K = 2e-3, 3, 20
# Words that the cache holds; how much it prefers similar places, and its
# weight. Validation may choose to do without it.
CACHE, SHARPNESS = 500, tuple(2.5 * 2**i for i in range(8))
WEIGHTS = 0.0, 0.05, 0.1, 0.2
PARTS = ("train", "valid", "test")
END, UNKNOWN = "<eos>", "<unk>"


def read(folder, least=BATCH * LENGTH + 1):
    """`(words, parts)`: words by falling frequency, and ids of each part.

    A word that training does not have is `<unk>`, or -1 without such a word.
    Each part must have `least` words.
    """
    if folder is None:
        texts = generated()
    else:
        paths = [pathlib.Path(folder, f"{part}.txt") for part in PARTS]
        texts = [path.read_text("utf8") for path in paths]
    texts = [text.replace("\n", f" {END} ").split() for text in texts]
    for part, text in zip(PARTS, texts):
        if len(text) < least:
            raise ValueError(
                f"{part}.txt must have at least {least:,} words, a step and "
                f"one more. Received: {len(text):,}."
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
    in its stream ended. Words that do not fill a step are left out.
    """
    steps = (len(ids) - 1) // (batch * length)
    count = steps * batch * length

    def rows(part):
        part = part.reshape(batch, steps, length)
        return part.swapaxes(0, 1).reshape(-1, length)

    return np.maximum(rows(ids[:count]), 0), rows(ids[1 : count + 1])


# ## Model


def make_model(num_words, units=UNITS, dropout=DROPOUT, batch=BATCH):
    """The model reads on where the last step of its stream ended.

    With a batch of None it reads texts of any length, each from its beginning.
    """
    shape, stateful = [batch, batch and LENGTH], batch is not None
    ids = keras.Input(batch_shape=shape, dtype="int64", name="ids")
    small = keras.initializers.RandomUniform(-0.05, 0.05)
    words = keras.layers.Embedding(num_words, units, small)
    x = words(ids)
    for _ in range(LAYERS):
        x = keras.layers.Dropout(dropout)(x)
        x = keras.layers.LSTM(units, return_sequences=True, stateful=stateful)(
            x
        )
    x = keras.layers.Dropout(dropout)(x)
    drawn = min(NUM_SAMPLED, num_words)
    head = tfxclass.layers.SampledSoftmax(
        num_words, drawn, "log_uniform", tied_to=words
    )
    return keras.Model(ids, head(x))


def in_float32(model, batch=None):
    """The same model in float32. A batch of None is for a server."""
    earlier = keras.config.dtype_policy()
    keras.config.set_dtype_policy("float32")
    same = make_model(*model.layers[1].embeddings.shape, batch=batch)
    keras.config.set_dtype_policy(earlier)
    pairs = zip(same.trainable_variables, model.trainable_variables)
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


def train(model, parts, epochs, exact=EXACT, verbose="auto"):
    """Compiles the model and trains it; the last `exact` epochs are exact."""
    batch, length = model.input_shape
    x, y = steps_of(parts["train"], batch, length)
    steps = epochs * len(x) // batch
    rising = steps // 20
    rate = keras.optimizers.schedules.CosineDecay(
        RATE / 100, steps - rising, warmup_target=RATE, warmup_steps=rising
    )
    callbacks = [Forget()]
    if exact:
        callbacks.append(tfxclass.callbacks.ExactLast(epochs=exact))
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
    """`(features, p, y)`: features, the probability of y, and y, by stream.

    They are `[batch, words of a stream, units]` and twice `[batch, words]`.
    """
    batch, length = model.input_shape
    x, y = steps_of(ids, batch, length)
    head = model.layers[-1]
    both = tf.function(keras.Model(model.input, [head.input, head.output]))
    features, probabilities = [], []
    forget(model)
    for first in range(0, len(x), batch):
        rows = slice(first, first + batch)
        found, p = both(tf.constant(x[rows]), training=False)
        own = np.maximum(y[rows], 0)[..., None]
        features.append(found.numpy())
        probabilities.append(np.take_along_axis(p.numpy(), own, 2)[..., 0])
    y = y.reshape(-1, batch, length).swapaxes(0, 1).reshape(batch, -1)
    return np.concatenate(features, 1), np.concatenate(probabilities, 1), y


def cache_of(features, y, sharpness):
    """What the cache gives to each y, `[batch, words]`; -1 where it is empty.

    The CACHE latest words are answers, weighed by `exp(sharpness * h . h')` of
    the features before them, h', and of those before y, h.
    """
    found = np.full(y.shape, -1.0)
    for stream, h in enumerate(features):
        for first in range(1, len(h), CACHE):
            places = np.arange(first, min(first + CACHE, len(h)))
            held = np.arange(max(first - CACHE, 0), places[-1])
            ago = places[:, None] - held
            logits = sharpness * (h[places] @ h[held].T)
            logits[(ago < 1) | (ago > CACHE)] = -np.inf
            weights = np.exp(logits - logits.max(axis=1, keepdims=True))
            same = y[stream, places, None] == y[stream, held]
            found[stream, places] = (weights * same).sum(1) / weights.sum(1)
    return found


def perplexity(p, y, cached=None, weight=0.0):
    """exp of the mean of -log p over the words that have a class."""
    if cached is not None:
        mixed = (1 - weight) * p + weight * cached
        p = np.where(cached < 0, p, mixed)
    return float(np.exp(-np.log(p[y >= 0]).mean()))


def evaluate(model, parts):
    """Perplexities of validation and test, alone and with the best cache.

    A part is one stream, and its words are read in their order.
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
    figures["test"] = perplexity(p, y)
    figures["test, cache"] = perplexity(p, y, cached, weight)
    return figures


def main(
    data=None, epochs=20, units=UNITS, batch=BATCH, policy="float32", path=None
):
    """Returns the perplexities, a dict."""
    if path:
        pathlib.Path(path).mkdir(parents=True, exist_ok=True)
    if epochs < 1:
        raise ValueError(f"epochs must be at least 1. Received: {epochs}.")
    keras.utils.set_random_seed(0)
    keras.config.set_dtype_policy(policy)
    words, parts = read(data, batch * LENGTH + 1)
    model = make_model(len(words), units, batch=batch)
    train(model, parts, epochs, min(EXACT, epochs - 1))
    figures = evaluate(model, parts)
    print({name: round(value, 3) for name, value in figures.items()})
    if path:
        served = in_float32(model)
        tfxclass.export.saved_model(served, path, top_k=K, labels=words)
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
    parser.add_argument("--path", help="folder of the model's versions")
    main(**vars(parser.parse_args()))
