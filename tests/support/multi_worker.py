"""A worker that trains with `tfxclass.distribute.fit`; by test_distribute.py.

    python -m tests.support.multi_worker
        RANK PORTS FOLDER [--arrays] [--kill STEP]

PORTS, one a worker, are separated by commas; one worker trains on one device.
Writes FOLDER/result-RANK.npz; with --kill it kills itself after that step.
"""

import argparse
import json
import os
import signal

import keras
import numpy as np
import tensorflow as tf

import tfxclass

CLASSES, DIM, BATCH, EPOCHS = 60, 8, 16, 3


def parse_arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("rank", type=int)
    parser.add_argument("ports")
    parser.add_argument("folder")
    parser.add_argument("--classes", type=int, default=CLASSES)
    parser.add_argument("--kill", type=int)
    parser.add_argument("--dropout", type=float, default=0.0)
    parser.add_argument("--arrays", action="store_true")
    return parser.parse_args()


def make_strategy(rank, ports):
    if len(ports) == 1:
        return tf.distribute.OneDeviceStrategy("CPU:0")
    workers = [f"localhost:{port}" for port in ports]
    os.environ["TF_CONFIG"] = json.dumps(
        {
            "cluster": {"worker": workers},
            "task": {"type": "worker", "index": rank},
        }
    )
    return tf.distribute.MultiWorkerMirroredStrategy()


def make_model(classes, dropout):
    head = tfxclass.layers.SelectiveSoftmax(
        classes,
        sampler=tfxclass.samplers.HashingForestSampler(
            30, num_trees=5, leaf_size=5, rebuild_interval=2, seed=1
        ),
        seed=1,
    )
    model = keras.Sequential(
        [
            keras.Input([DIM]),
            keras.layers.Dense(DIM),
            keras.layers.Dropout(dropout, seed=2),
            head,
        ]
    )
    model.compile(
        tfxclass.optimizers.LazyAdam(0.02),
        loss=head.loss,
        metrics=[tfxclass.metrics.TopKAccuracy(head, 5)],
    )
    return model


def make_data(as_arrays):
    """Four whole batches and a part of one, in an order of its own a pass."""
    random = np.random.default_rng(0)
    rows = 4 * BATCH + 6
    x = random.normal(size=(rows, DIM)).astype(np.float32)
    y = random.integers(0, CLASSES, rows)
    train = tf.data.Dataset.from_tensor_slices((x, y))
    shuffled = train.shuffle(rows, seed=3).batch(BATCH)
    return (x, y) if as_arrays else shuffled, train.batch(BATCH)


class Kill(keras.callbacks.Callback):
    """Ends the process as a lost machine would."""

    def __init__(self, step):
        super().__init__()
        self.left = step

    def on_train_batch_end(self, batch, logs=None):
        self.left -= 1
        if not self.left:
            os.kill(os.getpid(), signal.SIGKILL)


def main():
    args = parse_arguments()
    strategy = make_strategy(args.rank, args.ports.split(","))
    keras.utils.set_random_seed(1)
    with strategy.scope():
        model = make_model(args.classes, args.dropout)
    train, validation = make_data(args.arrays)
    history = tfxclass.distribute.fit(
        model,
        train,
        epochs=EPOCHS,
        batch_size=BATCH,
        validation_data=validation,
        callbacks=[Kill(args.kill)] if args.kill else None,
        verbose=2,
        checkpoint=os.path.join(args.folder, "states"),
        checkpoint_interval=2,
        log_interval=1,
    ).history
    np.savez(
        os.path.join(args.folder, f"result-{args.rank}.npz"),
        *model.get_weights(),
        *(v.numpy() for v in model.optimizer.variables),
        **history,
    )


if __name__ == "__main__":
    main()
