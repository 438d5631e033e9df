"""Trains a tool on prepared rows: python peer.py TOOL FILE.npz ANSWERS.npz

Runs in the tool's environment and imports nothing of tfxclass. Writes the five
best labels of each test row, or `PEER_TOP` of them; the last line is JSON: CPU
seconds to train and to answer, peak memory, megabytes on disk. Settings are
those that the tools' authors give for sets of this kind.
"""

import json
import os
import pickle
import resource
import sys
import tempfile

import numpy as np
import scipy.sparse as sp

K = int(os.environ.get("PEER_TOP", "5"))


def cpu():
    """CPU seconds of this process and of those it has started."""
    own = resource.getrusage(resource.RUSAGE_SELF)
    others = resource.getrusage(resource.RUSAGE_CHILDREN)
    return sum(x.ru_utime + x.ru_stime for x in (own, others))


def lists(matrix):
    """Rows of a sparse matrix as lists of (column, value)."""
    return [
        list(zip(matrix.indices[a:b].tolist(), matrix.data[a:b].tolist()))
        for a, b in zip(matrix.indptr, matrix.indptr[1:])
    ]


def best(matrix):
    """The columns of the greatest values of each row of a sparse matrix."""
    return [
        [i for i, _ in sorted(row, key=lambda pair: -pair[1])[:K]]
        for row in lists(matrix.tocsr())
    ]


def omikuji(x, y, folder, unbalanced=False):
    import omikuji

    data = os.path.join(folder, "train.txt")
    with open(data, "w") as f:
        f.write(f"{x.shape[0]} {x.shape[1]} {y.shape[1]}\n")
        for labels, row in zip(lists(y), lists(x)):
            names = ",".join(str(i) for i, _ in labels)
            f.write(names + "".join(f" {i}:{v:.6f}" for i, v in row) + "\n")
    options = omikuji.Model.default_hyper_param()
    if unbalanced:
        options.cluster_balanced, options.cluster_k = False, 100
        options.collapse_every_n_layers = 5
    begin = cpu()
    model = omikuji.Model.train_on_data(data, options, n_threads=1)
    os.remove(data)
    spent = cpu() - begin

    def answer(rows):
        return [
            [i for i, _ in model.predict(row, top_k=K)] for row in lists(rows)
        ]

    return answer, model.save, spent


def bonsai(x, y, folder):
    return omikuji(x, y, folder, unbalanced=True)


def pecos(x, y, folder):
    from pecos.xmc import Indexer
    from pecos.xmc import LabelEmbeddingFactory
    from pecos.xmc.xlinear.model import XLinearModel

    begin = cpu()
    vectors = LabelEmbeddingFactory.create(y, x, method="pifa")
    model = XLinearModel.train(x, y, C=Indexer.gen(vectors))
    return (
        lambda rows: best(model.predict(rows, only_topk=K)),
        model.save,
        cpu() - begin,
    )


def napkin(kind, x, y, folder):
    from napkinxc import models

    begin = cpu()
    model = getattr(models, kind)(folder, threads=1, verbose=False)
    model.fit(x, [[i for i, _ in row] for row in lists(y)])
    # It is in the folder already.
    return lambda rows: model.predict(rows, top_k=K), None, cpu() - begin


def napkin_plt(x, y, folder):
    return napkin("PLT", x, y, folder)


def napkin_br(x, y, folder):
    return napkin("BR", x, y, folder)


def libmultilabel(name, x, y, folder):
    from libmultilabel import linear

    begin = cpu()
    model = getattr(linear, name)(y.astype("f8"), x.astype("f8"), "-m 1")

    def answer(rows):
        found = []
        for first in range(0, rows.shape[0], 500):
            part = rows[first : first + 500].astype("f8")
            scores = np.asarray(linear.predict_values(model, part))
            found += np.argsort(-scores, axis=1)[:, :K].tolist()
        return found

    def save(folder):
        os.makedirs(folder, exist_ok=True)
        with open(os.path.join(folder, "model"), "wb") as f:
            pickle.dump(model, f, protocol=4)

    return answer, save, cpu() - begin


def lml_tree(x, y, folder):
    return libmultilabel("train_tree", x, y, folder)


def lml_1vsrest(x, y, folder):
    return libmultilabel("train_1vsrest", x, y, folder)


def fasttext(x, y, folder):
    import fasttext

    # It reads words, not weights: each feature once.
    def texts(rows):
        return [" ".join(f"w{i}" for i, _ in row) for row in lists(rows)]

    data = os.path.join(folder, "train.txt")
    with open(data, "w") as f:
        for labels, text in zip(lists(y), texts(x)):
            names = " ".join(f"__label__{i}" for i, _ in labels)
            f.write(f"{names} {text}\n")
    # One vs. rest costs all labels a row.
    loss = "ova" if y.shape[1] <= 1000 else "hs"
    begin = cpu()
    options = {"dim": 256, "epoch": 25, "loss": loss, "thread": 1}
    try:
        model = fasttext.train_supervised(data, lr=0.5, verbose=0, **options)
    except RuntimeError:  # "Encountered NaN."
        begin = cpu()
        model = fasttext.train_supervised(data, lr=0.1, verbose=0, **options)
    os.remove(data)
    spent = cpu() - begin

    def answer(rows):
        return [
            [int(name[9:]) for name in model.predict(text, k=K)[0]]
            for text in texts(rows)
        ]

    def save(folder):
        os.makedirs(folder, exist_ok=True)
        model.save_model(os.path.join(folder, "model.bin"))

    return answer, save, spent


def read(path):
    """`(x, y, test x)`, CSR matrices of float32."""
    data = np.load(path)
    shapes = data["num_features"], data["num_labels"]

    def matrix(name, width):
        splits, ids, values = (data[f"{name}_{i}"] for i in range(3))
        found = sp.csr_matrix(
            (values, ids.astype(np.int32), splits.astype(np.int32)),
            (len(splits) - 1, int(width)),
        )
        found.sort_indices()
        return found

    return (
        matrix("x", shapes[0]),
        matrix("y", shapes[1]),
        matrix("test_x", shapes[0]),
    )


def megabytes(folder):
    return sum(
        os.path.getsize(os.path.join(where, name)) / 1e6
        for where, _, names in os.walk(folder)
        for name in names
    )


def main(tool, path, answers):
    x, y, test = read(path)
    with tempfile.TemporaryDirectory() as folder:
        answer, save, spent = globals()[tool](x, y, folder)
        if save is not None:
            save(os.path.join(folder, "model"))
        begin = cpu()
        found = answer(test)
        answered = cpu() - begin
        size = megabytes(folder)
    ids = np.full((len(found), K), -1)
    for row, of_row in zip(ids, found):
        row[: len(of_row)] = of_row[:K]
    np.savez(answers, ids=ids)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    result = {
        "cpu_s": round(spent, 1),
        "peak_gb": round(peak, 2),
        "predict_ms": round(1e3 * answered / len(found), 3),
        "mb": round(size, 1),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main(*sys.argv[1:])
