"""The reverse dictionary in one process of a cluster, told by TF_CONFIG.

    TF_CONFIG='{"cluster": ..., "task": ...}' \\
        python -m examples.multi_worker.train [--out FOLDER] [--epochs 2]

A cluster of workers trains together (MultiWorkerMirroredStrategy). One with
"ps" tasks trains asynchronously: the class matrix stays in the memory of the
parameter servers, the "chief" directs the workers (ParameterServerStrategy).
"""

import argparse
import json
import os
import pathlib
import time

import keras
import numpy as np
import tensorflow as tf

import tfxclass
from examples.reverse_dictionary import __main__ as demo
from examples.reverse_dictionary import model as model_lib
from examples.reverse_dictionary import text
from examples.reverse_dictionary import train as train_lib


def parse_arguments(argv=None):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=pathlib.Path, default="models/cluster")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--limit", type=int)
    return parser.parse_args(argv)


def make_strategy(config):
    """The strategy of this process; None where it only serves."""
    cluster, task = config["cluster"], config["task"]
    if "ps" not in cluster:
        return tf.distribute.MultiWorkerMirroredStrategy()
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    if task["type"] == "chief":
        return tf.distribute.ParameterServerStrategy(resolver)
    server = tf.distribute.Server(
        resolver.cluster_spec(),
        job_name=task["type"],
        task_index=task["index"],
        protocol="grpc",
    )
    server.join()


class Data:
    """The task, a model of it on this machine, and the batches."""

    def __init__(self, out, limit):
        self.task = demo.Task(limit)
        columns = {
            kind: text.split_all(texts)
            for kind, texts in self.task.texts.items()
        }
        labels = self.task.labels
        terms, self.idf = text.make_vocabulary([*columns.values()], len(labels))
        out.mkdir(parents=True, exist_ok=True)
        self.vocabulary = vocabulary = out / "vocabulary.txt"
        vocabulary.write_bytes(b"\n".join([*terms, b""]))
        self.serving, self.local = model_lib.make_models(
            vocabulary, self.idf, self.make_head()
        )
        table = self.serving.get_layer("word_ids").table
        self.batches = train_lib.Batches(table, columns, labels)
        self.known = self.idf, terms, self.task.words, self.batches
        begun = model_lib.beginning(*self.known)
        model_lib.set_state(self.serving, begun)

    def make_head(self):
        return model_lib.make_head(len(self.task.words))

    def dataset(self, epoch):
        """Global batches of an epoch, the same in every process."""
        self.batches.random = np.random.default_rng(epoch)
        order = self.batches.random.permutation(len(self.task.labels))
        arrays = self.batches.words(order), self.task.labels[order]
        data = tf.data.Dataset.from_tensor_slices(arrays)
        size = self.batches.batch_size
        return data.batch(size, drop_remainder=True).prefetch(2)


def make_model(data):
    """The model that is trained, in the scope of its strategy."""
    head = data.make_head()
    ids = keras.Input((None,), dtype="int64")
    model = keras.Model(ids, head(model_lib.WordSum(data.idf)(ids)))
    model.compile(
        tfxclass.optimizers.LazyAdam(demo.LEARNING_RATE), loss=head.loss
    )
    copy_trained(data.local, model)
    return model


def copy_trained(source, model):
    """What is trained; a sampler has other weights on parameter servers."""
    weights = source.trainable_weights
    for old, new in zip(model.trainable_weights, weights, strict=True):
        old.assign(keras.ops.convert_to_numpy(new))


def main(argv=None):
    args = parse_arguments(argv)
    config = json.loads(os.environ["TF_CONFIG"])
    strategy = make_strategy(config)
    if strategy is None:
        return
    task = config["task"]
    own = args.out / f"{task['type']}-{task['index']}"
    data = Data(own, args.limit)
    with strategy.scope():
        model = make_model(data)
    begin = time.perf_counter()
    tfxclass.distribute.fit(
        model,
        data.dataset,
        epochs=args.epochs,
        steps_per_epoch=len(data.batches),
        checkpoint=str(args.out / "states"),
        checkpoint_interval=100,
    )
    if (task["type"], task["index"]) in (("chief", 0), ("worker", 0)):
        finish(data, model, args.out, time.perf_counter() - begin)


def finish(data, model, out, seconds):
    """Prints how well it does, and exports it."""
    copy_trained(model, data.local)
    answering, excluded = model_lib.make_answering(
        data.vocabulary,
        data.idf,
        [model_lib.state(data.serving)],
        model_lib.beginning(*data.known, seed=1),
        data.task.usual,
        text.classes_of_terms(data.known[1], data.task.words),
    )
    found = demo.model_ranks(answering, data.task, excluded)
    demo.print_table(data.task, [("SampledSoftmax", seconds, found)])
    folder = tfxclass.export.saved_model(
        answering, out, labels=data.task.words, exclude=excluded
    )
    print(f"\nThe model is in {folder}.")


if __name__ == "__main__":
    main()
