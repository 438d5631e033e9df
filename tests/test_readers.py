"""Files of texts and tags."""

import gzip
import lzma

import pytest

from tests.helpers import write_xc
from tfxclass.text import readers

EXPECTED = {"title": ["one", "two, 3"], "text": ["a\nb", "\u00e9"]}
TAGS = [["x", "y"], ["z"]]
LINES = (
    '{"title": "one", "text": "a\\nb", "tags": ["x", "y"]}\n\n'
    '{"title": "two, 3", "text": "\u00e9", "tags": "z", "more": 1}\n'
)
CSV = 'tags,title,text\nx | y,one,"a\nb"\nz,"two, 3",\u00e9\n'


@pytest.mark.parametrize(
    "name, content, opener",
    [
        ("d.jsonl", LINES, open),
        ("d.jsonl.gz", LINES, gzip.open),
        ("d.jsonl.xz", LINES, lzma.open),
        ("d.csv", CSV, open),
        ("d.csv.gz", CSV, gzip.open),
    ],
)
def test_columns_and_tags(tmp_path, name, content, opener):
    path = tmp_path / name
    with opener(path, "wt", encoding="utf-8") as f:
        f.write(content)
    assert readers.read(path, ["title", "text"], "tags") == (EXPECTED, TAGS)
    assert readers.read(path, ["text"]) == ({"text": EXPECTED["text"]}, None)


def test_tab_separated(tmp_path):
    (tmp_path / "d.tsv").write_text("text\ttags\na,b\tx|y\nc\t\n")
    texts, tags = readers.read(tmp_path / "d.tsv", ["text"], "tags")
    assert texts == {"text": ["a,b", "c"]} and tags == [["x", "y"], []]


def test_xc_format(tmp_path):
    path = tmp_path / "d.txt.gz"
    write_xc(path, [([3, 1], [(0, 2.0), (4, 0.3)]), ([], [(1, 1.0)])], 5, 4)
    texts, tags = readers.read(path, ["text"], "tags")
    assert texts == {"text": ["f0 f0 f4", "f1"]} and tags == [["3", "1"], []]


def test_parquet(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    table = pyarrow.table({**EXPECTED, "tags": TAGS, "more": [1, 2]})
    parquet.write_table(table, tmp_path / "d.parquet")
    found = readers.read(tmp_path / "d.parquet", ["title", "text"], "tags")
    assert found == (EXPECTED, TAGS)


def test_bytes_that_are_not_utf8(tmp_path):
    (tmp_path / "d.csv").write_bytes(b"text,tags\n\xff\xfe,x\n")
    texts, tags = readers.read(tmp_path / "d.csv", ["text"], "tags")
    assert texts == {"text": ["\ufffd\ufffd"]} and tags == [["x"]]


@pytest.mark.parametrize(
    "name, content, message",
    [
        ("d.doc", "", "must end in one of"),
        ("d.jsonl", '{"text": "a"\n', "line 1"),
        ("d.jsonl", '{"text": "a"}\n[1]\n', "line 2: must be an object"),
        ("d.jsonl", '{"title": "a"}\n', "row 1: has no column 'text'"),
        ("d.csv", "title\na\n", "row 1: has no column 'text'"),
        ("d.txt", "no header\n", "header"),
    ],
)
def test_damaged_files(tmp_path, name, content, message):
    (tmp_path / name).write_text(content)
    with pytest.raises(ValueError, match=message):
        readers.read(tmp_path / name, ["text"], "tags")


def test_missing_file(tmp_path):
    with pytest.raises(OSError):
        readers.read(tmp_path / "d.jsonl", ["text"], "tags")


def test_words_of_the_xc_format_have_no_order():
    (field,) = readers.fields_of("a/d.txt.xz", ["text"])
    assert field.longest == 1 and field.kind == "words"
    assert readers.fields_of("a/d.csv.xz", ["text"]) is None


@pytest.mark.parametrize(
    "name, content, opener", [("d.jsonl", LINES, open), ("d.csv", CSV, open)]
)
def test_a_column_of_tags_that_is_not_there(tmp_path, name, content, opener):
    """It was read as no tags at all."""
    path = tmp_path / name
    path.write_text(content, encoding="utf-8")
    with pytest.raises(ValueError, match="'tgas' of the tags.*'tags', 'text'"):
        readers.read(path, ["text"], "tgas")


def test_rows_may_have_no_tags(tmp_path):
    path = tmp_path / "d.jsonl"
    path.write_text('{"text": "a", "tags": "x"}\n{"text": "b"}\n')
    assert readers.read(path, ["text"], "tags")[1] == [["x"], []]
    path.write_text("")
    assert readers.read(path, ["text"], "tags") == ({"text": []}, [])


def test_xc_format_has_one_text(tmp_path):
    """The second one was taken for the tags."""
    path = tmp_path / "d.txt"
    write_xc(path, [([3], [(0, 1.0)])], 5, 4)
    with pytest.raises(ValueError, match="one column of texts"):
        readers.read(path, ["title", "text"])


@pytest.mark.parametrize("pairs", [[(0, 1e8)], [(0, 6e5), (1, 6e5)]])
def test_values_that_are_no_numbers_of_words(tmp_path, pairs):
    path = tmp_path / "d.txt"
    write_xc(path, [([3], [(0, 1.0)]), ([3], pairs)], 5, 4)
    with pytest.raises(ValueError, match="row 2: values are numbers of words"):
        readers.read(path, ["text"], "tags")
