"""Sources by themselves: an index that no sampler owns."""

import numpy as np
import pytest
import tensorflow as tf

from tests.ops.test_hashing_forest import clustered
from tfxclass import layers
from tfxclass import samplers
from tfxclass.ops.index import ClusterIndex
from tfxclass.samplers.forest import Forest
from tfxclass.samplers.indexed import IndexedSampler
from tfxclass.samplers.row_groups import Groups
from tfxclass.samplers.schedule import FixedSchedule

CLASSES, DIM = 60, 8


def forest():
    source = Forest(3, CLASSES, None, None, seed=1)  # one leaf: it is exact
    source.prepare((CLASSES, DIM), False)
    return source


def groups():
    source = Groups(ClusterIndex(), 4, seed=1)
    source.prepare((CLASSES, DIM), False)
    return source


SOURCES = {
    "forest": forest,
    "tables": lambda: samplers.LSHTables(num_hashes=2, num_tables=9).source(
        CLASSES, 20, seed=1
    ),
    "groups": groups,
}


@pytest.fixture
def kernel():
    return tf.Variable(clustered(CLASSES, DIM))


def state_of(source):
    return source.index.state()["ready"].tobytes()


@pytest.mark.parametrize("name", SOURCES)
def test_the_first_step_builds_what_build_builds(name, kernel):
    built, advanced = SOURCES[name](), SOURCES[name]()
    built.build(kernel)
    step = tf.constant(0, tf.int64)
    refresh = FixedSchedule(5).refresh(step, 1e6)
    advanced.advance(kernel, step, refresh)
    found = [state_of(source) for source in (built, advanced)]
    assert len(found[0]) > 0
    # Hash functions of a step are drawn by its number.
    assert found[0] == found[1] or name == "tables"


@pytest.mark.parametrize("name", SOURCES)
def test_sources_of_one_description_have_indexes_of_their_own(name, kernel):
    first, second = SOURCES[name](), SOURCES[name]()
    first.build(kernel)
    assert state_of(first) and not state_of(second)


def test_a_forest_finds_the_nearest_classes(kernel):
    source = forest()
    source.build(kernel)
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
