"""The next item of sessions and of users.

    python -m benchmarks.jobs.next_item
    python -m benchmarks.jobs.next_item --users FILE

Sessions are those of shared/data, and `examples/next_item.py` trains on them.
FILE has a user a line (`data/Beauty.txt` of the repository
RUCAIBox/CIKM2020-S3Rec), for `examples/next_item_users.py`. Rows of RecTools
and RePlay are of scripts that are in no later commit than the one they name.
"""

import argparse
import os
import time

import numpy as np
import scipy.sparse as sparse

from benchmarks import measure

NAME = "jobs/next_item"
SESSIONS = ("diginetica", "tmall")
#: Window, and what becomes of items already seen in a session.
COUNTS = {
    "Markov": (1, None),
    "co-occurrence": (10, None),
    "seen items, then co-occurrence": (10, "first"),
}
OURS = ("tfxclass, 1 epoch", "tfxclass, 2 epochs", "tfxclass, 3 epochs")
FOLDER = os.path.join(measure.FOLDER, "..", "..", "shared", "data", "sessions")
USER_EPOCHS = 10
_ANSWERS = 20
COLUMNS = (
    "data",
    "method",
    *(f"{x}@{k}" for k in (20, 10) for x in ("hit_rate", "mrr", "ndcg")),
    "CPU s",
    "CPU ms an answer",
    "GB",
)


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


def counted(matrix, histories, k, window, seen):
    """The k best items by `matrix`, `[questions, k]`.

    `seen`: items of the history are "excluded", "first", or as others.
    """
    ids = np.full((len(histories), k), -1)
    for row, history in zip(ids, histories):
        latest = list(history)[::-1][:window]
        scores = sum(
            matrix[[item]] / age for age, item in enumerate(latest, start=1)
        )
        found, values = scores.indices, scores.data
        if seen is not None:
            is_new = ~np.isin(found, history)
            found, values = found[is_new], values[is_new]
        if seen == "first":
            latest = list(dict.fromkeys(list(history)[::-1]))
            found = np.concatenate([latest, found])
            values = np.concatenate([1e9 - np.arange(len(latest)), values])
        best = found[np.argsort(-values, kind="stable")[:k]]
        row[: len(best)] = best
    return ids


def count(train, questions, window, k, seen):
    """Figures of Markov (a window of 1) or co-occurrence."""
    from tfxclass.retrieval import evaluate

    histories, labels = questions
    start = time.process_time()
    num_items = 1 + max(max(map(max, train)), max(map(max, histories)))
    matrix = transitions(train, num_items, window)
    used = time.process_time() - start
    ids = counted(matrix, histories, k, window, seen)
    asked = time.process_time() - start - used
    return evaluate(ids, labels), used, asked / len(labels)


def sessions(method, path):
    """The row of a method on a set of sessions."""
    from examples import next_item

    train, test = next_item.read(path)
    if method in COUNTS:
        window, seen = COUNTS[method]
        return count(train, test, window, _ANSWERS, seen)
    import keras

    keras.utils.set_random_seed(0)
    start = time.process_time()
    epochs = int(method.split()[-2])
    model = next_item.train(train, 1 + max(map(max, train)), epochs)
    used = time.process_time() - start
    figures = next_item.evaluate(model, test, 8.0)
    asked = time.process_time() - start - used
    return figures, used, asked / len(test[1])


def users(path):
    """A row after each second epoch of our model on a file of users."""
    import keras

    from examples import next_item_users
    from tfxclass.retrieval import Questions

    sequences = next_item_users.read(path)
    histories = [s[:-1] for s in sequences]
    labels = np.array([s[-1] for s in sequences])
    keras.utils.set_random_seed(0)
    num_items = 1 + max(map(max, sequences))
    model, answers = next_item_users.make_models(num_items)
    x, y = next_item_users.rows_of([s for s in histories if len(s) > 1])
    rows, used = [], 0.0
    for epoch in range(2, USER_EPOCHS + 1, 2):
        start = time.process_time()
        model.fit(x, y, next_item_users.BATCH, epochs=2, verbose=0)
        used += time.process_time() - start
        found = next_item_users.evaluate(answers, Questions(histories, labels))
        name = {"method": f"tfxclass, {epoch} epochs"}
        rows.append(name | row_of(found, used, 10))
    return rows


def count_users(method, path):
    """The row of Markov or co-occurrence on a file of users."""
    from examples import next_item_users

    sequences = next_item_users.read(path)
    histories = [s[:-1] for s in sequences]
    questions = histories, np.array([s[-1] for s in sequences])
    window = COUNTS[method][0]
    return count(histories, questions, window, next_item_users.K, "excluded")


def row_of(figures, used, k, answer=None):
    """Figures as the table has them; `used` and `answer` are CPU seconds."""
    row = {
        f"{x}@{k}": round(figures[x], 4) for x in ("hit_rate", "mrr", "ndcg")
    }
    row["CPU s"] = round(used, 1)
    if answer is not None:
        row["CPU ms an answer"] = round(1e3 * answer, 3)
    return row | {"GB": round(measure.peak_gb(), 2)}


def child(data, method, path):
    """The row of a method, or of each second epoch of ours on users."""
    if data == "users" and method not in COUNTS:
        return users(path)
    run = count_users if data == "users" else sessions
    figures, used, answer = run(method, path)
    k = 10 if data == "users" else _ANSWERS
    return row_of(figures, used, k, answer)


def main():
    measure.run_child(child)
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--users", help="file of users")
    path = parser.parse_args().users
    cases = [
        {"data": name, "method": method, "path": os.path.join(FOLDER, name)}
        for name in SESSIONS
        for method in (*COUNTS, *OURS)
    ]
    if path:
        cases = [
            {"data": "users", "method": method, "path": path}
            for method in ("Markov", "co-occurrence", "tfxclass")
        ]
    for rows in measure.rows_of(cases):
        shown = [
            {name: row.get(name, "") for name in COLUMNS}
            for row in rows
            if "error" not in row
        ]
        # What is not run this time stays.
        shown = measure.with_earlier(NAME, shown, ("data", "method"))
        measure.save(NAME, shown)


if __name__ == "__main__":
    main()
