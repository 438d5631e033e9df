"""An optimizer for each part of a model."""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

from tfxclass.checks import as_list
from tfxclass.keras_internals import OptimizerHooks
from tfxclass.keras_internals import count_step
from tfxclass.keras_internals import eager_variables
from tfxclass.keras_internals import path_of
from tfxclass.optimizers import row_gradients
from tfxclass.optimizers.variable_groups import Owner
from tfxclass.optimizers.variable_groups import VariableGroups
from tfxclass.rows import class_matrix
from tfxclass.types import Config
from tfxclass.types import Gradient
from tfxclass.types import Scalar
from tfxclass.types import Store
from tfxclass.types import Variable


@keras.saving.register_keras_serializable(package="tfxclass")
class MultiOptimizer(OptimizerHooks, keras.optimizers.Optimizer):
    """One optimizer that gives each part of a model its own optimizer.

    Use it to fine-tune an encoder with a learning rate of 2e-5 while class
    vectors learn with 5e-3, in one `fit` and one file. It is TensorFlow Addons'
    `MultiOptimizer` for Keras 3. Each group keeps its own schedule, weight
    decay, clipping, average and gradient accumulation.
    (`keras.optimizers.MultiOptimizer` selects variables by patterns of paths,
    which change when a model is loaded from a file. It saves the state of each
    group twice, and cannot clip over all groups.)

    All groups count all steps, also steps in which a group had no gradient. A
    dynamic loss scale goes around it:
    `keras.optimizers.LossScaleOptimizer(MultiOptimizer(...))`, as `compile`
    does under "mixed_float16".

    `learning_rates` is a list. `learning_rate` is the learning rate of the
    first group. Setting it multiplies the rates of all groups by one factor,
    and raises a `TypeError` if a group has a schedule. Keras' callbacks
    `ReduceLROnPlateau`, `LearningRateScheduler` and `SwapEMAWeights` work on
    each of the `optimizers`.

    Args:
        optimizers_and_layers: list of pairs `(optimizer, layers)`, where
            `layers` is a layer, a model, a variable or the path of a variable
            (`variable.path`), or a list of these. Layers may be built later.
        global_clipnorm: float, greatest norm of the gradients of all groups
            together. The argument of the same name of a group's optimizer is
            for its group only.
        loss_scale_factor: float, as for Keras' optimizers. Do not set it for
            the optimizers of the groups.
        name: str, name of the optimizer.

    Raises:
        ValueError: if a variable is in two groups, or, when training begins, if
            a trainable variable is in none. (Addons applies both optimizers in
            the first case, and does not train the variable in the second.)

    Example:

    ```python
    encoder = keras.layers.Dense(64)
    head = tfxclass.layers.FullSoftmax(10_000)
    model = keras.Sequential([encoder, head])
    optimizer = tfxclass.optimizers.MultiOptimizer([
        (keras.optimizers.AdamW(2e-5), encoder),
        (tfxclass.optimizers.LazyAdam(5e-3), head),
    ])
    model.compile(optimizer, loss=head.loss)
    ```

    References:

    - TensorFlow Addons 0.23, `tfa.optimizers.MultiOptimizer`
    - [keras#21741](https://github.com/keras-team/keras/issues/21741)
    """

    #: Each group's optimizer is asked in `build`.
    rounds_bfloat16_rows = True

    def __init__(
        self,
        optimizers_and_layers: Sequence[
            tuple[keras.optimizers.Optimizer, Owner]
        ],
        global_clipnorm: float | None = None,
        loss_scale_factor: float | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(
            learning_rate=0.0,
            global_clipnorm=global_clipnorm,
            loss_scale_factor=loss_scale_factor,
            name=name,
        )
        optimizers, owners = _checked(optimizers_and_layers)
        self.optimizers = optimizers
        self._groups = VariableGroups(owners, self._key_of)

    def build(self, variables: Sequence[Variable]) -> None:
        if self.built:
            return
        self._group_of = {}
        numbers = self._groups.split(variables)
        for variable, number in zip(variables, numbers):
            self._group_of[self._key_of(variable)] = number
        with eager_variables():
            for optimizer, group in zip(
                self.optimizers, self._split(variables)
            ):
                class_matrix.check_rounded(group, optimizer)
                optimizer.build(group)
            super().build(variables)

    def optimizer_of(self, layer: keras.Layer) -> keras.optimizers.Optimizer:
        """The optimizer of the group that contains a layer, built or not.

        Raises:
            ValueError: if no group contains the layer, or a model that has it.
        """
        number = self._groups.number_of(layer)
        if number is None:
            raise ValueError(
                "A group of the MultiOptimizer must name the layer, or a model "
                f"that has it. Received: none for {layer.name!r}"
            )
        return self.optimizers[number]

    def _split(self, variables, *others):
        """The variables of each group, or what goes with them, lists."""
        values = others[0] if others else variables
        groups = [[] for _ in self.optimizers]
        for variable, value in zip(variables, values):
            groups[self._group_of[self._key_of(variable)]].append(value)
        return groups

    @property
    def variables(self) -> list[keras.Variable]:
        of_groups = [v for group in self.optimizers for v in group.variables]
        return super().variables + of_groups

    def apply(
        self,
        grads: Sequence[Gradient | None],
        trainable_variables: Sequence[Variable] | None = None,
    ) -> None:
        if not len(grads):
            return
        variables = self._known_variables(trainable_variables)
        grads = [g if g is None else row_gradients.divisible(g) for g in grads]
        if self.loss_scale_factor is not None:
            scale = self.loss_scale_factor
            grads = [g if g is None else g / scale for g in grads]
        grads = self._clip_over_groups(grads)
        for optimizer, of_group, names in zip(
            self.optimizers,
            self._split(variables, grads),
            self._split(variables),
        ):
            if any(gradient is not None for gradient in of_group):
                optimizer.apply(of_group, names)
            else:
                count_step(optimizer)
        count_step(self)

    def _known_variables(self, variables):
        if variables is None:
            if not self.built:
                raise ValueError(
                    "`apply` without `trainable_variables` needs an optimizer "
                    "that is built. Fix: `optimizer.build(variables)` first."
                )
            return self._built_for
        variables = list(variables)
        if not self.built:
            self.build(variables)
        self._check_known(variables)
        return variables

    def _check_known(self, variables):
        unknown = [
            v for v in variables if self._key_of(v) not in self._group_of
        ]
        if unknown:
            raise ValueError(
                "An optimizer takes the variables that it was built with. Fix: "
                "make a new one for others. Received: "
                f"{list(map(path_of, unknown))}"
            )

    def _clip_over_groups(self, grads):
        """Clips over all groups, with duplicate rows summed first."""
        if not self.global_clipnorm:
            return grads
        grads = list(map(row_gradients.summed_rows, grads))
        values = self._on_clip(list(map(row_gradients.values_of, grads)))
        return list(map(row_gradients.with_values, grads, values))

    @property
    def learning_rates(self) -> list[Any]:
        """The learning rate of each group, a list."""
        return [optimizer.learning_rate for optimizer in self.optimizers]

    @property
    def learning_rate(self) -> Any:
        return self.optimizers[0].learning_rate

    @learning_rate.setter
    def learning_rate(self, learning_rate: float | Scalar) -> None:
        first, *rates = (_number(rate) for rate in self.learning_rates)
        if not first:
            raise ValueError(
                "`learning_rate` moves the rates of all groups by one factor, "
                "but the first one's is 0. Fix: set that of each group, "
                "`optimizer.optimizers[i].learning_rate`. Received: "
                f"learning_rate={learning_rate}"
            )
        self.optimizers[0].learning_rate = learning_rate
        factor = _number(learning_rate) / first
        for optimizer, rate in zip(self.optimizers[1:], rates):
            optimizer.learning_rate = rate * factor

    def exclude_from_weight_decay(
        self,
        var_list: Sequence[Variable] | None = None,
        var_names: Sequence[str] | None = None,
    ) -> None:
        raise ValueError(
            "Weight decay belongs to the groups. Fix: call "
            "`exclude_from_weight_decay` of the group's optimizer. Received: "
            f"var_list={var_list}, var_names={var_names}"
        )

    def finalize_variable_values(self, var_list: Sequence[Variable]) -> None:
        for optimizer, group in zip(self.optimizers, self._split(var_list)):
            optimizer.finalize_variable_values(group)

    def save_own_variables(self, store: Store) -> None:
        # Keras saves the optimizers of the groups, each by its own rule.
        for i, variable in enumerate(super().variables):
            store[str(i)] = variable.numpy()

    def load_own_variables(self, store: Store) -> None:
        for i, variable in enumerate(super().variables):
            variable.assign(store[str(i)])

    def get_config(self) -> Config:
        return self.config_for(self._built_for if self.built else None)

    def config_for(self, variables: Sequence[Variable] | None) -> Config:
        """The configuration for a model with similar variables in this order.

        Args:
            variables: trainable variables of a model, or None if unknown.
        """
        serialize = keras.saving.serialize_keras_object
        return {
            "name": self.name,
            "optimizers": [serialize(x) for x in self.optimizers],
            "variables": self._groups.order(variables),
            "global_clipnorm": self.global_clipnorm,
            "loss_scale_factor": self.loss_scale_factor,
        }

    @classmethod
    def from_config(
        cls, config: Config, custom_objects: dict[str, Any] | None = None
    ) -> "MultiOptimizer":
        config = dict(config)
        optimizers = [
            keras.saving.deserialize_keras_object(x, custom_objects)
            for x in config.pop("optimizers")
        ]
        order = config.pop("variables")
        none = [(optimizer, []) for optimizer in optimizers]
        self = cls(none, **config)
        owners = [
            [path for path, owner in order if owner == number]
            for number in range(len(optimizers))
        ]
        # By position where paths repeat or are others now.
        self._groups = VariableGroups(owners, self._key_of, order)
        return self


def _number(rate):
    return float(np.asarray(keras.ops.convert_to_numpy(rate)))


def _checked(pairs):
    """The optimizers, and what is named with each."""
    name, items = "optimizers_and_layers", "pairs (optimizer, layers)"
    pairs = as_list(name, pairs, items)
    if not pairs:
        raise ValueError(f"`{name}` must be a list of {items}. Received: []")
    for number, pair in enumerate(pairs):
        _check_pair(f"optimizers_and_layers[{number}]", pair)
    optimizers = [optimizer for optimizer, _ in pairs]
    if len(set(map(id, optimizers))) < len(optimizers):
        raise ValueError(
            "An optimizer may be named once in `optimizers_and_layers`: give "
            "it a list of layers. Received: the same one twice"
        )
    return optimizers, [owner for _, owner in pairs]


def _check_pair(name, pair):
    if not isinstance(pair, (list, tuple)) or len(pair) != 2:
        raise ValueError(
            f"`{name}` must be a pair (optimizer, layers). Received: {pair!r}"
        )
    optimizer = pair[0]
    if not isinstance(optimizer, keras.optimizers.Optimizer):
        raise ValueError(
            f"`{name}` must begin with a Keras optimizer. Received: "
            f"{optimizer!r}"
        )
    if isinstance(optimizer, (MultiOptimizer, keras.optimizers.MultiOptimizer)):
        raise ValueError(
            f"`{name}` is of several groups itself. Fix: name its groups here."
        )
    if isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
        raise ValueError(
            "A loss has one scale. Fix: wrap the MultiOptimizer in "
            f"LossScaleOptimizer. Received: one in `{name}`"
        )
    if optimizer.loss_scale_factor is not None:
        raise ValueError(
            "A loss has one scale. Fix: set `loss_scale_factor` of the "
            f"MultiOptimizer. Received: in `{name}` "
            f"loss_scale_factor={optimizer.loss_scale_factor}"
        )
