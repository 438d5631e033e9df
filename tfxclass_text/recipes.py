"""How linear classifiers are trained, and which terms of texts are read."""

import dataclasses
import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from tfxclass.types import Columns
from tfxclass_text import linear_tree
from tfxclass_text import terms
from tfxclass_text.fields import Field
from tfxclass_text.fields import read_terms

# Words of a text on average, up to which word order is read, too.
_SHORT = 40
# Texts of a column, and bytes of a text, that tell what its words are like.
_SAMPLE, _MAX_BYTES = 1000, 2000
# Scripts that write words without spaces, or with their particles (Korean):
# Thai, Lao, Tibetan, Burmese, Khmer, Chinese, Japanese, Hangul.
_UNSPACED = re.compile(
    "[\u0e00-\u0fff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff\u3040-\u30ff"
    "\u3130-\u318f\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff"
    "\uff66-\uff9f\U00020000-\U0003ffff]"
)
# Spaces do not part words if more than this share of the letters is of such
# scripts, or if words have more letters than this on average.
_UNSPACED_SHARE, _LONG_WORD = 0.1, 15
# Fewer texts have none that are held out to choose on.
_FEW_TEXTS = 200
# Words of a text on average, up to which they are few.
_FEW_WORDS = 3


class Recipe(NamedTuple):
    """A way to train the linear classifiers, and what they read."""

    fields: tuple[Field, ...]
    #: Weight of the losses of a squared hinge.
    c: float
    loss: str
    #: Over the texts.
    passes: int
    #: Of the label tree; 1 without.
    groups: int
    #: The heaviest of a text, that are learned from; None for all.
    terms: int | None


class Preset(NamedTuple):
    """What training may take."""

    passes: int
    #: Of CPU, up to which all labels see all texts.
    seconds: float
    #: What is tried; the first is the default.
    values_of_c: tuple[float, ...]
    #: Length of an embedding, and passes that train it.
    units: int
    embedding_passes: int
    #: Of a `Recipe` where all terms take longer than `seconds`.
    terms: int | None = None


PRESETS = {
    "fast": Preset(4, 20.0, (0.5,), 128, 4, 96),
    "best": Preset(5, 45.0, (0.5, 0.1, 1.0), 256, 6),
}
# Passes where only the heaviest terms are learned from.
_LIGHT_PASSES = 3
#: With more labels than these, one a text, embeddings alone tell them.
MANY_LABELS = 100
#: The loss of linear classifiers.
SQUARED_HINGE = "squared_hinge"
#: The loss of a tagger without linear classifiers.
EMBEDDINGS_ALONE = "softmax of cosines"


def first(
    preset: Preset, fields: Sequence[Field], num_entries: int, num_labels: int
) -> Recipe:
    """The recipe that others are compared with, of texts with so many terms."""
    seconds = linear_tree.seconds(num_entries, num_labels, preset.passes)
    is_slow = seconds > preset.seconds
    passes, terms = preset.passes, None
    if is_slow and preset.terms is not None:
        passes, terms = min(passes, _LIGHT_PASSES), preset.terms
    groups = linear_tree.num_groups(num_labels) if is_slow else 1
    c = preset.values_of_c[0]
    return Recipe(tuple(fields), c, SQUARED_HINGE, passes, groups, terms)


def candidates(
    columns: Columns, num_texts: int, quick: bool = False
) -> list[list[Field]]:
    """Lists of `Field` to choose from, of columns of all texts or of some.

    The first list is used if there are too few texts to choose. It has
    characters of the columns whose words are not parted by spaces, and no words
    of these. Characters are an alternative where all columns are short, or a
    column has few words. So are terms of each of several columns alone; words
    of short columns always have them. With `quick`, more runs of characters are
    left out, unless a column has few words.
    """
    short = [name for name, texts in columns.items() if _is_short(texts)]
    words = _word_fields(columns, short, num_texts)
    kinds = {name: _kind(texts) for name, texts in columns.items()}
    unspaced = [name for name in columns if kinds[name] == "unspaced"]
    if unspaced:
        # A whole text that is one word tells nothing, and takes its share.
        rest = {x: texts for x, texts in columns.items() if x not in unspaced}
        others = _word_fields(rest, [x for x in short if x in rest], num_texts)
        # A term of one text has its share there, and none in new texts.
        pooled = [*others, Field(unspaced, "chars", 1, 3)]
        sets = _with_own(pooled, unspaced, "chars", 1, 3)
        if num_texts < _FEW_TEXTS:
            # They cost little, and a column that misleads costs much.
            sets = sets[::-1]
        seen_twice = [
            dataclasses.replace(field, min_count=max(field.min_count, 2))
            for field in words
        ]
        every = [*seen_twice, Field(unspaced, "chars", 1, 4)]
        return sets if quick else [*sets, every]
    sets = _with_own(words, [name for name in columns if name not in short])
    few = [name for name in columns if kinds[name] == "few"]
    some = short if len(short) == len(columns) and not quick else few
    if some:
        chars = [*words, Field(some, "chars", 2, 5)]
        sets += _with_own(chars, some, "chars", 2, 5)
    return sets


def pass_seconds(
    fields: Sequence[Field], columns: Columns, num_texts: int, num_labels: int
) -> float:
    """CPU seconds of a pass over all terms of the fields, by some texts."""
    some = {name: _some(texts) for name, texts in columns.items()}
    count = sum(len(hashes) for _, hashes, _ in read_terms(some, fields))
    size = len(next(iter(some.values())))
    return linear_tree.seconds(count * num_texts / size, num_labels, 1)


def _with_own(fields, names, *options):
    """Candidates: fields, and if there are several columns also their own.

    What a title says may mean something else in a text.
    """
    if len(names) < 2:
        return [fields]
    return [fields, [*fields, *(_own_field(name, *options) for name in names)]]


def _own_field(name, *options, **others):
    return Field([name], *options, max_share=1.0, weight=0.8, **others)


def embedding_fields(columns: Columns) -> list[Field] | None:
    """What embeddings are learned from, or None: what the classifiers read.

    For short columns these are words and characters. An embedding of a pair of
    words that few texts have would tell little.
    """
    short = [name for name, texts in columns.items() if _is_short(texts)]
    if not short or any(_kind(x) == "unspaced" for x in columns.values()):
        return None
    return [Field(columns), Field(short, "chars", 3, 5)]


def _word_fields(columns, short, num_texts):
    """The words of all columns, and word pairs of each short column."""
    if not columns:
        return []
    if len(columns) == 1 and short:
        return [Field(short, longest=2, min_count=1)]
    # A term of few texts tells nothing, but of few texts there is no other.
    fields = [Field(columns, min_count=3 if num_texts >= 10_000 else 2)]
    if len(columns) > 1:
        fields += [_own_field(name, longest=2) for name in short]
    return fields


def _kind(texts):
    """What the words of a column are like: "unspaced", "few" or "many"."""
    some = [text[:_MAX_BYTES] for text in _some(texts)]
    plain = terms.plain(tf.constant(some)).numpy()
    joined = b" ".join(plain).decode("utf-8")
    words = joined.split()
    letters = sum(map(len, words))
    unspaced = len(_UNSPACED.findall(joined)) > _UNSPACED_SHARE * letters
    if unspaced or letters > _LONG_WORD * len(words):
        return "unspaced"
    return "few" if len(words) <= _FEW_WORDS * len(plain) else "many"


def _is_short(texts):
    return np.mean([text.count(b" ") for text in _some(texts)]) < _SHORT


def _some(texts):
    return texts[:: max(len(texts) // _SAMPLE, 1)]
