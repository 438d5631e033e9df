"""What `make gpu-test` says of what it measured, where there is no GPU."""

import json
import subprocess
import sys

import pytest

from custom_ops.gpu_tests import build
from custom_ops.gpu_tests import run

# As the program prints it; the numbers are made up.
LINES = [
    "passed Sort",
    "passed Sums",
    '{"kernel": "sums of a", "ms": 2.0000, "floor_ms": 0.5000, '
    '"gb_s": 100, "tflops": 0.0}',
    '{"kernel": "top of b", "ms": 1.0000, "floor_ms": 0.2500, '
    '"gb_s": 50, "tflops": 1.5}',
]
ROW = {
    "kernel": "sums of a",
    "ms": 2.0,
    "floor_ms": 0.5,
    "of_floor": 0.25,
    "torch_ms": 3.0,
}


def test_one_table_and_one_verdict(capsys):
    is_well, rows = run.tell(LINES, None, {"sums of a": 3.0, "other": 1.0})
    assert is_well
    assert rows[0] == ROW
    assert rows[1]["torch_ms"] is None
    table, line = capsys.readouterr().out.strip().split("\n\n")
    assert table.splitlines()[2:] == [
        "| sums of a | 2.000 | 0.500 | 25% | 3.000 |",
        "| top of b | 1.000 | 0.250 | 25% |  |",
    ]
    assert line == "passed: 2 tests, 2 kernels timed"


@pytest.mark.parametrize(
    ("lines", "failed", "said"),
    [
        ([*LINES, "FAILED Top: NaN"], "it ended with 1", "FAILED (2 tests"),
        ([*LINES, "FAILED Top: NaN"], None, "Top: NaN"),
        (LINES, "the time was over", "the time was over"),
        (LINES[:2], None, "no kernel"),
        (LINES[2:], None, "no test"),
    ],
)
def test_what_is_not_well(lines, failed, said):
    is_well, line = run.verdict(lines, run.table_rows(lines, {}), failed)
    assert not is_well
    assert said in line


def test_a_result_is_a_table_of_the_page(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(build.ROOT + "/../benchmarks")
    import report

    monkeypatch.setattr(report.measure, "RESULTS", str(tmp_path))
    run.write([ROW], "a GPU", tmp_path / "gpu.json")
    record = json.loads((tmp_path / "gpu.json").read_text())
    assert record.keys() == {"date", "machine", "command", "rows"}
    text = "\n".join(report.section("gpu", "GPU"))
    assert "a GPU." in text
    assert "sums of a" in text


def test_all_that_ends_late_has_failed():
    deadline = run.Deadline(2)
    sleeps = "print('first', flush=True); import time; time.sleep(60)"
    lines, failed = deadline.output([sys.executable, "-c", sleeps])
    assert (lines, failed) == (["first"], "the time was over")
    assert deadline.output([sys.executable, "-c", ""]) == (
        [],
        "the time was over",
    )


def test_a_program_that_fails_is_told():
    found = run.Deadline(60).output(
        [sys.executable, "-c", "print(1); raise SystemExit(3)"]
    )
    assert found == (["1"], "it ended with 3")


def test_the_program_prints_what_is_read():
    program = build.build(emulate=True)
    lines, failed = run.Deadline(60).output([program, "WriteRows"])
    assert failed is None
    is_well, line = run.verdict(lines, [ROW], failed)
    assert is_well and "1 tests" in line


@pytest.mark.skipif(build.has_gpu(), reason="there is a GPU here")
def test_without_a_gpu_it_says_so(pytestconfig):
    done = subprocess.run(
        [sys.executable, "-m", run.__name__],
        capture_output=True,
        text=True,
        cwd=pytestconfig.rootpath,
    )
    assert done.returncode != 0
    assert "There is no NVIDIA GPU here" in done.stderr
    assert "--emulate" in done.stderr
