"""A tagger that learns from more texts: `Tagger.partial_fit`."""

from typing import Any
from typing import NamedTuple

import keras
import numpy as np

from tfxclass_text import columns as columns_lib
from tfxclass_text import corpus as corpus_lib
from tfxclass_text import fields as fields_lib
from tfxclass_text import linear_tree
from tfxclass_text import sparse_linear
from tfxclass_text import term_counts
from tfxclass_text import trials
from tfxclass_text.centroids import prune
from tfxclass_text.centroids import sum_weights
from tfxclass_text.corpus import Corpus
from tfxclass_text.fields import Field
from tfxclass_text.fields import Vocabulary
from tfxclass_text.linear_ops import SparseWeights
from tfxclass_text.sparse_rows import LabeledRows
from tfxclass_text.sparse_rows import SparseRows
from tfxclass_text.sparse_rows import side_by_side
from tfxclass_text.sparse_rows import stack

# Earlier texts that are learned again with new ones, and their entries.
_MOST_TEXTS, _MOST_ENTRIES = 20_000, 2_000_000
# Changes of less than this part of the least weight are dropped: there are
# millions, of rows that were visited before the others.
_LEAST_CHANGE = 0.1


class Memory(NamedTuple):
    """A uniform sample of the texts that were learned from.

    Attributes:
        keys: float64 `[texts]`, random numbers; the texts with the smallest
            ones are kept.
        rows: `SparseRows`, their features.
        labels: `SparseRows`, their labels.
        pending: list of `(hashes, texts)`, by field: terms of too few texts so
            far, and of how many.
    """

    keys: np.ndarray
    rows: SparseRows
    labels: SparseRows
    pending: list[tuple[np.ndarray, np.ndarray]]


def remember(
    memory: Memory | None,
    data: LabeledRows,
    seed: int,
    first: int,
    pending: list[tuple[np.ndarray, np.ndarray]],
) -> Memory:
    """The sample of the texts so far and the texts of `data`.

    Args:
        memory: `Memory` of the texts so far, or None.
        data: `LabeledRows` of the new texts.
        seed: int.
        first: int, number of texts so far.
        pending: of `Memory`.
    """
    keys = np.random.default_rng([seed, first]).random(len(data.rows))
    kept = np.argsort(keys, kind="stable")[:_MOST_TEXTS]
    keys, new = keys[kept], data.take(kept)
    rows, labels = new.rows, new.labels
    if memory is not None:
        keys = np.concatenate([memory.keys, keys])
        rows = stack(memory.rows, rows)
        labels = stack(memory.labels, labels)
    order = np.argsort(keys, kind="stable")[:_MOST_TEXTS]
    entries = np.cumsum(np.diff(rows.splits)[order])
    order = order[: max(np.searchsorted(entries, _MOST_ENTRIES), 1)]
    return Memory(keys[order], rows.take(order), labels.take(order), pending)


def linear_fields(model: keras.Model) -> list[Field]:
    """The fields that the classifiers of a tagger's model read.

    Embeddings may have fields of their own, which follow.
    """
    features = model.get_layer("text_features")
    ends = np.cumsum(features.vocabulary_sizes)
    is_linear = ends <= model.get_layer("tags").num_features
    return [field for field, own in zip(features.fields, is_linear) if own]


class Grown(NamedTuple):
    """What a tagger is after it has learned from more texts."""

    tags: list[str | int]
    vocabularies: list[Vocabulary]
    layer: sparse_linear.SparseLinear
    thresholds: np.ndarray
    counts: np.ndarray
    memory: Memory
    summary: dict[str, Any]


def grow(tagger: Any, corpus: Corpus) -> Grown:
    """Learns from the texts of a corpus what a fitted tagger does not know.

    Args:
        tagger: fitted `Tagger`.
        corpus: `Corpus`, the new texts.
    """
    summary = dict(tagger.summary)
    tags = columns_lib.sorted_tags([*tagger.tags, *corpus.tags])
    place = np.searchsorted(tags, tagger.tags)
    labels = corpus_lib.renumber(corpus, tags)
    old_layer = tagger.model.get_layer("tags")
    features = tagger.model.get_layer("text_features")
    fields = linear_fields(tagger.model)
    size = summary["texts"] + corpus.size
    vocabularies, feature_place, pending = _vocabularies(
        features, fields, corpus, summary["texts"], tagger._memory
    )
    num_features = max(sum(len(v.hashes) for v in vocabularies), 1)
    sizes = [len(v.hashes) for v in vocabularies]
    parts = term_counts.rows_of(
        corpus.batches(), fields, vocabularies, corpus.is_streamed
    )
    rows = side_by_side(parts, sizes)
    memory = _moved(tagger._memory, feature_place, place)
    data = LabeledRows(
        stack(memory.rows, rows), stack(memory.labels, labels),
        num_features, len(tags),
    )  # fmt: skip
    weights = _Weights(old_layer, feature_place, num_features, place, len(tags))
    counts = np.zeros(len(tags), np.int64)
    counts[place] = tagger._counts
    counts += np.bincount(labels.ids, minlength=len(tags))
    weights.begin_new(place, counts, size, summary["loss"])
    options = {
        **trials.loss_options(summary["loss"], summary["c"]),
        "num_epochs": summary["passes"],
        "seed": tagger.seed + size,
    }
    weights.train(data, options, tagger.weight_threshold)
    single_label = summary["one_tag_a_text"] and bool(
        np.all(np.diff(labels.splits) == 1)
    )
    layer = weights.layer(single_label)
    _calibrate(layer, old_layer, single_label, summary)
    thresholds = np.full(len(tags), summary["threshold"], np.float32)
    thresholds[place] = tagger.thresholds
    new = LabeledRows(rows, labels, num_features, len(tags))
    summary |= {"texts": size, "one_tag_a_text": single_label}
    summary["weights"] = len(weights.all.values)
    return Grown(
        tags, vocabularies, layer, thresholds, counts,
        remember(memory, new, tagger.seed, size - corpus.size, pending),
        summary,
    )  # fmt: skip


def _vocabularies(features, fields, corpus, num_before, memory):
    """Vocabularies with the new terms, places of the old, terms that wait."""
    counted, _ = term_counts.count(corpus.batches(), fields)
    size = num_before + corpus.size
    found, places, pending, first = [], [], [], 0
    for number, (field, counts) in enumerate(zip(fields, counted)):
        known = features.vocabulary(number)
        waiting = memory.pending[number]
        every, texts = term_counts.sum_by_key(
            np.concatenate([known.hashes, waiting[0], counts.hashes]),
            np.concatenate([_texts(known, num_before), waiting[1],
                            counts.texts]),
        )  # fmt: skip
        new = fields_lib.learn_counted(
            field, size, every, texts, counts.squares
        )
        # No term is forgotten.
        is_kept = np.isin(every, new.hashes) | np.isin(every, known.hashes)
        hashes = every[is_kept]
        if field.kind == "values":
            scale = known.idf if len(known.idf) else new.idf
            idf = np.full(len(hashes), scale[:1] if len(scale) else 1.0)
        else:
            idf = np.log((size + 1) / (texts[is_kept] + 1)) + 1
        found.append(Vocabulary(hashes, idf.astype(np.float32)))
        places.append(first + np.searchsorted(hashes, known.hashes))
        pending.append((every[~is_kept], texts[~is_kept]))
        first += len(hashes)
    return found, np.concatenate(places).astype(np.int64), pending


def _texts(vocabulary, size):
    """How many of `size` texts have each term: what its idf was made of."""
    texts = (size + 1) / np.exp(vocabulary.idf.astype(np.float64) - 1) - 1
    return np.rint(np.clip(texts, 0, size)).astype(np.int64)


def _moved(memory, feature_place, label_place):
    """A memory by the new numbers of features and labels."""
    rows = memory.rows
    if len(feature_place):
        rows = rows.with_ids(feature_place[rows.ids])
    labels = memory.labels.with_ids(label_place[memory.labels.ids])
    return memory._replace(rows=rows, labels=labels)


def _calibrate(layer, old, single_label, summary):
    """Takes over slope and intercept, if probabilities mean the same."""
    if single_label == summary["one_tag_a_text"]:
        layer.slope.assign(old.slope)
        layer.intercept.assign(old.intercept)
    elif summary["loss"] == "squared_hinge":
        layer.slope.assign(trials.SLOPE)


class _Weights:
    """The linear weights of a tagger, by the new features and labels.

    Columns are the labels, the groups of a label tree, and beginnings of names
    (`code_levels`), which are not trained again.
    """

    def __init__(self, layer, feature_place, num_features, place, num_labels):
        self.num_labels, self.num_groups = num_labels, layer.num_groups
        self.group_slope = layer.group_slope
        found = sparse_linear.weights_of(layer)
        lengths = np.zeros(num_features, np.int64)
        old_lengths = np.diff(found.splits)
        # Their order is the same, and so is the order of the entries.
        lengths[feature_place] = old_lengths[: len(feature_place)]
        splits = np.concatenate([[0], np.cumsum(lengths)])
        added = num_labels - layer.num_labels
        others = np.arange(layer.num_labels, layer.width) + added
        columns = np.concatenate([place, others]).astype(np.int32)
        biases = np.zeros(layer.width + added, np.float32)
        biases[columns] = found.biases
        self.groups = self.parents = None
        if layer.groups is not None:
            # -1 is no group yet.
            self.groups = np.full(num_labels, -1, np.int32)
            self.groups[place] = layer.groups.numpy()
        if layer.parents is not None:
            before = layer.parents.numpy()
            # A column without weights for labels that have no beginnings.
            self.parents = np.full(
                (len(before), num_labels), before.max() + 1, np.int32
            )
            self.parents[:, place] = before
            biases = np.append(biases, np.float32(0))
        self.all = SparseWeights(
            splits, columns[found.columns], found.values, biases
        )

    def begin_new(self, place, counts, size, loss):
        """Biases of the new labels, as if they had been trained for long."""
        new = np.setdiff1d(np.arange(self.num_labels), place)
        if loss == "logistic":
            own = counts[new]
            odds = np.log((own + 0.5) / (max(size, 1) - own + 0.5))
        else:
            odds = -1.0
        self.all.biases[new] = odds

    def train(self, data, options, threshold):
        every = np.arange(len(data.rows))
        width = self.num_labels
        if self.groups is None:
            members = [np.arange(width)]
            self._add(data, data.labels, members, [every], options, threshold)
            self._prune(threshold)
            return
        self._choose_groups(data)
        members = [
            np.flatnonzero(self.groups == g) for g in range(self.num_groups)
        ]
        of_groups = linear_tree.groups_of_rows(data.labels, self.groups)
        tree_labels = of_groups.with_ids(of_groups.ids + width)
        tree = [np.arange(width, width + self.num_groups)]
        self._add(data, tree_labels, tree, [every], options, threshold)
        negatives = linear_tree.hard_negatives(data.rows, self._first())
        own = linear_tree.members_of(of_groups, self.num_groups)
        group_rows = [np.union1d(*pair) for pair in zip(own, negatives)]
        self._add(data, data.labels, members, group_rows, options, threshold)
        self._prune(threshold)

    def _prune(self, threshold):
        self.all = prune(self.all, self.num_labels, threshold)

    def _first(self):
        """The weights of the groups alone."""
        first = self.num_labels
        return select_columns(self.all, first, first + self.num_groups)

    def _choose_groups(self, data):
        """New labels join the group that takes their texts for its own."""
        new = np.flatnonzero(self.groups < 0)
        if not len(new):
            return
        is_new = np.isin(data.labels.ids, new)
        pairs = data.labels.row_ids()[is_new], data.labels.ids[is_new]
        rows, at = np.unique(pairs[0], return_inverse=True)
        margins = linear_tree.margins(data.rows.take(rows), self._first())
        sums = np.zeros((self.num_labels, self.num_groups), np.float32)
        np.add.at(sums, pairs[1], margins[at])
        self.groups[new] = np.argmax(sums[new], axis=1)

    def _add(self, data, labels, members, rows, options, threshold):
        """Trains columns further."""
        order = np.concatenate(members)
        used = np.zeros(data.num_features, bool)
        used[data.rows.ids] = True
        start = _start(self.all, order, used)
        changes = linear_tree.train_groups(
            data.rows, labels, members, rows, data.num_features,
            _LEAST_CHANGE * threshold, options, start,
        )  # fmt: skip
        biases = np.zeros_like(self.all.biases)
        biases[order] = changes.biases
        changes = changes._replace(
            columns=order[changes.columns].astype(np.int32), biases=biases
        )
        self.all = sum_weights(self.all, changes)

    def layer(self, single_label):
        return sparse_linear.from_weights(
            self.all, self.num_labels,
            "softmax" if single_label else "sigmoid", self.groups,
            self.parents, name="tags", group_slope=self.group_slope,
        )  # fmt: skip


def _start(weights, order, used):
    """The columns `order` of the features in use, numbered by their order."""
    place = np.full(len(weights.biases), -1, np.int64)
    place[order] = np.arange(len(order))
    columns = place[weights.columns]
    features = np.repeat(np.arange(len(used)), np.diff(weights.splits))
    kept = (columns >= 0) & used[features]
    columns, features = columns[kept], features[kept]
    by_place = np.argsort(features * len(order) + columns, kind="stable")
    counts = np.bincount(features, minlength=len(used))
    return SparseWeights(
        np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        columns[by_place].astype(np.int32),
        weights.values[kept][by_place],
        weights.biases[order],
    )


def select_columns(weights: SparseWeights, begin: int, end: int) -> Any:
    """`SparseWeights` of the columns `begin` to `end`."""
    kept = (weights.columns >= begin) & (weights.columns < end)
    ends = np.concatenate([[0], np.cumsum(kept)])[weights.splits]
    return SparseWeights(
        ends,
        weights.columns[kept] - np.int32(begin),
        weights.values[kept],
        weights.biases[begin:end],
    )
