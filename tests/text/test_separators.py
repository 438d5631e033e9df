"""Which separator the tags of a CSV or TSV file have."""

import pytest

from tfxclass.text import Tagger
from tfxclass.text import TextFile
from tfxclass.text import readers
from tfxclass.text.separators import other_separator

TAGS = ["food, cake", "animal", "animal, food", "cake", "cake, animal"]
PLACES = ["Paris, Texas", "London, Ontario", "Rome, Georgia"] * 9


@pytest.mark.parametrize("separator", [",", ";", "|"])
def test_another_separator_is_found(separator):
    fields = [x.replace(",", separator) for x in TAGS]
    given = ";" if separator == "|" else "|"
    assert other_separator(fields, given) == separator
    assert other_separator(fields, separator) is None


@pytest.mark.parametrize(
    "fields, separator",
    [
        (["animal", "food"], "|"),
        (PLACES, "|"),
        ([*TAGS, "animal|cake"], "|"),
        (TAGS, ""),
        (["a"] * 30 + TAGS[:3], "|"),
        ([], "|"),
    ],
    ids=["single", "names", "both", "one_tag", "few", "none"],
)
def test_ordinary_tags(fields, separator):
    assert other_separator(fields, separator) is None


def test_a_file_is_checked_once(tmp_path):
    path = tmp_path / "train.tsv"
    path.write_text("text\ttags\n" + "".join(f"a\t{x}\n" for x in TAGS))
    message = r"train.tsv.*'\|'.*'food, cake' is read as one tag.*separator=','"
    file = TextFile(path, "text", "tags")
    with pytest.warns(UserWarning, match=message):
        Tagger(effort="fast", verbose=0).fit(file)
    # Warnings are errors here.
    list(file)
    texts, tags = readers.read(path, "text", "tags", separator=",")
    assert texts == {"text": ["a"] * 5} and tags[0] == ["food", "cake"]
