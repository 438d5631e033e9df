"""Whether a model belongs to its strategy, and is the same in all workers."""

import hashlib
import json
import os

import keras
import numpy as np
import tensorflow as tf

from tfxclass.core.scopes import check_made_within

_OF_CLUSTERS = (
    tf.distribute.MultiWorkerMirroredStrategy,
    tf.distribute.ParameterServerStrategy,
)


def check_workers_agree(model: keras.Model) -> None:
    """Raises ValueError in every worker unless their models are equal.

    Compares names, shapes and dtypes of all variables.
    """
    strategy = model.distribute_strategy
    if strategy.num_replicas_in_sync == 1:
        return
    lines = [f"{v.path} {tuple(v.shape)} {v.dtype}" for v in model.weights]
    digest = hashlib.sha256("\n".join(lines).encode()).digest()[:8]
    ours = np.frombuffer(digest, np.int64)

    @tf.function
    def all_digests():
        def gather():
            context = tf.distribute.get_replica_context()
            return context.all_gather(tf.constant(ours), axis=0)

        return strategy.run(gather)

    found = strategy.experimental_local_results(all_digests())[0].numpy()
    others = np.flatnonzero(found != ours)
    if len(others):
        raise ValueError(
            "All workers have to train the same model. Received: other "
            f"variables on replicas {others.tolist()} than here, where they "
            "are:\n" + "\n".join(lines)
        )


def check_strategy(model: keras.Model) -> None:
    """Raises ValueError unless `model` was made within its strategy's scope."""
    strategy = model.distribute_strategy
    check_made_within(strategy, [*model.weights, model.optimizer.iterations])
    workers = _workers_of_cluster()
    if workers > 1 and not isinstance(strategy, _OF_CLUSTERS):
        raise ValueError(
            f"TF_CONFIG names {workers} workers, but `model` was made under "
            f"{type(strategy).__name__}, which knows of none of them. Make "
            "and compile it within the scope of a "
            "tf.distribute.MultiWorkerMirroredStrategy or "
            "ParameterServerStrategy."
        )


def _workers_of_cluster():
    config = json.loads(os.environ.get("TF_CONFIG") or "{}")
    cluster = config.get("cluster", {})
    return sum(len(cluster.get(kind, [])) for kind in ("chief", "worker"))
