"""Folders of models: which versions are there, and whether they change."""

import os
import time
import typing

# A version is an int64, as in the protocol.
_LAST = 2**63 - 1
_EXPORT = (
    "tfxclass.export.saved_model({path!r}, 'models/NAME'), then "
    "`tfxclass-serve models`"
)
# What a user may give in place of a model to serve, by the end of its path or
# by a file in it.
_HINTS = {
    ".keras": "is a Keras model. Export it: " + _EXPORT,
    "tagger.json": (
        "is a saved Tagger. Export it: tfxclass.text.Tagger.load({path!r})"
        ".export('models/NAME'), then `tfxclass-serve models`"
    ),
    "saved_model.pb": (
        "is one version of a model. Move it to models/NAME/1, then "
        "`tfxclass-serve models`"
    ),
    "model.onnx": (
        "is an ONNX model. Export the Keras model instead, with "
        "tfxclass.export.saved_model"
    ),
    "vectors.json": (
        "has class vectors only. Export the Keras model instead, with "
        "tfxclass.export.saved_model"
    ),
}


class Source(typing.NamedTuple):
    """Where the versions of a model are, and which are wanted.

    Attributes:
        path: folder of the versions.
        versions: set of ints, or None for the latest.
        labels: dict of versions by label.
        latest: int, how many of the latest, or None for all.
    """

    path: str
    versions: frozenset | None = None
    labels: dict = {}
    latest: int | None = 1

    def wanted(self, there):
        """The versions among `there` that are wanted, a set of ints."""
        if self.versions is not None:
            return set(there) & self.versions
        first = 0 if self.latest is None else -self.latest
        return set(sorted(there)[first:])


def to_version(text):
    """The number that `text` spells, or None: an int64 in ASCII digits."""
    # As isdecimal() alone would take digits of all scripts.
    if not (text.isascii() and text.isdecimal()):
        return None
    digits = text.lstrip("0") or "0"
    if len(digits) > len(str(_LAST)) or int(digits) > _LAST:
        return None
    return int(digits)


def versions_in(path):
    """Folders of the versions in `path`, a dict by number."""
    try:
        with os.scandir(path) as entries:
            names = sorted(entry.name for entry in entries if entry.is_dir())
    except OSError:
        return {}
    found = {to_version(name): os.path.join(path, name) for name in names}
    found.pop(None, None)
    return found


def discover(folder):
    """Sources in a folder of models, or of one model; dict by name."""
    folder = os.path.abspath(folder)
    if versions_in(folder):
        return {os.path.basename(folder): Source(folder)}
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return {}
    paths = {name: os.path.join(folder, name) for name in names}
    return {k: Source(path) for k, path in paths.items() if versions_in(path)}


def nothing_to_serve(folder):
    """Why there is no model to serve in a folder, or None if there is one."""
    if discover(folder):
        return None
    paths = [folder]
    if os.path.isdir(folder):
        paths += sorted(os.path.join(folder, x) for x in os.listdir(folder))
        received = "has none of them"
    else:
        received = "is a file" if os.path.exists(folder) else "does not exist"
    hints = [
        f"{path} {hint.format(path=path)}"
        for path in paths
        for file, hint in _HINTS.items()
        if _is_kind(path, file)
    ]
    return (
        f"no model to serve in {folder}. Give a folder of models, each in "
        "NAME/VERSION as tfxclass.export.saved_model writes them. "
        f"Received: {hints[0] if hints else f'{folder} {received}'}"
    )


def _is_kind(path, file):
    return os.path.isfile(os.path.join(path, file)) or (
        path.endswith(file) and os.path.isfile(path)
    )


def fingerprint(folder):
    """What changes when a file of a folder does: names, sizes, times."""
    found = []
    for parent, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(parent, name)
            try:
                status = os.stat(path)
            except OSError:  # It went while we looked.
                continue
            found.append((path, status.st_size, status.st_ctime_ns))
    return tuple(sorted(found))


def is_settled(files, seconds):
    """Whether no file of a fingerprint changed in the last `seconds`.

    A copy that is under way is not settled. A time that is to come is the
    clock of another machine, and tells nothing.
    """
    last = max((time_ns for _, _, time_ns in files), default=0)
    return abs(time.time_ns() - last) >= 1e9 * seconds
