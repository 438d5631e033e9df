"""README's example with other optimizers.

    python -m benchmarks.readme_optimizers [--seeds 3]

README's block, as it is printed, with 20,000 classes and 200 sampled classes.
The data are separable: a class is a normal vector in 64 dimensions, and an
example is its class plus noise with a standard deviation of 0.3. 200,000
examples are trained on once, in batches of 32. Accuracy is the percentage of
2,000 new examples whose class is among the ten best.

tests/project/test_readme.py trains the settings of `ALTERNATIVES` with one
seed, and fails if one of them is more than two points better than README's.
"""

import argparse
import pathlib
import re

import keras
import numpy as np

import tfxclass
from benchmarks import measure

NUM_CLASSES, NUM_SAMPLED, DIM = 20_000, 200, 64
NUM_TRAIN, NUM_TEST = 200_000, 2_000
README = pathlib.Path(__file__).parent.parent / "README.md"
#: Settings that another user might choose for the same model.
ALTERNATIVES = (
    "tfxclass.optimizers.LazyAdam(3e-3)",
    "tfxclass.optimizers.LazyAdagrad(0.1)",
)
MORE = (
    "tfxclass.optimizers.LazyAdam(1e-3)",
    "tfxclass.optimizers.LazySGD(0.1, momentum=0.9)",
    "tfxclass.optimizers.LazyAdam(3e-4)",
    "tfxclass.optimizers.LazyAdam(1e-2)",
    "tfxclass.optimizers.LazyAdam(1e-3, second_moment='matrix')",
    "tfxclass.optimizers.LazyAdam(1e-2, second_moment='matrix')",
    "tfxclass.optimizers.LazyAdagrad(0.03)",
)


def training_code():
    """README's block from the head to `fit`, for these classes."""
    text = README.read_text(encoding="utf8")
    (block,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    # Without the lines before, which make README's own x and y.
    code = block[block.index("head = ") : block.index("model.fit(")]
    code = "import keras\nimport tfxclass\n" + code
    for printed, here in (("670_091", NUM_CLASSES), ("6_700", NUM_SAMPLED)):
        if code.count(printed) != 1:
            raise ValueError(f"README's block must have {printed} once.")
        code = code.replace(printed, str(here))
    return code + "model.fit(x, y)"


def printed_optimizer():
    """The expression of README's optimizer."""
    (found,) = re.findall(
        r"tfxclass\.optimizers\.\w+\([^()]*\)", training_code()
    )
    return found


def examples(seed):
    """`(x, y, test_x, test_y)`, float32 `[rows, DIM]` and int64 `[rows]`."""
    random = np.random.default_rng(seed)
    means = random.normal(size=(NUM_CLASSES, DIM))
    y = random.integers(0, NUM_CLASSES, NUM_TRAIN + NUM_TEST)
    x = means[y] + 0.3 * random.normal(size=(len(y), DIM))
    x = x.astype(np.float32)
    return x[:NUM_TRAIN], y[:NUM_TRAIN], x[NUM_TRAIN:], y[NUM_TRAIN:]


def accuracy_of(optimizer, seed=0):
    """Percentage of new examples whose class is among the ten best.

    Args:
        optimizer: str, an expression that takes the place of README's.
        seed: int, of data, weights and samples.
    """
    keras.utils.set_random_seed(seed)
    x, y, test_x, test_y = examples(seed)
    names = {"x": x, "y": y}
    exec(training_code().replace(printed_optimizer(), optimizer), names)  # noqa: S102
    best = tfxclass.top_k(names["model"], k=10)
    ids, _ = best.predict(test_x, verbose=0)
    return 100 * float(np.mean(np.any(ids == test_y[:, np.newaxis], axis=1)))


def main(seeds):
    rows = []
    for optimizer in (printed_optimizer(), *ALTERNATIVES, *MORE):
        found = [accuracy_of(optimizer, seed) for seed in range(seeds)]
        rows.append(
            {
                "optimizer": optimizer.removeprefix("tfxclass.optimizers."),
                "top_10_percent": np.mean(found),
                "least_percent": min(found),
                "most_percent": max(found),
            }
        )
        print(rows[-1], flush=True)
    measure.save("readme_optimizers", rows)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    main(parser.parse_args().seeds)
