"""What an export is asked when it is proven, and what it must answer."""

import functools
import typing
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfxclass.export import compare
from tfxclass.export import precision
from tfxclass.export import signatures as signatures_lib
from tfxclass.inference import filters
from tfxclass.layers.output_head import OutputHead
from tfxclass.layers.output_head import flatten
from tfxclass.layers.output_head import unflatten

_TEXTS = ("sample text", "", "Zwei W\u00f6rter")
# Where an input has a dimension of any size.
_ANY_SIZE = 8


class Question(typing.NamedTuple):
    """What the loaded export is asked, and who knows the answer.

    Attributes:
        signature: str, name of the signature.
        inputs: dict of arrays for it.
        check: function that raises unless it is given the right answers, a
            dict of arrays.
    """

    signature: str
    inputs: dict
    check: typing.Callable


class Best(typing.NamedTuple):
    """The answers that are expected.

    Attributes:
        find: function of features and k that returns `(ids, scores)`, without
            a threshold.
        activation: of the scores; None where they are logits.
        threshold: least score of an answer, or None.
        scores: function of the features: scores of all classes.
        logits_of: function of features `[rows, dim]` and ids `[rows, q]`.
    """

    find: typing.Callable
    activation: str | None
    threshold: float | np.ndarray | None
    scores: typing.Callable
    logits_of: typing.Callable


def best_of(
    search: OutputHead | tf.Module, threshold: float | np.ndarray | None
) -> Best:
    """`Best` of a head, or of a search that answers otherwise."""
    find, logits_of = search.top_k, getattr(search, "logits_of", None)
    # One that searches otherwise in an export is compared with that.
    if isinstance(search, OutputHead) and not search.export_is_exact:
        find = search.export_top_k
    return Best(
        find,
        search.activation,
        threshold,
        _scores_of(search),
        logits_of,
    )


def _scores_of(search):
    if not isinstance(search, OutputHead):
        return search.scores

    def scores(features):
        logits = search.logits(features)
        return search.activate(logits) if search.activation else logits

    return scores


def ask(
    encoder: keras.Model,
    head: OutputHead,
    best: Best,
    names: Sequence[str] | None,
    examples: Sequence[np.ndarray],
    answer: signatures_lib.Answer,
) -> list[Question]:
    """A `Question` for each signature that an export may have.

    Args:
        encoder: `keras.Model` from the inputs to the features.
        head: the model's head.
        best: `Best`.
        names: list of str, the class names, or None.
        examples: list of arrays for the encoder.
        answer: `Answer`, of which the search is not read.
    """

    # When the export has answered: it tells of bad inputs more clearly.
    @functools.cache
    def features():
        return encoder([tf.constant(x) for x in examples], training=False)

    error = precision.feature_error(encoder)

    @functools.cache
    def expected():
        return expect(lambda x: best.find(x, answer.k), best.activation)

    def expect(find, activation):
        return precision.expect(
            find, features(), error, activation, best.threshold
        )

    def check(answers, wanted, names, activation):
        compare.check_same(
            answers,
            wanted.answers,
            names,
            activation,
            wanted.error,
            wanted.compared,
        )

    def check_best(answers):
        check(answers, expected(), names, best.activation)

    def check_classes(answers):
        ids = _ids_of(answers["classes"], expected().answers["ids"], names)
        answers = {"ids": ids, "scores": answers["scores"]}
        check(answers, expected(), None, best.activation)

    def check_features(answers):
        compare.check_close(
            "features",
            answers,
            tf.cast(features(), tf.float32).numpy(),
            None,
            # No number is likely to be as far off as this.
            8 * precision.noise(features(), error),
            precision.is_finite(features()),
        )

    def check_scores(answers):
        wanted = precision.expect(
            lambda x: (tf.zeros([1, 1], tf.int64), best.scores(x)),
            features(),
            error,
            head.activation,
        )
        compare.check_close(
            "scores",
            answers,
            wanted.answers["scores"],
            head.activation,
            wanted.error,
            wanted.compared,
        )

    named = filter_ids(len(examples[0]), head.num_classes, answer)

    def find_others(features):
        ids = filters.checked_ids(named, features, head)
        n = min(answer.k + answer.most_excluded, head.num_answers)
        found = best.find(flatten(features), n)
        found = filters.without(*found, ids, answer.k)
        return tuple(unflatten(x, features) for x in found)

    def find_among(features):
        ids = head.live_ids(filters.checked_ids(named, features, head))
        logits = best.logits_of(flatten(features), ids)
        found = filters.among(head, logits, ids, answer.k)
        return tuple(unflatten(x, features) for x in found)

    def check_excluded(answers):
        wanted = expect(find_others, best.activation)
        check(answers, wanted, names, best.activation)

    def check_only(answers):
        wanted = expect(find_among, head.activation)
        check(answers, wanted, names, head.activation)

    inputs = served(encoder.inputs, examples)
    of_examples = {signatures_lib.EXAMPLES: np.array(serialize(inputs), object)}
    return [
        Question(signatures_lib.DEFAULT, inputs, check_best),
        Question(signatures_lib.CLASSIFY, of_examples, check_classes),
        Question(signatures_lib.EMBED, inputs, check_features),
        Question(signatures_lib.FULL_SCORES, inputs, check_scores),
        Question(
            filters.EXCLUDE,
            {**inputs, filters.INPUTS[filters.EXCLUDE]: named},
            check_excluded,
        ),
        Question(
            filters.ONLY,
            {**inputs, filters.INPUTS[filters.ONLY]: named},
            check_only,
        ),
    ]


def filter_ids(
    rows: int, num_classes: int, answer: signatures_lib.Answer
) -> np.ndarray:
    """Ids that a filter is asked with, int64 `[rows, p]`, some of them -1."""
    width = min(answer.most_excluded or _ANY_SIZE, _ANY_SIZE)
    rng = np.random.default_rng(1)
    return rng.integers(-1, num_classes, (rows, width))


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


def served(
    inputs: Sequence[keras.KerasTensor], examples: Sequence[np.ndarray]
) -> dict[str, np.ndarray]:
    """Dict of the examples by input name, of the types that are served."""
    types = [signatures_lib.spec_of(x).dtype.as_numpy_dtype for x in inputs]
    return {
        x.name: value.astype(dtype)
        for x, value, dtype in zip(inputs, examples, types)
    }


def serialize(inputs: dict[str, np.ndarray]) -> list[bytes]:
    """Rows of a dict of arrays as serialised tf.Examples, list of bytes."""
    size = len(next(iter(inputs.values())))
    return [
        tf.train.Example(
            features=tf.train.Features(
                feature={
                    k: _feature(x[row : row + 1]) for k, x in inputs.items()
                }
            )
        ).SerializeToString(deterministic=True)
        for row in range(size)
    ]


def _feature(array):
    values = np.ravel(array)
    if values.dtype == object:
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=values))
    if values.dtype.kind == "f":
        return tf.train.Feature(float_list=tf.train.FloatList(value=values))
    values = values.astype("int64")
    return tf.train.Feature(int64_list=tf.train.Int64List(value=values))


def examples(
    inputs: Sequence[keras.KerasTensor], given: Any = None
) -> list[np.ndarray]:
    """Arrays to ask the model with, one for each of the symbolic `inputs`.

    Args:
        inputs: list of `keras.KerasTensor`.
        given: an array, a list, a dict by name, or None to make some up.

    Raises:
        ValueError: `given` does not fit the inputs.
    """
    if given is None:
        return [_made_up(x) for x in inputs]
    names = [x.name for x in inputs]
    if isinstance(given, dict):
        if set(given) != set(names):
            raise ValueError(
                "`example_inputs` must have the model's inputs "
                f"{sorted(names)}. Received: {sorted(given)}"
            )
        given = [given[name] for name in names]
    elif len(inputs) == 1 and np.ndim(given) == len(inputs[0].shape):
        given = [given]
    elif not isinstance(given, (list, tuple)):
        given = [given]
    if len(given) != len(inputs):
        raise ValueError(
            "`example_inputs` must be one array for each of the model's "
            f"{len(inputs)} inputs. Received: {len(given)}"
        )
    return [_as_array(x, value) for x, value in zip(inputs, given)]


def _as_array(spec, value):
    dtype = tf.as_dtype(spec.dtype)
    try:
        return tf.convert_to_tensor(value, dtype).numpy()
    except (TypeError, ValueError) as e:
        raise ValueError(
            f"`example_inputs` must be {dtype.name} for input {spec.name!r}. "
            f"Received: {type(value).__name__}: {e}"
        ) from e


def _made_up(spec):
    """Zeros, ones and random numbers; ids stay 0 or 1, likely in range."""
    shape = [_ANY_SIZE if size is None else size for size in spec.shape[1:]]
    dtype = tf.as_dtype(spec.dtype)
    if dtype == tf.string:
        texts = [text.encode() for text in _TEXTS]
        return np.stack([np.full(shape, text, object) for text in texts])
    rng = np.random.default_rng(0)
    random = rng.random(shape)
    if not dtype.is_floating:
        random = random > 0.5
    rows = [np.zeros(shape), np.ones(shape), random]
    return np.stack(rows).astype(dtype.as_numpy_dtype)
