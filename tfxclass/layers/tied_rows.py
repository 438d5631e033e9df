"""Class rows that are another layer's: the input embedding as the output."""

from typing import Any

import keras

from tfxclass.core.change import Change
from tfxclass.keras_internals import flat_layers
from tfxclass.keras_internals import layers_before
from tfxclass.keras_internals import without_autocast
from tfxclass.types import Config


class Tie:
    """What `tied_to` names: a layer, a variable, or in a file its name.

    No layer, and not the variable itself: Keras would save it with the head,
    too.

    Args:
        given: a `keras.layers.Embedding`, a `keras.Variable`, or the last two
            parts of the path of one, str.
    """

    def __init__(self, given: Any) -> None:
        kinds = (keras.layers.Embedding, keras.Variable, str)
        if not isinstance(given, kinds):
            raise ValueError(
                "`tied_to` must be a keras.layers.Embedding or a "
                f"keras.Variable. Received: {given!r}"
            )
        self._given = given

    @property
    def name(self) -> str:
        """What a file has of it."""
        given = self._given
        if isinstance(given, str):
            return given
        if isinstance(given, keras.Variable):
            return _name_of(given)
        return f"{given.name}/embeddings"

    @property
    def is_found(self) -> bool:
        """Whether it is more than a name."""
        return not isinstance(self._given, str)

    def find(self, features: Any) -> None:
        """Looks for what is a name only among the layers before `features`.

        Raises:
            ValueError: none of them has it, or several have, or the features
                are not symbolic.
        """
        if not isinstance(features, keras.KerasTensor):
            self._refuse_name()
        found = {
            id(variable): variable
            for layer in layers_before(features)
            for inner in flat_layers(layer)
            for variable in inner.weights
            if _name_of(variable) == self._given
        }
        if len(found) != 1:
            raise ValueError(
                "`tied_to` must be a weight of a layer that the features are "
                f"made by. Received: {self._given!r}, of which {len(found)} "
                "were found"
            )
        (self._given,) = found.values()

    def _refuse_name(self):
        raise ValueError(
            "What `tied_to` names is looked for in a Sequential or functional "
            "model only. Fix: make the head with tied_to=layer. Received: "
            f"{self._given!r}"
        )

    def kernel(self, shape: tuple[int, int]) -> keras.Variable:
        """The variable, whose shape has to be `shape`."""
        if not self.is_found:
            self._refuse_name()
        variable = self._given
        if isinstance(variable, keras.layers.Embedding):
            variable = getattr(variable, "embeddings", None)
        if not isinstance(variable, keras.Variable):
            raise ValueError(
                "`tied_to` must be built before the head, and not quantized. "
                f"Received: {self._given!r}. Fix: embedding.build()"
            )
        if tuple(variable.shape) != shape or variable.dtype != "float32":
            raise ValueError(
                "`tied_to` must be rows of shape [num_classes, dim], dim that "
                f"of the features: {list(shape)} float32. Received: "
                f"{list(variable.shape)} {variable.dtype}"
            )
        without_autocast(variable)
        return variable


class TiedRows:
    """Mixin of heads with one kernel: it may be that of another layer."""

    def set_tie(self, tied_to: Any) -> None:
        """Checks and sets `tie`, of `tied_to` or None."""
        self.tie = None if tied_to is None else Tie(tied_to)
        if self.tie is not None and self.kernel_dtype != "float32":
            raise ValueError(
                "Rows of a head with `tied_to` are float32. Received: "
                f'kernel_dtype="{self.kernel_dtype}"'
            )

    def __call__(self, features: Any, *args: Any, **kwargs: Any) -> Any:
        if self.tie is not None and not self.tie.is_found:
            self.tie.find(features)
            # Keras says that what `build_from_config` passed over is built.
            self.built = False
        return super().__call__(features, *args, **kwargs)

    def build_from_config(self, config: Config) -> None:
        # Of a file; what is tied is found when the model is put together.
        if self.tie is None or self.tie.is_found:
            super().build_from_config(config)

    def shared_rows(self, dim: int) -> dict[str, keras.Variable]:
        if self.tie is None:
            return {}
        return {"kernel": self.tie.kernel((self.num_classes, dim))}

    def changed_config(self, change: Change) -> Config:
        if self.tie is not None:
            raise ValueError(
                "Classes of a head with `tied_to` are the rows of another "
                f"layer, which stay as many. Received: {self.name!r}, tied to "
                f"{self.tie.name!r}"
            )
        return super().changed_config(change)


def _name_of(variable):
    return "/".join(variable.path.split("/")[-2:])
