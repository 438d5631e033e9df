"""Short texts without spaces: Japanese given names to their readings.

    python -m examples.short_texts [DATA] [--out served]

DATA is a file with a text, a tab and a tag on each line, or `jamdict.db` of the
PyPI package jamdict-data 1.5: a dictionary of names (JMnedict), in which a
given name has one reading or several. Without DATA, a few names are generated.
A form that asks for a name can suggest its readings like this. Product names,
diagnoses and occupations with a code are the same job: a `Tagger` reads runs
of characters where spaces do not part words.
"""

import argparse
import collections
import itertools
import sqlite3

import numpy as np

import tfxclass

#: Names that a reading has at least; rarer readings cannot be learned.
MIN_NAMES = 5
# What the generated names begin and end with: readings and their spellings.
_BEGINNINGS = {
    "あき": "明秋昭章", "かず": "一和数寿", "とし": "年俊敏利",
    "なお": "直尚", "のり": "典紀則", "はる": "春晴治陽", "ひろ": "広弘浩博",
    "まさ": "正雅昌政", "やす": "安康保", "ゆき": "雪幸", "よし": "義良吉",
}  # fmt: skip
_ENDS = {
    "え": "江恵枝", "お": "雄夫男", "こ": "子", "と": "人斗",
    "のぶ": "信伸", "ひさ": "久尚", "み": "美実未", "や": "也哉弥",
}  # fmt: skip
_QUERY = """
select distinct NEKanji.text, NEKana.text from NEKanji
join NEKana using (idseq) join NETranslation using (idseq)
join NETransType on NETransType.tid = NETranslation.ID
where NETransType.text in ('fem', 'masc', 'given')
"""


def read(path=None):
    """List of `(text, tag)`; a text with several tags has as many pairs."""
    if path is None:
        return generated()
    if not str(path).endswith(".db"):
        with open(path, encoding="utf8") as f:
            return [tuple(line.rstrip("\n").split("\t")) for line in f]
    database = sqlite3.connect(path)
    pairs = sorted(database.execute(_QUERY))
    database.close()
    counts = collections.Counter(reading for _, reading in pairs)
    return [pair for pair in pairs if counts[pair[1]] >= MIN_NAMES]


def generated():
    """All names of a beginning and an end."""
    parts = itertools.product(_BEGINNINGS.items(), _ENDS.items())
    return [
        (x + y, first + last)
        for (first, xs), (last, ys) in parts
        for x, y in itertools.product(xs, ys)
    ]


def split(pairs, seed=0):
    """Pairs to learn from, and those of a tenth of the texts to test."""
    texts = sorted({text for text, _ in pairs})
    order = np.random.default_rng(seed).permutation(len(texts))
    tested = {texts[i] for i in order[: min(len(texts) // 10, 10_000)]}
    train = [pair for pair in pairs if pair[0] not in tested]
    test = [pair for pair in pairs if pair[0] in tested]
    # Pairs are sorted; the first so many are then a sample.
    return [
        [part[i] for i in np.random.default_rng(seed).permutation(len(part))]
        for part in (train, test)
    ]


def main(path=None, out=None, effort="best", verbose=1):
    """Learns, tests and exports; what `evaluate` found."""
    train, test = split(read(path))
    tagger = tfxclass.text.Tagger(effort=effort, verbose=verbose)
    tagger.fit(*zip(*train))
    print(f"read: {tagger.summary['fields']}")

    found = tagger.evaluate(*zip(*test), ks=(1, 5))
    print(
        f"{found['precision_at_1']:.1%} of the first readings are right, "
        f"{found['recall_at_5']:.1%} are among the first five"
    )
    texts = [text for text, _ in test[:3]]
    for text, answers in zip(texts, tagger.predict(texts, k=3)):
        print(text, *(f"{tag} {share:.0%}" for tag, share in answers))
    if out is not None:
        print(tagger.export(out))
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", nargs="?", help="file of texts and tags")
    parser.add_argument("--out", help="folder of the served model")
    parser.add_argument("--effort", default="best", choices=("fast", "best"))
    given = parser.parse_args()
    main(given.data, given.out, given.effort)
