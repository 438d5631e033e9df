"""Model selection: trials of fields and values of C on held-out texts."""

import warnings
from typing import Any
from typing import NamedTuple

import numpy as np

from tfxclass.types import Columns
from tfxclass_text import code_levels
from tfxclass_text import columns as columns_lib
from tfxclass_text import likelihood
from tfxclass_text import linear_tree
from tfxclass_text import training_cost
from tfxclass_text import trials
from tfxclass_text import tried_labels
from tfxclass_text.columns import take_both
from tfxclass_text.corpus import Corpus
from tfxclass_text.ensemble import Ensemble
from tfxclass_text.ensemble import ValidationSplit
from tfxclass_text.fields import Field
from tfxclass_text.fields import Vocabulary
from tfxclass_text.sparse_rows import LabeledRows
from tfxclass_text.sparse_rows import SparseRows
from tfxclass_text.term_table import TermTable


class Preset(NamedTuple):
    """What training may take.

    Attributes:
        epochs: int, passes over the texts.
        seconds: float, of CPU, up to which all labels see all rows.
        values_of_c: floats, that are tried; the first is the default.
        terms: int, the heaviest of a text, that are learned from where all
            take longer than `seconds`; None for all of them.
    """

    epochs: int
    seconds: float
    values_of_c: tuple[float, ...]
    terms: int | None = None


PRESETS = {
    "fast": Preset(4, 20.0, (0.5,), 96),
    "best": Preset(5, 45.0, (0.5, 0.1, 1.0)),
}
# Where a text's heaviest terms are learned from.
_LIGHT_EPOCHS = 3
_MAX_HELD = 2000
# Values of C beyond those, where the best is at their end.
_MIN_C, _MAX_C = 0.005, 8.0
# Passes over the texts.
_MAX_EPOCHS = 32
# Terms of a short text, without characters.
_FEW_TERMS = 10
# Characters have so many times as many terms, or more.
_CHARS_COST = 8
# Fewer rows cannot tell one choice from another.
_MIN_HELD = 20
# Among 26 labels the squared hinge is right more often (WordNet's kinds of
# nouns), among 200 no more (titles of one subject), among 3,007 less (jobs).
_MANY_LABELS = 100
# Scores of held-out texts and all labels, at most: 80 MB.
_MAX_SCORES = 20_000_000
# A smaller share of held-out texts with a known term is worth a warning.
_MIN_KNOWN = 0.5


class Embedded(NamedTuple):
    """What embeddings are learned from.

    Attributes:
        fields: list of `Field`.
        is_own: whether the classifiers read other fields.
        featured: `TermTable`, the texts.
        labels: `SparseRows`, their labels.
        num_labels: int.
    """

    fields: list[Field]
    is_own: bool
    featured: TermTable
    labels: SparseRows
    num_labels: int

    @property
    def vocabularies(self) -> list[Vocabulary]:
        return self.featured.vocabularies_of(self.fields)

    def data(self) -> LabeledRows:
        """Terms and labels of all texts."""
        rows = self.featured.join_held(self.fields, self.featured.parts)
        size = max(sum(len(v.hashes) for v in self.vocabularies), 1)
        return LabeledRows(rows, self.labels, size, self.num_labels)


class ModelSelection:
    """What is chosen on held-out texts, and the features that come of it."""

    def __init__(
        self,
        tagger: Any,
        corpus: Corpus,
        labels: SparseRows,
        single_label: bool,
        held: tuple[Columns, SparseRows] | None,
        linear_only: bool = False,
    ) -> None:
        self.tagger, self.corpus, self.labels = tagger, corpus, labels
        self.single_label, self.held = single_label, held
        self.c = 0.5 if tagger.c is None else tagger.c
        self.slope, self.intercept = trials.SLOPE, 0.0
        self.loss = "squared_hinge"
        self.threshold = 0.5
        self.share, self.parent_weight, self.report = 0.0, 0.0, list[Any]()
        # The parents of the tags, if they are codes.
        self.parents: Any = None
        if single_label:
            self.parents = code_levels.levels([str(x) for x in tagger.tags])
        self.thresholds: Any = None
        # Labels that all candidates are tried on, and the held-out texts that
        # judge them; whether there is time for trials that tell.
        self.some, self.judged, self.is_tried = None, None, True
        # Whether C and the number of passes are chosen.
        self.is_tuned = False
        # Groups of the label tree of the trial; 1 for none.
        self.num_groups = 1
        self.effort = PRESETS[tagger.effort]
        self.epochs = self.effort.epochs
        self.ensemble = Ensemble(tagger, single_label, self.report, linear_only)
        # What embeddings read, if it is not what the classifiers read.
        self.embedding_fields = None
        if tagger.fields is None and self.ensemble.wants_embeddings:
            self.embedding_fields = columns_lib.embedding_fields(corpus.sample)
        self.embedded = None

    def choose(self) -> tuple[list[Field], SparseRows, int, list[Vocabulary]]:
        """`(fields, rows, num_features, vocabularies)` of what is best."""
        self.tagger.say(
            f"reading {self.corpus.size:,} texts with "
            f"{len(self.tagger.tags):,} tags"
        )
        sets = self._candidates()
        read = [*sets, self.embedding_fields or []]
        every = list(dict.fromkeys(field for part in read for field in part))
        featured = TermTable(every, self.corpus, self._lighter)
        if not any(len(x.hashes) for x in featured.vocabularies_of(sets[0])):
            self.embedding_fields = None
        self._choose_loss(featured, sets)
        every_row, held, held_labels = self._parts(featured)
        if held is None:
            self._check_unjudged()
            self._say_cost(featured, sets)
            self.tagger.say("too few texts to hold some out for a test")
            return featured.join(sets[0])
        train, held, held_labels = self._limit(
            featured, sets, every_row, held, held_labels
        )
        self._say_cost(featured, sets, len(train), len(held_labels))
        self._check_parents(featured, sets[0])
        best = self._best_fields(sets, featured, train, held, held_labels)
        best = self._go_on(best, featured, train, held, held_labels)
        _, fields, self.c = best
        trial = self._stop_early(
            best[0], featured, fields, self.c, train, held, held_labels
        )
        _warn_of_unknown(featured.join_held(fields, held))
        self.share, self.parent_weight = trial.share, trial.parent_weight
        self._calibrate(trial)
        answers = trial.probabilities(
            self.slope, self.intercept, self.single_label
        )
        if self.ensemble.is_wanted:
            judged = self._judged(trial, featured, fields, every_row, held)
            answers = self.ensemble.choose(answers, judged)
        if self.ensemble.embedded is not None:
            self.embedded = self._embedded(featured, fields)
        self._say_result(answers, trial)
        self.threshold = trials.best_threshold(answers, trial.truth)
        self.thresholds = trials.tag_thresholds(
            answers, trial.truth, trial.labels, len(self.tagger.tags),
            self.threshold,
        )  # fmt: skip
        return featured.join(fields)

    def _say_cost(self, featured, sets, num_rows=0, num_held=0):
        """Tells what all phases take, before the first of them."""
        _, rows, num_features, _ = featured.join(sets[0])
        size = len(self.tagger.tags)
        data = LabeledRows(rows, self.labels, num_features, size)
        groups = 1
        if self.loss == "squared_hinge":
            groups = linear_tree.choose_groups(
                rows, size, self.epochs, self.effort.seconds
            )
        cost = training_cost.linear(data, groups, self.epochs, self.loss)
        if num_held:
            tried = training_cost.Trials(
                len(sets) if self.is_tried else 1,
                len(self._values_of_c()), self.is_tuned, num_rows,
                len(self.some), num_held, self.num_groups,
            )  # fmt: skip
            cost = cost.then(training_cost.of_trials(data, tried, self.loss))
        if num_held and self.ensemble.is_wanted:
            embedded = self._embedded(featured, sets[0]).data()
            plan = self.ensemble.plan(data, embedded, len(rows), len(self.some))
            cost = cost.then(
                training_cost.mixed_in(data, embedded, plan, num_held)
            )
        encoder = "" if self.tagger.encoder is None else ", without the encoder"
        self.tagger.say(f"this takes {cost}{encoder}")

    def _say_result(self, answers, trial):
        """Tells how often the best tag of a held-out text is right."""
        best = np.argmax(answers, axis=1)
        share = np.mean(trial.truth[np.arange(len(best)), best])
        size = len(self.tagger.tags)
        some = len(trial.labels)
        of_some = f", among {some:,} tags" if some < size else ""
        self.tagger.say(
            f"the best tag is right in {share:.0%} of {len(best):,} held-out "
            f"texts{of_some}"
        )

    def _candidates(self):
        """Lists of `Field` to choose from."""
        if self.tagger.fields is not None:
            return [list(self.tagger.fields)]
        # The least that a trial of all labels takes.
        least = linear_tree.seconds_of(
            _FEW_TERMS * len(self.labels), len(self.tagger.tags), trials.EPOCHS
        )
        most = tried_labels.MAX_SECONDS
        is_slow = self.tagger.effort == "fast" and _CHARS_COST * least > most
        sets = columns_lib.candidates(
            self.corpus.sample,
            # Embeddings know the characters of short columns.
            is_slow or self.ensemble.wants_embeddings,
            self.corpus.size,
        )
        return sets if self.single_label or least <= most else sets[:1]

    def _choose_loss(self, featured, sets):
        """The logistic loss for one of many labels a row, if there is time.

        It ranks the labels below the best one better. A label tree has the
        squared hinge: few rows of its groups are without a label.
        """
        size, most = len(self.tagger.tags), self.effort.seconds
        is_flat = all(
            linear_tree.seconds(featured.join(fields)[1], size, self.epochs)
            <= most
            for fields in sets
        )
        if self.single_label and size > _MANY_LABELS and is_flat:
            self.loss, self.slope = "logistic", 1.0

    def _check_parents(self, featured, fields):
        """Forgets beginnings of names that say nothing about the texts."""
        if self.parents is None or not len(self.parents):
            return
        _, rows, num_features, _ = featured.join(fields)
        size = len(self.tagger.tags)
        data = LabeledRows(rows, self.labels, num_features, size)
        vectors = linear_tree.label_vectors(data, self.tagger.seed)
        if not code_levels.are_related(vectors, self.parents):
            self.parents = None

    def _best_fields(self, sets, featured, *split):
        """`(trial, fields, c)` of the best fields; C is the first fields' best.

        Other fields than the first must gain something for what they cost.
        """
        first, *others = self._values_of_c()
        best = self._try(featured, sets[0], first, *split), sets[0], first
        if not self.is_tried:
            return best
        for c in others:
            trial = self._try(featured, sets[0], c, *split)
            if trial.gain(best[0]) > 0:
                best = trial, sets[0], c
        for fields in sets[1:]:
            trial = self._try(featured, fields, best[2], *split)
            if trial.gain(best[0]) >= trials.MIN_GAIN:
                best = trial, fields, best[2]
        return best

    def _check_unjudged(self):
        """Raises ValueError for what only held-out texts can weigh."""
        for name in ("encoder", "hidden_units", "embedding_dim"):
            if getattr(self.tagger, name):
                raise ValueError(
                    f"`{name}` needs texts that it is judged by: "
                    f"`validation_data`, or {10 * _MIN_HELD} texts. "
                    f"Received: {len(self.labels)} texts"
                )

    def _judged(self, trial, featured, fields, train, held):
        _, rows, num_features, _ = featured.join(fields)
        data = LabeledRows(
            rows, self.labels, num_features, len(self.tagger.tags)
        )
        embedded = self._embedded(featured, fields)
        return ValidationSplit(
            data.take(train), featured.join_held(fields, held),
            embedded.data().take(train),
            featured.join_held(embedded.fields, held), trial,
            len(self.labels), self._texts,
        )  # fmt: skip

    def _embedded(self, featured, fields):
        """`Embedded`, with classifiers that read `fields`."""
        own = self.embedding_fields
        return Embedded(
            own or fields, own is not None, featured, self.labels,
            len(self.tagger.tags),
        )  # fmt: skip

    def _lighter(self, rows):
        """`rows`; if there is no time, their heaviest terms in fewer passes."""
        effort, size = self.effort, len(self.tagger.tags)
        seconds = linear_tree.seconds(rows, size, effort.epochs)
        if effort.terms is None or seconds <= effort.seconds:
            return rows
        self.epochs = min(self.epochs, _LIGHT_EPOCHS)
        return rows.heaviest(effort.terms)

    def _go_on(self, best, featured, *split):
        """Other values of C while the best is at the end of those tried."""
        values = sorted(self.effort.values_of_c)
        if self.tagger.c is not None or not self.is_tuned:
            return best
        for factor, c in ((0.4, values[0]), (2.0, values[-1])):
            while best[2] == c and _MIN_C <= c * factor <= _MAX_C:
                c *= factor
                trial = self._try(featured, best[1], c, *split)
                if trial.gain(best[0]) > 0:
                    best = trial, best[1], c
        return best

    def _stop_early(self, trial, *split):
        """More passes over the texts while held-out ones gain, or fewer."""
        if not self.is_tuned:
            return trial
        passes = trials.EPOCHS
        for factor in (2, 0.5):
            while 2 <= passes * factor <= _MAX_EPOCHS:
                tried = int(passes * factor)
                other = self._try(*split, num_epochs=tried)
                if other.gain(trial) < trials.MIN_GAIN:
                    break
                trial, passes = other, tried
            if passes != trials.EPOCHS:
                break
        self.epochs = max(self.epochs * passes // trials.EPOCHS, 1)
        return trial

    def _parts(self, featured):
        """Training rows, and held-out features by field and labels."""
        size = len(self.labels)
        if self.held is not None:
            columns, labels = self.held
            return np.arange(size), featured.read(columns), labels
        train, held = self._split()
        if len(held) < _MIN_HELD:
            return train, None, None
        return train, featured.take(held), self.labels.take(held)

    def _limit(self, featured, sets, train, held, held_labels):
        """The parts that all candidates are compared on.

        With `effort="best"`, fields and C are not chosen if the classifiers
        will be a label tree: a tree of all labels tells what mixed-in scores
        are worth. Otherwise the slowest candidate decides how many labels all
        candidates are tried on. If rows have one label, the rows of other
        labels are left out. Among some of its labels, a row of several has few
        rivals: what is best there is not best among all. Then nothing is
        chosen, either.
        """
        size = len(self.tagger.tags)
        seconds = [
            linear_tree.seconds(featured.join(fields)[1], size, trials.EPOCHS)
            for fields in sets
        ]
        slowest = max(seconds)
        is_slow = slowest > tried_labels.MAX_SECONDS
        if is_slow and self.ensemble.is_wanted and self.loss != "logistic":
            # As the classifiers are trained in the end.
            self.num_groups = linear_tree.choose_groups(
                featured.join(sets[0])[1], size, self.epochs,
                self.effort.seconds,
            )  # fmt: skip
        if self.num_groups > 1:
            self.is_tried, self.some = False, np.arange(size)
            few = tried_labels.spread(len(held_labels), _MAX_SCORES // size)
            return train, *self._judge_by(few, held, held_labels)
        self.is_tried = self.single_label or not is_slow
        # The logistic loss depends little on C and passes: what is best for
        # held-out names of occupations is worse for titles of vacancies.
        self.is_tuned = (
            self.tagger.effort != "fast"
            and self.is_tried
            and self.loss != "logistic"
        )
        labels = self.labels.take(train)
        self.some = tried_labels.labels_to_try(
            labels, held_labels, size, self.single_label, slowest
        )
        judged = tried_labels.rows_of(held_labels, self.some)
        if len(self.some) == size or not self.single_label or not len(judged):
            return train, held, held_labels
        train = train[tried_labels.rows_of(labels, self.some)]
        return train, *self._judge_by(judged, held, held_labels)

    def _judge_by(self, judged, held, held_labels):
        self.judged = judged
        return [part.take(judged) for part in held], held_labels.take(judged)

    def _split(self):
        """`(training rows, held-out rows)` of the texts, int arrays."""
        size = len(self.labels)
        return trials.split(size, 0.1, _MAX_HELD, self.tagger.seed)

    def _values_of_c(self):
        if self.tagger.c is not None:
            return [self.tagger.c]
        every = self.effort.values_of_c
        return every if self.is_tuned else every[:1]

    def _try(
        self, featured, fields, c, train, held, held_labels,
        num_epochs=trials.EPOCHS,
    ):  # fmt: skip
        _, rows, num_features, _ = featured.join(fields)
        data = LabeledRows(
            rows, self.labels, num_features, len(self.tagger.tags)
        )
        trial = trials.run_trial(
            data, featured.join_held(fields, held), held_labels,
            self.single_label, c, num_epochs, self.parents, self.some,
            self.loss, train, self.num_groups,
        )  # fmt: skip
        shown = ", ".join(f"{'+'.join(f.columns)}:{f.kind}" for f in fields)
        self.report.append((shown, c, num_epochs, round(trial.score, 4)))
        self.tagger.detail(
            f"tried {shown}, C {c}, {num_epochs} passes: {trial.score:.4f}"
        )
        return trial

    def _calibrate(self, trial):
        if self.single_label:
            self.slope = likelihood.fit_slope(
                trial.margins, trial.truth, self.slope
            )
        else:
            fit = trials.fit_sigmoid(trial.margins, trial.truth, trial.gates)
            self.slope, self.intercept = fit

    def _texts(self):
        """Columns and labels: of the training texts, of the held-out texts."""
        columns = self.corpus.columns()
        if self.held is not None:
            learned, held = (columns, self.labels), self.held
        else:
            learned, held = (
                take_both((columns, self.labels), rows)
                for rows in self._split()
            )
        return learned, held if self.judged is None else take_both(
            held, self.judged
        )


def _warn_of_unknown(held):
    """Warns if too few held-out texts have a term of the training texts."""
    known = np.count_nonzero(np.diff(held.splits))
    if known < _MIN_KNOWN * len(held):
        warnings.warn(
            f"Only {known} of {len(held)} held-out texts have a term that the "
            "training texts have, too. The tagger can only guess for the "
            "others. Pass `fields` that read more, for example "
            '`Field("text", "chars", 1, 4)`.',
            stacklevel=2,
        )
