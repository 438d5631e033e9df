"""LSH softmax: negatives from hash tables, looked up by features or labels."""

import keras

from tfxclass.layers.index_softmax import IndexSoftmax
from tfxclass.samplers.lsh import LSHSampler


@keras.saving.register_keras_serializable("tfxclass")
class LSHSoftmax(IndexSoftmax):
    """Softmax over labels and the classes that hash tables find for them.

    `SampledSoftmax` with a `tfxclass.samplers.LSHSampler`. The negatives are
    the classes whose hash codes are near those of the features ("LSH
    Embedding") or of the labels ("LSH Label"): hard negatives, which change as
    the weights do. Sampling costs hash codes and bucket look-ups, whatever
    `num_classes` is. The rest of a step is a product of [batch, dim] by
    [dim, num_sampled], and `num_sampled` rows that move. The tables, refreshed
    in the background, take about 8 num_tables bytes a class, and a copy of the
    class vectors 4 dim.

    All of it works under plain `fit`: the tables refresh themselves, their
    state is saved with the model, and a resumed run goes on bit for bit.

    Args:
        num_classes: int, number of classes.
        num_sampled: int, classes a step, labels included. By default 1 % of
            the classes and at least twice the labels of each batch; see
            `SampledSoftmax` for batches with more labels.
        sampler_options: dict, other arguments of the
            `tfxclass.samplers.LSHSampler` by name, or None. The paper's own
            method is `{"neighbor_fraction": 1.0, "correction": "none"}`, with
            `"scheme": "label"` to look labels up instead of features.
        seed: int, seed of all that the head draws.
        **kwargs: `ClassHead`'s arguments, as `similarity`, and `placement`.

    Example:

    >>> head = tfxclass.layers.LSHSoftmax(670_091, num_sampled=6_700)
    >>> model = keras.Sequential([encoder, head])
    >>> optimizer = tfxclass.optimizers.HeadAdam()
    >>> model.compile(optimizer, loss=head.loss)

    References:
        Daghaghi et al., A Tale of Two Efficient and Informative Negative
        Sampling Distributions, ICML 2021.
    """

    sampler_class = LSHSampler
