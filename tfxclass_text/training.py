"""The last training of a tagger, with what was chosen, and its model."""

from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

import keras
import numpy as np

from tfxclass_text import encoder as encoder_lib
from tfxclass_text import linear_tree
from tfxclass_text import sparse_linear
from tfxclass_text import trials
from tfxclass_text.centroids import add
from tfxclass_text.centroids import centroids
from tfxclass_text.centroids import scaled
from tfxclass_text.linear_ops import SparseWeights
from tfxclass_text.model_selection import ModelSelection
from tfxclass_text.sparse_rows import LabeledRows
from tfxclass_text.term_range import TermRange


class Trained(NamedTuple):
    """The linear classifiers of a tagger.

    Attributes:
        layer: `keras.Layer`, terms to probabilities.
        thresholds: float32 `[tags]`, of `threshold="calibrated"`.
        counts: int64 `[tags]`, texts of each tag.
        summary: dict of what was chosen.
    """

    layer: keras.layers.Layer
    thresholds: np.ndarray
    counts: np.ndarray
    summary: dict[str, Any]


def train(tagger: Any, data: LabeledRows, selection: ModelSelection) -> Trained:
    """Trains the linear classifiers on all texts.

    Args:
        tagger: the `Tagger`, whose arguments are read.
        data: the texts' terms and labels.
        selection: what was chosen.
    """
    size, epochs = len(tagger.tags), selection.epochs
    weights, group_of, groups = _linear_weights(tagger, data, selection)
    parents = selection.parents if selection.parent_weight else None
    activation = "softmax" if selection.single_label else "sigmoid"
    layer = sparse_linear.from_weights(
        weights, size, activation, group_of, parents, name="tags",
        group_slope=trials.GROUP_SHARE * selection.slope,
    )  # fmt: skip
    layer.slope.assign(selection.slope)
    layer.intercept.assign(selection.intercept)
    thresholds = selection.thresholds
    if thresholds is None:
        thresholds = np.full(size, selection.threshold, np.float32)
    summary = {
        "loss": selection.loss,
        "c": selection.c,
        "centroids": selection.share,
        "parent_weight": selection.parent_weight,
        "passes": epochs,
        **selection.ensemble.summary(),
        "groups": groups,
        "threshold": selection.threshold,
        "tried": selection.report,
        "one_tag_a_text": selection.single_label,
        "weights": len(weights.values),
    }
    counts = np.bincount(data.labels.ids, minlength=size)
    return Trained(layer, thresholds, counts, summary)


def _linear_weights(tagger, data, selection):
    """`(weights, group of each tag or None, number of groups)`."""
    size, epochs, groups = len(tagger.tags), selection.epochs, 1
    if selection.loss == "squared_hinge":
        groups = linear_tree.choose_groups(
            data.rows, size, epochs, selection.effort.seconds
        )
    tagger.detail(f"training {size} tags on {len(data.rows)} texts")
    options = {
        **trials.loss_options(selection.loss, selection.c),
        "num_epochs": epochs, "seed": tagger.seed,
        "threshold": tagger.weight_threshold,
    }  # fmt: skip
    weights, group_of = linear_tree.train_linear(*data, groups, **options)
    if selection.share:
        means = centroids(data)
        if group_of is not None:
            means = linear_tree.join(means, _no_columns(means, groups))
        weights = add(weights, means, selection.share)
    if selection.parents is not None and selection.parent_weight:
        upper = trials.train_parents(data, selection.parents, **options)
        weights = linear_tree.join(
            weights, scaled(upper, selection.parent_weight)
        )
    return weights, group_of, groups


def _no_columns(weights, count):
    """As many columns without weights, for the same features."""
    none = np.zeros(0, np.int32)
    return SparseWeights(
        np.zeros_like(weights.splits), none, none.astype(np.float32),
        np.zeros(count, np.float32),
    )  # fmt: skip


def make_model(
    names: Sequence[str],
    features: keras.layers.Layer,
    linear: keras.layers.Layer,
    encoder: keras.layers.Layer | None = None,
    data: LabeledRows | None = None,
    selection: ModelSelection | None = None,
) -> keras.Model:
    """The model from columns of texts to probabilities `[batch, tags]`.

    Args:
        names: of the columns.
        features: layer of texts to terms and their weights.
        linear: layer of terms to probabilities.
        encoder: of the tagger, or None.
        data: what the layers that are mixed in learn from.
        selection: what was chosen; None for the linear layer alone.
    """
    inputs = encoder_lib.inputs_of(names)
    terms = linear_terms = embedded_terms = features(inputs)
    size = linear.num_features
    if features.num_features > size:
        linear_terms = TermRange(0, size, name="linear_terms")(*terms)
        embedded_terms = TermRange(
            size, features.num_features, name="embedded_range"
        )(*terms)
    outputs = linear(*linear_terms)
    if selection is not None:
        ensemble = selection.ensemble
        for layer in ensemble.layers(data):
            outputs = layer(*linear_terms, outputs)
        if ensemble.embedded is not None:
            embedding = ensemble.embedding(selection.embedded.data)
            added = embedding.log_probabilities(*embedded_terms)
            outputs = ensemble.embedded(outputs, added)
        if ensemble.encoded is not None:
            layer, together = ensemble.encoded
            dense = layer(encoder_lib.features(encoder, inputs))
            outputs = together(outputs, dense)
    return keras.Model(inputs, outputs)
