"""Adam for dense weights, Adagrad for class vectors and embeddings."""

import math
import numbers
from typing import Any
from typing import NamedTuple

import keras
import tensorflow as tf

from tfxclass import shards as shards_lib
from tfxclass.keras_internals import adam_slots
from tfxclass.keras_internals import tf_variable
from tfxclass.ops import placement
from tfxclass.ops import row_update
from tfxclass.ops.exact_softmax import ClassGradient
from tfxclass.optimizers.adam import LazyAdam
from tfxclass.rows import class_matrix
from tfxclass.types import Config
from tfxclass.types import Initializer
from tfxclass.types import Variable


class RowRule(NamedTuple):
    """Numbers of Adagrad's rule, chosen by `benchmarks.defaults`.

    Attributes:
        rate: float, the learning rate relative to `learning_rate`.
        offset: float, what is added to the accumulator, relative to the scale
            of the gradients so far.
    """

    rate: float
    offset: float


#: With cosine similarity the first steps decide the length of a class vector,
#: which divides later gradients. A large offset keeps later steps short.
RULES = {"dot": RowRule(500.0, 0.2), "cosine": RowRule(300.0, 10.0)}
EMBEDDING_RULE = RowRule(200.0, 4.0)
#: Rates of rows are multiplied by it where class vectors are trained already:
#: Adagrad's first steps are its longest, and would undo the training.
TRAINED_FACTOR = 0.05


@keras.saving.register_keras_serializable(package="tfxclass")
class HeadAdam(LazyAdam):
    """The default optimizer for a model that ends in a head of tfxclass.

    Adam updates the dense weights of the encoder. Adagrad updates the rows that
    a step touches: class vectors, and the embeddings of words or items. Its
    steps get shorter the more a row has moved. All follow one `learning_rate`.
    The learning rates of rows are fixed multiples of it, because Adagrad needs
    larger ones than Adam.

    Why not Adam for rows? Adam divides a gradient by the size of recent
    gradients of the same element. A sampled negative whose probability is tiny
    then moves as far as the class vector of a label. A rare word has few steps,
    each as long as the steps of a frequent word. Why not plain Adagrad? Its
    first steps depend on `initial_accumulator_value`, and the best value
    depends on the batch size and the scale of the features. Here it is
    measured:

        accumulator += gradient ** 2
        row -= rate * gradient / sqrt(accumulator + offset * scale)

    `scale` is the mean square of the gradient, over the rows that a step
    touches. For class vectors it is averaged over all steps so far.

    | rows | rate | offset |
    | --- | --- | --- |
    | class vectors, `similarity="dot"` | 500 `learning_rate` | 0.2 |
    | class vectors, `similarity="cosine"` | 300 `learning_rate` | 10 |
    | embeddings | 200 `learning_rate` | 4 |

    Adagrad's first steps are its longest. A new optimizer for a model that was
    trained before takes a twentieth of these rates. The same holds for a model
    whose class vectors come from data (`tfxclass.initialize_classes`). The
    optimizer detects both cases when it is built: class vectors are then over
    1.3 times as large as their initializer makes them. Sharded class vectors
    always count as new.

    The optimizer state of class vectors takes 4 bytes for each number, where
    Adam needs 8. `docs/choosing.md` compares this optimizer with others on many
    tasks.

    Args:
        learning_rate: float or a schedule of `keras.optimizers.schedules`.
            Defaults to 1e-3.
        class_rate: float > 0 or None, the learning rate of class vectors
            relative to `learning_rate`. None (default) is as above.
        embedding_rate: float > 0, None or `"adam"`, the learning rate of
            embeddings relative to `learning_rate`. None (default) is as above.
            With `"adam"`, Adam updates them, as in `LazyAdam`.
        second_moment: str, which numbers share one accumulator of class
            vectors: `"element"` (default), or `"row"` for one float for each
            class vector, which takes almost no memory.
        **kwargs: as for `LazyAdam`. Clipping, weight decay, `l2`, loss scale
            and gradient accumulation apply to class vectors as well.
            `amsgrad=True` and `slot_dtype` are not supported.

    Raises:
        ValueError: if an argument is out of range.

    Example:

    ```python
    head = tfxclass.layers.SampledSoftmax(100_000, num_sampled=1024)
    model = keras.Sequential([keras.layers.Dense(32), head])
    model.compile(tfxclass.optimizers.HeadAdam(), loss=head.loss)
    model.fit(np.ones([32, 20]), np.arange(32), verbose=0)
    ```

    References:

    - [Kingma and Ba, 2014](https://arxiv.org/abs/1412.6980) (Adam)
    - [Duchi et al., 2011](https://jmlr.org/papers/v12/duchi11a.html) (Adagrad)
    """

    SECOND_MOMENTS = ("element", "row")
    SLOT_DTYPES = ("float32",)

    def __init__(
        self,
        learning_rate: Any = 1e-3,
        class_rate: float | None = None,
        embedding_rate: float | str | None = None,
        second_moment: str = "element",
        **kwargs: Any,
    ) -> None:
        _check_rate("class_rate", class_rate)
        if embedding_rate != "adam":
            _check_rate("embedding_rate", embedding_rate, ', or "adam"')
        super().__init__(learning_rate, second_moment=second_moment, **kwargs)
        self.class_rate = class_rate
        self.embedding_rate = embedding_rate

    def _check_arguments(self):
        super()._check_arguments()
        if self.amsgrad:
            raise ValueError(
                "`amsgrad` is not supported: Adagrad's steps of a class vector "
                "only get shorter. Fix: leave it out. Received: amsgrad=True"
            )

    def add_variable_from_reference(
        self,
        reference_variable: Variable,
        name: str | None = None,
        initializer: Initializer = "zeros",
    ) -> keras.Variable | None:
        is_first_moment = name == "momentum"
        if is_first_moment and class_matrix.is_of_head(reference_variable):
            if shards_lib.shards_of(reference_variable) is not None:
                # Each replica takes the scale of its own classes in a step.
                # Keras, too, has None where a variable needs no such state.
                return None
            is_trained = class_matrix.is_trained(reference_variable)
            initializer = keras.initializers.Constant([[0, 0, is_trained]])
        return super().add_variable_from_reference(
            reference_variable, name=name, initializer=initializer
        )

    def _slot_format(self, variable, name):
        if name == "momentum" and class_matrix.is_of_head(variable):
            # In the place of first moments: a sum of scales, their number, and
            # 1 for class vectors that were trained before.
            is_double = tf.as_dtype(variable.dtype) == tf.float64
            return (1, 3), "float64" if is_double else "float32"
        return super()._slot_format(variable, name)

    def _has_own_rule(self, variable):
        return class_matrix.is_of_head(variable)

    def _update_rows(self, variable, ids, grads, learning_rate):
        index = self._index_of(variable)
        matrix = self._built_for[index]
        is_of_head = class_matrix.is_of_head(matrix)
        is_embedding = self.embedding_rate != "adam" and len(matrix.shape) > 1
        if not (is_of_head or is_embedding):
            return super()._update_rows(variable, ids, grads, learning_rate)
        storage = self._storage(index)
        if isinstance(grads, ClassGradient):
            scale = _target_gradient_scale(matrix, grads)
        else:
            grads = tf.cast(grads, storage.slot_dtype)
            wide = tf.float64 if grads.dtype == tf.float64 else tf.float32
            ids, sums = row_update.sum_duplicate_rows(ids, tf.cast(grads, wide))
            grads, scale = tf.cast(sums, grads.dtype), gradient_scale(sums)
        scales, accumulator = adam_slots(self, index)
        if scales is not None and is_of_head:
            scale = _mean_so_far(tf_variable(scales).handle, scale)
        rule = self._rule_of(matrix)
        return row_update.adagrad_update(
            variable.handle,
            tf_variable(accumulator).handle,
            ids,
            grads,
            learning_rate=tf.cast(learning_rate, tf.float64) * rule.rate,
            decay=self._decay(variable, learning_rate),
            # At least so much that a gradient of 0 moves nothing.
            offset=tf.maximum(rule.offset * scale, 1e-30),
            storage=storage,
        )

    def _rule_of(self, matrix):
        """The `RowRule` of class vectors or of an embedding."""
        if not class_matrix.is_of_head(matrix):
            rule, rate = EMBEDDING_RULE, self.embedding_rate
        else:
            is_normalized = class_matrix.of(matrix).is_normalized
            rule = RULES["cosine" if is_normalized else "dot"]
            rate = self.class_rate
        if rate is None:
            rate = rule.rate * self._trained_factor(matrix)
        return rule._replace(rate=rate)

    def _trained_factor(self, matrix):
        """1, or `TRAINED_FACTOR` for class vectors that were trained before.

        An embedding follows the class vectors of its model.
        """
        matrices = filter(class_matrix.is_of_head, self._built_for)
        if class_matrix.is_of_head(matrix):
            matrices = [matrix]
        marks = []
        for each in matrices:
            state = adam_slots(self, self._index_of(each))[0]
            if state is not None:
                state = _read(tf_variable(state).handle, state.dtype)
                marks.append(tf.cast(state[0, 2], tf.float32))
        if not marks:
            return tf.ones([], tf.float64)
        is_trained = tf.reduce_max(tf.stack(marks)) > 0
        factors = tf.constant([1.0, TRAINED_FACTOR], tf.float64)
        return factors[tf.cast(is_trained, tf.int32)]

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "class_rate": self.class_rate,
            "embedding_rate": self.embedding_rate,
        }


def _check_rate(name, rate, others=""):
    is_number = isinstance(rate, numbers.Real)
    if rate is not None and not (is_number and 0 < rate < math.inf):
        raise ValueError(
            f"`{name}` must be a finite number > 0, or None{others}. Received: "
            f"{rate!r}"
        )


def gradient_scale(rows: tf.Tensor) -> tf.Tensor:
    """The mean square of gradients, scalar; 0 without any.

    Args:
        rows: `[n, ...]`, gradients of distinct rows. Rows of zeros and rows
            with a NaN or an infinity are ignored.
    """
    squares = tf.reduce_mean(tf.square(rows), tf.range(1, tf.rank(rows)))
    counts = (squares > 0) & tf.math.is_finite(squares)
    total = tf.reduce_sum(tf.where(counts, squares, tf.zeros_like(squares)))
    number = tf.cast(tf.math.count_nonzero(counts), squares.dtype)
    return tf.math.divide_no_nan(total, number)


def _mean_so_far(handle, scale):
    """The mean of the scales so far, whose sum and number are in `handle`."""
    old = _read(handle, scale.dtype)
    counts = tf.cast(scale > 0, scale.dtype)
    new = old + tf.stack([scale, counts, tf.zeros_like(scale)])[tf.newaxis]
    tf.raw_ops.AssignVariableOp(resource=handle, value=new)
    return tf.math.divide_no_nan(new[0, 0], new[0, 1])


def _read(handle, dtype):
    return tf.raw_ops.ReadVariableOp(resource=handle, dtype=dtype)


def _target_gradient_scale(matrix, gradient):
    """`gradient_scale` of the labels' class vectors in an exact loss.

    The gradient of all class vectors is computed later, class by class. Here
    is the part of it that each label's own rows contribute.
    """
    is_label = gradient.ids >= 0
    ids = tf.reshape(tf.maximum(gradient.ids, 0), [-1])
    factors = tf.where(is_label, gradient.target_grads, 0.0)
    rows = factors[..., tf.newaxis] * gradient.queries[:, tf.newaxis, :]
    rows = tf.reshape(rows, [tf.size(ids), gradient.queries.shape[-1]])
    if gradient.epsilon > 0:
        # The derivative of a normalized class vector.
        vectors = tf.cast(placement.gather(matrix, ids), tf.float32)
        squared = tf.reduce_sum(tf.square(vectors), axis=1, keepdims=True)
        inverse = tf.math.rsqrt(tf.maximum(squared, gradient.epsilon))
        unit = vectors * inverse
        along = tf.reduce_sum(rows * unit, axis=1, keepdims=True)
        rows = (rows - along * unit) * inverse
    return gradient_scale(row_update.sum_duplicate_rows(ids, rows)[1])


# For `compile("HeadAdam")`: Keras looks up a name as it is given.
keras.saving.get_custom_objects()["HeadAdam"] = HeadAdam
