"""The next item of sessions.

    python -m benchmarks.jobs.next_item [--methods METHOD ...]

`examples/next_item.py` learns the sessions in shared/data, with three seeds.
Rows of users and of other programs are of the commit that they name.
"""

import os
import time

import keras
import numpy as np

from benchmarks import measure
from examples import counts
from examples import next_item
from tfxclass.retrieval import evaluate

NAME, SEEDS, _ANSWERS = "jobs/next_item", (0, 1, 2), 20
#: Boost and weight, chosen on the last tenth of the training sessions.
SESSIONS = {"diginetica": (4.0, 0.25), "tmall": (8.0, 0.5)}
#: Whether items already seen in a session come first.
COUNTS = {"co-occurrence": False, "seen items, then co-occurrence": True}
OURS = ("tfxclass, 1 epoch", "tfxclass, 2 epochs", "tfxclass, 3 epochs")
FOLDER = os.path.join(measure.FOLDER, "..", "..", "shared", "data", "sessions")


def counted(others, near, histories, k, seen_first):
    """The k best items by counts of `counts.nearby`, `[questions, k]`."""
    ids = np.full((len(histories), k), -1)
    for row, history in zip(ids, histories):
        latest = list(history)[::-1]
        items = latest[: counts.LATEST]
        ages = np.arange(1, len(items) + 1)[:, np.newaxis]
        near_now = (near[items] / ages).ravel()
        scores = np.bincount(others[items].ravel(), near_now)
        found = np.flatnonzero(scores)
        found = found[np.argsort(-scores[found], kind="stable")]
        if seen_first:
            seen = list(dict.fromkeys(latest))
            found = np.concatenate([seen, found[~np.isin(found, seen)]])
        row[: min(len(found), k)] = found[:k]
    return ids


def child(data, method, seed):
    train, test = next_item.read(os.path.join(FOLDER, data))
    num_items = 1 + max(map(max, [*train, *test[0]]))
    start = time.process_time()
    if method in COUNTS:
        others, near = counts.nearby(train, num_items)
        used = time.process_time() - start
        ids = counted(others, near, test[0], _ANSWERS, COUNTS[method])
        figures = evaluate(ids, test[1])
    else:
        keras.utils.set_random_seed(seed)
        epochs = int(method.split()[-2])
        ranker = next_item.make_ranker(train, num_items, epochs)
        used = time.process_time() - start
        boost, weight = SESSIONS[data]
        figures = counts.evaluate(ranker, test, boost=boost, weight=weight)
    asked = time.process_time() - start - used
    row = {
        f"{name}@{_ANSWERS}": float(figures[name])
        for name in ("hit_rate", "mrr", "ndcg")
    }
    row["CPU s"] = round(used, 1)
    row["CPU ms an answer"] = round(1e3 * asked / len(test[1]), 3)
    return row | {"GB": round(measure.peak_gb(), 2)}


def main():
    measure.run_child(child)
    args = measure.arguments(__doc__, methods=[*COUNTS, *OURS])
    rows = []
    for case in measure.cases(data=SESSIONS, method=args.methods):
        seeds = SEEDS[:1] if case["method"] in COUNTS else SEEDS  # no chance
        job = "next_item", *case.values()
        found = measure.of_all_seeds(*job, seeds=seeds, run=measure.ask)
        rows.append({**case, **measure.mean_row(found)})
        # What has no script any more stays.
        measure.save(NAME, rows, ("data", "method"))


if __name__ == "__main__":
    main()
