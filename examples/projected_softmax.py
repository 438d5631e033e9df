"""A slim classifier, trained; then recovered to full width and fine-tuned.

    python -m examples.projected_softmax

Wide features make a class matrix that is dear to train: 2,048 features and a
million classes are 8 GB, and 25 with Adam's slots. `ProjectedSoftmax` trains
rows of 64 numbers instead, against a random projection of the features.
After training, one pass over the data gives the class matrix in full width:
the slim rows lifted by the projection, and one step along the gradient, whose
length is looked for on a tenth of the rows. A short fine-tuning goes on from
there.

`recover` prints what it found: eta (the length of the step), mu and q (what
damps it along features and classes), L (the loss's smoothness), and the loss
of the rows that were held out, before and after. The paper's own recovery, the
dual, is a step of 1 / l2, which is right for a large `l2` alone. The numbers at
the end are the accuracies on rows that were kept back.
"""

import argparse
import tempfile

import keras
import numpy as np

import tfxclass

RANK, PROJECTION_DIM, BATCH, RATE = 24, 64, 256, 0.01

# ## Data
#
# Identities: noisy views of class centres in 24 dimensions, which `dim`
# features show, as those of a frozen network do.


def make_data(num_classes, rows_per_class, dim, seed=0):
    """`(x, y)`: float32 `[rows, dim]` and int64 `[rows]`, in random order."""
    random = np.random.default_rng(seed)
    centres = random.normal(size=(num_classes, RANK))
    y = random.permutation(np.repeat(np.arange(num_classes), rows_per_class))
    views = centres[y] + 0.7 * random.normal(size=(len(y), RANK))
    x = views @ random.normal(size=(RANK, dim)) / RANK**0.5
    return x.astype(np.float32), y


# ## Stage 1: slim
#
# A little `l2` on the class rows, as ten rows a class want. A class has
# 1 / num_classes of the rows, and `l2` goes with that.


def make_model(num_classes, dim, steps):
    head = tfxclass.layers.ProjectedSoftmax(
        num_classes, PROJECTION_DIM, l2=2 / num_classes, seed=1
    )
    model = keras.Sequential([keras.Input([dim]), head])
    rate = keras.optimizers.schedules.CosineDecay(RATE, steps)
    model.compile(tfxclass.optimizers.LazyAdam(rate), loss=head.loss)
    return model


def accuracy(model, x, y):
    """Share of rows whose best class is the right one."""
    ids, _ = tfxclass.top_k(model, k=1).predict(x, BATCH, verbose=0)
    return float((ids[:, 0] == y).mean())


def show_sizes(num_classes, dim):
    """What the slim and the full head need in training."""
    heads = {
        "slim": tfxclass.layers.ProjectedSoftmax(num_classes, PROJECTION_DIM),
        "full": tfxclass.layers.FullSoftmax(num_classes),
    }
    for name, head in heads.items():
        print(f"{name}: {tfxclass.estimate(head, dim, BATCH)}")


# ## Stages 2 and 3: recovered, fine-tuned
#
# `recover` shares the encoder and gives a model that ends in a `FullSoftmax`.
# It is compiled anew: the second stage has a rate of its own.


def main(num_classes=2000, dim=512, rows=10, epochs=30, folder=None, verbose=2):
    """Runs the stages; returns the accuracy after each."""
    keras.utils.set_random_seed(0)
    show_sizes(num_classes, dim)
    x, y = make_data(num_classes, rows + 2, dim)
    kept = len(y) // 6
    test_x, test_y, x, y = x[:kept], y[:kept], x[kept:], y[kept:]
    model = make_model(num_classes, dim, epochs * len(y) // BATCH)
    model.fit(x, y, batch_size=BATCH, epochs=epochs, verbose=verbose)
    found = {"slim": accuracy(model, test_x, test_y)}

    full = tfxclass.recovery.recover(model, (x, y), verbose=bool(verbose))
    found["recovered"] = accuracy(full, test_x, test_y)

    loss = full.layers[-1].loss
    full.compile(tfxclass.optimizers.LazyAdam(RATE / 10), loss=loss)
    full.fit(x, y, batch_size=BATCH, epochs=2, verbose=verbose)
    found["fine-tuned"] = accuracy(full, test_x, test_y)

    folder = folder or tempfile.mkdtemp()
    path = tfxclass.export.saved_model(full, folder, top_k=5)
    print(f"the full classifier is in {path}")
    for stage, share in found.items():
        print(f"{stage:10}: {share:.1%} of the kept rows are right")
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", help="where the export goes")
    main(folder=parser.parse_args().folder)
