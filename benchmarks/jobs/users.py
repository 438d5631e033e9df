r"""The next item of users, in tables that others printed.

    python -m benchmarks.jobs.users FOLDER [--data SET ...]

FOLDER has `Beauty.txt`, `Sports_and_Outdoors.txt` and `Toys_and_Games.txt`, as
in `data/` of the repository RUCAIBox/CIKM2020-S3Rec, and `ml-1m.txt`. This one
is made of `ml-1m_sas.txt` in asash/ml1m-sas-mapping:

    awk '{s[$1] = s[$1] " " $2} END {for (i = 1; i in s; i++) print i s[i]}' \
        ml-1m_sas.txt > ml-1m.txt

The last item of each user is the test, the one before it the validation. Counts
are of the items that the transformer learns, or ("latest") of that one, too.
"""

import functools
import os

import keras

import tfxclass
from benchmarks import measure
from examples import counts
from examples import next_item_users as users

NAME, DIM, SEEDS = "jobs/users", 128, (0, 1, 2)
SHOP = 16, users.LENGTH, users.DROPOUT
#: Epochs, items that are read, and dropout.
DATA = {"ml-1m": (16, 50, 0.2)}
DATA |= dict.fromkeys(("Beauty", "Sports_and_Outdoors", "Toys_and_Games"), SHOP)


def child(folder, data, epochs, length, dropout, seed):
    sequences = users.read(os.path.join(folder, f"{data}.txt"))
    split = tfxclass.retrieval.leave_one_out(sequences)
    keras.utils.set_random_seed(seed)
    num_items = 1 + max(map(max, sequences))
    model, answers = users.make_models(num_items, DIM, length, dropout)
    ranker = counts.make_ranker(answers, users.K, float("-inf"))
    with measure.Stopwatch() as watch:
        users.train(model, split, epochs, verbose=0)
    told = {"epochs": epochs, "CPU s": round(watch.cpu, 1)}
    counts.count(ranker, split.train)
    best = counts.choose(ranker, split.validation, "weight", counts.WEIGHTS)
    weights = {"transformer": 0.0, "co-occurrence": counts.COUNTS, "both": best}
    rows = []
    for latest in ("", ", latest"):
        for method, weight in weights.items():
            found = counts.evaluate(ranker, split.test, weight=weight)
            row = {"method": method + latest, "HR@10": float(found["hit_rate"])}
            row["NDCG@10"] = float(found["ndcg"])
            if method != "co-occurrence":
                row |= told | {"weight": weight}
            rows.append(row)
        weights.pop("transformer", None)  # counts do not change it
        counts.count(ranker, users.before_test(sequences))
    return rows


def main():
    """Means over the seeds, a row for each set and method."""
    measure.run_child(child)
    args, rows = measure.arguments(__doc__, first=["folder"], data=[*DATA]), []
    run = functools.partial(measure.ask, args.folder)
    for data in args.data:
        job = data, *DATA[data]
        found = measure.of_all_seeds("users", *job, seeds=SEEDS, run=run)
        for lines in zip(*found, strict=True):
            rows.append({"data": data, **measure.of_seeds(lines)})
        measure.save(NAME, rows, ("data", "method"))


if __name__ == "__main__":
    main()
