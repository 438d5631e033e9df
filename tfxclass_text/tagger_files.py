"""A tagger on disk: a Keras model, and what it is called by."""

import contextlib
import glob
import json
import os
import re
import uuid
from typing import Any

import keras
import numpy as np

from tfxclass.export.version_folder import check_kind
from tfxclass.paths import local_path
from tfxclass.types import Path
from tfxclass_text import tagger_model
from tfxclass_text.growth import Memory
from tfxclass_text.sparse_rows import SparseRows

NAMES = "tagger.json"
# Arguments of a tagger that its JSON does not have.
_LARGE = ("fields", "encoder")
# Its other files, and its JSON while it is written.
_FILES = re.compile(
    r"model(-[0-9a-f]{32})?\.keras|memory-[0-9a-f]{32}\.npz"
    r"|tagger\.json-[0-9a-f]{32}"
)


def save(tagger: Any, folder: Path) -> None:
    """Writes `folder/tagger.json` and the files that it names.

    The tagger that was there is read until all is written, and then removed.
    """
    folder = local_path(folder, "folder")
    check_folder(folder, "folder")
    os.makedirs(folder, exist_ok=True)
    number = uuid.uuid4().hex
    model, memory = f"model-{number}.keras", f"memory-{number}.npz"
    kept = set(os.listdir(folder))
    try:
        tagger.model.save(os.path.join(folder, model))
        _save_memory(tagger._memory, os.path.join(folder, memory))
        unfinished = os.path.join(folder, f"{NAMES}-{number}")
        with open(unfinished, "w", encoding="utf-8") as f:
            json.dump(_description(tagger, model, memory), f)
            f.flush()
            os.fsync(f.fileno())
        os.replace(unfinished, os.path.join(folder, NAMES))
        kept = {model, memory}
    finally:
        for name in os.listdir(folder):
            if _FILES.fullmatch(name) and name not in kept:
                with contextlib.suppress(OSError):
                    os.remove(os.path.join(folder, name))


def is_tagger(folder: Path) -> bool:
    """Whether a folder holds a saved tagger."""
    return os.path.isfile(os.path.join(local_path(folder, "folder"), NAMES))


def check_folder(folder: Path, name: str) -> None:
    """Raises ValueError, which names an argument, if a folder has an export."""
    folder = local_path(folder, name)
    check_kind(name, folder, NAMES)
    for version in glob.glob("*/saved_model.pb", root_dir=folder):
        # As servers do: other names are no versions.
        if os.path.dirname(version).isdecimal():
            raise ValueError(
                f"`{name}` must not hold another export. Received: "
                f"{folder!r} with {version!r}, a version for serving. Fix: "
                "give a folder of its own."
            )


def _save_memory(memory, path):
    """Writes the sample of texts that `partial_fit` learns from again."""
    arrays = {"keys": memory.keys}
    for name in ("rows", "labels"):
        part = getattr(memory, name)
        arrays |= {f"{name}_{key}": x for key, x in part._asdict().items()}
    for number, (hashes, texts) in enumerate(memory.pending):
        arrays |= {f"hashes_{number}": hashes, f"texts_{number}": texts}
    np.savez_compressed(path, **arrays)


def _load_memory(path):
    with np.load(path) as file:
        arrays = dict(file)
    rows, labels = (
        SparseRows(*(arrays[f"{name}_{key}"] for key in SparseRows._fields))
        for name in ("rows", "labels")
    )
    count = sum(name.startswith("hashes_") for name in arrays)
    pending = [
        (arrays[f"hashes_{i}"], arrays[f"texts_{i}"]) for i in range(count)
    ]
    return Memory(arrays["keys"], rows, labels, pending)


def _description(tagger, model, memory):
    has_encoder = bool(tagger.summary.get("encoder_passes"))
    return {
        "model": model,
        "memory": memory,
        "tags": tagger.tags,
        "counts": tagger._counts.tolist(),
        **{
            name: value.item() if isinstance(value, np.generic) else value
            for name, value in tagger.get_params().items()
            if name not in _LARGE
        },
        "thresholds": tagger.thresholds.tolist(),
        "encoder": tagger.encoder.name if has_encoder else None,
        "fields_are_given": tagger.fields is not None,
        "summary": tagger.summary,
    }


def load(cls: Any, folder: Path) -> Any:
    """The tagger in `folder`; ValueError if there is none."""
    folder = local_path(folder, "folder")
    with open(_file(folder, NAMES), encoding="utf-8") as f:
        described = json.load(f)
    names = (set(cls().get_params()) & set(described)) - set(_LARGE)
    tagger = cls(**{name: described[name] for name in names})
    tagger.tags = described["tags"]
    tagger.summary = described["summary"]
    tagger.thresholds = np.array(described["thresholds"], np.float32)
    tagger._counts = np.array(described["counts"], np.int64)
    tagger._memory = _load_memory(_file(folder, described["memory"]))
    tagger.model = keras.models.load_model(_file(folder, described["model"]))
    if described["encoder"]:
        tagger.encoder = tagger.model.get_layer(described["encoder"])
    if described["fields_are_given"]:
        tagger.fields = tagger_model.layers_of(tagger.model).features.fields
    return tagger


def _file(folder, name):
    path = os.path.join(folder, name)
    if not os.path.isfile(path):
        raise ValueError(
            f"{os.fspath(folder)!r} holds no tagger: {path} is missing. Fix: "
            "give the folder of `save`. An export for serving is read with "
            "`tf.saved_model.load`."
        )
    return path
