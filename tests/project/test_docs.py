"""The site: every page is in it, links hold, and code runs as printed."""

import json
import pathlib
import re
import shlex
import shutil
import subprocess
import types

import keras
import numpy as np
import pytest
import yaml

import tfxclass
import tfxclass_cli as cli
from tests.project.test_readme import ROOT
from tests.project.test_readme import blocks_of
from tests.support.cases import quick
from tests.support.docs_scripts import missing_names
from tests.support.docs_scripts import script
from tests.support.docs_scripts import site

DOCS = ROOT / "docs"


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
    pages = site()
    for module, groups in pages.GROUPS.items():
        names = [name for group in groups.values() for name in group]
        hidden = pages.LEFT_OUT.get(module, set())
        assert sorted(names) == sorted({*pages.public_names(module)} - hidden)
        for name in names:
            assert hasattr(getattr(tfxclass, module), name), (module, name)
            assert pages.summary(module, name), (module, name)


def test_entries_are_of_objects_and_not_of_modules():
    """The page of `advise` had the docstring of its module."""
    pages = site()
    assert pages.full_name("advice.advise") == "tfxclass.advice.advise.advise"
    assert pages.full_name("text.Tagger") == "tfxclass_text.Tagger"
    assert pages.full_name("layers.Cosine") == "tfxclass.layers.Cosine"


def test_all_modules_and_functions_have_a_page():
    pages = site()
    names = {name for group in pages.TOP_LEVEL.values() for name in group}
    assert {*tfxclass.__all__} == {*names, *pages.MODULES}


def test_members_of_the_api_are_there():
    for path, members in site().MEMBERS.items():
        target = tfxclass
        for part in path.split("."):
            target = getattr(target, part)
        for name in members:
            assert getattr(target, name).__doc__, (path, name)


def test_a_link_that_leads_nowhere_is_told(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("[one](page.md#here), [two](missing.md), [web](http://x)")
    assert site().links_of(page) == ["page.md", "missing.md"]
    with pytest.raises(FileNotFoundError, match="missing.md"):
        site().linked_files([page])


@pytest.mark.parametrize(
    "text, expected",
    [
        ('[project]\nname = "a"\n', None),
        ('[project.urls]\nIssues = "http://a/b"\n[x]\nSource = "c"\n', None),
        (
            '[project.urls]\n\nIssues = "x"\nRepository = "http://a"\n',
            "http://a",
        ),
    ],
)
def test_the_repository_is_linked_if_there_is_one(text, expected):
    assert script("site_hooks").repository_of(text) == expected


def anchors_of(page):
    titles = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf8"), re.M)
    kept = [re.sub(r"[^\w\- ]", "", title.lower()) for title in titles]
    return {title.strip().replace(" ", "-") for title in kept}


def test_anchors_are_there():
    for page in [ROOT / "README.md", *DOCS.rglob("*.md")]:
        text = page.read_text(encoding="utf8")
        for path, anchor in re.findall(r"\]\(([^)#\s:]*)#([^)\s]+)\)", text):
            target = page.parent / path if path else page
            assert anchor in anchors_of(target), (page.name, path, anchor)


def heads():
    random = np.random.default_rng(0)
    return {
        "keras": keras,
        "tfxclass": tfxclass,
        "x": random.normal(size=(64, 8)).astype("f4"),
        "y": random.integers(0, 1_000, 64),
    }


def reverse_dictionary():
    def make_models(_path, _idf, head):
        model = keras.Sequential([keras.Input([8]), head])
        return model, model

    class Batches(keras.utils.PyDataset):
        def __len__(self):
            return 1

        def __getitem__(self, index):
            return np.eye(16, 8, dtype="f4"), np.arange(16)

    names = {
        "tfxclass": tfxclass,
        "make_models": make_models,
        "batches": Batches(),
        "words": [f"word{i}" for i in range(147_306)],
        "out": "words",
    }
    return {**names, "vocabulary_path": None, "idf": None}


def works_with():
    pytest.importorskip("sklearn")
    vector = " ".join(["0.5"] * 16)
    pathlib.Path("wiki.en.vec").write_text(f"1 16\npear {vector}\n")
    random = np.random.default_rng(0)
    weight, bias = random.normal(size=(1_000, 16)), np.zeros(1_000)
    return {"linear": types.SimpleNamespace(weight=weight, bias=bias)}


#: Pages with Python, and the names that it begins with.
PAGES = {
    "docs/addons.md": dict,
    "docs/calibration.md": dict,
    "docs/choosing.md": dict,
    "docs/devices.md": dict,
    "docs/exact.md": dict,
    "docs/growing.md": dict,
    "docs/heads.md": heads,
    "docs/identities.md": dict,
    "docs/language_models.md": dict,
    "docs/local_sgd.md": dict,
    "docs/long_tails.md": dict,
    "docs/next_item.md": dict,
    "docs/recovery.md": dict,
    "docs/retrieval.md": dict,
    "docs/scale.md": dict,
    "docs/tagging.md": dict,
    "docs/two_towers.md": dict,
    "docs/watching.md": dict,
    "docs/works_with.md": works_with,
    "examples/reverse_dictionary/README.md": reverse_dictionary,
}
#: Those of tests/project/test_readme.py.
OTHERS = {"README.md", "serving/README.md"}


def pages():
    """Paths of the site's pages but the API, from the root."""
    first = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
    files = site().linked_files(first)
    found = [path for path in files if path.suffix == ".md"]
    return sorted(str(path.relative_to(ROOT)) for path in found)


def test_all_pages_with_code_are_run():
    assert {page for page in pages() if blocks_of(page)} == {*PAGES, *OTHERS}


@pytest.mark.parametrize("page", PAGES)
def test_what_code_names_is_there(page):
    assert missing_names("\n".join(blocks_of(page))) == []


def test_missing_names_are_told():
    code = "tfxclass.layers.FullSoftmax(9, no=1)\ntfxclass.top_n(m, k=1)"
    found = missing_names(code)
    assert found == ["tfxclass.top_n", "tfxclass.layers.FullSoftmax(no=...)"]


@pytest.mark.parametrize("page", quick(PAGES, ("docs/scale.md",)))
def test_code_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if page == "docs/watching.md":
        pytest.importorskip("matplotlib").use("agg")
        import matplotlib.pyplot as plt

        plt.close("all")  # of other tests
    names = PAGES[page]()
    for code in blocks_of(page):
        exec(code, names)  # noqa: S102
    if page == "docs/watching.md":
        assert len(plt.get_fignums()) == 3
        plt.close("all")


FENCED = re.compile(r"^```([^\n]*)\n(.*?)^```$", re.M | re.S)
# After a blank line, and in no list.
INDENTED = re.compile(r"^(?![-*\d ]).*\n\n    \S", re.M)


@pytest.mark.parametrize("page", pages())
def test_no_block_is_left_out(page):
    """Each says what it is; commands name what there is."""
    text = (ROOT / page).read_text(encoding="utf8")
    for kind, code in FENCED.findall(text):
        assert kind in ("python", "sh", "json", "text"), code
        if kind == "json":
            json.loads(code)
        if kind == "sh":
            check_commands(code)
    # Indented blocks say nothing of what they are.
    assert not INDENTED.search(FENCED.sub("", text))


MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf8")
#: Commands whose arguments are not of this repository.
FOREIGN = {"curl", "docker", "kubectl", "pip", "python3", "tfxclass-serve"}


def check_commands(code):
    for line in code.replace("\\\n", " ").splitlines():
        words = line.split("#")[0].split()
        # That of an environment, too.
        words[:1] = [pathlib.PurePath(word).name for word in words[:1]]
        if not words or words[0] in FOREIGN:
            continue
        line = " ".join(words)
        match words:
            case ["make", target, *_]:
                assert re.search(rf"^{target}:", MAKEFILE, re.M), line
            case ["python", "-c", *_]:
                pass
            case ["python", "-m", module, *_]:
                path = ROOT / module.replace(".", "/")
                assert path.is_dir() or path.with_suffix(".py").exists(), line
            case ["python", path, *_]:
                assert (ROOT / path).exists(), line
            case ["pytest", *rest]:
                for name in rest:
                    is_path = name.startswith("tests/")
                    assert not is_path or list(ROOT.glob(name)), line
            case ["tfxclass", *_]:
                cli.parser().parse_args(shlex.split(line)[1:])
            case _:
                pytest.fail(f"Is this a command? {line}")


def test_commands_that_are_not_there():
    for code in ("make no", "python -m tests.no", "python no.py", "pytets"):
        with pytest.raises((AssertionError, pytest.fail.Exception)):
            check_commands(code)
    with pytest.raises(SystemExit):
        check_commands("tfxclass tag fit a.jsonl \\\n  --no b")


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
