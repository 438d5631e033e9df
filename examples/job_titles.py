"""Codes occupations: titles of vacancies to ESCO occupations, with a `Tagger`.

    python -m examples.job_titles FOLDER [--out served]

FOLDER has `occupations.tsv.xz` (id, code, name, other names, description) and
`titles.tsv.xz` (title, id of its occupation), without header lines. The names
of all occupations and most titles are learned. Some titles are kept for the
choices, because the tagger will be asked for titles and not for names. The last
titles test it.
"""

import argparse
import csv
import lzma
import os

import numpy as np

import tfxclass


def read(folder):
    """`(names of occupations, titles)`, lists of `(text, occupation)`."""
    names = []
    for number, _, name, others, *_ in _lines(folder, "occupations.tsv.xz"):
        every = [name, *others.split(" | ")]
        names += [(x, number) for x in dict.fromkeys(every) if x]
    return names, [(x, y) for x, y in _lines(folder, "titles.tsv.xz")]


def _lines(folder, name):
    with lzma.open(os.path.join(folder, name), "rt", encoding="utf8") as f:
        yield from csv.reader(f, delimiter="\t", quoting=csv.QUOTE_NONE)


def split(titles, seed=0):
    """Four fifths to learn from, a tenth to choose on, a tenth to test."""
    order = np.random.default_rng(seed).permutation(len(titles))
    tenth = max(len(titles) // 10, 1)
    parts = order[2 * tenth :], order[:tenth], order[tenth : 2 * tenth]
    return [[titles[i] for i in part] for part in parts]


def hits(tagger, titles, ks=(1, 5, 10)):
    """Share of the titles whose occupation is among the first k, by k."""
    texts, expected = zip(*titles)
    answers = tagger.predict(texts, k=max(ks))
    return {
        k: float(
            np.mean(
                [
                    tag in [name for name, _ in answer[:k]]
                    for answer, tag in zip(answers, expected)
                ]
            )
        )
        for k in ks
    }


def main(folder, out=None, effort="best", verbose=1):
    """Learns, tests and exports; the hits at 1, 5 and 10."""
    names, titles = read(folder)
    train, held, test = split(titles)
    tagger = tfxclass.text.Tagger(effort=effort, verbose=verbose)
    texts, tags = zip(*names, *train)
    tagger.fit(texts, tags, validation_data=tuple(zip(*held)))
    found = hits(tagger, test)
    for k, share in found.items():
        print(f"hit at {k:2}: {share:.3f}")
    if out is not None:
        print(tagger.export(out))
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder")
    parser.add_argument("--out", help="folder of the served model")
    parser.add_argument("--effort", default="best", choices=("fast", "best"))
    given = parser.parse_args()
    main(given.folder, given.out, given.effort)
