"""Tags of texts: our taggers and Omikuji on the same rows.

    python -m benchmarks.jobs.tags JOB FOLDER [--omikuji PYTHON] [--parts]
        [--seeds N]

FOLDER has the data of the job: EU laws (EuroVoc), words of bookmarked pages
(delicious) or of references (bibtex), titles of vacancies (ESCO), library
titles (YSO), or Japanese given names. These are `jamdict.db` of the PyPI
package jamdict-data 1.5, which has it packed (`jamdict.db.xz`): the dictionary
of names JMnedict, of the Electronic Dictionary Research and Development Group.
`laws` are the folders `train` and `test` of EURLEX57K as they were published
(in the first commit of the repository SalvatoreTucci/lmtc-emnlp2020-master),
`industries` the file `naics-2012.json` of codeforamerica/naics-api, and
`occupations` the file `Alternate Titles.txt` of O*NET 27 (CC BY 4.0, in
SrivardhiniK/career-path-recommender). PYTHON is a Python that has Omikuji
(peers/omikuji_trees.py); without it, our taggers run alone. `--parts` asks
what each part of `Tagger, best` costs and brings. Rows are means over the
seeds from 0 to N - 1.
"""

import collections
import functools
import itertools
import os
import re
import tempfile
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer

from benchmarks import files
from benchmarks import measure
from examples import job_titles
from examples import short_texts
from tfxclass import metrics
from tfxclass_text import Tagger
from tfxclass_text import readers

FREQUENT = "most frequent tags"  # the same for all texts
OURS = {"Tagger, fast": {"effort": "fast"}, "Tagger, best": {}}
PARTS = {
    "Tagger, best": {},
    "all parts": {"c": 0.5},  # with one tag a text, embeddings stand alone
    "without neighbors": {"c": 0.5, "neighbors": 0},
    "without embeddings": {"embedding_dim": 0},
    "linear alone": {"embedding_dim": 0, "neighbors": 0},
}
OMIKUJI = {"Omikuji": "Parabel", "Omikuji, Bonsai": "Bonsai"}
PEER = os.path.join(measure.FOLDER, "peers", "omikuji_trees.py")
NUM_TRAIN, NUM_BETWEEN, NUM_TEST = 100_000, 60_000, 4_000


class Job(NamedTuple):
    """What is read, and how answers are judged.

    `read` returns `((texts, tags), (texts, tags))`, training and test rows of a
    folder. Texts are a list or a dict of columns.
    """

    read: Callable
    ks: tuple  # answers that count
    by_hit: bool  # rows have one tag: the share of rows that find it
    terms: dict  # arguments of `TfidfVectorizer` for Omikuji
    train: str = ""  # the file of training rows, where it says what is read


def read_eurlex57k(folder):
    paths = (os.path.join(folder, f"{x}.jsonl.xz") for x in ("train", "test_a"))
    return [readers.read(x, ("title", "text"), "concepts") for x in paths]


def read_words(folder, name):
    parts = (f"{name}_train.txt.xz", f"{name}_test.txt.xz")
    paths = (os.path.join(folder, part) for part in parts)
    return [readers.read(path, ("text",), "tags") for path in paths]


def read_job_titles(folder):
    names, titles = job_titles.read(folder)
    some, others = _halves(titles)
    return _columns([*names, *some]), _columns(others)


def _halves(pairs):
    order = np.random.default_rng(0).permutation(len(pairs))
    half = len(order) // 2
    return [[pairs[i] for i in part] for part in (order[:half], order[half:])]


def read_industries(folder):
    """Half of the index entries of each industry, and the others."""
    items = measure.read(os.path.join(folder, "naics-2012.json"))["items"]
    pairs = [(x, str(y["code"])) for y in items for x in y.get("index") or ()]
    return tuple(map(_columns, _halves(pairs)))


def read_occupations(folder):
    """Half of the titles of each occupation, and the others."""
    path = os.path.join(folder, "Alternate Titles.txt")
    with open(path, encoding="utf8") as f:
        next(f)
        rows = [line.split("\t") for line in f]
    pairs = [(title, code) for code, title, *_ in rows]
    return tuple(map(_columns, _halves(pairs)))


def read_laws(folder):
    parts = (os.path.join(folder, name) for name in ("train", "test"))
    return tuple(laws(part)[:2] for part in parts)


def laws(folder):
    """Columns, concepts and numbers of laws, each in a file of its own."""
    names = sorted(os.listdir(folder))
    rows = [measure.read(os.path.join(folder, name)) for name in names]
    columns = {
        "title": [row["title"] for row in rows],
        "text": [" ".join([x["recitals"], *x["main_body"]]) for x in rows],
    }
    # The year, and which law of the year, without the letter of its kind.
    numbers = [x["celex_id"][1:5] + x["celex_id"][6:] for x in rows]
    return columns, [row["concepts"] for row in rows], numbers


def read_short_texts(path):
    train, test = short_texts.split(short_texts.read(path))
    return _columns(train), _columns(test)


def read_library_titles(folder, count=NUM_TRAIN):
    """The first titles, and test rows."""
    path = os.path.join(folder, "titles_subjects.tsv.xz")
    lines = itertools.islice(files.tsv(path), count + NUM_BETWEEN)
    pairs = [(text, subjects.split()) for text, subjects in lines]
    test = [pair for pair in pairs[count:] if len(pair[1]) > 1][:NUM_TEST]
    return tuple(tuple(map(list, zip(*x))) for x in (pairs[:count], test))


def _columns(pairs):
    return [text for text, _ in pairs], [[tag] for _, tag in pairs]


read_all_titles = functools.partial(read_library_titles, count=600_000)
_PAIRS = {"analyzer": "word", "ngram_range": (1, 2)}
_WORDS = {"token_pattern": r"\w+"}
# All names have the space at their ends; it makes each the neighbor of all.
_CHARS = {"analyzer": "char_wb", "ngram_range": (1, 3), "max_df": 0.5}


def _law_terms(text):
    """The words, and pairs of words of the title, the first line."""
    words = re.findall(r"\w+", text.lower())
    title = words[: len(re.findall(r"\w+", text.split("\n")[0]))]
    return words + [" ".join(pair) for pair in itertools.pairwise(title)]


_LAWS = {"analyzer": _law_terms, "min_df": 3}


def _words(name):
    read, train = functools.partial(read_words, name=name), f"{name}_train"
    return Job(read, (1, 3, 5), False, _WORDS, f"{train}.txt.xz")


JOBS = {
    "eurlex57k": Job(read_eurlex57k, (1, 3, 5), False, _LAWS),
    "delicious": _words("delicious"),
    "bibtex": _words("bibtex"),
    "laws": Job(read_laws, (1, 3, 5), False, _LAWS),
    "industries": Job(read_industries, (1, 5, 10), True, _PAIRS),
    "occupations": Job(read_occupations, (1, 5, 10), True, _PAIRS),
    "job_titles": Job(read_job_titles, (1, 5, 10), True, _PAIRS),
    "library_titles": Job(read_library_titles, (1, 3, 5), False, _PAIRS),
    "all_titles": Job(read_all_titles, (1, 3, 5), False, _PAIRS),
    "short_texts": Job(read_short_texts, (1, 5), True, _CHARS),
}


def scores(best, expected, train_tags, ks, by_hit):
    """P@k and PSP@k, precision where rare tags count more, or hit@k.

    Jain, Prabhu and Varma, KDD 2016, with A = 0.55 and B = 1.5. `best` are
    lists of tags, best first, and `expected` sets of tags.
    """
    counts = collections.Counter(itertools.chain.from_iterable(train_tags))
    # Tags that were not learned count, too.
    every = sorted(set(counts).union(*expected))
    ids = {tag: i for i, tag in enumerate(every)}
    chances = metrics.propensities(
        [counts[tag] for tag in every], len(train_tags)
    )
    answers, labels = (
        files.padded([[ids[tag] for tag in row] for row in rows], width=width)
        for rows, width in ((best, max(ks)), (expected, None))
    )
    found = metrics.ranking_scores(answers, labels, ks, chances)
    shares = {k: float(found[f"precision_at_{k}"]) for k in ks}
    if by_hit:
        return {f"hit@{k}": round(k * share, 4) for k, share in shares.items()}
    result = {f"P@{k}": round(share, 4) for k, share in shares.items()}
    return result | {f"PSP@{k}": round(found[f"psp_at_{k}"], 4) for k in ks}


def ours(options, train, texts, most, fields):
    """`(answers, figures)` of our tagger."""
    with measure.Stopwatch() as fit:
        tagger = Tagger(**options, fields=fields, verbose=0).fit(*train)
    with measure.Stopwatch() as predict:
        answers = tagger.predict(texts, k=most)
    best = [[tag for tag, _ in row] for row in answers]
    answered = 1e3 * predict.cpu / len(answers)
    return best, figures_of(fit.cpu, answered, measure.peak_gb())


def figures_of(spent, answered, peak):
    found = {"CPU s": round(spent, 1), "ms per answer": round(answered, 2)}
    return found | {"GB": round(peak, 2)}


def omikuji(kind, python, train, texts, most, terms):
    """`(answers, figures)` of Omikuji on TF-IDF of the terms."""
    with measure.Stopwatch() as vectorizing:
        arrays, names = prepared(train, texts, terms)
    with tempfile.TemporaryDirectory() as folder:
        rows = os.path.join(folder, "rows.npz")
        answers = os.path.join(folder, "answers.npz")
        np.savez(rows, **arrays)
        found = measure.in_fresh_process(
            PEER, kind, rows, answers, most, python=python
        )
        if "error" in found:
            return None, found
        best = np.load(answers)["ids"]
    best = [[names[i] for i in row if i >= 0] for row in best]
    spent = found["cpu_s"] + vectorizing.cpu
    return best, figures_of(spent, found["predict_ms"], found["peak_gb"])


def prepared(train, texts, terms):
    """TF-IDF rows and labels as peers/omikuji_trees.py reads them; names."""
    vectorizer = TfidfVectorizer(sublinear_tf=True, dtype=np.float32, **terms)
    x = vectorizer.fit_transform(_joined(train[0]))
    test = vectorizer.transform(_joined(texts))
    names = sorted({tag for tags in train[1] for tag in tags})
    ids = {name: i for i, name in enumerate(names)}
    labels = [[ids[tag] for tag in tags] for tags in train[1]]
    splits, flat = np.cumsum([0, *map(len, labels)]), np.concatenate(labels)
    arrays = {"num_features": x.shape[1], "num_labels": len(names)}
    for name, parts in {
        "x": (x.indptr, x.indices, x.data),
        "y": (splits, flat.astype(int), np.ones(len(flat), np.float32)),
        "test_x": (test.indptr, test.indices, test.data),
    }.items():
        arrays |= {f"{name}_{i}": part for i, part in enumerate(parts)}
    return arrays, names


def _joined(texts):
    columns = texts.values() if isinstance(texts, dict) else [texts]
    return ["\n".join(row) for row in zip(*columns)]


def child(name, method, folder, python, seed):
    job = JOBS[name]
    train, (texts, tags) = job.read(folder)
    most = max(job.ks)
    if method == FREQUENT:
        counts = collections.Counter(itertools.chain.from_iterable(train[1]))
        most_common = [tag for tag, _ in counts.most_common(most)]
        best, found = [most_common] * len(tags), {}
    elif method in OMIKUJI:
        best, found = omikuji(
            OMIKUJI[method], python, train, texts, most, job.terms
        )
    else:
        path = os.path.join(folder, job.train)
        fields = readers.fields_of(path, ("text",)) if job.train else None
        options = {**OURS, **PARTS}[method] | {"seed": seed}
        best, found = ours(options, train, texts, most, fields)
    if best is None:
        return found
    expected = list(map(set, tags))
    return {**scores(best, expected, train[1], job.ks, job.by_hit), **found}


def main():
    measure.run_child(child)
    args = measure.arguments(
        __doc__, first=["job", "folder"], choices={"job": JOBS}, omikuji=None,
        parts=False, seeds=1,
    )  # fmt: skip
    methods = PARTS if args.parts else [FREQUENT, *OURS]
    name, key = ("parts", {"job": args.job}) if args.parts else (args.job, {})
    rows = []
    for method in [*methods, *(OMIKUJI if args.omikuji else ())]:
        asked = args.job, method, args.folder, args.omikuji
        found = [measure.ask(*asked, seed) for seed in range(args.seeds)]
        rows.append({**key, "method": method, **measure.mean_row(found)})
        measure.save(f"jobs/{name}", rows, key)


if __name__ == "__main__":
    main()
