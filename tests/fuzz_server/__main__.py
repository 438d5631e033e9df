"""Tries to break the development server, and counts what it loses.

python -m tests.fuzz_server --bodies 100000 --calls 5000 --seed 1
python -m tests.fuzz_server --load 60 --clients 16

Exit status 1 if a request was answered wrongly or lost.
"""

import argparse
import collections
import pathlib
import sys
import tempfile
import time

from tfxclass_serve import quiet  # noqa: F401

# isort: split
from tests.fuzz_server import bodies
from tests.fuzz_server import calls
from tests.fuzz_server.load import Load
from tests.fuzz_server.own_process import OwnServer
from tests.support import serving_cases

_SHOWN = 10


def main():
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz_server")
    parser.add_argument("--bodies", type=int, default=0, help="of REST")
    parser.add_argument("--calls", type=int, default=0, help="of gRPC")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--load", type=float, default=0, help="seconds")
    parser.add_argument("--clients", type=int, default=16)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        serving_cases.export_models(root / "models")
        wrong = 0
        if arguments.bodies or arguments.calls:
            wrong += _fuzz(root / "models", arguments)
        if arguments.load:
            wrong += _load(root, arguments)
    sys.exit(bool(wrong))


def _fuzz(models, arguments):
    server = OwnServer(models)
    try:
        wrong = []
        if arguments.bodies:
            wrong += _fuzz_bodies(server, arguments)
        if arguments.calls:
            wrong += _fuzz_calls(server, arguments)
        server.terminate()
        status, errors = server.wait(60)
    finally:
        server.end()
    for one in wrong[:_SHOWN]:
        print(repr(one)[:1_000])
    print(f"exit status {status}; on stderr: {errors[:1_000]!r}")
    return len(wrong) + bool(status)


def _fuzz_bodies(server, arguments):
    # The first requests fill caches and arenas.
    sizes = {}

    def note(number):
        if number in (arguments.bodies // 10, arguments.bodies - 1):
            sizes[number] = server.resident_bytes()

    begin = time.monotonic()
    wrong = bodies.run(server.rest_port, arguments.bodies, arguments.seed, note)
    seconds = time.monotonic() - begin
    cases = (bodies.make(arguments.seed, i) for i in range(arguments.bodies))
    statuses = collections.Counter(case.status for case in cases)
    print(f"right statuses: {dict(sorted(statuses.items()))}")
    print(f"{arguments.bodies} bodies in {seconds:.0f} s: {len(wrong)} wrong")
    first, last = min(sizes.values()), list(sizes.values())[-1]
    print(
        f"memory after a tenth of them {first / 2**20:.1f} MiB, after all "
        f"{last / 2**20:.1f} MiB"
    )
    return wrong


def _fuzz_calls(server, arguments):
    wrong, counts = calls.run(server.grpc_port, arguments.calls, arguments.seed)
    print(f"codes: {dict(sorted(counts.items()))}")
    print(f"{arguments.calls} gRPC calls: {len(wrong)} wrong")
    return wrong


def _load(root, arguments):
    load = Load(root / "models", root / "served", arguments.clients)
    load.run(arguments.load)
    for line in load.printed:
        print(f"    {line[:150]}")
    print(f"requests: {dict(sorted(load.counts.items()))}")
    print(f"memory grew by {load.growth / 2**20:.1f} MiB under load")
    print(
        f"exit status {load.status}, {load.seconds:.1f} s after TERM; on "
        f"stderr: {load.errors[:1_000]!r}"
    )
    for one in load.lost[:_SHOWN]:
        print(one[:1_000])
    print(f"{len(load.lost)} requests lost")
    return len(load.lost) + bool(load.status)


if __name__ == "__main__":
    main()
