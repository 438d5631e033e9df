"""Files of word vectors: the three formats, and files that are refused."""

import gzip

import numpy as np
import pytest

import tfxclass

WORDS = ["the", "New York", "na\u00efve"]
VECTORS = np.array([[1, -2.5], [0, 3e-2], [4, 5]], np.float32)


def lines_of(vectors=VECTORS, end=""):
    return [
        f"{word} {' '.join(map(str, vector))}{end}"
        for word, vector in zip(WORDS, vectors)
    ]


def write(path, lines, end="\n"):
    path.write_bytes("".join(line + end for line in lines).encode())
    return path


@pytest.mark.parametrize(
    "lines",
    [["3 2", *lines_of()], ["3 2", *lines_of(end=" ")], lines_of()],
    ids=["fastText", "word2vec", "GloVe"],
)
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_words_that_the_file_has(lines, end, tmp_path):
    path = write(tmp_path / "words.vec", lines, end)
    names = ["naive", "na\u00efve", "New York", "na\u00efve"]
    ids, vectors = tfxclass.data.word_vectors(path, names)
    assert ids.tolist() == [1, 2, 3] and ids.dtype == np.int64
    np.testing.assert_array_equal(vectors, VECTORS[[2, 1, 2]])


def test_a_packed_file(tmp_path):
    path = tmp_path / "words.vec.gz"
    path.write_bytes(gzip.compress("\n".join(lines_of()).encode()))
    ids, vectors = tfxclass.data.word_vectors(path, ["the"])
    np.testing.assert_array_equal(vectors, VECTORS[:1])


@pytest.mark.parametrize(
    "lines, message",
    [
        (["3 2", *lines_of()[:2]], "is not complete: .* 3 words"),
        ([*lines_of(), "short 1"], "line 4: expected a word and 2 numbers"),
        (["the 1 x"], r"line 1: expected finite numbers. Received: '1 x'"),
        (["the 1 nan"], "line 1: expected finite numbers"),
        (["The 1 2"], "none of the 1 `names`.*lower case"),
        ([], "none of the 1 `names`"),
    ],
)
def test_files_that_are_refused(lines, message, tmp_path):
    path = write(tmp_path / "words.vec", lines)
    with pytest.raises(ValueError, match=message):
        tfxclass.data.word_vectors(path, ["the"])


def test_a_binary_file_is_refused(tmp_path):
    path = tmp_path / "words.bin"
    path.write_bytes(b"3 2\nthe \xcd\xcc\x8c\xbf\n")
    with pytest.raises(ValueError, match="is not UTF-8.*write binary files"):
        tfxclass.data.word_vectors(path, ["the"])
