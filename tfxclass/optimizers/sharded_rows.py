"""Optimizers of variables whose rows are shared out to the replicas."""

import weakref
from collections.abc import Sequence
from typing import Any

import keras

from tfxclass import shards as shards_lib
from tfxclass.keras_internals import OptimizerHooks
from tfxclass.types import Store
from tfxclass.types import Variable

_KEEPS_SHARDS = "_tfxclass_keeps_shards"


def keeps_shards(variable: Variable) -> bool:
    """Whether an optimizer that keeps shards apart was built for it."""
    reference = getattr(variable, _KEEPS_SHARDS, None)
    return reference is not None and reference() is not None


class ShardedRows(OptimizerHooks):
    """Mixin in front of a Keras optimizer: shards stay on their replica.

    Their gradients are not summed over the replicas, their slots are in the
    same shards, and files hold slots in the order of all rows.
    """

    def build(self, variables: Sequence[Variable]) -> None:
        if self.built:
            return
        for variable in variables:
            if shards_lib.shards_of(variable) is not None:
                self._check_shards(variable)
                setattr(variable, _KEEPS_SHARDS, weakref.ref(self))
        super().build(variables)

    def _check_shards(self, variable):
        """Refuses what needs the gradient or the variable as a whole."""
        for name in (
            "clipnorm",
            "global_clipnorm",
            "use_ema",
            "gradient_accumulation_steps",
            "shared_second_moment",
        ):
            if getattr(self, name, None):
                raise ValueError(
                    f"`{name}` needs more than the rows of one replica, but "
                    f"{variable.path!r} is in shards. Received: "
                    f"{name}={getattr(self, name)}"
                )

    def add_variable_from_reference(
        self, reference_variable: Variable, **kwargs: Any
    ) -> keras.Variable:
        add = super().add_variable_from_reference
        return self._add_in_shards(
            reference_variable, lambda: add(reference_variable, **kwargs)
        )

    def _add_in_shards(self, reference_variable, add):
        """What `add` makes, in the shards of the reference."""
        shards = shards_lib.shards_of(reference_variable)
        if shards is None:
            return add()
        with shards.creator():
            variable = add()
        shards.mark(variable)
        return variable

    def _on_all_reduce(self, pairs):
        pairs = list(pairs)
        whole = [x for x in pairs if shards_lib.shards_of(x[1]) is None]
        reduced = iter(super()._on_all_reduce(whole))
        return [
            next(reduced) if shards_lib.shards_of(pair[1]) is None else pair
            for pair in pairs
        ]

    def save_own_variables(self, store: Store) -> None:
        shards_lib.save(self.variables, store)

    def load_own_variables(self, store: Store) -> None:
        in_shards = map(shards_lib.shards_of, self.variables)
        if len(store.keys()) != len(self.variables) or not any(in_shards):
            super().load_own_variables(store)
            return
        shards_lib.load(self.variables, store)
