"""New classes in trees before any training: old and new accuracy, by tree.

    python benchmarks/growing_trees.py

400 classes are points in 32 dimensions, seen with noise; 40 more are added by
`tfxclass.add_classes` with five rows each.
"""

import keras
import measure
import numpy as np

import tfxclass

OLD, NEW, RANK, DIM, WIDTH = 400, 40, 32, 64, 48
HEADS = ("full", "wide nodes", "plt", "two children")


def child(kind):
    """Accuracy before and after new classes."""
    keras.utils.set_random_seed(0)
    random = np.random.default_rng(0)
    points = random.normal(size=(OLD + NEW, RANK))
    mixing = random.normal(size=(RANK, DIM)) / RANK**0.5

    def rows(ids, count):
        y = random.permutation(np.repeat(ids, count))
        seen = points[y] + 0.3 * random.normal(size=(len(y), RANK))
        return (seen @ mixing).astype(np.float32), y

    def accuracy(model, x, y):
        ids, _ = tfxclass.top_k(model, 1).predict(x, verbose=0)
        return float((ids[:, 0] == y).mean())

    vectors = points[:OLD].astype(np.float32)
    wide = {} if kind == "two children" else {"arity": 16, "leaf_size": 32}
    tree = tfxclass.trees.clustered(vectors, seed=0, **wide)
    if kind == "full":
        head = tfxclass.layers.FullSoftmax(OLD)
    else:
        plt = {"multi_label": "plt"} if kind == "plt" else {}
        head = tfxclass.layers.HierarchicalSoftmax(OLD, tree=tree, **plt)
    encoder = keras.layers.Dense(WIDTH, activation="relu")
    model = keras.Sequential([keras.Input([DIM]), encoder, head])
    optimizer = tfxclass.optimizers.LazyAdam(0.01)
    model.compile(optimizer, loss=head.loss)
    model.fit(*rows(np.arange(OLD), 40), batch_size=128, epochs=6, verbose=0)
    old, new = rows(np.arange(OLD), 10), rows(np.arange(OLD, OLD + NEW), 20)
    few = rows(np.arange(OLD, OLD + NEW), 5)
    before = accuracy(model, *old)
    model = tfxclass.add_classes(model, NEW, data=few)
    after = {"after": accuracy(model, *old), "new": accuracy(model, *new)}
    return {"before": before, **after}


if __name__ == "__main__":
    measure.compare("growing_trees", child, measure.cases(head=HEADS))
