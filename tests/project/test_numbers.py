"""Numbers of README and of the guides come from committed results."""

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


def test_numbers_are_those_of_the_results(page_numbers):
    wrong = {
        page: page_numbers.check(page_numbers.read(page), entry)
        for page, entry in page_numbers.load()["pages"].items()
    }
    assert not {page: lines for page, lines in wrong.items() if lines}


def test_every_page_is_in_the_table(page_numbers):
    """A page is covered, or is listed as not covered.

    Pages about papers are made of results by benchmarks/report.py.
    """
    table = page_numbers.load()
    pages = {"README.md"}
    for path in (ROOT / "docs").glob("*.md"):
        pages.add(str(path.relative_to(ROOT)))
    listed = [*table["pages"], *table["not covered"]]
    assert sorted(listed) == sorted(pages)


def test_exemptions_have_reasons(page_numbers):
    for page, entry in page_numbers.load()["pages"].items():
        assert entry.keys() <= {"figures", "exempt"}, page
        assert all(entry.get("exempt", {}).values()), page


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
