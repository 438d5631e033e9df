"""The encoder that all methods share, and a model that ends in a head."""

import keras
import numpy as np
import tensorflow as tf

import tfxclass
from tfxclass import streaming


class WeightedWords(keras.layers.Layer):
    """Sum of the embeddings of a row's words, each by its weight.

    With `activation="relu"` it is the first hidden layer of a network on
    sparse inputs, bias included. Heads of cosine logits need no mean.

    Args:
        num_words: int.
        dim: int.
        activation: `"linear"` or `"relu"`.
        norm: float, length that the sum is brought to, or None.
    """

    def __init__(
        self, num_words, dim, activation="linear", norm=None, **kwargs
    ):
        super().__init__(**kwargs)
        self.num_words = num_words
        self.dim = dim
        self.activation = activation
        self.norm = norm
        self.supports_jit = False

    def build(self, input_shape):
        self.embeddings = self.add_weight(
            name="embeddings",
            shape=(self.num_words, self.dim),
            initializer=keras.initializers.RandomNormal(
                stddev=self.dim**-0.5, seed=0
            ),
        )
        self.bias = None
        if self.activation == "relu":
            self.bias = self.add_weight(
                name="bias", shape=(self.dim,), initializer="zeros"
            )

    def call(self, inputs):
        ids, values = inputs["ids"], inputs["values"]
        # Only words that are there are fetched, and get a (sparse) gradient.
        where = tf.where(ids >= 0)
        weights = tf.gather_nd(values, where)[:, tf.newaxis]
        known = tf.gather_nd(ids, where)
        vectors = tf.gather(self.embeddings.value, known) * weights
        rows = tf.shape(ids, tf.int64)[0]
        total = tf.math.unsorted_segment_sum(vectors, where[:, 0], rows)
        if self.bias is not None:
            total = tf.nn.relu(total + self.bias)
        if self.norm is not None:
            total = self.norm * tf.math.l2_normalize(total, axis=1)
        return total

    def compute_output_spec(self, inputs):
        shape = (inputs["ids"].shape[0], self.dim)
        return keras.KerasTensor(shape, dtype="float32")


def make_model(data, set_up, head, rate=1.0):
    """A compiled model: weighted words -> `head`.

    Args:
        data: `DataSet`.
        set_up: `SetUp`.
        head: a head of `tfxclass.layers`.
        rate: float, factor on the set's learning rate.
    """
    inputs = {
        "ids": keras.Input((data.length,), dtype="int32", name="ids"),
        "values": keras.Input((data.length,), name="values"),
    }
    norm = None
    if set_up.scale and not isinstance(head, tfxclass.layers.ClassHead):
        # A head of dot products alone gets features of the same length.
        norm = set_up.scale
    words = WeightedWords(data.num_words, set_up.dim, set_up.activation, norm)
    model = keras.Model(inputs, head(words(inputs)))
    optimizer = tfxclass.optimizers.LazyAdam(rate * set_up.learning_rate)
    model.compile(optimizer, loss=head.loss)
    optimizer.build(model.trainable_variables)
    return model


class SampleWatch:
    """Keeps the last choice of a head's sampler, to compare it afterwards.

    Args:
        head: a built head; without a sampler nothing is watched.
    """

    def __init__(self, head):
        self.head = head
        self.sampler = getattr(head, "sampler", None)
        if self.sampler is None:
            return
        self._ids = _any_length(tf.int64)
        self._targets = _any_length(tf.int64)
        self._queries = _any_length(tf.float32, 2)
        self._sample, self.sampler.sample = self.sampler.sample, self._watched

    def _watched(self, queries, target_ids, kernel):
        sample = self._sample(queries, target_ids, kernel)
        self._ids.assign(sample.ids)
        self._targets.assign(tf.reshape(target_ids, [-1]))
        self._queries.assign(queries)
        return sample

    def overlap(self):
        """Share of the optimal selection that the last step chose, or None.

        Optimal are, for each row of the batch, the classes with the greatest
        logits: as many as fill the step's places; labels are not counted.
        """
        if self.sampler is None:
            return None
        ids, queries = self._ids.numpy(), self._queries.numpy()
        best, _ = streaming.top_k(
            tf.constant(queries),
            self.head.class_matrix(),
            max(len(ids) // len(queries), 1),
            normalize=self.head.similarity == "cosine",
        )
        best = np.setdiff1d(best.numpy(), self._targets.numpy())
        return float(np.isin(best, ids).mean()) if len(best) else None


def _any_length(dtype, rank=1):
    shape = [None] * rank
    return tf.Variable(tf.zeros([0] * rank, dtype), shape=shape)
