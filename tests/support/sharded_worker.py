"""`ShardedSoftmax` on two workers; run by test_sharded_softmax.py.

python -m tests.support.sharded_worker index folder port port
"""

import json
import os
import pathlib
import sys

import numpy as np
import tensorflow as tf

from tests.support import sharded
from tfxclass import layers
from tfxclass import optimizers
from tfxclass.shards import shards as shards_lib


def main(index, folder, ports):
    workers = [f"127.0.0.1:{port}" for port in ports]
    task = {"type": "worker", "index": index}
    os.environ["TF_CONFIG"] = json.dumps(
        {"cluster": {"worker": workers}, "task": task}
    )
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    model = sharded.make_model(
        layers.ShardedSoftmax,
        lambda: optimizers.LazyAdam(0.02),
        strategy,
        **sharded.COSFACE,
    )
    with strategy.scope():
        model.optimizer.build(model.trainable_variables)
    head = model.layers[-1]

    @tf.function(autograph=False)
    def train(*batch):
        strategy.run(lambda *batch: model.train_step(batch), args=batch)

    @tf.function(autograph=False)
    def evaluate(*batch):
        def step(x, y):
            features = model.layers[0](x)
            return head.compute_loss(features, y), *head.top_k(features, 5)

        return strategy.run(step, args=batch)

    def on_replicas(arrays):
        return [
            strategy.experimental_distribute_values_from_function(
                lambda context, a=array: tf.constant(
                    np.split(a, 2)[context.replica_id_in_sync_group]
                )
            )
            for array in arrays
        ]

    x, y = sharded.data()
    for _ in range(2):
        for i in range(0, sharded.ROWS, sharded.BATCH):
            part = slice(i, i + sharded.BATCH)
            train(*on_replicas((x[part], y[part])))
    losses, ids, scores = evaluate(*on_replicas((x, y)))
    # Both call it; a worker's file has all classes, in four blocks.
    shards_lib.BLOCK_NUMBERS = 20 * sharded.DIM
    model.save(folder / f"worker_{index}.keras")
    np.savez(
        folder / f"worker_{index}.npz", losses=losses, ids=ids, scores=scores
    )


if __name__ == "__main__":
    main(int(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3:])
