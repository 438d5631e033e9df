"""The heads of `groups.py` and `glyphs.py` by name, and the noise they meet."""

import functools

import numpy as np
import tensorflow as tf

import tfxclass
from benchmarks.comparison.methods import RandomSampler
from benchmarks.comparison.methods import lsh_sampler
from tfxclass.rows.blocks import effective_classes
from tfxclass.rows.class_rows import ClassRows


def make_head(method, num_classes, num_sampled, scale, seed, **options):
    """A head of cosines; the papers' rules restrict the softmax to a choice.

    `options` are the sampler's, of methods that have an index.
    """
    layers = tfxclass.layers
    common = {"similarity": layers.Cosine(scale=scale), "seed": seed}
    if method == "full":
        return layers.FullSoftmax(num_classes, **common)
    if method == "lsh_paper":  # no class of a bucket is left out
        num_sampled = num_classes
    sampler = _SAMPLERS[method](num_sampled, seed=seed, **options)
    return layers.SampledSoftmax(num_classes, sampler=sampler, **common)


_SAMPLERS = {
    "random": RandomSampler,
    "uniform": tfxclass.samplers.UniformSampler,
    "auto": tfxclass.samplers.AutoSampler,
    "forest": tfxclass.samplers.HashingForestSampler,
    "lsh": lsh_sampler,
    "forest_paper": functools.partial(
        tfxclass.samplers.HashingForestSampler,
        num_candidates=None,
        neighbor_fraction=1.0,
        correct_fill=False,
    ),
    "lsh_uncorrected": functools.partial(
        lsh_sampler, neighbor_fraction=1.0, correction="none"
    ),
    "lsh_paper": functools.partial(
        lsh_sampler,
        num_hashes=9,
        num_tables=50,
        bucket_size=None,
        negatives="sample",
        neighbor_fraction=1.0,
        correction="none",
        redraw_interval=None,
        rebuild_interval=50,
    ),
}


def noise(head, queries, y, negatives):
    """v, the noise and k_eff of a few rows, exactly; a dict."""
    found = effective_classes(
        queries,
        tf.constant(y[:, np.newaxis]),
        ClassRows(tf.convert_to_tensor(head.kernel), normalize=True),
    )
    k_eff, missed = (each.numpy() for each in found[:2])
    v = head.num_classes / (negatives * k_eff)
    return {
        "v": float(v.mean()),
        "noise": float((v * missed).mean()),
        "k_eff": float(np.median(k_eff)),
    }
