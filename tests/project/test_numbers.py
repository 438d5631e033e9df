"""Numbers on pages come from committed results, or a paper prints them."""

import sys

import pytest

from tests.project.test_readme import ROOT

TABLE = ROOT / "docs" / "numbers.json"


@pytest.fixture(scope="module")
def page_numbers():
    """The module, a script that imports its neighbors."""
    folder = str(ROOT / "benchmarks")
    sys.path.insert(0, folder)
    try:
        import page_numbers

        yield page_numbers
    finally:
        sys.path.remove(folder)
        for name in ("measure", "notes", "page_numbers"):
            sys.modules.pop(name, None)


def test_each_number_has_a_source(page_numbers):
    """Where it fails: python benchmarks/page_numbers.py."""
    left_out = page_numbers.load().get("not covered", {})
    assert all(left_out.values())
    wrong = {
        page: page_numbers.check(page_numbers.read(page), entry)
        for page, entry in page_numbers.pages().items()
        if page not in left_out
    }
    assert not {page: lines for page, lines in wrong.items() if lines}


def test_the_texts_of_the_papers_are_read(page_numbers):
    """Else numbers of papers are only looked for in the table."""
    if not (ROOT.parent / "shared" / "papers").is_dir():
        pytest.skip("no texts of papers: ../shared/papers does not exist")
    for path in (ROOT / "benchmarks" / "papers").glob("*.md"):
        entry = page_numbers.pages()[str(path.relative_to(ROOT))]
        assert page_numbers.paper_text(entry), path


def test_every_page_is_covered(page_numbers):
    """By the table, or it is made of a source that is checked.

    tests/benchmarks/test_results.py checks that report.py makes these pages.
    """
    table = page_numbers.load()
    guides = (ROOT / "docs").glob("*.md")
    pages = {"README.md", *(f"docs/{path.name}" for path in guides)}
    assert sorted(table["pages"]) == sorted(pages)
    sources = page_numbers.sources()
    assert table["sources"].keys() <= set(sources)
    for folder in ("benchmarks/papers", "benchmarks/pages/answers"):
        for path in (ROOT / folder).glob("*.md"):
            assert f"{folder}/{path.name}" in sources
    made = {path.name for path in (ROOT / "docs" / "papers").glob("*.md")}
    assert made == {
        path.name for path in (ROOT / "benchmarks" / "papers").glob("*.md")
    }


def test_exemptions_have_reasons(page_numbers):
    table = page_numbers.load()
    for kinds, pages in (
        ({"figures", "exempt"}, table["pages"]),
        ({"text", "exempt", "paper"}, table["sources"]),
    ):
        for page, entry in pages.items():
            assert entry.keys() <= kinds, page
            for kind in ("exempt", "paper"):
                assert all(entry.get(kind, {}).values()), page


PAGE = """
A step takes 14 ms, 2.5 times
as long, and finds 0.87 of them in `0.25 s`.

| head | ms | seed |
| --- | --- | --- |
| one | 1,676 | 3 |

<!-- table: plan -->

| head | ms |
| --- | --- |
| two | 5 |

<!-- end -->
"""


def test_which_numbers_need_a_source(page_numbers):
    spans = page_numbers.numbers_of(PAGE)
    found = [PAGE[begin:end] for begin, end in spans]
    assert found == ["14 ms", "2.5 times", "0.87", "1,676"]


def test_what_is_wrong_is_told(page_numbers, monkeypatch):
    rows = [{"method": "a", "ms": 14.2}, {"method": "b", "ms": 35.5}]
    monkeypatch.setattr(page_numbers.notes, "results", lambda name: rows)
    figures = {
        "takes {:.0f} ms, {:.1f} times as long": [
            "x ms: method=a",
            "x ms: method=b / method=a",
        ],
        "| one | {:,.0f} |": ["100 * x ms: method=a"],
    }
    exempt = {"finds 0.87 of them": "a definition"}
    told = page_numbers.check(PAGE, {"figures": figures, "exempt": exempt})
    assert len(told) == 2
    assert told[0] == "The page does not say: '| one | 1,420 |'"
    assert told[1].startswith("Line 7: no source for") and "1,676" in told[1]


def test_halves_may_be_rounded_either_way(page_numbers, monkeypatch):
    rows = [{"method": "a", "share": 41.55}]
    monkeypatch.setattr(page_numbers.notes, "results", lambda name: rows)
    figures = {"it has {:.1f}\n%": ["x share: method=a"]}
    for page in ("it has 41.5 %", "it has\n41.6 %"):
        assert not page_numbers.check(page, {"figures": figures})
    assert page_numbers.check("it has 41.4 %", {"figures": figures})


def test_results_name_their_command(page_numbers):
    with pytest.raises(ValueError, match="No results file for 'no'"):
        page_numbers.notes.value("no ms: method=a")


SOURCE = """
At n = 10 it loses {{x ms: method=a}} %, a rate of 0.25 (Table I), and 3 %.

| n | paper, F1 | ours | F1, % |
| --- | --- | --- | --- |
| 1,000 | .47 (51 min) | {{x f1: n=10}} | 46.1 |
| paper | 0.54 | | 77.7 |
"""
PAPER = "rate 0.25, n=10,100,1000; F1 0.47 and 0.54 in 51 min; 0.777"


@pytest.fixture
def paper(page_numbers, tmp_path, monkeypatch):
    """An entry whose paper is `PAPER`."""
    monkeypatch.setattr(page_numbers, "PAPERS", str(tmp_path))
    (tmp_path / "paper.txt").write_text(PAPER)
    return {
        "text": "paper.txt",
        "paper": {"a rate of 0.25": "Table I"},
        "exempt": {"and 3 %": "a bound", "| 46.1": "ours"},
    }


def test_numbers_of_a_paper(page_numbers, paper):
    (told,) = page_numbers.check(SOURCE, paper)
    assert told.startswith("Line 7: the paper does not print '77.7' in ")


@pytest.mark.parametrize(
    "right, wrong",
    [
        ("0.25", "0.26"),
        (".47", ".48"),
        ("51 min", "52 min"),
        ("0.54", "0.55"),
        ("3 %", "4 %"),
        ("46.1", "46.2"),
    ],
)
def test_a_changed_number_is_found(page_numbers, paper, right, wrong):
    before = page_numbers.check(SOURCE, paper)
    after = page_numbers.check(SOURCE.replace(right, wrong), paper)
    assert len(after) > len(before)


def test_without_the_text_of_the_paper(page_numbers, paper):
    """Its numbers still need an entry or a column."""
    del paper["paper"]
    told = page_numbers.check(SOURCE, {**paper, "text": "none.txt"})
    assert len(told) == 1 and "0.25" in told[0]


def test_how_papers_print_numbers(page_numbers):
    found = page_numbers.printed_numbers("$20k$ steps, 1K and 1,500 rows, .5")
    assert {"20000", "1000", "1500", "0.5"} <= found
