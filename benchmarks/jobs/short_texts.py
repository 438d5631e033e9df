"""Japanese given names to their readings: our taggers, Omikuji, nearest texts.

    python -m benchmarks.jobs short_texts FILE

FILE is `jamdict.db` of the PyPI package jamdict-data 1.5, which has it packed
(`jamdict.db.xz`): the dictionary of names JMnedict, of the Electronic
Dictionary Research and Development Group. A row is a name and one of its
readings; readings of five names or more are the tags. A tenth of the names is
the test (10,000 at most), with all their rows. Omikuji and the nearest
texts read runs of one to three characters, ends of the name included.
"""

from benchmarks.jobs import _tags
from examples import short_texts

# All names have the space at their ends; it makes each the neighbor of all.
TERMS = {"analyzer": "char_wb", "ngram_range": (1, 3), "max_df": 0.5}


def read(path, rows):
    """Training rows, at most `rows`, and test rows."""
    train, test = short_texts.split(short_texts.read(path))
    return _columns(train[:rows]), _columns(test)


def _columns(pairs):
    return [text for text, _ in pairs], [[tag] for _, tag in pairs]


def main(argv):
    methods = (*_tags.METHODS, _tags.NEAREST)
    _tags.main(argv, "short_texts", __doc__, read, (1, 5), True, TERMS, methods)
