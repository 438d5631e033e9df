"""Samplers with an index: what they build, hold and find."""

import numpy as np
import pytest
import tensorflow as tf

from tests.ops.test_hashing_forest import clustered
from tfxclass import layers
from tfxclass import samplers
from tfxclass.samplers.indexed import IndexedSampler

CLASSES, DIM = 60, 8


def built(sampler):
    sampler.build((CLASSES, DIM))
    return sampler


def forest():
    """One leaf a tree: it is exact."""
    sampler = samplers.HashingForestSampler(
        9, num_trees=3, leaf_size=CLASSES, num_candidates=None, seed=1
    )
    return built(sampler)


def tables():
    of_tables = samplers.LSHTables(num_hashes=2, num_tables=9)
    return built(samplers.LSHSampler(9, of_tables, seed=1))


SAMPLERS = {
    "forest": forest,
    "tables": tables,
    "groups": lambda: built(samplers.KMeansSampler(9, 4, seed=1)),
}


@pytest.fixture
def kernel():
    return tf.Variable(clustered(CLASSES, DIM))


def state_of(sampler):
    return sampler.index.state()["ready"].tobytes()


@pytest.mark.parametrize("name", SAMPLERS)
def test_the_first_step_builds_what_build_builds(name, kernel):
    rebuilt, advanced = SAMPLERS[name](), SAMPLERS[name]()
    rebuilt.rebuild(kernel)
    advanced.advance(
        tf.constant(clustered(5, DIM)), kernel, lambda x, ids: ids > 0
    )
    found = [state_of(sampler) for sampler in (rebuilt, advanced)]
    assert len(found[0]) > 0
    # Hash functions of a step are drawn by its number.
    assert found[0] == found[1] or name == "tables"


@pytest.mark.parametrize("name", SAMPLERS)
def test_samplers_of_one_description_have_indexes_of_their_own(name, kernel):
    first, second = SAMPLERS[name](), SAMPLERS[name]()
    first.rebuild(kernel)
    assert state_of(first) and not state_of(second)


def test_a_forest_finds_the_nearest_classes(kernel):
    sampler = forest()
    sampler.rebuild(kernel)
    source = sampler.source
    queries = clustered(5, DIM, seed=2)
    ids, scores = source.neighbors(tf.constant(queries), kernel, 7)
    logits = queries @ kernel.numpy().T
    np.testing.assert_array_equal(ids, np.argsort(-logits, axis=1)[:, :7])
    found = source.finds(kernel, tf.constant(queries), ids)
    assert np.all(found)


def test_samplers_keep_no_more_than_their_source_schedule_and_cache():
    """No object of a sampler refers to the sampler, so none can read it."""
    made = [
        samplers.HashingForestSampler(9),
        samplers.AutoSampler(9),
        samplers.LSHSampler(9),
        samplers.KMeansSampler(9, num_groups=4),
        samplers.PCAHashSampler(9, num_bits=2),
    ]
    for sampler in made:
        assert isinstance(sampler, IndexedSampler)
        sampler.build((CLASSES, DIM))
        parts = sampler.source, sampler.schedule, sampler.neighbor_cache
        for part in parts:
            held = vars(part).values() if part is not None else ()
            assert not any(value is sampler for value in held), part


@pytest.mark.parametrize("name", ["lsh", "hashing_forest", "kmeans"])
def test_shards_follow_the_batch_where_no_size_is_given(name):
    if name == "kmeans":
        name = samplers.KMeansSampler(num_groups=4)
    head = layers.ShardedSoftmax(CLASSES, name, seed=1)
    head.build((None, DIM))
    losses = head.compute_loss(
        clustered(9, DIM), np.arange(9)[:, np.newaxis], training=True
    )
    assert np.all(np.isfinite(losses))
