"""The models that are served: versions come, take over, and go."""

import contextlib
import logging
import threading
import time

from tfxclass_serve.c_loader import TensorFlowError
from tfxclass_serve.errors import NOT_FOUND
from tfxclass_serve.errors import invalid
from tfxclass_serve.errors import message_of
from tfxclass_serve.errors import short
from tfxclass_serve.folders import fingerprint
from tfxclass_serve.folders import is_settled
from tfxclass_serve.folders import versions_in

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
_LONGEST_WAIT = 300.0

_log = logging.getLogger("tfxclass_serve")


class _Version:
    """A version; `users` are the requests under way."""

    def __init__(self, failures=0):
        self.state = LOADING
        self.error = None
        self.servable = None
        self.users = 0
        # Of loads: how many failed, on which files, when to try again.
        self.failures = failures
        self.files = ()
        self.retry_at = 0.0


class Models:
    """Loads, swaps and unloads; requests hold the version they use.

    A version is loaded once its files have settled. One that fails is tried
    again when its files change, and after a back-off that doubles.

    Args:
        load: function of a version's folder that returns a `Servable`.
        sources: function that returns a dict of `Source` by model name; asked
            at each poll.
        settle_seconds: for which no file of a new version has changed.
        retry_seconds: the first back-off.
    """

    def __init__(self, load, sources, settle_seconds=1.0, retry_seconds=5.0):
        self._load = load
        self._sources = sources
        self._settle_seconds = settle_seconds
        self._retry_seconds = retry_seconds
        self._lock = threading.Condition()
        self._polling = threading.Lock()
        self._versions = {}
        self._labels = {}

    def configure(self, sources):
        """Serves these from now on, a dict of `Source` by model name."""
        self._sources = lambda: sources
        self.poll()

    def poll(self):
        """Brings what is served up to date with the folders.

        Returns:
            Whether all was tried; False if files have not settled.
        """
        with self._polling:
            sources = self._sources()
            names = {*sources, *self._versions}
            tried = [self._poll_one(x, sources.get(x)) for x in sorted(names)]
            with self._lock:
                self._labels = {k: x.labels for k, x in sources.items()}
            return all(tried)

    def _poll_one(self, name, source):
        there = {} if source is None else versions_in(source.path)
        wanted = set() if source is None else source.wanted(there)
        with self._lock:
            known = self._versions.setdefault(name, {})
        tried = [self._bring(name, x, there[x]) for x in sorted(wanted)]
        with self._lock:
            is_served = any(
                known[v].state == AVAILABLE for v in wanted if v in known
            )
        for version in sorted(set(known) - wanted):
            # The old one stays until the new one can answer.
            if is_served or not wanted:
                self._remove(name, version)
        with self._lock:
            if not known:
                self._versions.pop(name, None)
        return all(tried)

    def _bring(self, name, version, folder):
        """Loads a version where it is time to; False if it has to settle."""
        entry = self._versions[name].get(version)
        if entry is not None and entry.state == AVAILABLE:
            return True
        files = fingerprint(folder)
        if entry is not None and files == entry.files:
            if time.monotonic() < entry.retry_at:
                return True
        elif not is_settled(files, self._settle_seconds):
            return False
        self._add(name, version, folder, files)
        return True

    def _add(self, name, version, folder, files):
        with self._lock:
            old = self._versions[name].get(version)
            entry = _Version(old.failures if old else 0)
            entry.files = files
            self._versions[name][version] = entry
        try:
            servable = self._load(folder)
        except Exception as e:  # A model that is broken stops no other.
            self._note_failure(name, version, entry, e)
            return
        with self._lock:
            entry.servable = servable
            entry.state = AVAILABLE
        _log.info("%s version %d AVAILABLE", name, version)

    def _note_failure(self, name, version, entry, error):
        wait = self._retry_seconds * 2.0 ** min(entry.failures, 30)
        wait = min(wait, _LONGEST_WAIT)
        with self._lock:
            entry.failures += 1
            entry.retry_at = time.monotonic() + wait
            entry.error = error
            entry.state = END
        _log.warning(
            "%s version %d did not load; the next try is when its files "
            "change, or in %g s: %s",
            name,
            version,
            wait,
            " ".join(message_of(error).split()),
        )

    def _remove(self, name, version):
        with self._lock:
            entry = self._versions[name].get(version)
            if entry is None:
                return  # Its last user was faster.
            if entry.state == AVAILABLE:
                entry.state = UNLOADING
            if entry.users > 0:
                return  # The last of them unloads it.
        self._unload(name, version, entry)

    def _unload(self, name, version, entry):
        """Frees a version that has no users and is given to none."""
        with self._lock:
            servable, entry.servable = entry.servable, None
        if servable is not None:
            try:
                servable.close()
            except Exception:  # Who asked last has an answer all the same.
                _log.exception("%s version %d did not close", name, version)
            else:
                _log.info("%s version %d unloaded", name, version)
        with self._lock:
            # Another one of this number may have come.
            known = self._versions.get(name, {})
            if known.get(version) is entry:
                del known[version]
            self._lock.notify_all()

    def close(self):
        """Unloads all, when the requests under way are done."""
        self.configure({})
        with self._lock:
            self._lock.wait_for(lambda: not any(self._versions.values()))

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
                is_last = entry.users == 0 and entry.state == UNLOADING
            if is_last:
                self._unload(name, version, entry)

    def _choose(self, name, version, label):
        if version is not None and label is not None:
            raise invalid(
                f"Both model version ({version}) and model version label "
                f"({short(label)}) cannot be supplied."
            )
        if label is not None:
            version = self._labels.get(name, {}).get(label)
            if version is None:
                raise invalid(
                    f"Unrecognized servable version label: {short(label)}"
                )
        available = [
            number
            for number, entry in self._versions.get(name, {}).items()
            if entry.state == AVAILABLE
        ]
        if version == 0 and 0 not in available:
            # ovmsclient asks for version 0 where it means the latest.
            version = None
        if version is None and available:
            return max(available)
        if version not in available:
            asked = "Latest" if version is None else "Specific"
            what = short(name) + ("" if version is None else f", {version}")
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
            if version == 0 and 0 not in known:
                version = None
            rows = [
                (number, entry.state, entry.error)
                for number, entry in sorted(known.items(), reverse=True)
                if version in (None, number)
            ]
        if not rows:
            what = short(name)
            what += "" if version is None else f" version {version}"
            raise TensorFlowError(
                NOT_FOUND, f"Could not find any versions of model {what}"
            )
        return rows
