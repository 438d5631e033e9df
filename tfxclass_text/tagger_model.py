"""The Keras model of a tagger, from texts to probabilities."""

from typing import Any

import keras

from tfxclass.types import Path

_SAVED_MODEL = "tf_saved_model"


@keras.saving.register_keras_serializable("tfxclass")
class TaggerModel(keras.Model):
    """A functional model whose `export` refuses formats without text ops."""

    def export(
        self,
        filepath: Path,
        format: str = _SAVED_MODEL,
        *args: Any,
        **kwargs: Any,
    ) -> None:
        """Writes a SavedModel from texts to the probabilities of all tags.

        It has no names of tags. `Tagger.export` writes one with names.

        Args:
            filepath: str, folder to write.
            format: `"tf_saved_model"`. Other formats have no ops for texts.
            *args: as of `keras.Model.export`.
            **kwargs: as of `keras.Model.export`.

        Raises:
            ValueError: `format` is another one.
        """
        if format != _SAVED_MODEL:
            raise ValueError(
                f"Keras' `export` cannot write a Tagger's model as {format!r}, "
                "which has no ops for texts. Fix: tagger.export(path) writes a "
                "SavedModel from texts to names, and tagger.export_onnx(path) "
                "an ONNX model of what tagger.features(texts) returns."
            )
        super().export(filepath, format, *args, **kwargs)


def tagger_model(model: keras.Model) -> TaggerModel:
    """The same layers as a `TaggerModel`.

    Args:
        model: a functional model. Earlier versions saved a plain one.
    """
    if isinstance(model, TaggerModel):
        return model
    return TaggerModel(model.input, model.output)
