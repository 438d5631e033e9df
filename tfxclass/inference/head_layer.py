"""A layer that answers with a head's weights, and is saved with the head."""

from typing import Any

import keras

from tfxclass.h5_config import names_of_functions
from tfxclass.layers.output_head import OutputHead
from tfxclass.types import Config
from tfxclass.types import Shape


class HeadLayer(keras.layers.Layer):
    """Base class: `head` is a layer of this one, built with it.

    Args:
        head: the head; may be built already.
        **kwargs: `keras.layers.Layer`'s arguments.
    """

    def __init__(self, head: OutputHead, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.head = head
        self.supports_jit = False
        self.supports_masking = True

    def build(self, input_shape: Shape) -> None:
        if not self.head.built:
            self.head.build(input_shape)
        self.built = True

    def get_config(self) -> Config:
        head = keras.saving.serialize_keras_object(self.head)
        return {**super().get_config(), "head": head}

    @classmethod
    def from_config(cls, config: Config) -> "HeadLayer":
        head = keras.saving.deserialize_keras_object(config["head"])
        config = names_of_functions({**config, "head": head})
        return super().from_config(config)
