"""A tagger on disk: a Keras model, and what it is called by."""

import contextlib
import json
import os
import re
import uuid
from typing import Any

import keras
import numpy as np

from tfxclass.paths import local_path
from tfxclass.types import Path

NAMES = "tagger.json"
_MODEL = re.compile(r"model(-[0-9a-f]{32})?\.keras")


def save(tagger: Any, folder: Path) -> None:
    """Writes `folder/tagger.json` and the model that it names.

    The tagger that was there is the one that is read until all is written; then
    its model is removed.
    """
    folder = local_path(folder, "folder")
    os.makedirs(folder, exist_ok=True)
    model = f"model-{uuid.uuid4().hex}.keras"
    unfinished = os.path.join(folder, f".{NAMES}-{uuid.uuid4().hex}")
    try:
        tagger.model.save(os.path.join(folder, model))
        with open(unfinished, "w", encoding="utf-8") as f:
            json.dump(_description(tagger, model), f)
            f.flush()
            os.fsync(f.fileno())
        os.replace(unfinished, os.path.join(folder, NAMES))
    except BaseException:
        for name in (os.path.join(folder, model), unfinished):
            with contextlib.suppress(OSError):
                os.remove(name)
        raise
    for name in os.listdir(folder):
        if _MODEL.fullmatch(name) and name != model:
            with contextlib.suppress(OSError):
                os.remove(os.path.join(folder, name))


def _description(tagger, model):
    return {
        "model": model,
        "tags": tagger.tags,
        "counts": tagger._counts.tolist(),
        "effort": tagger.effort,
        "c": tagger.c,
        "neighbors": tagger.neighbors,
        "landmarks": tagger.landmarks,
        "hidden_units": tagger.hidden_units,
        "thresholds": tagger.thresholds.tolist(),
        "threshold": tagger.threshold,
        "encoder": _encoder_name(tagger),
        "learning_rate": tagger.learning_rate,
        "seed": tagger.seed,
        "verbose": tagger.verbose,
        "fields_are_given": tagger.fields is not None,
        "summary": tagger.summary,
    }


def _encoder_name(tagger):
    """Of the layer in the model; None where no encoder helped."""
    is_used = bool(tagger.summary.get("encoder_passes"))
    return tagger.encoder.name if is_used else None


def load(cls: type, folder: Path) -> Any:
    """The tagger in `folder`.

    Raises:
        ValueError: there is none.
    """
    folder = local_path(folder, "folder")
    with open(_file(folder, NAMES), encoding="utf-8") as f:
        described = json.load(f)
    # Taggers of earlier versions have less.
    model = _file(folder, described.get("model", "model.keras"))
    tagger = cls(
        effort=described["effort"],
        c=described["c"],
        neighbors=described.get("neighbors"),
        landmarks=described.get("landmarks"),
        hidden_units=described.get("hidden_units"),
        threshold=described["threshold"],
        learning_rate=described.get("learning_rate", 1e-3),
        seed=described["seed"],
        verbose=described.get("verbose", 1),
    )
    tagger.tags = described["tags"]
    tagger.summary = described["summary"]
    least = [tagger.summary["threshold"]] * len(tagger.tags)
    tagger.thresholds = np.array(described.get("thresholds", least), np.float32)
    tagger._counts = np.array(described["counts"], np.int64)
    tagger.model = keras.models.load_model(model)
    if described.get("encoder"):
        tagger.encoder = tagger.model.get_layer(described["encoder"])
    if described.get("fields_are_given", True):
        tagger.fields = tagger.model.get_layer("text_features").fields
    tagger._make_answer()
    return tagger


def _file(folder, name):
    path = os.path.join(folder, name)
    if not os.path.isfile(path):
        raise ValueError(
            f"{os.fspath(folder)!r} holds no tagger: {path} is missing."
        )
    return path
