"""What an export answers: its signatures, as functions of stock ops."""

import typing
from collections.abc import Callable
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfxclass.export import accuracy
from tfxclass.export import labels as labels_lib
from tfxclass.export import resources
from tfxclass.inference import filters
from tfxclass.inference.thresholds import above
from tfxclass.layers.output_head import OutputHead
from tfxclass.layers.output_head import flatten
from tfxclass.layers.output_head import unflatten
from tfxclass.ops.stored_rows import StoredRows
from tfxclass.rows import servable_ops
from tfxclass.types import Array
from tfxclass.types import Config

DEFAULT = tf.saved_model.DEFAULT_SERVING_SIGNATURE_DEF_KEY
FULL_SCORES = "full_scores"
CLASSIFY = "classify"
EMBED = "embed"
EXAMPLES = tf.saved_model.CLASSIFY_INPUTS
# The JSON of TensorFlow Serving has no numbers of these types.
_NOT_IN_JSON = (tf.float16, tf.bfloat16)


class ExactSearch(tf.Module):
    """All classes of a head, read for each query.

    Args:
        head: the head.
        store: how class rows are kept, a function of `servable_ops.stored`;
            None for a matrix of them.
    """

    def __init__(
        self,
        head: OutputHead,
        store: Callable[[tf.Tensor], StoredRows] | None = None,
    ) -> None:
        super().__init__()
        weights = head.export_weights()
        if store is not None:
            weights = servable_ops.stored(weights, store)
        self.variables_read = [
            x
            for x in tf.nest.flatten(weights)
            if isinstance(x, (tf.Variable, tf.Module))
        ]
        self.measured = None
        self.query_weights = head.query_weights()
        # Untracked: a layer would be saved with copies of its variables.
        self._head = lambda: (head, weights)

    @property
    def head(self) -> OutputHead:
        """The head; it is not saved."""
        return self._head()[0]

    @property
    def weights(self) -> Any:
        """What is read: `export_weights`, as they are stored."""
        return self._head()[1]

    def top_k(self, features: tf.Tensor, k: int) -> tuple[tf.Tensor, tf.Tensor]:
        head, weights = self._head()
        return head.export_top_k(features, k, weights)

    def logits_of(self, features: tf.Tensor, ids: tf.Tensor) -> tf.Tensor:
        """Logits of classes `[rows, q]` for features `[rows, dim]`."""
        head, weights = self._head()
        return head.stock_logits_of(features, ids, weights)

    def scores(self, features: tf.Tensor) -> tf.Tensor:
        head, weights = self._head()
        return head.export_scores(features, weights)

    @property
    def activation(self) -> str | None:
        """Of the scores; None where they are logits."""
        return self.head.activation

    def measure(
        self, features: Array | None, dim: int, k: int, min_recall: float
    ) -> None:
        """Compares the answers of int8 rows with the head's.

        Args:
            features: float `[..., dim]`, or None for random ones.
            dim: int.
            k: int.
            min_recall: float.

        Raises:
            ValueError: a recall below `min_recall`.
        """
        of = "random features" if features is None else "examples"
        if features is None:
            features = accuracy.random_features(dim)
        features = flatten(tf.convert_to_tensor(features))
        found = accuracy.measure(
            self.top_k(features, k), self.head.top_k(features, k)
        )
        accuracy.check_recall(found["recall"], min_recall, k)
        self.measured = {"quantize": accuracy.INT8, **found, "measured_on": of}

    def report(self) -> Config | None:
        """What was measured, a dict; None where it answers as the head."""
        return self.measured


class Answer(typing.NamedTuple):
    """What is answered to a query.

    Attributes:
        search: `ExactSearch` or `ListSearch`.
        k: int, classes in an answer.
        threshold: least score of a class in it: float, float32
            `[num_classes]`, or None.
        most_excluded: int, ids that a request may exclude; 0 where it cannot.
        has_only: bool, whether a request may name all that may be answers.
    """

    search: tf.Module
    k: int
    threshold: float | np.ndarray | None
    most_excluded: int = 0
    has_only: bool = False


class Signatures(tf.Module):
    """What is saved: the variables, the labels, and a function a signature.

    Args:
        encoder: `keras.Model` from the inputs to the features.
        answer: `Answer`.
        asset: path of the labels' file, or None.
        full_scores: whether there is a signature of that name.
    """

    def __init__(
        self,
        encoder: keras.Model,
        answer: Answer,
        asset: str | None,
        full_scores: bool,
    ) -> None:
        super().__init__()
        # The variables and tables only: a Keras layer as an attribute would be
        # saved with copies of its variables beside those that are read.
        self.state = resources.of(encoder)
        self.search = answer.search
        self.names = None if asset is None else labels_lib.table(asset)
        self._encode = lambda inputs: encode(encoder, inputs)
        self._k, self._threshold = answer.k, answer.threshold
        self._most_excluded = answer.most_excluded
        if isinstance(answer.threshold, np.ndarray):
            # Not a constant: those lie in saved_model.pb.
            self._threshold = tf.Variable(answer.threshold, trainable=False)
        specs = [spec_of(x) for x in encoder.inputs]
        examples = [tf.TensorSpec([None], tf.string, name=EXAMPLES)]
        self.functions = {
            DEFAULT: _function(self._serve, specs),
            EMBED: _function(self._embed, specs),
        }
        if full_scores:
            self.functions[FULL_SCORES] = _function(self._full_scores, specs)
        if answer.most_excluded:
            ids = ids_spec(filters.EXCLUDE)
            self.functions[filters.EXCLUDE] = _function(
                self._exclude, [*specs, ids]
            )
        if answer.has_only:
            ids = ids_spec(filters.ONLY)
            self.functions[filters.ONLY] = _function(self._only, [*specs, ids])
        features = features_of(encoder.inputs)
        # The Classify API has one list of classes for an example.
        if features is not None and len(encoder.outputs[0].shape) == 2:

            def classify(serialized):
                examples = tf.io.parse_example(serialized, features)
                # It sorts them.
                return self._classify(*(examples[name] for name in features))

            self.functions[CLASSIFY] = _function(classify, examples)

    def _serve(self, *inputs):
        return self._named(self.search.top_k(self._encode(inputs), self._k))

    def _exclude(self, *inputs):
        *inputs, ids = inputs
        features, head = self._encode(inputs), self.search.head
        # One row of ids is for all questions, as the default is.
        width = [tf.shape(features)[0], tf.shape(ids)[1]]
        ids = tf.broadcast_to(ids, width)
        ids = filters.checked_ids(ids, features, head)
        n, ids = filters.places_for(self._k, ids, head, self._most_excluded)
        found = self.search.top_k(flatten(features), n)
        found = filters.without(*found, ids, self._k)
        return self._named(unflatten(x, features) for x in found)

    def _only(self, *inputs):
        *inputs, ids = inputs
        features, head = self._encode(inputs), self.search.head
        ids = head.live_ids(filters.checked_ids(ids, features, head))
        logits = self.search.logits_of(flatten(features), ids)
        found = filters.among(head, logits, ids, self._k)
        return self._named(unflatten(x, features) for x in found)

    def _named(self, best):
        ids, scores = above(self._threshold, *best)
        answers = {"ids": ids, "scores": scores}
        if self.names is not None:
            answers["labels"] = self.names.lookup(ids)
        return answers

    def _embed(self, *inputs):
        return {"features": tf.cast(self._encode(inputs), tf.float32)}

    def _full_scores(self, *inputs):
        return {"scores": self.search.scores(self._encode(inputs))}

    def _classify(self, *inputs):
        answers = self._serve(*inputs)
        classes = answers.get("labels")
        if classes is None:
            classes = tf.strings.as_string(answers["ids"])
        return {"classes": classes, "scores": answers["scores"]}


def _function(function, specs):
    return tf.function(function, specs, autograph=False)


def encode(encoder: keras.Model, inputs: Sequence[tf.Tensor]) -> tf.Tensor:
    """Features of inputs as they come, of types that JSON has."""
    inputs = [tf.cast(x, y.dtype) for x, y in zip(inputs, encoder.inputs)]
    return encoder(inputs, training=False)


def ids_spec(kind: str) -> tf.TensorSpec:
    """Of the ids of a filter."""
    return tf.TensorSpec([None, None], tf.int64, name=filters.INPUTS[kind])


def spec_of(x: keras.KerasTensor) -> tf.TensorSpec:
    """`tf.TensorSpec` of what is served for a symbolic input."""
    dtype = tf.as_dtype(x.dtype)
    dtype = tf.float32 if dtype in _NOT_IN_JSON else dtype
    return tf.TensorSpec((None, *x.shape[1:]), dtype, name=x.name)


def features_of(
    inputs: Sequence[keras.KerasTensor],
) -> dict[str, tuple] | None:
    """Features of a tf.Example by input name; None where there are none.

    They are in the order of the inputs. Where dimension 1 is of unknown size,
    rows are as long as the longest, those that are shorter padded with zeros
    or empty strings. No other dimension may be.
    """
    features = {}
    for x in inputs:
        if None in x.shape[2:]:
            return None
        dtype = tf.as_dtype(x.dtype)
        if dtype.is_floating:
            dtype = tf.float32
        elif dtype != tf.string:
            dtype = tf.int64
        if None in x.shape[1:]:
            features[x.name] = tf.io.FixedLenSequenceFeature(
                x.shape[2:], dtype, allow_missing=True
            )
        else:
            features[x.name] = tf.io.FixedLenFeature(x.shape[1:], dtype)
    return features
