"""Weights of a model whose head has another number of classes."""

import keras
import numpy as np
import pytest

from tfxclass import layers

MAKE = {
    "full": lambda n: layers.FullSoftmax(n, name="head"),
    # Its state has more than the weights.
    "sampled": lambda n: layers.SampledSoftmax(n, 5, name="head"),
    "adaptive": lambda n: layers.AdaptiveSoftmax(n, [4], name="head"),
    "sharded": lambda n: layers.ShardedSoftmax(n, sampler=None, name="head"),
    "tree": lambda n: layers.HierarchicalSoftmax(n, "balanced", name="head"),
}


def model_of(make, num_classes):
    dense = keras.layers.Dense(4, name="dense")
    return keras.Sequential([keras.Input([3]), dense, make(num_classes)])


@pytest.mark.parametrize("ending", ["weights.h5", "keras"])
@pytest.mark.parametrize("name", MAKE)
def test_another_number_of_classes(name, ending, tmp_path):
    path = tmp_path / f"saved.{ending}"
    saved, model = (model_of(MAKE[name], n) for n in (7, 9))
    if ending == "keras":
        saved.save(path)
    else:
        saved.save_weights(path)
    with pytest.raises(ValueError) as error:
        model.load_weights(path)
    shapes = [x.layers[-1].variables[0].shape for x in (saved, model)]
    for part in ("'head'", "num_classes=9", "tfxclass.add_classes"):
        assert part in str(error.value)
    if name != "adaptive":
        assert all(str(tuple(x)) in str(error.value) for x in shapes)


@pytest.mark.filterwarnings("ignore:A total of")
def test_other_layers_are_loaded_with_skip_mismatch(tmp_path):
    saved, model = (model_of(MAKE["sampled"], n) for n in (7, 9))
    before = model.layers[-1].get_weights()
    path = tmp_path / "saved.weights.h5"
    saved.save_weights(path)
    model.load_weights(path, skip_mismatch=True)
    pairs = zip(
        [*saved.layers[0].get_weights(), *before],
        model.get_weights(),
        strict=False,
    )
    for expected, found in pairs:
        np.testing.assert_array_equal(found, expected)
