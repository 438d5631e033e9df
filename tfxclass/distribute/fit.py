"""`fit` for every strategy of `tf.distribute`."""

import os
from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from tfxclass.checks import check_optional_int
from tfxclass.checks import check_positive_int
from tfxclass.checks import check_value
from tfxclass.data.batches import labelled_arrays
from tfxclass.data.batches import without_autotune
from tfxclass.distribute.asynchronous import AsynchronousSteps
from tfxclass.distribute.asynchronous import of_epoch
from tfxclass.distribute.checkpoint import Checkpoint
from tfxclass.distribute.job import Job
from tfxclass.distribute.job import known_length
from tfxclass.distribute.synchronous import SynchronousSteps
from tfxclass.ops.placement import check_made_within
from tfxclass.rows import class_matrix
from tfxclass.types import Data
from tfxclass.types import Path

# Seed for arrays: equal in all workers, and in each start of a job.
_SEED = 0
_SERVERS = tf.distribute.ParameterServerStrategy
_OF_CLUSTERS = tf.distribute.MultiWorkerMirroredStrategy, _SERVERS


def fit(
    model: keras.Model,
    dataset: Data,
    epochs: int = 1,
    batch_size: int = 32,
    shuffle: bool = True,
    steps_per_epoch: int | None = None,
    validation_data: Data | None = None,
    validation_steps: int | None = None,
    callbacks: Sequence[keras.callbacks.Callback] | None = None,
    verbose: str | int = "auto",
    checkpoint: Path | None = None,
    checkpoint_interval: int | None = None,
    log_interval: int = 10,
    max_staleness: int = 64,
) -> keras.callbacks.History:
    """Trains a compiled Keras model under the strategy it was made in.

    Use it with `MultiWorkerMirroredStrategy` and `ParameterServerStrategy`,
    where Keras' own `fit` fails (keras #20585 and #18624).

    With `MultiWorkerMirroredStrategy`, every worker calls this function with
    the same arguments. Workers read their part of the data (`tf.data`'s
    auto-sharding), and batches are global batches. A job that is started again
    with the same `checkpoint` continues where the last state was written, bit
    for bit if the data come in the same order: shuffle with a seed, and give
    `dataset` and `validation_data` shuffles of their own.

    With `ParameterServerStrategy`, the coordinator calls this function. The
    class matrix stays in the memory of the servers, whose processes have to
    import tfxclass. With a sampler, or a sampled `ShardedSoftmax`, a step
    fetches the sampled class vectors and sends their gradients back. The paths
    of a `HierarchicalSoftmax` are computed on the server that holds them. Other
    heads send whole matrices in each step. Evaluation and `top_k` run on the
    servers, except for heads with matrices of different widths. Each of n
    workers takes its own steps, on every n-th batch. If one is lost, the others
    take its place.

    Args:
        model: compiled `keras.Model`, made within `strategy.scope()`.
        dataset: training data. A `tf.data.Dataset` of `(x, y)` in global
            batches, a function that takes the number of an epoch and returns
            one, or arrays `(x, y)` or `(x, y, sample_weight)`, which every
            worker holds.
        epochs: int, the number of the last epoch.
        batch_size: int, number of examples in a global batch of arrays.
        shuffle: bool, whether arrays come in a new order in each epoch. The
            order is the same in all workers and in each start.
        steps_per_epoch: int, or None for all of the data. With it an epoch
            continues where the last one ended, and the data start again at
            their end. A function of the epoch gives each epoch its own data.
        validation_data: as `dataset`. It is evaluated after each epoch.
        validation_steps: int, or None for all of it.
        callbacks: list of `keras.callbacks.Callback`. They run in every worker.
            Use those that write files in the first worker only.
        verbose: 0, 1 (progress bar) or 2 (one line for each epoch). `"auto"` is
            1 in the first worker and 0 in the others.
        checkpoint: str, folder that all workers can access, or None.
        checkpoint_interval: int, steps between two saved states. A state is
            also saved at the end of each epoch and after `stop_training`.
        log_interval: int, steps between two readings of the metrics, for which
            the workers synchronize.
        max_staleness: int, for parameter servers: the coordinator waits for all
            scheduled steps after so many. Other workers make fewer updates
            between a step's reading of the weights and its update.

    Returns:
        `keras.callbacks.History`, of the epochs since the first start.

    Raises:
        ValueError: if an argument is out of range, or the model was made
            outside of the strategy.
        RuntimeError: if a worker or a parameter server was lost.

    Example:

    ```python
    strategy = tf.distribute.MirroredStrategy(["CPU:0"])
    with strategy.scope():
        head = tfxclass.layers.FullSoftmax(100)
        model = keras.Sequential([keras.Input([20]), head])
        model.compile(tfxclass.optimizers.LazyAdam(), loss=head.loss)
    x, y = np.ones([64, 20], "float32"), np.arange(64)
    tfxclass.distribute.fit(model, (x, y), batch_size=32, verbose=0)
    ```
    """
    epochs = check_positive_int("epochs", epochs)
    log_interval = check_positive_int("log_interval", log_interval)
    max_staleness = check_positive_int("max_staleness", max_staleness)
    check_optional_int("steps_per_epoch", steps_per_epoch)
    check_optional_int("validation_steps", validation_steps)
    check_optional_int("checkpoint_interval", checkpoint_interval)
    _check_model(model)
    if checkpoint_interval is not None and checkpoint is None:
        raise ValueError(
            "`checkpoint_interval` needs `checkpoint`, a folder. "
            f"Received: checkpoint_interval={checkpoint_interval}"
        )
    is_continued = steps_per_epoch is not None and not callable(dataset)
    dataset = as_datasets("dataset", dataset, batch_size, shuffle)
    steps: SynchronousSteps | AsynchronousSteps
    if isinstance(model.distribute_strategy, _SERVERS):
        steps = AsynchronousSteps(model, max_staleness)
        steps_per_epoch = steps_per_epoch or known_length(dataset)
        check_value(
            "steps_per_epoch",
            steps_per_epoch,
            steps_per_epoch is not None,
            "given with servers and data of unknown length",
        )
    else:
        steps = SynchronousSteps(model)
    validation = saved = None
    if validation_data is not None:
        given = "validation_data", validation_data, batch_size, False
        validation = steps.evaluation(as_datasets(*given)), validation_steps
    _build(model, dataset)
    if checkpoint is not None:
        saved = Checkpoint(checkpoint, model, steps.is_chief)
    job = Job(
        model,
        steps,
        steps_per_epoch,
        log_interval,
        is_continued,
        validation,
        saved,
        checkpoint_interval,
    )
    try:
        return job.run(dataset, epochs, callbacks, verbose)
    except steps.lost_errors as error:
        last_line = error.message.strip().splitlines()[-1]
        raise RuntimeError(
            f"{steps.lost_message} Start all processes again: with "
            "`checkpoint`, training goes on from the last state. "
            f"TensorFlow says: {last_line}"
        ) from error


def as_datasets(name: str, data: Any, batch_size: int, shuffle: bool) -> Data:
    """`data`, or a dataset of arrays; `shuffle` gives each epoch an order."""
    batch_size = check_positive_int("batch_size", batch_size)
    if isinstance(data, tf.data.Dataset) or callable(data):
        return data
    wanted = (
        "arrays (x, y) or (x, y, sample_weight), a tf.data.Dataset, or a "
        "function that takes the number of an epoch and returns a dataset"
    )
    check_value(name, type(data), isinstance(data, (tuple, list)), wanted)
    arrays = labelled_arrays(name, data)
    arrays = tf.nest.map_structure(tf.convert_to_tensor, arrays)
    rows = tf.nest.flatten(arrays)[0].shape[0]
    order = tf.data.Dataset.range(rows)
    if shuffle:
        order = order.shuffle(rows, seed=_SEED)

    def gather(ids):
        return tf.nest.map_structure(lambda x: tf.gather(x, ids), arrays)

    return without_autotune(order.batch(batch_size).map(gather))


def _check_model(model):
    is_compiled = getattr(model, "compiled", False)
    wanted = "compiled, e.g. with loss=head.loss"
    check_value("model", model, is_compiled, wanted)
    strategy = model.distribute_strategy
    check_made_within(strategy, [*model.weights, model.optimizer.iterations])
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    is_given = os.environ.get("TF_CONFIG")
    cluster = resolver.cluster_spec().as_dict() if is_given else {}
    workers = sum(len(cluster.get(kind, [])) for kind in ("chief", "worker"))
    if workers > 1 and not isinstance(strategy, _OF_CLUSTERS):
        raise ValueError(
            f"TF_CONFIG names {workers} workers. Fix: make and compile `model` "
            "within the scope of a MultiWorkerMirroredStrategy or "
            "ParameterServerStrategy. Received: a model of a "
            f"{type(strategy).__name__}"
        )


def _build(model, dataset):
    """Builds a model that has not seen its inputs, and its optimizer."""
    with model.distribute_strategy.scope():
        if not model.built:
            inputs = of_epoch(dataset, 0).element_spec[0]
            model.build(tf.nest.map_structure(lambda s: s.shape, inputs))
        model.optimizer.build(model.trainable_variables)
    class_matrix.check_rounded(model.trainable_variables, model.optimizer)
