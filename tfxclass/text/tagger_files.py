"""A tagger on disk: a Keras model, and what it is called by."""

import json
import os
from typing import Any

import keras
import numpy as np

from tfxclass.types import Path

MODEL, NAMES = "model.keras", "tagger.json"


def save(tagger: Any, folder: Path) -> None:
    """Writes `folder/model.keras` and `folder/tagger.json`."""
    os.makedirs(folder, exist_ok=True)
    tagger.model.save(os.path.join(folder, MODEL))
    described = {
        "tags": tagger.tags,
        "counts": tagger._counts.tolist(),
        "effort": tagger.effort,
        "c": tagger.c,
        "neighbors": tagger.neighbors,
        "thresholds": tagger.thresholds.tolist(),
        "threshold": tagger.threshold,
        "seed": tagger.seed,
        "summary": tagger.summary,
    }
    with open(os.path.join(folder, NAMES), "w", encoding="utf-8") as f:
        json.dump(described, f)


def load(cls: type, folder: Path) -> Any:
    """The tagger in `folder`.

    Raises:
        ValueError: there is none.
    """
    paths = [os.path.join(folder, name) for name in (MODEL, NAMES)]
    for path in paths:
        if not os.path.isfile(path):
            raise ValueError(
                f"{os.fspath(folder)!r} holds no tagger: {path} is missing."
            )
    with open(paths[1], encoding="utf-8") as f:
        described = json.load(f)
    tagger = cls(
        effort=described["effort"],
        c=described["c"],
        neighbors=described["neighbors"],
        threshold=described["threshold"],
        seed=described["seed"],
    )
    tagger.tags = described["tags"]
    tagger.summary = described["summary"]
    tagger.thresholds = np.array(described["thresholds"], np.float32)
    tagger._counts = np.array(described["counts"], np.int64)
    tagger.model = keras.models.load_model(paths[0])
    tagger.fields = tagger.model.get_layer("text_features").fields
    tagger._make_answer()
    return tagger
