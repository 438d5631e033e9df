"""The verses of four translations, as word ids.

`DATA` of the benchmarks of verses is a folder with kjv, asv, dar and ylt, files
of `verse<TAB>text`, .tsv.xz. The fourth (ylt) is the test.
"""

import lzma
import math
import os
import re

import numpy as np

LENGTH = 48


def read(folder, name):
    """`(verse ids, words of each verse)` of a translation."""
    with lzma.open(os.path.join(folder, name + ".tsv.xz"), "rt") as f:
        lines = f.read().splitlines()[1:]
    pairs = [line.split("\t") for line in lines]
    words = [re.findall("[a-z]+", text.lower()) for _, text in pairs]
    return [verse for verse, _ in pairs], words


def load(folder):
    """`(x, y, test_x, test_y, idf)`; words by id, 0 is padding."""
    train = [read(folder, name) for name in ("kjv", "asv", "dar")]
    test = read(folder, "ylt")
    classes = {verse: i for i, verse in enumerate(sorted(set(test[0])))}
    counts = {}
    for _, texts in train:
        for words in texts:
            for word in set(words):
                counts[word] = counts.get(word, 0) + 1
    vocabulary = {word: i + 1 for i, word in enumerate(sorted(counts))}
    total = sum(len(texts) for _, texts in train)
    idf = np.zeros(len(vocabulary) + 1, np.float32)
    for word, i in vocabulary.items():
        idf[i] = math.log(total / counts[word])

    def encode(verses, texts):
        x = np.zeros((len(texts), LENGTH), np.int32)
        for row, words in zip(x, texts, strict=True):
            known = [vocabulary[w] for w in words if w in vocabulary]
            row[: len(known[:LENGTH])] = known[:LENGTH]
        return x, np.array([classes[verse] for verse in verses])

    pairs = [encode(*translation) for translation in train]
    x, y = (np.concatenate(part) for part in zip(*pairs, strict=True))
    return (x, y, *encode(*test), idf)
