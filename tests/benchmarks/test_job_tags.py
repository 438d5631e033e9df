"""What the jobs with tags read, and how answers are judged."""

import json

import numpy as np

from benchmarks.jobs import laws_by_year
from benchmarks.jobs import tags as job_tags


def test_rows_of_short_texts(tmp_path):
    path = tmp_path / "names.tsv"
    path.write_text("".join(f"名{i}\ttag{i % 3}\n" for i in range(50)))
    (texts, tags), test = job_tags.read_short_texts(str(path))
    assert len(texts) == len(tags) == 45 and len(test[0]) == 5
    assert tags[0][0].startswith("tag") and not {*texts} & {*test[0]}


def test_hits_and_precision():
    best, tags = [["a", "b"], ["b", "c"]], [["a"], ["b"], ["b"]]
    hits = job_tags.scores(best, [{"a"}, {"c"}], tags, (1, 2), by_hit=True)
    assert hits == {"hit@1": 0.5, "hit@2": 1.0}
    found = job_tags.scores(best, [{"a"}, {"c"}], tags, (1, 2), by_hit=False)
    assert (found["P@1"], found["P@2"]) == (0.5, 0.5)
    assert 0 < found["PSP@1"] < 0.5 < found["PSP@2"]


def test_rows_of_two_columns_for_omikuji(tmp_path):
    columns = {"title": ["Red", "Blue"], "text": ["apple", "sky"]}
    train = columns, [["fruit"], ["sky", "air"]]
    terms = {"token_pattern": r"\w+"}
    arrays, names = job_tags.prepared(train, ["red sky"], terms)
    assert names == ["air", "fruit", "sky"] and arrays["num_labels"] == 3
    assert arrays["y_0"].tolist() == [0, 1, 3]
    assert arrays["y_1"].tolist() == [1, 2, 0]
    # "red" is in the first text, "sky" in the second.
    splits, columns = arrays["x_0"], arrays["x_1"]
    of_text = [set(columns[a:b]) for a, b in zip(splits, splits[1:])]
    asked = set(arrays["test_x_1"])
    assert [len(asked & ids) for ids in of_text] == [1, 1]
    np.testing.assert_allclose(np.sum(arrays["x_2"] ** 2), 2, rtol=1e-5)


def test_half_of_the_entries_of_industries(tmp_path):
    items = [{"code": 11, "index": ["corn", "rye"]}, {"code": 12}]
    items += [{"code": 13, "index": ["cows", "pigs", "goats", "sheep"]}]
    (tmp_path / "naics-2012.json").write_text(json.dumps({"items": items}))
    train, test = job_tags.read_industries(str(tmp_path))
    assert len(train[0]) == len(test[0]) == 3
    tags = dict(zip(train[0] + test[0], train[1] + test[1]))
    assert tags["rye"] == ["11"] and tags["goats"] == ["13"] and len(tags) == 6


def test_laws_in_the_order_of_time(tmp_path):
    """26 laws: 13 are learned first, then batches of two."""
    for part in ("train", "dev", "test"):
        (tmp_path / part).mkdir()
    for number in range(26):
        law = {
            "celex_id": f"3{1990 + number % 2}{'RLD'[number % 3]}{number:04}",
            "title": f"law {number}",
            "recitals": "whereas",
            "main_body": ["one", "two"],
            "concepts": [str(number)],
        }
        path = tmp_path / ("train", "dev", "test")[number % 3]
        (path / f"{number}.json").write_text(json.dumps(law))
    (texts, tags), _ = job_tags.read_laws(str(tmp_path))
    assert list(texts) == ["title", "text"] and tags[0] == ["0"]
    assert texts["text"][0] == "whereas one two"
    first, *batches = laws_by_year.read(str(tmp_path))
    assert [row[0] for row in first] == [f"law {2 * i}" for i in range(13)]
    assert [len(batch) for batch in batches] == [2] * 6
    assert batches[-1][-1][0] == "law 23"
