"""Files of texts and tags."""

import bz2
import gzip
import lzma
import re

import numpy as np
import pytest
import tensorflow as tf

from tests.support.helpers import write_xc
from tfxclass_text import Tagger
from tfxclass_text import readers

UTF8_MARK = b"\xef\xbb\xbf"
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
    assert texts == {"text": ["f0:2.0 f4:0.3", "f1"]}
    assert tags == [["3", "1"], []]


def test_parquet(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    table = pyarrow.table({**EXPECTED, "tags": TAGS, "more": [1, 2]})
    parquet.write_table(table, tmp_path / "d.parquet")
    found = readers.read(tmp_path / "d.parquet", ["title", "text"], "tags")
    assert found == (EXPECTED, TAGS)


@pytest.mark.parametrize(
    "name, content, message",
    [
        ("d.doc", "", "must end in one of"),
        ("d.jsonl", '{"text": "a"\n', "line 1"),
        ("d.jsonl", '{"text": "a"}\n[1]\n', "line 2: must be an object"),
        ("d.jsonl", '{"title": "a"}\n', "line 1: has no column 'text'"),
        ("d.csv", "title\na\n", "has no column 'text'.*'title'"),
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


@pytest.mark.parametrize(
    "pairs, kind",
    [
        ([(0, 2.0), (3, 1.0)], "words"),
        ([(0, 0.5)], "values"),
        ([(0, -1.0)], "values"),
        ([(0, 1e8)], "values"),
    ],
)
def test_words_of_the_xc_format_have_no_order(tmp_path, pairs, kind):
    path = tmp_path / "D.TXT.xz"
    write_xc(path, [([3], [(0, 1.0)]), ([3], pairs)], 5, 4)
    (field,) = readers.fields_of(path, ["text"])
    assert field.longest == 1 and field.kind == kind
    assert readers.fields_of("a/d.csv.xz", ["text"]) is None


@pytest.mark.parametrize(
    "name, content, opener", [("d.jsonl", LINES, open), ("d.csv", CSV, open)]
)
def test_a_column_of_tags_that_is_not_there(tmp_path, name, content, opener):
    """It was read as no tags at all."""
    path = tmp_path / name
    path.write_text(content, encoding="utf-8")
    with pytest.raises(ValueError, match="column 'tgas'.*'tags', 'text'"):
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


def read(path, content, tags="tags", **options):
    """What `readers.read` finds in a file with these bytes."""
    if isinstance(content, str):
        content = content.encode("utf-8", "surrogatepass")
    path.write_bytes(content)
    return readers.read(path, ["text"], tags, **options)


def test_quotes_are_text_in_tab_separated_files(tmp_path):
    """One quote took in all rows behind it."""
    texts, tags = read(
        tmp_path / "d.tsv", 'text\ttags\n"Fences\ta\r\nb"c "d"\tx|y\n'
    )
    assert texts == {"text": ['"Fences', 'b"c "d"']}
    assert tags == [["a"], ["x", "y"]]


@pytest.mark.parametrize(
    "content, line",
    [
        ('text,tags\na,x\n"b,x\nc,y\n', 3),
        # Opened in the second line of its row, behind a field that is closed.
        ('text,tags\n"a\n""b",x\n"c\nd","x\ny\n', 4),
        ('text,tags\na,"x', 2),
        ('text,tags\n"Fences" a play,x\n', 2),
    ],
)
def test_a_quote_that_is_not_closed(tmp_path, content, line):
    with pytest.raises(ValueError, match=rf"d\.csv, line {line}: .*quotes"):
        read(tmp_path / "d.csv", content)


@pytest.mark.parametrize("end", [".csv", ".tsv"])
@pytest.mark.parametrize("fields, count", [(["a"], 1), (["a", "x", "y"], 3)])
def test_rows_with_too_few_or_too_many_fields(tmp_path, end, fields, count):
    mark = "," if end == ".csv" else "\t"
    rows = [["text", "tags"], ["b", "x"], [], fields, ["c", "y"]]
    content = "\n".join(map(mark.join, rows))
    message = rf"row 2 \(line 4\): must have the 2 fields.*: {count} fields"
    with pytest.raises(ValueError, match=message):
        read(tmp_path / f"d{end}", content)


@pytest.mark.parametrize("opener", [open, gzip.open, bz2.open])
def test_bytes_that_are_not_utf8(tmp_path, opener):
    """They were replaced, and three tags became one."""
    ends = {gzip.open: ".gz", bz2.open: ".bz2"}
    path = tmp_path / f"d.csv{ends.get(opener, '')}"
    with opener(path, "wb") as f:
        f.write("text,tags\nb,\u00c4\ngr\u00fcn,\u00d6\n".encode("cp1252"))
    message = r"line 2: byte 0xc4 cannot be read as UTF-8.*encoding="
    with pytest.raises(ValueError, match=message):
        readers.read(path, ["text"], "tags")
    texts, tags = readers.read(path, ["text"], "tags", encoding="cp1252")
    assert texts == {"text": ["b", "gr\u00fcn"]}
    assert tags == [["\u00c4"], ["\u00d6"]]


@pytest.mark.parametrize(
    "encoding", ["utf-16", "utf-16-le", "utf-8", "GB18030"]
)
def test_encodings(tmp_path, encoding):
    content = "\ufefftext,tags\r\n\u4e2d,x\r\n".encode(encoding)
    found = read(tmp_path / "d.csv", content, encoding=encoding)
    assert found == ({"text": ["\u4e2d"]}, [["x"]])


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32"])
def test_files_of_utf16_say_so(tmp_path, encoding):
    content = "text,tags\na,x\n".encode(encoding)
    for name in ("d.csv", "d.txt"):
        with pytest.raises(ValueError, match=f"{name}.*encoding=.{encoding}"):
            read(tmp_path / name, content)
    with pytest.raises(ValueError, match='NULs: try encoding="utf-16"'):
        read(tmp_path / "d.csv", content[4:] + b"\0\0")


@pytest.mark.parametrize("encoding", ["latin-7000", "base64", "", None, 8])
def test_encodings_that_are_none(tmp_path, encoding):
    with pytest.raises(ValueError, match="`encoding` must be the name"):
        read(tmp_path / "d.csv", "text,tags\n", encoding=encoding)


@pytest.mark.parametrize(
    "name, content",
    [
        ("d.csv", b'"text",tags\nf1,2\n'),
        ("d.tsv", b"text\ttags\nf1\t2\n"),
        ("d.jsonl", b'{"text": "f1", "tags": "2"}\n'),
        ("d.txt", b"1 2 3\n2 1:1\n"),
    ],
)
def test_a_byte_order_mark_is_dropped(tmp_path, name, content):
    found = read(tmp_path / name, UTF8_MARK + content)
    assert found == ({"text": ["f1"]}, [["2"]])


@pytest.mark.parametrize(
    "tags, expected",
    [
        ('[null, "a", NaN, ""]', ["a"]),
        ("null", []),
        ("NaN", []),
        ('""', []),
        ('"R&B|Soul"', ["R&B|Soul"]),
        ('[" a "]', [" a "]),
    ],
)
def test_tags_of_json(tmp_path, tags, expected):
    """Null and NaN were tags named "None" and "nan"."""
    content = f'{{"text": "x", "tags": {tags}}}\n'
    assert read(tmp_path / "d.jsonl", content)[1] == [expected]


@pytest.mark.parametrize("value", ["1", "1.5", "true", '{"a": 1}', '[["a"]]'])
def test_tags_of_json_that_are_no_str(tmp_path, value):
    row = '{"text": "x", "tags": "a"}\n'
    content = row + row.replace('"a"', value)
    message = "d.jsonl, line 2, column 'tags': a tag must be a str"
    with pytest.raises(ValueError, match=message):
        read(tmp_path / "d.jsonl", content)


@pytest.mark.parametrize(
    "value, shown", [("null", "null"), ("NaN", "nan"), ("7", "7"), ("[]", "[")]
)
def test_texts_of_json_that_are_no_str(tmp_path, value, shown):
    content = f'\n{{"text": {value}, "tags": "a"}}\n'
    message = f"line 2, column 'text': a text must be.*: {re.escape(shown)}"
    with pytest.raises(ValueError, match=message):
        read(tmp_path / "d.jsonl", content)


@pytest.mark.parametrize(
    "content, message",
    [
        ('{"text": "a", "text": "b"}', "line 1: no JSON.*twice: .'text'"),
        ("[" * 100_000, "line 1: no JSON"),
        ('{"text": ' + "1" * 5000 + "}", "line 1"),
        ('[\n{"text": "a"}\n]', "line 1: no JSON"),
    ],
)
def test_lines_that_are_no_objects(tmp_path, content, message):
    with pytest.raises(ValueError, match=message):
        read(tmp_path / "d.jsonl", content + "\n")


@pytest.mark.parametrize("name", ["d.csv", "d.tsv"])
def test_headers(tmp_path, name):
    mark = "," if name == "d.csv" else "\t"
    assert read(tmp_path / name, f"text{mark}tags") == ({"text": []}, [])
    with pytest.raises(ValueError, match="is empty; the first line must be"):
        read(tmp_path / name, "")
    with pytest.raises(ValueError, match="has 2 columns 'text'"):
        read(tmp_path / name, mark.join(["text", "text", "tags"]))
    found = read(
        tmp_path / name, f"a{mark}a{mark}text\n1{mark}2{mark}3\n", None
    )
    assert found == ({"text": ["3"]}, None)


def test_line_ends_and_nuls(tmp_path):
    content = 'text,tags\r\n"a\r\nb\0c",x\r\n\r\nd,y\r\n'
    found = read(tmp_path / "d.csv", content)
    assert found == ({"text": ["a\r\nb\0c", "d"]}, [["x"], ["y"]])


@pytest.mark.parametrize(
    "separator, expected",
    [("|", ["a;b", "c, d"]), (";", ["a", "b|c, d"]), ("", ["a;b|c, d"])],
)
def test_separators(tmp_path, separator, expected):
    for name, quote in (("d.csv", '"'), ("d.tsv", "")):
        mark = "," if quote else "\t"
        content = f"text{mark}tags\nx{mark}{quote}a;b|c, d{quote}\n"
        found = read(tmp_path / name, content, separator=separator)
        assert found[1] == [expected]


@pytest.mark.parametrize("end", [".gz", ".xz", ".bz2"])
def test_packed_files_that_are_damaged(tmp_path, end):
    opener = {".gz": gzip.open, ".xz": lzma.open, ".bz2": bz2.open}[end]
    with opener(tmp_path / "whole", "wb") as f:
        f.write(b"text,tags\n" + b"a,b\n" * 1000)
    whole = (tmp_path / "whole").read_bytes()
    for content in (whole[: len(whole) // 2], b"text,tags\n"):
        for name in (f"d.csv{end}", f"d.txt{end}"):
            with pytest.raises(ValueError, match=f"{name} is damaged"):
                read(tmp_path / name, content)


def test_every_packing_of_the_xc_format(tmp_path):
    content = b"1 2 3\n2 1:1\n"
    for opener, end in (
        (gzip.open, "gz"),
        (lzma.open, "xz"),
        (bz2.open, "bz2"),
    ):
        with opener(tmp_path / f"d.xc.{end}", "wb") as f:
            f.write(content)
        found = readers.read(tmp_path / f"d.xc.{end}", ["text"], "tags")
        assert found == ({"text": ["f1"]}, [["2"]])


def test_a_line_of_the_xc_format_that_is_damaged(tmp_path):
    """It was an error of TensorFlow, which the command line did not catch."""
    with pytest.raises(ValueError, match=r"d\.txt, line 3: value 'x'"):
        read(tmp_path / "d.txt", "2 2 3\n2 1:1\n1 0:x\n")


def test_values_of_the_xc_format(tmp_path):
    """They were rounded to counts of words; negative ones were dropped."""
    path = tmp_path / "d.xc"
    write_xc(path, [([1], [(0, -1.5), (1, 0.2), (2, 0.0)])], 3, 2)
    assert readers.read(path, ["text"])[0] == {"text": ["f0:-1.5 f1:0.2"]}


@pytest.mark.parametrize("scale", [1.0, 1000.0])
def test_tagger_learns_from_values(tmp_path, scale):
    """Accuracy was 0.54: each value was one word."""
    values = np.random.default_rng(0).uniform(-1, 1, 600)
    rows = [([int(x > 0.2)], [(0, x * scale), (1, scale)]) for x in values]
    write_xc(tmp_path / "d.xc", rows, 2, 2)
    texts, tags = readers.read(tmp_path / "d.xc", ["text"], "tags")
    fields = readers.fields_of(tmp_path / "d.xc", ["text"])
    tagger = Tagger(fields, effort="fast", verbose=0).fit(texts, tags)
    assert tagger.evaluate(texts, tags, ks=[1])["precision_at_1"] > 0.97
    # What is trained, predicted and served reads the same values.
    some = {"text": texts["text"][:5]}
    ids, found = tagger.features(some)
    assert found.shape == (5, 2)
    np.testing.assert_allclose(
        np.sort(found), np.sort(scaled(values[:5])), rtol=1e-5
    )
    served = tagger.model({"text": tf.constant(some["text"])}).numpy()
    for own, answers in zip(served, tagger.predict(some, k=2)):
        by_tag = dict(answers)
        expected = [by_tag[tag] for tag in tagger.tags]
        # A margin of -32 has an error of 32 times 6e-8 in each of two
        # programs, and its probability this relative error.
        np.testing.assert_allclose(own, expected, rtol=1e-5)


def scaled(values):
    """Rows of a value and 1, scaled as the tagger does in the test above."""
    all_values = np.random.default_rng(0).uniform(-1, 1, 600)
    norm = np.sqrt(np.mean(all_values**2 + 1))
    return np.stack([values, np.ones_like(values)], axis=1) / norm
