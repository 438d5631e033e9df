"""`tfxclass-serve models/`, or `python -m tfxclass_serve models/`."""

import argparse
import itertools
import logging
import os
import signal
import socket
import sys
import threading

from tfxclass_serve.batching import Batching
from tfxclass_serve.c_loader import TensorFlowError
from tfxclass_serve.folders import nothing_to_serve
from tfxclass_serve.folders import versions_in

_NOTE = """\
tfxclass-serve is for development. In production run the image
tensorflow/serving on the same folder; see serving/README.md."""
# Seconds beyond the grace after which the process ends in any case.
_MARGIN = 5.0


def parse_arguments(argv=None):
    parser = argparse.ArgumentParser(
        prog="tfxclass-serve",
        description="Serves SavedModels over REST and gRPC, as TensorFlow "
        "Serving does, with a page to try them at the REST port.",
        epilog=_NOTE,
    )
    add = parser.add_argument
    add(
        "folder",
        nargs="?",
        help="folder of models, or of the versions of one model",
    )
    add(
        "--model_config_file",
        metavar="FILE",
        help="a ModelServerConfig, instead of a folder",
    )
    add(
        "--host",
        default="127.0.0.1",
        help="address to listen at; 0.0.0.0 is for all networks (default: "
        "%(default)s)",
    )
    add(
        "--rest_api_port",
        type=int,
        default=8501,
        metavar="PORT",
        help="port of the REST API and of the page; 0 for none (default: "
        "%(default)s)",
    )
    add(
        "--port",
        type=int,
        help="port of the gRPC API; 0 for none (default: 8500, or none where "
        "the packages of gRPC are not installed)",
    )
    add(
        "--poll_seconds",
        type=float,
        default=1.0,
        metavar="SECONDS",
        help="time between two looks for new versions (default: %(default)s)",
    )
    add(
        "--batch_sizes",
        metavar="SIZES",
        help="runs requests together, padded to the next of these rising "
        "sizes, such as 1,4,16 (default: no batching)",
    )
    add(
        "--max_request_bytes",
        type=int,
        default=1 << 26,
        metavar="BYTES",
        help="largest request (default: %(default)s)",
    )
    add(
        "--timeout_seconds",
        type=float,
        default=30.0,
        metavar="SECONDS",
        help="time limit of a request (default: %(default)s)",
    )
    add(
        "--grace_seconds",
        type=float,
        default=10.0,
        metavar="SECONDS",
        help="time for running requests after SIGTERM (default: %(default)s)",
    )
    arguments = parser.parse_args(argv)
    if (arguments.folder is None) == (arguments.model_config_file is None):
        parser.error("give a folder or --model_config_file, one of them")
    problem = arguments.folder and nothing_to_serve(arguments.folder)
    if problem:
        parser.exit(2, f"tfxclass-serve: error: {problem}\n")
    arguments.batching = _batching(parser, arguments.batch_sizes)
    return arguments


def _batching(parser, text):
    if text is None:
        return None
    try:
        sizes = tuple(int(size) for size in text.split(","))
    except ValueError:
        sizes = ()
    rising = all(a < b for a, b in itertools.pairwise(sizes))
    if not sizes or sizes[0] < 1 or not rising:
        parser.error(f"--batch_sizes must be rising, as 1,4,16: {text!r}")
    return Batching(sizes)


def _sources(arguments):
    if arguments.folder is not None:
        return arguments.folder
    # First: it tells how to install what may be missing.
    from tfxclass_serve import grpc_server  # noqa: F401

    # isort: split
    from google.protobuf import text_format
    from tensorflow_serving.config import model_server_config_pb2

    from tfxclass_serve.model_config import sources_of

    with open(arguments.model_config_file, encoding="utf-8-sig") as f:
        text = f.read()
    config = model_server_config_pb2.ModelServerConfig()
    try:
        sources = sources_of(text_format.Parse(text, config))
    except (TensorFlowError, text_format.ParseError) as e:
        raise RuntimeError(f"{arguments.model_config_file}: {e}") from e
    paths = [source.path for source in sources.values()]
    if not any(map(versions_in, paths)):
        raise RuntimeError(
            f"{arguments.model_config_file}: no base_path has a version, a "
            f"folder whose name is a number. Received: {paths}"
        )
    return sources


def _check_ports(arguments):
    """OSError for a port that is taken, which names its option."""
    host = arguments.host
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for option, port in (
        ("--rest_api_port", arguments.rest_api_port),
        ("--port", arguments.port),
    ):
        try:
            socket.create_server((host, port), family=family).close()
        except (OSError, OverflowError) as e:
            reason = os.strerror(e.errno) if getattr(e, "errno", None) else e
            raise OSError(
                f"cannot listen at {host}, port {port}: {reason}. Give another "
                f"port with {option}, or {option}=0 for none"
            ) from e


def _default_grpc_port():
    """8500, or 0 and a note where gRPC cannot be served."""
    try:
        from tfxclass_serve import grpc_server  # noqa: F401
    except ImportError as e:
        print(f"REST alone: {e}", flush=True)
        return 0
    return 8500


def _make_server(arguments):
    """The server, or the end of the process with the reason."""
    if arguments.port is None:
        arguments.port = _default_grpc_port()
    try:
        from tfxclass_serve.server import Server

        _check_ports(arguments)
        return Server(
            _sources(arguments),
            arguments.host,
            arguments.rest_api_port or None,
            arguments.port or None,
            arguments.poll_seconds,
            arguments.batching,
            max_request_bytes=arguments.max_request_bytes,
            timeout=arguments.timeout_seconds,
        )
    except (ImportError, OSError, RuntimeError) as e:
        # An extra that is missing, a port that is taken.
        sys.exit(f"tfxclass-serve: {e}")


def _wake_by_signals():
    """A socket that can be read once SIGINT or SIGTERM has come.

    The system may hand a signal to any thread. A wait for a lock in the main
    thread would not notice, and a handler that takes a lock may find it taken.
    """
    woken, waker = socket.socketpair()
    waker.setblocking(False)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: None)
    # Python does not own the socket from here on, so that it stays open.
    signal.set_wakeup_fd(waker.detach())
    return woken


def _end_after(seconds):
    """Ends the process then, whatever is still waited for."""
    timer = threading.Timer(seconds, os._exit, [1])
    timer.daemon = True
    timer.start()


def main(argv=None):
    arguments = parse_arguments(argv)
    # It loads TensorFlow, without the notes that bury what a user reads. The
    # server's own log tells what fails.
    from tfxclass_serve import quiet  # noqa: F401

    server = _make_server(arguments)
    print(_NOTE, flush=True)
    log = logging.getLogger("tfxclass_serve")
    log.setLevel(logging.INFO)
    log.addHandler(logging.StreamHandler(sys.stdout))
    # Nothing is under way while models load: a signal ends the process.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    server.load()
    woken = _wake_by_signals()
    server.start()
    for kind, api in (("REST", server.rest), ("gRPC", server.grpc)):
        if api is not None:
            print(f"{kind} at {arguments.host}:{api.port}", flush=True)
    woken.recv(1)
    _end_after(arguments.grace_seconds + _MARGIN)
    is_clean = server.stop(arguments.grace_seconds)
    print("Stopped." if is_clean else "Stopped; some requests were cut off.")
    sys.stdout.flush()
    # A model that loads, or never ends to compute, must not hold it up.
    os._exit(not is_clean)


if __name__ == "__main__":
    main()
