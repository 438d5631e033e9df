"""The tools, what they need, and an environment of its own for each."""

import os
import shutil
import subprocess
import sys
from typing import NamedTuple

from benchmarks import measure

CACHE = os.path.join(measure.FOLDER, "cache", "tagging")


class Tool(NamedTuple):
    """A tool of the comparison.

    Attributes:
        label: str, as the table and the figure name it.
        packages: what pip installs, of one environment; none for ours.
        alone: a package that pip installs without what it asks for.
        most_labels: int, it is not tried on sets with more: one model a label
            on all rows.
    """

    label: str
    packages: tuple = ()
    alone: str | None = None
    most_labels: int = 10**9


_NUMPY = ("numpy<2", "scipy<1.14")
OMIKUJI = ("omikuji==0.5.2", *_NUMPY)
NAPKIN = ("napkinxc==0.7.2", *_NUMPY)
LIBMULTILABEL = ("libmultilabel==0.10.0", *_NUMPY)
# Of what it asks for, PyTorch and others are for models that are not compared.
PECOS = ("scikit-learn==1.5.2", "pyyaml", *_NUMPY)
TOOLS = {
    "ours": Tool("Tagger"),
    "ours_fast": Tool('Tagger(effort="fast")'),
    "omikuji": Tool("Omikuji (Parabel)", OMIKUJI),
    "bonsai": Tool("Bonsai (Omikuji)", OMIKUJI),
    "pecos": Tool("PECOS XR-Linear", PECOS, "libpecos==1.2.8"),
    "napkin_plt": Tool("napkinXC PLT", NAPKIN),
    "napkin_br": Tool("napkinXC one-vs-rest", NAPKIN, most_labels=1000),
    "lml_tree": Tool("LibMultiLabel tree", LIBMULTILABEL),
    "lml_1vsrest": Tool(
        "LibMultiLabel one-vs-rest", LIBMULTILABEL, most_labels=1000
    ),
    "fasttext": Tool("fastText", ("fasttext-wheel==0.9.2", *_NUMPY)),
}


class NotInstalled(Exception):
    """pip could not install a tool; its last line."""


def python_of(tool):
    """Path of the Python that has the tool; its environment is made once.

    Raises:
        NotInstalled: pip failed.
    """
    if not tool.packages:
        return sys.executable
    name = (tool.alone or tool.packages[0]).replace("==", "-")
    folder = os.path.join(CACHE, "environments", name)
    python = os.path.join(folder, "bin", "python")
    if not os.path.exists(os.path.join(folder, "whole")):
        print(f"Installing {' '.join(tool.packages)} ...", flush=True)
        shutil.rmtree(folder, ignore_errors=True)
        _run([sys.executable, "-m", "venv", folder])
        _run([python, "-m", "pip", "install", "-q", *tool.packages])
        if tool.alone:
            _run(
                [python, "-m", "pip", "install", "-q", "--no-deps", tool.alone]
            )
        with open(os.path.join(folder, "whole"), "w"):
            pass
    return python


def _run(command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines()
        told = [line for line in lines if line.startswith("ERROR")] or lines
        raise NotInstalled(told[-1][:160] if told else "pip failed")
