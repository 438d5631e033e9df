"""The state of a training job on disk, so that it goes on bit for bit."""

import json
import os
import re
import shutil
import warnings
import zipfile

import keras
import numpy as np

from tfxclass.keras_internals import save_nowhere
from tfxclass.paths import local_path
from tfxclass.saving import synchronise
from tfxclass.types import Config
from tfxclass.types import Path

_PREFIX = "step-"
_KEPT = 2
_WEIGHTS, _OTHERS, _POSITION = "model.weights.h5", "others.npz", "position.json"
# What files raise that a power cut left short.
_BROKEN = (OSError, EOFError, zipfile.BadZipFile, json.JSONDecodeError)


class Checkpoint:
    """The last complete states of a job in a folder that all workers see.

    A state is the model with its optimizer, samplers and indexes
    (`save_weights`), what Keras leaves out of that (states of random
    generators, metrics), and the position in the data, a dict for JSON. It is
    renamed when it is complete.

    The chief alone `writes`. Other workers take part where variables have a
    value of their own on each replica: all workers read these together.
    """

    def __init__(
        self, folder: Path, model: keras.Model, writes: bool = True
    ) -> None:
        self.folder = local_path(folder, "checkpoint")
        self.model, self.writes = model, writes

    def save(self, number: int, position: Config) -> None:
        """Writes the state after `number` steps; on every worker."""
        if not self.writes:
            save_nowhere(self.model)
            self._read_others()
            return
        os.makedirs(self.folder, exist_ok=True)
        folder = os.path.join(self.folder, f"{_PREFIX}{number:09d}")
        unfinished = folder + ".unfinished"
        shutil.rmtree(unfinished, ignore_errors=True)
        os.makedirs(unfinished)
        self.model.save_weights(os.path.join(unfinished, _WEIGHTS))
        np.savez(os.path.join(unfinished, _OTHERS), *self._read_others())
        with open(os.path.join(unfinished, _POSITION), "w") as file:
            json.dump(position, file)
        for name in os.listdir(unfinished):
            synchronise(os.path.join(unfinished, name))
        synchronise(unfinished)
        shutil.rmtree(folder, ignore_errors=True)
        os.replace(unfinished, folder)
        synchronise(self.folder)
        for name in self._names()[:-_KEPT]:
            shutil.rmtree(os.path.join(self.folder, name))

    def restore(self) -> Config | None:
        """Brings back the last state; its position, or None without a state.

        Raises:
            ValueError: the state is of another model.
            OSError: none of the states can be read.
        """
        names = self._names()
        for name in reversed(names):
            folder = os.path.join(self.folder, name)
            try:
                return self._restore_from(folder)
            except _BROKEN as error:
                warnings.warn(
                    f"The state in {folder!r} cannot be read ({error}): the "
                    "one before is taken, if there is one.",
                    stacklevel=2,
                )
        if names:
            raise OSError(
                f"No state in {self.folder!r} can be read. Fix: remove the "
                "folder to begin anew."
            )
        return None

    def _restore_from(self, folder):
        with open(os.path.join(folder, _POSITION)) as file:
            position = json.load(file)
        try:
            self.model.load_weights(os.path.join(folder, _WEIGHTS))
            self._restore_others(os.path.join(folder, _OTHERS))
        except (ValueError, KeyError) as error:
            raise ValueError(
                f"The state in {folder!r} is not of this model: {error}"
            ) from error
        return position

    def _restore_others(self, path):
        others = self._others()
        # np.load leaves a file open that is none.
        with open(path, "rb") as file, np.load(file) as values:
            if len(values) != len(others):
                raise ValueError(
                    f"it has {len(values)} states of random generators and "
                    f"metrics, the model has {len(others)}"
                )
            for variable, name in zip(others, values):
                variable.assign(values[name])

    def _others(self):
        """Variables that `save_weights` leaves out."""
        seen = {id(v) for v in self.model.weights}
        others = [*self.model.variables, *self.model.metrics_variables]
        # The model may list a metric of a layer as well.
        return [v for v in others if not (id(v) in seen or seen.add(id(v)))]

    def _read_others(self):
        return [v.numpy() for v in self._others()]

    def _names(self):
        """Names of the complete states, the last one last."""
        if not os.path.isdir(self.folder):
            return []
        is_state = re.compile(f"{_PREFIX}[0-9]+").fullmatch
        return sorted(filter(is_state, os.listdir(self.folder)))
