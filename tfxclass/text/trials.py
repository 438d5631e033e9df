"""The trials of a tagger: which fields and which C, on held-out texts."""

from typing import Any

import numpy as np

from tfxclass.text import choice
from tfxclass.text import columns as columns_lib
from tfxclass.text import fields as fields_lib
from tfxclass.text import neighbors
from tfxclass.text.fields import Field
from tfxclass.text.fields import Vocabulary
from tfxclass.text.sparse_rows import SparseRows
from tfxclass.text.sparse_rows import from_pairs
from tfxclass.types import Columns

EFFORTS = {
    # epochs, CPU seconds up to which all labels see all rows, values of C.
    "fast": (4, 10.0, (0.5,)),
    "best": (5, 90.0, (0.1, 0.5, 1.0)),
}
_MOST_HELD = 2000
# Passes over the texts.
_MOST_EPOCHS = 32
# Of the score, for what votes cost in an answer and in the model.
_LEAST_GAIN = 0.002
# Fewer rows cannot tell one choice from another.
_LEAST_HELD = 20


class Trials:
    """What is chosen on held-out texts, and the features that come of it."""

    def __init__(
        self,
        tagger: Any,
        columns: Columns,
        labels: SparseRows,
        one: bool,
        held: tuple[Columns, SparseRows] | None,
    ) -> None:
        self.tagger, self.columns, self.labels = tagger, columns, labels
        self.one, self.held = one, held
        self.c = 0.5 if tagger.c is None else tagger.c
        # Of margins of hinge losses, where nothing could be learned.
        self.slope, self.intercept, self.threshold = 3.0, 0.0, 0.5
        self.share, self.report = 0.0, []
        self.thresholds = None
        self.epochs = EFFORTS[tagger.effort][0]
        self.neighbors = tagger.neighbors or 0

    def choose(self) -> tuple[list[Field], SparseRows, int, list[Vocabulary]]:
        """`(fields, rows, num_features, vocabularies)` of what is best."""
        sets = columns_lib.candidates(self.columns)
        if self.tagger.fields is not None:
            sets = [self.tagger.fields]
        every = list(dict.fromkeys(field for part in sets for field in part))
        featured = Featured(every, self.columns, self.tagger)
        train, held, held_labels = self._parts(featured)
        if held is None:
            return featured.join(sets[0])
        best = None
        for fields in sets:
            for c in self._values_of_c(fields is sets[0], best):
                trial = self._try(featured, fields, c, train, held, held_labels)
                if best is None or trial.score > best[0].score:
                    best = trial, fields, c
        _, fields, self.c = best
        split = featured, fields, self.c, train, held, held_labels
        trial = self._stop_early(best[0], *split)
        self.share = trial.share
        self._calibrate(trial)
        answers = self._probabilities(trial)
        answers = self._let_vote(answers, trial, *split)
        self.threshold = choice.best_threshold(answers, trial.truth)
        self.thresholds = choice.tag_thresholds(
            answers, trial.truth, trial.labels, len(self.tagger.tags),
            self.threshold,
        )  # fmt: skip
        return featured.join(fields)

    def _stop_early(self, trial, *split):
        """More passes over the texts while held-out ones gain, or fewer."""
        if self.tagger.effort == "fast":
            return trial
        passes = choice.EPOCHS
        for factor in (2, 0.5):
            while 2 <= passes * factor <= _MOST_EPOCHS:
                tried = int(passes * factor)
                other = self._try(*split, num_epochs=tried)
                if other.score <= trial.score:
                    break
                trial, passes = other, tried
            if passes != choice.EPOCHS:
                break
        self.epochs = max(self.epochs * passes // choice.EPOCHS, 1)
        return trial

    def _parts(self, featured):
        """Training rows, and held-out features by field and labels."""
        size = len(self.labels)
        if self.held is not None:
            columns, labels = self.held
            return np.arange(size), featured.read(columns), labels
        train, held = choice.split(size, 0.1, _MOST_HELD, self.tagger.seed)
        if len(held) < _LEAST_HELD:
            return train, None, None
        return train, featured.take(held), self.labels.take(held)

    def _values_of_c(self, is_first, best):
        if self.tagger.c is not None:
            return [self.tagger.c]
        values = EFFORTS[self.tagger.effort][2]
        # Other fields are tried with what was best before.
        return values if is_first else [best[2]]

    def _try(
        self, featured, fields, c, train, held, held_labels,
        num_epochs=choice.EPOCHS,
    ):  # fmt: skip
        _, rows, num_features, _ = featured.join(fields)
        trial = choice.try_out(
            rows.take(train), self.labels.take(train),
            featured.join_held(fields, held), held_labels, num_features,
            len(self.tagger.tags), self.one, c, num_epochs,
        )  # fmt: skip
        shown = ", ".join(f"{'+'.join(f.columns)}:{f.kind}" for f in fields)
        self.report.append((shown, c, num_epochs, round(trial.score, 4)))
        self.tagger.say(
            f"tried {shown}, C {c}, {num_epochs} passes: {trial.score:.4f}"
        )
        return trial

    def _calibrate(self, trial):
        if self.one:
            self.slope = choice.fit_temperature(trial.margins, trial.truth)
        else:
            fit = choice.fit_sigmoid(trial.margins, trial.truth)
            self.slope, self.intercept = fit

    def _probabilities(self, trial):
        """float32 `[held-out rows, labels]`."""
        scaled = self.slope * trial.margins + self.intercept
        if not self.one:
            return 1 / (1 + np.exp(-scaled))
        odds = np.exp(scaled - scaled.max(axis=1, keepdims=True))
        return odds / odds.sum(axis=1, keepdims=True)

    def _let_vote(self, answers, trial, featured, fields, c, train, held, _):
        """`answers` with neighbours' votes, if they are wanted and help."""
        wanted = self.tagger.neighbors
        if wanted == 0 or (wanted is None and self.tagger.effort == "fast"):
            return answers
        _, rows, num_features, _ = featured.join(fields)
        layer = neighbors.make(
            rows.take(train), self.labels.take(train), num_features,
            len(self.tagger.tags), wanted or neighbors.NEIGHBORS,
        )  # fmt: skip
        votes = neighbors.votes_of(
            layer, featured.join_held(fields, held), trial.labels
        )
        mixed = (1 - layer.share) * answers + layer.share * votes
        measure = choice.average_precision
        if self.one:
            measure = choice.reciprocal_rank
        before, after = (measure(x, trial.truth) for x in (answers, mixed))
        self.report.append(("neighbours", c, 0, round(after, 4)))
        self.tagger.say(f"neighbours' votes: {before:.4f} to {after:.4f}")
        if wanted is None and after < before + _LEAST_GAIN:
            return answers
        self.neighbors = layer.num_neighbors
        return mixed


class Featured:
    """Features of the texts, by field; joined as they are asked for."""

    def __init__(
        self, fields: list[Field], columns: Columns, tagger: Any
    ) -> None:
        self.fields = fields
        self.size = columns_lib.size(columns)
        tagger.say(f"reading {self.size} texts")
        read = fields_lib.read_terms(columns, fields)
        self.vocabularies = [
            fields_lib.learn(field, self.size, hashes)
            for field, (_, hashes, _) in zip(fields, read)
        ]
        self.parts = self._weigh(read, self.size)

    def _weigh(self, read, size):
        return [
            from_pairs(size, *fields_lib.weigh(*of_field, *terms, size))
            for *of_field, terms in zip(self.fields, self.vocabularies, read)
        ]

    def read(self, columns: Columns) -> list[SparseRows]:
        """`SparseRows` of other texts, by field."""
        read = fields_lib.read_terms(columns, self.fields)
        return self._weigh(read, columns_lib.size(columns))

    def take(self, rows: np.ndarray) -> list[SparseRows]:
        """`SparseRows` of some of the texts, by field."""
        return [part.take(rows) for part in self.parts]

    def join(
        self, fields: list[Field]
    ) -> tuple[list[Field], SparseRows, int, list[Vocabulary]]:
        """`(fields, rows, num_features, vocabularies)`."""
        vocabularies = [self.vocabularies[i] for i in self._numbers(fields)]
        count = max(sum(len(v.hashes) for v in vocabularies), 1)
        return fields, self.join_held(fields, self.parts), count, vocabularies

    def join_held(
        self, fields: list[Field], parts: list[SparseRows]
    ) -> SparseRows:
        """One `SparseRows` of parts by field, of the given fields."""
        first, flat = 0, []
        for i in self._numbers(fields):
            part = parts[i]
            flat.append((part.row_ids(), part.ids + first, part.values))
            first += len(self.vocabularies[i].hashes)
        rows, ids, values = (np.concatenate(x) for x in zip(*flat))
        return from_pairs(len(parts[0]), rows, ids, values)

    def _numbers(self, fields):
        return [self.fields.index(field) for field in fields]
