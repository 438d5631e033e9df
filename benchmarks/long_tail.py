"""Losses for long tails, compared on EU law.

    python -m benchmarks.long_tail [DATA] [--seeds 3]
    python -m benchmarks.long_tail --figures

The same model, optimizer and epochs for each loss; of each job P@k, PSP@k and
macro-F1 by how many training rows a class has. A job is a model of one seed,
in a process of its own with one thread. One that has a result, in
benchmarks/cache, is not trained again. A distilled model learns from the plain
one of its seed, which comes first. `--figures` draws the committed rows.
"""

import argparse
import json
import os
import statistics
import sys
import time
from typing import NamedTuple

import numpy as np

from benchmarks import figure_style
from benchmarks import measure

CACHE = os.path.join(measure.CACHE, "long_tail")
KS = (1, 3, 5)
BEST = 10  # classes of an answer, and of a teacher


class SetUp(NamedTuple):
    """How a set is trained and judged.

    Attributes:
        epochs: int; what one thread does in half a minute.
        bands: rising ints: a band holds the classes with as many training
            rows, up to those of the next.
        k: int, macro-F1 is of the k best classes of a row.
    """

    epochs: int
    bands: tuple
    k: int


#: As `_options` reads them.
LOSSES = (
    "plain",
    "class_weight",
    "propensities",
    "focal 2",
    "label_smoothing 0.1",
    "adjusted 0.5",
    "adjusted 1",
    "distilled 0.5",
    "sigmoid",
    "sigmoid propensities",
)
SETS = {
    "eurlex57k": SetUp(5, (1, 6, 21, 101), 5),
    "generated": SetUp(2, (1, 8, 16, 32), 1),
}
#: The losses of the figure; the table has all.
SHOWN = {
    "plain": "plain softmax",
    "sigmoid": "sigmoid",
    "label_smoothing 0.1": "label smoothing",
    "propensities": "propensities",
    "class_weight": "class weights",
    "adjusted 0.5": "logit adjustment 0.5",
}


def _options(loss, counts, propensities):
    """`LossOptions` of a loss by its name, or None."""
    from tfxclass.losses import LossOptions

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
    name = {"distilled": "teacher_weight", "focal": "focal_gamma"}
    return LossOptions(**{name.get(kind, kind): float(value)})


def make_head(name, loss, seed, data, propensities):
    """The head of a job."""
    import tfxclass
    from benchmarks.comparison import sets

    set_up = sets.SETS[name]
    objective = "sigmoid" if loss.startswith("sigmoid") else "softmax"
    options = {
        "loss": objective,
        "loss_options": _options(loss, data.counts, propensities),
        "seed": seed,
    }
    if set_up.scale:
        options["similarity"] = tfxclass.layers.Cosine(scale=set_up.scale)
    if objective == "sigmoid":
        odds = tfxclass.initializers.LogOdds(data.counts, data.train.num_rows)
        options.update(use_bias=True, bias_initializer=odds)
    return tfxclass.layers.FullSoftmax(data.num_classes, **options)


def train(model, name, seed, data, labels):
    """Trains the epochs of the set; seconds of the CPU."""
    import tensorflow as tf

    from benchmarks.comparison import sets
    from benchmarks.comparison import train as train_lib

    size = min(sets.SETS[name].batch_size, data.train.num_rows)
    data = data._replace(train=data.train._replace(labels=labels))
    source = train_lib.batches(data, size, seed)
    step = tf.function(lambda x, y: model.train_step((x, y)))
    begin = time.process_time()
    for _ in range(SETS[name].epochs * (data.train.num_rows // size)):
        step(*next(source))
    return time.process_time() - begin


def best(model, part, data):
    """Ids and probabilities of the best classes of all rows."""
    import tfxclass

    answer = tfxclass.top_k(model, k=min(BEST, data.num_classes))
    words = part.batch(np.arange(part.num_rows), data.length)
    return answer.predict(words, batch_size=512, verbose=0)


def scores(ids, labels, counts, propensities, set_up):
    """P@k, PSP@k, and macro-F1 of all classes and of each band.

    Macro-F1 is of the classes that test rows have.
    """
    from tfxclass import metrics

    ranking = metrics.RankingScores(KS, propensities)
    ranking.update(ids, labels)
    found = ranking.result()
    result = {f"P@{k}": found[f"precision_at_{k}"] for k in KS}
    result |= {f"PSP@{k}": found[f"psp_at_{k}"] for k in KS}
    each = class_f1(ids[:, : set_up.k], labels, len(counts))
    there = np.isin(np.arange(len(counts)), labels)
    result["macro-F1"] = float(each[there].mean())
    ends = (*set_up.bands[1:], np.inf)
    for first, end in zip(set_up.bands, ends):
        inside = there & (counts >= first) & (counts < end)
        shown = f"{first}+" if end == np.inf else f"{first}-{end - 1}"
        if end == first + 1:
            shown = str(first)
        mean = float(each[inside].mean()) if inside.any() else 0.0
        result[f"F1 {shown}"] = mean
    return result


def class_f1(ids, labels, num_classes):
    """F1 of each class, `[num_classes]`, where `ids` are the answers."""
    hit = (ids[:, :, None] == labels[:, None, :]).any(axis=2)

    def count(values):
        return np.bincount(values[values >= 0], minlength=num_classes)

    total = count(ids) + count(labels)
    return 2 * count(ids[hit]) / np.maximum(total, 1)


def run(name, loss, seed, data):
    """The result of a job, a dict; a plain model leaves its answers."""
    import keras

    import tfxclass
    from benchmarks.comparison import sets
    from benchmarks.comparison.model import make_model
    from tfxclass.losses import with_teacher

    keras.utils.set_random_seed(seed)
    propensities = tfxclass.metrics.propensities(
        data.counts, data.train.num_rows
    )
    head = make_head(name, loss, seed, data, propensities)
    set_up = sets.SETS[name]
    model = make_model(data, set_up, head, set_up.learning_rate)
    labels = data.train.labels
    teacher = os.path.join(CACHE, f"{name},teacher,seed={seed}.npz")
    if loss.startswith("distilled"):
        with np.load(teacher) as answers:
            labels = with_teacher(labels, answers["ids"], answers["scores"])
    seconds = train(model, name, seed, data, labels)
    if loss == "plain":
        ids, probabilities = best(model, data.train, data)
        np.savez(teacher, ids=ids, scores=probabilities)
    ids, _ = best(model, data.test, data)
    found = scores(ids, data.test.labels, data.counts, propensities, SETS[name])
    return {"cpu_s": seconds, "scores": found}


def child(folder, name, loss, seed):
    """`run` on one thread, so that seconds of the CPU are of the steps."""
    from benchmarks.comparison import rows
    from benchmarks.comparison import sets

    measure.use_one_thread()
    os.makedirs(CACHE, exist_ok=True)
    path = os.path.join(CACHE, f"{name}.npz")
    if not os.path.exists(path):
        sets.prepare(name, folder, path)
    return run(name, loss, int(seed), rows.load(path))


def row_of(loss, found):
    """A row of the table: means over seeds, and the range of P@1."""
    results = [one["scores"] for one in found]
    first = [one["P@1"] for one in results]
    row = {"loss": loss, "seeds": len(found)}
    for key in results[0]:
        row[key] = round(statistics.fmean(one[key] for one in results), 4)
    row["P@1 least"] = round(min(first), 4)
    row["P@1 most"] = round(max(first), 4)
    row["cpu_s"] = round(statistics.fmean(one["cpu_s"] for one in found), 1)
    return row


def draw(name, rows):
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
    if best == rare:
        title = f"Best precision, also where rare labels weigh more: {best}"
    path = os.path.join(measure.RESULTS, "long_tail", name + ".png")
    figure_style.save(figure, path, title)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", nargs="?", default="../shared/data")
    parser.add_argument("--set", choices=SETS, default="eurlex57k")
    parser.add_argument("--seeds", type=int, default=1, help="how many")
    parser.add_argument("--figures", action="store_true", help="run nothing")
    args = parser.parse_args()
    name = args.set
    if not args.figures:
        jobs = [((name, loss), None) for loss in LOSSES]
        found = measure.jobs_done(
            "long_tail", __file__, jobs, args.seeds, args.data, False
        )
        rows = [row_of(loss, found[name, loss]) for _, loss in found]
        measure.save(f"long_tail/{name}", rows)
    draw(name, measure.finished(f"long_tail/{name}"))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        print(json.dumps(child(*sys.argv[2:])))
    else:
        main()
