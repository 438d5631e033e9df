"""Encoders, heads and optimizers of the cells."""

import keras
import numpy as np
import tensorflow as tf

import tfxclass

DIM = 64


def _small(seed):
    return keras.initializers.RandomNormal(stddev=DIM**-0.5, seed=seed)


def _dense(seed):
    return keras.layers.Dense(
        DIM,
        activation="relu",
        kernel_initializer=keras.initializers.GlorotUniform(seed=seed),
    )


def _bag(task, inputs, seed, activation=None):
    return tfxclass.layers.SparseDense(
        task.num_ids,
        DIM,
        activation=activation,
        use_bias=activation is not None,
        kernel_initializer=_small(seed),
    )(*inputs)


def _embedding(task, seed):
    return keras.layers.Embedding(
        task.num_ids, DIM, embeddings_initializer=_small(seed)
    )


def _transformer(task, inputs, seed):
    x = _embedding(task, seed)(inputs[0])
    attended = keras.layers.MultiHeadAttention(4, DIM // 4, seed=seed)(x, x)
    x = keras.layers.LayerNormalization()(x + attended)
    x = keras.layers.LayerNormalization()(x + _dense(seed + 1)(x))
    return x[:, -1]


#: Features of a task, its inputs and a seed; "tied" is `encode`'s.
ENCODERS = {
    "none": lambda task, inputs, seed: inputs,
    "layer": lambda task, inputs, seed: _dense(seed)(inputs),
    "layers": lambda task, inputs, seed: _dense(seed + 1)(_dense(seed)(inputs)),
    "bag": _bag,
    "bag_relu": lambda *of: _bag(*of, "relu"),
    "bag_layer": lambda *of: _dense(of[2])(_bag(*of)),
    "concatenated": lambda task, inputs, seed: _dense(seed)(
        keras.layers.Flatten()(_embedding(task, seed)(inputs[0]))
    ),
    "gru": lambda task, inputs, seed: keras.layers.GRU(DIM, seed=seed)(
        _embedding(task, seed)(inputs[0])
    ),
    "transformer": _transformer,
}


def encode(name, task, seed):
    """Inputs, features, and the embedding that the head shares, or None."""
    if not task.num_ids:
        width = task.train[0].shape[1]
        inputs = keras.Input((width,), name="features")
    else:
        length = task.train[0][0].shape[1]
        inputs = (
            keras.Input((length,), dtype="int32", name="ids"),
            keras.Input((length,), name="weights"),
        )
    if name != "tied":
        return inputs, ENCODERS[name](task, inputs, seed), None
    embedding = _embedding(task, seed)
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


class Trainer:
    """A model of a cell, which is trained several times from one start.

    Args:
        cell: `Cell`.
        task: `Task`.
        optimizer: str in `OPTIMIZERS` for the class vectors, with Adam for the
            encoder; or "default": `HeadAdam` for all.
        sampler: str, of `SampledSoftmax`; or "full", "forest", "lsh".
        seed: int.
    """

    def __init__(self, cell, task, optimizer, sampler="uniform", seed=0):
        keras.utils.set_random_seed(seed)
        self.cell, self.task, self.seed = cell, task, seed
        inputs, features, embedding = encode(cell.encoder, task, seed)
        self.encoder = keras.Model(inputs, features)
        self.head = self._make_head(sampler, embedding)
        self.model = keras.Model(inputs, self.head(features))
        of_head = list(self.head.trainable_variables)
        if embedding is not None:
            of_head.append(embedding.embeddings)
        ids = {id(v) for v in of_head}
        others = [v for v in self.model.trainable_variables if id(v) not in ids]
        self.of_head = self._class_optimizer(optimizer)
        self.of_encoder = None
        self.optimizer = self.of_head
        if optimizer in OPTIMIZERS and others:
            self.of_encoder = tfxclass.optimizers.LazyAdam(1e-3)
            self.optimizer = tfxclass.optimizers.MultiOptimizer(
                [(self.of_encoder, others), (self.of_head, of_head)]
            )
        self.optimizer.build(self.model.trainable_variables)
        inputs, labels = task.train
        is_pair = isinstance(inputs, tuple)
        inputs = tuple(map(tf.constant, inputs if is_pair else (inputs,)))
        self._data = inputs if is_pair else inputs[0], tf.constant(labels)
        rows = tf.TensorSpec([None, cell.batch], tf.int64)
        rates = tf.TensorSpec([None], tf.float32)
        rate = tf.TensorSpec([], tf.float32)
        self._train = tf.function(self._steps, [rows, rates, rate])
        self._hits = tf.function(self._ranks, reduce_retracing=True)
        self._start = [v.numpy() for v in self._variables()]

    def _variables(self):
        found = [*self.model.variables, *self.optimizer.variables]
        return [v for v in found if "key" not in str(v.dtype)]

    @staticmethod
    def _class_optimizer(name):
        if name == "default":
            return tfxclass.optimizers.HeadAdam()
        kind, options, rate = OPTIMIZERS[name]
        return kind(rate, **options)

    def _make_head(self, sampler, embedding):
        cell, task = self.cell, self.task
        options = {"seed": self.seed, "tied_to": embedding}
        if cell.scale is not None:
            cosine = tfxclass.layers.Cosine(scale=cell.scale)
            options["similarity"] = cosine
        if embedding is None:
            options["kernel_initializer"] = keras.initializers.GlorotUniform(
                seed=self.seed + 5
            )
        labels = cell.batch * min(task.train[1].shape[1], 6)
        negatives = round(cell.percent / 100 * task.num_classes)
        size = min(labels + max(negatives, 10), task.num_classes)
        if sampler == "full":
            return tfxclass.layers.FullSoftmax(task.num_classes, **options)
        kinds = {
            "forest": tfxclass.layers.SelectiveSoftmax,
            "lsh": tfxclass.layers.LSHSoftmax,
        }
        if sampler in kinds:
            return kinds[sampler](task.num_classes, size, **options)
        return tfxclass.layers.SampledSoftmax(
            task.num_classes, size, sampler, **options
        )

    def _batch(self, inputs, which):
        if isinstance(inputs, tuple):
            return [tf.gather(part, which) for part in inputs]
        return tf.gather(inputs, which)

    def _steps(self, batches, rates, encoder_rate):
        """Steps on the rows `batches`, int64 `[steps, batch]`."""
        inputs, labels = self._data

        def step(i):
            x = self._batch(inputs, batches[i])
            y = tf.gather(labels, batches[i])
            self.of_head.learning_rate.assign(rates[i])
            if self.of_encoder is not None:
                factor = rates[i] / rates[0]
                self.of_encoder.learning_rate.assign(encoder_rate * factor)
            with tf.GradientTape() as tape:
                features = self.encoder(x, training=True)
                loss = self.head.compute_loss(features, y, training=True)
                loss = tf.reduce_mean(loss)
            variables = self.model.trainable_variables
            grads = tape.gradient(loss, variables)
            self.optimizer.apply(grads, variables)
            return loss

        def body(i, _):
            return i + 1, step(i)

        def go_on(i, _):
            return i < tf.shape(batches)[0]

        start = 0, tf.constant(0.0)
        return tf.while_loop(go_on, body, start, parallel_iterations=1)[1]

    def train(self, rate, encoder_rate, batches, seed=0):
        """Trains from the start; the last loss, float.

        Args:
            rate, encoder_rate: floats.
            batches: of `batches_of`.
            seed: int; another seed permutes the first values of each weight,
                which are drawn independently.
        """
        random = np.random.default_rng(seed)
        for variable, value in zip(self._variables(), self._start):
            if seed and value.ndim == 2 and value.dtype == np.float32:
                value = random.permutation(value)
            variable.assign(value)
        return float(
            self._train(
                tf.constant(batches),
                tf.constant(self.schedule()[: len(batches)] * rate, tf.float32),
                tf.constant(encoder_rate, tf.float32),
            )
        )

    def schedule(self):
        """Factors of the rate, `[steps]`, the first is 1."""
        steps = np.arange(self.cell.steps) / self.cell.steps
        return (1 + np.cos(np.pi * steps)) / 2 if self.cell.falls else steps**0

    def _ranks(self, x, y):
        ids, _ = self.head.top_k(self.encoder(x, training=False), self.task.k)
        found = ids[:, :, tf.newaxis] == y[:, tf.newaxis, :]
        return tf.reduce_any(found, axis=(1, 2))

    def hits(self, rows):
        """Whether each row has a label among its best classes, bool `[n]`."""
        inputs, labels = rows
        parts = [
            self._hits(
                self._batch(inputs, np.arange(i, min(i + 500, len(labels)))),
                tf.constant(labels[i : i + 500]),
            )
            for i in range(0, len(labels), 500)
        ]
        return np.concatenate([part.numpy() for part in parts])


def batches_of(cell, task, seed):
    """Rows of each step, int64 `[steps, batch]`, the same for all methods."""
    random = np.random.default_rng(seed)
    rows = len(task.train[1])
    epochs = -(-cell.steps * cell.batch // rows)
    order = np.concatenate([random.permutation(rows) for _ in range(epochs)])
    return order[: cell.steps * cell.batch].reshape(cell.steps, cell.batch)
