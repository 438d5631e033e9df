"""Job titles to occupations (ESCO): our taggers and Omikuji.

    python -m benchmarks.jobs job_titles FOLDER

Learned are the names of all occupations and half of the titles of vacancies;
the other half is the test.
"""

import numpy as np

from benchmarks.jobs import _tags
from examples import job_titles


def read(folder, rows):
    """Training rows, at most `rows`, and test rows."""
    names, titles = job_titles.read(folder)
    order = np.random.default_rng(0).permutation(len(titles))
    half = len(order) // 2
    train = [*names, *(titles[i] for i in order[:half])][:rows]
    test = [titles[i] for i in order[half:]]
    return _columns(train), _columns(test)


def _columns(rows):
    return [text for text, _ in rows], [[tag] for _, tag in rows]


def main(argv):
    _tags.main(argv, "job_titles", __doc__, read, (1, 5, 10), by_hit=True)
