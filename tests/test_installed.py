"""Installed as users do it: into environments of their own, from an index."""

import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
TRAINED = """
import keras
import numpy as np
import tfxclass

tfxclass.show_build()
keras.utils.set_random_seed(0)
random = np.random.default_rng(0)
y = random.integers(0, 60, 256)
x = np.eye(60, 16, dtype=np.float32)[y % 16] + y[:, None] / 60
head = tfxclass.layers.SelectiveSoftmax(60, num_sampled=30)
model = keras.Sequential([keras.Input([16]), head])
model.compile(tfxclass.optimizers.LazyAdam(0.1), loss=head.loss)
model.fit(x, y, epochs=10, verbose=0)
found, _ = tfxclass.top_k(model, k=5).predict(x, verbose=0)
print("top 5:", np.mean(np.any(found == y[:, None], axis=1)))
tfxclass.export.saved_model(model, "exported", top_k=5)
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
    assert "ops: stock TensorFlow" in said
    assert complained.count("UserWarning") == 1
    assert "ops are missing" in complained and "Rebuild: pip" in complained
    assert float(said.split("top 5:")[1]) > 0.8
    assert (tmp_path / "exported" / "1" / "saved_model.pb").exists()
