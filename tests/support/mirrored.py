"""Every head on two logical devices against one; run by test_distribute.py."""

import sys
import tempfile

import keras
import numpy as np
import tensorflow as tf

import tfxclass
from tests.support import helpers
from tests.support.lsh import lsh_sampler
from tests.support.mixing import MixingSampler
from tfxclass import layers
from tfxclass import samplers

CLASSES, DIM, BATCH = 60, 8, 16


def indexed(sampler, **options):
    return layers.SampledSoftmax(CLASSES, sampler=sampler(30, **options))


HEADS = {
    "full": lambda: layers.FullSoftmax(
        CLASSES, similarity=layers.Cosine(margin=0.1)
    ),
    "full_head_adam": lambda: layers.FullSoftmax(CLASSES),
    "full_bfloat16": lambda: layers.FullSoftmax(
        CLASSES, kernel_dtype="bfloat16", seed=1
    ),
    "uniform": lambda: layers.SampledSoftmax(CLASSES, 30, seed=1),
    "selective": lambda: layers.SelectiveSoftmax(
        CLASSES,
        sampler=samplers.HashingForestSampler(
            30, num_trees=5, leaf_size=5, rebuild_interval=2, seed=1
        ),
        seed=1,
    ),
    "auto": lambda: indexed(MixingSampler, seed=1),
    "kmeans": lambda: indexed(
        samplers.KMeansSampler, rebuild_interval=4, num_groups=8, seed=1
    ),
    "lsh_label": lambda: layers.LSHSoftmax(
        CLASSES,
        sampler=lsh_sampler(
            30,
            scheme="label",
            num_hashes=3,
            num_tables=4,
            rebuild_interval=2,
            negatives="sample",
            seed=1,
        ),
        seed=1,
    ),
    "nce": lambda: layers.NoiseContrastive(CLASSES, 30, seed=1),
    "negative_sampling": lambda: layers.NegativeSampling(CLASSES, 30, seed=1),
    "projected": lambda: layers.ProjectedSoftmax(
        CLASSES, 4, 30, "uniform", l2=1e-3, seed=1
    ),
    "adaptive_projected": lambda: layers.AdaptiveProjectedSoftmax(
        CLASSES, group_sizes=[20, 40], projection_dims=(4, 2), seed=1
    ),
    "adaptive": lambda: layers.AdaptiveSoftmax(CLASSES, [10, 30], seed=1),
    "differentiated": lambda: layers.DifferentiatedSoftmax(
        CLASSES, [(20, 5), (40, 3)], seed=1
    ),
    "hierarchical": lambda: layers.HierarchicalSoftmax(
        CLASSES, "balanced", seed=1
    ),
    # Masks are drawn for each replica apart: none of them here.
    "dropmax": lambda: layers.DropMax(
        CLASSES, mode="attention", num_sampled=30, sampler="uniform", seed=1
    ),
    "sparsemax": lambda: layers.Sparsemax(CLASSES, seed=1),
    "given": lambda: layers.SampledSoftmax(
        CLASSES, 40, num_negatives=1, seed=1
    ),
}
TIED = "tied"
# One of each way to search.
EXPORTED = ("selective", "hierarchical", "adaptive_projected", "dropmax")


def tied_model():
    """Class rows that are those of the embedding of the input."""
    words = keras.layers.Embedding(CLASSES, DIM)
    words.build()
    return keras.Sequential(
        [
            keras.Input([3], dtype="int64"),
            words,
            keras.layers.GlobalAveragePooling1D(),
            layers.SampledSoftmax(CLASSES, 40, tied_to=words, seed=1),
        ]
    )


def run(strategy, name):
    """Losses, weights and slots after two epochs."""
    keras.utils.set_random_seed(1)
    random = np.random.default_rng(0)
    x = random.normal(size=(4 * BATCH, DIM)).astype(np.float32)
    with strategy.scope():
        if name == TIED:
            x = random.integers(0, CLASSES, (4 * BATCH, 3))
            model = tied_model()
            head = model.layers[-1]
        else:
            head = HEADS[name]()
            model = keras.Sequential(
                [keras.Input([DIM]), keras.layers.Dense(DIM), head]
            )
        optimizer = tfxclass.optimizers.LazyAdam(0.02)
        if name == "full_head_adam":
            optimizer = tfxclass.optimizers.HeadAdam(1e-3)
        model.compile(optimizer, loss=head.loss)
    y = random.integers(-1, CLASSES, (4 * BATCH, 2))
    losses = helpers.fit(model, x, y, BATCH, epochs=2)
    if getattr(head, "sampler", None) is not None:
        steps = getattr(head.sampler, "step", None)
        # Refreshed and counted once a step, not once a replica.
        assert steps is None or int(steps.numpy()) == 8
    if name in EXPORTED:
        with tempfile.TemporaryDirectory() as folder:
            # Compared with the model, in a process of its own.
            tfxclass.export.saved_model(model, folder, top_k=3, verify=True)
    values = [*model.get_weights(), *model.optimizer.variables]
    return [np.array(losses), *map(np.array, values)]


def main(names):
    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0],
        [tf.config.LogicalDeviceConfiguration()] * 2,
    )
    one = tf.distribute.OneDeviceStrategy("CPU:0")
    # One for all heads: a second one in the same process would meet the
    # first one's collectives.
    two = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    for name in names:
        found = [run(s, name) for s in (one, two)]
        for ours, theirs in zip(*found, strict=True):
            # Sums in another order, through eight steps of Adam.
            np.testing.assert_allclose(
                ours, theirs, rtol=1e-3, atol=1e-4, err_msg=name
            )
        print("equal:", name, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:] or [*HEADS, TIED])
