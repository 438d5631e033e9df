"""The inputs of an export, and examples of them."""

import re
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

# Names that Keras gives to inputs without one.
_NAMES_OF_KERAS = re.compile(r"(keras_tensor|input_layer)(_\d+)?")
#: Made-up texts.
TEXTS = np.array([b"sample text", b"", "Zwei W\u00f6rter".encode()], object)
# Size of a dimension of an input that may be of any size.
ANY_SIZE = 8
# The JSON of TensorFlow Serving has no numbers of these types.
_NOT_IN_JSON = (tf.float16, tf.bfloat16)


def served_encoder(encoder: keras.Model) -> keras.Model:
    """`encoder` with a list of inputs, which have names for a client.

    An input that nobody named is called `text` if it has strings, and
    `features` otherwise; several of a kind `features_1`, `features_2`.
    """
    encoder = keras.Model(encoder.inputs, encoder.output)
    inputs, kinds, named = encoder.inputs, [], []
    for x in inputs:
        is_unnamed = _NAMES_OF_KERAS.fullmatch(x.name)
        kind = "text" if x.dtype == "string" else "features"
        kinds.append(kind if is_unnamed else x.name)
    if kinds == [x.name for x in inputs]:
        return encoder
    for i, (x, name) in enumerate(zip(inputs, kinds)):
        if kinds.count(name) > 1:
            name = f"{name}_{kinds[: i + 1].count(name)}"
        named.append(keras.Input(batch_shape=x.shape, dtype=x.dtype, name=name))
    return keras.Model(named, encoder(named))


def spec_of(x: keras.KerasTensor) -> tf.TensorSpec:
    """`tf.TensorSpec` of what is served for a symbolic input."""
    dtype = tf.as_dtype(x.dtype)
    dtype = tf.float32 if dtype in _NOT_IN_JSON else dtype
    return tf.TensorSpec((None, *x.shape[1:]), dtype, name=x.name)


def examples(
    inputs: Sequence[keras.KerasTensor], given: Any = None
) -> list[np.ndarray]:
    """Arrays, one for each input, of the `given` ones; None makes some up."""
    if given is None:
        return [_made_up(x) for x in inputs]
    if isinstance(given, dict):
        names = sorted(x.name for x in inputs)
        if set(given) != set(names):
            raise ValueError(
                f"`example_inputs` must have the model's inputs {names}. "
                f"Received: {sorted(given)}"
            )
        given = [given[x.name] for x in inputs]
    elif not isinstance(given, (list, tuple)) or (
        len(inputs) == 1 and np.ndim(given) == len(inputs[0].shape)
    ):
        given = [given]
    if len(given) != len(inputs):
        raise ValueError(
            "`example_inputs` must be one array for each of the model's "
            f"{len(inputs)} inputs. Received: {len(given)}"
        )
    return [_as_array(x, value) for x, value in zip(inputs, given)]


def _as_array(spec, value):
    dtype = tf.as_dtype(spec.dtype)
    try:
        return tf.convert_to_tensor(value, dtype).numpy()
    except (TypeError, ValueError) as e:
        raise ValueError(
            f"`example_inputs` must be {dtype.name} for input {spec.name!r}. "
            f"Received: {type(value).__name__}: {e}"
        ) from e


def _made_up(spec):
    """Zeros, ones and random numbers; ids stay 0 or 1, likely in range."""
    shape = [ANY_SIZE if size is None else size for size in spec.shape[1:]]
    dtype = tf.as_dtype(spec.dtype)
    if dtype == tf.string:
        return np.stack([np.full(shape, text, object) for text in TEXTS])
    rng = np.random.default_rng(0)
    random = rng.random(shape)
    if not dtype.is_floating:
        random = random > 0.5
    rows = [np.zeros(shape), np.ones(shape), random]
    return np.stack(rows).astype(dtype.as_numpy_dtype)
