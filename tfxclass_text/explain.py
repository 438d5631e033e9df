"""Why a text has a tag: what each of its terms adds to the tag's logit."""

from typing import Any
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from tfxclass.types import Columns
from tfxclass_text.tagger_model import Layers
from tfxclass_text.tagger_model import layers_of

# Texts without one of the terms that are scored at a time.
_BATCH = 256
# Terms that are printed.
_SHOWN = 20


class Term(NamedTuple):
    """A term of a text, and what it does to the logit of a tag."""

    #: Words; or characters in quotes, where a space is the end of a word.
    term: str
    #: What it adds to the logit, given how the text is scaled.
    contribution: float
    #: How far the logit falls without it, when other terms are scaled anew.
    effect: float


class Explanation(NamedTuple):
    """The logit of a tag for a text, as a sum. Printing it shows a table."""

    tag: str | int
    #: `bias` and all contributions together.
    logit: float
    #: What belongs to no term.
    bias: float
    #: The greatest contributions first.
    terms: list[Term]

    def __str__(self) -> str:
        lines = [
            f"{x.contribution:+13.4f} {x.effect:+9.4f}  {x.term}"
            for x in self.terms[:_SHOWN]
        ]
        if len(self.terms) > _SHOWN:
            rest = sum(x.contribution for x in self.terms[_SHOWN:])
            count = len(self.terms) - _SHOWN
            lines.append(f"{rest:+13.4f} {'':9}  ({count} other terms)")
        lines.append(f"{self.bias:+13.4f} {'':9}  (bias)")
        title = f"{self.tag!r} has the logit {self.logit:.4f}"
        return "\n".join([title, " contribution    effect  term", *lines])


def contributions(
    layers: Layers,
    columns: dict[str, tf.Tensor],
    features: tuple[tf.Tensor, tf.Tensor],
    tags: tf.Tensor,
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor]:
    """What terms add to the logit of a tag of each text, in stock ops.

    A term that several fields read is one. The result is `(rows, names, sums,
    places)`: the text of each term, ascending, its name and contribution, and
    the term of each feature that is no padding.
    """
    ids, values = features
    where = tf.where(values != 0)
    rows, count = where[:, 0], layers.features.num_features
    # A feature has the name of the first run that is read as it.
    of_runs, run_ids, names = layers.features.named(columns)
    runs = of_runs * count + run_ids
    order = tf.argsort(runs, stable=True)
    first = tf.searchsorted(
        tf.gather(runs, order), rows * count + tf.gather_nd(ids, where)
    )
    names = tf.gather(names, tf.gather(order, first))
    keys = tf.strings.join([tf.strings.as_string(rows), names], ":")
    distinct, places = tf.unique(keys)
    size = tf.size(distinct)
    found = tf.gather_nd(layers.contributions(features, tags), where)
    sums = tf.math.unsorted_segment_sum(found, places, size)
    first = tf.math.unsorted_segment_min(tf.range(tf.size(keys)), places, size)
    return tf.gather(rows, first), tf.gather(names, first), sums, places


def served(
    layers: Layers, columns: dict[str, tf.Tensor], tags: tf.Tensor
) -> dict[str, tf.Tensor]:
    """The answer of an export: terms and contributions `[batch, n]`, in order.

    `bias` and `logits` are float32 `[batch]`. Padding is "" and 0.
    """
    features = layers.features(columns)
    rows, names, sums, _ = contributions(layers, columns, features, tags)
    order = tf.argsort(-tf.abs(sums), stable=True)
    order = tf.gather(order, tf.argsort(tf.gather(rows, order), stable=True))
    names, sums = (
        tf.RaggedTensor.from_value_rowids(
            tf.gather(x, order), rows, tf.size(tags, tf.int64)
        ).to_tensor()
        for x in (names, sums)
    )
    logits = tf.gather(layers.logits(columns, features), tags, batch_dims=1)
    bias = logits - tf.reduce_sum(sums, axis=1)
    return {
        "terms": names, "contributions": sums, "bias": bias, "logits": logits,
    }  # fmt: skip


def explain(tagger: Any, columns: Columns, tag: str | int) -> Explanation:
    """See `Tagger.explain`; columns of one text."""
    if tag not in tagger.tags:
        raise ValueError(
            f"`tag` must be one of the {len(tagger.tags)} tags of the tagger, "
            f"see `tagger.tags`. Received: {tag!r}"
        )
    layers, number = layers_of(tagger.model), tagger.tags.index(tag)
    given = {name: tf.constant(x) for name, x in columns.items()}
    ids, values = layers.features(given)
    _, names, sums, places = contributions(
        layers, given, (ids, values), tf.constant([number], tf.int64)
    )
    rows = _rows_without(
        layers.features, ids[0].numpy(), values[0].numpy(), places.numpy()
    )
    logits = []
    for begin in range(0, len(rows), _BATCH):
        some = rows[begin : begin + _BATCH]
        repeated = {name: tf.repeat(x, len(some)) for name, x in given.items()}
        features = tf.repeat(ids, len(some), axis=0), tf.constant(some)
        found = layers.logits(repeated, features)[:, number]
        logits += found.numpy().tolist()
    parts = sums.numpy().tolist()
    terms = [
        Term(name.decode(), part, logits[0] - other)
        for name, part, other in zip(names.numpy(), parts, logits[1:])
    ]
    terms.sort(key=lambda x: -abs(x.contribution))
    return Explanation(tag, logits[0], logits[0] - sum(parts), terms)


def _rows_without(features, ids, values, places):
    """A text's values, then without each of its terms; `[1 + terms, n]`.

    Each field keeps its norm.
    """
    of_field = np.searchsorted(
        np.cumsum(features.vocabulary_sizes), ids, "right"
    )
    count = 1 + places.max(initial=-1)
    rows = np.tile(values.astype(np.float64), (1 + count, 1))
    # Features with value 0 are padding.
    rows[1 + places, np.flatnonzero(values)] = 0
    for number, field in enumerate(features.fields):
        if field.kind != "values":
            own = of_field == number
            norms = np.linalg.norm(rows[:, own], axis=1, keepdims=True)
            rows[:, own] *= norms[:1] / np.maximum(norms, 1e-12)
    return rows.astype(np.float32)
