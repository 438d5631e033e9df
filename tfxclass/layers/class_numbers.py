"""Which classes a head has: their names, and which of them were removed."""

import base64
import zlib
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from tfxclass.core.change import Change
from tfxclass.core.targets import Targets
from tfxclass.core.targets import weighed
from tfxclass.layers.weight_spec import WeightSpec
from tfxclass.shards import state
from tfxclass.text_files import is_one_line
from tfxclass.trees.class_means import ClassMeans
from tfxclass.trees.class_means import median_norm
from tfxclass.trees.new_rows import new_rows
from tfxclass.types import Config

#: Logit of a class that was removed: its probability is 0, and sums of such
#: numbers are still finite.
GONE = -1e9


class ClassWeight(NamedTuple):
    """A weight with a row for each of some consecutive classes.

    Attributes:
        name: str.
        first: int, the class of its first row.
        size: int, number of classes.
        part: int, which of `part_queries` its rows are multiplied with; None
            where they are no such rows.
    """

    name: str
    first: int
    size: int
    part: int | None = None


class ClassNumbers:
    """Mixin of `OutputHead`: what it knows of single classes.

    A subclass has the attribute `num_classes` and gives `class_weights`.
    """

    def set_classes(
        self,
        class_names: Sequence[str] | Mapping[str, str] | None,
        removed: Iterable[int],
    ) -> None:
        """Checks and sets `class_names` and `removed`."""
        self.class_names = _names(class_names, self.num_classes)
        self.removed = _removed(removed, self.num_classes)

    @property
    def num_answers(self) -> int:
        """Classes that can be answers: all but the removed ones; int."""
        return self.num_classes - len(self.removed)

    def without_removed(self, targets: Targets) -> Targets:
        """`Targets` in which labels of removed classes are padding."""
        if not self.removed:
            return targets
        return weighed(self.live_ids(targets.ids))

    def live_ids(self, ids: tf.Tensor) -> tf.Tensor:
        """Ids, int64 of any shape, with -1 for those of removed classes."""
        if not self.removed:
            return ids
        removed = tf.constant(list(self.removed), tf.int64)
        flat = tf.reshape(ids, [-1])
        places = tf.searchsorted(removed, flat)
        places = tf.minimum(places, len(self.removed) - 1)
        is_gone = tf.equal(tf.gather(removed, places), flat)
        is_gone = tf.reshape(is_gone, tf.shape(ids))
        return tf.where(is_gone, tf.constant(-1, tf.int64), ids)

    def offset_specs(
        self, sizes: Sequence[int], names: Sequence[str]
    ) -> list[WeightSpec]:
        """Constant biases that keep removed classes out; none without them.

        Args:
            sizes: ints, of consecutive ranges of classes.
            names: str, of the weight of each.
        """
        if not self.removed:
            return []
        offsets = np.zeros(self.num_classes, np.float32)
        offsets[list(self.removed)] = GONE
        ends = np.cumsum(sizes)
        return [
            WeightSpec(
                name, (size,), _constant(offsets[end - size : end]), **_FIXED
            )
            for name, size, end in zip(names, sizes, ends, strict=True)
        ]

    def class_weights(self) -> list[ClassWeight]:
        """The weights with a row a class."""
        raise NotImplementedError

    def row_sources(self, old: Any, change: Change) -> dict[str, np.ndarray]:
        """Where the rows of weights were in the head that this comes from.

        Args:
            old: the head before `change`, of the same configuration but for
                it.
            change: `Change`.

        Returns:
            int64 `[rows]` by name of a weight: rows of the old one, -1 for
            rows that are new. Weights that are not named are taken as they
            were.
        """
        before = {weight.name: weight for weight in old.class_weights()}
        sources = {}
        for weight in self.class_weights():
            classes = weight.first + np.arange(weight.size)
            rows = np.full(weight.size, -1)
            was = before.get(weight.name)
            if was is not None and not weight.name.startswith("offsets"):
                is_old = classes < was.first + was.size
                is_old &= ~np.isin(classes, change.added)
                is_old &= ~np.isin(classes, change.removed)
                rows[is_old] = classes[is_old] - was.first
            sources[weight.name] = rows
        return sources

    def finish_rows(
        self,
        name: str,
        values: np.ndarray,
        old: Any,
        change: Change,
        means: ClassMeans | None,
    ) -> None:
        """Sets the rows of new and of removed classes in a weight.

        Rows of new classes are made of their features (`trees/new_rows.py`),
        and their biases are the median; without data, as the initializer made
        them.

        Args:
            name: str, of the weight.
            values: its numbers, with the rows that `row_sources` names.
            old: the head before `change`.
            change: `Change`.
            means: `ClassMeans` of the new classes, or None.
        """
        (weight,) = [x for x in self.class_weights() if x.name == name]
        classes = weight.first + np.arange(weight.size)
        is_gone = np.isin(classes, self.removed)
        others = values[~is_gone & ~np.isin(classes, change.added)]
        if name == "bias":
            places = np.isin(classes, change.added)
            values[places] = np.median(others) if len(others) else 0
            values[is_gone] = GONE
        elif weight.part is not None:
            values[is_gone] = 0
            if means is not None:
                rows = new_rows(others, means, weight.part, self._is_cosine)
                _set_rows(weight, values, change.added, means, rows)

    def set_means(self, ids: np.ndarray, means: ClassMeans) -> None:
        """Sets the rows of classes to the mean directions of their features.

        Args:
            ids: int64 `[n]`, rising.
            means: `ClassMeans` of them; classes without rows stay.
        """
        for weight in self.class_weights():
            if weight.part is None:
                continue
            variable = self.made[weight.name]
            values = np.array(state.read(variable))
            norm = 1.0 if self._is_cosine else median_norm(values)
            rows = norm * means.of_parts[weight.part]
            _set_rows(weight, values, ids, means, rows)
            state.write(variable, values)

    @property
    def _is_cosine(self):
        return getattr(self, "similarity", "dot") == "cosine"

    def places_near(self, means: ClassMeans | None, count: int) -> Any:
        """An old class near each new one, where that matters; or None."""
        return None

    def changed_config(self, change: Change) -> Config:
        """The configuration of this head after `change`.

        A subclass adds to it what it has of each class.
        """
        removed = set(self.removed) - set(change.added.tolist())
        names = self.class_names
        if names is not None and change.names is not None:
            names = [*names, *[""] * (change.num_classes - len(names))]
            for number, name in zip(change.added, change.names, strict=True):
                names[number] = name
        options = self.loss_options
        return {
            **self.get_config(),
            "num_classes": change.num_classes,
            "class_names": names,
            "removed": sorted(removed | set(change.removed.tolist())),
            "loss_options": options and options.changed(change),
        }

    def class_config(self) -> Config:
        """Of `get_config`."""
        names = self.class_names
        return {
            "class_names": None if names is None else _packed(names),
            "removed": [int(x) for x in self.removed],
        }


_FIXED = {"trainable": False, "is_rows": True}


def _set_rows(weight, values, ids, means, rows):
    """Rows of a weight, of those of the classes `ids` that have data."""
    is_here = (ids >= weight.first) & (ids < weight.first + weight.size)
    is_here &= means.counts > 0
    values[ids[is_here] - weight.first] = rows[is_here]


def _constant(values):
    return lambda shape, dtype=None: tf.constant(values)


def _packed(names):
    data = zlib.compress("\n".join(names).encode("utf-8"), 6)
    return {"packed": base64.b64encode(data).decode("ascii")}


def _names(given, num_classes):
    """List of str, one for each class; or None."""
    if given is None:
        return None
    if isinstance(given, Mapping):
        data = zlib.decompress(base64.b64decode(given["packed"]))
        given = data.decode("utf-8").split("\n")
    names = list(given)
    bad = [x for x in names if not _is_name(x)]
    if bad or len(names) != num_classes:
        raise ValueError(
            "`class_names` must be a name of one line for each class, without "
            "NULs, lone surrogates and byte order marks. "
            f"Received: {len(names)} names with num_classes={num_classes}"
            + (f", among them {bad[0]!r}" if bad else "")
        )
    return names


def _is_name(x):
    """Whether it is a str that `_packed` keeps as it is."""
    return isinstance(x, str) and is_one_line(x)


def _removed(given, num_classes):
    """Rising list of int."""
    removed = sorted({int(x) for x in given})
    if removed and not 0 <= removed[0] <= removed[-1] < num_classes:
        raise ValueError(
            "`removed` must be class ids in [0, num_classes). Received: "
            f"{[x for x in removed if not 0 <= x < num_classes][:5]} with "
            f"num_classes={num_classes}"
        )
    if len(removed) == num_classes:
        raise ValueError(
            "`removed` must leave a class. Received: all of num_classes="
            f"{num_classes}"
        )
    return removed
