"""Installed as users do it: into environments of their own, from an index."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import zipfile
from importlib import metadata

import pytest

from custom_ops import build
from tests.project.test_readme import blocks_of

ROOT = pathlib.Path(__file__).resolve().parents[2]
MINOR = build.minor_version(metadata.version("tensorflow-cpu"))
TRAINED = """
import keras
import numpy as np
import tfxclass

tfxclass.show_build()
keras.utils.set_random_seed(0)
random = np.random.default_rng(0)
y = random.integers(0, 60, 256)
x = np.eye(60, 16, dtype=np.float32)[y % 16] + y[:, None] / 60
head = tfxclass.layers.SampledSoftmax(60, num_sampled=30, sampler="auto")
model = keras.Sequential([keras.Input([16]), head])
model.compile(tfxclass.optimizers.LazyAdam(0.1), loss=head.loss)
model.fit(x, y, epochs=20, verbose=0)
found, _ = tfxclass.top_k(model, k=5).predict(x, verbose=0)
print("top 5:", np.mean(np.any(found == y[:, None], axis=1)))
tfxclass.export.saved_model(model, "exported", top_k=5)
"""

DATA = """
import numpy as np
import tfxclass

tfxclass.show_build()
random = np.random.default_rng(0)
x = random.normal(size=(256, 64)).astype("float32")
y = random.integers(0, 9_000, 256)
"""


def run(*command, **options):
    """What a command prints and complains of; it must succeed."""
    done = subprocess.run(
        list(map(str, command)), capture_output=True, text=True, **options
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return done.stdout, done.stderr


def new_environment(folder):
    """The Python of a virtual environment in which nothing is installed."""
    run(sys.executable, "-m", "venv", folder)
    return folder / "bin" / "python"


def without_a_compiler(python):
    """Of such a Python: its commands and no others, nothing of ours."""
    kept = ("HOME", "LANG", "TMPDIR", "TF_ENABLE_ONEDNN_OPTS")
    environment = {x: os.environ[x] for x in kept if x in os.environ}
    environment |= {x: y for x, y in os.environ.items() if "PROXY" in x.upper()}
    environment |= {x: y for x, y in os.environ.items() if x[:4] == "PIP_"}
    return {**environment, "PATH": str(python.parent)}


def install(python, what, environment, **options):
    """Installs `what`; skips where there is no index."""
    pip = [python, "-m", "pip", "-q", "--disable-pip-version-check"]
    done = subprocess.run(
        [*map(str, pip), "install", *map(str, what)],
        env=environment,
        capture_output=True,
        text=True,
        **options,
    )
    if "Could not find a version" in done.stderr:
        pytest.skip(done.stderr.strip()[-300:])
    assert done.returncode == 0, done.stderr[-4000:]


@pytest.mark.slow
def test_sdist_without_a_compiler(tmp_path):
    """Installed, trained and exported; one warning says how to compile."""
    options = ["egg_info", "--egg-base", tmp_path, "sdist", "-d", tmp_path]
    run(sys.executable, "setup.py", "-q", *options, cwd=ROOT)
    (sdist,) = tmp_path.glob("*.tar.gz")
    python = new_environment(tmp_path / "env")
    environment = without_a_compiler(python)
    install(python, [f"tfxclass[cpu] @ {sdist.as_uri()}"], environment)
    said, complained = run(python, "-c", TRAINED, cwd=tmp_path, env=environment)
    assert "ops: fallback" in said
    assert complained.count("UserWarning") == 1
    assert "ops are missing" in complained and "Rebuild: pip" in complained
    assert float(said.split("top 5:")[1]) > 0.8
    assert (tmp_path / "exported" / "1" / "saved_model.pb").exists()


@pytest.mark.slow
def test_wheels(tmp_path):
    """`make wheels`, and README's block where nothing else is installed."""
    # One TensorFlow: the others take minutes each.
    tensorflow = f"WHEEL_TENSORFLOWS={MINOR}"
    run(
        "make",
        "-s",
        "wheels",
        f"DIST={tmp_path / 'dist'}",
        tensorflow,
        cwd=ROOT,
    )
    server, wheel = sorted((tmp_path / "dist").iterdir(), reverse=True)
    assert "-py3-none-manylinux_" in wheel.name
    names = zipfile.ZipFile(wheel).namelist()
    libraries = {x.rpartition("/")[2] for x in names if ".so" in x}
    # And none of TensorFlow's.
    assert libraries == {"_tfxclass_ops.so", "_tfxclass_ops.x86-64-v3.so"}
    python = new_environment(tmp_path / "env")
    environment = without_a_compiler(python)
    wheels = [f"tfxclass[cpu] @ {wheel.as_uri()}", str(server)]
    install(python, wheels, environment)
    (code,) = blocks_of("README.md")
    code = code.replace("670_091", "9_000").replace("6_700", "900")
    said, complained = run(
        python, "-c", DATA + code, cwd=tmp_path, env=environment
    )
    assert "ops: compiled" in said and "processors: any, x86-64-v3" in said
    assert "UserWarning" not in complained
    assert (tmp_path / "models" / "products" / "1").exists()
    command = [python.parent / "tfxclass-serve", "--help"]
    assert "models" in run(*command, cwd=tmp_path, env=environment)[0]


@pytest.mark.slow
def test_cuda_wheel(tmp_path):
    """`make wheels-cuda`: a library for GPUs, and nothing of CUDA's or ours."""
    if shutil.which("nvcc") is None:
        pytest.skip("nvcc is not installed")
    environment = {**os.environ, "TFXCLASS_CUDA_ARCHS": "90"}
    command = ["make", "-s", "wheels-cuda", f"DIST={tmp_path / 'dist'}"]
    command.append(f"WHEEL_TENSORFLOWS={MINOR}")
    run(*command, cwd=ROOT, env=environment)
    (wheel,) = (tmp_path / "dist").iterdir()
    assert wheel.name.startswith("tfxclass_cuda-2")
    assert "-py3-none-manylinux_" in wheel.name
    with zipfile.ZipFile(wheel) as files:
        names = {x for x in files.namelist() if x[-1] != "/"}
        info = json.loads(files.read(f"tfxclass_cuda/{MINOR}/build_info.json"))
        files.extractall(tmp_path / "installed")
    parts = ("_tfxclass_ops.so", "build_info.json")
    parts = ["__init__.py", *(f"{MINOR}/{part}" for part in parts)]
    ours = {x for x in names if ".dist-info/" not in x}
    assert ours == {f"tfxclass_cuda/{x}" for x in parts}
    assert info["cuda"] and info["march"] == ["-march=x86-64-v3"]
    # Found beside the checkout, and loaded under tensorflow-cpu.
    path = f"{ROOT}{os.pathsep}{tmp_path / 'installed'}"
    code = "import tfxclass; tfxclass.show_build()"
    said, complained = run(
        sys.executable, "-c", code, env={**os.environ, "PYTHONPATH": path}
    )
    assert f"GPU: CUDA {info['cuda']}" in said
    assert "UserWarning" not in complained
