"""Random projection, recovery and fine-tuning of an LSTM language model.

    python -m benchmarks.language_model --data FOLDER [row ...]
        [--size small] [--epochs 2] [--slim_epochs 1] [--seed 0]

FOLDER has Penn Treebank as train.txt, valid.txt and test.txt. The RP paper
(Yuan et al., 2020) takes the configurations of Zaremba et al. (2014): two LSTMs
that keep their state over an epoch, and SGD at a rate of 1 that falls after
some epochs. The paper's size is "large". RP has a third of the units, as the
paper's 500 of 1,500, RP-A the widths of the paper, and "sampled" NUM_SAMPLED
words in a step. Evaluation cuts a text into 20 streams.

"lift" and "dual" begin with what `recover` makes of RP after `--slim_epochs`,
untrained in their first line. They then train the whole model in full width, at
the rates of all rows. The dual has the l2 of L2 that is best in validation.
What has a result in benchmarks/cache/penn_treebank_<size> is not trained again.
"""

import functools
import math
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf

import tfxclass
from benchmarks import measure
from examples import next_word
from tfxclass import recovery

L2 = (1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0)
ROWS, NUM_SAMPLED = ["full", "sampled", "RP", "RP-A", "lift", "dual"], 2_000


class Size(NamedTuple):
    """A configuration of Zaremba et al."""

    units: int
    length: int  # steps of time between two updates
    dropout: float
    span: float  # weights begin in [-span, span]
    clip: float  # most norm of the gradient of a segment's summed loss
    flat: int  # epochs at a rate of 1
    fall: float  # by which each epoch after these divides it
    batch: int = 20  # segments of a step


SIZES = {
    "small": Size(200, 20, 0.0, 0.1, 5.0, 4, 2.0),
    "large": Size(1500, 35, 0.65, 0.04, 10.0, 14, 1.15),
}


def make_model(row, counts, size, seed):
    keras.utils.set_random_seed(seed)

    def first():
        # An initializer that is used twice would give the same weights.
        return keras.initializers.RandomUniform(-size.span, size.span)

    inputs = keras.Input(batch_shape=(size.batch, size.length), dtype="int32")
    x = keras.layers.Embedding(len(counts), size.units, first())(inputs)
    for _ in range(2):
        x = keras.layers.Dropout(size.dropout)(x)
        x = keras.layers.LSTM(
            size.units,
            kernel_initializer=first(),
            recurrent_initializer=first(),
            unit_forget_bias=False,
            return_sequences=True,
            stateful=True,
        )(x)
    x = keras.layers.Dropout(size.dropout)(x)
    same = {"kernel_initializer": first(), "seed": seed}
    layers = tfxclass.layers
    if row == "RP":
        head = layers.ProjectedSoftmax(len(counts), size.units // 3, **same)
    elif row == "RP-A":
        head = layers.AdaptiveProjectedSoftmax(
            len(counts), layers.split_by_frequency(counts, 4), **same
        )
    elif row == "sampled":
        drawn = min(NUM_SAMPLED, len(counts)), "log_uniform"
        head = layers.SampledSoftmax(len(counts), *drawn, **same)
    else:
        head = layers.FullSoftmax(len(counts), **same)
    return compiled(keras.Model(inputs, head(x)), size)


def compiled(model, size):
    # Keras has the mean of a segment's losses where Zaremba et al. have the
    # sum: the norm is so much smaller, and `train` has so much more of a rate.
    optimizer = tfxclass.optimizers.LazySGD(
        float(size.length), global_clipnorm=size.clip / size.length
    )
    model.compile(optimizer, loss=model.layers[-1].loss)
    return model


def train(model, data, size, epoch):
    """An epoch, the first is 1; returns its CPU seconds."""
    rate = size.fall ** -max(epoch - size.flat, 0)
    model.optimizer.learning_rate.assign(size.length * rate)
    next_word.forget(model)
    with measure.Stopwatch() as clock:
        model.fit(*data, batch_size=size.batch, shuffle=False, verbose=0)
    return clock.cpu


def perplexity(model, data, size):
    """exp of the mean loss over the words that have a class, or infinity."""
    next_word.forget(model)
    loss = model.evaluate(*data, batch_size=size.batch, verbose=0)
    mean = loss * data[1].size / (data[1] >= 0).sum()
    return math.exp(mean) if mean < 700 else math.inf


def recovered(method, model, parts, size):
    """The full model, and a dict with the dual's l2."""
    data = tf.data.Dataset.from_tensor_slices(parts["train"]).batch(size.batch)
    next_word.forget(model)
    options = {"l2": 1.0} if method == "dual" else {}
    full = recovery.recover(model, data, method=method, verbose=0, **options)
    compiled(full, size)
    if method != "dual":
        return full, {}
    found, kernel = [], full.layers[-1].kernel
    once = kernel.numpy()
    for l2 in L2:
        kernel.assign(once / l2)
        found.append((perplexity(full, parts["valid"], size), l2))
    kernel.assign(once / min(found)[1])
    return full, {"l2": min(found)[1]}


def trained(args, counts, parts, row, *_):
    size, lines = SIZES[args.size], []
    is_recovered = row in ("lift", "dual")
    model = make_model("RP" if is_recovered else row, counts, size, args.seed)
    if is_recovered:
        for epoch in range(1, args.slim_epochs + 1):
            train(model, parts["train"], size, epoch)
        with measure.Stopwatch() as clock:
            model, chosen = recovered(row, model, parts, size)
        chosen["cpu_s"] = clock.cpu
        lines.append(line_of(model, parts, size, args.slim_epochs, **chosen))
    first = args.slim_epochs if is_recovered else 0
    for epoch in range(first + 1, args.epochs + 1):
        took = train(model, parts["train"], size, epoch)
        lines.append(line_of(model, parts, size, epoch, cpu_s=took))
    return lines


def line_of(model, parts, size, epoch, **about):
    return {
        "epoch": epoch,
        **about,
        "validation": perplexity(model, parts["valid"], size),
        "test": perplexity(model, parts["test"], size),
    }


def main(given=None):
    args = measure.arguments(
        __doc__,
        given,
        first=["rows"],
        choices={"size": SIZES},
        rows=ROWS,
        data=".",
        size="small",
        epochs=2,
        slim_epochs=1,
        seed=0,
    )
    batch, length = SIZES[args.size].batch, SIZES[args.size].length
    _, parts = next_word.read(args.data, batch * length + 1)
    counts = np.bincount(parts["train"])
    for part, ids in parts.items():
        parts[part] = next_word.steps_of(ids, batch, length)
    run = functools.partial(trained, args, counts, parts)
    name, rows = f"penn_treebank_{args.size}", []
    for row in args.rows:
        job = row, args.seed, args.epochs, args.slim_epochs
        lines = measure.once(name, *job, run=run)
        rows += [{"seed": args.seed, "row": row, **line} for line in lines]
    measure.save(name, rows, ("seed", "row", "epoch"))


if __name__ == "__main__":
    main()
