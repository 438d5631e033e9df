"""The example on a few occupations."""

import lzma

from examples import two_towers


def write(path, rows):
    with lzma.open(path, "wt", encoding="utf8") as file:
        file.writelines("\t".join(row) + "\n" for row in rows)
    return path


def test_end_to_end(monkeypatch, tmp_path):
    """Titles are found by a word that only their occupation has."""
    monkeypatch.setattr(two_towers, "WIDTH", 64)
    monkeypatch.setattr(two_towers, "NUM_SAMPLED", 16)
    # Runs of characters are tested with `TextFeatures`.
    monkeypatch.setattr(two_towers, "FIELDS", two_towers.FIELDS[:1])
    works = "baker welder singer farmer tailor barber jockey potter".split()
    occupations = [
        [
            f"id{number}",
            "1",
            work,
            f"{work} | head {work} | {work} of bread | junior {work}",
            f"A {work} works with care.",
        ]
        for number, work in enumerate(works)
    ]
    titles = [[f"night {x}", f"id{i}"] for i, x in enumerate(works)]
    hits = two_towers.main(
        write(tmp_path / "occupations.tsv.xz", occupations),
        write(tmp_path / "titles.tsv.xz", [*titles, ["other", "id99"]]),
        k=3,
    )
    assert hits[0] > 0.8
