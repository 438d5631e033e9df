"""Hierarchical softmax, its trees, full softmax and fastText, on EU law.

    python -m benchmarks.hierarchical --data ../shared/data \
        --fasttext FOLDER/bin/python

`fasttext_peer.py` says how to make its FOLDER. The experiment of Mohammed &
Umaashankar, 2018 (`data.py`), for the n most frequent labels of EURLEX57K. Each
method's learning rate is chosen on validation rows, then it is trained once
more and tested. A job whose result is in benchmarks/cache/hierarchical is not
run again.
"""

from benchmarks import figure_style
from benchmarks import measure
from benchmarks.hierarchical import data as data_lib
from benchmarks.hierarchical import jobs

SET = "eurlex57k"
NAME = f"hierarchical/{SET}"
SIZES = (10, 100, 1000, 4271)
#: The methods that are drawn: label and color; the table has all.
SHOWN = {
    jobs.FULL: ("exact softmax", "black"),
    "plt clustered, wide": ("clustered label tree", "tab:orange"),
    "hs huffman": ("Huffman tree", "tab:blue"),
    "fastText softmax": ("fastText, softmax", "tab:gray"),
    jobs.HS: ("fastText, Huffman tree", "tab:red"),
}


def draw(rows):
    """Macro-F1 and seconds against n, as the paper's figure 3."""
    figure, (above, below) = figure_style.new_figure(rows=2, height=3.6)
    for method, (label, color) in SHOWN.items():
        own = [row for row in rows if row["method"] == method]
        own.sort(key=lambda row: row["n"])
        sizes = [row["n"] for row in own]
        style = {"color": color, "label": label, "marker": "o"}
        style["ls"] = "--" if method.startswith("fastText") else "-"
        above.plot(sizes, [100 * row["f1"] for row in own], **style)
        below.plot(sizes, [row["cpu_seconds"] for row in own], **style)
    above.set(xscale="log", ylabel="macro-F1 in percent")
    below.set(xscale="log", yscale="log", xlabel="number of labels")
    below.set(ylabel="CPU seconds of training")
    for axis in (above.xaxis, below.xaxis, below.yaxis):
        figure_style.plain_ticks(axis)
    above.legend(loc="lower left")
    # What the label tree costs and saves, of the most labels.
    most = max(row["n"] for row in rows)
    found = {row["method"]: row for row in rows if row["n"] == most}
    tree, full = found["plt clustered, wide"], found[jobs.FULL]
    time, f1 = (tree[key] / full[key] for key in ("cpu_seconds", "f1"))
    figure_style.save(
        figure,
        measure.result_path(NAME + ".png"),
        f"EU law, {most:,} labels: the label tree trains in {100 * time:.0f} % "
        f"of the exact softmax's time, with {100 * f1:.0f} % of its F1",
    )


def main(argv=None):
    args = measure.arguments(
        __doc__,
        argv,
        choices={"methods": jobs.METHODS},
        data="../shared/data",
        fasttext=None,
        sizes=SIZES,
        methods=jobs.METHODS,
        epochs=10,
    )
    rows = []
    for size in args.sizes:
        data = data_lib.load(SET, args.data, size)
        folder = f"hierarchical/{SET}-{size}-{args.epochs}epochs"
        group = jobs.Group(
            folder, data, args.epochs, args.methods, args.fasttext
        )
        results = {
            method: group.final(method, group.best_rate(method))
            for method in jobs.METHODS
        }
        rows += jobs.rows_of(results, size)
    measure.save(NAME, rows)
    if {*SHOWN} <= {row["method"] for row in rows}:
        draw(rows)


if __name__ == "__main__":
    main()
