"""Committed results: one source for each note, and no path of a machine."""

import json
import math
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

from benchmarks import measure

ROOT = pathlib.Path(__file__).parents[2]
FOLDER = ROOT / "benchmarks"
_HOMES = ("work", "tmp", "home", "root", "opt", "mnt", "scratch", "Users")
# A slash after a word is a part of a relative path or of an address.
MACHINE_PATH = re.compile(rf"(?<![\w.~}}])/(?:{'|'.join(_HOMES)})/\w+")

ROWS = [
    {"classes": 10, "method": "a", "ms": 2.0, "mb": 5},
    {"classes": 20, "method": "floor: b, c", "ms": 50.0},
]


@pytest.fixture
def report(monkeypatch):
    """The module, a script that imports its neighbours."""
    monkeypatch.syspath_prepend(FOLDER)
    for name in ("measure", "notes", "report"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    import report

    yield report
    for name in ("measure", "notes", "report"):
        sys.modules.pop(name, None)


def strict_json(text):
    """What other readers take, too: without NaN and Infinity."""

    def refuse(constant):
        raise ValueError(f"{constant} is no JSON")

    return json.loads(text, parse_constant=refuse)


class TestPage:
    def test_is_what_the_results_say(self, report):
        pages = report.pages()
        for path, text in pages.items():
            assert pathlib.Path(path).read_text() == text, path
        folders = FOLDER / "pages", ROOT / "docs" / "papers"
        there = {str(p) for folder in folders for p in folder.glob("*.md")}
        assert there | {str(FOLDER / "RESULTS.md")} == pages.keys()

    def test_each_result_is_on_one_page(self, report):
        """A result that no page shows is read by nobody."""
        tables = [x for page in report.PAGES.values() for x in page["tables"]]
        results = FOLDER / "results"
        there = [
            str(path.relative_to(results))[:-5]
            for path in results.rglob("*.json")
        ]
        assert sorted(tables) == sorted(there)

    def test_notes_are_in_files_of_their_own(self):
        paths = sorted((FOLDER / "results").rglob("*.json"))
        records = [strict_json(path.read_text()) for path in paths]
        assert paths
        for path, record in zip(paths, records):
            assert {*record} == {"date", "machine", "command", "rows"}, path

    def test_each_note_belongs_to_a_table(self, report):
        tables = [x for page in report.PAGES.values() for x in page["tables"]]
        results = FOLDER / "results"
        for path in sorted(results.rglob("*.md")):
            assert str(path.relative_to(results))[:-3] in tables


class TestFigures:
    @pytest.mark.parametrize(
        "expression, expected",
        [
            ("ms: classes=10", "2"),
            ("ms: classes=20; method=floor: b, c", "50"),
            ("ms: method=floor: b, c / method=a", "25"),
            ("ms: method=a / method=floor: b, c", "0.04"),
            ("mb: method=a / ms: method=a", "2.5"),
        ],
    )
    def test_value_or_ratio(self, report, expression, expected):
        filled = report.notes.filled(f"x {{{{{expression}}}}} y", ROWS)
        assert filled == f"x {expected} y"

    @pytest.mark.parametrize(
        "expression", ["ms: classes=30", "mb: classes=20", "s: classes=10"]
    )
    def test_names_one_cell(self, report, expression):
        with pytest.raises(ValueError, match="one cell. Received: .* 0 cells"):
            report.notes.filled(f"{{{{{expression}}}}}", ROWS)

    def test_several_cells(self, report):
        with pytest.raises(ValueError, match="with 2 cells"):
            report.notes.filled("{{ms: other=None}}", ROWS)


class TestTexts:
    """Texts without a table of their own name the file."""

    @pytest.fixture
    def notes(self, report, tmp_path, monkeypatch):
        monkeypatch.setattr(report.notes.measure, "RESULTS", str(tmp_path))
        record = {"command": "c", "machine": "m", "rows": ROWS}
        (tmp_path / "x.json").write_text(json.dumps(record))
        (tmp_path / "bad.json").write_text(json.dumps({"rows": ROWS}))
        return report.notes

    def test_a_figure_of_a_file(self, notes):
        text = "a {{x ms: method=a}}, {{100 * x\nms: method=a}} and\n"
        text += "{{x mb: classes=10}}"
        assert notes.filled_from_files(text) == "a 2, 200 and 5"

    def test_tables_and_lists_stay_as_they_are(self, notes):
        table = "| a | b |\n| --- | --- |"
        text = f"one\ntwo\n\n{table}\n\n- x\n  y\n"
        assert (
            notes.filled_from_files(text) == f"one two\n\n{table}\n\n- x\n  y"
        )

    def test_a_file_must_be_there_and_name_its_command(self, notes):
        with pytest.raises(ValueError, match="No results file for 'no'"):
            notes.value("no ms: method=a")
        with pytest.raises(ValueError, match="must name its command"):
            notes.value("bad ms: method=a")


class TestPaths:
    @pytest.mark.parametrize(
        "text, expected",
        [
            (
                "python x.py /a/b-c --out=/d/e.f g/h",
                "python x.py ... --out=... g/h",
            ),
            (
                "rows/s, 1 / 20, https://a.b/c/d",
                "rows/s, 1 / 20, https://a.b/c/d",
            ),
            ("No file '/a/b c'", "No file '... c'"),
        ],
    )
    def test_written_without(self, tmp_path, text, expected):
        path = tmp_path / "x.json"
        measure.write(path, {"command": text, "rows": [{"error": text}]})
        found = json.loads(path.read_text())
        assert found == {"command": expected, "rows": [{"error": expected}]}

    def test_json_has_no_infinity(self, tmp_path):
        path = tmp_path / "x.json"
        row = {"a": math.inf, "b": -math.inf, "c": math.nan, "d": 1.5, "e": "x"}
        measure.write(path, {"rows": [row]})
        (found,) = strict_json(path.read_text())["rows"]
        assert found == {"a": "inf", "b": "-inf", "c": "", "d": 1.5, "e": "x"}

    def test_rows_keep_when_they_were_measured(self, report):
        """The later run's date and command stood above all."""
        told = [
            {"command": "x.py", "date": date, "machine": "m"}
            for date in ("one", "two")
        ]
        rows = [{"row": 1, "measured": one} for one in told]
        commands = report.circumstances({**told[1], "rows": rows})
        assert commands == ["`x.py`, one, m.", "`x.py`, two, m."]
        assert "measured" not in measure.table(rows)

    def test_a_job_is_run_once(self, tmp_path, monkeypatch):
        monkeypatch.setattr(measure, "CACHE", str(tmp_path))
        told = []

        def run(*args):
            told.append(args)
            return {"error": "?"} if len(told) == 1 else [len(told)]

        def once(seed, run=run):
            return measure.once("x", "a b", seed, run=run)

        # An error is tried again.
        assert once(0, run=None) is None
        assert [once(0), once(0), once(0)] == [{"error": "?"}, [2], [2]]
        assert [once(1), once(1, run=None)] == [[3], [3]]
        assert told == [("a b", n) for n in (0, 0, 1)]

    def test_all_seeds_or_an_end(self, tmp_path, monkeypatch):
        monkeypatch.setattr(measure, "CACHE", str(tmp_path))
        found = measure.of_all_seeds(
            "x", "a", 2, seeds=range(3), run=lambda *job: {"seed": job[-1]}
        )
        assert [one["seed"] for one in found] == [0, 1, 2]
        with pytest.raises(SystemExit, match=r"\?"):
            measure.of_all_seeds(
                "x", "a", 2, seeds=[3], run=lambda *job: {"error": "?"}
            )

    @pytest.mark.parametrize(
        "scores, factor, expected",
        [
            ({1: 0.5, 2: 0.6, 4: 0.4}, 2, [1, 2, 4]),
            ({1: 0.7, 2: 0.6, 0.5: 0.4}, 2, [1, 2, 0.5]),
            ({1: 0.7, 2: 0.8}, None, [1, 2]),
            # Without a result there is nothing to go on from.
            ({1: 0.7, 2: 0.8}, 2, [1, 2]),
            ({1: 1, 2: 2, 4: 4, 8: 8}, 2, [1, 2, 4]),
            ({}, 2, []),
        ],
    )
    def test_rates_are_tried_until_the_best_is_no_edge(
        self, scores, factor, expected
    ):
        best, tried = measure.best_rate([1, 2], scores.get, factor, most=3)
        assert list(tried) == expected
        assert best == max(expected, key=scores.get, default=None)

    def test_a_script_asks_itself(self, tmp_path, monkeypatch):
        script = tmp_path / "script.py"
        script.write_text(
            "from benchmarks import measure\n"
            "measure.run_child(lambda a, b: {'sum': a + b})\n"
            "raise RuntimeError('no child')\n"
        )
        monkeypatch.setattr(sys, "argv", [str(script)])
        monkeypatch.setattr(measure, "RESULTS", str(tmp_path))
        cases = [{"a": 1, "b": 2}, {"a": 3, "b": 4.5}]
        rows = measure.compare("x", None, cases)
        assert rows == measure.finished("x")
        assert rows == [
            {"a": 1, "b": 2, "sum": 3},
            {"a": 3, "b": 4.5, "sum": 7.5},
        ]

    def test_command_of_a_module(self, monkeypatch):
        script = str(FOLDER / "step_time.py")
        monkeypatch.setattr(sys, "argv", [script, "100"])
        assert measure.command() == "python benchmarks/step_time.py 100"

    def test_committed_files(self):
        if not (ROOT / ".git").exists() or not shutil.which("git"):
            pytest.skip("no git checkout")
        listed = subprocess.run(
            ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True
        )
        paths = [
            ROOT / name for name in listed.stdout.decode().split("\0")[:-1]
        ]
        assert len(paths) > 100
        found = []
        for path in filter(pathlib.Path.is_file, paths):
            text = path.read_bytes().decode("latin-1")
            if "\0" not in text:
                found += [f"{path}: {x}" for x in MACHINE_PATH.findall(text)]
        assert not found

    def test_search_finds_paths(self):
        home = "/".join(["", "home", "someone"])
        assert MACHINE_PATH.findall(f"x={home}/a, '{home}'") == [home] * 2
        assert not MACHINE_PATH.findall("a/home/b, ${x}/tmp/y, ./work/z")
