"""A tagger as a SavedModel: texts in, names out, in stock ops."""

import tempfile
from typing import Any

import tensorflow as tf

from tfxclass.checks import check_positive_int
from tfxclass.export import checks
from tfxclass.export import compare
from tfxclass.export import example_inputs
from tfxclass.export import labels as labels_lib
from tfxclass.export import signatures as signatures_lib
from tfxclass.export import version_folder
from tfxclass.inference.thresholds import above
from tfxclass.types import Path
from tfxclass_text import explain
from tfxclass_text.tagger_model import layers_of


class _Served(tf.Module):
    def __init__(self, model, asset, k, least):
        super().__init__()
        # The variables only: a Keras layer as an attribute would be saved with
        # copies of them.
        self.state = signatures_lib.resources_of(model)
        self._score = lambda columns: model(columns, training=False)
        self.table = labels_lib.table(asset)
        self.k, self.least = k, None
        if least is not None:
            # Not a constant: those lie in saved_model.pb.
            self.least = tf.Variable(least, trainable=False)
        columns = {
            name: tf.TensorSpec([None], tf.string, name) for name in model.input
        }
        self.serve = tf.function(self._serve, input_signature=[columns])
        layers = layers_of(model)
        self.explain = tf.function(
            lambda columns, tag_id: explain.served(layers, columns, tag_id),
            input_signature=[
                columns, tf.TensorSpec([None], tf.int64, "tag_id")
            ],
        )  # fmt: skip

    def _serve(self, columns):
        scores, ids = tf.math.top_k(self._score(columns), self.k)
        ids = tf.cast(ids, tf.int64)
        ids, scores = above(self.least, ids, scores)
        names = self.table.lookup(ids)
        return {"ids": ids, "scores": scores, "labels": names}


def export(
    tagger: Any,
    folder: Path,
    k: int,
    threshold: float | str | None,
    verify: bool,
) -> str:
    """See `Tagger.export`."""
    k = min(check_positive_int("k", k), len(tagger.tags))
    names = labels_lib.checked_names("labels", map(str, tagger.tags))
    least = None if threshold is None else tagger.least(threshold)
    folder = version_folder.check_versions("folder", folder)
    with version_folder.scratch_folder(folder) as made:
        with tempfile.TemporaryDirectory() as scratch:
            asset = labels_lib.write(names, scratch)
            served = _Served(tagger.model, asset, k, least)
            signatures = {
                "serving_default": served.serve,
                "explain": served.explain,
            }
            tf.saved_model.save(served, made, signatures=signatures)
        checks.check_ops(made)
        if verify:
            _verify(made, tagger, served, names)
        return version_folder.publish_version(made, folder)


def _verify(folder, tagger, served, names):
    """Raises RuntimeError unless the export answers as the model does."""
    inputs = dict.fromkeys(tagger.model.input, example_inputs.TEXTS)
    request = checks.Request("serving_default", inputs)
    (answers,) = checks.answers_of(folder, [request])
    given = {name: tf.constant(texts) for name, texts in inputs.items()}
    expected = {key: x.numpy() for key, x in served.serve(given).items()}
    del expected["labels"]
    activation = "softmax" if tagger.summary["one_tag_a_text"] else None
    compare.check(answers, expected, activation, names)
