"""`layers.Cosine` as the similarity of a head."""

import keras
import pytest

from tfxclass import layers

COSINE = layers.Cosine(scale=8.0, margin=0.1, margin_type="arcface")


@pytest.mark.parametrize("similarity", ["dot", "cosine", COSINE])
@pytest.mark.parametrize(
    "name", ["FullSoftmax", "SampledSoftmax", "LSHSoftmax", "DropMax"]
)
def test_a_configuration_has_the_similarity(name, similarity):
    head = getattr(layers, name)(50, similarity=similarity)
    again = keras.saving.deserialize_keras_object(
        keras.saving.serialize_keras_object(head)
    )
    expected = {"dot": None, "cosine": layers.Cosine()}
    assert head.cosine == expected.get(similarity, similarity)
    assert again.cosine == head.cosine


@pytest.mark.parametrize("option", ["scale", "margin"])
def test_options_of_a_cosine_are_no_arguments_of_a_head(option):
    with pytest.raises(ValueError, match=rf"Cosine\({option}=0.1"):
        layers.FullSoftmax(9, **{option: 0.1})


def test_configurations_are_checked():
    config = layers.FullSoftmax(9, similarity=COSINE).get_config()
    config["similarity"]["margin"] = -1.0
    with pytest.raises(TypeError, match="`margin` must be finite and >= 0"):
        layers.FullSoftmax.from_config(config)


def test_a_swap_is_proposed_where_it_would_work():
    with pytest.raises(ValueError, match=r"swapped: Cosine\(scale=30, m"):
        layers.Cosine(scale=0.3, margin=30)
    with pytest.raises(ValueError, match="scale=3, margin=4.$"):
        layers.Cosine(scale=3, margin=4)
