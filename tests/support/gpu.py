"""Whether tests run on a machine with a GPU, and which are skipped there."""

import pytest
import tensorflow as tf


def is_visible():
    return bool(tf.config.get_visible_devices("GPU"))


def skip(reason):
    """A mark of tests that mean something else on a GPU, or nothing."""
    return pytest.mark.skipif(is_visible(), reason=f"on a GPU: {reason}")
