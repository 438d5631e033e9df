"""`make test-works-with`: other programs read our exports, and we theirs.

    python -m tests.works_with openvino litert

Each program has an environment of its own under build/works_with, or under
the folder in WORKS_WITH, and runs `ask_<name>.py` there. Without names, all are
run. What they print is on docs/works_with.md.
"""

import os
import pathlib
import subprocess
import sys
import tempfile

from tests.works_with import models

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
ENVIRONMENTS = os.environ.get("WORKS_WITH", ROOT / "build" / "works_with")
#: What pip installs for each program.
PACKAGES = {
    "torch": ["torch", "numpy"],
    "openvino": ["openvino"],
    "litert": ["ai-edge-litert"],
    "onnx": ["onnxruntime", "onnxruntime-extensions", "onnx"],
    "clients": ["ovmsclient", "tritonclient[http,grpc]"],
    "annif": ["annif==1.4.*"],
}


def python_of(name):
    """The Python of an environment, which is made unless it is there."""
    folder = pathlib.Path(ENVIRONMENTS, name)
    python, stamp = folder / "bin" / "python", folder / "works_with"
    if not stamp.exists():
        print(f"Making {folder} ...", flush=True)
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        pip = [python, "-m", "pip", "-qq", "install"]
        subprocess.run([*pip, *PACKAGES[name]], check=True)
        stamp.touch()
    return python


def ask(name, *arguments):
    """Runs `ask_<name>.py` in its environment, without tfxclass."""
    command = [python_of(name), HERE / f"ask_{name}.py", *map(str, arguments)]
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    print(f"\n{name}", flush=True)
    subprocess.run(command, check=True, env=environment)


def main(*names):
    for name in names or PACKAGES:
        with tempfile.TemporaryDirectory() as folder:
            getattr(models, name)(pathlib.Path(folder), ask)


if __name__ == "__main__":
    main(*sys.argv[1:])
