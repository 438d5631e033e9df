"""Heads of every mode, and their arithmetic in NumPy, for DropMax's tests."""

import numpy as np
import pytest
import tensorflow as tf

from tests.support import reference
from tests.support.contract import BATCH
from tests.support.contract import CLASSES
from tfxclass import layers
from tfxclass.layers.dropmax import MODE_OPTIONS

MODES = {
    "adaptive": {"kl_weight": 0.7, "entropy_weight": 0.3},
    "posterior": {
        "kl_weight": 0.7,
        "auxiliary_weight": 0.4,
        "entropy_weight": 0.3,
    },
    "random": {"retain_probability": 0.4},
    "attention": {"kl_weight": 0.7, "entropy_weight": 0.3},
}
each_mode = pytest.mark.parametrize("mode", MODES)
# Sums over some dozen classes of terms divided by the temperature.
SUMS = {"rtol": 5e-5, "atol": 5e-5}


def make_head(mode, num_classes=CLASSES, **changes):
    options = {"seed": 7, **MODES[mode], **changes}
    of_mode = {x: options.pop(x) for x in MODE_OPTIONS if x in options}
    return layers.DropMax(
        num_classes, mode=mode, mode_options=of_mode, **options
    )


def affine(matrix, features):
    kernel, bias = (v.numpy().astype(np.float64) for v in matrix.variables)
    return np.asarray(features, np.float64) @ kernel.T + bias


def retain_logits(head, features):
    if head.retain is not None:
        return affine(head.retain, features)
    p = head.retain_probability
    return np.full((len(features), head.num_classes), np.log(p / (1 - p)))


def expected_logits(head, features):
    logits = reference.head_logits(features, head.kernel.numpy())
    if head.retain is None:
        return logits
    return logits + np.log(reference.sigmoid(retain_logits(head, features)))


def draws_of(head):
    """Makes the head's draws a table, and returns it."""
    shape = head.num_samples, BATCH, head.num_classes
    table = np.random.default_rng(3).uniform(1e-3, 1 - 1e-3, shape)
    table = table.astype(np.float32)
    head._draws = drawn_from(table)
    return table


def drawn_from(table):
    """What takes a head's draws, for a block of rows, from a table."""

    def draws(seed, start, shape):
        return tf.constant(table)[:, start : start + tf.cast(shape[1], "int64")]

    return draws


def loss_in_numpy(head, x, y, draws, ids=slice(None), columns=None):
    logits = reference.head_logits(x, head.kernel.numpy())[:, ids]
    residual = None
    if head.posterior is not None:
        residual = affine(head.posterior, x)[:, ids]
    return reference.dropmax_loss(
        head.mode,
        logits,
        retain_logits(head, x)[:, ids],
        draws,
        y if columns is None else columns,
        temperature=head.temperature,
        residual=residual,
        kl=head.kl_weight,
        auxiliary=head.auxiliary_weight,
        entropy=head.entropy_weight,
    )
