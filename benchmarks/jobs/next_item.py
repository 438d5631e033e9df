"""The next item of sessions.

    python -m benchmarks.jobs.next_item

Sessions are those of shared/data, and `examples/next_item.py` trains on them.
Rows of users, and of RecTools and RePlay, are of the commit that they name;
`examples/next_item_users.py` has our model of users.
"""

import os
import time

import keras
import numpy as np
import scipy.sparse as sparse

from benchmarks import measure
from examples import next_item
from tfxclass.retrieval import evaluate

NAME = "jobs/next_item"
SESSIONS = ("diginetica", "tmall")
#: Window, and whether items already seen in a session come first.
COUNTS = {
    "Markov": (1, False),
    "co-occurrence": (10, False),
    "seen items, then co-occurrence": (10, True),
}
OURS = ("tfxclass, 1 epoch", "tfxclass, 2 epochs", "tfxclass, 3 epochs")
FOLDER = os.path.join(measure.FOLDER, "..", "..", "shared", "data", "sessions")
_ANSWERS = 20


def transitions(sequences, num_items, window):
    """How often an item follows another within `window` steps, `[n, n]`.

    A pair counts 1 / distance. With a window of 1 it is a Markov chain; with
    more, both directions count, over the root of the popularity.
    """
    pairs = [
        (a, b, 1 / distance)
        for s in sequences
        for distance in range(1, window + 1)
        for a, b in zip(s, s[distance:])
    ]
    first, second, weights = (np.array(x) for x in zip(*pairs))
    shape = num_items, num_items
    matrix = sparse.csr_matrix((weights, (first, second)), shape)
    if window == 1:
        return matrix
    matrix = matrix + matrix.T
    popularity = np.maximum(np.asarray(matrix.sum(axis=0)).ravel(), 1)
    return matrix @ sparse.diags(popularity**-0.5)


def counted(matrix, histories, k, window, seen_first):
    """The k best items by `matrix`, `[questions, k]`."""
    ids = np.full((len(histories), k), -1)
    for row, history in zip(ids, histories):
        latest = list(history)[::-1]
        scores = sum(
            matrix[[item]] / age
            for age, item in enumerate(latest[:window], start=1)
        )
        found = scores.indices[np.argsort(-scores.data, kind="stable")]
        if seen_first:
            seen = list(dict.fromkeys(latest))
            found = np.concatenate([seen, found[~np.isin(found, seen)]])
        row[: min(len(found), k)] = found[:k]
    return ids


def child(data, method):
    train, test = next_item.read(os.path.join(FOLDER, data))
    start = time.process_time()
    if method in COUNTS:
        window, seen_first = COUNTS[method]
        num_items = 1 + max(map(max, [*train, *test[0]]))
        matrix = transitions(train, num_items, window)
        used = time.process_time() - start
        ids = counted(matrix, test[0], _ANSWERS, window, seen_first)
        figures = evaluate(ids, test[1])
    else:
        keras.utils.set_random_seed(0)
        num_items = 1 + max(map(max, train))
        model = next_item.train(train, num_items, int(method.split()[-2]))
        used = time.process_time() - start
        figures = next_item.evaluate(model, test, 8.0)
    asked = time.process_time() - start - used
    row = {
        f"{name}@{_ANSWERS}": round(figures[name], 4)
        for name in ("hit_rate", "mrr", "ndcg")
    }
    row["CPU s"] = round(used, 1)
    row["CPU ms an answer"] = round(1e3 * asked / len(test[1]), 3)
    return row | {"GB": round(measure.peak_gb(), 2)}


def main():
    cases = measure.cases(data=SESSIONS, method=(*COUNTS, *OURS))
    # What has no script any more stays.
    measure.compare(NAME, child, cases, ("data", "method"))


if __name__ == "__main__":
    main()
