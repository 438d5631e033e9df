"""Parameter servers, with processes of their own on the loopback."""

import contextlib
import signal

import numpy as np
import pytest

from tests.support.parameter_server import CLASSES
from tests.support.parameter_server import EPOCHS
from tests.support.parameter_server import STEPS
from tests.support.processes import free_ports
from tests.support.processes import start
from tests.support.processes import wait


def train(folder, *options, kill=None):
    """`(result, output)` of the chief; the servers are ended.

    With `kill`, a task, its process is killed while steps are under way.
    """
    ports = ",".join(free_ports(5))
    tasks = [("ps", 0), ("ps", 1), ("worker", 0), ("worker", 1)]
    with contextlib.ExitStack() as stack:

        def run(task, index, *options):
            arguments = [task, str(index), ports, str(folder), *options]
            command = ["tests.support.parameter_server", *arguments]
            path = folder / f"{task}-{index}.txt"
            return stack.enter_context(start(command, path)), path

        servers = {task: run(*task)[0] for task in tasks}
        if kill is not None:
            options = [*options, "--kill", str(servers[kill].pid)]
        chief, path = run("chief", 0, *options)
        code = wait(chief)
        if kill is not None:
            assert wait(servers[kill]) == -signal.SIGKILL
    if code:
        return None, f"{path.read_text()}\nExit code: {code}"
    with np.load(folder / "result.npz") as values:
        return dict(values), path.read_text()


def check_learned(result, output):
    assert result is not None, output[-3000:]
    assert result["val_accuracy_at_1"][-1] > 0.7
    assert result["loss"][-1] < result["loss"][0] / 2
    assert len(result["loss"]) == EPOCHS


def check_split(result):
    """The two servers had the class vectors, and answered together."""
    assert len(set(result["devices"])) == 2
    # The whole, from both servers.
    assert result["predicted"].shape[1] == CLASSES - 1
    np.testing.assert_allclose(result["predicted"].sum(axis=1), 1, rtol=1e-5)
    best = np.argsort(-result["predicted"], axis=1, kind="stable")[:, :3]
    np.testing.assert_array_equal(result["best"], best)


def test_rows_split_over_servers_and_a_lost_worker_that_is_replaced(tmp_path):
    result, output = train(tmp_path, "--head", "split", kill=("worker", 1))
    check_learned(result, output)
    check_split(result)
    # The step that it left is taken again, and may have been counted.
    assert 0 <= result["iterations"] - EPOCHS * STEPS <= 1


# Slow: the quick test above does the same, and loses a worker on the way.
@pytest.mark.slow
@pytest.mark.parametrize("head", ["split", "split_forest"])
def test_rows_split_over_servers(tmp_path, head):
    result, output = train(tmp_path, "--head", head)
    check_learned(result, output)
    check_split(result)


@pytest.mark.slow
def test_rows_of_an_embedding(tmp_path):
    result, output = train(tmp_path, "--head", "tied")
    check_learned(result, output)
    assert result["iterations"] == EPOCHS * STEPS


@pytest.mark.slow
@pytest.mark.parametrize(
    "options", [["--lean"], ["--head", "auto"]], ids=["selective", "auto"]
)
def test_forest_on_the_server_of_the_rows(tmp_path, options):
    result, output = train(tmp_path, *options)
    check_learned(result, output)
    # Nor does it leave them for other heads and an evaluation.
    assert result["pulled"].tolist() == []
    assert all("/job:ps/" in device for device in result["devices"])
    # None lost, none twice.
    assert result["iterations"] == EPOCHS * STEPS


@pytest.mark.slow
def test_lost_server_is_told_and_a_restart_goes_on(tmp_path):
    result, output = train(tmp_path, "--head", "full", kill=("ps", 0))
    assert result is None
    assert "RuntimeError: A parameter server was lost" in output
    result, output = train(tmp_path, "--head", "full")
    check_learned(result, output)
    assert result["iterations"] == EPOCHS * STEPS
    assert result["steps"] < EPOCHS * STEPS
