"""What every head promises, kept by each mode of DropMax."""

import pytest

from tests.support.contract import CLASSES
from tests.support.contract import LONG
from tests.support.contract import HeadContract
from tests.support.dropmax_cases import expected_logits
from tests.support.dropmax_cases import make_head


class DropMaxContract(HeadContract):
    is_random = True
    options = {}

    def make_head(self, num_classes=CLASSES, **changes):
        return make_head(self.mode, num_classes, **{**self.options, **changes})

    def logits(self, head, features):
        return expected_logits(head, features)


class TestAdaptive(DropMaxContract):
    mode = "adaptive"
    slow_tests = LONG


# These two share all but the masks with the first; test_dropmax.py tests those.
@pytest.mark.slow
class TestRandom(DropMaxContract):
    mode = "random"


@pytest.mark.slow
class TestAttention(DropMaxContract):
    mode = "attention"
    is_random = False


@pytest.mark.slow
class TestSampledPosterior(DropMaxContract):
    mode = "posterior"
    options = {
        "num_sampled": 30,
        "sampler": "uniform",
        "num_samples": 2,
    }
