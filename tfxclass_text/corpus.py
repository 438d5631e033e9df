"""Texts and tags to learn from: in memory, or read again in each pass."""

import itertools
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from typing import Any

import numpy as np

from tfxclass.types import Columns
from tfxclass.types import Tags
from tfxclass.types import Texts
from tfxclass_text import columns as columns_lib
from tfxclass_text.sparse_rows import SparseRows

# Texts that are read at a time, of columns in memory.
_BATCH = 2048
# Texts that tell what columns are like are as many at least, twice at most.
_SAMPLE = 10_000

Batches = Iterable[tuple[Texts, Tags]]


class Corpus:
    """Texts to learn from, in memory, and the tags of each.

    It has the number of texts, columns of some of them or of all, and the
    distinct tags, sorted: `size`, `sample` and `tags`. The last `num_names`
    texts are names of their tags.
    """

    num_names = 0

    def __init__(
        self, columns: Columns, names: list[list[str | int]], num_names: int = 0
    ) -> None:
        self.sample, self._names = columns, names
        self.num_names = num_names
        self.size = columns_lib.size(columns)
        self.tags = columns_lib.sorted_tags(itertools.chain(*names))

    @property
    def num_texts(self) -> int:
        """Without the names."""
        return self.size - self.num_names

    def labels(self) -> SparseRows:
        """The number of each tag, by text."""
        return ids_of(self._names, self.tags)

    def batches(self) -> Iterator[Columns]:
        """Yields columns of the next texts, from the first to the last."""
        return slices(self.sample)

    def columns(self) -> Columns:
        """All texts."""
        return self.sample


class StreamedCorpus(Corpus):
    """Batches that are read again in each pass, never all in memory."""

    def __init__(self, source: Batches) -> None:
        if iter(source) is source:
            raise ValueError(
                "A corpus that is read in passes must be iterable more than "
                "once: a `tfxclass.text.TextFile`, or an object whose "
                "`__iter__` begins anew. Received: an iterator, "
                f"{type(source).__name__}"
            )
        self._source = source
        numbers, ids = dict[Any, int](), list[int]()
        counts, step = list[int](), 1
        self.sample = {}
        for columns, names in self._read():
            step = _add_every_nth(self.sample, columns, len(counts), step)
            for of_text in names:
                ids += [numbers.setdefault(x, len(numbers)) for x in of_text]
                counts.append(len(of_text))
        self.size = len(counts)
        if not self.size:
            raise ValueError("`texts` must have a text. Received: none.")
        if not numbers:
            raise ValueError("`tags` must have a tag. Received: none.")
        self.tags = columns_lib.sorted_tags(numbers)
        place = np.empty(len(numbers), np.int64)
        place[[numbers[name] for name in self.tags]] = np.arange(len(numbers))
        splits = np.cumsum([0, *counts], dtype=np.int64)
        labels = place[np.array(ids, np.int64)]
        ones = np.ones(len(labels), np.float32)
        self._labels = SparseRows(splits, labels, ones)

    def labels(self) -> SparseRows:
        return self._labels

    def batches(self) -> Iterator[Columns]:
        count = 0
        for columns, _ in self._read():
            count += columns_lib.size(columns)
            yield columns
        if count != self.size:
            raise ValueError(
                "A corpus that is read in passes must have the same texts in "
                f"each. Received: {self.size} texts, then {count}"
            )

    def columns(self) -> Columns:
        raise ValueError(
            "`encoder` reads texts that are all in memory: pass lists to "
            "`fit`, or a Tagger without an encoder."
        )

    def _read(self):
        expected = None
        for batch in self._source:
            try:
                texts, tags = batch
            except (TypeError, ValueError) as e:
                raise ValueError(
                    "Without `tags`, `texts` must give batches (texts, tags). "
                    f"Received: a {type(batch).__name__}. Fix: pass the tags "
                    "of the texts as `tags`"
                ) from e
            columns = columns_lib.read(texts)
            if expected is None:
                expected = list(columns)
            columns_lib.check_same(columns, expected)
            size = columns_lib.size(columns)
            yield columns, columns_lib.read_tags(tags, size, some=False)


def _add_every_nth(sample, columns, count, step):
    """Adds each `step`-th text of all to a sample; `count` texts came before.

    Returns the next step, a power of 2: it doubles where the sample is large.
    """
    for name, texts in columns.items():
        sample.setdefault(name, []).extend(texts[-count % step :: step])
    while columns_lib.size(sample) > 2 * _SAMPLE:
        for name, texts in sample.items():
            sample[name] = texts[::2]
        step *= 2
    return step


def read(texts: Any, tags: Tags | None) -> Corpus:
    """The corpus that `fit` was given; of batches if `tags` is None."""
    if tags is None:
        if isinstance(texts, (str, bytes, dict)) or not hasattr(
            texts, "__iter__"
        ):
            raise ValueError(
                "Without `tags`, the first argument must be an iterable of "
                "batches (texts, tags), such as a file: tfxclass.text.TextFile("
                f"path, columns, tags). Received: {type(texts).__name__}"
            )
        return StreamedCorpus(texts)
    columns = columns_lib.read(texts)
    names = columns_lib.read_tags(tags, columns_lib.size(columns))
    return Corpus(columns, names)


def read_with_names(texts: Any, tags: Tags | None, class_names: Any) -> Corpus:
    """The corpus of the texts, and of the names of tags as more texts.

    Raises:
        ValueError: the texts are not in memory or have several columns or
            tags, or `class_names` is no dict of tags to their names.
    """
    if tags is None:
        raise ValueError(
            "`class_names` needs texts that are all in memory, and their tags. "
            f"Received: {type(texts).__name__} without tags"
        )
    columns = columns_lib.read(texts)
    of_texts = columns_lib.read_tags(tags, columns_lib.size(columns))
    if len(columns) > 1:
        raise ValueError(
            "`class_names` needs texts of one column. Received: "
            f"{list(columns)}. Fix: join the columns of each text"
        )
    several = next((x for x in of_texts if len(x) != 1), None)
    if several is not None:
        raise ValueError(
            "`class_names` needs texts of one tag each. Received: a text with "
            f"the tags {several!r:.60}"
        )
    pairs = _pairs_of(class_names)
    ((column, every),) = columns.items()
    names = columns_lib.read({column: [name for _, name in pairs]})[column]
    of_names = columns_lib.read_tags([tag for tag, _ in pairs], len(pairs))
    return Corpus(
        {column: [*every, *names]}, [*of_texts, *of_names], len(pairs)
    )


def _pairs_of(class_names):
    """Each tag and name of a dict of tags to their names."""
    if not isinstance(class_names, Mapping) or not class_names:
        raise ValueError(
            "`class_names` must be a dict of tags to their names. Received: "
            f"{class_names!r:.60}"
        )
    pairs = []
    for tag, names in class_names.items():
        # An empty list is refused as a name.
        is_list = isinstance(names, (list, tuple)) and len(names) > 0
        for name in names if is_list else [names]:
            if not isinstance(name, str) or not name.strip():
                raise ValueError(
                    "A name in `class_names` must be a str, not empty, or a "
                    f"list of these. Received: {name!r:.60} for the tag "
                    f"{tag!r}. Fix: leave out tags without a name"
                )
            pairs.append((tag, name))
    return pairs


def ids_of(names: list[list[str | int]], tags: list[str | int]) -> SparseRows:
    """The numbers of tags by text; names that are no tag are left out."""
    numbers = {name: i for i, name in enumerate(tags)}
    found = [
        [numbers[name] for name in of_text if name in numbers]
        for of_text in names
    ]
    splits = np.cumsum([0, *map(len, found)], dtype=np.int64)
    ids = np.fromiter(itertools.chain.from_iterable(found), np.int64)
    return SparseRows(splits, ids, np.ones(len(ids), np.float32))


def slices(columns: Columns, batch: int = _BATCH) -> Iterator[Columns]:
    """Yields columns of the next texts, `batch` at a time."""
    for begin in range(0, columns_lib.size(columns), batch):
        end = begin + batch
        yield {name: texts[begin:end] for name, texts in columns.items()}
