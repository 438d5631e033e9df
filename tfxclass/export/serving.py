"""`saved_model`: a version folder with the best classes of each request."""

import gc
import os
import re
import tempfile
from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from tfxclass import progress
from tfxclass.checks import check_k
from tfxclass.checks import check_positive_int
from tfxclass.export import accuracy
from tfxclass.export import checks as checks_lib
from tfxclass.export import example_inputs as example_inputs_lib
from tfxclass.export import labels as labels_lib
from tfxclass.export import searches
from tfxclass.export import signatures as signatures_lib
from tfxclass.export import warmup
from tfxclass.export.inverted_lists import InvertedLists
from tfxclass.export.loading import parts_of
from tfxclass.export.loading import served_encoder
from tfxclass.export.version_folder import version_folder
from tfxclass.inference import filters
from tfxclass.inference.thresholds import check_threshold
from tfxclass.inference.thresholds import threshold_of
from tfxclass.paths import local_path
from tfxclass.rows import column_rows
from tfxclass.rows import int8_rows
from tfxclass.types import Path

# Others are no names of TensorFlow's nodes.
_INPUT_NAME = re.compile(r"[A-Za-z0-9.][A-Za-z0-9_.-]*")


def saved_model(
    model: keras.Model | Path,
    path: Path,
    top_k: int = 10,
    labels: Sequence[str] | Path | None = None,
    verify: bool = True,
    example_inputs: Any = None,
    full_scores: bool = False,
    search: InvertedLists | None = None,
    warmup_batch_sizes: Sequence[int] = (),
    threshold: float | None = None,
    exclude: bool | int | keras.KerasTensor = False,
    only: bool = False,
    quantize: str | None = None,
    min_recall: float = 0.95,
    boost: float | None = None,
) -> str:
    """Writes `model` as the next version of a servable model.

    `path/<version>/` gets these signatures, for all of which dimension 0 is
    the batch:

    - `serving_default`: the model's inputs by their Keras names to `ids`
      (int64), `scores` (float32) and, with `labels`, `labels` (string), each
      `[batch, top_k]`, best first.
    - `classify`: `inputs`, serialised tf.Examples with the inputs as features,
      to `classes` (string: names, or ids where there are none) and `scores`.
      An input whose dimension 1 is of unknown size is padded with zeros (or
      empty strings) to the longest of the batch; not where another one is.
    - `embed`: the inputs to `features`, what the head reads, float32.
    - `exclude`, if asked for: the inputs and `exclude_ids`, int64 `[batch, p]`
      padded with -1, to the outputs of `serving_default` without these classes.
      `[1, p]` is for all rows, and a gRPC request may leave them out.
    - `only`, if asked for: the same with `only_ids`, among these classes alone.
      See `tfxclass.top_k`.
    - `boost`, if asked for: the same with `boost_ids`, whose logits are raised.
    - `full_scores`, if asked for: the inputs to `scores` of all classes.

    The graph has TensorFlow's own ops only; the class matrix is in it once
    (normalised, for cosine). The folder appears whole or not at all.

    Args:
        model: a built Keras model that ends in a head, or
            the path of one in a `.keras` file.
        path: folder of the model's versions; made if need be.
        top_k: int, number of classes in an answer.
        labels: the name of each class, a sequence of str, or the path of a
            text file with one a line; by default the head's `class_names`.
        verify: whether to load the result through TensorFlow's C API in a
            process without tfxclass, to compare the answers of each signature
            with the model's, and to replay the warm-up.
        example_inputs: what `verify` and the warm-up ask: an array, or a list
            or dict by input name of arrays, `[batch, ...]`. By default a few
            made-up rows.
        full_scores: whether to write the signature of that name.
        search: `InvertedLists` for approximate answers, from a part of the
            classes; by default all are read. Its recall is in
            `assets.extra/search.json`.
        warmup_batch_sizes: ints, sizes of the batches that a server runs
            before a version is available, each with each signature. Those that
            its batching allows. Needs the extra `tfxclass[serving]`.
        threshold: float in [0, 1], least probability of a class in an answer,
            `"calibrated"` for each class's own, from `tfxclass.calibrate`, or
            None; below it ids are -1 and scores 0. Not with `search`.
        exclude: whether to write the signature of that name, or the most ids
            of a request, int; True is 64. It searches for so many more.
            Or a Keras tensor as in `tfxclass.top_k`: then `serving_default`
            and `classify` leave these classes out, and no signature is added.
        only: whether to write the signature of that name. For all heads but
            trees; an `AdaptiveSoftmax` reads all rows for it. Scores are those
            of `tfxclass.top_k(model, only=True)`, exact with `search`, too.
        quantize: `"int8"` for class rows in int8 with a scale each: a quarter
            of the bytes, on disk and read for an answer. For all heads but
            trees. Recall at `top_k` and the error of the scores are measured
            on the features of `example_inputs` or, without, on normal ones
            against the model's, and written to `assets.extra/search.json`.
        min_recall: float in [0, 1]; below it `quantize` is refused. With
            `search`, its own counts.
        boost: float > 0, what the signature of that name adds to the logits of
            the classes in `boost_ids`, as `tfxclass.top_k(boost=...)` does; or
            None. Not with `search`.

    Returns:
        The folder written, str.

    Raises:
        ValueError: an argument out of range, no single head, an unbuilt
            model, a recall too low, or an op in the graph that is not
            TensorFlow's.
        RuntimeError: the export does not load, or answers otherwise.
        ImportError: a warm-up without the extra.
    """
    path = local_path(path)
    inputs, features, head = parts_of(model)
    top_k = check_k(top_k, head.num_answers, "top_k")
    check_threshold(threshold, head)
    if threshold is not None and search and not search.probabilities:
        raise ValueError(
            "`threshold` is of probabilities, and the scores of `search` are "
            f"logits. Received: threshold={threshold} with a search. Fix: "
            "InvertedLists(probabilities=True)."
        )
    threshold = threshold_of(threshold, head)
    quantize = accuracy.check_quantize(quantize, head)
    accuracy.check_min_recall(min_recall)
    excluded = None
    if isinstance(exclude, keras.KerasTensor):
        filters.check_excluded(exclude, inputs)
        excluded, exclude = keras.Model(inputs, exclude), False
    encoder = served_encoder(inputs, features)
    inputs = encoder.inputs
    max_excluded = _max_excluded(exclude)
    _check_only(only, head)
    boost = filters.check_boost(boost, head)
    if boost is not None and search is not None:
        raise ValueError(
            "`boost` needs exact answers: the best classes without it. "
            f"Received: boost={boost} with a search"
        )
    _check_names(inputs)
    kinds = {
        filters.EXCLUDE: exclude,
        filters.ONLY: only,
        filters.BOOST: boost is not None,
    }
    filters.check_free([kind for kind in kinds if kinds[kind]], inputs)
    names = labels_lib.of_head(labels, head)
    warmup.check(warmup_batch_sizes)
    examples = example_inputs_lib.examples(inputs, example_inputs)
    measured_on = None
    if example_inputs is not None and (search or quantize):
        measured_on = encoder([tf.constant(x) for x in examples])
    if search is not None:
        room = max_excluded if excluded is None else filters.MAX_EXCLUDED
        search = search.build(head, top_k, measured_on, room, quantize)
    elif quantize:
        search = searches.ExactSearch(head, int8_rows.quantize)
        search.measure(measured_on, features.shape[-1], top_k, min_recall)
    reference = signatures_lib.Reference(
        encoder,
        search or searches.ModelSearch(head),
        examples,
        names,
        threshold,
    )
    signatures = signatures_lib.signatures_of(
        encoder, top_k, max_excluded, only, full_scores, boost, excluded
    )
    with version_folder(path) as folder:
        with progress.log_if_slow("Writing the export"):
            _write(folder.name, signatures, reference, search or _exact(head))
        if search is not None:
            report = {**search.report(), "top_k": top_k}
            accuracy.write_report(
                os.path.join(folder.name, "assets.extra", "search.json"), report
            )
        records = warmup.write(
            folder.name,
            [signature.name for signature in signatures],
            reference.inputs,
            warmup_batch_sizes,
        )
        # A normalised class matrix goes before another process loads it.
        gc.collect()
        checks = list(map(reference.check, signatures))
        with progress.log_if_slow("Proving the export"):
            checks_lib.verify(
                folder.name,
                checks if verify else [],
                records if verify else [],
            )
    return folder.name


def _max_excluded(exclude):
    """Ids that a request may exclude, int; 0 where it cannot."""
    if exclude is True:
        return filters.MAX_EXCLUDED
    return check_positive_int("exclude", exclude) if exclude is not False else 0


def _check_only(only, head):
    if only and not hasattr(head, "servable_logits_of"):
        raise ValueError(
            "`only` needs a head with class rows: an export of a tree answers "
            f"with a beam. Received: {type(head).__name__}. Ask "
            "tfxclass.top_k(model, only=True), or the signature `full_scores`."
        )


def _check_names(inputs):
    for x in inputs:
        if not _INPUT_NAME.fullmatch(x.name):
            raise ValueError(
                "Names of a served model's inputs may have letters, digits "
                f"and _.- only. Received: {x.name!r}. Name it with "
                "keras.Input(..., name=...)."
            )


def _exact(head):
    # Rows that are a layer's, too, are saved once, as that layer has them.
    is_tied = getattr(head, "tie", None) is not None
    return searches.ExactSearch(
        head, None if is_tied else column_rows.in_columns
    )


def _write(folder, signatures, model, search):
    """Writes the SavedModel."""
    with tempfile.TemporaryDirectory() as scratch:
        module = signatures_lib.SavedSignatures(
            model.encoder,
            search,
            signatures,
            labels_lib.write(model.names, scratch),
            model.threshold,
        )
        functions = dict(module.functions)
        tf.saved_model.save(module, folder, signatures=functions)
    _finish(folder)


def _finish(folder):
    """What TensorFlow does not write of signatures: method and defaults.

    It writes each as one of the Predict API.
    """
    path = os.path.join(folder, "saved_model.pb")
    with open(path, "rb") as f:
        saved = saved_model_pb2.SavedModel.FromString(f.read())
    signatures = saved.meta_graphs[0].signature_def
    if signatures_lib.CLASSIFY in signatures:
        method = tf.saved_model.CLASSIFY_METHOD_NAME
        signatures[signatures_lib.CLASSIFY].method_name = method
    for kind in (filters.EXCLUDE, filters.BOOST):
        if kind in signatures:
            none = tf.make_tensor_proto([[-1]], tf.int64)
            defaults = signatures[kind].defaults
            defaults[filters.INPUTS[kind]].CopyFrom(none)
    with open(path, "wb") as f:
        f.write(saved.SerializeToString(deterministic=True))
