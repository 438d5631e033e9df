"""The launcher of examples/multi_worker, with processes of its own."""

import importlib.util
import subprocess
import sys

import pytest

from examples.multi_worker import __main__ as launcher
from tests.conftest import ROOT

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("wn") is None,
    reason="needs tfxclass[examples]",
)


def launch(out, *options):
    options = ["--limit", "600", "--epochs", "1", "--out", str(out), *options]
    return subprocess.run(
        [sys.executable, "-m", "examples.multi_worker", *options],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=300,
    )


@pytest.mark.slow
@pytest.mark.parametrize("servers", ["0", "2"])
def test_cluster_trains_and_exports(tmp_path, servers):
    done = launch(tmp_path, "--servers", servers)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
    assert "SampledSoftmax" in done.stdout
    assert (tmp_path / "1" / "saved_model.pb").exists()
    assert any((tmp_path / "states").iterdir())
    assert (tmp_path / "worker-1.log").exists()


@pytest.mark.slow
def test_failure_of_a_process_is_the_status(tmp_path):
    (tmp_path / "states" / "step-000000001").mkdir(parents=True)
    done = launch(tmp_path)
    assert done.returncode != 0
    assert "It failed; the others' output is in" in done.stdout


def test_cluster_has_distinct_ports():
    cluster = launcher.cluster_of(2, 3)
    assert [len(cluster[job]) for job in ("chief", "worker", "ps")] == [1, 2, 3]
    hosts = [host for job in cluster.values() for host in job]
    assert len(set(hosts)) == 6
    assert list(launcher.cluster_of(4, 0)) == ["worker"]
