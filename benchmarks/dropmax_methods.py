"""Rows of the DropMax table: heads, networks, and how they are trained."""

from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf

from benchmarks import files
from benchmarks import measure
from tfxclass import layers
from tfxclass.core.forward import Step
from tfxclass.losses import dropmax

SHARES = (0.2, 0.4, 0.6)  # retained, or drawn for each row
BATCH = 50
POINTS, BINS = 12, 15
SAMPLES = 100  # masks of equation 17
CURVE_ROWS = 1_000
EVALUATED = 500  # rows of a batch


@keras.saving.register_keras_serializable("benchmarks")
class RowSampledSoftmax(layers.FullSoftmax):
    """Sampled softmax as the paper compares it: classes drawn for each row.

    Other classes than the label are drawn without replacement by Q, as many as
    a share of all. The label is always in, and logits are corrected by log Q.
    Q is uniform, or learned: the softmax of a layer on the same features.
    """

    def __init__(self, num_classes, share=0.4, learned=False, **kwargs):
        super().__init__(num_classes, **kwargs)
        self.share = share
        self.learned = learned
        self.random = keras.random.SeedGenerator(self.seed)
        self.proposal = keras.layers.Dense(num_classes) if learned else None

    def build(self, input_shape):
        super().build(input_shape)
        if self.learned:
            self.proposal.build(input_shape)

    def training_step(self, queries, targets):
        logits = self.all_logits(queries)
        if self.learned:
            scores = self.proposal(tf.stop_gradient(queries))
            log_q = tf.nn.log_softmax(scores)
            learning = _cross_entropy(log_q, targets)
            log_q = tf.stop_gradient(log_q)
        else:
            log_q = tf.zeros_like(logits) - tf.math.log(float(self.num_classes))
            learning = 0.0
        seed = tf.cast(self.random.next(), tf.int32)
        draws = dropmax.uniform(tf.shape(logits), seed)
        # The greatest sums with Gumbel noise are draws without replacement.
        ranks = log_q - tf.math.log(-tf.math.log(draws))
        target = dropmax.is_target(logits, targets.ids)
        ranks = tf.where(target, float("inf"), ranks)
        count = 1 + round(self.share * self.num_classes)
        best = tf.math.top_k(ranks, min(count, self.num_classes)).values
        corrected = tf.where(
            ranks >= best[:, -1:], logits - log_q, float("-inf")
        )
        return Step(_cross_entropy(corrected, targets) + learning)


def _cross_entropy(logits, targets):
    return tf.nn.sparse_softmax_cross_entropy_with_logits(
        targets.ids[:, 0], logits
    )


class Recipe(NamedTuple):
    rate: float = 1e-3  # Adam's first one
    rate_falls: bool = True  # to 1/10 after a third of the steps, then 1/100
    dropout: float = 0.0  # of the hidden layer


class DataSet(NamedTuple):
    """`(x, y)` for each part; y are int64 class ids."""

    train: tuple
    validation: tuple
    test: tuple
    num_classes: int


class Method(NamedTuple):
    head: type
    options: dict  # its arguments
    entropy_weights: tuple = (None,)  # to try, the head's own (None) first

    def make(self, num_classes, seed, entropy_weight=None):
        options = dict(self.options)
        if entropy_weight is not None:
            options["mode_options"] = {"entropy_weight": entropy_weight}
        return self.head(num_classes, use_bias=True, seed=seed, **options)


def _plain(head, **options):
    return Method(head, options)


def _dropmax(mode, *entropy_weights):
    return Method(layers.DropMax, {"mode": mode}, entropy_weights)


METHODS = {
    "base": _plain(layers.FullSoftmax),
    **{
        f"sampled {share:g}": _plain(RowSampledSoftmax, share=share)
        for share in SHARES
    },
    "sampled learned": _plain(RowSampledSoftmax, learned=True),
    "sparsemax": _plain(layers.Sparsemax),
    "attention": _dropmax("attention", None, 0.1, 0.01, 0.001),
    "attention, cross-entropy alone": _plain(
        layers.DropMax,
        mode="attention",
        mode_options={"kl_weight": 0.0, "entropy_weight": 0.0},
    ),
    **{
        f"random {p:g}": _plain(
            layers.DropMax,
            mode="random",
            mode_options={"retain_probability": p},
        )
        for p in SHARES
    },
    "adaptive": _dropmax("adaptive", None, 0.1, 0.01, 0.001),
    "posterior": _dropmax("posterior", None, 1.0, 5.0),
}


def network_of(x, l2, dropout):
    """The layers below the head, for pictures `x`: LeNet."""
    decay = keras.regularizers.L2(l2 / 2)
    dense = {"activation": "relu", "kernel_regularizer": decay}
    return [
        keras.Input(x.shape[1:]),
        keras.layers.Conv2D(20, 5, **dense),
        keras.layers.MaxPooling2D(),
        keras.layers.Conv2D(50, 5, **dense),
        keras.layers.MaxPooling2D(),
        keras.layers.Flatten(),
        keras.layers.Dense(500, **dense),
        keras.layers.Dropout(dropout, seed=0),
    ]


def make_model(method, setting, data, seed, steps, recipe=Recipe()):
    keras.utils.set_random_seed(seed)
    network = network_of(data.train[0], setting.l2, recipe.dropout)
    head = METHODS[method].make(data.num_classes, seed, setting.entropy_weight)
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
        order = files.shuffled(random, len(data.train[1]), per_epoch * BATCH)
        with clock:
            take(tf.constant(order.reshape(per_epoch, BATCH)))
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
