"""Step time against the number of classes, 1 % of them sampled.

    python benchmarks/growth.py [num_classes ...]
    python benchmarks/growth.py --figures

Methods of `step_time.py`, each in a process of its own: batch 256, 128
dimensions. Methods that update all class vectors stop earlier: a step of
`Dense` takes seconds, and Adam's dense gradients do not fit into 24 GB.
`--figures` runs nothing, and draws the committed rows.
"""

import os
import sys

import figure_style
import measure
import notes

SCRIPT = os.path.join(measure.FOLDER, "step_time.py")
SIZES = [10_000, 30_000, 100_000, 300_000, 1_000_000, 3_000_000]
SIZES += [10_000_000]
#: The most classes of a method, where that is less.
MOST = {"keras_dense_adam": 1_000_000, "tf_sampled_softmax_adam": 3_000_000}
METHODS = {
    "keras_dense_adam": "Keras Dense, Adam",
    "tf_sampled_softmax_adam": "tf.nn.sampled_softmax_loss, Adam",
    "tf_sampled_softmax_sgd": "tf.nn.sampled_softmax_loss, SGD",
    "sampled_head_adam": "tfxclass SampledSoftmax, HeadAdam",
}


def main(sizes):
    rows = []
    for num_classes in sizes:
        for method in METHODS:
            if num_classes > MOST.get(method, num_classes):
                continue
            found = measure.in_fresh_process(
                SCRIPT, "--child", method, num_classes
            )
            rows.append({"classes": num_classes, "method": method, **found})
            print(rows[-1], flush=True)
    measure.save("growth", rows)
    draw_figure(rows)


def title_of(rows):
    """The conclusion, of the most classes that `Dense` was measured with."""
    times = {(row["method"], row["classes"]): row["median_ms"] for row in rows}
    most = max(size for name, size in times if name == "keras_dense_adam")
    dense, ours = (
        times[name, most] for name in ("keras_dense_adam", "sampled_head_adam")
    )
    return (
        f"{most:,} classes: a step with Keras Dense takes\n"
        f"{dense / ours:.0f} times as long as with SampledSoftmax"
    )


def draw_figure(rows):
    def draw(axes):
        for method, label in METHODS.items():
            own = [row for row in rows if row["method"] == method]
            sizes = [row["classes"] for row in own]
            times = [row["median_ms"] for row in own]
            color = figure_style.COLORS[method]
            axes.plot(sizes, times, "o-", label=label, color=color)
        axes.set(title=title_of(rows), xscale="log", yscale="log")
        axes.set_ylim(top=1e6)  # room for the legend
        for axis in (axes.xaxis, axes.yaxis):
            figure_style.plain_ticks(axis)

    measure.plot("growth", draw, "number of classes", "ms per step")


if __name__ == "__main__":
    if sys.argv[1:] == ["--figures"]:
        draw_figure(notes.results("growth"))
    else:
        main([int(n) for n in sys.argv[1:]] or SIZES)
