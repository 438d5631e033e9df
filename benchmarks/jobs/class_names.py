"""Tags with names, half of them without a text: our tagger and peers.

    python -m benchmarks.jobs.class_names JOB FOLDER [--omikuji PYTHON]

Each tag has a name. Half of the tags with texts keep four fifths of these to
learn from, and the other half none. The test asks for texts of both halves,
among all tags. FOLDER has the files of the job:

- esco: `occupations.tsv.xz` and `titles.tsv.xz` (examples/job_titles.py). The
  texts are other names of an occupation, and titles of vacancies.
- naics: `naics-2012.json` of the GitHub repository codeforamerica/naics-api.
  Tags are industries (six digits), and the texts their index entries.
- onet: `Occupation Data.txt` and `Alternate Titles.txt` of O*NET 27 (CC BY 4.0,
  in SrivardhiniK/career-path-recommender).

PYTHON is a Python that has Omikuji (peers/omikuji_trees.py).
"""

import collections
import os

import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer

from benchmarks import measure
from benchmarks.jobs import tags
from examples import job_titles
from tfxclass_text import Tagger

MOST, NUM_TEST = 10, 3000  # answers of a text, and texts of each kind
KINDS = "no texts", "with texts"
METHODS = "nearest name", "Tagger, names as texts", "Tagger, class_names"
_SHARE = 0.8  # of a tag's texts that are learned from
_CHARS = {"analyzer": "char_wb", "ngram_range": (2, 4)}
_PAIRS = {"analyzer": "word", "ngram_range": (1, 2)}


def read_esco(folder):
    """`({tag: name}, [(text, tag)])`."""
    every, titles = job_titles.read(folder)
    names = {tag: name for name, tag in reversed(every)}
    return names, [x for x in (*every, *titles) if x[1] in names]


def read_naics(folder):
    items = measure.read(os.path.join(folder, "naics-2012.json"))["items"]
    items = [x for x in items if len(str(x["code"])) == 6]
    return {str(x["code"]): x["title"] for x in items}, [
        (entry, str(x["code"])) for x in items for entry in x.get("index", ())
    ]


def read_onet(folder):
    def lines(name):
        with open(os.path.join(folder, name), encoding="utf8") as f:
            next(f)
            return [line.rstrip("\n").split("\t") for line in f]

    names = {code: title for code, title, *_ in lines("Occupation Data.txt")}
    titles = lines("Alternate Titles.txt")
    return names, [(title, code) for code, title, *_ in titles]


JOBS = {"esco": read_esco, "naics": read_naics, "onet": read_onet}


def split(names, texts, seed):
    """Pairs of a text and a tag to learn from, and by kind to ask for.

    A text that is the name of its tag is left out.
    """
    distinct = {(text.lower(), tag): text for text, tag in texts}
    by_tag = collections.defaultdict(list)
    for (lower, tag), text in distinct.items():
        if lower != names[tag].lower():
            by_tag[tag].append(text)
    random = np.random.default_rng(seed)
    learned, asked = [], {kind: [] for kind in KINDS}
    for number, tag in enumerate(random.permutation(sorted(by_tag)).tolist()):
        own = [(x, tag) for x in random.permutation(by_tag[tag]).tolist()]
        kept = 0 if number % 2 else int(np.ceil(_SHARE * len(own)))
        learned += own[:kept]
        asked[KINDS[bool(kept)]] += own[kept:]
    for part in asked.values():
        random.shuffle(part)
        del part[NUM_TEST:]
    return learned, asked


def nearest_names(names, texts):
    """The tags of the nearest names, by characters."""
    vectorizer = TfidfVectorizer(sublinear_tf=True, dtype=np.float32, **_CHARS)
    rows = vectorizer.fit_transform(names.values())
    cosines = (vectorizer.transform(texts) @ rows.T).toarray()
    every = np.array(list(names))
    return every[np.argsort(-cosines, axis=1, kind="stable")[:, :MOST]].tolist()


def by_tagger(learned, texts, **options):
    tagger = Tagger(verbose=0).fit(*zip(*learned), **options)
    return [[tag for tag, _ in row] for row in tagger.predict(texts, k=MOST)]


def child(job, method, seed, folder, python):
    names, texts = JOBS[job](folder)
    learned, asked = split(names, texts, seed)
    every = [text for part in asked.values() for text, _ in part]
    of_names = [(name, tag) for tag, name in names.items()]
    if method == "Omikuji":
        rows = [(text, [tag]) for text, tag in of_names + learned]
        best, found = tags.omikuji(
            "Parabel", python, tuple(zip(*rows)), every, MOST, _PAIRS
        )
        if best is None:
            return found
        spent = found["CPU s"] + found["ms per answer"] * len(every) / 1e3
    else:
        with measure.Stopwatch() as clock:
            if method == "nearest name":
                best = nearest_names(names, every)
            elif method == "Tagger, names as texts":
                best = by_tagger(of_names + learned, every)
            else:
                best = by_tagger(learned, every, class_names=names)
        spent = clock.cpu
    row, answers = {}, iter(best)
    for kind, part in asked.items():
        own = [next(answers) for _ in part]
        for k in (1, MOST):
            hits = [tag in x[:k] for x, (_, tag) in zip(own, part)]
            row[f"hit@{k}, {kind}"] = float(np.mean(hits))
    return {**row, "CPU s": float(spent)}


def main():
    measure.run_child(child)
    args = measure.arguments(
        __doc__, first=["job", "folder"], choices={"job": JOBS}, omikuji=None,
        seeds=[0, 1, 2],
    )  # fmt: skip
    rows = []

    def run(job, method, seed):
        return measure.ask(job, method, seed, args.folder, args.omikuji)

    for method in [*METHODS, *(["Omikuji"] if args.omikuji else ())]:
        lines = measure.of_all_seeds(
            "class_names", args.job, method, seeds=args.seeds, run=run
        )
        rows.append(
            {"job": args.job, "method": method, **measure.of_seeds(lines)}
        )
        measure.save("jobs/class_names", rows, {"job": args.job})


if __name__ == "__main__":
    main()
