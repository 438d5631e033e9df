"""The example on a few titles."""

import lzma

from examples import library_subjects


def test_subjects_of_titles(tmp_path, capsys):
    subjects = {"p1": "cats", "p2": "dogs", "p3": "bread"}
    lines = []
    for i in range(700):
        both = [f"p{1 + i % 3}", f"p{1 + (i // 3) % 3}"]
        title = " and ".join(subjects[x] for x in both)
        lines.append(f"{title} vol {i % 7}\t{' '.join(dict.fromkeys(both))}\n")
    with lzma.open(tmp_path / "titles_subjects.tsv.xz", "wt") as f:
        f.writelines(lines)
    with open(tmp_path / "labels.tsv", "w") as f:
        f.writelines(f"{key}\t{name}\n" for key, name in subjects.items())
    out = tmp_path / "served"
    found = library_subjects.main(tmp_path, 600, out, verbose=0)
    assert found["precision_at_1"] == 1.0
    assert found["recall_at_5"] == 1.0
    printed = capsys.readouterr().out
    assert "with next month's: 100.0% of the first subjects" in printed
    assert "'cats'" in printed and (out / "1" / "saved_model.pb").exists()
