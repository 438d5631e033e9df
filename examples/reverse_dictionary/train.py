"""Texts to learn from, and the batches made of them."""

import time

import keras
import numpy as np
import scipy.sparse

# How often a word of each kind of text is shown, in training.
KEEP = {"gloss": 0.7, "example": 0.2, "word": 0.15, "related": 0.15}
# What each kind of text counts, as the definition of a word.
DEFINES = {"gloss": 1.0, "example": 0.2, "word": 0.5, "related": 0.4}
_RELATED = {"@", "@i", "+", "\\", "&", "^"}


def texts_of(synsets):
    """What WordNet says of each synset: dict of kind to a list of texts.

    Other people define words by synonyms and by words of the same stem, which
    a gloss avoids; so the words themselves and those of related synsets
    (hypernyms, derived forms, similar adjectives) are texts too.
    """
    texts = {kind: [] for kind in KEEP}
    for synset in synsets.values():
        related = {
            word
            for symbol, key in synset.pointers
            if symbol in _RELATED and key in synsets
            for word in synsets[key].words
        }
        texts["gloss"].append(synset.gloss)
        texts["example"].append(" ".join(synset.examples))
        texts["word"].append(" ".join(synset.words))
        texts["related"].append(" ".join(sorted(related)))
    return texts


def labels_of(synsets, words):
    """Classes of each synset, int64 `[n, p]` padded with -1."""
    ids = {word: i for i, word in enumerate(words)}
    synsets = list(synsets.values())
    width = max(len(synset.words) for synset in synsets)
    labels = np.full((len(synsets), width), -1, "int64")
    for row, synset in zip(labels, synsets):
        row[: len(synset.words)] = [ids[word] for word in synset.words]
    return labels


class Batches(keras.utils.PyDataset):
    """Shuffled synsets, with another choice of their words each time.

    Args:
        table: lookup table of a `WordIds`.
        columns: dict of kind to `(terms, rows)`, from `text.split_all`.
        labels: from `labels_of`.
        batch_size: synsets a batch.
        length: words a synset at most.
    """

    def __init__(self, table, columns, labels, batch_size=512, length=48):
        super().__init__()
        known = [_known_words(table, *columns[kind]) for kind in columns]
        ids, rows = (np.concatenate(parts) for parts in zip(*known))
        kinds = np.repeat(np.arange(len(known)), [len(ids) for ids, _ in known])
        order = np.argsort(rows, kind="stable")
        self.ids, self.names, self.kinds = ids[order], [*columns], kinds[order]
        self.keep = self._weights(KEEP)
        self.starts = np.searchsorted(rows[order], np.arange(len(labels) + 1))
        self.labels, self.length = labels, length
        self.batch_size = min(batch_size, len(labels))
        self.random = np.random.default_rng(0)
        self.on_epoch_end()

    def __len__(self):
        return len(self.labels) // self.batch_size

    def on_epoch_end(self):
        self.order = self.random.permutation(len(self.labels))

    def __getitem__(self, index):
        start = index * self.batch_size
        batch = self.order[start : start + self.batch_size]
        return self.words(batch), self.labels[batch]

    def words(self, batch):
        """Ids of the words kept of each synset, int64 `[batch, length]`."""
        sizes = self.starts[batch + 1] - self.starts[batch]
        rows = np.repeat(np.arange(len(batch)), sizes)
        first = np.repeat(np.cumsum(sizes) - sizes, sizes)
        at = self.starts[batch][rows] + np.arange(len(rows)) - first
        kept = self.random.random(len(at), "float32") < self.keep[at]
        rows, at = rows[kept], at[kept]
        ids = np.full((len(batch), self.length), -1, "int64")
        column = np.arange(len(rows)) - np.searchsorted(rows, rows)
        fits = column < self.length
        ids[rows[fits], column[fits]] = self.ids[at[fits]]
        return ids

    def terms(self, num_terms, weights=KEEP):
        """How much of each term a synset's texts have, sparse
        `[n, num_terms]`, by the weight of each kind of text."""
        return scipy.sparse.csr_matrix(
            (self._weights(weights), self.ids, self.starts),
            shape=(len(self.labels), num_terms),
        )

    def _weights(self, of_kinds):
        weights = [of_kinds[name] for name in self.names]
        return np.array(weights, "float32")[self.kinds]


def _known_words(table, terms, rows):
    ids = table.lookup(terms).numpy()
    return ids[ids >= 0], rows[ids >= 0]


class Anneal(keras.callbacks.Callback):
    """Cosine learning rate over `epochs` or `seconds`, whichever end first.

    So that the demo takes as long on a slow machine, and learns less there.
    """

    def __init__(self, epochs, seconds, learning_rate, warmup=0.02):
        super().__init__()
        self.epochs, self.seconds = epochs, seconds
        self.learning_rate, self.warmup = learning_rate, warmup

    def on_train_begin(self, logs=None):
        self.begin, self.steps = time.perf_counter(), 0

    def on_train_batch_begin(self, batch, logs=None):
        total = self.epochs * self.params["steps"]
        elapsed = time.perf_counter() - self.begin
        done = max(self.steps / total, elapsed / self.seconds)
        self.steps += 1
        self.model.stop_training |= done >= 1
        rate = 0.5 * (1 + np.cos(np.pi * min(done, 1)))
        rate = min(rate, max(done, 0.001) / self.warmup)
        self.model.optimizer.learning_rate = self.learning_rate * rate
