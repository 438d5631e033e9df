"""How many classes a block has, and what a block of them takes."""

import pytest
import tensorflow as tf

import tfxclass
from tfxclass import layers
from tfxclass.ops import placement
from tfxclass.rows import blocks
from tfxclass.rows import search
from tfxclass.rows.class_matrix import ClassRows

DIM = 256
ROWS = {
    "float32": (tf.float32, False),
    "bfloat16": (tf.bfloat16, False),
    "cosine": (tf.float32, True),
}


@pytest.fixture(params=[False, True], ids=["cpu", "gpu"])
def numbers(request, monkeypatch):
    """The most numbers of a block, on a CPU or a GPU."""
    monkeypatch.setattr(placement, "on_gpu", lambda device: request.param)
    times = blocks.GPU_BLOCKS if request.param else 1
    return blocks.BLOCK_LOGITS * times


@pytest.mark.parametrize("batch", [1, 16, 1000])
@pytest.mark.parametrize("name", ROWS)
def test_a_copy_of_rows_is_no_larger_than_a_block_of_logits(
    numbers, name, batch
):
    dtype, normalize = ROWS[name]
    rows = ClassRows(tf.zeros([3, DIM], dtype), normalize=normalize)
    size = blocks.Blocks(tf.zeros([batch, DIM]), rows).size
    assert size == numbers // (batch if name == "float32" else max(batch, DIM))


@pytest.mark.parametrize("dtype", [tf.float32, tf.bfloat16])
def test_stock_ops_read_as_many_rows(dtype, monkeypatch):
    monkeypatch.setattr(blocks, "BLOCK_LOGITS", 1024 * DIM)
    monkeypatch.setattr("tfxclass.rows.stock_search.ONE_BLOCK_CLASSES", 1)
    sizes = []

    def spy(queries, rows, start, size):
        sizes.append(min(int(size), 5000 - int(start)))
        return tf.zeros([1, sizes[-1]])

    monkeypatch.setattr("tfxclass.rows.stock_search.block_logits", spy)
    rows = ClassRows(tf.zeros([5000, DIM], dtype), is_stock=True)
    search.best_of_rows(tf.zeros([1, DIM]), rows, 2)
    assert max(sizes) == (5000 if dtype == tf.float32 else 1024)


def test_an_estimate_counts_blocks_of_class_vectors_on_a_gpu(monkeypatch):
    head = layers.FullSoftmax(10_000_000)
    on_cpu = tfxclass.estimate(head, DIM, 1).activation_bytes
    monkeypatch.setattr(placement, "on_gpu", lambda device: True)
    on_gpu = tfxclass.estimate(head, DIM, 1).activation_bytes
    assert on_cpu < 100e6
    of_vectors = 8 * blocks.BLOCK_LOGITS * blocks.GPU_BLOCKS
    assert of_vectors <= on_gpu < 1.01 * of_vectors
