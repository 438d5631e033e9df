"""A job of the DropMax table: a model, trained and judged."""

import time

import keras
import numpy as np
import tensorflow as tf

from benchmarks import dropmax_methods
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


class Judge:
    """Answers of a model, traced once.

    Args:
        model: its last layer is the head.
        method: str, in the table.
    """

    def __init__(self, model, method):
        head = model.layers[-1]
        encoder = keras.Model(model.inputs, model.layers[-2].output)
        self._features = tf.function(
            lambda x: encoder(x, training=False), reduce_retracing=True
        )
        self._answers = {"18": self._answer(head, None)}
        if method.split()[0] in ("random", "adaptive", "posterior"):
            self._answers["17"] = self._answer(head, SAMPLES)

    def _answer(self, head, samples):
        @tf.function(reduce_retracing=True)
        def answer(features):
            before = getattr(head, "predict_samples", None)
            head.predict_samples = samples
            outputs = head.activate(head.logits(features))
            head.predict_samples = before
            return outputs

        return answer

    def features(self, x):
        """What the head reads, for all rows."""
        return _in_batches(self._features, x)

    def scores(self, part, equations=("18", "17")):
        """Scores of `(x, y)` by each equation that the method has."""
        features = self.features(part[0])
        return {
            name: scores(_in_batches(answer, features), part[1])
            for name, answer in self._answers.items()
            if name in equations
        }


def _in_batches(function, rows):
    starts = range(0, len(rows), EVALUATED)
    found = [function(tf.constant(rows[i : i + EVALUATED])) for i in starts]
    return np.concatenate(found)


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
    judge = Judge(model, method)
    take = steps_on(model, *data.train)
    per_epoch = max(1, steps // POINTS)
    random = np.random.default_rng(seed)
    curve, done, cpu = [], 0, 0.0
    few = {
        name: [array[:: max(1, len(array) // CURVE_ROWS)] for array in part]
        for name, part in (("train", data.train), ("test", data.test))
    }
    while done < steps:
        order = _order(random, len(data.train[1]), per_epoch * recipe.batch)
        begin = time.process_time()
        take(tf.constant(order.reshape(per_epoch, recipe.batch)))
        cpu += time.process_time() - begin
        done += per_epoch
        losses = {
            name: judge.scores(rows, ["18"])["18"]["loss"]
            for name, rows in few.items()
        }
        curve.append({"step": done, **losses})
    result = {"cpu_s": cpu, "curve": curve, "scores": {}}
    for part in ("validation", "test"):
        for name, found in judge.scores(getattr(data, part)).items():
            result["scores"][f"{part} {name}"] = found
    return result, model


def _order(random, count, wanted):
    """`wanted` rows, each as often as any other but by one."""
    passes = [random.permutation(count) for _ in range(-(-wanted // count))]
    return np.concatenate(passes)[:wanted]
