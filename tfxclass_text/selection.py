"""What a tagger learns: a loop over recipes, and what is mixed in."""

import dataclasses
import itertools
import warnings
from collections.abc import Iterator
from typing import Any
from typing import NamedTuple

import numpy as np

from tfxclass.types import Columns
from tfxclass_text import embeddings
from tfxclass_text import encoder as encoder_lib
from tfxclass_text import growth
from tfxclass_text import linear_tree
from tfxclass_text import neighbors
from tfxclass_text import recipes
from tfxclass_text import scoring
from tfxclass_text import sparse_linear
from tfxclass_text import tagger_model
from tfxclass_text.columns import take
from tfxclass_text.corpus import Corpus
from tfxclass_text.fields import Field
from tfxclass_text.growth import Learned
from tfxclass_text.recipes import Preset
from tfxclass_text.recipes import Recipe
from tfxclass_text.sparse_linear import SparseLinear
from tfxclass_text.sparse_rows import LabeledRows
from tfxclass_text.sparse_rows import SparseRows
from tfxclass_text.tagger_model import Layers
from tfxclass_text.term_table import TermTable
from tfxclass_text.text_features import TextFeatures

# Texts that are held out at most, their share, and scores of them: 80 MB.
_MAX_HELD, _HELD_SHARE, _MAX_SCORES = 2000, 0.1, 20_000_000
# Fewer of the texts cannot tell one choice from another.
_MIN_HELD = 20
# What was learned without the held-out texts is kept if these are fewer.
_FEW_HELD = 0.05
# A smaller share of held-out texts with a known term is worth a warning.
_MIN_KNOWN = 0.5
# Seconds up to which other recipes than the first are tried; and of a pass, by
# a sample whose rare terms count, from which they hardly can be.
_MAX_SECONDS, _PASS = 6.0, 12.0
# Texts that are answered at a time.
_ANSWERED = 64
# Seconds to score a held-out text and label, and to build and trace the
# layers (measured). GB of a process that has imported TensorFlow.
_SCORE, _BUILD, _PROCESS = 3e-7, 1.0, 0.7
#: Slope of the margins of a label tree's groups, for one of 1 of the labels: a
#: group tells less of a text than a label (best of 0.1 to 1.7 on held-out
#: titles of libraries).
GROUP_SHARE = 0.4


class _Trial(NamedTuple):
    """What a recipe gives for held-out texts, the margins of labels too."""

    recipe: Recipe
    linear: SparseLinear
    margins: np.ndarray
    answers: np.ndarray
    scores: np.ndarray


@dataclasses.dataclass(frozen=True)
class _Task:
    """What all trials share."""

    tagger: Any
    corpus: Corpus
    labels: SparseRows
    table: TermTable
    #: What embeddings read; none where they read what the classifiers read.
    own_fields: list[Field]
    #: Numbers of the texts that trials learn from.
    train: np.ndarray
    #: Terms of the held-out texts by field, and their labels. The columns are
    #: there if an encoder reads them.
    held: dict[Field, SparseRows]
    held_labels: SparseRows
    held_columns: Columns
    #: bool `[held-out texts, labels]`.
    truth: np.ndarray
    #: Whether nothing is mixed in.
    linear_only: bool
    #: What was tried, and its score.
    tried: list[Any] = dataclasses.field(default_factory=list)
    #: What is mixed in: arguments of `Layers`, and passes of training.
    mixed: dict[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def preset(self) -> Preset:
        return recipes.PRESETS[self.tagger.effort]

    @property
    def num_labels(self) -> int:
        return len(self.tagger.tags)

    @property
    def single_label(self) -> bool:
        """Whether each text has one label."""
        return bool(np.all(np.diff(self.labels.splits) == 1))

    @property
    def activation(self) -> str:
        return "softmax" if self.single_label else "sigmoid"

    @property
    def is_final(self) -> bool:
        """Whether trials learn from nearly all texts."""
        return len(self.train) >= (1 - _FEW_HELD) * self.corpus.size

    def fields_of(self, recipe: Recipe) -> list[Field]:
        """The classifiers' fields, then the fields of embeddings alone."""
        return [*recipe.fields, *self.own_fields]

    def linear_data(self, recipe: Recipe) -> LabeledRows:
        """What classifiers learn from; ids of embeddings' own terms follow."""
        rows = self.table.join(recipe.fields, most=recipe.terms)
        return self._labeled(rows, self.fields_of(recipe))

    def embedding_data(self, recipe: Recipe) -> tuple[LabeledRows, int]:
        """What embeddings learn from, and the id of their first term."""
        fields = tuple(self.own_fields) or recipe.fields
        first = self.table.size_of(recipe.fields) if self.own_fields else 0
        rows = self.table.join(fields, most=embeddings.MAX_TERMS)
        return self._labeled(rows, fields), first

    def _labeled(self, rows, fields):
        size = max(self.table.size_of(fields), 1)
        return LabeledRows(rows, self.labels, size, self.num_labels)

    def held_rows(self, recipe: Recipe) -> SparseRows:
        """All terms of the held-out texts."""
        return self.table.join(self.fields_of(recipe), self.held)

    def held_parts(self, recipe: Recipe) -> Iterator[Any]:
        """Yields `(ids, values)` of the next held-out texts."""
        rows = self.held_rows(recipe)
        for begin in range(0, len(rows), _ANSWERED):
            end = min(begin + _ANSWERED, len(rows))
            yield rows.take(np.arange(begin, end)).padded()

    def scores(self, answers: np.ndarray) -> np.ndarray:
        """How good the answers for the held-out texts are."""
        if self.single_label:
            return scoring.reciprocal_ranks(answers, self.truth)
        return scoring.row_precisions(answers, self.truth)


def learn(
    tagger: Any,
    corpus: Corpus,
    held: tuple[Columns, SparseRows] | None = None,
    linear_only: bool = False,
) -> Learned:
    """Learns from the texts of a corpus.

    Each recipe is tried on the same held-out texts. It takes the place of the
    best one so far if they gain by it. `held` are columns and labels of
    held-out texts; by default these are some of the corpus. With `linear_only`,
    nothing is mixed in.
    """
    names = f" and {corpus.num_names:,} names" * bool(corpus.num_names)
    count = f"{corpus.num_texts:,} texts{names}"
    tagger.say(f"reading {count} with {len(tagger.tags):,} tags")
    labels = corpus.labels()
    alone = bool(corpus.num_names) or _embeds_alone(tagger, labels, held)
    wanted = tagger.embedding_dim
    if wanted is None:
        wanted = tagger.effort != "fast"
    has_embeddings = alone or bool(wanted and not linear_only)
    sets, own_fields = _fields(tagger, corpus, alone, has_embeddings)
    task = _task(tagger, corpus, labels, held, sets, own_fields, linear_only)
    recipe, changes = _first(task, sets, alone)
    if not task.table.size_of(sets[0]):
        task = dataclasses.replace(task, own_fields=[])
    plan = None
    if has_embeddings and (len(task.truth) or alone):
        plan = _embedding_plan(task, recipe, alone)
    _say_cost(task, recipe, 1 + len(changes), plan)
    if not len(task.truth):
        return _unjudged(task, recipe, plan)
    if alone:
        linear = sparse_linear.empty(task.linear_data(recipe))
        # The answer of no classifier.
        answers = np.full(task.truth.shape, 1 / task.num_labels, np.float32)
    else:
        best = _best_trial(task, recipe, changes)
        recipe, linear, answers = best.recipe, best.linear, _votes(task, best)
    _warn_of_unknown(task.held_rows(recipe))
    if plan is not None:
        plan = _embedding_plan(task, recipe, alone)
        answers = _embeddings(task, recipe, plan, answers, alone)
    answers = _encoder(task, answers)
    _say_result(task, answers)
    if not (alone or task.is_final):
        tagger.detail(f"training {len(tagger.tags)} tags on all texts")
        slope, intercept = float(linear.slope), linear.intercept
        linear = _linear(task, recipe)
        _set_slope(linear, slope, intercept)
    return _learned(task, recipe, linear, answers)


def _embeds_alone(tagger, labels, held):
    """Whether nothing but embeddings tells the tags.

    One of many tags: linear classifiers and votes add little to embeddings
    there, and take most of the time. A number of neighbors or a C is a wish for
    them.
    """
    if len(tagger.tags) <= recipes.MANY_LABELS or tagger.embedding_dim == 0:
        return False
    if tagger.c is not None or tagger.neighbors:
        return False
    if held is None and len(labels) * _HELD_SHARE < _MIN_HELD:
        return False
    return bool(np.all(np.diff(labels.splits) == 1))


def _first(task, sets, alone):
    """The first recipe, and what is tried in the best one so far."""
    tagger, fields = task.tagger, tuple(sets[0])
    if alone:
        return Recipe(fields, 0.0, recipes.EMBEDDINGS_ALONE, 0, 1, None), []
    recipe = recipes.first(
        task.preset, sets[0], task.table.num_entries(fields), task.num_labels
    )
    if tagger.c is not None:
        recipe = recipe._replace(c=tagger.c)
    slowest = max(map(task.table.num_entries, sets))
    seconds = linear_tree.seconds(slowest, task.num_labels, recipe.passes)
    if not len(task.truth) or seconds > _MAX_SECONDS:
        return recipe, []
    changes = []
    if tagger.c is None:
        changes += [{"c": c} for c in task.preset.values_of_c[1:]]
    return recipe, changes + [{"fields": tuple(x)} for x in sets[1:]]


def _best_trial(task, recipe, changes):
    """The first recipe, with each change that held-out texts gain by."""
    best = _try(task, recipe)
    for change in changes:
        trial = _try(task, best.recipe._replace(**change))
        if scoring.clear_gain(trial.scores, best.scores) >= scoring.MIN_GAIN:
            best = trial
    return _calibrated(task, best)


def _unjudged(task, recipe, plan):
    """What is learned from too few texts to hold some out.

    There is a plan for embeddings alone.
    """
    tagger, size = task.tagger, task.corpus.size
    for name in ("encoder", "embedding_dim"):
        if getattr(tagger, name):
            raise ValueError(
                f"`{name}` needs texts that it is judged by: "
                f"`validation_data`, or {10 * _MIN_HELD} texts. "
                f"Received: {size} texts"
            )
    tagger.say("too few texts to hold some out for a test")
    if plan is not None:
        layer = _trained_embeddings(task, recipe, plan, None)
        mix = tagger_model.MixedScores("softmax", name=tagger_model.EMBEDDED)
        mix.factors.assign([0.0, 1.0, 0.0])
        _take_embeddings(task, plan, layer, mix)
        linear = sparse_linear.empty(task.linear_data(recipe))
        return _learned(task, recipe, linear, None)
    linear = _linear(task, recipe)
    if tagger.neighbors and not task.linear_only:
        task.mixed["votes"] = neighbors.build_neighbor_votes(
            task.linear_data(recipe), int(tagger.neighbors)
        )
    return _learned(task, recipe, linear, None)


def _fields(tagger, corpus, alone, has_embeddings):
    """Lists of fields to choose from, and the embeddings' own fields."""
    if tagger.fields is not None:
        return [list(tagger.fields)], []
    own = None
    if has_embeddings:
        own = recipes.embedding_fields(corpus.sample)
    # Embeddings know the characters of short columns.
    sets = recipes.candidates(corpus.sample, corpus.size, has_embeddings)
    if not alone:
        # Terms that no trial has time for are not even read.
        sizes = corpus.sample, corpus.size, len(tagger.tags)
        fast = [x for x in sets[1:] if recipes.pass_seconds(x, *sizes) < _PASS]
        return [sets[0], *fast], own or []
    fields = own or sets[0]
    if corpus.num_names:
        # A term that one name has tells it from all others.
        fields = [dataclasses.replace(x, min_count=1) for x in fields]
    return [fields], []


def _task(tagger, corpus, labels, given, sets, own_fields, linear_only):
    every = list(dict.fromkeys(itertools.chain(*sets, own_fields)))
    table = TermTable(every, corpus)
    size, num_labels = corpus.size, len(tagger.tags)
    most = min(_MAX_HELD, max(_MAX_SCORES // num_labels, _MIN_HELD))
    if given is not None:
        # As many as can be scored, as far apart as can be.
        count = min(len(given[1]), most)
        some = np.linspace(0, len(given[1]) - 1, count).astype(np.int64)
        columns, held_labels = take(given[0], some), given[1].take(some)
        train, held = np.arange(size), table.read(columns)
    else:
        # Names are learned from: nobody asks for them.
        order = np.random.default_rng(tagger.seed).permutation(corpus.num_texts)
        count = min(int(len(order) * _HELD_SHARE), most)
        count = 0 if count < _MIN_HELD else count
        train, some = np.sort(order[count:]), np.sort(order[:count])
        train = np.append(train, np.arange(len(order), size))
        held_labels, held = labels.take(some), table.take(some)
        columns = {}
        if tagger.encoder is not None:
            columns = take(corpus.columns(), some)
    truth = np.zeros((count, num_labels), bool)
    truth[held_labels.row_ids(), held_labels.ids] = True
    return _Task(
        tagger, corpus, labels, table, own_fields, train, held, held_labels,
        columns, truth, linear_only,
    )  # fmt: skip


def _linear(task, recipe, among=None):
    """A `SparseLinear` that learned from all texts, or from `among`."""
    tagger, data = task.tagger, task.linear_data(recipe)
    *found, group_of = linear_tree.train_linear(
        data, recipe.groups, recipe.c, recipe.passes, seed=tagger.seed,
        among=among,
    )  # fmt: skip
    layer = sparse_linear.from_weights(
        found.pop(),  # which is freed as soon as the layer has copied it
        data.num_labels, task.activation, group_of, name="tag-scores",
    )  # fmt: skip
    _set_slope(layer, scoring.SLOPE, 0.0)
    return layer


def _set_slope(layer, slope, intercept):
    layer.slope.assign(slope)
    layer.intercept.assign(intercept)
    layer.group_slope = GROUP_SHARE * slope


def _try(task, recipe):
    linear = _linear(task, recipe, task.train)
    margins, answers = _of_linear(task, recipe, linear)
    scores = task.scores(answers)
    shown = ", ".join(f"{'+'.join(f.columns)}:{f.kind}" for f in recipe.fields)
    score = round(float(scores.mean()) if len(scores) else 0.0, 4)
    task.tried.append((shown, recipe.c, recipe.passes, score))
    task.tagger.detail(
        f"tried {shown}, C {recipe.c}, {recipe.passes} passes: {score:.4f}"
    )
    return _Trial(recipe, linear, margins, answers, scores)


def _of_linear(task, recipe, linear):
    """Margins of the labels, and the outputs of the layer."""
    margins, answers = [], []
    for part in task.held_parts(recipe):
        found = linear.margins(*part)
        margins.append(found.numpy()[:, : linear.num_labels])
        answers.append(linear.activated(found).numpy())
    return np.concatenate(margins), np.concatenate(answers)


def _calibrated(task, trial):
    """The trial with the likeliest slope and intercept."""
    linear, truth = trial.linear, task.truth
    if task.single_label:
        slope = scoring.fit_slope(trial.margins, truth, float(linear.slope))
        _set_slope(linear, slope, 0.0)
    else:
        # Of nothing to learn from, the slope of a hinge loss.
        slope, intercept = scoring.fit_sigmoid(
            [scoring.SLOPE * trial.margins], truth, [trial.answers]
        )
        _set_slope(linear, max(scoring.SLOPE * slope, 1e-3), intercept)
    _, answers = _of_linear(task, trial.recipe, linear)
    return trial._replace(answers=answers)


# Each of the next three returns the answers with its scores mixed in, and adds
# its layers to `task.mixed`, if held-out texts gain by it.
def _votes(task, trial):
    wanted, data = task.tagger.neighbors, task.linear_data(trial.recipe)
    is_tried = wanted is None and task.tagger.effort != "fast"
    count = neighbors.NEIGHBORS if is_tried else wanted
    if not count or task.linear_only:
        return trial.answers
    layer = neighbors.build_neighbor_votes(data.take(task.train), int(count))
    parts = task.held_parts(trial.recipe)
    votes = np.concatenate([layer.votes(*part) for part in parts])
    mixes = [(1 - x) * trial.answers + x * votes for x in neighbors.SHARES]
    best = int(np.argmax([task.scores(x).mean() for x in mixes]))
    if not _gains(task, trial.answers, mixes[best], "neighbors", wanted):
        return trial.answers
    task.mixed["votes"] = neighbors.build_neighbor_votes(
        data, int(count), neighbors.SHARES[best]
    )
    return mixes[best]


def _embedding_plan(task, recipe, alone):
    data, _ = task.embedding_data(recipe)
    preset, wanted = task.preset, task.tagger.embedding_dim
    return embeddings.plan(
        data, preset.units, preset.embedding_passes, wanted, is_needed=alone
    )


def _embeddings(task, recipe, plan, answers, alone):
    if not plan.units:
        return answers
    layer = _trained_embeddings(task, recipe, plan, task.train)
    parts = task.held_parts(recipe)
    logits = np.concatenate([layer(*part) for part in parts])
    factors = None
    if alone:
        factors = [0.0, scoring.fit_slope(logits, task.truth, 1.0), 0.0]
    mix, after = _mix(task, answers, logits, tagger_model.EMBEDDED, factors)
    wanted = alone or task.tagger.embedding_dim
    if not _gains(task, answers, after, "embeddings", wanted):
        return answers
    if not task.is_final:
        layer = _trained_embeddings(task, recipe, plan, None)
    _take_embeddings(task, plan, layer, mix)
    return after


def _take_embeddings(task, plan, layer, mix):
    task.mixed.update(
        embedding=layer, mixed_embedding=mix, embedding_passes=plan.passes
    )


def _trained_embeddings(task, recipe, plan, among):
    # Anew: going on from a trial's, with fewer passes, lost up to a point.
    tagger, (data, first) = task.tagger, task.embedding_data(recipe)
    return embeddings.train(
        data, plan.units, plan.passes, tagger.seed, tagger.detail, first, among,
        by_names=_known_by_names(task, among),
    )  # fmt: skip


def _known_by_names(task, among):
    """Labels whose texts among `among` are names, bool; None without names."""
    if not task.corpus.num_names:
        return None
    count = task.corpus.num_texts
    texts = np.arange(count) if among is None else among[among < count]
    labels = task.labels.take(texts)
    return np.bincount(labels.ids, minlength=task.num_labels) == 0


def _encoder(task, answers):
    encoder, tagger = task.tagger.encoder, task.tagger
    if encoder is None:
        return answers
    learned = take(task.corpus.columns(), task.train)
    held = task.held_columns, task.held_labels
    layer, passes = encoder_lib.train(
        encoder, tagger.learning_rate,
        (learned, task.labels.take(task.train)), held, task.num_labels,
        task.single_label, tagger.seed, tagger.detail,
    )  # fmt: skip
    logits = encoder_lib.logits_of(encoder, layer, held)
    mix, after = _mix(task, answers, logits, tagger_model.ENCODED)
    if not _gains(task, answers, after, "encoder", None):
        return answers
    task.mixed.update(
        encoder=lambda columns: layer(encoder_lib.features(encoder, columns)),
        mixed_encoder=mix,
        encoder_passes=passes,
    )
    return after


def _mix(task, answers, logits, name, factors=None):
    """A `MixedScores` of answers and logits, and what it gives."""
    if factors is None:
        factors = tagger_model.fit_factors(
            answers, logits, task.truth, task.single_label
        )
    layer = tagger_model.MixedScores(task.activation, name=name)
    layer.factors.assign(factors)
    return layer, layer(answers, logits).numpy()


def _gains(task, before, after, name, wanted):
    """Whether held-out texts gain enough, or it is wanted anyway."""
    scores = task.scores(after), task.scores(before)
    means = [float(x.mean()) for x in scores]
    task.tried.append((name, round(means[0], 4)))
    task.tagger.detail(f"{name}: {means[1]:.4f} to {means[0]:.4f}")
    return bool(wanted) or scoring.clear_gain(*scores) >= scoring.MIN_GAIN


def _learned(task, recipe, linear, answers):
    mixed = task.mixed
    votes, embedding = mixed.get("votes"), mixed.get("embedding")
    fields = task.fields_of(recipe) if embedding else list(recipe.fields)
    threshold, thresholds = 0.5, np.full(task.num_labels, 0.5, np.float32)
    if answers is not None:
        threshold = scoring.best_threshold(answers, task.truth)
        thresholds = scoring.tag_thresholds(answers, task.truth)
    data = task.linear_data(recipe)
    summary = {
        "loss": recipe.loss,
        "c": recipe.c,
        "passes": recipe.passes,
        "neighbors": votes.num_neighbors if votes else 0,
        "vote_share": round(votes.share, 3) if votes else 0.0,
        "embedding_dim": embedding.units if embedding else 0,
        "embedding_passes": mixed.pop("embedding_passes", 0),
        "encoder_passes": mixed.pop("encoder_passes", 0),
        "groups": recipe.groups,
        "threshold": threshold,
        "tried": task.tried,
        "one_tag_a_text": task.single_label,
        "texts": task.corpus.size,
        "fields": [str(field) for field in fields],
        "terms_a_text": round(len(data.rows.ids) / task.corpus.size, 1),
    }
    vocabularies = [task.table.vocabularies[field] for field in fields]
    features = TextFeatures.from_vocabularies(
        fields, vocabularies, name="text-features"
    )
    none = np.zeros(0, np.int64)
    of_texts = task.labels.take(np.arange(task.corpus.num_texts))
    counts = np.bincount(of_texts.ids, minlength=task.num_labels)
    memory = growth.remember(
        None, data, task.tagger.seed, 0, [(none, none)] * len(fields)
    )
    layers = Layers(features, linear, **mixed)
    return Learned(
        task.tagger.tags, layers, thresholds, counts, memory, summary
    )


def _say_cost(task, recipe, num_trials, plan):
    """Tells what all phases take, before the first of them."""
    seconds, gigabytes = _BUILD, _PROCESS
    if recipe.passes:
        of_one, of_classifiers = linear_tree.cost(
            task.linear_data(recipe), recipe.groups, recipe.passes
        )
        seconds += (num_trials + (not task.is_final)) * of_one
        seconds += _SCORE * task.truth.size * (num_trials + 1)
        gigabytes += of_classifiers
    if plan is not None:
        seconds += (1 if task.is_final else 2) * plan.seconds
        gigabytes += plan.gigabytes
    without = "" if task.tagger.encoder is None else ", without the encoder"
    told = f"{seconds:.0f} CPU seconds and {gigabytes:.1f} GB{without}"
    task.tagger.say(f"this takes about {told}")


def _say_result(task, answers):
    """Tells how often the best tag of a held-out text is right."""
    best = np.argmax(answers, axis=1)
    share = np.mean(task.truth[np.arange(len(best)), best])
    told = f"{share:.0%} of {len(best):,} held-out texts"
    task.tagger.say(f"the best tag is right in {told}")


def _warn_of_unknown(held):
    """Warns if too few held-out texts have a term of the training texts."""
    known = np.count_nonzero(np.diff(held.splits))
    if known < _MIN_KNOWN * len(held):
        warnings.warn(
            f"Only {known} of {len(held)} held-out texts have a term that the "
            "training texts have, too. The tagger can only guess for the "
            "others. Pass `fields` that read more, for example "
            '`Field("text", "chars", 1, 4)`.',
            stacklevel=5,
        )
