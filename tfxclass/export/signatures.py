"""The signatures of an export: what each answers, and how it is checked.

A signature is one function of a search. The saved graph gives it the search of
the export and the check gives it the model's own, so that no answer is
described twice.
"""

import functools
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf

from tfxclass.export import compare
from tfxclass.export import labels as labels_lib
from tfxclass.export import resources
from tfxclass.export.checks import SignatureCheck
from tfxclass.export.example_inputs import ANY_SIZE
from tfxclass.export.example_inputs import serialize
from tfxclass.export.example_inputs import served
from tfxclass.export.example_inputs import spec_of
from tfxclass.inference import filters
from tfxclass.inference.thresholds import above

DEFAULT = tf.saved_model.DEFAULT_SERVING_SIGNATURE_DEF_KEY
CLASSIFY, EMBED, FULL_SCORES = "classify", "embed", "full_scores"
EXAMPLES = tf.saved_model.CLASSIFY_INPUTS


class Signature(NamedTuple):
    """A signature of an export.

    Attributes:
        name: str.
        k: int, classes in an answer; 0 of `EMBED` and `FULL_SCORES`.
        filter: `Filter`, or None.
        excluded: `keras.Model` from the model's inputs to the ids of the
            filter, `[batch, p]`; None where a request has them.
    """

    name: str
    k: int = 0
    filter: filters.Filter | None = None
    excluded: keras.Model | None = None

    @property
    def ids_input(self) -> str | None:
        """The name of the input with a filter's ids, or None."""
        if self.filter is None or self.excluded is not None:
            return None
        return filters.INPUTS[self.filter.kind]

    def answer(
        self, search: Any, features: tf.Tensor, *ids: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        """The answers of a search to features `[..., dim]`.

        A dict of `scores` and, unless they cover all classes, `ids`; or of
        `features`.
        """
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
    encoder: keras.Model,
    k: int,
    given: Sequence[filters.Filter] = (),
    full_scores: bool = False,
    excluded: keras.Model | None = None,
) -> list[Signature]:
    """The signatures of an export; see `saved_model`.

    The filters in `given` have a signature. `excluded` is a `keras.Model` from
    the inputs to ids that are no answers, or None.
    """
    best = Signature(DEFAULT, k)
    if excluded is not None:
        best = Signature(DEFAULT, k, filters.Filter(filters.EXCLUDE), excluded)
    found = [best, Signature(EMBED)]
    if full_scores:
        found.append(Signature(FULL_SCORES))
    found += [Signature(each.kind, k, each) for each in given]
    # The Classify API has one list of classes for an example.
    is_flat = len(encoder.outputs[0].shape) == 2
    if is_flat and example_spec(encoder.inputs) is not None:
        found.append(best._replace(name=CLASSIFY))
    return found


class Reference:
    """A model, and the examples on which it is compared to its export.

    Args:
        encoder: `keras.Model` from the inputs to the features.
        search: the model's own answers: `ModelSearch`, or the search of an
            export where that is approximate and was measured.
        examples: list of arrays for the encoder.
        names: list of str, the class names, or None.
        threshold: least score of an answer: float, float32 `[num_classes]`,
            or None.
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

    # When the export has answered: it tells of bad inputs more clearly.
    @functools.cached_property
    def features(self) -> tf.Tensor:
        """The input of the head, float `[..., dim]`."""
        return self._of_examples(self.encoder)

    def _of_examples(self, model):
        return model([tf.constant(x) for x in self._examples], training=False)

    def check(self, signature: Signature) -> SignatureCheck:
        """Inputs for a signature, and whether its answers are right."""
        inputs, ids = self.inputs, []
        if signature.excluded is not None:
            ids = [self._of_examples(signature.excluded)]
        elif signature.filter is not None:
            ids = [self._some_ids(signature.filter)]
            name = filters.INPUTS[signature.filter.kind]
            inputs = {**inputs, name: ids[0]}

        def check(answers):
            expected, names = self._expect(signature, ids), self.names
            if signature.name == CLASSIFY:
                wanted = expected.answers["ids"]
                found = _ids_of(answers["classes"], wanted, names)
                answers, names = {**answers, "ids": found}, None
            compare.check(answers, expected, names)

        if signature.name == CLASSIFY:
            inputs = {EXAMPLES: np.array(serialize(inputs), object)}
        return SignatureCheck(signature.name, inputs, check)

    def _expect(self, signature, ids):
        """`Expected` of the model's own answers."""
        return compare.expect(
            lambda features: signature.answer(self.search, features, *ids),
            self.features,
            compare.feature_error(self.encoder),
            signature.activation(self.search),
            self.threshold,
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


def _ids_of(classes, expected, names):
    """Class ids of the answers of `classify`, -1 for none."""
    if names is None:
        return classes.astype("int64")
    # Id -1, where no class was found, has no name.
    known = [*(name.encode() for name in names), b""]
    ids = {name: i for i, name in enumerate(known[:-1])}
    # Names may repeat.
    same = np.array([[known[i] for i in row] for row in expected], object)
    found = [[ids.get(name, -1) for name in row] for row in classes]
    return np.where(same == classes, expected, found)


class SavedSignatures(tf.Module):
    """What is saved: variables, labels, and a function per signature.

    Args:
        model: `Reference` of the model.
        search: `ExactSearch` or `ListSearch`.
        signatures: list of `Signature`.
        asset: path of the labels' file, or None.
    """

    def __init__(
        self,
        model: Reference,
        search: tf.Module,
        signatures: Sequence[Signature],
        asset: str | None,
    ) -> None:
        super().__init__()
        # The variables and tables only: a Keras layer as an attribute would be
        # saved with copies of its variables in addition to those in use.
        read = [model.encoder, *(each.excluded for each in signatures)]
        self.state = [resources.of(x) for x in read if x is not None]
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
        specs = [spec_of(x) for x in encoder.inputs]
        count, features = len(specs), example_spec(encoder.inputs)
        if signature.ids_input is not None:
            specs.append(
                tf.TensorSpec([None, None], tf.int64, signature.ids_input)
            )

        def serve(*inputs):
            encoded = encode(encoder, inputs[:count])
            ids = inputs[count:]
            if signature.excluded is not None:
                ids = (encode(signature.excluded, inputs[:count]),)
            return self._named(signature.answer(self.search, encoded, *ids))

        def classify(serialized):
            examples = tf.io.parse_example(serialized, features)
            # `parse_example` sorts them.
            answers = serve(*(examples[name] for name in features))
            classes = answers.get("labels")
            if classes is None:
                classes = tf.strings.as_string(answers["ids"])
            return {"classes": classes, "scores": answers["scores"]}

        if signature.name == CLASSIFY:
            specs = [tf.TensorSpec([None], tf.string, name=EXAMPLES)]
            return tf.function(classify, specs, autograph=False)
        return tf.function(serve, specs, autograph=False)

    def _named(self, answers):
        """Answers at the threshold and above, with their names."""
        if "ids" not in answers:
            return answers
        ids, scores = above(self._threshold, answers["ids"], answers["scores"])
        answers = {"ids": ids, "scores": scores}
        if self.names is not None:
            answers["labels"] = self.names.lookup(ids)
        return answers


def encode(encoder: keras.Model, inputs: Sequence[tf.Tensor]) -> tf.Tensor:
    """Features of inputs as they come, of types that JSON has."""
    inputs = [tf.cast(x, y.dtype) for x, y in zip(inputs, encoder.inputs)]
    return encoder(inputs, training=False)


def example_spec(
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
