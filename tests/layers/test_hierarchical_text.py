"""The example on tiny data; the subjects' own hierarchy on the real one."""

import lzma

import numpy as np
import pytest

from examples import hierarchical_text
from tests.layers.test_lsh_extreme_text import topics
from tests.support import helpers


def write_tsv(path, rows):
    with lzma.open(path, "wt", encoding="utf8") as f:
        f.writelines("\t".join(map(str, row)) + "\n" for row in rows)


@pytest.fixture
def files(tmp_path):
    paths = [tmp_path / "train.txt.xz", tmp_path / "test.txt.gz"]
    for seed, (path, count) in enumerate(zip(paths, (600, 100))):
        helpers.write_xc(path, topics(count, seed), 130, 12)
    return [str(path) for path in paths]


def run(files, capsys):
    hierarchical_text.main([*files, "--epochs=8"])
    output = capsys.readouterr().out
    table = {}
    for line in output.splitlines()[1:]:
        # Depth, P@1, P@3, P@5, seconds.
        name, values = line[:16].strip(), line[16:].split()
        if len(values) == 5:
            table[name] = [float(value) for value in values]
    return output, table


@pytest.mark.slow
def test_end_to_end(files, capsys):
    output, table = run(files, capsys)
    assert list(table) == ["huffman", "clustered", "clustered, PLT"]
    for _, p_1, p_3, p_5, _ in table.values():
        # Two labels a row: the best possible are 1, 2/3, 2/5.
        assert 0.8 < p_1 <= 1 and 0.5 < p_3 <= 0.667 and p_5 <= 0.4
    assert float(output.split()[-1]) == table["clustered, PLT"][1]
    line = next(x for x in output.splitlines() if "likelier than not" in x)
    assert float(line.split()[4]) > 0.7


@pytest.mark.slow
def test_with_the_classes_own_hierarchy(files, tmp_path, capsys):
    # Three groups of four topics, and a concept without any.
    header = [("concept_id", "label", "parent_concept_ids")]
    groups = [(f"g{i}", "group", "") for i in range(3)]
    leaves = [(f"c{i}", "topic", f"g{i % 3}|g{(i + 1) % 3}") for i in range(12)]
    other = [("x", "of no class", "g0")]
    write_tsv(
        tmp_path / "eurovoc_tree.tsv.xz", header + groups + leaves + other
    )
    columns = ("index", "concept_id", "label", "alt_labels", "parents")
    subjects = [(i, f"c{i}", "topic", "", "") for i in range(12)]
    write_tsv(tmp_path / "labels.tsv.xz", [columns, *subjects])
    tree = hierarchical_text.eurovoc_tree(tmp_path)
    assert tree.num_nodes == 1 + 3 + 12
    parents = tree.parents[tree.leaves]
    assert all(
        (parents[a] == parents[b]) == (a % 3 == b % 3)
        for a in range(12)
        for b in range(12)
    )
    _, table = run(files, capsys)
    assert table["EuroVoc"][0] == 2 and table["EuroVoc"][1] > 0.8


def test_the_tree_of_eurovoc(shared_data):
    tree = hierarchical_text.eurovoc_tree(shared_data / "eurlex57k")
    assert tree.num_classes == 4271
    assert tree.depths().max() < 12 and tree.num_children.max() > 20
    np.testing.assert_array_equal(np.sort(tree.classes), np.arange(4271))
