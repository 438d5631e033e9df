"""Encoders, heads and optimizers of the cells."""

import keras
import numpy as np
import tensorflow as tf

import tfxclass
from benchmarks import files

DIM = 64


def _small():
    return keras.initializers.RandomNormal(stddev=DIM**-0.5, seed=0)


def _dense(seed=0):
    return keras.layers.Dense(
        DIM,
        activation="relu",
        kernel_initializer=keras.initializers.GlorotUniform(seed=seed),
    )


def _bag(task, inputs, activation=None):
    return tfxclass.layers.SparseDense(
        task.num_ids,
        DIM,
        activation=activation,
        use_bias=activation is not None,
        kernel_initializer=_small(),
    )(*inputs)


def _embedding(task):
    return keras.layers.Embedding(
        task.num_ids, DIM, embeddings_initializer=_small()
    )


def _concatenated(task, inputs):
    return _dense()(keras.layers.Flatten()(_embedding(task)(inputs[0])))


def _gru(task, inputs):
    return keras.layers.GRU(DIM, seed=0)(_embedding(task)(inputs[0]))


def _transformer(task, inputs):
    x = _embedding(task)(inputs[0])
    attended = keras.layers.MultiHeadAttention(4, DIM // 4, seed=0)(x, x)
    x = keras.layers.LayerNormalization()(x + attended)
    x = keras.layers.LayerNormalization()(x + _dense(seed=1)(x))
    return x[:, -1]


#: Features of a task and its inputs; "tied" is `encode`'s.
ENCODERS = {
    "none": lambda task, inputs: inputs[0],
    "layer": lambda task, inputs: _dense()(inputs[0]),
    "layers": lambda task, inputs: _dense(seed=1)(_dense()(inputs[0])),
    "bag": _bag,
    "bag_relu": lambda task, inputs: _bag(task, inputs, "relu"),
    "bag_layer": lambda task, inputs: _dense()(_bag(task, inputs)),
    "concatenated": _concatenated,
    "gru": _gru,
    "transformer": _transformer,
}


def encode(name, task):
    """Inputs, features, and the embedding that the head shares, or None."""
    inputs = [
        keras.Input(part.shape[1:], dtype=str(part.dtype))
        for part in task.train[0]
    ]
    if name != "tied":
        return inputs, ENCODERS[name](task, inputs), None
    embedding = _embedding(task)
    rows = embedding(inputs[0]) * inputs[1][..., tf.newaxis]
    return inputs, keras.ops.sum(rows, axis=1), embedding


_ADAM = tfxclass.optimizers.LazyAdam
_ADAGRAD = tfxclass.optimizers.LazyAdagrad
#: Rules for class vectors: a class, its options, and the least of five rates.
OPTIMIZERS = {
    "Adam": (_ADAM, {}, 1e-3),
    "Adam, a moment a row": (_ADAM, {"second_moment": "row"}, 1e-3),
    "Adam, a moment a matrix": (_ADAM, {"second_moment": "matrix"}, 1e-2),
    "Adam, epsilon 1e-3": (_ADAM, {"epsilon": 1e-3}, 3e-3),
    "Adagrad": (_ADAGRAD, {}, 3e-2),
    "Adagrad, a sum a row": (_ADAGRAD, {"second_moment": "row"}, 3e-2),
    "SGD, momentum": (tfxclass.optimizers.LazySGD, {"momentum": 0.9}, 0.3),
}


def rates_of(name):
    """Five rates, each about three times the one before."""
    least = OPTIMIZERS[name][2]
    steps = (1.0, 10**0.5, 10.0, 10**1.5, 100.0)
    return [float(f"{least * step:.2g}") for step in steps]


def make_head(cell, task, sampler, embedding):
    """The head of a cell; `sampler` is as in `Trainer`."""
    options = {"seed": 0, "tied_to": embedding}
    if cell.scale is not None:
        options["similarity"] = tfxclass.layers.Cosine(scale=cell.scale)
    if embedding is None:
        first = keras.initializers.GlorotUniform(seed=5)
        options["kernel_initializer"] = first
    if sampler == "full":
        return tfxclass.layers.FullSoftmax(task.num_classes, **options)
    labels = cell.batch * min(task.train[1].shape[1], 6)
    negatives = round(cell.percent / 100 * task.num_classes)
    size = min(labels + max(negatives, 10), task.num_classes)
    kind = tfxclass.layers.SampledSoftmax
    if sampler == "forest":
        kind = tfxclass.layers.SelectiveSoftmax
    elif sampler == "lsh":
        kind = tfxclass.layers.LSHSoftmax
    else:
        options["sampler"] = sampler
    return kind(task.num_classes, size, **options)


class Trainer:
    """A model of a cell, which is trained several times from one start.

    `optimizer` is in `OPTIMIZERS`, of class vectors with Adam for the encoder,
    or "HeadAdam" for all. `sampler` is of `SampledSoftmax`, or "full",
    "forest", "lsh".
    """

    def __init__(self, cell, task, optimizer, sampler="uniform"):
        keras.utils.set_random_seed(0)
        self.cell, self.task = cell, task
        inputs, features, embedding = encode(cell.encoder, task)
        self.encoder = keras.Model(inputs, features)
        self.head = make_head(cell, task, sampler, embedding)
        self.model = keras.Model(inputs, self.head(features))
        self._make_optimizer(optimizer, embedding)
        # As tensors: arrays would be copied into each graph.
        self._data = tf.nest.map_structure(tf.constant, task.train)
        rows = tf.TensorSpec([None, cell.batch], tf.int64)
        rates = tf.TensorSpec([None], tf.float32)
        rate = tf.TensorSpec([], tf.float32)
        self._train = tf.function(self._steps, [rows, rates, rate])
        self._hits = tf.function(self._ranks, reduce_retracing=True)
        self._start = [v.numpy() for v in self._variables()]

    def _make_optimizer(self, name, embedding):
        kind, options, rate = OPTIMIZERS.get(
            name, (tfxclass.optimizers.HeadAdam, {}, 1e-3)
        )
        self.of_head = self.optimizer = kind(rate, **options)
        self.of_encoder = None
        of_head = [*self.head.trainable_variables]
        if embedding is not None:
            of_head.append(embedding.embeddings)
        ids = {id(v) for v in of_head}
        others = [v for v in self.model.trainable_variables if id(v) not in ids]
        if name in OPTIMIZERS and others:
            self.of_encoder = tfxclass.optimizers.LazyAdam(1e-3)
            self.optimizer = tfxclass.optimizers.MultiOptimizer(
                [(self.of_encoder, others), (self.of_head, of_head)]
            )
        self.optimizer.build(self.model.trainable_variables)

    def _variables(self):
        found = [*self.model.variables, *self.optimizer.variables]
        return [v for v in found if "key" not in str(v.dtype)]

    def _steps(self, batches, rates, encoder_rate):
        """Steps on the rows `batches`; the last loss."""
        inputs, labels = self._data
        loss = 0.0
        for i in tf.range(tf.shape(batches)[0]):
            x = [tf.gather(part, batches[i]) for part in inputs]
            self.of_head.learning_rate.assign(rates[i])
            if self.of_encoder is not None:
                rate = encoder_rate * rates[i] / rates[0]
                self.of_encoder.learning_rate.assign(rate)
            with tf.GradientTape() as tape:
                losses = self.head.compute_loss(
                    self.encoder(x, training=True),
                    tf.gather(labels, batches[i]),
                    training=True,
                )
                loss = tf.reduce_mean(losses)
            variables = self.model.trainable_variables
            self.optimizer.apply(tape.gradient(loss, variables), variables)
        return loss

    def train(self, rate, encoder_rate, batches, seed=0):
        """Trains from the start; the last loss, float.

        Another `seed` permutes the first values of each weight, which are drawn
        independently.
        """
        random = np.random.default_rng(seed)
        for variable, value in zip(self._variables(), self._start):
            if seed and value.ndim == 2 and value.dtype == np.float32:
                value = random.permutation(value)
            variable.assign(value)
        used = np.arange(len(batches)) / self.cell.steps
        factors = (1 + np.cos(np.pi * used)) / 2 if self.cell.falls else used**0
        rates = tf.constant(factors * rate, tf.float32)
        encoder_rate = tf.constant(encoder_rate, tf.float32)
        return float(self._train(tf.constant(batches), rates, encoder_rate))

    def _ranks(self, x, y):
        ids, _ = self.head.top_k(self.encoder(x, training=False), self.task.k)
        found = ids[:, :, tf.newaxis] == y[:, tf.newaxis, :]
        return tf.reduce_any(found, axis=(1, 2))

    def hits(self, rows):
        """Whether each row has a label among its best classes, bool `[n]`."""
        inputs, labels = rows
        parts = [slice(i, i + 500) for i in range(0, len(labels), 500)]
        return np.concatenate(
            [
                self._hits([tf.constant(x[at]) for x in inputs], labels[at])
                for at in parts
            ]
        )


def batches_of(cell, task, seed):
    """Rows of each step, int64 `[steps, batch]`, the same for all methods."""
    random = np.random.default_rng(seed)
    wanted = cell.steps * cell.batch
    order = files.shuffled(random, len(task.train[1]), wanted)
    return order.reshape(cell.steps, cell.batch)
