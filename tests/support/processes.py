"""Processes of a cluster on the loopback, all of them ended.

They are forked from one that has imported TensorFlow, which takes longer than
most of what they do. It has one thread and has not begun to use TensorFlow:
what they inherit are modules.
"""

import contextlib
import faulthandler
import functools
import multiprocessing
import os
import runpy
import sys
import tempfile
from multiprocessing import forkserver
from unittest import mock

from examples.multi_worker.__main__ import cluster_of
from tests.conftest import ROOT


def free_ports(count):
    """Ports that nobody listens on, as text."""
    return [host.split(":")[1] for host in cluster_of(count, 0)["worker"]]


@functools.cache
def _imported():
    """The context whose processes have imported tfxclass."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tfxclass"])
    # OpenBLAS starts threads when it is imported, which no fork inherits.
    environment = {
        "OPENBLAS_NUM_THREADS": "1",
        "PYTHONPATH": str(ROOT),
        # Of TensorFlow, which reads it once: warnings are logged.
        "TF_CPP_MIN_LOG_LEVEL": "1",
    }
    with mock.patch.dict(os.environ, environment):
        forkserver.ensure_running()
    return context


def _write_to(stream, path):
    """Sends what is written to a stream to a file."""
    stream.flush()
    output = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(output, stream.fileno())


def _run_module(command, path, environment):
    """Becomes what `python -m COMMAND` is, with its output in a file."""
    _write_to(sys.stdout, path)
    _write_to(sys.stderr, path)
    faulthandler.enable()
    os.chdir(ROOT)
    os.environ.update(environment)
    sys.argv = list(command)
    runpy.run_module(command[0], run_name="__main__", alter_sys=True)


def _run_code(code, arguments, out, err):
    """Becomes what `python -c CODE ARGUMENTS` is, with its output in files."""
    _write_to(sys.stdout, out)
    _write_to(sys.stderr, err)
    faulthandler.enable()
    os.chdir(ROOT)
    # Tests of threads, and of several devices of a CPU.
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    sys.argv = ["-c", *arguments]
    exec(compile(code, "<code>", "exec"), {"__name__": "__main__"})  # noqa: S102


def run_code(code, *arguments):
    """What `python -c CODE ARGUMENTS` prints; AssertionError if it fails."""
    with tempfile.TemporaryDirectory() as folder:
        out, err = (os.path.join(folder, name) for name in ("out", "err"))
        process = _imported().Process(
            target=_run_code, args=(code, arguments, out, err), daemon=True
        )
        process.start()
        failed = wait(process) != 0
        with open(out) as printed, open(err) as errors:
            assert not failed, errors.read()[-3000:]
            return printed.read()


@contextlib.contextmanager
def call(function, *arguments):
    """A process that calls a function of a module, killed at the end."""
    process = _imported().Process(target=function, args=arguments, daemon=True)
    process.start()
    try:
        yield process
    finally:
        process.kill()
        process.join()


@contextlib.contextmanager
def start(command, path, **environment):
    """A process that runs a module as `python -m` does, killed at the end.

    Args:
        command: list of str, the module and its arguments.
        path: pathlib.Path, where its output goes.
        **environment: str, variables that it has beside ours.
    """
    with call(_run_module, command, path, environment) as process:
        yield process


def wait(process, timeout=300):
    """The exit code of a process, or TimeoutError after so many seconds."""
    process.join(timeout)
    if process.exitcode is None:
        raise TimeoutError(f"process {process.pid}: {timeout} s")
    return process.exitcode


def run_all(commands, folder, environments=None):
    """Runs modules side by side until each has ended.

    Args:
        commands: list of lists, the arguments behind `python -m`.
        folder: pathlib.Path, where their output goes.
        environments: list of dicts, variables of each, or None.

    Returns:
        `(exit codes, outputs)`, in order.
    """
    paths = [folder / f"output-{i}.txt" for i in range(len(commands))]
    environments = environments or [{}] * len(commands)
    with contextlib.ExitStack() as stack:
        running = [
            stack.enter_context(start(command, path, **environment))
            for command, path, environment in zip(
                commands, paths, environments, strict=True
            )
        ]
        codes = [wait(process) for process in running]
    return codes, [path.read_text() for path in paths]


def run(command, folder):
    """`(exit code, output)` of one module."""
    (code,), (output,) = run_all([command], folder)
    return code, output
