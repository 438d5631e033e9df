"""`pytest -p tests.support.cpu_times`: where the CPU seconds of the tests go.

Of the test processes, their ended children and those of the fork server.
"""

import collections
import multiprocessing.forkserver
import os

import pytest

_TABLES = [collections.Counter() for _ in range(3)]


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
    if report.when != "teardown":
        return
    seconds = sum(v for key, v in report.user_properties if key == "cpu")
    file, _, test = report.nodeid.partition("::")
    name = test.partition("[")[0].rpartition("::")[2]
    for table, key in zip(_TABLES, (file, name, report.nodeid)):
        table[key] += seconds


def pytest_terminal_summary(terminalreporter):
    for title, table in zip(("file", "name", "test"), _TABLES):
        terminalreporter.section(f"CPU seconds by {title}")
        for key, seconds in table.most_common(80):
            terminalreporter.write_line(f"{seconds:7.1f} {key}")
    total = sum(_TABLES[0].values())
    terminalreporter.write_line(f"{total:7.1f} in all")
