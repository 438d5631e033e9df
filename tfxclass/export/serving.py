"""`saved_model`: a version folder with the best classes of each request."""

import gc
import os
import re
import tempfile

import keras
import tensorflow as tf

from tfxclass import optimizers
from tfxclass.checks import check_k
from tfxclass.export import labels as labels_lib
from tfxclass.export import proof
from tfxclass.export import resources
from tfxclass.export.version_folder import version_folder
from tfxclass.top_k import TopK
from tfxclass.top_k import above
from tfxclass.top_k import check_threshold
from tfxclass.top_k import encoder_of

SIGNATURE = tf.saved_model.DEFAULT_SERVING_SIGNATURE_DEF_KEY
# Others are no names of TensorFlow's nodes.
_INPUT_NAME = re.compile(r"[A-Za-z0-9.][A-Za-z0-9_.-]*")


def saved_model(
    model,
    path,
    top_k=10,
    labels=None,
    verify=True,
    example_inputs=None,
    threshold=None,
):
    """Writes `model` as the next version of a servable model.

    `path/<version>/` gets the signature `serving_default`: the model's inputs
    by their Keras names to `ids` (int64), `scores` (float32) and, with
    `labels`, `labels` (string), each `[batch, top_k]`, best first. The graph
    has TensorFlow's own ops only; the class matrix is in it once (normalised,
    for cosine). The folder appears whole or not at all.

    Args:
        model: a built Sequential or functional model that ends in a head.
        path: folder of the model's versions; made if need be.
        top_k: int, number of classes in an answer.
        labels: the name of each class, a sequence of str, or the path of a
            text file with one a line.
        verify: whether to load the result through TensorFlow's C API in a
            process without tfxclass, and to compare its answers with the
            model's.
        example_inputs: what `verify` asks: an array, or a list or dict by
            input name of arrays, `[batch, ...]`. By default a few made-up
            rows.
        threshold: float in [0, 1], least probability of a class in an answer,
            or None; below it ids are -1 and scores 0.

    Returns:
        The folder written, str.

    Raises:
        ValueError: an argument out of range, no single head, an unbuilt
            model, or an op in the graph that is not TensorFlow's.
        RuntimeError: the export does not load, or answers otherwise.
    """
    inputs, features, head = encoder_of(model)
    check_k(top_k, head.num_classes)
    check_threshold(threshold, head)
    _check_names(inputs)
    names = labels_lib.read(labels, head.num_classes)
    question = None
    if verify:
        examples = proof.examples(inputs, example_inputs)
        search = TopK if head.export_is_exact else _ExportTopK
        live = search(head, top_k, threshold)(features)
        live = keras.Model(inputs, live)
        question = proof.Question(live, examples, names, head.activation)
    _settle(model)
    with version_folder(os.fspath(path)) as folder:
        encoder = keras.Model(inputs, features)
        _write(folder.name, names, encoder, head, top_k, threshold)
        # A normalised class matrix goes before another process loads it.
        gc.collect()
        proof.check(folder.name, SIGNATURE, question)
    return folder.name


def _check_names(inputs):
    for x in inputs:
        if not _INPUT_NAME.fullmatch(x.name):
            raise ValueError(
                "Names of a served model's inputs may have letters, digits "
                f"and _.- only. Received: {x.name!r}. Name it with "
                "keras.Input(..., name=...)."
            )


def _settle(model):
    """Brings rows that are updated lazily up to date, before any is read."""
    for variable in model.trainable_variables:
        optimizers.catch_up(variable)


class _ExportTopK(TopK):
    """What a head that searches otherwise in an export answers there."""

    def search(self, features):
        return self.head.export_top_k(features, self.k)


def _write(folder, names, *parts):
    with tempfile.TemporaryDirectory() as scratch:
        serving = _Serving(labels_lib.write(names, scratch), *parts)
        signatures = {SIGNATURE: serving.serve}
        tf.saved_model.save(serving, folder, signatures=signatures)


class _Serving(tf.Module):
    """What is saved: the encoder, the head's weights, the labels, `serve`."""

    def __init__(self, asset, encoder, head, k, threshold):
        super().__init__()
        # The variables and tables only: a Keras layer as an attribute would be
        # saved with copies of its variables beside those that `serve` reads.
        self.state = resources.of(encoder)
        self.weights = head.export_weights()
        self.query_weights = head.query_weights()
        self.names = None if asset is None else labels_lib.table(asset)

        def serve(*inputs):
            features = encoder(list(inputs), training=False)
            best = head.export_top_k(features, k, self.weights)
            ids, scores = above(threshold, *best)
            outputs = {"ids": ids, "scores": scores}
            if self.names is not None:
                outputs["labels"] = self.names.lookup(ids)
            return outputs

        specs = [
            tf.TensorSpec((None, *x.shape[1:]), x.dtype, name=x.name)
            for x in encoder.inputs
        ]
        self.serve = tf.function(serve, specs, autograph=False)
