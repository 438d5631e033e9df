"""A process of a cluster with parameter servers; by test_distribute_ps.py.

    python -m tests.support.parameter_server
        TASK INDEX PORTS FOLDER [--head NAME] ...

PORTS: of the chief, two workers and two parameter servers, by commas. The
chief trains and writes FOLDER/result.npz; the others serve until they are
ended. With --kill the chief kills one of them in its first epoch, with --lean
it trains a step of other heads too.
"""

import argparse
import os

import keras
import numpy as np
import tensorflow as tf

import tfxclass
from tests.support.mixing import MixingSampler
from tfxclass import layers
from tfxclass import samplers

CLASSES, DIM, BATCH, EPOCHS, STEPS = 60, 8, 16, 4, 20
HEADS = {
    "full": lambda: layers.FullSoftmax(CLASSES),
    "forest": lambda: layers.SelectiveSoftmax(
        CLASSES,
        sampler=samplers.HashingForestSampler(
            30, num_trees=5, leaf_size=5, rebuild_interval=2, seed=1
        ),
        seed=1,
    ),
    "auto": lambda: layers.SampledSoftmax(
        CLASSES, sampler=MixingSampler(40, seed=1)
    ),
    # One class more on the first server, than on the second.
    "split": lambda: layers.ShardedSoftmax(
        CLASSES - 1, similarity=layers.Cosine(scale=10), sample_rate=0.7, seed=1
    ),
    "split_forest": lambda: layers.ShardedSoftmax(
        CLASSES - 1,
        samplers.HashingForestSampler(
            50, rebuild_interval=2, leaf_size=5, num_trees=5, seed=1
        ),
        correct_fill=True,
    ),
    "top_k": lambda: layers.NoiseContrastive(
        CLASSES, 30, "top_k", use_bias=True, seed=1
    ),
    "dropmax": lambda: layers.DropMax(
        CLASSES, num_sampled=30, sampler="uniform", use_bias=True, seed=1
    ),
    "hierarchical": lambda: layers.HierarchicalSoftmax(CLASSES, "balanced"),
}
# Rows of an embedding: labels are the words themselves.
TIED = "tied"
# Those whose steps leave the matrix where it is, beside the trained one.
LEAN = ("top_k", "dropmax", "hierarchical")


def parse_arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("task")
    parser.add_argument("index", type=int)
    parser.add_argument("ports")
    parser.add_argument("folder")
    parser.add_argument("--head", default="forest", choices=[*HEADS, TIED])
    parser.add_argument("--lean", action="store_true")
    parser.add_argument("--kill", type=int, help="process to kill in epoch 1")
    return parser.parse_args()


def cluster_of(ports):
    hosts = [f"localhost:{port}" for port in ports.split(",")]
    return {"chief": hosts[:1], "worker": hosts[1:3], "ps": hosts[3:]}


def make_data(head):
    """Each class at a corner of its own: it can be learned."""
    random = np.random.default_rng(0)
    y = random.integers(0, CLASSES - 1, 20 * BATCH)
    x = random.normal(size=(CLASSES, DIM))[y].astype(np.float32)
    if head == TIED:
        x = y[:, np.newaxis]
    data = tf.data.Dataset.from_tensor_slices((x, y))
    return data.shuffle(len(y), seed=1).batch(BATCH), data.batch(BATCH)


class Kill(keras.callbacks.Callback):
    """Counts steps, and kills a process while steps are under way."""

    def __init__(self, pid):
        super().__init__()
        self.pid = pid
        self.steps = 0

    def on_train_batch_end(self, batch, logs=None):
        self.steps += 1
        if self.pid and batch == STEPS // 2:
            os.kill(self.pid, 9)
            self.pid = None


def make_layers(name):
    if name != TIED:
        return [keras.Input([DIM]), HEADS[name]()]
    words = keras.layers.Embedding(CLASSES, DIM)
    words.build()
    head = layers.SampledSoftmax(CLASSES, 40, "uniform", tied_to=words, seed=1)
    pool = keras.layers.GlobalAveragePooling1D()
    return [keras.Input([1], dtype="int64"), words, pool, head]


def make_model(strategy, name):
    with strategy.scope():
        model = keras.Sequential(make_layers(name))
        head = model.layers[-1]
        model.compile(
            tfxclass.optimizers.LazyAdam(
                0.05,
                second_moment="matrix"
                if name in ("auto", "forest")
                else "element",
            ),
            loss=head.loss,
            metrics=[tfxclass.metrics.TopKAccuracy(head, 1)],
        )
    return model


def pulled(model):
    """Ops of a step elsewhere than on the servers that take a matrix."""
    strategy, head = model.distribute_strategy, model.layers[-1]
    batch = tf.TensorSpec([BATCH, DIM]), tf.TensorSpec([BATCH], tf.int64)
    matrices = [v.shape for v in head.weights if len(v.shape) == 2]
    found = []
    for step in (model.train_step, model.test_step):
        run = tf.function(lambda *x, s=step: strategy.run(s, args=(x,)))
        with strategy.scope():
            graph = run.get_concrete_function(*batch).graph
        found += [
            f"{head.name} {step.__name__}: {op.name} on {op.device!r}"
            for op in graph.get_operations()
            if any(x.shape in matrices for x in op.inputs)
            and "/job:ps" not in op.device
        ]
    return found


def train_lean(strategy, data):
    """`pulled` of several heads, each of which takes a step."""
    found = []
    for name in LEAN:
        model = make_model(strategy, name)
        options = {"steps_per_epoch": 1, "validation_steps": 1, "verbose": 0}
        tfxclass.distribute.fit(model, data, validation_data=data, **options)
        found += pulled(model)
    return found


def train(cluster, args):
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
        tf.train.ClusterSpec(cluster), task_type="chief", task_id=0
    )
    strategy = tf.distribute.ParameterServerStrategy(resolver)
    keras.utils.set_random_seed(1)
    model = make_model(strategy, args.head)
    data, validation = make_data(args.head)
    kill = Kill(args.kill)
    history = tfxclass.distribute.fit(
        model,
        data,
        epochs=EPOCHS,
        steps_per_epoch=STEPS,
        validation_data=validation,
        callbacks=[kill],
        verbose=2,
        checkpoint=os.path.join(args.folder, "states"),
        checkpoint_interval=STEPS // 4,
        log_interval=5,
        max_staleness=8,
    ).history
    np.savez(
        os.path.join(args.folder, "result.npz"),
        predicted=model.predict_on_batch(next(iter(validation))[0]),
        best=tfxclass.top_k(model, 3).predict_on_batch(
            next(iter(validation))[0]
        )[0],
        devices=[v.value.device for v in model.trainable_variables],
        steps=kill.steps,
        iterations=model.optimizer.iterations.numpy(),
        pulled=pulled(model) + train_lean(strategy, data) if args.lean else [],
        **history,
    )


def main():
    args = parse_arguments()
    cluster = cluster_of(args.ports)
    if args.task == "chief":
        train(cluster, args)
        return
    server = tf.distribute.Server(
        cluster, job_name=args.task, task_index=args.index, protocol="grpc"
    )
    server.join()


if __name__ == "__main__":
    main()
