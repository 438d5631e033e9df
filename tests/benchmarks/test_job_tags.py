"""The baseline of the jobs with tags, and what a job reads."""

from benchmarks.jobs import _tags
from benchmarks.jobs import short_texts


def test_tags_of_the_nearest_texts():
    tags = [["あきこ"], ["あきこ"], ["ゆきお"], ["ゆきお"]]
    train = ["明子", "昭子", "雪男", "行男"], tags
    best, found = _tags.nearest(train, ["秋子", "幸男"], 2, short_texts.TERMS)
    assert best == [["あきこ"], ["ゆきお"]] and found["CPU s"] < 10


def test_rows_of_short_texts(tmp_path):
    path = tmp_path / "names.tsv"
    path.write_text("".join(f"名{i}\ttag{i % 3}\n" for i in range(50)))
    (texts, tags), test = short_texts.read(str(path), 20)
    assert len(texts) == len(tags) == 20 and len(test[0]) == 5
    assert tags[0][0].startswith("tag") and not {*texts} & {*test[0]}
