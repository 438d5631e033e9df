"""Arguments and measures of samplers by their former names."""

import keras
import pytest

from tfxclass import layers
from tfxclass import samplers
from tfxclass.metrics import SamplerState

LSH = {"hash": "sparse_simhash", "rescored": 1, "query_share": 1.0}


def options_of(sampler):
    return (sampler.hash_family, sampler.rerank_factor, sampler.query_fraction)


def test_earlier_arguments_warn_and_work():
    with pytest.warns(DeprecationWarning) as told:
        sampler = samplers.LSHSampler(9, **LSH)
    assert {warning.filename for warning in told} == {__file__}
    assert {str(warning.message).split(" instead")[0] for warning in told} == {
        "Use LSHSampler(hash_family='sparse_simhash')",
        "Use LSHSampler(rerank_factor=1)",
        "Use LSHSampler(query_fraction=1.0)",
    }
    assert options_of(sampler) == ("sparse_simhash", 1, 1.0)


@pytest.mark.parametrize("name", ["HashingForestSampler", "AutoSampler"])
def test_the_former_query_share(name):
    message = rf"Use {name}\(query_fraction=0.5\)"
    with pytest.warns(DeprecationWarning, match=message):
        sampler = getattr(samplers, name)(9, query_share=0.5)
    assert sampler.query_fraction == 0.5
    config = sampler.get_config()
    config["query_share"] = config.pop("query_fraction")
    assert type(sampler).from_config(config).query_fraction == 0.5


def earlier_config():
    config = samplers.LSHSampler(9).get_config()
    for old in LSH:
        del config[samplers.LSHSampler.renamed[old]]
    return {**config, **LSH}


def test_configurations_of_saved_files():
    sampler = samplers.LSHSampler.from_config(earlier_config())
    assert options_of(sampler) == ("sparse_simhash", 1, 1.0)


@pytest.mark.parametrize("is_nested", [False, True])
def test_configurations_of_heads(is_nested):
    config = layers.LSHSoftmax(50).get_config()
    del config["sampler_options"]
    config.update({"sampler_options": LSH} if is_nested else LSH)
    head = layers.LSHSoftmax.from_config(config)
    assert options_of(head.sampler) == ("sparse_simhash", 1, 1.0)


def test_the_options_of_a_head():
    head = layers.LSHSoftmax(50, sampler_options=LSH)
    assert options_of(head.sampler) == ("sparse_simhash", 1, 1.0)
    message = "sampler_options={'hash_f"
    with pytest.warns(DeprecationWarning, match=message) as told:
        head = layers.LSHSoftmax(50, hash="sparse_simhash")
    assert told[0].filename == __file__
    assert head.sampler.hash_family == "sparse_simhash"


@pytest.mark.parametrize(
    ("old", "new"), [("places_used", "fill_rate"), ("yield", "table_hit_rate")]
)
def test_measures(old, new):
    head = layers.LSHSoftmax(50)
    with pytest.warns(DeprecationWarning, match=new):
        metric = SamplerState(head, old)
    assert (metric.name, metric.measure) == (old, new)
    config = keras.saving.serialize_keras_object(metric)
    config["config"]["measure"] = old
    again = keras.saving.deserialize_keras_object(config)
    assert (again.name, again.measure) == (old, new)
