"""The next item of users, in tables that others printed.

    python -m benchmarks.jobs.users FOLDER

FOLDER has `Beauty.txt`, `Sports_and_Outdoors.txt` and `Toys_and_Games.txt`, as
in `data/` of the repository RUCAIBox/CIKM2020-S3Rec. The last item of each user
is the test. The epoch is chosen on the one before it
(`examples/next_item_users.py`), which the transformer has not learned. The
counts are of what it has learned, or ("latest") of that one, too.
"""

import contextlib
import io
import os

import keras

import tfxclass
from benchmarks import measure
from examples import next_item_users as users

NAME, DIM, EPOCHS, SEEDS = "jobs/users", 128, 12, (0, 1, 2)
DATA = ("Beauty", "Sports_and_Outdoors", "Toys_and_Games")
#: The weight of the counts, and whether they are of the latest items, too.
METHODS = {
    "transformer": (users.ALONE, False),
    "co-occurrence": (users.COUNTS, False),
    "both": (users.WEIGHT, False),
    "co-occurrence, latest": (users.COUNTS, True),
    "both, latest": (users.WEIGHT, True),
}


def child(folder, data, seed):
    sequences = users.read(os.path.join(folder, f"{data}.txt"))
    split = tfxclass.retrieval.leave_one_out(sequences)
    keras.utils.set_random_seed(seed)
    model, answers = users.make_models(1 + max(map(max, sequences)), DIM)
    ranker = users.make_ranker(answers)
    with (
        measure.Stopwatch() as watch,
        contextlib.redirect_stdout(io.StringIO()),
    ):
        best = users.train(model, ranker, split, EPOCHS)
    rows = []
    for method, (weight, has_latest) in METHODS.items():
        row = {"method": method}
        if has_latest:
            users.count(ranker, split.test.histories)
        if weight in best:
            _, epoch, values = best[weight]
            row |= {"epoch": float(epoch), "CPU s": round(watch.cpu, 1)}
            model.set_weights(values)
        found = users.evaluate(ranker, split.test, weight)
        names = {"hit_rate": "HR@10", "ndcg": "NDCG@10"}
        rows.append(row | {names[x]: float(found[x]) for x in names})
    return rows


def main():
    """Means over the seeds so far, a row for each set and method."""
    measure.run_child(child)
    folder = measure.arguments(__doc__, first=["folder"]).folder
    runs = {}
    for seed in SEEDS:
        for data in DATA:
            job = data, seed, DIM, EPOCHS
            found = measure.once(
                "users", *job, run=lambda *job: measure.ask(folder, *job[:2])
            )
            runs.setdefault(data, []).append(found)
            rows = [
                {"data": data, **measure.of_seeds(lines)}
                for data, found in runs.items()
                for lines in zip(*found, strict=True)
            ]
            measure.save(NAME, rows)


if __name__ == "__main__":
    main()
