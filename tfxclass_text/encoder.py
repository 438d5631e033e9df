"""A dense encoder of texts, added to linear scores: training and logits."""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfxclass.layers.class_head import FullSoftmax
from tfxclass.optimizers import LazyAdam
from tfxclass.optimizers import MultiOptimizer
from tfxclass.types import Columns
from tfxclass_text.sparse_rows import SparseRows
from tfxclass_text.tagger_model import inputs_of

_BATCH = 64
# Of the class rows; the encoder's own is the tagger's `learning_rate`.
_HEAD_RATE = 3e-3
_MAX_EPOCHS = 30
_PATIENCE = 2
# What backbones of KerasHub call the vector of a text.
_POOLED = "pooled_output"


def check(encoder: Any, names: list[str]) -> None:
    """Raises ValueError unless texts of these columns can be given to it."""
    if not isinstance(encoder, keras.layers.Layer):
        raise ValueError(
            "`encoder` must be a Keras model or layer, of texts to features "
            f"[batch, dim]. Received: {encoder!r}"
        )
    own = _input_names(encoder)
    if len(own) > 1 and not set(own) <= set(names):
        raise ValueError(
            "Inputs of the encoder must be columns of the texts. Received: "
            f"inputs {own} and columns {names}"
        )


def _input_names(encoder):
    """Names of a functional model's inputs; none for other layers."""
    return [x.name for x in getattr(encoder, "inputs", None) or []]


def features(
    encoder: keras.layers.Layer, inputs: dict[str, Any]
) -> keras.KerasTensor:
    """The encoder's features `[batch, dim]` of columns, strings `[batch]`.

    An encoder with one input is given the column of its name, or else all
    columns, a space between them; a model with several the columns of their
    names; a model without fixed inputs a dict.
    """
    names = _input_names(encoder)
    given: Any = inputs
    if len(names) > 1 and isinstance(encoder.input, dict):
        given = {key: inputs[key] for key in encoder.input}
    elif len(names) > 1:
        given = [inputs[name] for name in names]
    elif names and names[0] in inputs:
        given = inputs[names[0]]
    elif len(inputs) == 1:
        (given,) = inputs.values()
    elif names:
        given = JoinedColumns(name="joined_columns")(list(inputs.values()))
    found = encoder(given)
    found = found[_POOLED] if isinstance(found, dict) else found
    if len(found.shape) != 2 or found.shape[1] is None:
        raise ValueError(
            "The encoder must give features [batch, dim]. Received: shape "
            f"{tuple(found.shape)}"
        )
    return found


@keras.saving.register_keras_serializable("tfxclass")
class JoinedColumns(keras.layers.Layer):
    """Columns of a text as one, a space between them; string `[batch]`."""

    def call(self, columns: list[tf.Tensor]) -> tf.Tensor:
        return tf.strings.join(columns, " ")

    def compute_output_spec(
        self, columns: list[keras.KerasTensor]
    ) -> keras.KerasTensor:
        return keras.KerasTensor(columns[0].shape, dtype="string")


def train(
    encoder: keras.layers.Layer,
    learning_rate: float,
    data: tuple[Columns, SparseRows],
    held: tuple[Columns, SparseRows],
    num_labels: int,
    single_label: bool,
    seed: int,
    say: Callable[[str], None],
) -> tuple[keras.layers.Dense, int]:
    """Trains the encoder in place, with class rows of its own, on texts.

    If a text has one label, the loss is a softmax's, otherwise one vs. rest.
    The result is a Dense layer of logits, and the passes over the texts that
    were best for the held-out ones.
    """
    inputs = inputs_of(data[0])
    head = FullSoftmax(
        num_labels,
        use_bias=True,
        loss="softmax" if single_label else "sigmoid",
        kernel_initializer=keras.initializers.GlorotUniform(seed),
        name="encoder_tags",
    )
    model = keras.Model(inputs, head(features(encoder, inputs)))
    optimizer = LazyAdam(_HEAD_RATE)
    if encoder.trainable_variables:
        optimizer = MultiOptimizer(
            [(keras.optimizers.Adam(learning_rate), encoder), (optimizer, head)]
        )
    model.compile(optimizer, loss=head.loss)
    stop = keras.callbacks.EarlyStopping(
        "val_loss", patience=_PATIENCE, restore_best_weights=True
    )

    def tell(epoch, logs):
        loss = logs["val_loss"]
        say(f"encoder: loss {loss:.4f} of held-out texts, epoch {epoch + 1}")

    told = keras.callbacks.LambdaCallback(on_epoch_end=tell)
    model.fit(
        batches(*data, seed), validation_data=batches(*held), verbose=0,
        epochs=_MAX_EPOCHS, callbacks=[stop, told], shuffle=False,
    )  # fmt: skip
    layer = keras.layers.Dense(num_labels, name="encoder_tags")
    layer.build((None, head.kernel.shape[1]))
    layer.set_weights([np.transpose(head.kernel), np.asarray(head.bias)])
    return layer, stop.best_epoch + 1


def batches(
    columns: Columns, labels: SparseRows, seed: int | None = None
) -> tf.data.Dataset:
    """Columns and padded ids of labels, shuffled with a seed."""
    ids, present = labels.padded()
    ids = np.where(present > 0, ids, -1)
    given = {name: np.array(texts, object) for name, texts in columns.items()}
    data = tf.data.Dataset.from_tensor_slices((given, ids))
    if seed is not None:
        data = data.shuffle(len(ids), seed=seed)
    return data.batch(_BATCH)


def logits_of(
    encoder: keras.layers.Layer,
    layer: keras.layers.Dense,
    held: tuple[Columns, SparseRows],
) -> np.ndarray:
    """float32 `[texts, labels]`."""
    inputs = inputs_of(held[0])
    model = keras.Model(inputs, layer(features(encoder, inputs)))
    found = [model(x, training=False).numpy() for x, _ in batches(*held)]
    return np.concatenate(found)
