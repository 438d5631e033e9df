"""Omikuji on prepared rows, in an environment of its own.

    python omikuji_trees.py KIND FILE.npz ANSWERS.npz TOP

KIND is "Parabel" (balanced trees) or "Bonsai" (wide ones). FILE has training
rows, their labels and test rows, CSR matrices as `benchmarks.jobs.tags` writes
them. Writes the TOP best labels of each test row. The last line is JSON: CPU
seconds to train and to answer, peak memory. Settings are the author's.
`pip install omikuji==0.5.2 "numpy<2" "scipy<1.14"`.
"""

import json
import os
import resource
import sys
import tempfile
import time

import numpy as np

BONSAI = {
    "cluster_balanced": False,
    "cluster_k": 100,
    "collapse_every_n_layers": 5,
}


def rows_of(data, name):
    """Rows of a CSR matrix as lists of (column, value)."""
    splits, ids, values = (data[f"{name}_{i}"] for i in range(3))
    return [
        sorted(zip(ids[a:b].tolist(), values[a:b].tolist()))
        for a, b in zip(splits, splits[1:])
    ]


def train(kind, data, path):
    """The model, and CPU seconds without the writing of the file."""
    import omikuji

    x, y = rows_of(data, "x"), rows_of(data, "y")
    with open(path, "w") as f:
        f.write(f"{len(x)} {data['num_features']} {data['num_labels']}\n")
        for labels, row in zip(y, x):
            names = ",".join(str(i) for i, _ in labels)
            f.write(names + "".join(f" {i}:{v:.6f}" for i, v in row) + "\n")
    options = omikuji.Model.default_hyper_param()
    for name, value in BONSAI.items() if kind == "Bonsai" else ():
        setattr(options, name, value)
    begin = time.process_time()
    model = omikuji.Model.train_on_data(path, options, n_threads=1)
    return model, time.process_time() - begin


def main(kind, path, answers, top):
    data = np.load(path)
    with tempfile.TemporaryDirectory() as folder:
        model, spent = train(kind, data, os.path.join(folder, "train.txt"))
    rows = rows_of(data, "test_x")
    begin = time.process_time()
    found = [[i for i, _ in model.predict(x, top_k=int(top))] for x in rows]
    answered = time.process_time() - begin
    ids = np.full((len(found), int(top)), -1)
    for row, of_row in zip(ids, found):
        row[: len(of_row)] = of_row
    np.savez(answers, ids=ids)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    result = {
        "cpu_s": spent,
        "predict_ms": 1e3 * answered / len(found),
        "peak_gb": peak,
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main(*sys.argv[1:])
