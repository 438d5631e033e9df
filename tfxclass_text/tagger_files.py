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
from tfxclass_text.growth import Memory
from tfxclass_text.sparse_rows import SparseRows

NAMES = "tagger.json"
# Arguments of a tagger that its file has.
_ARGUMENTS = (
    "effort",
    "c",
    "neighbors",
    "embedding_dim",
    "weight_threshold",
    "learning_rate",
    "seed",
    "verbose",
)
_FILES = re.compile(r"model(-[0-9a-f]{32})?\.keras|memory-[0-9a-f]{32}\.npz")


def save(tagger: Any, folder: Path) -> None:
    """Writes `folder/tagger.json` and the files that it names.

    The tagger that was there is the one that is read until all is written; then
    its model is removed.
    """
    folder = local_path(folder, "folder")
    check_folder(folder, "folder")
    os.makedirs(folder, exist_ok=True)
    number = uuid.uuid4().hex
    model, memory = f"model-{number}.keras", None
    if tagger._memory is not None:
        memory = f"memory-{number}.npz"
    new = [name for name in (model, memory) if name is not None]
    unfinished = os.path.join(folder, f".{NAMES}-{uuid.uuid4().hex}")
    try:
        tagger.model.save(os.path.join(folder, model))
        if memory is not None:
            _save_memory(tagger._memory, os.path.join(folder, memory))
        with open(unfinished, "w", encoding="utf-8") as f:
            json.dump(_description(tagger, model, memory), f)
            f.flush()
            os.fsync(f.fileno())
        os.replace(unfinished, os.path.join(folder, NAMES))
    except BaseException:
        for name in (*new, os.path.basename(unfinished)):
            with contextlib.suppress(OSError):
                os.remove(os.path.join(folder, name))
        raise
    for name in os.listdir(folder):
        if _FILES.fullmatch(name) and name not in new:
            with contextlib.suppress(OSError):
                os.remove(os.path.join(folder, name))


def is_tagger(folder: Path) -> bool:
    """Whether a folder holds a saved tagger."""
    return os.path.isfile(os.path.join(local_path(folder, "folder"), NAMES))


def check_folder(folder: Path, name: str) -> None:
    """Raises ValueError, which names an argument, if a folder has an export."""
    folder = local_path(folder, name)
    check_kind(name, folder, NAMES)
    found = glob.glob(os.path.join(glob.escape(folder), "*", "saved_model.pb"))
    for path in found:
        version = os.path.relpath(path, folder)
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
        (arrays[f"hashes_{number}"], arrays[f"texts_{number}"])
        for number in range(count)
    ]
    return Memory(arrays["keys"], rows, labels, pending)


def _description(tagger, model, memory):
    has_encoder = bool(tagger.summary.get("encoder_passes"))
    return {
        "model": model,
        "memory": memory,
        "tags": tagger.tags,
        "counts": tagger._counts.tolist(),
        **{name: getattr(tagger, name) for name in _ARGUMENTS},
        "seed": int(tagger.seed),
        "thresholds": tagger.thresholds.tolist(),
        "encoder": tagger.encoder.name if has_encoder else None,
        "fields_are_given": tagger.fields is not None,
        "summary": tagger.summary,
    }


def load(cls: type, folder: Path) -> Any:
    """The tagger in `folder`; ValueError if there is none."""
    folder = local_path(folder, "folder")
    with open(_file(folder, NAMES), encoding="utf-8") as f:
        described = json.load(f)
    model = _file(folder, described["model"])
    tagger = cls(**{name: described[name] for name in _ARGUMENTS})
    tagger.tags = described["tags"]
    tagger.summary = described["summary"]
    tagger.thresholds = np.array(described["thresholds"], np.float32)
    tagger._counts = np.array(described["counts"], np.int64)
    if described["memory"]:
        tagger._memory = _load_memory(_file(folder, described["memory"]))
    loaded = keras.models.load_model(model)
    if described["encoder"]:
        tagger.encoder = loaded.get_layer(described["encoder"])
    tagger._take_model(loaded)
    if described["fields_are_given"]:
        tagger.fields = tagger.model.get_layer("text_features").fields
    return tagger


def _file(folder, name):
    path = os.path.join(folder, name)
    if not os.path.isfile(path):
        raise ValueError(
            f"{os.fspath(folder)!r} holds no tagger: {path} is missing."
            + _export_note(folder)
        )
    return path


def _export_note(folder):
    """What to do with a folder of `Tagger.export`; "" for any other."""
    patterns = ("saved_model.pb", os.path.join("*", "saved_model.pb"))
    places = [os.path.join(glob.escape(folder), x) for x in patterns]
    if not any(map(glob.glob, places)):
        return ""
    return (
        " This is an export for serving. Fix: load the folder of `save`, or "
        "read the export with `tf.saved_model.load`."
    )
