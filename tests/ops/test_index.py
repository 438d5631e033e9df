"""What all refreshing indexes share: marks, cancelled builds, memory."""

import functools
import os
import time

import numpy as np
import pytest
import tensorflow as tf

from tests.support.processes import run_code
from tfxclass.ops.index import ClusterIndex
from tfxclass.ops.index import HashingForest
from tfxclass.ops.index import PCAHash
from tfxclass.ops.index import query_threads
from tfxclass.ops.lsh import LSHIndex

INDEXES = {
    "forest": HashingForest,
    "lsh": lambda: LSHIndex(num_hashes=9, num_tables=50),
    "cluster": ClusterIndex,
    "pca_hash": PCAHash,
}
# Arguments of `build` and `advance` behind the kernel and the steps.
OPTIONS = {
    "forest": {"num_trees": 50, "leaf_size": 100, "seed": 1},
    "lsh": {"seed": 1},
    "cluster": {"num_groups": 2190, "seed": 1, "normalize": False},
    "pca_hash": {"num_groups": 10, "seed": 1, "normalize": False},
}
each_index = pytest.mark.parametrize("name", INDEXES)


@functools.cache
def kernel_of(count):
    random = np.random.default_rng(0)
    return tf.Variable(random.normal(size=(count, 64)).astype(np.float32))


def built(name, count):
    index = INDEXES[name]()
    index.build(kernel_of(count), **OPTIONS[name])
    return index


def advance(name, index, kernel, step, interval):
    steps = {"step": step, "interval": interval}
    if name in ("lsh", "forest"):
        steps.update(lag=interval, drifted=False)
    index.advance(kernel, **steps, **OPTIONS[name])


@pytest.mark.host
@each_index
def test_marks_of_no_row_are_refused(name):
    """They took memory up to the greatest id, 256 MB of 2^31 - 1."""
    index = built(name, 30)
    for bad in (30, 2**31 - 1, 2**40, -1):
        with pytest.raises(
            tf.errors.InvalidArgumentError,
            match=rf"`ids` must be in \[0, 30\). Received: {bad} at",
        ):
            index.mark([29, bad])
    assert index.state()["touched"].size == 0
    index.mark([29, 0])
    assert index.state()["touched"].tolist() == [0, 29]


@each_index
def test_marks_before_the_first_index_are_not_kept(name):
    """It reads all rows anyway; their number is not known yet."""
    index = INDEXES[name]()
    index.mark([2**31 - 2])
    with pytest.raises(tf.errors.InvalidArgumentError, match="Received: -1"):
        index.mark([-1])
    assert index.state()["touched"].size == 0


def seconds_to_cancel(name, delay):
    """CPU seconds of deleting an index that is being built; None if it was
    built before."""
    kernel = kernel_of(300_000)
    # LSH tables are merged in the background, of the same rows.
    index = built(name, 300_000 if name == "lsh" else 30)
    index.mark(np.arange(37_000 if name == "lsh" else 30))
    advance(name, index, kernel, 0, 10)
    time.sleep(delay)
    if int(index.op("times")(index.handle)[0]) > 1:
        return None
    begin = time.process_time()
    del index
    return time.process_time() - begin


@pytest.mark.host
@each_index
def test_a_build_in_the_background_is_cancelled(name):
    """Deleting a cluster index waited for 1.2 s. CPU time: the machine may
    have other work."""
    delays = (0.003, 0.02, 0.1, 0.3, 0.7)
    if name == "lsh":
        delays = (0, 0.005)
    found = [seconds_to_cancel(name, delay) for delay in delays]
    cancelled = [seconds for seconds in found if seconds is not None]
    assert cancelled and max(cancelled) < 0.05, found


def test_threads_are_those_of_tensorflow(monkeypatch):
    threading = tf.config.threading
    for given, expected in ((5, 5), (0, len(os.sched_getaffinity(0)))):
        monkeypatch.setattr(
            threading, "get_intra_op_parallelism_threads", lambda n=given: n
        )
        monkeypatch.delenv("TF_NUM_INTRAOP_THREADS", raising=False)
        assert query_threads() == expected
    monkeypatch.setenv("TF_NUM_INTRAOP_THREADS", "7")
    assert query_threads() == 7


VOTES = """
import ctypes, sys
import numpy as np
import tensorflow as tf

ctypes.CDLL(None).mallopt(-3, 1 << 16)  # malloc gives back what is freed
tf.config.threading.set_intra_op_parallelism_threads(16)
from tests.planning.test_memory import status
from tfxclass.ops.index import HashingForest
from tfxclass.ops.lsh import LSHIndex

random = np.random.default_rng(0)
queries = random.normal(size=(4000, 8)).astype(np.float32)

def forest(kernel):
    index = HashingForest()
    index.build(kernel, num_trees=2, leaf_size=100, seed=0)
    for _ in range(8):
        index.query(kernel, queries, 10)
    return index

def lsh(kernel):
    index = LSHIndex(num_hashes=16, num_tables=2)
    index.build(kernel, seed=0)
    found = queries[:, None], np.ones([4000, 1], bool), [0]
    for _ in range(8):
        index.query(*found, 100, 100, seed=tf.constant([1, 2], tf.int64))
    return index

make = {"forest": forest, "lsh": lsh}[sys.argv[1]]
kernels = [
    tf.Variable(random.normal(size=(count, 8)).astype(np.float32))
    for count in (1000, 2_000_000)
]

make(kernels[0])  # what TensorFlow needs
before = status("RssAnon")
make(kernels[1])
print(status("RssAnon") - before)
"""


@pytest.mark.parametrize("name", ["forest", "lsh"])
def test_memory_of_queries_is_freed_with_the_index(name):
    """Votes of 2,000,000 classes: a byte a class and thread, two of LSH."""
    left = float(run_code(VOTES, name).splitlines()[-1])
    assert left < 4e6
