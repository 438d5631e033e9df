"""`saved_model`: a version folder with the best classes of each request."""

import gc
import json
import os
import re
import tempfile
from collections.abc import Sequence
from typing import Any
from typing import Literal

import keras
import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from tfxclass import progress
from tfxclass.checks import check_k
from tfxclass.checks import check_value
from tfxclass.export import checks
from tfxclass.export import example_inputs as example_inputs_lib
from tfxclass.export import labels as labels_lib
from tfxclass.export import searches
from tfxclass.export import version_folder
from tfxclass.export.compare import Reference
from tfxclass.export.inverted_lists import InvertedLists
from tfxclass.export.signatures import EMBED
from tfxclass.export.signatures import SavedSignatures
from tfxclass.export.signatures import signatures_of
from tfxclass.inference import filters
from tfxclass.inference.graph import encoder_of
from tfxclass.inference.thresholds import checked_threshold
from tfxclass.rows import export_rows
from tfxclass.rows import stock_search
from tfxclass.types import Path

# Others are no names of TensorFlow's nodes.
_INPUT_NAME = re.compile(r"[A-Za-z0-9.][A-Za-z0-9_.-]*")


def saved_model(
    model: keras.Model,
    path: Path,
    top_k: int = 10,
    labels: Sequence[str] | Path | Literal[False] | None = None,
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
    """Exports a model as a SavedModel, for TensorFlow Serving.

    The model is written as the next version, complete or not at all, and its
    folder `path/<version>/` is returned. The graph has TensorFlow's own ops
    only, and contains the class matrix once (normalized, for cosine). In all
    signatures, dimension 0 is the batch:

    - `serving_default`: from the inputs by their Keras names to `ids` (int64),
      `scores` (float32) and, with `labels`, `labels` (string), each `[batch,
      top_k]`, best first.
    - `embed`: from the inputs to `features`, the input of the head, float32.
    - `exclude`, on request: from the inputs and `exclude_ids`, int64 `[batch,
      p]` padded with -1, to the outputs of `serving_default` without these
      classes. `[1, p]` applies to all examples, and a gRPC request may leave
      the input out.
    - `only` and `boost`, on request: the same with `only_ids` and `boost_ids`.
      See `tfxclass.top_k`.
    - `full_scores`, on request: from the inputs to `scores` of all classes.

    Args:
        model: a built Keras model that ends in a head.
        path: str, folder of the model's versions. It is made if needed.
        top_k: int, number of classes in an answer.
        labels: sequence of str, the name of each class, or the path of a text
            file with one in each line. By default the head's `class_names`.
            False leaves names out.
        verify: bool, whether to load the export, as TensorFlow Serving does,
            and to compare the answers of each signature with the model's.
        example_inputs: inputs for `verify` and for the warm-up: an array, or a
            list or dict of arrays, `[batch, ...]`. By default they are made up.
        full_scores: bool, whether to write the signature of that name.
        search: `InvertedLists` for approximate answers from some of the
            classes. Its recall is written to `assets.extra/search.json`.
        warmup_batch_sizes: ints, batch sizes that a server runs with each
            signature before a version is available. It needs the extra
            `tensorflow-serving-api`.
        threshold: as in `tfxclass.top_k`. With `search`, only for heads with a
            sigmoid.
        exclude: bool, whether to write the signature of that name, or int, the
            largest number of ids in a request (True is 64). Answers are
            searched among as many more. Or a Keras tensor as in
            `tfxclass.top_k`: then `serving_default` leaves these classes out,
            and no signature is added.
        only: bool, whether to write the signature of that name. For all heads
            but trees. Scores are exact with `search`, too.
        quantize: `"int8"` to store class vectors in int8 with one scale each: a
            quarter of the bytes on disk and in each request. For all heads but
            trees. The recall at `top_k` and the error of the scores are
            measured on the features of `example_inputs`, or on random features,
            and written to `assets.extra/search.json`.
        min_recall: float in [0, 1]. A lower recall of `quantize` is refused.
            With `search`, the `min_recall` of `search` counts.
        boost: as in `tfxclass.top_k`, for the signature of that name. Not with
            `search`.

    Raises:
        ValueError: if an argument does not fit the model, the recall is too
            low, or the graph has an op that is not TensorFlow's.
        RuntimeError: if the export does not load, or answers differently.
        ImportError: if the extra for the warm-up is not installed.

    Example:

    ```python
    head = tfxclass.layers.FullSoftmax(100)
    model = keras.Sequential([keras.Input([20], name="features"), head])
    names = [f"class {i}" for i in range(100)]
    folder = tfxclass.export.saved_model(
        model, "models/products", top_k=5, labels=names, verify=False
    )
    serve = tf.saved_model.load(folder).signatures["serving_default"]
    print(serve(features=tf.ones([1, 20]))["labels"])
    ```
    """
    path = version_folder.check_versions("path", path)
    encoder, head = encoder_of(model)
    top_k = check_k(top_k, head.num_answers, "top_k")
    least = checked_threshold(threshold, head)
    if isinstance(least, np.ndarray):
        # Not a constant: those lie in saved_model.pb.
        least = tf.Variable(least, trainable=False)
    if search is not None:
        _check_search(search, head, threshold, boost)
    is_int8 = searches.check_quantize(quantize, min_recall, head)
    given = filters.filters_of(head, encoder, exclude, only, boost)
    if only and not head.has_class_rows:
        raise ValueError(
            "`only` needs a head with class rows: an export of a tree answers "
            f"with a beam. Received: {type(head).__name__}. Ask "
            "tfxclass.top_k(model, only=True), or the signature `full_scores`."
        )
    is_tensor = isinstance(exclude, keras.KerasTensor)
    excluded = keras.Model(encoder.inputs, exclude) if is_tensor else None
    encoder = example_inputs_lib.served_encoder(encoder)
    _check_names(encoder.inputs)
    signatures = signatures_of(top_k, given, full_scores, excluded, least)
    names = labels_lib.of_head(labels, head)
    warmup_batch_sizes = checks.check_warmup(warmup_batch_sizes)
    examples = example_inputs_lib.examples(encoder.inputs, example_inputs)
    measured_on = None
    if example_inputs is not None and (search or is_int8):
        measured_on = encoder([tf.constant(x) for x in examples])
    saved: searches.ModelSearch
    if search is not None:
        room = max((x.filter.room for x in signatures if x.filter), default=0)
        saved = search.build(head, top_k, measured_on, room, is_int8)
    elif is_int8:
        dim = encoder.output.shape[-1]
        saved = searches.int8_search(head, measured_on, dim, top_k, min_recall)
    else:
        weights = head.export_weights()
        # Rows that are a layer's, too, are saved once, as that layer has them.
        if getattr(head, "tie", None) is None:
            weights = stock_search.stored(weights, export_rows.in_columns)
        saved = searches.ModelSearch(head, weights)
    # The export is compared with the model, unless it approximates it.
    answers = saved if saved.measured else searches.ModelSearch(head)
    reference = Reference(encoder, answers, examples, names)
    with version_folder.scratch_folder(path) as folder:
        with progress.log_if_slow("Writing the export"):
            _write(folder, signatures, reference, saved)
        if saved.measured:
            _write_report(folder, {**saved.measured, "top_k": top_k})
        requests = checks.write_warmup(
            folder, signatures, reference.inputs, warmup_batch_sizes
        )
        checks.check_ops(folder)
        if verify:
            # A normalised class matrix goes before the check loads another.
            gc.collect()
            with progress.log_if_slow("Proving the export"):
                _verify(folder, signatures, reference, requests)
        return version_folder.publish_version(folder, path)


def _check_search(search, head, threshold, boost):
    wanted = "a tfxclass.export.InvertedLists, or None for exact answers"
    check_value("search", search, isinstance(search, InvertedLists), wanted)
    if threshold is not None and head.needs_logsumexp:
        raise ValueError(
            "`threshold` needs probabilities, but with a softmax the scores of "
            f"`search` are logits. Received: threshold={threshold} with a "
            'search. Fix: leave out one of them, or train with loss="sigmoid".'
        )
    if boost is not None:
        raise ValueError(
            "`boost` needs exact answers, without `search`. Received: "
            f"boost={boost} with a search"
        )


def _check_names(inputs):
    for x in inputs:
        if not _INPUT_NAME.fullmatch(x.name):
            raise ValueError(
                "Names of a served model's inputs may have letters, digits "
                f"and _.- only. Received: {x.name!r}. Name it with "
                "keras.Input(..., name=...)."
            )


def _write(folder, signatures, model, search):
    with tempfile.TemporaryDirectory() as scratch:
        asset = labels_lib.write(model.names, scratch)
        module = SavedSignatures(model.encoder, search, signatures, asset)
        functions = dict(module.functions)
        tf.saved_model.save(module, folder, signatures=functions)
    # Defaults of inputs, which TensorFlow omits.
    path = os.path.join(folder, "saved_model.pb")
    with open(path, "rb") as f:
        saved = saved_model_pb2.SavedModel.FromString(f.read())
    signatures = saved.meta_graphs[0].signature_def
    for kind in (filters.EXCLUDE, filters.BOOST):
        if kind in signatures:
            none = tf.make_tensor_proto([[-1]], tf.int64)
            defaults = signatures[kind].defaults
            defaults[filters.INPUTS[kind]].CopyFrom(none)
    with open(path, "wb") as f:
        f.write(saved.SerializeToString(deterministic=True))


def _write_report(folder, measured):
    path = os.path.join(folder, "assets.extra", "search.json")
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as f:
        json.dump(measured, f, indent=2)


def _verify(folder, signatures, reference, warmup_requests):
    """Raises RuntimeError unless an export answers as the model does."""
    requests = [reference.request(signature) for signature in signatures]
    answers = checks.answers_of(folder, [*requests, *warmup_requests])
    found = dict(zip((x.name for x in signatures), answers))
    features = found[EMBED]["features"]
    reference.check_features(features)
    for signature in signatures:
        if signature.name != EMBED:
            reference.check(signature, found[signature.name], features)
