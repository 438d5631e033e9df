"""A step of class-parallel softmax on logical devices, and what crosses.

    python benchmarks/sharded.py [num_classes]

Batch 256, 128 dimensions, Adam. The devices share the cores of one processor,
so times tell the overhead only: all replicas together do the work of one.
`replica_mb` is the memory of the variables on a replica. `received_kb` is what
a replica gets from the others in a step, counted from the tensors that are
exchanged when the step is traced; `dense_kb` is what an all-reduce of the
matrix's gradient would bring it (a ring: 2 (n - 1) / n of the matrix).
"""

import measure

BATCH, DIM, RATE = 256, 128, 0.1
METHODS = {
    "full, one device": 1,
    "sharded, one device": 1,
    "sharded, 2 replicas": 2,
    "sharded, 4 replicas": 4,
    "sharded at rate 0.1, one device": 1,
    "sharded at rate 0.1, 4 replicas": 4,
    "full, mirrored on 2": 2,
}


def count_received(exchange):
    """Makes batches count the bytes that a replica receives; a dict."""
    received = {"bytes": 0}

    def note(batch, sent):
        if batch.shard == 0:
            others = batch.shards.count - 1
            size = sent.shape.num_elements() * sent.dtype.size
            received["bytes"] += others * size

    kind = exchange.MirroredBatch
    gather, all_gather, reduce_scatter = (
        kind.gather,
        kind.all_gather,
        kind.reduce_scatter,
    )

    def counted_gather(batch, x):
        note(batch, x)
        return gather(batch, x)

    def counted_from_all(batch, values):
        note(batch, values[0])
        return all_gather(batch, values)

    def counted_sum_own(batch, x):
        own = reduce_scatter(batch, x)
        note(batch, own)
        return own

    kind.gather, kind.all_gather = counted_gather, counted_from_all
    kind.reduce_scatter = counted_sum_own
    return received


def make_step(strategy, head, num_classes):
    import keras
    import numpy as np
    import tensorflow as tf

    import tfxclass

    model = keras.Sequential([keras.Input([DIM]), keras.layers.Dense(DIM)])
    head.build((None, DIM))
    weights = [*model.trainable_variables, *head.trainable_variables]
    optimizer = tfxclass.optimizers.LazyAdam(1e-3)
    optimizer.build(weights)
    random = np.random.default_rng(0)
    x = random.normal(size=(BATCH, DIM)).astype(np.float32)
    y = random.integers(0, num_classes, BATCH)
    replicas = strategy.num_replicas_in_sync

    def part(array):
        parts = [tf.constant(p) for p in np.split(array, replicas)]
        return strategy.experimental_distribute_values_from_function(
            lambda context: parts[context.replica_id_in_sync_group]
        )

    def step(x, y):
        with tf.GradientTape() as tape:
            losses = head.compute_loss(model(x), y, training=True)
            loss = tf.reduce_sum(losses) / BATCH
        optimizer.apply(tape.gradient(loss, weights), weights)

    run = tf.function(lambda x, y: strategy.run(step, args=(x, y)))
    batch = part(x), part(y)
    variables = [*weights, *optimizer.variables]
    return lambda: run(*batch), variables


def child(method, num_classes):
    import tensorflow as tf

    from tfxclass import layers
    from tfxclass.shards import exchange
    from tfxclass.shards import shards

    replicas = METHODS[method]
    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0],
        [tf.config.LogicalDeviceConfiguration()] * replicas,
    )
    strategy = tf.distribute.OneDeviceStrategy("CPU:0")
    if replicas > 1:
        devices = [f"CPU:{i}" for i in range(replicas)]
        strategy = tf.distribute.MirroredStrategy(devices)
    received = count_received(exchange)
    kind = layers.FullSoftmax
    options = {}
    if "sharded" in method:
        kind = layers.ShardedSoftmax
        options["sample_rate"] = RATE if "rate" in method else 1.0
    with strategy.scope():
        head = kind(num_classes, seed=0, **options)
        step, variables = make_step(strategy, head, num_classes)
    found = measure.median_ms(step, 10)
    matrix = 4 * num_classes * DIM
    return {
        **found,
        "replica_mb": max(shards.bytes_per_replica(variables)) / 1e6,
        "received_kb": received["bytes"] / 1e3,
        "dense_kb": 2 * (replicas - 1) / replicas * matrix / 1e3,
        "peak_gb": measure.peak_gb(),
    }


if __name__ == "__main__":
    measure.run_methods("sharded", __file__, child, METHODS, 100_000)
