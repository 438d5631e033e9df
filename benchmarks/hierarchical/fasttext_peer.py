"""fastText on the same rows, in an environment of its own.

    python3 -m venv FOLDER
    FOLDER/bin/pip install fasttext-wheel "numpy<2"
    FOLDER/bin/python fasttext_peer.py JOB.json

JOB.json has `train` and `test` (files of `make_text`), `loss`, `dim`, `rate`,
`epochs`, `k`, `seed`; the last line of the output is JSON: seconds of training
(reading the file included) and for each test row the k labels predicted, none
where training diverged.
"""

import json
import sys
import time


def train(job):
    """The model, or None where training diverged."""
    import fasttext

    try:
        return fasttext.train_supervised(
            job["train"],
            loss=job["loss"],
            dim=job["dim"],
            lr=job["rate"],
            epoch=job["epochs"],
            # One core: its times are comparable, and its results repeat.
            thread=1,
            minCount=1,
            seed=job["seed"],
            verbose=0,
        )
    except RuntimeError as error:
        if "Encountered NaN" not in str(error):
            raise
        return None


def run(job):
    clock, cpu = time.perf_counter(), time.process_time()
    model = train(job)
    seconds = time.perf_counter() - clock
    cpu_seconds = time.process_time() - cpu
    with open(job["test"]) as f:
        rows = [line.rstrip("\n") for line in f]
    labels = [[] for _ in rows]
    if model is not None:
        labels, _ = model.predict(rows, k=job["k"])
    prefix = len("__label__")
    return {
        "seconds": seconds,
        "cpu_seconds": cpu_seconds,
        "predicted": [[int(x[prefix:]) for x in row] for row in labels],
    }


if __name__ == "__main__":
    with open(sys.argv[1]) as f:
        print(json.dumps(run(json.load(f))))
