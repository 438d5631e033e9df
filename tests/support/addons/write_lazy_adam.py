"""Records TensorFlow Addons' LazyAdam, the reference of ours.

Runs in the environment of `requirements.txt` (TF 2.15.1, TFA 0.23), which
cannot be imported beside TF 2.21:

    python write_lazy_adam.py [../../data/tfa_lazy_adam.npz]

The file holds `start` [rows, dim]; `ids` [steps, n] with duplicates and
`grads` [steps, n, dim], which were drawn here; and what TFA made of them:
`weights_*`, `momentum_*` and `velocity_*` [steps, rows, dim] for each setting
in SETTINGS.
"""

import os
import sys
import warnings

import numpy as np

warnings.filterwarnings("ignore")
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"

ROWS, DIM, STEPS, BATCH = 7, 5, 12, 6
SETTINGS = {
    "default": {"learning_rate": 0.001},
    "fast": {
        "learning_rate": 0.05,
        "beta_1": 0.8,
        "beta_2": 0.95,
        "epsilon": 1e-4,
    },
}


def trajectory(setting, start, ids, grads):
    """Weights and slots after each step, each [steps, rows, dim]."""
    import tensorflow as tf
    import tensorflow_addons as tfa

    optimizer = tfa.optimizers.LazyAdam(**setting)
    variable = tf.Variable(start)
    states = []
    for step_ids, step_grads in zip(ids, grads):
        rows = tf.IndexedSlices(step_grads, step_ids, [ROWS, DIM])
        optimizer.apply_gradients([(rows, variable)])
        slots = [optimizer.get_slot(variable, name) for name in ("m", "v")]
        states.append([x.numpy() for x in (variable, *slots)])
    return [np.stack(x) for x in zip(*states)]


def main(path):
    random = np.random.default_rng(20)
    start = random.normal(size=(ROWS, DIM)).astype(np.float32)
    # The last row is never touched; scales from 1 down to epsilon's.
    ids = random.integers(0, ROWS - 1, (STEPS, BATCH))
    grads = random.normal(size=(STEPS, BATCH, DIM))
    grads *= 10.0 ** random.integers(-6, 1, (STEPS, BATCH, 1))
    grads = grads.astype(np.float32)
    arrays = {"start": start, "ids": ids, "grads": grads}
    for name, setting in SETTINGS.items():
        results = trajectory(setting, start, ids, grads)
        for kind, value in zip(("weights", "momentum", "velocity"), results):
            arrays[f"{kind}_{name}"] = value
    np.savez_compressed(path, **arrays)
    print(f"wrote {path}: {os.path.getsize(path)} bytes")


if __name__ == "__main__":
    here = os.path.dirname(os.path.abspath(__file__))
    main(
        sys.argv[1]
        if len(sys.argv) > 1
        else os.path.join(here, "../../data/tfa_lazy_adam.npz")
    )
