"""An optimizer for each part of a model."""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfxclass.checks import as_list
from tfxclass.checks import check_value
from tfxclass.keras_internals import OptimizerHooks
from tfxclass.keras_internals import count_step
from tfxclass.keras_internals import eager_variables
from tfxclass.keras_internals import flat_layers
from tfxclass.keras_internals import path_of
from tfxclass.rows import class_matrix
from tfxclass.rows import sharded_rows
from tfxclass.types import Config
from tfxclass.types import Gradient
from tfxclass.types import Scalar
from tfxclass.types import Store
from tfxclass.types import Variable


@keras.saving.register_keras_serializable(package="tfxclass")
class MultiOptimizer(OptimizerHooks, keras.optimizers.Optimizer):
    """One optimizer that gives each part of a model its own optimizer.

    Use it to fine-tune an encoder with a learning rate of 2e-5 while class
    vectors learn with 5e-3, in one `fit` and one file. Each group keeps its own
    schedule, weight decay, clipping, average and gradient accumulation.
    (`keras.optimizers.MultiOptimizer` selects variables by their paths, which
    change when a model is loaded, and saves the state of each group twice.)

    All groups count all steps, also steps in which a group had no gradient. A
    dynamic loss scale goes around it, as `compile` does under "mixed_float16".

    `optimizers` is the list of the groups' optimizers. `learning_rate` is the
    rate of the first one. Setting it, as callbacks do, multiplies the rates of
    all groups by one factor; a group with a schedule raises `TypeError`.

    Args:
        optimizers_and_layers: list of pairs `(optimizer, layers)`, where
            `layers` is a layer, a model, a variable or a list of these. Layers
            may be built later.
        name: str, name of the optimizer.

    Raises:
        ValueError: if a variable is in two groups, or, when training begins, if
            a trainable variable is in none.

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

    rounds_bfloat16_rows = True  #: `build` asks each group's optimizer.

    def __init__(
        self,
        optimizers_and_layers: Sequence[tuple[keras.optimizers.Optimizer, Any]],
        name: str | None = None,
    ) -> None:
        super().__init__(learning_rate=0.0, name=name)
        pairs = _checked(optimizers_and_layers)
        self.optimizers = [optimizer for optimizer, _ in pairs]
        self._owners = [_flat(owner) for _, owner in pairs]
        #: Path and group's number of each variable of `build`, or of a file.
        self._numbers: list[Any] = []
        #: The number of the group of each variable of `build`, by its key.
        self._group_of: dict[str, int] = {}
        self._named()  # Raises if a variable is named twice.

    def build(self, variables: Sequence[Variable]) -> None:
        if self.built:
            return
        keys = list(map(self._key_of, variables))
        if self._numbers:
            numbers = self._saved_numbers(variables)
        else:
            named = self._named()
            numbers = [named[x][1] if x in named else None for x in keys]
        pairs = [[path_of(v), n] for v, n in zip(variables, numbers)]
        missing = [path for path, number in pairs if number is None]
        if missing:
            raise ValueError(
                "Each trainable variable must be named with one optimizer. "
                f"Received none for {missing}. Fix: name them or their "
                "layers, or set `trainable = False` before the model is "
                "compiled."
            )
        self._numbers, self._group_of = pairs, dict(zip(keys, numbers))
        groups = self._split(variables, variables)
        with eager_variables():
            for optimizer, group in zip(self.optimizers, groups):
                class_matrix.check_rounded(group, optimizer)
                optimizer.build(group)
            super().build(variables)

    def _named(self):
        """`(variable, number of its group)` by the key of the variable.

        All variables of a layer, so that it may be frozen and set free.
        """
        named = {}
        for number, group in enumerate(self._owners):
            for owner in group:
                is_layer = isinstance(owner, keras.Layer)
                for variable in owner.weights if is_layer else [owner]:
                    pair = variable, number
                    _, first = named.setdefault(self._key_of(variable), pair)
                    if first != number:
                        raise ValueError(
                            "A variable must be named with one optimizer. "
                            f"Received: '{path_of(variable)}' with numbers "
                            f"{first} and {number}"
                        )
        return named

    def _saved_numbers(self, variables):
        """The number of the group of each variable, as a file has it."""
        by_path = {}
        for path, number in self._numbers:
            is_same = by_path.get(path, number) == number
            by_path[path] = number if is_same else None
        found = [by_path.get(path_of(v)) for v in variables]
        if None in found and len(found) == len(self._numbers):
            # A model comes back with its variables in the same order, but
            # perhaps with other paths ("model/dense" as "dense").
            return [number for _, number in self._numbers]
        return found

    def optimizer_of(self, layer: keras.Layer) -> keras.optimizers.Optimizer:
        """The optimizer of the group that contains a layer; or ValueError."""
        for optimizer, group in zip(self.optimizers, self._owners):
            for part in group:
                if isinstance(part, keras.Layer) and layer in flat_layers(part):
                    return optimizer
        raise ValueError(
            "A group of the MultiOptimizer must name the layer, or a model "
            f"that has it. Received: none for {layer.name!r}"
        )

    def _split(self, variables, values):
        """What belongs to the variables of each group, lists."""
        groups = [[] for _ in self.optimizers]
        for variable, value in zip(variables, values):
            groups[self._group_of[self._key_of(variable)]].append(value)
        return groups

    @property
    def variables(self) -> list[keras.Variable]:
        return sum((x.variables for x in self.optimizers), super().variables)

    @property
    def learning_rate(self) -> Any:
        return self.optimizers[0].learning_rate

    @learning_rate.setter
    def learning_rate(self, learning_rate: float | Scalar) -> None:
        rates = [float(np.asarray(x.learning_rate)) for x in self.optimizers]
        wanted = "set for each of `optimizers`, as the first one's is 0"
        check_value("learning_rate", learning_rate, bool(rates[0]), wanted)
        factor = float(np.asarray(learning_rate)) / rates[0]
        for optimizer, rate in zip(self.optimizers, rates):
            optimizer.learning_rate = factor * rate

    def exclude_from_weight_decay(
        self,
        var_list: Sequence[Variable] | None = None,
        var_names: Sequence[str] | None = None,
    ) -> None:
        for optimizer in self.optimizers:
            optimizer.exclude_from_weight_decay(var_list, var_names)

    def apply(
        self,
        grads: Sequence[Gradient | None],
        trainable_variables: Sequence[Variable] | None = None,
    ) -> None:
        if not len(grads):
            return
        given = trainable_variables
        variables = list(self._built_for if given is None else given)
        if variables:
            self.build(variables)
        known = self._group_of
        others = [v for v in variables if self._key_of(v) not in known]
        if others or not variables:
            raise ValueError(
                "`apply` takes the variables that the optimizer is built with: "
                "give them, or call `optimizer.build(variables)` first, and "
                "make a new optimizer for others. Received: "
                f"{list(map(path_of, others))}"
            )
        parts = [self._split(variables, each) for each in (grads, variables)]
        for optimizer, of_group, group in zip(self.optimizers, *parts):
            if any(gradient is not None for gradient in of_group):
                optimizer.apply(of_group, group)
            else:
                count_step(optimizer)
        count_step(self)

    def finalize_variable_values(self, var_list: Sequence[Variable]) -> None:
        groups = self._split(var_list, var_list)
        for optimizer, group in zip(self.optimizers, groups):
            optimizer.finalize_variable_values(group)

    def save_own_variables(self, store: Store) -> None:
        # Keras saves the optimizers of the groups, each by its own rule.
        sharded_rows.save(super().variables, store)

    def load_own_variables(self, store: Store) -> None:
        sharded_rows.load(super().variables, store)

    def get_config(self) -> Config:
        named = [[path_of(v), number] for v, number in self._named().values()]
        serialize = keras.saving.serialize_keras_object
        return {
            "name": self.name,
            "optimizers": [serialize(x) for x in self.optimizers],
            "variables": self._numbers or named,
        }

    @classmethod
    def from_config(
        cls, config: Config, custom_objects: dict[str, Any] | None = None
    ) -> "MultiOptimizer":
        optimizers = [
            keras.saving.deserialize_keras_object(x, custom_objects)
            for x in config["optimizers"]
        ]
        self = cls([(x, []) for x in optimizers], name=config["name"])
        self._numbers = config["variables"]
        return self


def _flat(owner):
    """The layers and variables in what a user named, one list."""
    parts = tf.nest.flatten(owner)
    for part in parts:
        if not isinstance(part, (keras.Layer, keras.Variable, tf.Variable)):
            raise ValueError(
                "Expected layers, models or variables, or lists of them. "
                f"Received: {owner!r}"
            )
    return parts


def _checked(pairs):
    """The pairs of optimizer and layers, a list; ValueError for others."""
    name, items = "optimizers_and_layers", "pairs (optimizer, layers)"
    pairs = as_list(name, pairs, items)
    check_value(name, pairs, bool(pairs), f"a list of {items}")
    for number, pair in enumerate(pairs):
        is_pair = isinstance(pair, (list, tuple)) and len(pair) == 2
        is_pair = is_pair and isinstance(pair[0], keras.optimizers.Optimizer)
        wanted = "a pair of a Keras optimizer and layers"
        check_value(f"{name}[{number}]", pair, is_pair, wanted)
        names = ("optimizers", "inner_optimizer")
        is_nested = any(hasattr(pair[0], each) for each in names)
        if is_nested or pair[0].loss_scale_factor is not None:
            raise ValueError(
                f"`{name}[{number}]` must have an optimizer without groups or "
                "a loss scale. Fix: name its groups here, and wrap the "
                "MultiOptimizer in LossScaleOptimizer. Received: a "
                f"{type(pair[0]).__name__}"
            )
    if len({id(optimizer) for optimizer, _ in pairs}) < len(pairs):
        raise ValueError(
            "An optimizer may be named once in `optimizers_and_layers`: give "
            "it a list of layers. Received: the same one twice"
        )
    return pairs
