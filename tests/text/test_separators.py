"""Which separator the tags of a CSV or TSV file have."""

import pytest

from tfxclass_text import Tagger
from tfxclass_text import TextFile
from tfxclass_text import readers
from tfxclass_text.separators import of_known_tags
from tfxclass_text.separators import other_separator

TAGS = ["food, cake", "animal", "animal, food", "cake", "cake, animal"]
PLACES = ["Paris, Texas", "London, Ontario", "Rome, Georgia"] * 9


@pytest.mark.parametrize("separator", [",", ";", "|"])
def test_another_separator_is_found(separator):
    fields = [x.replace(",", separator) for x in TAGS]
    given = ";" if separator == "|" else "|"
    found = other_separator(fields, given)
    assert found.separator == separator and not found.is_mixed
    assert other_separator(fields, separator) is None


@pytest.mark.parametrize(
    "fields, separator",
    [
        (["animal", "food"], "|"),
        (PLACES, "|"),
        ([*PLACES, "Paris|Rome"], "|"),
        (["R&amp;D", "tea|R&amp;D", "R&amp;D"] * 9, "|"),
        (["1,000", "1,000|N,N-dimethyl"] * 9, "|"),
        (TAGS, ""),
        (["a"] * 30 + TAGS[:3], "|"),
        ([], "|"),
    ],
    ids=[
        "single",
        "names",
        "both",
        "entity",
        "number",
        "one_tag",
        "few",
        "none",
    ],
)
def test_ordinary_tags(fields, separator):
    assert other_separator(fields, separator) is None


@pytest.mark.parametrize("separator", [", ", ",", ";"])
def test_some_rows_with_another_separator(separator):
    """Their parts are tags of other rows, or have no space between them."""
    fields = ["food|cake", "animal|food", "snow", "cake"] * 50
    joined = [x.replace(", ", separator) for x in TAGS]
    found = other_separator([*fields, *joined], "|")
    assert found.is_mixed and found.fields == 3
    assert found.separator == separator.strip()
    assert found.example == f"food{separator}cake"


@pytest.mark.parametrize("separator", [",", ";"])
def test_rare_tags_without_a_space(separator):
    """No tag occurs twice."""
    names = [chr(97 + i) * 3 for i in range(24)]
    fields = [separator.join(names[i : i + 2]) for i in range(0, 24, 2)]
    assert other_separator(fields, "|").separator == separator
    assert other_separator([*fields, "one|two"], "|").is_mixed


def test_a_wrong_separator_is_refused(tmp_path):
    path = tmp_path / "train.tsv"
    path.write_text("text\ttags\n" + "".join(f"a\t{x}\n" for x in TAGS))
    message = r"train.tsv.*'\|'.*'food, cake' is read as one tag.*separator=','"
    file = TextFile(path, "text", "tags")
    for _ in range(2):
        with pytest.raises(ValueError, match=message):
            Tagger(effort="fast", verbose=0).fit(file)
    # One tag a row is what the user insists on.
    _, tags = readers.read(path, "text", "tags", separator="")
    assert tags[0] == ["food, cake"]
    texts, tags = readers.read(path, "text", "tags", separator=",")
    assert texts == {"text": ["a"] * 5} and tags[0] == ["food", "cake"]


def test_a_file_of_two_separators(tmp_path):
    path = tmp_path / "train.tsv"
    rows = [*TAGS, "animal|food", "cake|food"]
    path.write_text("text\ttags\n" + "".join(f"a\t{x}\n" for x in rows))
    message = r"3 rows .* ',' between tags.* other rows have '\|': 'food, cake'"
    file = TextFile(path, "text", "tags")
    with pytest.warns(UserWarning, match=message):
        list(file)
    # Warnings are errors here, and a file is checked once.
    list(file)


@pytest.mark.parametrize("separator", [",", ";", "|"])
def test_unknown_tags_that_known_ones_make(separator):
    known = {"food", "cake", "animal"}
    unknown = [f"food{separator} cake", f"cake{separator}animal", "snow"]
    assert of_known_tags(unknown, known) == separator
    assert of_known_tags([*unknown, "ice"], known) is None
    assert of_known_tags(known, known) is None
