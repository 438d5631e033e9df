"""Small saved models, checkpoints and taggers, which later versions must load.

    python -m tests.support.saved_files tests/data/saved

writes those of `MODELS` that are not there yet, each with what it answered
(`NAME.npz`). Files that are there stay as they are: they are of the version
that wrote them, and `tests/project/test_saved_files.py` loads them.
"""

import pathlib
import sys

import keras
import numpy as np
import tensorflow as tf

import tfxclass
from tfxclass import layers
from tfxclass import optimizers
from tfxclass import samplers
from tfxclass_text import Tagger

CLASSES, DIM, BATCH, STEPS = 60, 8, 16, 4
HALF = {"kernel_dtype": "bfloat16"}


def tied(optimizer):
    """A model whose class vectors are an embedding's."""
    ids = keras.Input([3], dtype="int64")
    embedding = keras.layers.Embedding(CLASSES, DIM, name="items")
    features = keras.layers.GlobalAveragePooling1D()(embedding(ids))
    head = layers.SampledSoftmax(
        CLASSES, 20, "uniform", tied_to=embedding, name="head"
    )
    return _compiled(keras.Model(ids, head(features)), optimizer)


def with_head(make_head, make_optimizer=lambda: optimizers.LazyAdam(1e-2)):
    """A function that makes a model of one dense layer and a head."""

    def make():
        x = keras.Input([DIM], name="x")
        features = keras.layers.Dense(DIM, "relu")(x)
        model = keras.Model(x, make_head()(features))
        return _compiled(model, make_optimizer())

    return make


def _compiled(model, optimizer):
    model.compile(optimizer, loss=model.layers[-1].loss)
    return model


def _uniform():
    return layers.SampledSoftmax(CLASSES, 20, "uniform", seed=1, name="head")


def _groups():
    """A model with an optimizer for the encoder and one for the head."""
    model = with_head(_uniform)()
    of_encoder, of_head = optimizers.LazyAdam(1e-3), optimizers.LazyAdagrad(0.1)
    _, encoder, head = model.layers
    return _compiled(
        model,
        optimizers.MultiOptimizer([(of_encoder, encoder), (of_head, head)]),
    )


MODELS = {
    "uniform": with_head(_uniform),
    "auto": with_head(lambda: layers.SampledSoftmax(CLASSES, 20)),
    "full": with_head(lambda: layers.FullSoftmax(CLASSES, use_bias=True)),
    "one_vs_rest": with_head(
        lambda: layers.FullSoftmax(CLASSES, use_bias=True, loss="sigmoid")
    ),
    "selective": with_head(
        lambda: layers.SelectiveSoftmax(CLASSES, 20, similarity="cosine")
    ),
    "lsh": with_head(lambda: layers.LSHSoftmax(CLASSES, 20)),
    "dropmax": with_head(lambda: layers.DropMax(CLASSES)),
    "dropmax_random": with_head(
        lambda: layers.DropMax(
            CLASSES,
            "random",
            30,
            "uniform",
            mode_options={"retain_probability": 0.5},
        )
    ),
    "projected": with_head(lambda: layers.ProjectedSoftmax(CLASSES, 5)),
    "adaptive": with_head(lambda: layers.AdaptiveSoftmax(CLASSES, [10, 30])),
    "adaptive_projected": with_head(
        lambda: layers.AdaptiveProjectedSoftmax(
            CLASSES, group_sizes=[20, 40], projection_dims=[6, 3]
        )
    ),
    "differentiated": with_head(
        lambda: layers.DifferentiatedSoftmax(CLASSES, [(20, 5), (40, 3)])
    ),
    "hierarchical": with_head(
        lambda: layers.HierarchicalSoftmax(
            CLASSES, counts=np.arange(CLASSES) + 1
        )
    ),
    "negative_sampling": with_head(
        lambda: layers.NegativeSampling(CLASSES, 20)
    ),
    "noise_contrastive": with_head(
        lambda: layers.NoiseContrastive(CLASSES, 20)
    ),
    "sparsemax": with_head(lambda: layers.Sparsemax(CLASSES)),
    "sharded": with_head(
        lambda: layers.ShardedSoftmax(CLASSES, "uniform", num_sampled=20)
    ),
    "kmeans": with_head(
        lambda: layers.SampledSoftmax(
            CLASSES, sampler=samplers.KMeansSampler(20, num_groups=10, seed=1)
        )
    ),
    "bfloat16": with_head(
        lambda: layers.SampledSoftmax(CLASSES, 20, "uniform", **HALF)
    ),
    "tied": lambda: tied(optimizers.LazyAdam(1e-2)),
    "adamw": with_head(
        _uniform, lambda: optimizers.LazyAdamW(1e-2, weight_decay=0.1)
    ),
    "amsgrad": with_head(
        _uniform, lambda: optimizers.LazyAdam(1e-2, amsgrad=True)
    ),
    "compact_slots": with_head(
        _uniform,
        lambda: optimizers.LazyAdam(
            1e-2, second_moment="row", slot_dtype="bfloat16"
        ),
    ),
    "shared_second_moment": with_head(
        _uniform,
        lambda: optimizers.LazyAdam(1e-2, second_moment="matrix"),
    ),
    "adagrad": with_head(_uniform, lambda: optimizers.LazyAdagrad(0.1)),
    "sgd": with_head(_uniform, lambda: optimizers.LazySGD(0.1, momentum=0.9)),
    "multi_optimizer": _groups,
}


def batch(model):
    """Inputs and labels."""
    random = np.random.default_rng(0)
    if model.inputs[0].dtype == "int64":
        x = random.integers(0, CLASSES, (BATCH, 3))
    else:
        x = random.normal(size=(BATCH, DIM)).astype(np.float32)
    return x, random.integers(0, CLASSES, BATCH)


def train(model):
    """Losses of some steps."""
    x, y = batch(model)
    model.run_eagerly = True  # Tracing takes longer than the steps.
    return [float(model.train_on_batch(x, y)) for _ in range(STEPS)]


def texts():
    """`(texts, tags)`, each text with its tag's word."""
    random = np.random.default_rng(2)
    tags = random.integers(0, 6, 120)
    words = random.integers(0, 30, (120, 4))
    return [
        " ".join([f"tag{tag}", *(f"w{word}" for word in row)])
        for tag, row in zip(tags, words)
    ], [f"class {tag}" for tag in tags]


def answers(model):
    """What a model answers, and how it goes on: arrays by name."""
    x, _ = batch(model)
    outputs = model(x).numpy()
    losses = train(model)
    weights = {
        f"weight_{i}": np.asarray(keras.ops.cast(variable, "float32"))
        for i, variable in enumerate(model.trainable_variables)
    }
    return {"outputs": outputs, "losses": np.array(losses), **weights}


def main(folder):
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for name, make in MODELS.items():
        path = folder / f"{name}.keras"
        if path.exists():
            continue
        keras.utils.set_random_seed(7)
        model = make()
        train(model)
        model.save(path)
        np.savez_compressed(
            folder / f"{name}.npz", **answers(keras.models.load_model(path))
        )
    path = folder / "uniform_checkpoint"
    if not path.exists():
        keras.utils.set_random_seed(7)
        model = MODELS["uniform"]()
        train(model)
        tf.train.Checkpoint(model=model).write(str(path / "of"))
        np.savez_compressed(
            folder / "uniform_checkpoint.npz",
            outputs=model.predict(batch(model)[0], verbose=0),
        )
    path = folder / "export"
    if not path.exists():
        model = keras.models.load_model(folder / "uniform.keras")
        tfxclass.export.saved_model(model, path, top_k=5)
    path = folder / "tagger"
    if not path.exists():
        given, tags = texts()
        tagger = Tagger(effort="fast", seed=1).fit(given, tags)
        tagger.save(path)


if __name__ == "__main__":
    main(sys.argv[1])
