"""`layers.Cosine`, and the arguments of a head that it replaces."""

import keras
import pytest

from tfxclass import layers

COSINE = layers.Cosine(scale=8.0, margin=0.1, margin_type="arcface")
EARLIER = {"scale": 8.0, "margin": 0.1, "margin_type": "arcface"}


@pytest.mark.parametrize(
    "name", ["FullSoftmax", "SampledSoftmax", "LSHSoftmax", "DropMax"]
)
def test_earlier_arguments_warn_and_work(name):
    cls = getattr(layers, name)
    message = f"{name}.*similarity=tfxclass.layers.Cosine"
    with pytest.warns(DeprecationWarning, match=message) as told:
        head = cls(50, similarity="cosine", **EARLIER)
    assert told[0].filename == __file__
    assert head.cosine == COSINE
    again = cls.from_config(head.get_config())
    assert again.cosine == COSINE


def test_earlier_defaults_are_let_be():
    with pytest.warns(DeprecationWarning):
        head = layers.FullSoftmax(9, scale=None, margin=0.0)
    assert head.similarity == "dot" and head.logit_scale == 1


def test_each_option_once():
    message = "options of a cosine once.*Received: .*scale=8.0.*, margin"
    with pytest.raises(ValueError, match=message):
        layers.FullSoftmax(9, similarity=COSINE, margin=0.1)


@pytest.mark.parametrize("scale", [None, 30.0])
def test_configurations_of_saved_files(scale):
    config = layers.FullSoftmax(
        9, similarity="cosine", name="head"
    ).get_config()
    config.update(EARLIER, scale=scale)
    head = layers.FullSoftmax.from_config(config)
    expected = {**EARLIER, "scale": scale or 24.0}
    assert head.cosine == layers.Cosine(**expected)
    again = keras.saving.deserialize_keras_object(
        keras.saving.serialize_keras_object(head)
    )
    assert again.cosine == head.cosine


def test_configuration_of_a_dot_product_of_earlier_versions():
    config = layers.FullSoftmax(9).get_config()
    config.update(scale=None, margin=0.0, margin_type="cosface")
    assert layers.FullSoftmax.from_config(config).similarity == "dot"


def test_a_cosine_by_its_name():
    assert layers.FullSoftmax(9, similarity="cosine").cosine == layers.Cosine()
