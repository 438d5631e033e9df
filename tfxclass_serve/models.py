"""The models that are served: versions come, take over, and go."""

import contextlib
import os
import threading
import typing

from tfxclass_serve.c_loader import TensorFlowError
from tfxclass_serve.errors import NOT_FOUND
from tfxclass_serve.errors import invalid
from tfxclass_serve.servable import Servable

# ModelVersionStatus.State of get_model_status.proto.
LOADING = 20
AVAILABLE = 30
UNLOADING = 40
END = 50
STATES = {
    LOADING: "LOADING",
    AVAILABLE: "AVAILABLE",
    UNLOADING: "UNLOADING",
    END: "END",
}


class Source(typing.NamedTuple):
    """Where the versions of a model are, and which are wanted.

    Attributes:
        path: folder of the versions.
        versions: set of ints, or None for the latest.
        labels: dict of versions by label.
    """

    path: str
    versions: frozenset | None = None
    labels: dict = {}


class _Version:
    """A version; `users` are the requests under way."""

    def __init__(self):
        self.state = LOADING
        self.error = None
        self.servable = None
        self.users = 0


def versions_in(path):
    """Numbers of the version folders in `path`, a set."""
    try:
        with os.scandir(path) as entries:
            names = [entry.name for entry in entries if entry.is_dir()]
    except OSError:
        return set()
    # As isdecimal() alone would take digits of all scripts.
    return {int(x) for x in names if x.isascii() and x.isdecimal()}


def _folder_of(path, version):
    """As it is spelt: a number may have leading zeros."""
    for name in os.listdir(path):
        if name.isascii() and name.isdecimal() and int(name) == version:
            return os.path.join(path, name)
    raise FileNotFoundError(f"{path!r} has no version {version}.")


def discover(folder):
    """Sources in a folder of models, or in that of one; dict by name."""
    folder = os.path.abspath(folder)
    if versions_in(folder):
        return {os.path.basename(folder): Source(folder)}
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return {}
    paths = {name: os.path.join(folder, name) for name in names}
    return {k: Source(path) for k, path in paths.items() if versions_in(path)}


class Models:
    """Loads, swaps and unloads; requests hold the version they use.

    Args:
        load: function of a version's folder that returns a `Servable`.
        sources: function that returns a dict of `Source` by model name; asked
            at each poll.
    """

    def __init__(self, load, sources):
        self._load = load
        self._sources = sources
        self._lock = threading.Condition()
        self._polling = threading.Lock()
        self._versions = {}
        self._labels = {}

    def configure(self, sources):
        """Serves these from now on, a dict of `Source` by model name."""
        self._sources = lambda: sources
        self.poll()

    def poll(self):
        """Brings what is served up to date with the folders."""
        with self._polling:
            sources = self._sources()
            for name in {*sources, *self._versions}:
                self._poll_one(name, sources.get(name))
            with self._lock:
                self._labels = {k: x.labels for k, x in sources.items()}

    def _poll_one(self, name, source):
        wanted = set()
        if source is not None:
            there = versions_in(source.path)
            wanted = there & set(source.versions or there)
            if source.versions is None:
                wanted = set(sorted(wanted)[-1:])
        with self._lock:
            known = self._versions.setdefault(name, {})
        for version in sorted(wanted):
            # One that failed is not tried again until its folder went.
            if version not in known or known[version].state != AVAILABLE:
                if version in known and known[version].error is not None:
                    continue
                self._add(name, version, source.path)
        is_served = any(known[v].state == AVAILABLE for v in wanted)
        for version in sorted(set(known) - wanted):
            # The old one stays until the new one can answer.
            if is_served or not wanted:
                self._remove(name, version)

    def _add(self, name, version, path):
        entry = _Version()
        with self._lock:
            self._versions[name][version] = entry
        try:
            servable = self._load(_folder_of(path, version))
        except Exception as e:  # A model that is broken stops no other.
            with self._lock:
                entry.state = END
                entry.error = e
            return
        with self._lock:
            entry.servable = servable
            entry.state = AVAILABLE

    def _remove(self, name, version):
        with self._lock:
            entry = self._versions[name][version]
            if entry.state == AVAILABLE:
                entry.state = UNLOADING
            self._lock.wait_for(lambda: entry.users == 0)
            servable, entry.servable = entry.servable, None
            del self._versions[name][version]
            if not self._versions[name]:
                del self._versions[name]
        if servable is not None:
            servable.close()

    def close(self):
        """Unloads all, when the requests under way are done."""
        self.configure({})

    @contextlib.contextmanager
    def use(self, name, version=None, label=None):
        """`(servable, version)`, not unloaded until the block ends."""
        with self._lock:
            version = self._choose(name, version, label)
            entry = self._versions[name][version]
            entry.users += 1
        try:
            yield entry.servable, version
        finally:
            with self._lock:
                entry.users -= 1
                self._lock.notify_all()

    def _choose(self, name, version, label):
        if version is not None and label is not None:
            raise invalid(
                f"Both model version ({version}) and model version label "
                f"({label}) cannot be supplied."
            )
        if label is not None:
            version = self._labels.get(name, {}).get(label)
            if version is None:
                raise invalid(f"Unrecognized servable version label: {label}")
        available = [
            number
            for number, entry in self._versions.get(name, {}).items()
            if entry.state == AVAILABLE
        ]
        if version is None and available:
            return max(available)
        if version not in available:
            asked = "Latest" if version is None else "Specific"
            what = name if version is None else f"{name}, {version}"
            raise TensorFlowError(
                NOT_FOUND,
                f"Servable not found for request: {asked}({what})",
            )
        return version

    def names(self):
        """Names of the models that have versions."""
        with self._lock:
            return [name for name, known in self._versions.items() if known]

    def status(self, name, version=None, label=None):
        """`(version, state, error)` of the versions known, latest first."""
        with self._lock:
            if label is not None:
                version = self._choose(name, version, label)
            known = self._versions.get(name, {})
            rows = [
                (number, entry.state, entry.error)
                for number, entry in sorted(known.items(), reverse=True)
                if version in (None, number)
            ]
        if not rows:
            what = name if version is None else f"{name} version {version}"
            raise TensorFlowError(
                NOT_FOUND, f"Could not find any versions of model {what}"
            )
        return rows


def loader(api, batching):
    """The `load` of `Models`."""
    return lambda folder: Servable(api, folder, batching)
