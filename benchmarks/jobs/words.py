"""The next word, in the table of the paper of random projection.

    python -m benchmarks.jobs.words FOLDER

FOLDER has Penn Treebank as train.txt, valid.txt and test.txt. Settings are of
short runs on validation words; this one reads the test.
"""

import functools

import keras

from benchmarks import measure
from examples import next_word

NAME, UNITS, EPOCHS, EXACT, SEED = "jobs/words", 512, 22, 2, 0
POLICY = "mixed_bfloat16"


def child(folder, units, epochs, exact, policy, seed):
    keras.utils.set_random_seed(seed)
    keras.config.set_dtype_policy(policy)
    words, parts = next_word.read(folder)
    model = next_word.make_model(len(words), units)
    with measure.Stopwatch() as watch:
        next_word.train(model, parts, epochs, exact, verbose=0)
    told = {"units": units, "epochs": epochs, "seed": seed}
    seconds = {"CPU s": round(watch.cpu, 1), "s": round(watch.wall, 1)}
    return [told | next_word.evaluate(model, parts) | seconds]


def main():
    measure.run_child(child)
    args = measure.arguments(__doc__, first=["folder"])
    run = functools.partial(measure.ask, args.folder)
    rows = measure.once("words", UNITS, EPOCHS, EXACT, POLICY, SEED, run=run)
    measure.save(NAME, rows, ("units", "seed"))


if __name__ == "__main__":
    main()
