"""Subjects of library titles, with a `Tagger` that grows every month.

    python -m examples.library_subjects FOLDER [--out served]

FOLDER has `titles_subjects.tsv.xz` (title, ids of subjects separated by spaces)
and `labels.tsv` (id, name of the subject), without header lines. The titles are
read in passes, so the file may be larger than memory. The last titles are "next
month's": the tagger learns them later, with `partial_fit`.
"""

import argparse
import csv
import itertools
import lzma
import os

import tfxclass


class Titles:
    """Batches of `(titles, subjects)`, read anew in each pass.

    Args:
        folder: of the data.
        begin, end: ints, the first row, and the row after the last.
        batch_size: int.
    """

    def __init__(self, folder, begin, end, batch_size=4096):
        self.path = os.path.join(folder, "titles_subjects.tsv.xz")
        self.rows, self.batch_size = (begin, end), batch_size

    def __iter__(self):
        with lzma.open(self.path, "rt", encoding="utf8") as f:
            lines = itertools.islice(f, *self.rows)
            while batch := list(itertools.islice(lines, self.batch_size)):
                pairs = [line.rstrip("\n").split("\t") for line in batch]
                yield (
                    [title for title, _ in pairs],
                    [subjects.split() for _, subjects in pairs],
                )

    def read(self):
        """All titles and subjects, in memory."""
        texts, tags = zip(*self)
        chain = itertools.chain.from_iterable
        return list(chain(texts)), list(chain(tags))


def names_of(folder):
    """The name of each subject, by its id."""
    with open(os.path.join(folder, "labels.tsv"), encoding="utf8") as f:
        rows = csv.reader(f, delimiter="\t", quoting=csv.QUOTE_NONE)
        return {subject: name for subject, name, *_ in rows}


def report(when, tagger, test):
    """Prints and returns how good the answers are."""
    found = tagger.evaluate(*test, ks=(1, 5))
    print(
        f"{when}: {found['precision_at_1']:.1%} of the first subjects are "
        f"right, {found['recall_at_5']:.1%} of all subjects are among the "
        f"first five (PSP@5 {found['psp_at_5']:.1%})"
    )
    return found


def main(folder, rows=100_000, out=None, verbose=1):
    """Learns, tests, learns next month's titles, tests again and exports."""
    month, num_test = rows // 20, rows // 50
    first = rows - month
    test = Titles(folder, rows, rows + num_test).read()
    tagger = tfxclass.text.Tagger(effort="fast", verbose=verbose)
    tagger.fit(Titles(folder, 0, first))
    report("first titles", tagger, test)

    tagger.partial_fit(Titles(folder, first, rows))
    found = report("with next month's", tagger, test)

    names = names_of(folder)
    title = test[0][0]
    answers = tagger.predict([title], k=3)[0]
    print(f"{title}: {[names.get(tag, tag) for tag, _ in answers]}")
    if out is not None:
        print(tagger.export(out))
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder")
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--out", help="folder of the served model")
    given = parser.parse_args()
    main(given.folder, given.rows, given.out)
