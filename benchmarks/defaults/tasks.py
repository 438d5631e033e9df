"""The data of the matrix of tasks, each as arrays.

`load(name, folder)` reads a task from the folder of the shared data, and keeps
the arrays in `benchmarks/cache`. Each task has training, validation and test
rows. Rates are chosen on validation rows, and results are of test rows.
"""

import collections
import functools
import itertools
import pathlib
import re
from typing import NamedTuple

import numpy as np

from benchmarks import files
from benchmarks import glyphs_data
from benchmarks import measure
from benchmarks.files import padded

_WORD = re.compile(r"[a-z0-9]+")
_TRAIN_ROWS = 300_000
_EVALUATED_ROWS = 2_000
_CHARACTERS = 5_000  # those with the most drawings


class Task(NamedTuple):
    """A classification task.

    Rows are pairs `(inputs, labels)`. Inputs are a tuple with float32 features
    `[n, dim]`, or with int32 ids `[n, length]` and their float32 weights, 0 at
    padding. Labels are int64 `[n, p]`, padded with -1.
    """

    train: tuple
    validation: tuple
    test: tuple
    num_classes: int
    num_ids: int = 0  # input ids with padding; 0 for features
    k: int = 1  # a row is right with a label among its `k` best


def load(name, folder):
    return measure.pickled(
        f"defaults/{name}", lambda: TASKS[name](pathlib.Path(folder))
    )


def _take(rows, which):
    inputs, labels = rows
    return tuple(part[which] for part in inputs), labels[which]


def _halves(rows):
    """Validation and test rows of rows that were never trained on."""
    order = np.random.default_rng(0).permutation(len(rows[1]))
    size = min(_EVALUATED_ROWS, len(order) // 2)
    return _take(rows, order[:size]), _take(rows, order[size : 2 * size])


# Texts.


def _tokens(text, with_pieces):
    words = _WORD.findall(text.lower())
    if not with_pieces:
        return words
    padded = [f"<{word}>" for word in words]
    pieces = [w[i : i + 4] for w in padded for i in range(max(len(w) - 3, 1))]
    return words + pieces


def _text_task(train, asked, num_classes, length, k=1, with_pieces=False):
    """A task of lists of pairs, a text and its labels: bags of its words.

    The words are the 30,000 most frequent ones that two texts have, and of a
    text the rarest `length`, weighted by TF-IDF.
    """
    lists = [_tokens(text, with_pieces) for text, _ in train]
    counts = collections.Counter(w for words in lists for w in set(words))
    known = [w for w, n in counts.most_common(30_000) if n >= 2]
    numbers = {word: i + 1 for i, word in enumerate(known)}
    idf = np.zeros(len(known) + 1)
    for word, i in numbers.items():
        idf[i] = np.log(len(lists) / counts[word])
    width = min(max(len(y) for _, y in train), 6)

    def rows(lists, pairs):
        found = []
        for words in lists:
            ids = {numbers[word] for word in words if word in numbers}
            found.append(sorted(ids, key=lambda i: -idf[i])[:length])
        ids = padded(found, 0, length, np.int32)
        return (ids, _unit(idf[ids])), padded([y for _, y in pairs], -1, width)

    test = rows([_tokens(text, with_pieces) for text, _ in asked], asked)
    return Task(
        rows(lists, train), *_halves(test), num_classes, len(known) + 1, k
    )


def _unit(weights):
    norms = np.linalg.norm(weights, axis=1, keepdims=True)
    return (weights / np.maximum(norms, 1e-9)).astype(np.float32)


def _verse_rows(folder, name):
    rows = files.tsv(folder / "verses" / f"{name}.tsv.xz")
    return [row for row in rows if row[0].isdigit()]


def verses(folder):
    """A verse in a fourth translation to its number."""
    numbers = {r[0]: i for i, r in enumerate(_verse_rows(folder, "kjv"))}
    train, asked = (
        [(r[1], [numbers[r[0]]]) for n in names for r in _verse_rows(folder, n)]
        for names in (("kjv", "asv", "dar"), ("ylt",))
    )
    return _text_task(train, asked, len(numbers), length=24)


def language_model(folder):
    """The next word of a verse after the last six."""
    texts = [_WORD.findall(r[1].lower()) for r in _verse_rows(folder, "kjv")]
    counts = collections.Counter(word for words in texts for word in words)
    numbers = {word: i for i, (word, _) in enumerate(counts.most_common())}
    rows = []
    for words in texts:
        ids = [numbers[word] + 1 for word in words]
        rows += [
            ([0] * 6 + ids[:i])[-6:] + [ids[i] - 1] for i in range(1, len(ids))
        ]
    rows = np.array(rows, np.int64)
    rows = np.random.default_rng(0).permutation(rows)
    ids, labels = rows[:, :-1].astype(np.int32), rows[:, -1:]
    rows = (ids, (ids > 0).astype(np.float32)), labels
    held_out = slice(_TRAIN_ROWS, _TRAIN_ROWS + 2 * _EVALUATED_ROWS)
    return Task(
        _take(rows, slice(_TRAIN_ROWS)),
        *_halves(_take(rows, held_out)),
        num_classes=len(numbers),
        num_ids=len(numbers) + 1,
        k=5,
    )


def eu_law(folder):
    """A European law to its EuroVoc labels."""
    parts = [
        list(files.xc(folder / "eurlex57k" / f"{name}.xc.txt.xz"))
        for name in ("train", "dev", "test_a")
    ]
    num_words = 1 + max(i for part in parts for _, words in part for i in words)
    counts = np.bincount(
        [i for _, words in parts[0] for i in words], minlength=num_words
    )
    idf = np.log(len(parts[0]) / np.maximum(counts, 1))
    length = 48

    def rows(part):
        best = []
        for _, words in part:
            weighted = [(np.log1p(v) * idf[i], i) for i, v in words.items()]
            best.append(sorted(weighted, reverse=True)[:length])
        ids = [[i + 1 for _, i in row] for row in best]
        weights = [[w for w, _ in row] for row in best]
        ids = padded(ids, 0, length, np.int32)
        weights = padded(weights, 0, length, np.float64)
        return (ids, _unit(weights)), padded([x for x, _ in part], width=16)

    train, *others = map(rows, parts)
    evaluated = [_take(x, slice(_EVALUATED_ROWS)) for x in others]
    num_classes = 1 + max(int(x.max()) for _, x in (train, *others))
    return Task(train, *evaluated, num_classes, num_words + 1)


def reverse_dictionary(folder):
    """A definition of another dictionary to its word; 20,000 words."""
    folder = folder / "reverse_dictionary"
    known, asked = (collections.defaultdict(list) for _ in range(2))
    for row in list(files.tsv(folder / "wordnet30_glosses.tsv.xz"))[1:]:
        known[row[0].lower()].append(row[4])
    for row in list(files.tsv(folder / "gcide_definitions_a.tsv.xz"))[1:]:
        asked[row[0].lower().replace(" ", "_")].append(row[2])
    words = [word for word in known if word in asked]
    words = list(np.random.default_rng(0).permutation(words)[:20_000])
    train, test = (
        [(text, [i]) for i, word in enumerate(words) for text in of_words[word]]
        for of_words in (known, asked)
    )
    return _text_task(train, test, len(words), length=20, k=10)


def job_titles(folder):
    """The title of a vacancy to its ESCO occupation."""
    folder = folder / "esco_titles"
    occupations = list(files.tsv(folder / "occupations.tsv.xz"))
    numbers = {row[0]: i for i, row in enumerate(occupations)}
    names = [
        (name, [i])
        for i, row in enumerate(occupations)
        for name in [row[2], *row[3].split(" | ")]
        if name
    ]
    titles = [
        (title, [numbers[occupation]])
        for title, occupation in files.tsv(folder / "titles.tsv.xz")
        if occupation in numbers
    ]
    order = np.random.default_rng(0).permutation(len(titles))
    titles = [titles[i] for i in order]
    asked, train = titles[: 2 * _EVALUATED_ROWS], titles[2 * _EVALUATED_ROWS :]
    return _text_task(
        names + train, asked, len(numbers), length=20, k=5, with_pieces=True
    )


def subjects(folder):
    """A title of a library to its YSO subjects; 100,000 titles."""
    numbers, rows = {}, []
    path = folder / "yso_finna_en" / "titles_subjects.tsv.xz"
    for title, ids in itertools.islice(files.tsv(path), 100_000):
        ids = [numbers.setdefault(x, len(numbers)) for x in ids.split()]
        rows.append((title, ids))
    rows = [rows[i] for i in np.random.default_rng(0).permutation(len(rows))]
    asked, train = rows[: 2 * _EVALUATED_ROWS], rows[2 * _EVALUATED_ROWS :]
    return _text_task(train, asked, len(numbers), length=14, k=5)


def sessions(folder, name):
    """The items of a session so far, latest first, to the next one."""
    from examples import next_item

    train, test = next_item.read(folder / "sessions" / name)
    num_items = 1 + max(map(max, train))
    test = [p for p in zip(*test) if max(*p[0], p[1]) < num_items]
    train = [(s[:i], s[i]) for s in train for i in range(1, len(s))]
    order = np.random.default_rng(0).permutation(len(train))[:_TRAIN_ROWS]

    def rows(pairs):
        ids = padded([x[::-1] for x, _ in pairs], 0, 8, np.int32)
        weights = (ids > 0) / np.arange(1, 9)
        return (ids, _unit(weights)), np.array([[y] for _, y in pairs])

    train = rows([train[i] for i in order])
    return Task(train, *_halves(rows(test)), num_items, num_items, k=20)


# Images and generated features.


def _digit_images(folder, name):
    images, labels = files.mnist(folder, name)
    images = images.reshape(-1, 14, 2, 14, 2).mean((2, 4)) / 255
    return images.astype(np.float32), labels


def numbers(folder, digits):
    """Handwritten digits side by side to the number that they show."""
    random = np.random.default_rng(0)
    powers = 10 ** np.arange(digits)

    def rows(images, labels, count):
        which = random.integers(0, len(images), (count, digits))
        inputs = images[which].reshape(count, -1)
        return (inputs,), (labels[which] * powers).sum(1, keepdims=True)

    train = rows(*_digit_images(folder, "train"), 60_000)
    test = rows(*_digit_images(folder, "t10k"), 2 * _EVALUATED_ROWS)
    return Task(train, *_halves(test), 10**digits)


def glyphs(folder):
    """Characters by their drawing, 16 x 16; tested in fonts not learned."""
    del folder
    data = glyphs_data.load()
    drawn = np.bincount(data.y, minlength=data.num_classes)
    kept = np.argsort(-drawn, kind="stable")[:_CHARACTERS]
    numbers = np.full(data.num_classes, -1)
    numbers[kept] = np.arange(len(kept))

    def rows(images, labels):
        at = np.flatnonzero(numbers[labels] >= 0)
        half = glyphs_data.SIDE // 2
        cells = images[at].reshape(len(at), half, 2, half, 2)
        inputs = cells.mean((2, 4)).reshape(len(at), -1) / 255
        return (inputs.astype(np.float32),), numbers[labels[at], np.newaxis]

    test = rows(data.test_x, data.test_y)
    return Task(rows(data.x, data.y), *_halves(test), len(kept))


def groups(folder, num_classes, size, law=0.0):
    """Points around class means, which lie in groups of `size`."""
    del folder
    random, dim = np.random.default_rng(1), 64
    centres = random.normal(size=(num_classes // size, dim))
    means = centres[np.arange(num_classes) // size]
    means = means + 0.45 * random.normal(size=means.shape)
    weights = 1.0 / np.arange(1, num_classes + 1) ** law
    weights = random.permutation(weights / weights.sum())

    def rows(count):
        labels = random.choice(num_classes, count, p=weights)
        noise = 0.3 * random.normal(size=(count, dim))
        inputs = (means[labels] + noise) / 1.2
        return (inputs.astype(np.float32),), labels[:, np.newaxis]

    train, test = rows(250_000), rows(2 * _EVALUATED_ROWS)
    return Task(train, *_halves(test), num_classes)


TASKS = {
    "verses": verses,
    "language_model": language_model,
    "eu_law": eu_law,
    "reverse_dictionary": reverse_dictionary,
    "job_titles": job_titles,
    "subjects": subjects,
    "diginetica": functools.partial(sessions, name="diginetica"),
    "tmall": functools.partial(sessions, name="tmall"),
    "numbers_3": functools.partial(numbers, digits=3),
    "numbers_4": functools.partial(numbers, digits=4),
    "groups": functools.partial(groups, num_classes=10_000, size=50),
    "zipf_groups": functools.partial(
        groups, num_classes=10_000, size=50, law=1.0
    ),
    "small_groups": functools.partial(groups, num_classes=2_000, size=20),
    "glyphs": glyphs,
}
