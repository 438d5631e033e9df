"""The example of the next word, beside Table 4 of random projection's paper.

    python -m benchmarks.jobs.words FOLDER

FOLDER has Penn Treebank as train.txt, valid.txt and test.txt. Settings were
chosen by validation in short runs. The trained weights are kept in
benchmarks/cache. Seconds are of training, with a validation after each epoch.
"""

import functools

import keras

from benchmarks import measure
from examples import next_word

#: Units, epochs, how many of them are exact, and the policy.
JOB, SEEDS = (512, 22, 2, "mixed_bfloat16"), (0,)


def child(folder, units, epochs, exact, policy, seed):
    keras.utils.set_random_seed(seed)
    words, parts = next_word.read(folder)
    model = next_word.make_model(len(words), units, policy=policy)

    def trained():
        with measure.Stopwatch() as watch:
            next_word.train(model, parts, epochs, exact, verbose=0)
        seconds = {"CPU s": round(watch.cpu, 1), "s": round(watch.wall, 1)}
        return [v.numpy() for v in model.trainable_variables], seconds

    kept = f"words/{units},{epochs},{exact},{policy},{seed}"
    weights, seconds = measure.pickled(kept, trained)
    for variable, value in zip(model.trainable_variables, weights, strict=True):
        variable.assign(value)
    about = {"units": units, "epochs": epochs, "policy": policy, "seed": seed}
    return about | next_word.evaluate(model, parts) | seconds


def main():
    measure.run_child(child)
    args = measure.arguments(__doc__, first=["folder"])
    run = functools.partial(measure.ask, args.folder)
    rows = measure.of_all_seeds("words", *JOB, seeds=SEEDS, run=run)
    measure.save("jobs/words", rows, ("units", "seed"))


if __name__ == "__main__":
    main()
