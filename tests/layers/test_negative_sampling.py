"""Negative sampling keeps a head's contract; its loss is tested beside noise
contrastive estimation's."""

import numpy as np
import pytest

from tests.support.contract import CLASSES
from tests.support.contract import HeadContract
from tfxclass import layers


@pytest.mark.slow
class TestNegativeSampling(HeadContract):
    is_random = True

    def make_head(self, num_classes=CLASSES, **changes):
        options = {"num_sampled": 40, "seed": 7, **changes}
        return layers.NegativeSampling(num_classes, **options)


def test_gbce():
    """Petrov and Macdonald, equation 13: only the label's term changes."""
    random = np.random.default_rng(0)
    labels = random.integers(0, CLASSES, 6)
    features = random.normal(size=(6, 4)).astype(np.float32)
    heads = [
        layers.NegativeSampling(CLASSES, 20, seed=1, calibration=t)
        for t in (0.0, 0.75)
    ]
    for head in heads:
        head.build((None, 4))
    heads[1].kernel.assign(heads[0].kernel)
    plain, found = (h.compute_loss(features, labels, True) for h in heads)
    logits = np.sum(features * heads[0].kernel.numpy()[labels], axis=1)
    alpha = 19 / (CLASSES - 1)
    beta = alpha * (0.75 * (1 - 1 / alpha) + 1 / alpha)
    change = (beta - 1) * np.log1p(np.exp(-logits))
    np.testing.assert_allclose(found - plain, change, rtol=1e-4, atol=1e-5)
    again = layers.NegativeSampling.from_config(heads[1].get_config())
    assert again.calibration == 0.75
    with pytest.raises(ValueError, match="calibration.*1.5"):
        layers.NegativeSampling(CLASSES, 20, calibration=1.5)
