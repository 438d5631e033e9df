"""A dense layer on sparse features, with row-sparse gradients."""

from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from tfxclass.checks import check_positive_int
from tfxclass.keras_internals import custom_gradient
from tfxclass.rows.class_matrix import ClassRows
from tfxclass.types import Array
from tfxclass.types import Config
from tfxclass.types import Initializer
from tfxclass.types import Scalar
from tfxclass.types import Shape


@keras.saving.register_keras_serializable("tfxclass")
class SparseDense(keras.layers.Layer):
    """`keras.layers.Dense` for sparse features, given as ids and values.

    Use it as the first layer of a model on bags of words. It computes
    `activation(sum of value * kernel[id] + bias)` over the features of each
    example. With an optimizer of `tfxclass.optimizers`, each training step
    reads and updates only the rows of `kernel` whose features occur in the
    batch. The layer can be exported.

    Args:
        num_features: int, number of features. Ids are below it.
        units: int, width of the output.
        activation: as in `keras.layers.Dense`.
        use_bias: bool, whether a bias is added.
        kernel_initializer: initializer of `kernel`, `[num_features, units]`.
            For examples of norm 1, as after TF-IDF,
            `RandomNormal(units**-0.5)` gives outputs of norm 1.
        bias_initializer: initializer of `bias`, `[units]`.
        **kwargs: arguments of `keras.layers.Layer`.

    Call arguments:
        ids: integers `[batch, n]`.
        values: floats `[batch, n]`. A value of 0 means that there is no
            feature, whatever the id. A repeated id counts each time.

    Output shape:
        `[batch, units]`.

    Example:

    ```python
    ids = keras.Input([None], dtype="int64", name="feature_ids")
    values = keras.Input([None], name="feature_values")
    layer = tfxclass.layers.SparseDense(10_000, 256, "relu")
    hidden = layer(ids, values)
    ```
    """

    def __init__(
        self,
        num_features: int,
        units: int,
        activation: str | Callable[..., Any] | None = None,
        use_bias: bool = True,
        kernel_initializer: Initializer = "glorot_uniform",
        bias_initializer: Initializer = "zeros",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.num_features = check_positive_int("num_features", num_features)
        self.units = check_positive_int("units", units)
        self.activation = keras.activations.get(activation)
        self.use_bias = use_bias
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.bias_initializer = keras.initializers.get(bias_initializer)
        # tf.unique and the sparse products have no XLA kernels.
        self.supports_jit = False

    def build(self, ids_shape: Shape, values_shape: Shape) -> None:
        if len(ids_shape) != 2 or len(values_shape) != 2:
            raise ValueError(
                "`ids` and `values` must have shape [batch, n]. Received: "
                f"shapes {tuple(ids_shape)} and {tuple(values_shape)}."
            )
        # float32 and out of autocast, as the kernel of a head.
        self.kernel = self.add_weight(
            name="kernel",
            shape=(self.num_features, self.units),
            initializer=self.kernel_initializer,
            dtype="float32",
            autocast=False,
        )
        self.bias = None
        if self.use_bias:
            self.bias = self.add_weight(
                name="bias",
                shape=(self.units,),
                initializer=self.bias_initializer,
            )

    def call(self, ids: tf.Tensor, values: tf.Tensor) -> tf.Tensor:
        dtype = tf.as_dtype(ids.dtype)
        if not dtype.is_integer:
            raise ValueError(
                f"`ids` must be integers. Received: dtype={dtype.name}. Fix: "
                'give its keras.Input a dtype="int64".'
            )
        values = tf.cast(values, tf.float32)
        where = tf.where(values != 0)
        present, columns = tf.unique(tf.gather_nd(ids, where), tf.int64)
        rows, _ = ClassRows(self.kernel).gather(present)
        batch = tf.shape(ids, tf.int64)[0]
        outputs = sparse_product(
            tf.stack([where[:, 0], columns], axis=1),
            tf.gather_nd(values, where),
            # TensorFlow's sparse product divides by the number of rows.
            tf.maximum(batch, 1),
            rows,
        )
        outputs = tf.cast(outputs[:batch], self.compute_dtype)
        if self.bias is not None:
            outputs += self.bias
        return self.activation(outputs)

    def compute_output_shape(
        self, ids_shape: Shape, values_shape: Shape
    ) -> Shape:
        return (ids_shape[0], self.units)

    def get_config(self) -> Config:
        serialize = keras.initializers.serialize
        return {
            **super().get_config(),
            "num_features": self.num_features,
            "units": self.units,
            "activation": keras.activations.serialize(self.activation),
            "use_bias": self.use_bias,
            "kernel_initializer": serialize(self.kernel_initializer),
            "bias_initializer": serialize(self.bias_initializer),
        }


def sparse_product(
    places: Array, values: Array, num_rows: Scalar, rows: tf.Tensor
) -> tf.Tensor:
    """The sparse matrix of `values` at `places` times `rows`.

    `tf.sparse.sparse_dense_matmul` takes three times as long (measured).
    """
    shape = tf.stack([num_rows, tf.shape(rows, tf.int64)[0]])

    def matrix_of(values):
        return tf.raw_ops.SparseTensorToCSRSparseMatrix(
            indices=places, values=values, dense_shape=shape
        )

    @custom_gradient
    def product(values, rows):

        def grad(upstream):
            # Pruned from a tf.function if nobody asks for it.
            own = tf.gather(rows, places[:, 1])
            products = tf.gather(upstream, places[:, 0]) * own
            values_grad = tf.reduce_sum(products, axis=1)
            # The matrix is made again: a SavedModel holds this function, and
            # it may not capture a variant. `transpose_a=True` would add up
            # its terms in the order in which threads finish, and takes seven
            # times as long.
            transposed = tf.raw_ops.SparseMatrixTranspose(
                input=matrix_of(values), conjugate=False, type=tf.float32
            )
            rows_grad = tf.raw_ops.SparseMatrixMatMul(a=transposed, b=upstream)
            return values_grad, rows_grad

        return tf.raw_ops.SparseMatrixMatMul(a=matrix_of(values), b=rows), grad

    outputs = product(values, rows)
    return tf.ensure_shape(outputs, [None, rows.shape[1]])
