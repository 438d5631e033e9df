"""The signatures of an export: what each answers, and how it is checked.

The saved graph gives a signature the search of the export, and the check gives
it the model's own.
"""

from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf

from tfxclass.export import compare
from tfxclass.export import labels as labels_lib
from tfxclass.export import resources
from tfxclass.export.checks import Request
from tfxclass.export.example_inputs import ANY_SIZE
from tfxclass.export.example_inputs import served
from tfxclass.export.example_inputs import spec_of
from tfxclass.export.searches import ModelSearch
from tfxclass.inference import filters
from tfxclass.inference.thresholds import above

DEFAULT = tf.saved_model.DEFAULT_SERVING_SIGNATURE_DEF_KEY
EMBED, FULL_SCORES = "embed", "full_scores"


class Signature(NamedTuple):
    """A signature of an export, with `k` classes in an answer.

    `excluded` is a model from the inputs to the ids of the filter, `[batch,
    p]`; None where a request has them.
    """

    name: str
    k: int = 0
    filter: filters.Filter | None = None
    excluded: keras.Model | None = None

    def specs(self, encoder: keras.Model) -> list[tf.TensorSpec]:
        """The inputs of the signature."""
        specs = [spec_of(x) for x in encoder.inputs]
        if self.ids_input is not None:
            specs.append(tf.TensorSpec([None, None], tf.int64, self.ids_input))
        return specs

    @property
    def ids_input(self) -> str | None:
        """The name of the input with a filter's ids, or None."""
        if self.filter is None or self.excluded is not None:
            return None
        return filters.INPUTS[self.filter.kind]

    def answer(
        self, search: Any, features: tf.Tensor, *ids: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        """`features`, or the `scores` of a search and, unless full, `ids`."""
        if self.name == EMBED:
            return {"features": tf.cast(features, tf.float32)}
        if self.name == FULL_SCORES:
            return {"scores": search.scores(features)}
        if self.filter is None:
            found = search.top_k(features, self.k)
        else:
            # One row of ids is for all questions, as the default is.
            shape = [tf.shape(features)[0], tf.shape(ids[0])[1]]
            named = tf.broadcast_to(ids[0], shape)
            found = self.filter.top_k(
                search.head, features, named, self.k, search
            )
        return dict(zip(("ids", "scores"), found, strict=True))

    def activation(self, search: Any) -> str | None:
        """The activation of the scores; None of logits and features."""
        if self.name == EMBED:
            return None
        kind = None if self.filter is None else self.filter.kind
        if self.name == FULL_SCORES or kind in (filters.ONLY, filters.BOOST):
            # They are exact, even if the search gives logits.
            return search.head.activation
        return search.activation


def signatures_of(
    k: int,
    given: Sequence[filters.Filter] = (),
    full_scores: bool = False,
    excluded: keras.Model | None = None,
) -> list[Signature]:
    """The signatures of `saved_model`, one for each of the filters `given`."""
    left_out = None if excluded is None else filters.Filter(filters.EXCLUDE)
    found = [Signature(DEFAULT, k, left_out, excluded), Signature(EMBED)]
    if full_scores:
        found.append(Signature(FULL_SCORES))
    return found + [Signature(each.kind, k, each) for each in given]


class Reference:
    """A model, and the examples on which it is compared to its export.

    `search` is the model's own, or an export's that is approximate and was
    measured. `threshold` is the least score of an answer, one or of each class.
    """

    def __init__(
        self,
        encoder: keras.Model,
        search: Any,
        examples: Sequence[np.ndarray],
        names: Sequence[str] | None = None,
        threshold: float | np.ndarray | None = None,
    ) -> None:
        self.encoder, self._examples = encoder, examples
        self.search, self.names, self.threshold = search, names, threshold
        self.inputs = served(encoder.inputs, examples)

    def features(self) -> np.ndarray:
        """The input of the head, float32 `[..., dim]`."""
        return tf.cast(self._of_examples(self.encoder), tf.float32).numpy()

    def _of_examples(self, model):
        return model([tf.constant(x) for x in self._examples], training=False)

    def request(self, signature: Signature) -> Request:
        """What a signature is asked."""
        inputs = self.inputs
        if signature.ids_input is not None:
            ids = self._some_ids(signature.filter)
            inputs = {**inputs, signature.ids_input: ids}
        return Request(signature.name, inputs)

    def check_features(self, found: np.ndarray) -> None:
        """Raises an error unless features are the model's, and some finite."""
        expected = self.features()
        if not _is_finite(expected).any():
            raise ValueError(
                "The features of all example rows are NaN or infinite, so that "
                "no answer can be compared with the model's. Give rows of real "
                "data as `example_inputs`, or look for NaN in the model's "
                "weights."
            )
        sizes = np.abs(expected.reshape(-1, expected.shape[-1]))
        sizes = np.nan_to_num(sizes).max(axis=1, keepdims=True)
        compare.check(
            {"features": found},
            {"features": expected},
            error=compare.feature_error(self.encoder) * sizes,
        )

    def check(
        self,
        signature: Signature,
        answers: dict[str, np.ndarray],
        features: np.ndarray,
    ) -> None:
        """Raises RuntimeError unless answers to features are the head's."""
        ids = []
        if signature.excluded is not None:
            ids = [self._of_examples(signature.excluded)]
        elif signature.filter is not None:
            ids = [self._some_ids(signature.filter)]
        found = signature.answer(self.search, tf.constant(features), *ids)
        found = _above(self.threshold, found)
        compare.check(
            answers,
            {key: x.numpy() for key, x in found.items()},
            signature.activation(self.search),
            self.names,
            # An encoder may have no answer to a row, as the mean of no words.
            _is_finite(features),
        )

    def _some_ids(self, given):
        """Ids for a filter, int64 `[rows, p]`, some of them -1."""
        # As many as the export searches for: a beam depends on their number.
        width = given.room or ANY_SIZE
        rows, named = len(self._examples[0]), min(width, ANY_SIZE)
        classes = self.search.head.num_classes
        ids = np.random.default_rng(1).integers(-1, classes, (rows, named))
        padding = [[0, 0], [0, width - named]]
        return np.pad(ids, padding, constant_values=-1)


def _above(threshold, answers):
    """Answers at the threshold and above, if they are classes."""
    if "ids" not in answers:
        return answers
    return dict(zip(("ids", "scores"), above(threshold, **answers)))


def _is_finite(features):
    features = features.reshape(-1, features.shape[-1])
    return np.isfinite(features).all(axis=1, keepdims=True)


class SavedSignatures(tf.Module):
    """What is saved: variables, labels, and a function per signature."""

    def __init__(
        self,
        model: Reference,
        search: ModelSearch,
        signatures: Sequence[Signature],
        asset: str | None,
    ) -> None:
        super().__init__()
        # The variables and tables only: a Keras layer as an attribute would be
        # saved with copies of its variables in addition to those in use.
        read = [model.encoder, *(each.excluded for each in signatures)]
        self.state = [resources.of(x) for x in read if x is not None]
        self.state += [
            x
            for x in tf.nest.flatten(search.state)
            if isinstance(x, (tf.Variable, tf.Module))
        ]
        self.search = search
        self.names = None if asset is None else labels_lib.table(asset)
        self._threshold = model.threshold
        if isinstance(model.threshold, np.ndarray):
            # Not a constant: those lie in saved_model.pb.
            self._threshold = tf.Variable(model.threshold, trainable=False)
        self.functions = {
            signature.name: self._function(model.encoder, signature)
            for signature in signatures
        }

    def _function(self, encoder, signature):
        count = len(encoder.inputs)

        def serve(*inputs):
            encoded = encode(encoder, inputs[:count])
            ids = inputs[count:]
            if signature.excluded is not None:
                ids = (encode(signature.excluded, inputs[:count]),)
            answers = signature.answer(self.search, encoded, *ids)
            answers = _above(self._threshold, answers)
            if self.names is not None and "ids" in answers:
                answers["labels"] = self.names.lookup(answers["ids"])
            return answers

        return tf.function(serve, signature.specs(encoder), autograph=False)


def encode(encoder: keras.Model, inputs: Sequence[tf.Tensor]) -> tf.Tensor:
    """Features of inputs as they come, of types that JSON has."""
    inputs = [tf.cast(x, y.dtype) for x, y in zip(inputs, encoder.inputs)]
    return encoder(inputs, training=False)
