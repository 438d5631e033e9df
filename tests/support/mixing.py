"""`sampler="auto"` where neighbours are always among the classes."""

import keras
import tensorflow as tf

from tfxclass import samplers


@keras.saving.register_keras_serializable("tests")
class MixingSampler(samplers.AutoSampler):
    """Half of the sample is for neighbors, whatever the noise."""

    def _choose(self, level):
        del level
        return tf.ones([])
