"""Negative sampling keeps a head's contract; its loss is tested beside noise
contrastive estimation's."""

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
