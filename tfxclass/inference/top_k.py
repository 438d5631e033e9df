"""A model that answers with the best classes instead of all of them."""

from typing import Any

import keras
import tensorflow as tf

from tfxclass.checks import check_k
from tfxclass.checks import check_positive_int
from tfxclass.h5_config import names_of_functions
from tfxclass.inference import filters
from tfxclass.inference.graph import encoder_of
from tfxclass.inference.graph import inputs_as_given
from tfxclass.inference.thresholds import above
from tfxclass.inference.thresholds import check_threshold
from tfxclass.inference.thresholds import threshold_of
from tfxclass.layers.output_head import OutputHead
from tfxclass.types import Config
from tfxclass.types import Shape


class HeadLayer(keras.layers.Layer):
    """Base class of layers that answer with the weights of a head.

    The head is a layer of this one: it is built and saved with it.

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


@keras.saving.register_keras_serializable("tfxclass")
class TopK(HeadLayer):
    """The k best classes of a head, `(ids, scores)`; see `OutputHead.top_k`.

    Scores below `threshold` are 0 and their ids -1.
    """

    def __init__(
        self,
        head: OutputHead,
        k: int,
        threshold: float | str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(head, **kwargs)
        self.k = k
        self.threshold = threshold

    def get_config(self) -> Config:
        own = {"k": self.k, "threshold": self.threshold}
        return {**super().get_config(), **own}

    def call(self, features: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        least = threshold_of(self.threshold, self.head)
        return above(least, *self.search(features))

    def search(self, features: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return self.head.top_k(features, self.k)

    def compute_output_spec(
        self, features: keras.KerasTensor
    ) -> tuple[keras.KerasTensor, keras.KerasTensor]:
        shape = (*features.shape[:-1], self.k)
        return (
            keras.KerasTensor(shape, dtype="int64"),
            keras.KerasTensor(shape, dtype="float32"),
        )


@keras.saving.register_keras_serializable("tfxclass")
class FilteredTopK(TopK):
    """`TopK` of features and ids `[batch, p]`: without them, or among them."""

    def __init__(
        self,
        head: OutputHead,
        k: int,
        threshold: float | str | None = None,
        kind: str = filters.EXCLUDE,
        **kwargs: Any,
    ) -> None:
        super().__init__(head, k, threshold, **kwargs)
        self.kind = kind

    def build(self, features_shape: Shape, ids_shape: Shape) -> None:
        super().build(features_shape)

    def call(
        self, features: tf.Tensor, ids: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        found = filters.answer(self.head, features, ids, self.k, self.kind)
        return above(threshold_of(self.threshold, self.head), *found)

    def compute_output_spec(
        self, features: keras.KerasTensor, ids: keras.KerasTensor
    ) -> tuple[keras.KerasTensor, keras.KerasTensor]:
        return super().compute_output_spec(features)

    def get_config(self) -> Config:
        return {**super().get_config(), "kind": self.kind}


@keras.saving.register_keras_serializable("tfxclass")
class BoostedTopK(FilteredTopK):
    """`TopK` of features and ids `[batch, p]` whose logits are raised."""

    def __init__(
        self,
        head: OutputHead,
        k: int,
        threshold: float | str | None = None,
        boost: float = 1.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(head, k, threshold, **kwargs)
        self.boost = boost

    def call(
        self, features: tf.Tensor, ids: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        found = filters.boosted(self.head, features, ids, self.k, self.boost)
        return above(threshold_of(self.threshold, self.head), *found)

    def get_config(self) -> Config:
        return {**super().get_config(), "boost": self.boost}


@keras.saving.register_keras_serializable("tfxclass")
class TopKModel(keras.Model):
    """What `top_k` returns; Keras cannot export its compiled ops."""

    def export(self, *args: Any, **kwargs: Any) -> None:
        raise ValueError(
            "Keras' `export` cannot write a model of tfxclass.top_k, which "
            "computes with ops of tfxclass. Fix: give the model itself to "
            "tfxclass.export.saved_model(model, path, top_k=10), or to "
            "tfxclass.export.onnx. Its own `export` writes all scores"
        )


def top_k(
    model: keras.Model,
    k: int = 10,
    threshold: float | str | None = None,
    exclude: bool | int | keras.KerasTensor = False,
    only: bool | int = False,
    boost: float | None = None,
) -> keras.Model:
    """A model of the same inputs and weights that returns the k best classes.

    Its memory is O(batch x block): the [batch, num_classes] output is never
    made.

    Args:
        model: a built Keras model that ends in a head, also a subclassed one.
        k: int, at most the number of classes that were not removed.
        threshold: float in [0, 1], least probability of a class, or
            `"calibrated"`: each class's own, from `tfxclass.calibrate`; or
            None. Where fewer than `k` reach it, ids are -1 and scores 0.
        exclude: whether questions name classes that are no answers to them:
            the model then has an input more, `exclude_ids`, int64 `[batch, p]`
            padded with -1, and answers with the best of the others, with the
            scores that they have without it. It searches for the k + p best.
            Or p itself, int; with True batches of several widths may have 64.
            Or a Keras tensor that is computed from the inputs of the model,
            integers `[batch, p]` padded with -1: there is no input more.
        only: whether questions name the classes that may be answers, `only_ids`
            in the same way: their rows alone are read (in heads whose logits
            are no products with one row a class, all are). A softmax is that
            among them. Repeated ids count once.
        boost: float > 0, what is added to the logits of classes that questions
            name, or None. The model then has an input more, `boost_ids`, int64
            `[batch, p]` padded with -1; repeated ids count once. Use it where
            an answer is often something that the question has already, as
            items that a visitor has looked at. Choose it on validation data.

    Returns:
        A `keras.Model` with outputs `(ids, scores)`, int64 and float32
        `[batch, k]`, or `[batch, time, k]` of sequences, best first. Where
        fewer than `k` classes are left by a filter, or a score is NaN, ids
        are -1 and scores 0.

    Raises:
        ValueError: no single head, `k` out of range, an unbuilt model, several
            filters, an input of their name, or a `boost` for a head without
            plain logits.
        InvalidArgumentError: in a call, ids of a filter out of range.

    Example:

    >>> best = tfxclass.top_k(model, 10, exclude=True)
    >>> ids, scores = best.predict([x, seen])

    A model whose input `seen` holds the items so far, `[batch, p]`:

    >>> best = tfxclass.top_k(model, 10, exclude=model.inputs[0])
    >>> ids, scores = best.predict(seen)
    """
    inputs, features, head = encoder_of(model)
    k = check_k(k, head.num_answers)
    check_threshold(threshold, head)
    given = inputs_as_given(model, inputs)
    boost = filters.check_boost(boost, head)
    kind = filters.kind_of(exclude, only, inputs, boost)
    if kind is None:
        best = TopK(head, k, threshold)(features)
        return TopKModel(given, best)
    if isinstance(exclude, keras.KerasTensor):
        filters.check_excluded(exclude, inputs)
        best = FilteredTopK(head, k, threshold, kind)(features, exclude)
        return TopKModel(given, best)
    width = boost is not None or exclude or only
    width = None if width is True else check_positive_int(kind, width)
    name = filters.INPUTS[kind]
    ids = keras.Input([width], dtype="int64", name=name)
    if kind == filters.BOOST:
        layer = BoostedTopK(head, k, threshold, boost)
    else:
        layer = FilteredTopK(head, k, threshold, kind)
    best = layer(features, ids)
    if isinstance(given, dict):
        return TopKModel({**given, name: ids}, best)
    return TopKModel([*inputs, ids], best)
