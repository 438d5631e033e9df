"""Making the weights of an output layer, where its rows are to lie."""

import contextlib
from collections.abc import Sequence

import keras
import tensorflow as tf

from tfxclass.h5_config import H5Config
from tfxclass.keras_internals import untrack
from tfxclass.layers.weight_spec import WeightSpec
from tfxclass.ops import placement
from tfxclass.rows import class_matrix
from tfxclass.rows.rounded_initializer import Rounded
from tfxclass.types import Shape


class HeadWeights(H5Config, keras.layers.Layer):
    """Base of `OutputHead`: weights are made as `weight_specs` declares them.

    A subclass gives `weight_specs` and `take_weights`, and has the attributes
    `kernel_initializer`, `kernel_dtype` and `seed`.
    """

    # Whether rows lie elsewhere than the step: on a server, or the host.
    _is_apart = False

    def check_features(self, shape: Shape) -> None:
        """Raises ValueError unless `shape` is that of features."""
        if len(shape) < 2 or shape[-1] is None:
            raise ValueError(
                "The features of a head must have shape [batch, dim], or "
                "[batch, time, dim], with a known dim. Received: "
                f"{tuple(shape)}."
            )

    def weight_specs(self, dim: int) -> list[WeightSpec]:
        """The weights of the head for features of width `dim`.

        Returns:
            List of `WeightSpec`; weights are made in this order.
        """
        raise NotImplementedError

    def device_specs(self, dim: int) -> list[WeightSpec]:
        """As `weight_specs`, of the part that lies on one device."""
        return self.weight_specs(dim)

    def build(self, input_shape: Shape) -> None:
        self.check_features(input_shape)
        made = {}
        shared = self.shared_rows(input_shape[-1])
        for spec in self.weight_specs(input_shape[-1]):
            if spec.name in shared:
                made[spec.name] = shared[spec.name]
            elif spec.is_rows:
                made[spec.name] = self.add_rows(spec, made.get("kernel"))
            else:
                made[spec.name] = self._add(spec, made.get("kernel"))
        #: The weights by name.
        self.made = made
        self.take_weights(made)
        for variable in shared.values():
            untrack(self, variable)

    def shared_rows(self, dim: int) -> dict[str, keras.Variable]:
        """Weights that are another layer's, which saves them, by name."""
        return {}

    def take_weights(self, made: dict[str, keras.Variable]) -> None:
        """Sets the attributes of weights, a dict by name."""
        raise NotImplementedError

    def add_rows(
        self, spec: WeightSpec, kernel: keras.Variable | None = None
    ) -> keras.Variable:
        """A weight whose rows are gathered, beside `kernel` if given."""
        servers = tf.distribute.ParameterServerStrategy
        self._is_apart = isinstance(tf.distribute.get_strategy(), servers)
        if self._is_on_host():
            self._is_apart = True
            with tf.device("CPU:0"):
                variable = self._add(spec, kernel)
        else:
            variable = self._add(spec, kernel)
        if len(spec.shape) == 2:
            class_matrix.register(variable, self.seed)
        return variable

    def _is_on_host(self):
        """Whether rows lie in host memory while the step is elsewhere."""
        reason = placement.why_not_on_gpu(self)
        if reason is None:
            return False
        placement.warn_once(reason)
        return not tf.distribute.has_strategy()

    def _add(self, spec, kernel):
        initializer = spec.initializer
        if spec.dtype == "bfloat16":
            initializer = Rounded(keras.initializers.get(initializer))
        try:
            # Out of autocast: a cast would copy every row a step.
            with self._beside(kernel):
                return self.add_weight(
                    name=spec.name,
                    shape=spec.shape,
                    initializer=initializer,
                    dtype=spec.dtype,
                    trainable=spec.trainable,
                    autocast=False,
                )
        except tf.errors.OpError as error:
            # Workers send each other what a variable begins with. The first
            # one that ends leaves the others without an answer.
            if "Collective ops is aborted" not in str(error):
                raise
            raise ValueError(
                "All workers have to make the same head. Received: "
                f"`{spec.name}` of shape {list(spec.shape)} for num_classes="
                f"{self.num_classes} here, another shape in another worker, "
                "or no answer from it."
            ) from error

    def kernel_specs(
        self, sizes: Sequence[int], widths: Sequence[int]
    ) -> list[WeightSpec]:
        """Of matrices `[sizes[i], widths[i]]`, which `take_kernels` takes.

        And of the offsets of their classes, where some were removed.
        """
        kernels = [
            WeightSpec(
                f"kernel_{i}", shape, self.kernel_initializer, self.kernel_dtype
            )
            for i, shape in enumerate(zip(sizes, widths, strict=True))
        ]
        names = [f"offsets_{i}" for i in range(len(kernels))]
        return kernels + self.offset_specs(sizes, names)

    def take_kernels(self, made: dict[str, keras.Variable]) -> None:
        """Sets `kernels`, a list, and `offsets`, as many or None."""
        self.kernels = [v for k, v in made.items() if k.startswith("kernel_")]
        offsets = [v for k, v in made.items() if k.startswith("offsets_")]
        self.offsets = offsets or None

    def _beside(self, kernel):
        """Scope of variables that are computed with beside `kernel`."""
        if kernel is None or not self._is_apart:
            return contextlib.nullcontext()
        if not tf.distribute.has_strategy():
            return placement.beside(kernel)
        strategy = tf.distribute.get_strategy()
        return strategy.extended.colocate_vars_with(kernel.value)

    @property
    def rows_device(self) -> str | None:
        """Where all rows are computed with, str; None is with the step."""
        kernel = getattr(self, "kernel", None)
        if kernel is None or not self._is_apart:
            return None
        return placement.device_of(kernel)
