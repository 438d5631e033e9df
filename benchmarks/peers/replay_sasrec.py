"""RePlay's SASRec on a file of users, in an environment of its own.

    python replay_sasrec.py USERS EPOCHS

USERS is as for `rectools_sasrec.py`. The loss is SCE (Scalable Cross-Entropy,
arXiv 2409.18721). Each epoch prints a line of JSON.
`pip install replay-rec lightning torch`.
"""

import json
import resource
import sys
import time
import warnings

import lightning
import numpy as np
import torch
from replay.data import FeatureHint
from replay.data import FeatureType
from replay.data.nn import TensorFeatureInfo
from replay.data.nn import TensorSchema
from replay.models.nn.loss import SCEParams
from replay.models.nn.sequential import SasRec

K, LENGTH, DIM, BATCH = 10, 20, 64, 128
#: About two buckets a position of a batch, as the paper advises.
SCE = SCEParams(n_buckets=48, bucket_size_x=48, bucket_size_y=256, mix_x=True)


def padded(rows):
    """The latest ids of each row, `[rows, LENGTH]`, and which are items."""
    ids = np.zeros((len(rows), LENGTH), np.int64)
    is_item = np.zeros((len(rows), LENGTH), bool)
    for i, row in enumerate(rows):
        row = row[-LENGTH:]
        ids[i, LENGTH - len(row) :] = row
        is_item[i, LENGTH - len(row) :] = True
    return torch.tensor(ids), torch.tensor(is_item)


class Users(torch.utils.data.Dataset):
    """What a user gives to training, as `SasRec` reads it."""

    def __init__(self, users):
        self.items, self.is_item = padded([u[:-2] for u in users])
        self.labels, self.is_label = padded([u[1:-1] for u in users])

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return {
            "query_id": i,
            "feature_tensor": {"item_id": self.items[i]},
            "padding_mask": self.is_item[i],
            "positive_labels": self.labels[i],
            "target_padding_mask": self.is_label[i],
        }


def model_of(num_items):
    item = TensorFeatureInfo(
        "item_id",
        FeatureType.CATEGORICAL,
        is_seq=True,
        feature_hint=FeatureHint.ITEM_ID,
        cardinality=num_items,
        padding_value=num_items,
        embedding_dim=DIM,
    )
    return SasRec(
        TensorSchema([item]),
        head_count=2,
        hidden_size=DIM,
        max_seq_len=LENGTH,
        loss_type="SCE",
        sce_params=SCE,
    )


def figures(model, users):
    """Hit rate and NDCG of answers without the items already seen."""
    model.eval()
    gains = []
    for start in range(0, len(users), 512):
        part = users[start : start + 512]
        items, is_item = padded([u[:-1] for u in part])
        with torch.no_grad():
            scores = model(({"item_id": items}), is_item).numpy()
        for row, user in zip(scores, part):
            row[user[:-1]] = -np.inf
            rank = 1 + np.count_nonzero(row > row[user[-1]])
            is_hit = rank <= K and np.isfinite(row[user[-1]])
            gains.append(1 / np.log2(rank + 1) if is_hit else 0.0)
    return {
        "hit_rate@10": round(float(np.mean(np.array(gains) > 0)), 4),
        "ndcg@10": round(float(np.mean(gains)), 4),
    }


def main(path, epochs):
    warnings.simplefilter("ignore")
    lightning.seed_everything(0, verbose=False)
    # Idle threads spin, which would count as CPU seconds.
    torch.set_num_threads(1)
    with open(path, encoding="utf8") as f:
        users = [list(map(int, line.split()[1:])) for line in f]
    users = [[item - 1 for item in user] for user in users]
    model = model_of(1 + max(map(max, users)))
    data = Users([user for user in users if len(user) > 2])
    loader = torch.utils.data.DataLoader(data, BATCH, shuffle=True)
    used, start = 0.0, time.process_time()

    class Report(lightning.Callback):
        """Prints the figures of each epoch, out of the time."""

        def on_train_epoch_end(self, trainer, module):
            nonlocal used, start
            used += time.process_time() - start
            found = figures(module, users)
            module.train()
            usage = resource.getrusage(resource.RUSAGE_SELF)
            found |= {"epochs": trainer.current_epoch + 1}
            found |= {"CPU s": round(used, 1)}
            found["GB"] = round(usage.ru_maxrss / 1e6, 2)
            print(json.dumps(found), flush=True)
            start = time.process_time()

    trainer = lightning.Trainer(
        max_epochs=int(epochs),
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        accelerator="cpu",
        callbacks=[Report()],
    )
    trainer.fit(model, loader)


if __name__ == "__main__":
    main(*sys.argv[1:])
