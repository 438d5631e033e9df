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


@pytest.mark.parametrize(
    ("margin", "margin_type"), [(2.5, "cosface"), (3.5, "arcface")]
)
def test_margins_of_saved_files_have_no_limit(margin, margin_type):
    config = layers.FullSoftmax(9, similarity=COSINE).get_config()
    config.update(margin=margin, margin_type=margin_type)
    cosine = layers.FullSoftmax.from_config(config).cosine
    assert (cosine.margin, cosine.margin_type) == (margin, margin_type)
    config["margin"] = -1.0
    with pytest.raises(ValueError, match="`margin` must be >= 0"):
        layers.FullSoftmax.from_config(config)


def test_a_swap_is_proposed_where_it_would_work():
    with pytest.raises(ValueError, match=r"swapped: Cosine\(scale=30, m"):
        layers.Cosine(scale=0.3, margin=30)
    with pytest.raises(ValueError, match="scale=3, margin=4.$"):
        layers.Cosine(scale=3, margin=4)


def test_configuration_of_a_dot_product_of_earlier_versions():
    config = layers.FullSoftmax(9).get_config()
    config.update(scale=None, margin=0.0, margin_type="cosface")
    assert layers.FullSoftmax.from_config(config).similarity == "dot"


def test_a_cosine_by_its_name():
    assert layers.FullSoftmax(9, similarity="cosine").cosine == layers.Cosine()
