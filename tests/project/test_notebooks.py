"""The code of the notebooks runs, on less data than they have."""

import json
import pathlib

import pytest

from tests.support.cases import quick
from tests.support.docs_scripts import missing_names

FOLDER = pathlib.Path(__file__).parents[2] / "notebooks"
#: Other values of the names in the cell with the tag "parameters".
TINY = {
    "documents": {"NUM_TAGS": 20, "NUM_TEXTS": 200},
    "faces": {"NUM_PEOPLE": 20, "NUM_UNSEEN": 8, "IMAGES": 4, "EPOCHS": 1},
    "next_item": {"NUM_ITEMS": 200, "NUM_SESSIONS": 150, "EPOCHS": 1},
    "products": {
        "NUM_PRODUCTS": 80,
        "QUERIES_OF_PRODUCT": 2,
        "NUM_NEW": 5,
        "EPOCHS": 1,
    },
}


def cells_of(name):
    path = FOLDER / f"{name}.ipynb"
    return json.loads(path.read_text(encoding="utf8"))["cells"]


def test_each_notebook_has_a_test():
    assert sorted(TINY) == sorted(path.stem for path in FOLDER.glob("*.ipynb"))


@pytest.mark.parametrize("name", sorted(TINY))
def test_a_notebook_is_executed(name):
    """It has outputs and a figure, and names no folder of a machine."""
    cells = cells_of(name)
    assert {"markdown", "code"} == {cell["cell_type"] for cell in cells}
    outputs = [x for cell in cells for x in cell.get("outputs", [])]
    assert not [x for x in outputs if x["output_type"] == "error"]
    assert any("image/png" in x.get("data", {}) for x in outputs)
    texts = ["".join(x.get("text", [])) for x in outputs]
    assert any(texts) and "/work/" not in "".join(texts)


def code_of(name):
    """Its cells of code as one text."""
    cells = [x for x in cells_of(name) if x["cell_type"] == "code"]
    return "\n".join("".join(cell["source"]) for cell in cells)


@pytest.mark.parametrize("name", sorted(TINY))
def test_what_the_code_names_is_there(name):
    assert missing_names(code_of(name)) == []


# What "faces" does, the example of identities does, too. Class names, first
# class vectors and growth, which "products" has, are tested in tests/growth.
@pytest.mark.parametrize(
    "name", quick(sorted(TINY), ("documents", "next_item"))
)
def test_the_code_runs(name, tmp_path, monkeypatch):
    pytest.importorskip("matplotlib").use("agg")
    import matplotlib.pyplot as plt

    monkeypatch.chdir(tmp_path)
    names, changed = {}, set()
    for cell in cells_of(name):
        if cell["cell_type"] != "code":
            continue
        exec("".join(cell["source"]), names)  # noqa: S102
        if "parameters" in cell["metadata"].get("tags", []):
            assert TINY[name].keys() <= names.keys()
            names |= TINY[name]
            changed |= TINY[name].keys()
    assert changed == TINY[name].keys()
    plt.close("all")
