"""CPU seconds of the same work with compiled and with fallback ops.

    python benchmarks/fallback.py [--missing]

Each number comes from a process of its own, with one warm-up where the work is
short. Writes results/fallback.json; `--missing` measures only what it lacks.
"""

import contextlib
import importlib
import io
import json
import os
import pathlib
import sys
import tempfile
import time

import measure

CLASSES, DIM, BATCH = 100_000, 64, 256
#: Of the examples that read data; see examples/README.md.
DATA = os.path.join(os.path.dirname(measure.FOLDER), "..", "shared", "data")


def _model(head):
    import keras

    import tfxclass

    model = keras.Sequential([keras.Input([DIM]), head])
    model.compile(tfxclass.optimizers.HeadAdam(), loss=head.loss)
    return model


def _rows(steps=10):
    import numpy as np

    random = np.random.default_rng(0)
    x = random.normal(size=(steps * BATCH, DIM)).astype("float32")
    return x, random.integers(0, CLASSES, len(x))


def _steps(name, *arguments, **options):
    import tfxclass

    model = _model(getattr(tfxclass.layers, name)(*arguments, **options))
    x, y = _rows()
    return lambda: model.fit(x, y, batch_size=BATCH, verbose=0)


def _answers(name, *arguments, **options):
    import tfxclass

    model = _model(getattr(tfxclass.layers, name)(*arguments, **options))
    # A search in a tree that is not trained opens all of its nodes.
    x, y = _rows(20)
    model.fit(x, y, batch_size=BATCH, verbose=0)
    best, x = tfxclass.top_k(model, 10), x[:BATCH]
    return lambda: best.predict(x, verbose=0)


def _file():
    import numpy as np

    import tfxclass

    random = np.random.default_rng(0)
    path = os.path.join(tempfile.mkdtemp(), "rows.txt")
    with open(path, "w") as f:
        f.write("3000 5000 1000\n")
        for _ in range(3_000):
            labels = sorted(set(random.integers(0, 1_000, 3).tolist()))
            terms = sorted(set(random.integers(0, 5_000, 80).tolist()))
            values = " ".join(f"{i}:0.5" for i in terms)
            f.write(f"{','.join(map(str, labels))} {values}\n")
    return lambda: list(tfxclass.data.XCFile(path).batches(BATCH))


def _tagger(num_texts, num_tags):
    import numpy as np

    import tfxclass

    random = np.random.default_rng(0)
    words = np.array([f"w{i}" for i in range(20 * num_tags)])
    tags = random.integers(0, num_tags, num_texts)
    texts = [" ".join(random.choice(words[15 * t :][:100], 10)) for t in tags]
    tagger = tfxclass.text.Tagger(effort="fast", verbose=False)
    return lambda: tagger.fit(texts, [[f"tag {t}"] for t in tags])


def _readme():
    """README's first model."""
    import keras
    import numpy as np

    import tfxclass

    x = np.random.default_rng(0).normal(size=(5_000, DIM)).astype("float32")
    head = tfxclass.layers.SampledSoftmax(670_091, 6_700)
    encoder = keras.layers.Dense(128, activation="relu")
    model = keras.Sequential([encoder, head])
    model.compile(tfxclass.optimizers.HeadAdam(), loss=head.loss)
    return lambda: model.fit(x, np.arange(5_000), verbose=0)


def _example(name, *arguments, **options):
    """An example, on the data that it generates or of `DATA`."""
    sys.path.insert(0, os.path.dirname(measure.FOLDER))
    main = importlib.import_module(f"examples.{name}").main

    def run():
        # The last line that a child prints is its result.
        with contextlib.redirect_stdout(io.StringIO()):
            main(*arguments, **options)

    return run


def _demo():
    """`make demo`, with few words."""
    out = pathlib.Path(tempfile.mkdtemp()) / "reverse_dictionary"
    words = ["--limit", "4000", "--epochs", "1", "a large bird"]
    return _example("reverse_dictionary.__main__", [*words, "--out", str(out)])


_TREE = {"tree": "balanced"}
TASKS = {
    "SampledSoftmax, uniform, 10 steps": (
        lambda: _steps("SampledSoftmax", CLASSES, 1_000, "uniform")
    ),
    "SampledSoftmax, auto, 10 steps": (
        lambda: _steps("SampledSoftmax", CLASSES, 1_000)
    ),
    "HierarchicalSoftmax, 10 steps": (
        lambda: _steps("HierarchicalSoftmax", CLASSES, **_TREE)
    ),
    "FullSoftmax, top_k of 256 rows": lambda: _answers("FullSoftmax", CLASSES),
    "HierarchicalSoftmax, top_k of 256 rows": (
        lambda: _answers("HierarchicalSoftmax", CLASSES, **_TREE)
    ),
    "XCFile, 3,000 rows": _file,
    "Tagger, fast, 1,000 texts, 100 tags": lambda: _tagger(1_000, 100),
    "Tagger, fast, 4,000 texts, 400 tags": lambda: _tagger(4_000, 400),
    "README's first model": _readme,
    "example next_item": lambda: _example("next_item"),
    "example next_item_users": lambda: _example("next_item_users"),
    "example identities": lambda: _example("identities"),
    "example short_texts": lambda: _example("short_texts", verbose=0),
    "example projected_softmax": (
        lambda: _example("projected_softmax", verbose=0)
    ),
    "example growing_catalogue": (
        lambda: _example("growing_catalogue", verbose=0)
    ),
    "example tag_with_backbone, 2,000 texts": (
        lambda: _example("tag_with_backbone", ["--texts", "2000"])
    ),
    "example reverse_dictionary, 4,000 synsets, 1 epoch": _demo,
    "example two_towers": (
        lambda: _example(
            "two_towers",
            f"{DATA}/esco_titles/occupations.tsv.xz",
            f"{DATA}/esco_titles/titles.tsv.xz",
        )
    ),
    "example dropmax_mnist, 2 epochs": (
        lambda: _example("dropmax_mnist", [f"{DATA}/mnist", "--epochs", "2"])
    ),
    "example hierarchical_text, 1 epoch": (
        lambda: _example(
            "hierarchical_text",
            [
                f"{DATA}/eurlex57k/train.xc.txt.xz",
                f"{DATA}/eurlex57k/test_a.xc.txt.xz",
                "--epochs",
                "1",
            ],
        )
    ),
    "example library_subjects, 5,000 titles": (
        lambda: _example(
            "library_subjects", f"{DATA}/yso_finna_en", 5_000, verbose=0
        )
    ),
    "example job_titles, fast": (
        lambda: _example(
            "job_titles", f"{DATA}/esco_titles", effort="fast", verbose=0
        )
    ),
}
# Run once: their first run is what a user waits for.
_LONG = ("Tagger", "example")


def child(task):
    run = TASKS[task]()
    if not task.startswith(_LONG):
        run()
    begin = time.process_time()
    run()
    return time.process_time() - begin


def main(rows=()):
    """Measures the tasks that `rows` do not have, and saves all."""
    rows = list(rows)
    done = {row["task"] for row in rows}
    for task in (task for task in TASKS if task not in done):
        row = {"task": task}
        for value, name in (("0", "compiled_s"), ("1", "fallback_s")):
            os.environ["TFXCLASS_FALLBACK"] = value
            row[name] = measure.in_fresh_process(__file__, "--child", task)
        row["times"] = row["fallback_s"] / row["compiled_s"]
        rows.append(row)
        print(row, flush=True)
        rows.sort(key=lambda row: list(TASKS).index(row["task"]))
        measure.save("fallback", rows, command="python benchmarks/fallback.py")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        print(json.dumps(child(sys.argv[2])))
    elif sys.argv[1:] == ["--missing"]:
        main(measure.finished("fallback"))
    else:
        main()
