"""Heads that sample near classes: a hashing forest, and hash tables (LSH)."""

import keras

from tfxclass.layers.sampled_softmax import SampledSoftmax
from tfxclass.samplers.forest import HashingForestSampler
from tfxclass.samplers.lsh import LSHSampler


@keras.saving.register_keras_serializable("tfxclass")
class SelectiveSoftmax(SampledSoftmax):
    """Softmax over the active classes that a hashing forest finds.

    Use it for 100,000 classes and more. It is a `SampledSoftmax` with a
    `tfxclass.samplers.HashingForestSampler`, which finds the classes whose
    vectors are near the features. In a training step, one sixteenth of the
    examples also search the forest, with `num_trees` * log2(num_classes /
    leaf_size) products each. The others take their neighbors from a cache.

    A forest that has drifted is rebuilt in the background, which takes at most
    about 5 % of the training time. It is saved with the model. The forest and a
    rounded copy of the class vectors take about dim + 80 + num_trees * (4 + 4 *
    dim / leaf_size) bytes for each class, at most 2 GB by default.

    Args:
        sampler: a `tfxclass.samplers.HashingForestSampler`. Defaults to one
            with default arguments.
        **kwargs: other arguments of `SampledSoftmax`.

    Example:

    ```python
    head = tfxclass.layers.SelectiveSoftmax(670_091, num_sampled=6_700)
    ```

    The method of the paper, which prints no rebuild interval. One reading of
    HF-A adds `allocation=AdaptiveAllocation(include_labels=True)`:

    ```python
    sampler = tfxclass.samplers.HashingForestSampler(
        6_700,
        neighbor_fraction=1.0,
        correct_fill=False,
        num_candidates=None,
        rebuild_interval=500,
    )
    head = tfxclass.layers.SelectiveSoftmax(670_091, sampler=sampler)
    ```

    References:
        Zhang et al., Accelerated Training for Massive Classification via
        Dynamic Class Selection, AAAI 2018.
    """

    default_sampler = "hashing_forest"
    sampler_kind = HashingForestSampler


@keras.saving.register_keras_serializable("tfxclass")
class LSHSoftmax(SampledSoftmax):
    """Softmax over the labels and classes that hash tables find (LSH).

    Use it for 100,000 classes and more, when random negatives are too easy. It
    is a `SampledSoftmax` with a `tfxclass.samplers.LSHSampler`. The negatives
    are the classes whose hash codes are near the codes of the features ("LSH
    Embedding") or of the labels ("LSH Label").

    Sampling costs hash codes and bucket look-ups, whatever `num_classes` is.
    The tables are refreshed in the background, and saved with the model. They
    take about 8 * num_tables bytes for each class, and a copy of the class
    vectors 4 * dim.

    Args:
        sampler: a `tfxclass.samplers.LSHSampler`. Defaults to one with
            default arguments.
        **kwargs: other arguments of `SampledSoftmax`.

    Example:

    ```python
    head = tfxclass.layers.LSHSoftmax(670_091, num_sampled=6_700)
    ```

    The method of the paper, with its tables for text8. No bucket is cut, and a
    step has room for all classes that are found:

    ```python
    tables = tfxclass.samplers.LSHTables(
        num_hashes=9,
        num_tables=50,
        bucket_size=None,
        rebuild_interval=50,
        redraw_interval=None,
    )
    sampler = tfxclass.samplers.LSHSampler(
        670_091,
        tables,
        negatives="sample",
        neighbor_fraction=1.0,
        correction="none",
    )
    head = tfxclass.layers.LSHSoftmax(670_091, sampler=sampler)
    ```

    References:
        Daghaghi et al., A Tale of Two Efficient and Informative Negative
        Sampling Distributions, ICML 2021.
    """

    default_sampler = "lsh"
    sampler_kind = LSHSampler
