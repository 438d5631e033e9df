"""Tests and times the CUDA kernels on this machine's GPU: `make gpu-test`.

`python -m custom_ops.gpu_tests.run` needs CUDA's nvcc and nothing else of the
project; torch is compared where this Python has it. It prints one table, a row
a kernel, and one verdict, and writes them to benchmarks/results/gpu.json, from
which benchmarks/report.py makes a page. All together takes ten minutes at most:
what has not ended then has failed.
"""

import datetime
import json
import os
import subprocess
import sys
import time

from custom_ops.gpu_tests import build

SECONDS = 600
RESULT = os.path.join(
    os.path.dirname(build.ROOT), "benchmarks", "results", "gpu.json"
)
COMMAND = "make gpu-test"


class Deadline:
    """Output of commands, all of which have `seconds` together."""

    def __init__(self, seconds):
        self._end = time.monotonic() + seconds

    def output(self, command):
        """`(lines, why it failed or None)`; all that it printed till then."""
        left = self._end - time.monotonic()
        if left <= 0:
            return [], "the time was over"
        try:
            done = subprocess.run(
                command, stdout=subprocess.PIPE, text=True, timeout=left
            )
        except subprocess.TimeoutExpired as e:
            # Bytes, whatever was asked for.
            lines = (e.stdout or b"").decode(errors="replace").splitlines()
            return lines, "the time was over"
        failed = f"it ended with {done.returncode}" if done.returncode else None
        return done.stdout.splitlines(), failed


def json_lines(lines):
    """What lines of JSON objects say."""
    return [json.loads(x) for x in lines if x.startswith("{") and x[-1] == "}"]


def table_rows(lines, torch):
    """A row of each kernel; `torch` has milliseconds by kernel."""
    rows = []
    for timed in json_lines(lines):
        row = {k: timed[k] for k in ("kernel", "ms", "floor_ms")}
        row["of_floor"] = round(timed["floor_ms"] / timed["ms"], 3)
        other = torch.get(timed["kernel"])
        row["torch_ms"] = None if other is None else round(other, 4)
        rows.append(row)
    return rows


def table(rows):
    """Markdown."""
    lines = ["| kernel | ms | floor, ms | of the floor | torch, ms |"]
    lines.append("| --- | --- | --- | --- | --- |")
    for row in rows:
        torch = "" if row["torch_ms"] is None else f"{row['torch_ms']:.3f}"
        lines.append(
            f"| {row['kernel']} | {row['ms']:.3f} | {row['floor_ms']:.3f} "
            f"| {row['of_floor']:.0%} | {torch} |"
        )
    return "\n".join(lines)


def verdict(lines, rows, failed):
    """`(whether all is well, one line)` of what the program printed."""
    passed = sum(x.startswith("passed ") for x in lines)
    bad = [x.removeprefix("FAILED ") for x in lines if x.startswith("FAILED ")]
    if failed is not None and not bad:
        bad = [failed]
    if bad:
        return False, f"FAILED ({passed} tests passed): " + "; ".join(bad)
    if not passed or not rows:
        return False, "FAILED: no test, or no kernel that was timed"
    return True, f"passed: {passed} tests, {len(rows)} kernels timed"


def tell(lines, failed, torch):
    """Prints table and verdict; `(whether all is well, rows)`."""
    rows = table_rows(lines, torch)
    is_well, line = verdict(lines, rows, failed)
    print(f"{table(rows)}\n\n{line}", flush=True)
    return is_well, rows


def write(rows, device, path=RESULT):
    """As the other results of benchmarks/."""
    record = {
        "date": datetime.date.today().isoformat(),
        "machine": device,
        "command": COMMAND,
        "rows": rows,
    }
    with open(path, "w") as f:
        f.write(json.dumps(record, indent=1) + "\n")


def torch_figures(deadline):
    """Those of compare_torch.py; an empty dict without torch."""
    script = os.path.join(build.HERE, "compare_torch.py")
    lines, failed = deadline.output([sys.executable, script])
    found = json_lines(lines)
    if found:
        return found[-1]
    print(failed or lines[-1], flush=True)
    return {}


def device_name():
    listed = subprocess.run(
        ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"],
        capture_output=True,
        text=True,
    )
    return listed.stdout.strip().split("\n")[0]


def main():
    if not build.has_gpu():
        sys.exit(
            "There is no NVIDIA GPU here (nvidia-smi found none). The kernels' "
            "results can be tested without: "
            "python -m custom_ops.gpu_tests.build --emulate"
        )
    deadline = Deadline(SECONDS)
    program = [sys.executable, "-c", "from custom_ops.gpu_tests import build"]
    program[-1] += "; print(build.build(emulate=False))"
    built, failed = deadline.output(program)
    if failed is not None:
        sys.exit(f"FAILED: the kernels were not built: {failed}")
    torch = torch_figures(deadline)
    rate = str(torch.get("tflops", 0))
    lines, failed = deadline.output([built[-1], "--tflops", rate])
    is_well, rows = tell(lines, failed, torch.get("kernels", {}))
    if is_well:
        write(rows, device_name())
    sys.exit(not is_well)


if __name__ == "__main__":
    main()
