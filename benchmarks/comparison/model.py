"""The encoder that all methods share, and a model that ends in a head."""

import keras
import numpy as np
import tensorflow as tf

import tfxclass
from tfxclass.rows import search


def make_model(data, set_up, head, learning_rate, **options):
    """A compiled model: sum of weighted word embeddings -> `head`.

    With the activation of the set it is the hidden layer of a network on
    sparse inputs. A cosine needs no mean.

    Args:
        data: `DataSet`.
        set_up: `SetUp`.
        head: a head of `tfxclass.layers`.
        learning_rate: float.
        **options: of `LazyAdam`.
    """
    inputs = {
        "ids": keras.Input((data.length,), dtype="int32", name="ids"),
        "values": keras.Input((data.length,), name="values"),
    }
    features = tfxclass.layers.SparseDense(
        data.num_words,
        set_up.dim,
        activation=set_up.activation,
        use_bias=set_up.activation is not None,
        kernel_initializer=keras.initializers.RandomNormal(
            stddev=set_up.dim**-0.5, seed=0
        ),
    )(inputs["ids"], inputs["values"])
    if set_up.scale and not isinstance(head, tfxclass.layers.ClassHead):
        # A head of dot products alone gets features of the same length.
        features = set_up.scale * keras.layers.UnitNormalization()(features)
    model = keras.Model(inputs, head(features))
    optimizer = tfxclass.optimizers.LazyAdam(learning_rate, **options)
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
        self._per_row = tf.Variable(0.0)
        self._sample, self.sampler.sample = self.sampler.sample, self._watched

    def _watched(self, queries, target_ids, kernel):
        sample = self._sample(queries, target_ids, kernel)
        self._ids.assign(sample.ids)
        self._targets.assign(tf.reshape(target_ids, [-1]))
        self._queries.assign(queries)
        self._per_row.assign(_classes_per_row(sample))
        return sample

    def classes_per_row(self):
        """Mean size of a row's softmax in the last step, or None."""
        return self.sampler and float(self._per_row)

    def overlap(self):
        """Share of the optimal selection that the last step chose, or None.

        Optimal are, for each row of the batch, the classes with the greatest
        logits: as many as fill the step's places; labels are not counted.
        """
        if self.sampler is None:
            return None
        ids, queries = self._ids.numpy(), self._queries.numpy()
        best, _ = search.top_k(
            tf.constant(queries),
            self.head.class_matrix.values(),
            max(len(ids) // len(queries), 1),
            normalize=self.head.similarity == "cosine",
        )
        best = np.setdiff1d(best.numpy(), self._targets.numpy())
        return float(np.isin(best, ids).mean()) if len(best) else None


def _classes_per_row(sample):
    if sample.mask is None:
        return tf.cast(tf.size(sample.ids), tf.float32)
    counts = tf.math.count_nonzero(sample.mask, axis=1, dtype=tf.float32)
    return tf.reduce_mean(counts)


def _any_length(dtype, rank=1):
    shape = [None] * rank
    return tf.Variable(tf.zeros([0] * rank, dtype), shape=shape)
