"""`tfxclass-serve` on the command line, in a process of its own."""

import ast
import os
import pathlib
import re
import socket
import subprocess
import sys

import pytest

from tests.support.serving_cases import needs_grpc
from tfxclass_serve import __main__ as main
from tfxclass_serve import quiet

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    "arguments",
    [[], ["/no/such/folder"], ["models", "--batch_sizes=4,1"], [".", "--x"]],
)
def test_bad_command_line(arguments, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models" / "name" / "1").mkdir(parents=True)
    with pytest.raises(SystemExit) as e:
        main.parse_arguments(arguments)
    assert e.value.code == 2
    assert "tfxclass-serve: error" in capsys.readouterr().err


@pytest.mark.parametrize(
    "file, message",
    [
        (None, "none of them"),
        ("tagger.json", r"saved Tagger.*Tagger.load\(.*\).export\("),
        ("tags/tagger.json", "tags is a saved Tagger"),
        ("model.keras", r"model.keras is a Keras model.*saved_model\("),
        ("saved_model.pb", "one version of a model"),
        ("model.onnx", "ONNX model"),
    ],
)
def test_nothing_to_serve(tmp_path, capsys, file, message):
    folder = tmp_path / "given"
    folder.mkdir()
    if file is not None:
        (folder / file).parent.mkdir(exist_ok=True)
        (folder / file).touch()
    with pytest.raises(SystemExit) as e:
        main.parse_arguments([str(folder)])
    error = capsys.readouterr().err
    assert e.value.code == 2 and error.count("\n") == 1
    assert re.search(f"no model to serve in {folder}.*{message}", error)


def test_a_keras_file_is_not_served(tmp_path, capsys):
    (tmp_path / "model.keras").touch()
    with pytest.raises(SystemExit):
        main.parse_arguments([str(tmp_path / "model.keras")])
    assert "is a Keras model" in capsys.readouterr().err


def test_help_does_not_load_tensorflow():
    code = (
        "import sys\n"
        "from tfxclass_serve import __main__\n"
        "try: __main__.parse_arguments(['--help'])\n"
        "finally: assert 'tensorflow' not in sys.modules"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0 and not done.stderr
    assert "(default: 8501)" in done.stdout


def hide(monkeypatch, name, *modules):
    """Makes an import of `name` fail, in modules that import it."""
    for module in modules:
        monkeypatch.delitem(
            sys.modules, f"tfxclass_serve.{module}", raising=False
        )
        monkeypatch.delattr(f"tfxclass_serve.{module}", raising=False)
    monkeypatch.setitem(sys.modules, name, None)


def test_without_prometheus(served_models, monkeypatch):
    hide(monkeypatch, "prometheus_client", "server", "metrics")
    with pytest.raises(SystemExit, match="pip install prometheus-client"):
        main.main([str(served_models)])


@pytest.mark.parametrize(
    "name", ["grpc", "grpc_health.v1", "tensorflow_serving.apis"]
)
def test_without_grpc(served_models, monkeypatch, capsys, name):
    """REST alone, unless a port of gRPC is asked for."""
    hide(monkeypatch, name, "grpc_server")
    assert main._default_grpc_port() == 0
    note = capsys.readouterr().out
    assert note.startswith("REST alone: ") and "pip install grpcio" in note
    with pytest.raises(SystemExit, match="pip install grpcio"):
        main.main([str(served_models), "--port=18500"])


@needs_grpc
@pytest.mark.parametrize(
    "text, message",
    [
        ("no config", "models.config: 1:1 : "),
        ("model_config_list { config { name: 'a' } }", "name of its own"),
        (
            "model_config_list { config { name: 'a' base_path: '/a' } }",
            "no base_path has a version.*'/a'",
        ),
    ],
)
def test_bad_config(tmp_path, text, message):
    path = tmp_path / "models.config"
    path.write_text(text)
    with pytest.raises(SystemExit, match="tfxclass-serve: .*" + message):
        main.main([f"--model_config_file={path}"])


def test_notes_are_left_out(capfd):
    with quiet.without_notes():
        os.write(2, b"WARNING: All log messages before absl::InitializeLog() ")
        os.write(2, b"is called\nI0000 00:00:1.2 3 port.cc:153] oneDNN is on\n")
        os.write(2, b"2026-01-01 00:00:00.1: I tensorflow/a.cc:1] on\n")
        os.write(2, b"E0000 00:00:1.2 3 cuda.cc:1] no driver\nA warning\n")
        print("to stdout", flush=True)
    out, err = capfd.readouterr()
    assert out == "to stdout\n"
    assert err == "E0000 00:00:1.2 3 cuda.cc:1] no driver\nA warning\n"


@pytest.mark.parametrize("option", ["--rest_api_port", "--port"])
def test_port_that_is_taken(served_models, option):
    other = {"--rest_api_port": "--port", "--port": "--rest_api_port"}[option]
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        message = f"tfxclass-serve: .*port {port}: .*in use.*with {option},"
        with pytest.raises(SystemExit, match=message):
            main.main([str(served_models), f"{option}={port}", f"{other}=0"])


def test_it_does_not_import_tfxclass():
    for path in (ROOT / "tfxclass_serve").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [x.name for x in getattr(node, "names", ())]
            names.append(getattr(node, "module", None) or "")
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                assert not [x for x in names if x.split(".")[0] == "tfxclass"]


@pytest.mark.parametrize(
    "wait, code",
    [
        ("main._wake_by_signals().recv(1)", 0),
        # The end does not wait for a lock that is never free.
        ("main._end_after(0.2); threading.Event().wait()", 1),
    ],
    ids=["signal", "end"],
)
def test_the_end_waits_for_nothing(wait, code):
    """The system may hand SIGTERM to any thread."""
    program = f"""
import signal, threading
from tfxclass_serve import __main__ as main
signal.signal(signal.SIGTERM, lambda *_: None)
def tell():
    signal.pthread_kill(threading.get_ident(), signal.SIGTERM)
threading.Timer(0.5, tell).start()
{wait}
"""
    found = subprocess.run([sys.executable, "-c", program], timeout=30)
    assert found.returncode == code
