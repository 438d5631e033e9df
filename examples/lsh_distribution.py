"""Which classes LSH samples as negatives: before, during and after training.

    python -m examples.lsh_distribution

LSH sampling draws a class with probability 1 - (1 - p^K)^L, where p falls with
the angle between the query and the class row. Fresh rows point anywhere, so
for any query the distribution is closer to uniform than later. Training turns
the rows, and the distribution with them: classes that the features take for
near, the hard negatives, come up ever more often. That is figure 3 of "A Tale
of Two Efficient and Informative Negative Sampling Distributions" (Daghaghi et
al., ICML 2021), drawn here for classes that come in groups of 50. The figure
calls the first distribution close to uniform, and prints no distance.

The number at the end is the share of all samples that goes to the most sampled
1 % of the classes: about 2 % of them before training, a fifth or more after.
"""

import argparse
import math

import keras
import numpy as np
import tensorflow as tf

import tfxclass
from tfxclass.ops.lsh import LSHIndex

DIM, GROUP = 64, 50
NUM_HASHES, NUM_TABLES = 9, 50

# ## Data
#
# Class centres lie around the centre of their group, samples around the centre
# of their class. Telling groups apart is easy, telling the classes of a group
# apart is what training is about.


def make_data(num_classes, num_rows, seed=0):
    """`(x, y)`: float32 `[num_rows, DIM]` and int64 `[num_rows]`."""
    random = np.random.default_rng(seed)
    groups = random.normal(size=(-(-num_classes // GROUP), DIM))
    centres = groups[np.arange(num_classes) // GROUP]
    centres = centres + 0.7 * random.normal(size=centres.shape)
    y = random.integers(0, num_classes, num_rows)
    x = centres[y] + 0.5 * random.normal(size=(num_rows, DIM))
    return x.astype(np.float32), y


# ## Model
#
# A linear encoder and the head. The tables refresh themselves under `fit`.


def make_model(num_classes):
    head = tfxclass.layers.LSHSoftmax(
        num_classes,
        sampler=tfxclass.samplers.LSHSampler(
            max(num_classes // 10, 2 * 64),
            tfxclass.samplers.LSHTables(NUM_HASHES, NUM_TABLES),
            seed=1,
        ),
        seed=1,
    )
    model = keras.Sequential(
        [keras.Input([DIM]), keras.layers.Dense(DIM), head]
    )
    model.compile(tfxclass.optimizers.HeadAdam(), loss=head.loss)
    return model


# ## The distribution
#
# Tables hold one draw of the hash functions. How often a class is sampled is
# counted over many draws, and compared with the formula.


def frequencies(kernel, features, draws):
    """How often each class is found for `features` `[dim]`, `[num_classes]`."""
    tables = LSHIndex(num_hashes=NUM_HASHES, num_tables=NUM_TABLES)
    counts = np.zeros(kernel.shape[0])
    for seed in range(draws):
        tables.build(kernel, seed=seed)
        found = tables.query(
            features[np.newaxis, np.newaxis],
            np.ones([1, 1], bool),
            tf.zeros([0], tf.int64),
            num_sampled=kernel.shape[0],
            max_candidates=kernel.shape[0],
            seed=tf.zeros([2], tf.int64),
        )
        counts[found.candidates.numpy()] += 1
    return counts / draws


def predicted(rows, features):
    """1 - (1 - p^K)^L of each class, `[num_classes]`."""
    norms = np.linalg.norm(rows, axis=1) * np.linalg.norm(features)
    angles = np.arccos(np.clip(rows @ features / norms, -1, 1))
    return 1 - (1 - (1 - angles / math.pi) ** NUM_HASHES) ** NUM_TABLES


def share_of_most_sampled(frequency):
    """Of all samples, those of the most sampled 1 % of the classes."""
    top = np.sort(frequency)[::-1][: max(len(frequency) // 100, 1)]
    return top.sum() / frequency.sum()


def observe(model, features, draws):
    """`(frequency, predicted)` for one row of features, best sampled first."""
    encoder, head = model.layers
    query = encoder(features[np.newaxis]).numpy()[0]
    frequency = frequencies(head.kernel, query, draws)
    order = np.argsort(-frequency, kind="stable")
    return frequency[order], predicted(head.kernel.numpy(), query)[order]


# ## Training and plot


def plot(observed, path):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 4.5))
    for label, (frequency, _) in observed.items():
        axes.plot(np.arange(1, len(frequency) + 1), frequency, label=label)
    axes.set(
        xlabel="class, most sampled first",
        ylabel="how often it is sampled",
        xscale="log",
    )
    axes.grid(alpha=0.3)
    axes.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main(num_classes=2000, epochs=(1, 4), rows=50_000, draws=200, path=None):
    """Trains, plots; returns the share of the most sampled 1 % by stage."""
    keras.utils.set_random_seed(0)
    x, y = make_data(num_classes, rows)
    model = make_model(num_classes)
    model.build((None, DIM))
    observed = {"fresh weights": observe(model, x[0], draws)}
    done = 0
    for last in epochs:
        model.fit(x, y, batch_size=64, epochs=last - done, verbose=0)
        done = last
        observed[f"{last} epochs"] = observe(model, x[0], draws)
    if path:
        plot(observed, path)
    shares = {}
    for label, (frequency, formula) in observed.items():
        shares[label] = share_of_most_sampled(frequency)
        error = np.abs(frequency - formula).max()
        print(
            f"{label:15}: {shares[label]:6.1%} of the samples are of the most "
            f"sampled 1 % of the classes (formula: within {error:.2f})"
        )
    return shares


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--path", default="lsh_distribution.png")
    main(path=parser.parse_args().path)
