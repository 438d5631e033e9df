"""The signatures of an export: what each answers, and what of it is saved."""

from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

import keras
import tensorflow as tf

from tfxclass.export import labels as labels_lib
from tfxclass.export.example_inputs import spec_of
from tfxclass.export.searches import ModelSearch
from tfxclass.inference import filters
from tfxclass.inference.thresholds import Threshold
from tfxclass.inference.thresholds import above
from tfxclass.keras_internals import flat_layers

_RESOURCES = (tf.Variable, tf.saved_model.experimental.TrackableResource)
_CONTAINERS = (list, tuple, set)
DEFAULT = tf.saved_model.DEFAULT_SERVING_SIGNATURE_DEF_KEY
EMBED, FULL_SCORES = "embed", "full_scores"


class Signature(NamedTuple):
    """A signature of an export, with `k` classes in an answer.

    `excluded` is a model of a filter's ids that a request does not have. No
    class of an answer is below the `threshold`.
    """

    name: str
    k: int = 0
    filter: filters.Filter | None = None
    excluded: keras.Model | None = None
    threshold: Threshold = None

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
        return dict(zip(("ids", "scores"), above(self.threshold, *found)))

    def activation(self, search: Any) -> str | None:
        """The activation of the scores; None for logits."""
        # These are exact, even if the search gives logits.
        exact = (FULL_SCORES, filters.ONLY, filters.BOOST)
        return (search.head if self.name in exact else search).activation


def signatures_of(
    k: int,
    given: Sequence[filters.Filter] = (),
    full_scores: bool = False,
    excluded: keras.Model | None = None,
    threshold: Threshold = None,
) -> list[Signature]:
    """The signatures of `saved_model`, one for each of the filters `given`."""
    left_out = None if excluded is None else filters.Filter(filters.EXCLUDE)
    found = [
        Signature(DEFAULT, k, left_out, excluded, threshold),
        Signature(EMBED),
    ]
    if full_scores:
        found.append(Signature(FULL_SCORES))
    for each in given:
        found.append(Signature(each.kind, k, each, threshold=threshold))
    return found


class SavedSignatures(tf.Module):
    """What is saved: variables, labels, and a function per signature."""

    def __init__(
        self,
        encoder: keras.Model,
        search: ModelSearch,
        signatures: Sequence[Signature],
        asset: str | None,
    ) -> None:
        super().__init__()
        # The variables and tables only: a Keras layer as an attribute would be
        # saved with copies of its variables in addition to those in use.
        read = [encoder, *(each.excluded for each in signatures)]
        self.state = [resources_of(x) for x in read if x is not None]
        read = [search.state, *(each.threshold for each in signatures)]
        self.state += [
            x
            for x in tf.nest.flatten(read)
            if isinstance(x, (tf.Variable, tf.Module))
        ]
        self.search = search
        self.names = None if asset is None else labels_lib.table(asset)
        self.functions = {
            signature.name: self._function(encoder, signature)
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
            if self.names is not None and "ids" in answers:
                answers["labels"] = self.names.lookup(answers["ids"])
            return answers

        return tf.function(serve, signature.specs(encoder), autograph=False)


def encode(encoder: keras.Model, inputs: Sequence[tf.Tensor]) -> tf.Tensor:
    """Features of inputs as they come, of types that JSON has."""
    inputs = [tf.cast(x, y.dtype) for x, y in zip(inputs, encoder.inputs)]
    return encoder(inputs, training=False)


def resources_of(model: keras.Model) -> list[Any]:
    """The `tf.Variable`s and tables of a model, its layers and their parts."""
    pending: list[Any] = flat_layers(model)[::-1]
    found, seen = [], set()
    while pending:
        thing = pending.pop()
        if id(thing) in seen:
            continue
        seen.add(id(thing))
        if isinstance(thing, _RESOURCES):
            found.append(thing)
        pending += _parts(thing)[::-1]
    return found


def _parts(thing):
    if isinstance(thing, keras.Variable):
        return [thing.value]
    if isinstance(thing, (keras.layers.Layer, tf.Module)):
        # Attributes hold what Keras has no list of.
        return [*thing.variables, *vars(thing).values()]
    if isinstance(thing, dict):
        return list(thing.values())
    return list(thing) if isinstance(thing, _CONTAINERS) else []
