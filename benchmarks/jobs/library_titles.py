"""Subjects of library titles (YSO): our taggers and Omikuji.

    python -m benchmarks.jobs library_titles FOLDER --rows 100000

The first rows are learned. The test has 4,000 of the next 60,000 titles: those
with two subjects or more, because the labels are incomplete.
"""

import itertools
import lzma
import os

from benchmarks.jobs import _tags

NUM_BETWEEN, NUM_TEST = 60_000, 4_000


def read(folder, rows):
    """The first `rows` titles, 100,000 by default, and test rows."""
    rows = rows or 100_000
    path = os.path.join(folder, "titles_subjects.tsv.xz")
    with lzma.open(path, "rt", encoding="utf8") as f:
        lines = list(itertools.islice(f, rows + NUM_BETWEEN))
    pairs = [line.rstrip("\n").split("\t") for line in lines]
    texts = [text for text, _ in pairs]
    tags = [subjects.split() for _, subjects in pairs]
    test = [i for i in range(rows, len(tags)) if len(tags[i]) > 1][:NUM_TEST]
    return (texts[:rows], tags[:rows]), (
        [texts[i] for i in test],
        [tags[i] for i in test],
    )


def main(argv):
    _tags.main(argv, "library_titles", __doc__, read, (1, 3, 5), by_hit=False)
