"""What local SGD sends: bytes a step.

    python benchmarks/local_sgd.py
    python benchmarks/local_sgd.py --figures    # of the committed rows

After figure 3 of the RP paper (Yuan et al., 2020): full softmax and a random
projection 100 wide, both with gradients reduced in every step, and the
projection with models averaged every 4, 8 and 32 steps; then the projection
with 80 of 1,000 classes sampled in a step. The head alone, on 2,048-wide
features, 8 rows for each of K logical devices of one processor.

Measured: `mb_a_step`, what a replica hands to all-reduces, counted in the graph
as it runs; `ms_a_step`, for K = 2, which share the cores of this machine.
Computed, from the measured bytes times 1M / 1,000 classes and LINKS: time of
a ring all-reduce, 2 (K - 1) (latency + bytes / (K bandwidth)).
"""

import json
import os
import sys
import time

import figure_style
import measure
import notes

CLASSES, DIM, PROJECTION_DIM, ROWS = 1000, 2048, 100, 8
SAMPLED = 80
LARGE = 1_000_000
INTERVALS = (4, 8, 32)
METHODS = (
    "full",
    "RP",
    *(f"RP, I = {i}" for i in INTERVALS),
    "RP sampled",
    "RP sampled, I = 8",
)
DEVICES = (2, 4, 8)
# Assumed: seconds to the first byte, bytes a second in one direction.
LINKS = {
    "10 GbE": (50e-6, 1.25e9),
    "100 Gb InfiniBand": (2e-6, 12.5e9),
    "NVLink 4": (2e-6, 450e9),
}


def strategy_of(num_devices):
    import tensorflow as tf

    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0],
        [tf.config.LogicalDeviceConfiguration()] * num_devices,
    )
    return tf.distribute.MirroredStrategy(
        [f"CPU:{i}" for i in range(num_devices)]
    )


def count_bytes(strategy):
    """A variable that adds up what the first replica hands to all-reduces."""
    import tensorflow as tf

    sent = tf.Variable(0, dtype=tf.int64)
    reduce = strategy.extended.batch_reduce_to

    def counted(operation, pairs, *args, **kwargs):
        for value, _ in pairs:
            first = strategy.experimental_local_results(value)[0]
            # Of row gradients the rows and their ids.
            if isinstance(first, tf.IndexedSlices):
                parts = [first.values, first.indices]
            else:
                parts = [first]
            for part in parts:
                sent.assign_add(tf.size(part, tf.int64) * part.dtype.size)
        return reduce(operation, pairs, *args, **kwargs)

    strategy.extended.batch_reduce_to = counted
    return sent


def interval_of(method):
    return int(method.split("=")[1]) if "=" in method else 1


def head_and_optimizer(method):
    from tfxclass import layers
    from tfxclass import optimizers

    if method == "full":
        head = layers.FullSoftmax(CLASSES, seed=0)
    else:
        options = {}
        if "sampled" in method:
            options = {"num_sampled": SAMPLED, "sampler": "uniform"}
        head = layers.ProjectedSoftmax(
            CLASSES, PROJECTION_DIM, seed=0, **options
        )
    if "=" in method:
        return head, optimizers.LocalSGD(0.1, interval_of(method))
    return head, optimizers.LazySGD(0.1)


def step_child(num_devices):
    """Bytes and time of a step of each method."""
    strategy = strategy_of(num_devices)
    sent = count_bytes(strategy)
    rows = {}
    for method in METHODS:
        model = head_model(strategy, method)
        seconds, mb_a_step = steps_of(model, num_devices, sent)
        rows[method] = {"mb_a_step": mb_a_step}
        if num_devices == 2:
            rows[method]["ms_a_step"] = 1e3 * seconds
    return rows


def head_model(strategy, method):
    import keras

    with strategy.scope():
        head, optimizer = head_and_optimizer(method)
        model = keras.Sequential([keras.Input([DIM]), head])
        model.compile(optimizer, loss=head.loss)
    return model


def steps_of(model, num_devices, sent):
    """Seconds and MB a step, over steps from one average to another."""
    import numpy as np
    import tensorflow as tf

    random = np.random.default_rng(0)
    steps = max(INTERVALS)
    x = random.normal(size=(steps, ROWS * num_devices, DIM))
    y = random.integers(0, CLASSES, (steps, ROWS * num_devices))
    data = (x.astype(np.float32), y)
    data = tf.data.Dataset.from_tensor_slices(data).repeat()
    model.fit(data, steps_per_epoch=steps, verbose=0)
    sent.assign(0)
    start = time.perf_counter()
    model.fit(data, steps_per_epoch=steps, verbose=0)
    seconds = time.perf_counter() - start
    return seconds / steps, float(sent.numpy()) / steps / 1e6


def ring_seconds(num_bytes, num_devices, latency, bandwidth):
    passes = 2 * (num_devices - 1)
    return passes * (latency + num_bytes / (num_devices * bandwidth))


def computed(method, num_devices, mb_a_step):
    """Milliseconds a step on real links, for the large number of classes."""
    interval = interval_of(method)
    message = mb_a_step * 1e6 * interval * LARGE / CLASSES
    return {
        f"computed: ms, {name}, 1M": 1e3
        * ring_seconds(message, num_devices, *link)
        / interval
        for name, link in LINKS.items()
    }


def measure_steps():
    rows = []
    for num_devices in DEVICES:
        found = measure.in_fresh_process(__file__, "--child", num_devices)
        if "error" in found:
            sys.exit(found["error"])
        for method, row in found.items():
            row |= computed(method, num_devices, row["mb_a_step"])
            rows.append({"method": method, "devices": num_devices, **row})
            print(rows[-1], flush=True)
    measure.save("local_sgd", rows)
    draw_bytes(rows)


#: Lines of the figure: how methods are called, and their styles.
SHOWN = {
    "full": ("all class vectors, each step", "o-", "black"),
    "RP": ("projected to 100, each step", "o-", "tab:blue"),
    "RP, I = 4": ("projected, every 4 steps", "s-", "tab:green"),
    "RP, I = 32": ("projected, every 32 steps", "^-", "tab:purple"),
    "RP sampled": ("projected and sampled, each step", "o--", "tab:orange"),
    "RP sampled, I = 8": (
        "projected and sampled, every 8 steps",
        "s--",
        "tab:red",
    ),
}


def draw_bytes(rows):
    """local_sgd.png: what a ring sends, 2 (K - 1) / K of what was measured."""
    figure, (axes,) = figure_style.new_figure(height=5.6)
    for method, (label, style, color) in SHOWN.items():
        found = {
            row["devices"]: 2 * (1 - 1 / row["devices"]) * row["mb_a_step"]
            for row in rows
            if row["method"] == method
        }
        axes.plot(*zip(*found.items()), style, color=color, label=label)
    axes.set(
        xlabel="replicas",
        ylabel="MB that a replica sends in a step",
        yscale="log",
    )
    axes.set_xticks(DEVICES)
    figure_style.plain_ticks(axes.yaxis)
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.13))
    path = os.path.join(measure.RESULTS, "local_sgd.png")
    figure_style.save(figure, path, _bytes_conclusion(rows))


def _bytes_conclusion(rows):
    sent = {row["method"]: row["mb_a_step"] for row in rows}
    return (
        f"The projection divides what is sent by "
        f"{sent['full'] / sent['RP']:.0f}, averages every 32 steps by "
        f"another {sent['RP'] / sent['RP, I = 32']:.0f}"
    )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        print(json.dumps(step_child(int(sys.argv[2]))))
    elif sys.argv[1:] == ["--figures"]:
        draw_bytes(notes.results("local_sgd"))
    else:
        measure_steps()
