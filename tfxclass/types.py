"""Names for the types of arguments that many functions take."""

import os
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import MutableMapping
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import ArrayLike

#: Ids and scores of the best classes, `[rows, k]` each.
Answers = tuple[tf.Tensor, tf.Tensor]
#: Numbers in memory, as TensorFlow's functions take them.
Array = np.ndarray | tf.Tensor
#: Texts by the name of their column, UTF-8.
Columns = dict[str, list[bytes]]
#: What `get_config` returns and `from_config` takes.
Config = dict[str, Any]
#: Batches, or a function that takes the number of an epoch and returns them.
Data = tf.data.Dataset | Callable[[int], tf.data.Dataset]
#: Gradient of a variable; `tf.IndexedSlices` has only touched rows.
Gradient = tf.Tensor | tf.IndexedSlices
#: As `keras.initializers.get` takes it.
Initializer = str | keras.initializers.Initializer | Callable[..., tf.Tensor]
#: Class ids, `[batch, ...]`; see `tfxclass.losses.as_targets`.
Labels = ArrayLike | tf.Tensor | tf.RaggedTensor
#: As Keras' optimizers take it.
LearningRate = float | keras.optimizers.schedules.LearningRateSchedule
#: Logits of the labels to those with a margin taken off.
Margin = Callable[[tf.Tensor], tf.Tensor]
Path = str | os.PathLike
#: A number, or a tensor of shape [].
Scalar = int | tf.Tensor
#: Shape of a tensor; None is any size.
Shape = Sequence[int | None]
#: What `save_own_variables` fills.
Store = MutableMapping[str, Any]
#: Of each text its tags, or the one.
Tags = Iterable[str | int | Iterable[str | int]]
#: A list, or such by the name of their column.
Texts = Iterable[str | bytes] | Mapping[str, Iterable[str | bytes]]
Variable = keras.Variable | tf.Variable
