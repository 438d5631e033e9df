"""Environments under .versions/, one for each TensorFlow.

    python3 -m tests.versions.environments 2.20 2.21

makes those that are missing and prints their Pythons.
"""

import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDER = ROOT / ".versions"
#: What pip installs for each TensorFlow, by its minor version.
TESTED = {
    "2.20": ("tensorflow-cpu==2.20.*", "keras==3.12.0"),
    "2.21": ("tensorflow-cpu==2.21.*", "keras==3.15.*"),
    "2.22": ("tensorflow-cpu==2.22.0rc0", "keras-nightly"),
}
#: TensorFlows that only load exports: servers are often months behind.
SERVING = {"2.19": ("tensorflow-cpu==2.19.*",)}
_TOOLS = ("hypothesis", "pytest", "setuptools>=77", "wheel")


def make(name):
    """Makes an environment unless it is there; the path of its Python.

    Args:
        name: str, TensorFlow's minor version, a key of TESTED or SERVING.
    """
    packages = [*{**TESTED, **SERVING}[name], *_TOOLS]
    folder, wanted = FOLDER / name, "\n".join(packages)
    python, stamp = folder / "bin" / "python", folder / "installed"
    if stamp.exists() and stamp.read_text() == wanted:
        return python
    print(f"Making {folder.relative_to(ROOT)} ...", file=sys.stderr, flush=True)
    subprocess.run(
        [sys.executable, "-m", "venv", "--clear", folder], check=True
    )
    pip = [python, "-m", "pip", "-qq", "--disable-pip-version-check"]
    subprocess.run([*pip, "install", *packages], check=True)
    stamp.write_text(wanted)
    return python


def main():
    print(*[os.fspath(make(name)) for name in sys.argv[1:]])


if __name__ == "__main__":
    main()
