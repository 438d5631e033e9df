"""The methods that are compared."""

import dataclasses
import types
from collections.abc import Callable
from typing import NamedTuple

import keras
import tensorflow as tf

from tfxclass import layers
from tfxclass import samplers
from tfxclass.rows import search


class Method(NamedTuple):
    """A head and, where it takes one, its sampler.

    An option that is a function is called with `(data, set_up)`. `tau_cp` is
    the threshold of an `AdaptiveAllocation`, `tau_cp_end` its last value.
    """

    label: str  # in tables and figures
    head: type
    sampler: Callable | None = None  # a class, or what makes a sampler
    options: dict = {}  # of the sampler if there is one, else of the head


@keras.saving.register_keras_serializable("benchmarks")
class RandomSampler(samplers.UniformSampler):
    """The papers' Random: the softmax restricted to what is drawn."""

    def sample(self, *arguments):
        sample = super().sample(*arguments)
        count = tf.zeros_like(sample.log_expected_count)
        return sample._replace(log_expected_count=count)


@keras.saving.register_keras_serializable("benchmarks")
class CosineTopKSampler(samplers.TopKSampler):
    """The optimal selection by cosine: ours, to compare with.

    The paper's optimal selection ranks by logits, its forest by cosine.
    """

    def neighbors(self, queries, kernel, num_neighbors):
        count = tf.cast(num_neighbors, tf.int32)
        kernel = tf.convert_to_tensor(kernel)
        return search.top_k(queries, kernel, count, normalize=True)


@keras.saving.register_keras_serializable("benchmarks")
class RandomOverAllSampler(RandomSampler):
    """Classes that are drawn uniformly, and a row's own labels.

    `RandomSampler` gives a row the labels of all other rows as negatives. Here
    a label of other rows is a negative with the chance of any other class.
    """

    def sample(self, queries, target_ids, kernel):
        sample = super().sample(queries, target_ids, kernel)
        rows = tf.where(sample.positions >= 0)
        columns = tf.gather_nd(sample.positions, rows)
        shape = [tf.shape(sample.positions)[0], tf.size(sample.ids)]
        own = tf.scatter_nd(
            tf.stack([rows[:, 0], columns], axis=1),
            tf.ones_like(columns),
            tf.cast(shape, tf.int64),
        )
        labels = tf.reduce_any(own > 0, axis=0)
        num_labels = tf.math.count_nonzero(labels, dtype=tf.int32)
        drawn = tf.size(labels) - num_labels
        chance = drawn / (kernel.shape[0] - num_labels)
        is_drawn = tf.random.uniform(tf.shape(labels), dtype=chance.dtype)
        is_drawn = ~labels | (is_drawn < chance)
        return sample._replace(mask=is_drawn | (own > 0))


def lsh_sampler(num_sampled, **options):
    """An `LSHSampler`; the options of its tables stand among its own."""
    make = samplers.LSHTables
    names = {each.name for each in dataclasses.fields(make)} & {*options}
    tables = make(**{name: options.pop(name) for name in names})
    return samplers.LSHSampler(num_sampled, tables, **options)


def _more_sampled(factor):
    """M times a factor; M is the number of classes of a step."""

    def number(data, set_up):
        return min(int(factor * set_up.num_sampled), data.num_classes)

    return number


_num_sampled = _more_sampled(1)


def _counts(data, set_up):
    return [int(count) for count in data.counts]


def _blocks(data, set_up):
    """Three blocks with as many labels; the first reads half of a feature."""
    dim, sizes = set_up.dim, layers.split_by_frequency(data.counts, 3)
    widths = dim - dim // 4 - dim // 4, dim // 4, dim // 4
    return list(zip(sizes, widths, strict=True))


# Of indexes that are not built again when they have drifted: a job of a minute
# takes some thousand steps.
_INTERVAL = {"rebuild_interval": 200}


def _sampled(label, sampler, **options):
    options = {"num_sampled": _num_sampled, **options}
    return Method(label, layers.SampledSoftmax, sampler, options)


def _forest(label, **options):
    return _sampled(label, samplers.HashingForestSampler, **options)


def _lsh(label, scheme, **options):
    return _sampled(label, lsh_sampler, scheme=scheme, **options)


def _dwta_paper(num_hashes, num_tables):
    return _lsh(
        f"LSH embedding, DWTA K={num_hashes} L={num_tables}",
        "embedding",
        hash_family="dwta",
        num_hashes=num_hashes,
        num_tables=num_tables,
        **_LSH_PAPER,
    )


def _over_all(label, factor=1):
    """M includes the labels of the batch, so a row has far fewer classes."""
    return _sampled(
        f"random, uniform over all classes{label}",
        RandomOverAllSampler,
        num_sampled=_more_sampled(factor),
    )


# The softmax restricted to the classes that were chosen, not an estimate of
# the full one.
_PAPER = {"neighbor_fraction": 1.0, "correct_fill": False}
_FOREST_PAPER = {"num_candidates": None, **_PAPER}
_GROUPS_PAPER = {**_INTERVAL, **_PAPER}
_RAISED = {**_FOREST_PAPER, "tau_cp": 0.6, "tau_cp_end": 0.95}
# One set for the whole batch, buckets of 128, the rest of the sample uniform:
# near the paper, and not the paper.
_LSH_UNCORRECTED = {
    "neighbor_fraction": 1.0,
    "correction": "none",
    "num_tables": 50,
    "num_hashes": 9,
}
# Daghaghi et al.: each row has a softmax over its labels and its own buckets.
# No bucket is cut and nothing is filled, so a step must have room for all.
_LSH_PAPER = {
    "num_sampled": lambda data, set_up: data.num_classes,
    "bucket_size": None,
    "negatives": "sample",
    "neighbor_fraction": 1.0,
    "correction": "none",
    "redraw_interval": None,
    "rebuild_interval": 50,
}
_SIMHASH_PAPER = {"num_hashes": 9, "num_tables": 50, **_LSH_PAPER}
METHODS = {
    "full": Method("full softmax", layers.FullSoftmax),
    "uniform": _sampled("uniform", samplers.UniformSampler),
    "auto": _sampled("auto", samplers.AutoSampler),
    "random_paper": _sampled("random, as in the papers", RandomSampler),
    "log_uniform": _sampled("log-uniform", samplers.LogUniformSampler),
    "frequency": _sampled(
        "frequency", samplers.FrequencySampler, counts=_counts
    ),
    "forest": _forest("forest"),
    "forest_paper": _forest("forest, as in the paper", **_FOREST_PAPER),
    "forest_adaptive": _forest(
        "forest, adaptive (HF-A)",
        num_sampled=_more_sampled(4),
        **_FOREST_PAPER,
        tau_cp=0.9,
    ),
    "top_k": _sampled("optimal", samplers.TopKSampler),
    "top_k_paper": _sampled(
        "optimal, as in the paper", samplers.TopKSampler, **_PAPER
    ),
    "pca_hash": _sampled("PCA hash", samplers.PCAHashSampler, **_INTERVAL),
    "k_means": _sampled("k-means", samplers.KMeansSampler, **_INTERVAL),
    "lsh_embedding": _lsh("LSH embedding", "embedding"),
    "lsh_label": _lsh("LSH label", "label"),
    "lsh_embedding_uncorrected": _lsh(
        "LSH embedding, uncorrected", "embedding", **_LSH_UNCORRECTED
    ),
    "lsh_label_uncorrected": _lsh(
        "LSH label, uncorrected", "label", **_LSH_UNCORRECTED
    ),
    "lsh_dwta": _lsh("LSH embedding, DWTA", "embedding", hash_family="dwta"),
    "nce": Method(
        "noise contrastive",
        layers.NoiseContrastive,
        samplers.FrequencySampler,
        {"num_sampled": _num_sampled, "counts": _counts},
    ),
    "differentiated": Method(
        "differentiated softmax",
        layers.DifferentiatedSoftmax,
        options={"blocks": _blocks},
    ),
    "hierarchical": Method(
        "hierarchical softmax (Huffman)",
        layers.HierarchicalSoftmax,
        options={"tree": "huffman", "counts": _counts},
    ),
    # The papers' own settings.
    "forest_adaptive_paper": _forest(
        "forest, adaptive (HF-A), threshold raised", **_RAISED
    ),
    "top_k_cosine_paper": _sampled(
        "optimal by cosine (ours)", CosineTopKSampler, **_PAPER
    ),
    "lsh_embedding_paper": _lsh(
        "LSH embedding, SimHash K=9 L=50", "embedding", **_SIMHASH_PAPER
    ),
    "lsh_label_paper": _lsh(
        "LSH label, SimHash K=9 L=50", "label", **_SIMHASH_PAPER
    ),
    "lsh_dwta_6_paper": _dwta_paper(6, 400),
    "lsh_dwta_5_paper": _dwta_paper(5, 350),
    "random_over_all": _over_all(""),
    "random_over_all_more": _over_all(", 1.5 M", 1.5),
    "random_over_all_most": _over_all(", 2.5 M", 2.5),
    # Of the selective softmax paper: M with the labels, and groups of labels
    # without a correction.
    "forest_adaptive_labels_in_m": _forest(
        "HF-A, M with the labels, threshold raised",
        **_RAISED,
        include_labels=True,
    ),
    "pca_hash_paper": _sampled(
        "PCA hash, as in the paper", samplers.PCAHashSampler, **_GROUPS_PAPER
    ),
    "k_means_paper": _sampled(
        "k-means, as in the paper", samplers.KMeansSampler, **_GROUPS_PAPER
    ),
}


def make_head(method, options, data, set_up, seed, steps=1000):
    """The head of a job.

    `options` replace the method's own. HF-A grows over the `steps`.
    """
    chosen = METHODS[method]
    options = {
        name: value(data, set_up) if callable(value) else value
        for name, value in {**chosen.options, **options}.items()
    }
    if "tau_cp" in options:
        first = options.pop("tau_cp")
        # HF-A in five phases, with a threshold that stays or is raised.
        options["allocation"] = samplers.AdaptiveAllocation(
            phase_steps=max(steps // 5, 1),
            cumulative_probability=(first, options.pop("tau_cp_end", first)),
            ramp_steps=steps,
            num_trees=(10, 50),
            rebuild_interval=(50, 200),
            include_labels=options.pop("include_labels", False),
        )
    common = {"seed": seed}
    if set_up.scale and issubclass(chosen.head, layers.ClassHead):
        common["similarity"] = layers.Cosine(scale=set_up.scale)
    if chosen.sampler is None:
        return chosen.head(data.num_classes, **options, **common)
    sampler = chosen.sampler(seed=seed, **options)
    return chosen.head(data.num_classes, sampler=sampler, **common)


#: Short names of methods, and how they differ from those in `METHODS`.
SHORT = {
    "random": ("random_paper", {}),
    "lsh": ("lsh_embedding", {}),
    "lsh_uncorrected": (
        "lsh_embedding",
        {"neighbor_fraction": 1.0, "correction": "none"},
    ),
    "lsh_paper": ("lsh_embedding_paper", {}),
}


def cosine_head(method, num_classes, num_sampled, scale, seed, **options):
    """A head of `groups.py` or `glyphs.py`; `options` are the sampler's."""
    name, own = SHORT.get(method, (method, {}))
    data = types.SimpleNamespace(num_classes=num_classes)
    set_up = types.SimpleNamespace(num_sampled=num_sampled, scale=scale)
    return make_head(name, {**own, **options}, data, set_up, seed)
