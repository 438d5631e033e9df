"""LSH softmax: negatives from hash tables, looked up by features or labels."""

import keras

from tfxclass.checks import check_positive_int
from tfxclass.layers.sampled_softmax import SampledSoftmax
from tfxclass.samplers.lsh import LSHSampler


@keras.saving.register_keras_serializable("tfxclass")
class LSHSoftmax(SampledSoftmax):
    """Softmax over labels and the classes that hash tables find for them.

    The negatives are the classes that the features ("LSH Embedding") or the
    labels ("LSH Label") take for near: hard ones, that change as the weights
    do. Sampling costs hash codes and bucket look-ups, whatever `num_classes`
    is; a step's other cost is a product of [batch, dim] by [dim, num_sampled],
    and `num_sampled` rows that move. The tables, refreshed in the background,
    take about 8 num_tables bytes a class, and the rows' copy 4 dim.

    All of it works under plain `fit`: the tables refresh themselves, their
    state is saved with the model, and a resumed run goes on bit for bit.

    Args:
        num_classes: int, number of classes.
        num_sampled: int, classes a step; at least the number of distinct
            labels in a batch. 1 % of the classes is a start.
        scheme, hash, num_hashes, num_tables, bin_size, bucket_size, measure,
            rebuild_interval, decay, redraw_interval, incremental, negatives,
            neighbor_fraction, correction: of the
            `tfxclass.samplers.LSHSampler`, which says what happens when the
            negatives do not fit or do not suffice. The paper's own method is
            `neighbor_fraction=1.0, correction="none"`.
        **kwargs: `ClassHead`'s arguments.

    Example:

    >>> head = tfxclass.layers.LSHSoftmax(670_091, num_sampled=6_700)
    >>> model = keras.Sequential([encoder, head])
    >>> model.compile(tfxclass.optimizers.LazyAdam(1e-3), loss=head.loss)

    References:
        Daghaghi et al., A Tale of Two Efficient and Informative Negative
        Sampling Distributions, ICML 2021.
    """

    def __init__(self, num_classes, num_sampled, **kwargs):
        check_positive_int("num_classes", num_classes)
        check_positive_int("num_sampled", num_sampled)
        options = {
            name: kwargs.pop(name)
            for name in LSHSampler.option_names
            if name in kwargs
        }
        sampler = kwargs.pop("sampler", None) or LSHSampler(
            min(num_sampled, num_classes), seed=kwargs.get("seed"), **options
        )
        super().__init__(num_classes, sampler=sampler, **kwargs)

    def rebuild(self):
        """Builds tables of the class rows as they are, now."""
        self.sampler.rebuild(self.kernel)
