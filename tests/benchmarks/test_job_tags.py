"""The baseline of the jobs with tags, and what a job reads."""

from benchmarks.jobs import tags as job_tags


def test_tags_of_the_nearest_texts():
    tags = [["あきこ"], ["あきこ"], ["ゆきお"], ["ゆきお"]]
    train = ["明子", "昭子", "雪男", "行男"], tags
    terms = job_tags.JOBS["short_texts"].terms
    best, found = job_tags.nearest(train, ["秋子", "幸男"], 2, terms)
    assert best == [["あきこ"], ["ゆきお"]] and found["CPU s"] < 10


def test_rows_of_short_texts(tmp_path):
    path = tmp_path / "names.tsv"
    path.write_text("".join(f"名{i}\ttag{i % 3}\n" for i in range(50)))
    (texts, tags), test = job_tags.read_short_texts(str(path), 20)
    assert len(texts) == len(tags) == 20 and len(test[0]) == 5
    assert tags[0][0].startswith("tag") and not {*texts} & {*test[0]}


def test_hits_and_precision():
    best, tags = [["a", "b"], ["b", "c"]], [["a"], ["b"], ["b"]]
    hits = job_tags.scores(best, [{"a"}, {"c"}], tags, (1, 2), by_hit=True)
    assert hits == {"hit@1": 0.5, "hit@2": 1.0}
    found = job_tags.scores(best, [{"a"}, {"c"}], tags, (1, 2), by_hit=False)
    assert (found["P@1"], found["P@2"]) == (0.5, 0.5)
    assert 0 < found["PSP@1"] < 0.5 < found["PSP@2"]
