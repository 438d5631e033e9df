"""Losses for long tails, compared on EU law.

    python -m benchmarks.long_tail [DATA] [--seeds 3]

The same model, optimizer and epochs for each loss; of each job P@k, PSP@k and
macro-F1 by how many training rows a class has. What has a result in
benchmarks/cache is not trained again.
"""

import functools

import keras
import numpy as np

import tfxclass
from benchmarks import figure_style
from benchmarks import measure
from benchmarks.comparison import sets
from benchmarks.comparison.train import batches
from benchmarks.comparison.train import make_model
from benchmarks.hierarchical.data import class_counts
from tfxclass.losses import LossOptions

SET, NAME = "eurlex57k", "long_tail/eurlex57k"
EPOCHS = 5  # what one thread does in half a minute
KS = (1, 3, 5)  # macro-F1 is of the last
BEST = 10  # classes of an answer
#: A band holds the classes with as many training rows, up to the next.
BANDS = (1, 6, 21, 101)
LOSSES = (
    "plain",
    "class_weight",
    "propensities",
    "focal 2",
    "label_smoothing 0.1",
    "adjusted 0.5",
    "adjusted 1",
    "sigmoid",
    "sigmoid propensities",
)
#: The losses of the figure; the table has all.
SHOWN = {
    "plain": "plain softmax",
    "sigmoid": "sigmoid",
    "label_smoothing 0.1": "label smoothing",
    "propensities": "propensities",
    "class_weight": "class weights",
    "adjusted 0.5": "logit adjustment 0.5",
}


def options_of(loss, counts, propensities):
    """`LossOptions` of a loss by its name, or None."""
    kind, _, value = loss.removeprefix("sigmoid").strip().partition(" ")
    if kind in ("", "plain"):
        return None
    if kind == "class_weight":
        # Inverse square roots, their mean over the training labels 1.
        weights = np.where(counts, np.maximum(counts, 1.0) ** -0.5, 0.0)
        weights *= counts.sum() / np.sum(weights * counts)
        return LossOptions(class_weight=weights)
    if kind == "propensities":
        return LossOptions(propensities=propensities)
    if kind == "adjusted":
        return LossOptions(class_counts=counts, logit_adjustment=float(value))
    name = "focal_gamma" if kind == "focal" else kind
    return LossOptions(**{name: float(value)})


def make_head(loss, seed, data, propensities):
    options = {
        "loss_options": options_of(loss, data.counts, propensities),
        "seed": seed,
    }
    if loss.startswith("sigmoid"):
        odds = tfxclass.initializers.LogOdds(data.counts, data.train.num_rows)
        options.update(loss="sigmoid", use_bias=True, bias_initializer=odds)
    return tfxclass.layers.FullSoftmax(data.num_classes, **options)


def scores(ids, labels, counts, propensities, ks=KS, bands=BANDS):
    """P@k, PSP@k, and macro-F1 of the classes of test rows and of each band."""
    found = tfxclass.metrics.ranking_scores(ids, labels, ks, propensities)
    result = {f"P@{k}": found[f"precision_at_{k}"] for k in ks}
    result |= {f"PSP@{k}": found[f"psp_at_{k}"] for k in ks}
    answers = ids[:, : ks[-1]]
    hits, *both = class_counts(labels, answers, len(counts))
    each = 2 * hits / np.maximum(sum(both), 1)
    there = np.isin(np.arange(len(counts)), labels)
    result["macro-F1"] = float(each[there].mean())
    for first, end in zip(bands, (*bands[1:], np.inf)):
        inside = there & (counts >= first) & (counts < end)
        shown = f"{first}+" if end == np.inf else f"{first}-{end - 1}"
        mean = float(each[inside].mean()) if inside.any() else 0.0
        result[f"F1 {shown}"] = mean
    return result


def run(loss, seed, data, set_up):
    """The result of a job, a dict."""
    keras.utils.set_random_seed(seed)
    sure = tfxclass.metrics.propensities(data.counts, data.train.num_rows)
    head = make_head(loss, seed, data, sure)
    model = make_model(data, set_up, head, set_up.learning_rate)
    size = set_up.batch_size
    steps = EPOCHS * (data.train.num_rows // size)
    seconds = measure.train(model, batches(data, size, seed), steps)
    answer = tfxclass.top_k(model, k=min(BEST, data.num_classes))
    words = data.test.batch(np.arange(data.test.num_rows), data.length)
    ids, _ = answer.predict(words, batch_size=512, verbose=0)
    found = scores(ids, data.test.labels, data.counts, sure)
    return {"cpu_s": seconds, "scores": found}


def child(folder, loss, seed):
    """`run` on one thread, so that seconds of the CPU are of the steps."""
    measure.use_one_thread()
    return run(loss, seed, sets.load(SET, folder), sets.SETS[SET])


def row_of(loss, found):
    """A row of the table: means over seeds, and the range of P@1."""
    results = [one["scores"] for one in found]
    first = [one["P@1"] for one in results]
    row = {"loss": loss, "seeds": len(found)}
    row |= measure.means(results, *results[0])
    row |= {"P@1 least": min(first), "P@1 most": max(first)}
    return row | measure.means(found, "cpu_s")


def draw(rows):
    """P@1 against PSP@1; macro-F1 by band."""
    found = {row["loss"]: row for row in rows if row["loss"] in SHOWN}
    figure, (above, below) = figure_style.new_figure(rows=2, height=3.8)
    bands = [key for key in rows[0] if key.startswith("F1 ")]
    for (loss, row), marker in zip(found.items(), "osv^D<"):
        style = {"marker": marker, "label": SHOWN[loss]}
        above.plot(100 * row["P@1"], 100 * row["PSP@1"], ls="", ms=9, **style)
        below.plot(bands, [100 * row[band] for band in bands], **style)
    above.set(
        xlabel="precision at 1, in percent",
        ylabel="PSP@1 in percent (rare labels weigh more)",
    )
    above.legend()
    below.set(xlabel="training samples of a class", ylabel="F1 in percent")
    below.set_xticks(range(len(bands)), [band[3:] for band in bands])
    best, rare = (
        SHOWN[max(found.values(), key=lambda row: row[key])["loss"]]
        for key in ("P@1", "PSP@1")
    )
    title = f"Best precision: {best}. Where rare labels weigh more: {rare}"
    figure_style.save(figure, measure.result_path(NAME + ".png"), title)


def main(argv=None):
    measure.run_child(child)
    args = measure.arguments(
        __doc__, argv, first=["data"], data="../shared/data", seeds=1
    )
    ask = functools.partial(measure.ask, args.data)
    how = {"seeds": range(args.seeds), "run": ask}
    rows = [
        row_of(loss, measure.of_all_seeds("long_tail", loss, **how))
        for loss in LOSSES
    ]
    measure.save(NAME, rows)
    draw(measure.finished(NAME))


if __name__ == "__main__":
    main()
