"""`make test-versions`: tests and exports with several TensorFlows.

    python3 -m tests.versions

In an environment for each TensorFlow the ops are compiled, and smoke and
contract tests are run; in the last one also with fallback ops, where tests of
what these refuse are skipped (tests/conftest.py). The exports of each are
loaded and asked in processes of stock TensorFlow of all versions.
Writes docs/versions.json and the tables of docs/install.md.
"""

import concurrent.futures
import datetime
import json
import os
import platform
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

from tests.versions import environments
from tests.versions import table

ROOT = environments.ROOT
#: What every head promises, for two heads; taggers, and the private names.
CONTRACTS = (
    "tests/layers/test_negative_sampling.py",
    "tests/layers/test_hierarchical_softmax.py::TestHuffman",
    "tests/test_keras_internals.py",
    "tests/text/test_tagger_files.py",
)
_VERSIONS = """
import json, platform, keras, numpy, tensorflow as tf
print(json.dumps({"python": platform.python_version(),
    "tensorflow": tf.__version__, "keras": keras.__version__,
    "numpy": numpy.__version__}))
"""


def run(python, *command, **environment):
    """A finished process of a Python, in the checkout."""
    given = {"TF_CPP_MIN_LOG_LEVEL": "3", "TFXCLASS_CUDA": "0"}
    return subprocess.run(
        [python, *command],
        cwd=ROOT,
        env={**os.environ, **given, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
    )


def checked(done):
    """What it printed; an error with its messages if it failed."""
    if done.returncode:
        raise RuntimeError(f"{done.args} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def test(python, fallback):
    """Counts of tests; their names where they failed."""
    with tempfile.TemporaryDirectory() as scratch:
        path = os.path.join(scratch, "tests.xml")
        smoke = run(python, "tests/smoke.py", TFXCLASS_FALLBACK=fallback)
        options = ["-q", "-p", "no:cacheprovider", f"--junitxml={path}"]
        done = run(
            python,
            "-m",
            "pytest",
            *options,
            *CONTRACTS,
            TFXCLASS_FALLBACK=fallback,
        )
        if not os.path.exists(path):
            raise RuntimeError(done.stdout + done.stderr)
        cases = list(xml.etree.ElementTree.parse(path).iter("testcase"))
    failed = [x for x in cases if {"failure", "error"} & {y.tag for y in x}]
    skipped = [x for x in cases if "skipped" in {y.tag for y in x}]
    names = [f"{x.get('classname')}.{x.get('name')}" for x in failed]
    if smoke.returncode:
        names.append("tests/smoke.py")
    if names:
        print(smoke.stderr[-2000:], done.stdout[-6000:], file=sys.stderr)
    return {
        "passed": len(cases) + 1 - len(skipped) - len(names),
        "skipped": len(skipped),
        "failed": names,
    }


def prepare(name):
    """Makes an environment and compiles the ops for it."""
    python = environments.make(name)
    print(checked(run(python, "custom_ops/build.py")), end="", flush=True)


def tested(name, ops):
    """The row of an environment, with "compiled" or "fallback" ops."""
    python = environments.make(name)
    versions = json.loads(checked(run(python, "-c", _VERSIONS)))
    counts = test(python, "0" if ops == "compiled" else "1")
    row = {"name": name, **versions, "ops": ops, **counts}
    print(json.dumps(row), flush=True)
    return row


def served(names, servers, folder):
    """A row for each pair: whose export, and which TensorFlow loads it."""
    rows = []
    for name in names:
        made = os.path.join(folder, name)
        python = environments.make(name)
        checked(run(python, "-m", "tests.versions.exports", made))
    for server in servers:
        python = environments.make(server)
        command = ["-I", "tests/versions/ask.py", "tfxclass_serve/c_loader.py"]
        command += [f"{folder}/{name}" for name in names]
        for line in checked(run(python, *command)).splitlines():
            print(line, flush=True)
            rows.append(json.loads(line))
    return rows


def main():
    names = list(environments.TESTED)
    for name in names:
        prepare(name)
    jobs = [*((name, "compiled") for name in names), (names[-1], "fallback")]
    with concurrent.futures.ThreadPoolExecutor() as pool:
        rows = list(pool.map(lambda job: tested(*job), jobs))
    with tempfile.TemporaryDirectory() as folder:
        servers = [*environments.SERVING, *names]
        exports = served(names, servers, folder)
    found = {
        "date": datetime.date.today().isoformat(),
        "command": "make test-versions",
        "machine": f"{os.cpu_count()} cores, {platform.machine()}",
        "tests": rows,
        "exports": exports,
    }
    table.RESULT.write_text(json.dumps(found, indent=1) + "\n")
    table.write(found)
    return 0 if table.is_sound(found) else "Not all passed: see above."


if __name__ == "__main__":
    sys.exit(main())
