"""Selective softmax: the classes nearest to the batch, by a hashing forest."""

import keras

from tfxclass.layers.index_softmax import IndexSoftmax
from tfxclass.samplers.hashing_forest import HashingForestSampler


@keras.saving.register_keras_serializable("tfxclass")
class SelectiveSoftmax(IndexSoftmax):
    """Softmax over the active classes that a hashing forest finds.

    The head for 10^5 classes and more: `SampledSoftmax` with a
    `tfxclass.samplers.HashingForestSampler`. A step costs a product of
    [batch, dim] by [dim, num_sampled] and moves `num_sampled` rows. For a
    sixteenth of the rows it also costs `num_trees` walks of
    log2(num_classes / leaf_size) products; the other rows take their neighbors
    from a cache. A drifted forest is rebuilt in the background, which takes
    about a twentieth of the time of the steps at most. Besides the class
    matrix there is a forest and a rounded copy of the class vectors: about
    dim + 80 + num_trees (4 + 4 dim / leaf_size) bytes a class, 2 GB at most
    unless `num_trees` is given.

    All of it works under plain `fit`: the index refreshes itself, its state
    is saved with the model, and a resumed run goes on bit for bit.

    Args:
        num_classes: int, number of classes.
        num_sampled: int, classes a step, labels included. By default 1 % of
            the classes and at least twice the labels of each batch; see
            `SampledSoftmax` for batches with more labels.
        sampler_options: dict, other arguments of the
            `tfxclass.samplers.HashingForestSampler` by name, or None. The
            paper's own method is `{"neighbor_fraction": 1.0, "correct_fill":
            False, "num_candidates": None}`; with `"allocation":
            tfxclass.samplers.AdaptiveAllocation(...)` it is the paper's HF-A.
        seed: int, seed of all that the head draws.
        **kwargs: `ClassHead`'s arguments, as `similarity`, and `placement`.

    Example:

    >>> head = tfxclass.layers.SelectiveSoftmax(670_091, num_sampled=6_700)
    >>> model = keras.Sequential([encoder, head])
    >>> optimizer = tfxclass.optimizers.HeadAdam()
    >>> model.compile(optimizer, loss=head.loss)

    References:
        Zhang et al., Accelerated Training for Massive Classification via
        Dynamic Class Selection, AAAI 2018.
    """

    sampler_class = HashingForestSampler
