"""The example on a few occupations."""

import lzma

from examples import job_titles


def write(path, rows):
    with lzma.open(path, "wt", encoding="utf8") as f:
        f.writelines("\t".join(row) + "\n" for row in rows)


def test_titles_find_their_occupation(tmp_path, capsys):
    jobs = {"a": "baker", "b": "welder", "c": "teacher"}
    write(
        tmp_path / "occupations.tsv.xz",
        [(x, "1", job, f"{job} | head {job}", "") for x, job in jobs.items()],
    )
    places = [f"{x} {y}" for x in ("in", "near") for y in "pqrstuvwxy"]
    titles = [(f"{job} {p}", x) for x, job in jobs.items() for p in places]
    write(tmp_path / "titles.tsv.xz", titles)
    names, _ = job_titles.read(tmp_path)
    assert len(names) == 6
    found = job_titles.main(tmp_path, verbose=0)
    assert found[1] == 1.0
    assert "hit at  1: 1.000" in capsys.readouterr().out
