"""The example on small data: training turns the sampling distribution."""

import numpy as np
import tensorflow as tf

from examples import lsh_distribution
from tfxclass.samplers.lsh_probability import log_found


def test_samples_gather_on_few_classes_as_the_weights_move(tmp_path):
    path = tmp_path / "figure.png"
    shares = lsh_distribution.main(
        num_classes=300, epochs=(1, 3), rows=6000, draws=20, path=path
    )
    fresh, first, last = shares.values()
    # The most sampled 1 % are three classes here, so the shares are rough.
    assert min(first, last) > 1.15 * fresh
    assert path.stat().st_size > 1000


def test_a_class_that_no_table_finds_has_a_bounded_weight():
    """A weight is 1 / P: at most the number of classes, for P = 0 as well."""
    log_none = tf.constant([0.0, -1e-9, -0.5, -30.0])
    log_count = log_found(log_none, num_classes=1000).numpy()
    weights = np.exp(-log_count)
    np.testing.assert_allclose(
        weights, [1000, 1000, 1 / (1 - np.exp(-0.5)), 1], rtol=1e-5
    )
