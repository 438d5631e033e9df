"""Class vectors that belong to another layer: tied weights."""

from typing import Any

import keras

from tfxclass.checks import check_value
from tfxclass.keras_internals import flat_layers
from tfxclass.keras_internals import layers_before
from tfxclass.keras_internals import without_autocast


class Tie:
    """The owner of tied weights, which Keras would else save with the head.

    It is given by a `keras.layers.Embedding`, a `keras.Variable`, or the last
    two parts of the path of one, str.
    """

    def __init__(self, given: Any) -> None:
        kinds = (keras.layers.Embedding, keras.Variable, str)
        wanted = "a keras.layers.Embedding or a keras.Variable"
        check_value("tied_to", given, isinstance(given, kinds), wanted)
        self._given = given

    @property
    def name(self) -> str:
        """The name under which a file refers to it."""
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

    @property
    def initializer(self) -> keras.Initializer | None:
        """The embedding's; None where the layer is not known."""
        return getattr(self._given, "embeddings_initializer", None)

    def find(self, features: Any) -> None:
        """Looks for what is a name only among the layers before `features`."""
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


def _name_of(variable):
    return "/".join(variable.path.split("/")[-2:])
