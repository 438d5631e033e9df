"""Rows of a language model's run."""

import pytest

from benchmarks import language_model as benchmark
from examples import next_word

# A script of benchmarks, which no user runs.
pytestmark = pytest.mark.slow


def test_rows_are_trained_once(monkeypatch, tmp_path):
    text = " ".join(f"a b c{i % 7}" for i in range(200))
    for part in next_word.PARTS:
        (tmp_path / f"{part}.txt").write_text(text)
    cache = str(tmp_path / "cache")
    monkeypatch.setattr(benchmark.measure, "CACHE", cache)
    saved = {}
    monkeypatch.setattr(
        benchmark.measure,
        "save",
        lambda name, rows, keys: saved.update({name: rows}),
    )
    size = benchmark.Size(6, 5, 0.0, 0.1, 5.0, 4, 2.0, 4)
    monkeypatch.setattr(benchmark, "SIZES", {"small": size})
    trained = []
    train = benchmark.train

    def counted(model, data, size, epoch):
        trained.append(epoch)
        return train(model, data, size, epoch)

    monkeypatch.setattr(benchmark, "train", counted)
    # The lift begins with two epochs of RP.
    for rows in "sampled", "RP", "RP lift":
        trained.clear()
        options = f"--data {tmp_path} {rows} --epochs 3 --slim_epochs 2"
        benchmark.main(options.split())
        assert trained == [1, 2, 3]
    rows = saved["penn_treebank_small"]
    found = {(row["row"], row["epoch"]): row["test"] for row in rows}
    names = [("RP", epoch) for epoch in (1, 2, 3)]
    assert [*found] == [*names, ("lift", 2), ("lift", 3)]
    # The lift has RP's answers.
    assert found["lift", 2] == pytest.approx(found["RP", 2], rel=1e-4)
