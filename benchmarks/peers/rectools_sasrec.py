"""RecTools' SASRec on a file of users, in an environment of its own.

    python rectools_sasrec.py USERS EPOCHS

USERS has a user a line: a name, then item ids in the order of time. The last
item of each is the test. Each epoch prints a line of JSON.
`pip install rectools[torch]`.
"""

import json
import resource
import sys
import time

import numpy as np
import pandas as pd
import torch
from rectools.dataset import Dataset
from rectools.models import SASRecModel

K = 10


def dataset_of(users):
    rows = [
        (user, item, 1.0, pd.Timestamp("2020-01-01") + pd.Timedelta(days=day))
        for user, items in enumerate(users)
        for day, item in enumerate(items[:-1])
    ]
    names = ["user_id", "item_id", "weight", "datetime"]
    return Dataset.construct(pd.DataFrame(rows, columns=names))


def figures(model, users, data):
    """Hit rate and NDCG of answers without the items already seen."""
    answers = model.recommend(
        users=np.arange(len(users)), dataset=data, k=K, filter_viewed=True
    )
    labels = answers["user_id"].map(lambda user: users[user][-1])
    is_hit = (answers["item_id"] == labels).to_numpy()
    gains = is_hit / np.log2(answers["rank"].to_numpy() + 1)
    return {
        "hit_rate@10": round(is_hit.sum() / len(users), 4),
        "ndcg@10": round(gains.sum() / len(users), 4),
    }


def main(path, epochs):
    # Idle threads spin, which would count as CPU seconds.
    torch.set_num_threads(1)
    with open(path, encoding="utf8") as f:
        users = [list(map(int, line.split()[1:])) for line in f]
    data = dataset_of(users)
    model = SASRecModel(
        epochs=1, verbose=0, n_factors=64, n_heads=2, session_max_len=20
    )
    used = 0.0
    for epoch in range(1, int(epochs) + 1):
        start = time.process_time()
        if epoch == 1:
            model.fit(data)
        else:
            model.fit_partial(data, min_epochs=1, max_epochs=1)
        used += time.process_time() - start
        found = figures(model, users, data)
        usage = resource.getrusage(resource.RUSAGE_SELF)
        found |= {"epochs": epoch, "CPU s": round(used, 1)}
        found["GB"] = round(usage.ru_maxrss / 1e6, 2)
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
