"""Models that answer with the best classes, or with retain probabilities."""

from typing import Any

import keras
import tensorflow as tf

from tfxclass.checks import check_k
from tfxclass.inference import filters
from tfxclass.inference.graph import encoder_of
from tfxclass.inference.thresholds import above
from tfxclass.inference.thresholds import checked_threshold
from tfxclass.keras_internals import names_of_functions
from tfxclass.layers.dropmax import DropMax
from tfxclass.layers.output_head import OutputHead
from tfxclass.types import Config
from tfxclass.types import Shape


class HeadLayer(keras.layers.Layer):
    """Base class of layers with a head, which is built and saved with them."""

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
    """The layer of `top_k`, called with features and the ids of a filter."""

    def __init__(
        self,
        head: OutputHead,
        k: int,
        threshold: float | str | None = None,
        kind: str | None = None,
        max_excluded: int | None = None,
        boost: float | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(head, **kwargs)
        self.k, self.threshold = k, threshold
        self.filter = None
        if kind is not None:
            self.filter = filters.Filter(kind, max_excluded, boost)

    # Keras hands these methods as many inputs as `call` is given.
    def build(
        self, features_shape: Shape, ids_shape: Shape | None = None
    ) -> None:
        super().build(features_shape)

    def call(
        self, features: tf.Tensor, ids: tf.Tensor | None = None
    ) -> tuple[tf.Tensor, tf.Tensor]:
        if self.filter is None:
            found = self.head.top_k(features, self.k)
        else:
            found = self.filter.top_k(self.head, features, ids, self.k)
        return above(checked_threshold(self.threshold, self.head), *found)

    def compute_output_spec(
        self, features: keras.KerasTensor, ids: keras.KerasTensor | None = None
    ) -> tuple[keras.KerasTensor, keras.KerasTensor]:
        shape = (*features.shape[:-1], self.k)
        return (
            keras.KerasTensor(shape, dtype="int64"),
            keras.KerasTensor(shape, dtype="float32"),
        )

    def get_config(self) -> Config:
        own = {"k": self.k, "threshold": self.threshold}
        if self.filter is not None:
            own |= dict(zip(("kind", "max_excluded", "boost"), self.filter))
        return {**super().get_config(), **own}


@keras.saving.register_keras_serializable("tfxclass")
class TopKModel(keras.Model):
    """The model of `top_k`; Keras cannot export its compiled ops."""

    def export(self, *args: Any, **kwargs: Any) -> None:
        raise ValueError(
            "Keras' `export` cannot write a model of tfxclass.top_k. Fix: give "
            "the model itself to tfxclass.export.saved_model(model, path, "
            "top_k=10), or to tfxclass.export.onnx."
        )


def top_k(
    model: keras.Model,
    k: int = 10,
    threshold: float | str | None = None,
    exclude: bool | int | keras.KerasTensor = False,
    only: bool = False,
    boost: float | None = None,
) -> keras.Model:
    """A model that returns the k best classes instead of all probabilities.

    Use it for predictions. It has the inputs and weights of `model`, and never
    computes the [batch, num_classes] output. With a filter (`exclude`, `only`
    or `boost`), questions name classes in an input `exclude_ids`, `only_ids` or
    `boost_ids`, int64 `[batch, p]` padded with -1.

    Args:
        model: a built Keras model that ends in a head, also a subclassed one.
        k: int, at most the number of classes that were not removed.
        threshold: float in [0, 1], lowest probability of an answer,
            `"calibrated"` for the threshold of each class from
            `tfxclass.calibrate`, or None.
        exclude: whether questions name classes that are not answers, such as
            items that a user has already seen. Answers are the best of the
            other classes, with unchanged scores. The search is for the k + p
            best. An int is the largest p, and True allows p up to 64 in batches
            of several widths. A Keras tensor that is computed from the inputs,
            integers `[batch, p]` padded with -1, adds no input.
        only: bool, whether questions name the classes that may be answers. Only
            their class vectors are read (in heads without one class vector for
            each class, all are). A softmax is normalized over these classes.
            Repeated ids count once.
        boost: float > 0 or None, which is added to the logits of classes that
            questions name. Repeated ids count once. Use it if an answer is
            often part of the question, such as items that a visitor has looked
            at. Choose it on validation data.

    Returns:
        A `keras.Model` with outputs `(ids, scores)`, int64 and float32 `[batch,
        k]`, or `[batch, time, k]` for sequences, best first. If fewer than `k`
        classes are left or reach the threshold, or a score is NaN, ids are -1
        and scores 0.

    Raises:
        ValueError: if an argument is out of range, there is no single head, the
            model is not built or has an input with the name of a filter's.
        InvalidArgumentError: in a call, if ids of a filter are out of range.

    Example:

    ```python
    head = tfxclass.layers.FullSoftmax(100)
    model = keras.Sequential([keras.Input([20]), head])
    best = tfxclass.top_k(model, 5)
    ids, scores = best.predict(np.ones([2, 20]), verbose=0)
    others = tfxclass.top_k(model, 5, exclude=True)
    seen = np.array([[3, 7], [4, -1]])
    ids, scores = others.predict([np.ones([2, 20]), seen], verbose=0)
    ```
    """
    encoder, head = encoder_of(model)
    k = check_k(k, head.num_answers)
    checked_threshold(threshold, head)
    asked = filters.single_filter(head, encoder, exclude, only, boost)
    given, features = encoder.input, encoder.output
    if isinstance(exclude, keras.KerasTensor):
        asked = filters.Filter(filters.EXCLUDE)
        best = TopK(head, k, threshold, *asked)(features, exclude)
    elif asked is None:
        best = TopK(head, k, threshold)(features)
    else:
        name = filters.INPUTS[asked.kind]
        ids = keras.Input([asked.width], dtype="int64", name=name)
        best = TopK(head, k, threshold, *asked)(features, ids)
        if isinstance(given, dict):
            given = {**given, name: ids}
        else:
            given = [*encoder.inputs, ids]
    return TopKModel(given, best)


@keras.saving.register_keras_serializable("tfxclass")
class RetainProbabilities(HeadLayer):
    """`(output, rho)` of a head, each float32 `[batch, num_classes]`."""

    def call(self, features: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        head = self.head
        logits = head.logits(features)
        output = head.activate(logits) if head.activation else logits
        return output, head.retain_probabilities(features)


def retain_probabilities(model: keras.Model) -> keras.Model:
    """A model with the retain probabilities of `DropMax` as second output.

    A class with a higher probability is one that the example is easily confused
    with (figure 4 of the paper). At the default weights of `DropMax` the
    differences are small.

    Args:
        model: a Sequential or functional model that ends in a `DropMax`.

    Returns:
        A `keras.Model` with the inputs and weights of `model`, and outputs
        `(output, rho)`, each float32 `[batch, num_classes]`.

    Raises:
        ValueError: if the model is of another kind, or not built.

    Example:

    ```python
    head = tfxclass.layers.DropMax(10)
    model = keras.Sequential([keras.Input([20]), head])
    both = tfxclass.retain_probabilities(model)
    output, rho = both.predict(np.ones([2, 20]), verbose=0)
    ```
    """
    encoder, head = encoder_of(model)
    if not isinstance(head, DropMax):
        raise ValueError(
            "Retain probabilities need a model that ends in a DropMax. "
            f"Received: {type(head).__name__} {head.name!r}."
        )
    outputs = RetainProbabilities(head)(encoder.output)
    return keras.Model(encoder.input, outputs)
