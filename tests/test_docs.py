"""The site: every page is in it, links hold, and code runs as printed."""

import importlib.util
import pathlib
import re
import shutil
import subprocess
import types

import keras
import numpy as np
import pytest
import yaml

import tfxclass
from tests.cases import quick
from tests.test_readme import ROOT
from tests.test_readme import blocks_of

DOCS = ROOT / "docs"


def site():
    """The module docs/site.py."""
    spec = importlib.util.spec_from_file_location("site", DOCS / "site.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def pages_of(nav):
    if isinstance(nav, str):
        return [nav]
    nested = nav.values() if isinstance(nav, dict) else nav
    return [page for part in nested for page in pages_of(part)]


def test_every_page_is_in_the_nav_once(tmp_path):
    site().write(tmp_path)
    written = {
        str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.md")
    }
    config = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf8"))
    listed = pages_of(config["nav"])
    assert sorted(listed) == sorted(written)
    api = (tmp_path / "api" / "layers.md").read_text(encoding="utf8")
    assert "::: tfxclass.layers.SelectiveSoftmax\n" in api


def test_names_of_the_api_are_there():
    for module in site().MODULES:
        names = site().public_names(module)
        assert names, module
        for name in names:
            assert hasattr(getattr(tfxclass, module), name), (module, name)


def test_a_link_that_leads_nowhere_is_told(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("[one](page.md#here), [two](missing.md), [web](http://x)")
    assert site().links_of(page) == ["page.md", "missing.md"]
    with pytest.raises(FileNotFoundError, match="missing.md"):
        site().linked_files([page])


def anchors_of(page):
    titles = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf8"), re.M)
    kept = [re.sub(r"[^\w\- ]", "", title.lower()) for title in titles]
    return {title.strip().replace(" ", "-") for title in kept}


def test_anchors_are_there():
    for page in [ROOT / "README.md", *DOCS.glob("*.md")]:
        text = page.read_text(encoding="utf8")
        for path, anchor in re.findall(r"\]\(([^)#\s:]*)#([^)\s]+)\)", text):
            target = page.parent / path if path else page
            assert anchor in anchors_of(target), (page.name, path, anchor)


def long_tails():
    """What the page takes for granted."""
    random = np.random.default_rng(0)
    x = random.normal(size=(64, 8)).astype("float32")
    y = random.integers(0, 100_000, 64)
    encoder = keras.layers.Dense(4)
    head = tfxclass.layers.FullSoftmax(100_000)
    names = {"keras": keras, "tfxclass": tfxclass, "x": x, "y": y}
    return {
        **names,
        "counts": np.arange(1, 51),
        "num_classes": 50,
        "encoder": encoder,
        "teacher": keras.Sequential([keras.Input([8]), encoder, head]),
    }


#: Pages of docs/ with Python, and the names that it begins with.
PAGES = {
    "addons": dict,
    "devices": dict,
    "identities": dict,
    "language_models": dict,
    "local_sgd": dict,
    "long_tails": long_tails,
    "watching": dict,
}


def test_all_pages_with_code_are_run():
    with_code = {p.stem for p in DOCS.glob("*.md") if blocks_of(p)}
    assert with_code == set(PAGES)


@pytest.mark.parametrize("page", quick(PAGES, ("identities",)))
def test_code_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if page == "watching":
        pytest.importorskip("matplotlib").use("agg")
    names = PAGES[page]()
    for code in blocks_of(DOCS / f"{page}.md"):
        exec(code, names)  # noqa: S102
    if page == "watching":
        import matplotlib.pyplot as plt

        assert len(plt.get_fignums()) == 3
        plt.close("all")


EXAMPLES = [
    path.name
    for path in sorted((ROOT / "examples").glob("*.py"))
    if path.name != "__init__.py"
]


def docs_tool(name):
    """A command of `make docs`' environment; skips where it is not made."""
    folder = ROOT / ".docs" / "bin"
    found = shutil.which(name, path=f"{folder}") or shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed: make docs")
    return found


@pytest.mark.slow
def test_the_site_is_built_without_a_warning():
    docs_tool("mkdocs")
    done = subprocess.run(
        ["make", "docs"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert (ROOT / "build" / "site" / "api" / "layers" / "index.html").exists()


@pytest.mark.slow
@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_is_a_notebook(name, tmp_path):
    """Text and code in turn, and all code runs but the call of `main`."""
    import json

    path = tmp_path / "example.ipynb"
    command = [docs_tool("jupytext"), "--quiet", "--to", "notebook"]
    source = pathlib.Path(ROOT, "examples", name)
    subprocess.run([*command, "-o", path, source], check=True)
    cells = json.loads(path.read_text(encoding="utf8"))["cells"]
    kinds = [cell["cell_type"] for cell in cells]
    assert {"markdown", "code"} <= set(kinds)
    module = types.ModuleType("notebook")
    for cell in cells:
        if cell["cell_type"] == "code":
            exec("".join(cell["source"]), vars(module))  # noqa: S102
    assert callable(module.main)
