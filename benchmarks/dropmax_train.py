"""A job of the DropMax table: a model, trained and judged."""

import keras
import numpy as np
import tensorflow as tf

from benchmarks import dropmax_methods
from benchmarks import measure
from benchmarks.dropmax_data import Recipe

POINTS, BINS = 12, 15
SAMPLES = 100  # masks of equation 17
CURVE_ROWS = 1_000
EVALUATED = 500  # rows of a batch


def make_model(method, setting, data, seed, steps, recipe=Recipe()):
    keras.utils.set_random_seed(seed)
    network = dropmax_methods.network_of(
        data.train[0], setting.l2, recipe.dropout
    )
    head = dropmax_methods.METHODS[method].make(
        data.num_classes, seed, setting.entropy_weight
    )
    model = keras.Sequential([*network, head])
    rate = recipe.rate
    if recipe.rate_falls:
        rate = keras.optimizers.schedules.PiecewiseConstantDecay(
            [steps // 3, 2 * steps // 3], [rate, rate / 10, rate / 100]
        )
    model.compile(keras.optimizers.Adam(rate), loss=head.loss)
    model.optimizer.build(model.trainable_variables)
    return model


def steps_on(model, x, y):
    """A function that trains on the rows of int64 `[steps, batch]`.

    One call of TensorFlow for all of them.
    """
    x, y = tf.constant(x), tf.constant(y)

    @tf.function
    def steps(order):
        for rows in order:
            model.train_step((tf.gather(x, rows), tf.gather(y, rows)))

    return steps


def answers_of(model, method):
    """`{equation: function of rows}`, which gives their probabilities."""
    head = model.layers[-1]
    encoder = keras.Model(model.inputs, model.layers[-2].output)

    def by(samples):
        @tf.function(reduce_retracing=True)
        def answer(x):
            before = getattr(head, "predict_samples", None)
            head.predict_samples = samples
            outputs = head.activate(head.logits(encoder(x, training=False)))
            head.predict_samples = before
            return outputs

        def in_batches(x):
            starts = range(0, len(x), EVALUATED)
            found = [answer(tf.constant(x[i : i + EVALUATED])) for i in starts]
            return np.concatenate(found)

        return in_batches

    if method.split()[0] in ("random", "adaptive", "posterior"):
        return {"18": by(None), "17": by(SAMPLES)}
    return {"18": by(None)}


def scores(probabilities, labels):
    """Error in percent, cross-entropy, and expected calibration error."""
    best = probabilities.argmax(axis=1)
    confidence = probabilities.max(axis=1)
    hits = best == labels
    of_labels = probabilities[np.arange(len(labels)), labels]
    bins = np.minimum((confidence * BINS).astype(int), BINS - 1)
    gaps = np.bincount(bins, confidence - hits, BINS)
    return {
        "error": 100 * float(np.mean(~hits)),
        "loss": float(-np.log(of_labels + 1e-20).mean()),
        "ece": float(np.abs(gaps).sum() / len(labels)),
    }


def train(method, setting, data, seed, steps, recipe=Recipe()):
    """`(result, model)`: scores of either equation and the curve; trained."""
    model = make_model(method, setting, data, seed, steps, recipe)
    answers = answers_of(model, method)
    take = steps_on(model, *data.train)
    per_epoch = max(1, steps // POINTS)
    random = np.random.default_rng(seed)
    curve, done, clock = [], 0, measure.Stopwatch()
    few = {
        name: [array[:: max(1, len(array) // CURVE_ROWS)] for array in part]
        for name, part in (("train", data.train), ("test", data.test))
    }
    while done < steps:
        order = _order(random, len(data.train[1]), per_epoch * recipe.batch)
        with clock:
            take(tf.constant(order.reshape(per_epoch, recipe.batch)))
        done += per_epoch
        losses = {
            name: scores(answers["18"](x), y)["loss"]
            for name, (x, y) in few.items()
        }
        curve.append({"step": done, **losses})
    result = {"cpu_s": clock.cpu, "curve": curve, "scores": {}}
    for part, (x, y) in (("validation", data.validation), ("test", data.test)):
        for name, answer in answers.items():
            result["scores"][f"{part} {name}"] = scores(answer(x), y)
    return result, model


def _order(random, count, wanted):
    """`wanted` rows, each as often as any other but by one."""
    passes = [random.permutation(count) for _ in range(-(-wanted // count))]
    return np.concatenate(passes)[:wanted]
