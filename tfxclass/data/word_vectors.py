"""Vectors of words as word2vec, fastText and GloVe write them."""

from collections.abc import Sequence

import numpy as np

from tfxclass import text_files
from tfxclass.checks import as_names
from tfxclass.paths import local_path
from tfxclass.types import Path


def word_vectors(
    path: Path, names: Sequence[str]
) -> tuple[np.ndarray, np.ndarray]:
    r"""Reads the vectors of given words from a text file of word vectors.

    Use it to start from pretrained word vectors. Each line has a word and its
    numbers, separated by spaces, as in the `.vec` files of fastText, the text
    format of word2vec, and GloVe. The file is read line by line, so it may be
    larger than memory.

    Args:
        path: str, path of the file, UTF-8. `.gz`, `.xz` and `.bz2` files are
            decompressed.
        names: sequence of str, the words to look for, such as class names.
            Upper and lower case matter. If the file has a word twice, the first
            vector counts.

    Returns:
        `(ids, vectors)`: int64 `[n]`, the positions in `names` of the words
        that the file has, rising, and float32 `[n, dim]`, their vectors.

    Raises:
        ValueError: if a line has too few fields, a number is not finite, there
            are fewer lines than the first line says, or the file has no word of
            `names`.

    Example:

    ```python
    with open("words.vec", "w") as f:
        f.write("2 3\ncat 0.1 0.2 0.3\ndog 0.4 0.5 0.6\n")
    ids, vectors = tfxclass.data.word_vectors("words.vec", ["dog", "fish"])
    ```
    """
    path = local_path(path)
    names = as_names("names", names)
    places: dict[str, list[int]] = {}
    for place, name in enumerate(names):
        places.setdefault(name, []).append(place)
    found: dict[int, np.ndarray] = {}
    for word, vector in _rows(path, places):
        for place in places[word]:
            found.setdefault(place, vector)
    if not found:
        raise ValueError(
            f"{path} has a vector for none of the {len(names)} `names`. "
            f"Received: {names[:3]}... Fix: write the names as the file "
            "does, for instance in lower case"
        )
    ids = np.array(sorted(found), np.int64)
    return ids, np.stack([found[i] for i in ids])


def _rows(path, wanted):
    """Yields `(word, vector)` of the words that are wanted."""
    count, dim, number = None, None, 0
    for number, line in enumerate(_lines(path)):
        if number == 0:
            fields = line.split(" ")
            if len(fields) == 2 and all(x.isdecimal() for x in fields):
                count, dim = map(int, fields)
                continue
            dim = len(fields) - 1
        spaces = line.count(" ")
        if not 0 < dim <= spaces:
            raise ValueError(
                f"{path}, line {number + 1}: expected a word and {dim} "
                f"numbers, with spaces between. Received: {line[:80]!r}"
            )
        # A word may have spaces in it. Most have none: that is quicker.
        is_plain = spaces == dim
        word = line.partition(" ")[0] if is_plain else line.rsplit(" ", dim)[0]
        if word in wanted:
            yield word, _vector(path, number, line.rsplit(" ", dim)[1:])
    if count is not None and number != count:
        raise ValueError(
            f"{path} is not complete: its first line says {count} words. "
            f"Received: {number}"
        )


def _lines(path):
    """Lines that end with a line feed alone: words may hold other ends."""
    rest, mark = b"", text_files.MARK.encode()
    for part in text_files.read_bytes(path, 1 << 20):
        *lines, rest = (rest + part).split(b"\n")
        for line in lines:
            yield _decoded(path, line.removeprefix(mark))
            mark = b""
    if rest:
        yield _decoded(path, rest)


def _decoded(path, line):
    try:
        return line.decode().rstrip(" \r")
    except UnicodeDecodeError as e:
        raise ValueError(
            f"{path} is not UTF-8. Received: {line[:40]!r}. Fix: save it as "
            "UTF-8; write binary files of word2vec as text first"
        ) from e


def _vector(path, number, numbers):
    try:
        vector = np.array(numbers, np.float32)
    except ValueError:
        vector = np.array(np.nan)
    if not np.all(np.isfinite(vector)):
        raise ValueError(
            f"{path}, line {number + 1}: expected finite numbers. Received: "
            f"{' '.join(numbers)[:80]!r}"
        )
    return vector
