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
    (`keras.optimizers.MultiOptimizer` selects variables by patterns of paths,
    which change when a model is loaded from a file, and it saves the state of
    each group twice.)

    All groups count all steps, also steps in which a group had no gradient. A
    dynamic loss scale goes around it, as `compile` does under "mixed_float16".

    `learning_rates` is a list. `learning_rate` is the learning rate of the
    first group. Setting it multiplies the rates of all groups by one factor,
    and raises a `TypeError` if a group has a schedule. Keras' callbacks of
    learning rates and averages work on each of the `optimizers`.

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
        self._owners = [_flatten(owner) for _, owner in pairs]
        #: Of a file: the path and the group's number of each variable.
        self._saved: list[Any] = []
        #: The number of the group of each variable, by its key.
        self._group_of: dict[str, int] = {}
        self._named_groups()  # Raises if a variable is named twice.

    def build(self, variables: Sequence[Variable]) -> None:
        if self.built:
            return
        keys = list(map(self._key_of, variables))
        if self._saved:
            numbers = self._saved_groups(variables)
        else:
            numbers = list(map(self._named_groups().get, keys))
        missing = [path_of(v) for v, n in zip(variables, numbers) if n is None]
        if missing:
            raise ValueError(
                "Each trainable variable must be named with one optimizer. "
                f"Received none for {missing}. Fix: name them or their "
                "layers, or set `trainable = False` before the model is "
                "compiled."
            )
        self._group_of = dict(zip(keys, numbers))
        groups = self._split(variables, variables)
        with eager_variables():
            for optimizer, group in zip(self.optimizers, groups):
                class_matrix.check_rounded(group, optimizer)
                optimizer.build(group)
            super().build(variables)

    def _named(self):
        """Pairs of a variable that a group names and the group's number.

        All variables of a layer, so that it may be frozen and set free.
        """
        for number, group in enumerate(self._owners):
            for owner in group:
                is_layer = isinstance(owner, keras.Layer)
                for variable in owner.weights if is_layer else [owner]:
                    yield variable, number

    def _named_groups(self):
        """The number of the group by the key of each variable."""
        groups = {}
        for variable, number in self._named():
            first = groups.setdefault(self._key_of(variable), number)
            if first != number:
                raise ValueError(
                    "A variable must be named with one optimizer. Received: "
                    f"'{path_of(variable)}' with numbers {first} and {number}"
                )
        return groups

    def _saved_groups(self, variables):
        """The number of the group of each variable, as a file has it."""
        by_path = {}
        for path, number in self._saved:
            is_same = by_path.get(path, number) == number
            by_path[path] = number if is_same else None
        found = [by_path.get(path_of(v)) for v in variables]
        if None in found and len(found) == len(self._saved):
            # A model comes back with its variables in the same order, but
            # perhaps with other paths ("model/dense" as "dense").
            return [number for _, number in self._saved]
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

    @property
    def learning_rates(self) -> list[Any]:
        """The learning rate of each group, a list."""
        return [optimizer.learning_rate for optimizer in self.optimizers]

    @property
    def learning_rate(self) -> Any:
        return self.optimizers[0].learning_rate

    @learning_rate.setter
    def learning_rate(self, learning_rate: float | Scalar) -> None:
        first = _number(self.learning_rate)
        if not first:
            raise ValueError(
                "`learning_rate` moves all rates by one factor, but the first "
                "group's is 0. Fix: set `optimizers[i].learning_rate`. "
                f"Received: learning_rate={learning_rate}"
            )
        rates = [_number(rate) for rate in self.learning_rates]
        for optimizer, rate in zip(self.optimizers, rates):
            optimizer.learning_rate = _number(learning_rate) * rate / first

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
        groups = self._split(var_list, var_list)
        for optimizer, group in zip(self.optimizers, groups):
            optimizer.finalize_variable_values(group)

    def save_own_variables(self, store: Store) -> None:
        # Keras saves the optimizers of the groups, each by its own rule.
        sharded_rows.save(super().variables, store)

    def load_own_variables(self, store: Store) -> None:
        sharded_rows.load(super().variables, store)

    def get_config(self) -> Config:
        named = self._named()
        if self.built:
            keys = map(self._key_of, self._built_for)
            named = zip(self._built_for, map(self._group_of.get, keys))
        groups = [[path_of(v), number] for v, number in named]
        serialize = keras.saving.serialize_keras_object
        return {
            "name": self.name,
            "optimizers": [serialize(x) for x in self.optimizers],
            "variables": groups or [list(pair) for pair in self._saved],
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
        self._saved = config["variables"]
        return self


def _flatten(owner):
    """The layers and variables in what a user named, one list."""
    if isinstance(owner, (list, tuple)):
        return [part for parts in owner for part in _flatten(parts)]
    if isinstance(owner, (keras.Layer, keras.Variable, tf.Variable)):
        return [owner]
    raise ValueError(
        "Expected layers, models or variables, or lists of them. Received: "
        f"{owner!r}"
    )


def _number(rate):
    return float(np.asarray(keras.ops.convert_to_numpy(rate)))


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
        is_nested = isinstance(pair[0], _NESTED)
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


_NESTED = (
    MultiOptimizer,
    keras.optimizers.MultiOptimizer,
    keras.optimizers.LossScaleOptimizer,
)
