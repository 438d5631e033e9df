"""Job titles to occupations by names and descriptions: two towers and peers.

    python -m benchmarks.jobs.two_towers

Without titles, methods learn from the names and descriptions of the
occupations, and all titles are asked. With titles, half of them (by a hash) are
learned as well, and the other half is asked.
"""

import os
import zlib

import keras
import numpy as np
import tensorflow as tf
from sklearn.feature_extraction.text import TfidfVectorizer

import tfxclass
from benchmarks import measure
from examples import job_titles
from examples import two_towers

FOLDER = os.path.join(
    os.path.dirname(measure.FOLDER), "..", "shared", "data", "esco_titles"
)
KS = (1, 5, 10)
#: Titles of an occupation that were learned, at least, by name of the group.
GROUPS = {"0": (0, 0), "1 to 4": (1, 4), "5 and more": (5, np.inf)}


class Data:
    """Names, descriptions and titles; `asked` are the titles of the test."""

    def __init__(self, folder, with_titles):
        rows = two_towers.read_rows(os.path.join(folder, "occupations.tsv.xz"))
        ids = {row[0]: number for number, row in enumerate(rows)}
        pairs, titles = (
            [(text, ids[name]) for text, name in part if name in ids]
            for part in job_titles.read(folder)
        )
        learned, asked = [], []
        for title in titles:
            is_learned = with_titles and zlib.crc32(title[0].encode()) % 2
            (learned if is_learned else asked).append(title)
        labels = np.array([label for _, label in learned], int)
        self.counts = np.bincount(labels, minlength=len(rows))
        self.names, self.labels = map(list, zip(*pairs, *learned))
        self.asked, self.answers = map(list, zip(*asked))
        self.descriptions = [row[4] for row in rows]


def nearest(data):
    """The occupations with the nearest names, by TF-IDF and cosine."""
    terms = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True)
    names = terms.fit_transform(data.names).astype(np.float32)
    questions = terms.transform(data.asked).astype(np.float32)
    best, labels = [], np.array(data.labels)
    for begin in range(0, questions.shape[0], 512):
        scores = (questions[begin : begin + 512] @ names.T).toarray()
        for row in scores:
            order = labels[np.argsort(-row, kind="stable")[:200]]
            found = list(dict.fromkeys(order))[: max(KS)]
            best.append(found + [-1] * (max(KS) - len(found)))
    return np.array(best)


def tagged(data, effort):
    tags = [str(x) for x in range(len(data.descriptions))]
    texts = [*data.names, *data.descriptions]
    labels = [tags[x] for x in data.labels] + tags
    tagger = tfxclass.text.Tagger(effort=effort, verbose=0)
    tagger.fit(texts, labels)
    best = tagger.predict(data.asked, k=max(KS))
    return np.array([[int(tag) for tag, _ in row] for row in best])


def towers(data, epochs, **options):
    """The example, examples/two_towers.py."""
    keras.utils.set_random_seed(0)
    made = two_towers.Towers(
        data.names, data.labels, data.descriptions, **options
    )
    made.fit(epochs)
    best = tfxclass.top_k(made.from_text, max(KS))
    return best.predict(tf.constant(data.asked), verbose=0)[0]


METHODS = {
    "nearest name, words and pairs": nearest,
    'Tagger(effort="fast")': lambda x: tagged(x, "fast"),
    "Tagger()": lambda x: tagged(x, "best"),
    "two towers, in-batch negatives (TFRS)": lambda x: towers(
        x, 6, sampler="batch", num_sampled=None
    ),
    "two towers, in-batch negatives, residual": lambda x: towers(
        x, 6, sampler="batch", num_sampled=None, use_residual=True
    ),
    "two towers, uniform sample": lambda x: towers(x, 4),
    "two towers, uniform sample, residual": lambda x: towers(
        x, 4, use_residual=True
    ),
}
ROWS = [
    f"{setting}: {method}"
    for setting in ("no titles", "half of the titles")
    for method in METHODS
    if setting != "no titles" or "residual" not in method
]


def run(row):
    setting, _, method = row.partition(": ")
    data = Data(FOLDER, setting != "no titles")
    with measure.Stopwatch() as clock:
        best = METHODS[method](data)
    answers = np.array(data.answers)
    found = best[:, : max(KS)] == answers[:, np.newaxis]
    result = {}
    for k in KS:
        result[f"hit@{k}"] = round(float(found[:, :k].any(axis=1).mean()), 4)
    if setting != "no titles":
        counts = data.counts[answers]
        for name, (least, most) in GROUPS.items():
            of_group = found[(counts >= least) & (counts <= most)]
            hits = float(of_group.any(axis=1).mean())
            result[f"hit@10, {name} titles"] = round(hits, 4)
    result["CPU s"] = round(clock.cpu, 1)
    result["GB"] = round(measure.peak_gb(), 2)
    return result


if __name__ == "__main__":
    measure.compare("jobs/two_towers", run, measure.cases(row=ROWS))
