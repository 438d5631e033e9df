"""`pytest -p tests.cpu_times`: prints the CPU seconds of each test file.

Of the test processes, their ended children and those of the fork server.
"""

import collections
import multiprocessing.forkserver
import os

import pytest

_seconds = collections.Counter()


def _used():
    times = os.times()
    pid = multiprocessing.forkserver._forkserver._forkserver_pid
    of_server = 0.0
    if pid is not None:
        with open(f"/proc/{pid}/stat") as f:
            fields = f.read().rsplit(")")[1].split()
        of_server = sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    return sum(times[:4]) + of_server


def _timed(item):
    start = _used()
    yield
    item.user_properties.append(("cpu", _used() - start))


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_setup(item):
    yield from _timed(item)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_call(item):
    yield from _timed(item)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_teardown(item):
    yield from _timed(item)


def pytest_runtest_logreport(report):
    if report.when == "teardown":
        name = report.nodeid.split("::")[0]
        seconds = [v for key, v in report.user_properties if key == "cpu"]
        _seconds[name] += sum(seconds)


def pytest_terminal_summary(terminalreporter):
    terminalreporter.section("CPU seconds by file")
    total = sum(_seconds.values())
    for name, seconds in _seconds.most_common(25):
        terminalreporter.write_line(f"{seconds:7.1f} {name}")
    terminalreporter.write_line(f"{total:7.1f} in all")
