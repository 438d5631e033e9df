"""A tagger that learns from more texts: `Tagger.partial_fit`."""

from typing import Any
from typing import NamedTuple

import numpy as np

from tfxclass_text import columns as columns_lib
from tfxclass_text import embeddings
from tfxclass_text import fields as fields_lib
from tfxclass_text import linear_tree
from tfxclass_text import recipes
from tfxclass_text import scoring
from tfxclass_text import sparse_linear
from tfxclass_text import term_table
from tfxclass_text.corpus import Corpus
from tfxclass_text.fields import Field
from tfxclass_text.linear_ops import SparseWeights
from tfxclass_text.linear_ops import take_columns
from tfxclass_text.sparse_rows import LabeledRows
from tfxclass_text.sparse_rows import SparseRows
from tfxclass_text.sparse_rows import side_by_side
from tfxclass_text.sparse_rows import stack
from tfxclass_text.tagger_model import Layers
from tfxclass_text.tagger_model import layers_of
from tfxclass_text.text_features import TextFeatures

# Passes over these texts and new ones, of embeddings.
_PASSES = 4
# Earlier texts that are learned again with new ones, and their entries.
_MOST_TEXTS, _MOST_ENTRIES = 20_000, 2_000_000


class Memory(NamedTuple):
    """A uniform sample of the texts that were learned from."""

    #: float64 `[texts]`, random; the texts with the smallest ones are kept.
    keys: np.ndarray
    rows: SparseRows
    labels: SparseRows
    #: `(hashes, texts)` by field: terms of too few texts so far, and of how
    #: many.
    pending: list[tuple[np.ndarray, np.ndarray]]


def remember(
    memory: Memory | None,
    data: LabeledRows,
    seed: int,
    first: int,
    pending: list[tuple[np.ndarray, np.ndarray]],
) -> Memory:
    """The sample of the texts so far, `first` in number, and of `data`."""
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


def linear_fields(layers: Layers) -> list[Field]:
    """The classifiers' fields; embeddings may have own ones, which follow."""
    fields = layers.features.fields
    if layers.embedding is None or not layers.embedding.first:
        return list(fields)
    ends = np.cumsum(layers.features.vocabulary_sizes)
    return [x for x, end in zip(fields, ends) if end <= layers.embedding.first]


class Learned(NamedTuple):
    """What a tagger is after it has learned from texts."""

    tags: list[str | int]
    layers: Layers
    #: float32 `[tags]`, of `threshold="calibrated"`.
    thresholds: np.ndarray
    #: int64 `[tags]`: how many texts have each.
    counts: np.ndarray
    memory: Memory
    summary: dict[str, Any]


def grow(tagger: Any, corpus: Corpus) -> Learned:
    """Learns from the texts of a corpus what a fitted tagger does not know."""
    summary = dict(tagger.summary)
    tags = columns_lib.sorted_tags([*tagger.tags, *corpus.tags])
    place = np.searchsorted(tags, tagger.tags)
    labels = corpus.labels()
    labels = labels.with_ids(np.searchsorted(tags, corpus.tags)[labels.ids])
    before = layers_of(tagger.model)
    fields = linear_fields(before)
    size = summary["texts"] + corpus.size
    vocabularies, feature_place, pending = _vocabularies(
        before.features, fields, corpus, summary["texts"], tagger._memory
    )
    features = TextFeatures.from_vocabularies(
        fields, vocabularies, name="text-features"
    )
    num_features = features.num_features
    parts = term_table.rows_of(corpus.batches(), fields, vocabularies)
    rows = side_by_side(parts, features.vocabulary_sizes)
    memory = tagger._memory
    memory = memory._replace(
        rows=memory.rows.with_ids(feature_place[memory.rows.ids]),
        labels=memory.labels.with_ids(place[memory.labels.ids]),
    )
    data = LabeledRows(
        stack(memory.rows, rows), stack(memory.labels, labels),
        num_features, len(tags),
    )  # fmt: skip
    counts = np.zeros(len(tags), np.int64)
    counts[place] = tagger._counts
    counts += np.bincount(labels.ids, minlength=len(tags))
    alone = summary["loss"] == recipes.EMBEDDINGS_ALONE
    single_label = summary["one_tag_a_text"] and (
        alone or bool(np.all(np.diff(labels.splits) == 1))
    )
    if alone:
        layers = _grown_embeddings(
            before, features, data, feature_place, place, tagger.seed + size,
            counts,
        )  # fmt: skip
    else:
        linear = _grown_linear(
            tagger, data, (feature_place, place), single_label, size
        )
        layers = Layers(features, linear)
        summary |= {"neighbors": 0, "embedding_dim": 0, "embedding_passes": 0}
    thresholds = np.full(len(tags), summary["threshold"], np.float32)
    thresholds[place] = tagger.thresholds
    new = LabeledRows(rows, labels, num_features, len(tags))
    summary |= {"texts": size, "one_tag_a_text": single_label}
    return Learned(
        tags, layers, thresholds, counts,
        remember(memory, new, tagger.seed, size - corpus.size, pending),
        summary,
    )  # fmt: skip


def _grown_embeddings(
    before, features, data, feature_place, place, seed, counts
):
    """Layers whose embeddings go on from where they were.

    New terms and tags begin at random, as all did. `counts` are the texts of
    each tag so far; a tag without any is known by its names.
    """
    old, random = before.embedding, np.random.default_rng(seed)
    sizes = data.num_features, data.num_labels
    start = [embeddings.random_vectors(n, old.units, random) for n in sizes]
    places = feature_place, place
    for vectors, own, known in zip(start, places, old.directions()):
        vectors[own] = known
    layer = embeddings.train(
        data, old.units, _PASSES, seed, start=tuple(start),
        scale=float(np.linalg.norm(old.tags[0])), by_names=counts == 0,
    )  # fmt: skip
    return Layers(
        features, sparse_linear.empty(data), embedding=layer,
        mixed_embedding=before.mixed_embedding,
    )  # fmt: skip


def _grown_linear(tagger, data, places, single_label, size):
    """The classifiers, trained further."""
    summary, old = tagger.summary, layers_of(tagger.model).linear
    weights, groups = _moved_weights(old, data, *places)
    if groups is not None:
        groups = _choose_groups(groups, weights, data)
    weights, groups = linear_tree.train_linear(
        data, max(old.num_groups, 1), summary["c"], summary["passes"],
        seed=tagger.seed + size, groups=groups, start=weights,
    )  # fmt: skip
    layer = sparse_linear.from_weights(
        weights, data.num_labels, "softmax" if single_label else "sigmoid",
        groups, name="tag-scores", group_slope=old.group_slope,
    )  # fmt: skip
    if single_label == summary["one_tag_a_text"]:
        # Probabilities mean the same as before.
        layer.slope.assign(old.slope)
        layer.intercept.assign(old.intercept)
    else:
        layer.slope.assign(scoring.SLOPE)
    return layer


def _vocabularies(features, fields, corpus, num_before, memory):
    """Vocabularies with the new terms, places of the old, terms that wait."""
    counted = term_table.count(corpus.batches(), fields)
    size = num_before + corpus.size
    found, places, pending, first = [], [], [], 0
    for number, (field, counts) in enumerate(zip(fields, counted)):
        known = features.vocabulary(number)
        waiting = memory.pending[number]
        # How many texts had each known term: what its idf was made of.
        before = (num_before + 1) / np.exp(known.idf.astype(np.float64) - 1) - 1
        before = np.rint(np.clip(before, 0, num_before)).astype(np.int64)
        every, texts = term_table.sum_by_key(
            np.concatenate([known.hashes, waiting[0], counts.hashes]),
            np.concatenate([before, waiting[1], counts.texts]),
        )
        new = fields_lib.learn(field, size, every, texts, counts.squares, known)
        found.append(new)
        places.append(first + np.searchsorted(new.hashes, known.hashes))
        is_left = ~np.isin(every, new.hashes)
        pending.append((every[is_left], texts[is_left]))
        first += len(new.hashes)
    return found, np.concatenate(places).astype(np.int64), pending


def _moved_weights(layer, data, feature_place, label_place):
    """`(weights, groups)` of a layer by the new numbers of features and labels.

    The group of labels that are not in the layer is -1.
    """
    found = sparse_linear.weights_of(layer)
    lengths = np.zeros(data.num_features, np.int64)
    # Their order is the same, and so is the order of the entries.
    lengths[feature_place] = np.diff(found.splits)[: len(feature_place)]
    splits = np.concatenate([[0], np.cumsum(lengths)])
    added = data.num_labels - layer.num_labels
    others = np.arange(layer.num_labels, layer.width) + added
    columns = np.concatenate([label_place, others]).astype(np.int32)
    # Of a new label the bias is -1, as if it had been trained for long.
    biases = np.full(layer.width + added, -1, np.float32)
    biases[columns] = found.biases
    groups = None
    if layer.groups is not None:
        groups = np.full(data.num_labels, -1, np.int32)
        groups[label_place] = layer.groups.numpy()
    columns = columns[found.columns]
    return SparseWeights(splits, columns, found.values, biases), groups


def _choose_groups(groups, weights, data):
    """New labels join the group that takes their texts for its own."""
    new, num_labels = np.flatnonzero(groups < 0), len(groups)
    if not len(new):
        return groups
    is_new = np.isin(data.labels.ids, new)
    rows, at = np.unique(data.labels.row_ids()[is_new], return_inverse=True)
    first = take_columns(weights, np.arange(num_labels, len(weights.biases)))
    margins = linear_tree.margins(data.rows.take(rows), first)
    sums = np.zeros((num_labels, margins.shape[1]), np.float32)
    np.add.at(sums, data.labels.ids[is_new], margins[at])
    found = groups.copy()
    found[new] = np.argmax(sums[new], axis=1)
    return found
