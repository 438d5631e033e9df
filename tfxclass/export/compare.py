"""Whether an export answers as the model does, up to rounding.

Two programs round an encoder in 16 bits differently. So the features of an
export may differ more, and its answers are compared with the head's to these.
"""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfxclass.export.checks import Request
from tfxclass.export.example_inputs import ANY_SIZE
from tfxclass.export.example_inputs import spec_of
from tfxclass.export.signatures import Signature
from tfxclass.keras_internals import flat_layers

# Two orders of summation in float32. An absolute 1e-6 alone would say nothing
# about probabilities over a million classes, and is below the resolution of
# large logits.
_RELATIVE = 2e-5
_ABSOLUTE = {
    None: 1e-6,
    "softmax": 1e-12,
    "sigmoid": 1e-12,
    # A difference of logits: it has their error, however small it is itself.
    "sparsemax": 2e-5,
}
# The distance of 1 to the next number; of int8 products, of their steps.
_EPSILON = {"float16": 2.0**-10, "bfloat16": 2.0**-7, "int8": 2.0**-7}
# The error of a feature is at most this many times the typical one.
_SAFETY = 8.0


def feature_error(encoder: keras.Model) -> float:
    """The greatest error of a feature over the size of the features."""
    errors = []
    for policy in (layer.dtype_policy for layer in flat_layers(encoder)):
        is_quantized = getattr(policy, "quantization_mode", None) is not None
        kind = "int8" if is_quantized else policy.compute_dtype
        errors.append(_EPSILON.get(kind, 0.0))
    # Roundings of layers add up as the steps of a random walk do.
    return _SAFETY * float(np.sqrt(np.sum(np.square(errors))))


def check(
    answers: dict[str, np.ndarray],
    expected: dict[str, np.ndarray],
    activation: str | None = None,
    names: Sequence[str] | None = None,
    is_compared: np.ndarray | bool = True,
    error: np.ndarray | float = 0.0,
) -> None:
    """Raises RuntimeError unless the answers are those expected.

    Both are arrays `[..., n]`: `features`, or `scores` and perhaps `ids`, which
    are equal but where rounding alone may order two classes either way. With
    `names`, answers have `labels`. `error` is from other causes than the order
    of sums, and `is_compared` tells which rows count, both `[rows, 1]`.
    """
    for key, value in expected.items():
        if answers[key].shape != value.shape:
            _differs(f"shape of `{key}`", answers[key].shape, value.shape)
    wanted = {key: _flat(x) for key, x in expected.items()}
    found = {
        key: np.where(is_compared, _flat(answers[key]), value)
        for key, value in wanted.items()
    }
    (key,) = wanted.keys() - {"ids"}
    least = _ABSOLUTE[activation] + error
    pair = found[key], wanted[key]
    if not np.allclose(*pair, _RELATIVE, least, equal_nan=True):
        _differs(f"`{key}`", *pair)
    if "ids" not in wanted:
        return
    tolerance = least + _RELATIVE * np.abs(wanted["scores"])
    pair = found["ids"], wanted["ids"]
    if not _is_same_order(*pair, wanted["scores"], tolerance):
        _differs("`ids`", *pair)
    if names is not None:
        # Id -1, where no class was found, has no name.
        known = [*(name.encode() for name in names), b""]
        labels = [[known[i] for i in row] for row in _flat(answers["ids"])]
        if _flat(answers["labels"]).tolist() != labels:
            _differs("`labels`", answers["labels"], labels)


def _flat(answers):
    return answers.reshape(-1, answers.shape[-1])


def _is_same_order(received, expected, scores, tolerance):
    """Whether ids differ only where classes of one score change places."""
    for row, place in np.argwhere(received != expected):
        gap = np.abs(scores[row] - scores[row, place])
        tied = gap <= tolerance[row, place]
        moved = np.any(expected[row, tied] == received[row, place])
        # One tied with the last may give way to a class left out.
        if not moved and not tied[-1]:
            return False
    return True


def _differs(what, received, expected):
    raise RuntimeError(
        f"The {what} of the export differ from the model's. Received: "
        f"{received}, expected: {expected}. A layer may behave otherwise "
        "outside of Keras; compare with `example_inputs` that are real data."
    )


class Reference:
    """A model, and the examples on which it is compared to its export.

    `search` is the model's own, or an export's that was measured.
    """

    def __init__(
        self,
        encoder: keras.Model,
        search: Any,
        examples: Sequence[np.ndarray],
        names: Sequence[str] | None = None,
    ) -> None:
        self.encoder, self._examples = encoder, examples
        self.search, self.names = search, names
        self.inputs = {
            x.name: value.astype(spec_of(x).dtype.as_numpy_dtype)
            for x, value in zip(encoder.inputs, examples)
        }

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
                "The features of all example rows are NaN or infinite. Give "
                "rows of real data as `example_inputs`, or look for NaN in the "
                "model's weights."
            )
        sizes = np.nan_to_num(np.abs(_flat(expected)))
        sizes = sizes.max(axis=1, keepdims=True)
        check(
            {"features": found},
            {"features": expected},
            error=feature_error(self.encoder) * sizes,
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
        check(
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


def _is_finite(features):
    return np.isfinite(_flat(features)).all(axis=1, keepdims=True)
