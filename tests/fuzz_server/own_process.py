"""`tfxclass-serve` in a process of its own."""

import contextlib
import os
import pathlib
import signal
import socket
import subprocess
import sys

_ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


class OwnServer:
    """The process, and what it prints; kill it with `end`.

    Args:
        folder: of the models.
        *arguments: of the command line.
    """

    def __init__(self, folder, *arguments):
        self.rest_port, self.grpc_port = _free_ports(2)
        flags = [
            f"--rest_api_port={self.rest_port}",
            f"--port={self.grpc_port}",
        ]
        # Quiet by itself, not because its parent is.
        environment = dict(os.environ)
        environment.pop("TF_CPP_MIN_LOG_LEVEL", None)
        self.process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "tfxclass_serve",
                folder,
                *flags,
                *arguments,
            ],
            cwd=_ROOT,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.printed = []
        while not (self.printed and self.printed[-1].startswith("gRPC at")):
            line = self.process.stdout.readline()
            if not line:
                raise RuntimeError(self.process.communicate()[1])
            self.printed.append(line.rstrip("\n"))

    def resident_bytes(self):
        with open(f"/proc/{self.process.pid}/statm") as f:
            return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def terminate(self):
        self.process.send_signal(signal.SIGTERM)

    def wait(self, seconds):
        """`(exit status, what it printed to stderr)`."""
        rest, errors = self.process.communicate(timeout=seconds)
        self.printed += rest.splitlines()
        return self.process.returncode, errors

    def end(self):
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        self.process.communicate()


def _free_ports(count):
    with contextlib.ExitStack() as stack:
        ports = []
        for _ in range(count):
            one = stack.enter_context(socket.socket())
            one.bind(("127.0.0.1", 0))
            ports.append(one.getsockname()[1])
        return ports
