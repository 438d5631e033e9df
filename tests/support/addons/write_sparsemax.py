"""Records TensorFlow Addons' sparsemax, the reference of ours.

Runs in the environment of `requirements.txt` (TF 2.15.1, TFA 0.23), which
cannot be imported beside TF 2.21:

    python write_sparsemax.py [../../data/tfa_sparsemax.npz]

The file holds `logits_*` [rows, classes] of different spread, and one-hot
`targets_*`, which were drawn here; and what TFA made of them:
`probabilities_*`, `losses_*` [rows] and `gradients_*`, those of the sum of the
losses by the logits.
"""

import os
import sys
import warnings

import numpy as np

warnings.filterwarnings("ignore")
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"

ROWS, CLASSES = 12, 30
SPREADS = {"narrow": 0.01, "middle": 1.0, "wide": 20.0}


def answers(logits, targets):
    """Probabilities, losses and gradients of TFA."""
    import tensorflow as tf
    import tensorflow_addons as tfa

    logits = tf.constant(logits)
    with tf.GradientTape() as tape:
        tape.watch(logits)
        probabilities = tfa.activations.sparsemax(logits)
        losses = tfa.losses.sparsemax_loss(logits, probabilities, targets)
    gradients = tape.gradient(losses, logits)
    return [x.numpy() for x in (probabilities, losses, gradients)]


def main(path):
    random = np.random.default_rng(21)
    arrays = {}
    for name, spread in SPREADS.items():
        logits = spread * random.normal(size=(ROWS, CLASSES))
        # Equal logits, at the top as well.
        logits[:3, :5] = logits[:3].max(axis=1, keepdims=True)
        logits = logits.astype(np.float32)
        targets = np.eye(CLASSES, dtype=np.float32)
        targets = targets[random.integers(0, CLASSES, ROWS)]
        results = answers(logits, targets)
        arrays[f"logits_{name}"] = logits
        arrays[f"targets_{name}"] = targets
        for kind, value in zip(
            ("probabilities", "losses", "gradients"), results
        ):
            arrays[f"{kind}_{name}"] = value
    np.savez_compressed(path, **arrays)
    print(f"wrote {path}: {os.path.getsize(path)} bytes")


if __name__ == "__main__":
    here = os.path.dirname(os.path.abspath(__file__))
    main(
        sys.argv[1]
        if len(sys.argv) > 1
        else os.path.join(here, "../../data/tfa_sparsemax.npz")
    )
