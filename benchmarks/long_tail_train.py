"""One job of the comparison of losses: a model, trained and judged.

    python -m benchmarks.long_tail_train JOB DATA FOLDER

JOB is the JSON of a `long_tail.Job`, DATA the file of its set, FOLDER where
teachers lie. The last line of output is the result, JSON.
"""

import json
import os
import sys
import time

import keras
import numpy as np
import tensorflow as tf

import tfxclass
from benchmarks import long_tail
from benchmarks.comparison import rows as rows_lib
from benchmarks.comparison.model import make_model
from benchmarks.comparison.sets import SETS
from tfxclass.losses import LossOptions
from tfxclass.losses import with_teacher

EVALUATED = 512  # rows a batch of a search
KS = (1, 3, 5)
BEST = 10  # classes of an answer, and of a teacher
# The exact softmax up to here, on one thread; above it a sample.
MOST_EXACT = 20_000


def _options(loss, counts, propensities):
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
    name = {"distilled": "teacher_weight", "focal": "focal_gamma"}
    return LossOptions(**{name.get(kind, kind): float(value)})


def make_head(job, data, propensities):
    """The head of a job."""
    set_up = SETS[job.set]
    objective = "sigmoid" if job.loss.startswith("sigmoid") else "softmax"
    options = {
        "loss": objective,
        "loss_options": _options(job.loss, data.counts, propensities),
        "seed": job.seed,
    }
    if set_up.scale:
        options["similarity"] = tfxclass.layers.Cosine(scale=set_up.scale)
    if objective == "sigmoid":
        odds = tfxclass.initializers.LogOdds(data.counts, data.train.num_rows)
        options.update(use_bias=True, bias_initializer=odds)
    if data.num_classes <= MOST_EXACT:
        return tfxclass.layers.FullSoftmax(data.num_classes, **options)
    return tfxclass.layers.SampledSoftmax(
        data.num_classes, set_up.num_sampled, **options
    )


def train(model, job, data, labels):
    """Trains the epochs of the set; seconds of the CPU."""
    size = min(SETS[job.set].batch_size, data.train.num_rows)
    random = np.random.default_rng(job.seed)
    step = tf.function(lambda x, y: model.train_step((x, y)))
    begin = time.process_time()
    for _ in range(long_tail.SETS[job.set].epochs):
        order = random.permutation(data.train.num_rows)
        for start in range(0, len(order) - size + 1, size):
            which = order[start : start + size]
            step(data.train.batch(which, data.length, random), labels[which])
    return time.process_time() - begin


def best(model, part, data):
    """Ids and probabilities of the best classes of all rows."""
    answer = tfxclass.top_k(model, k=min(BEST, data.num_classes))
    search = tf.function(lambda words: answer(words), reduce_retracing=True)
    found = []
    for start in range(0, part.num_rows, EVALUATED):
        which = np.arange(start, min(start + EVALUATED, part.num_rows))
        found.append(
            [x.numpy() for x in search(part.batch(which, data.length))]
        )
    return [np.concatenate(x) for x in zip(*found)]


def scores(ids, labels, counts, propensities, set_up):
    """P@k, PSP@k, and macro-F1 of all classes and of each band.

    Of the classes that test rows have.
    """
    ranking = tfxclass.metrics.RankingScores(KS, propensities)
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
        mean = float(each[inside].mean()) if inside.any() else 0.0
        result[f"F1 {_shown(first, end)}"] = mean
    return result


def _shown(first, end):
    if end == np.inf:
        return f"{first}+"
    return f"{first}" if end == first + 1 else f"{first}-{end - 1}"


def class_f1(ids, labels, num_classes):
    """F1 of each class, `[num_classes]`, where `ids` are the answers."""
    hit = (ids[:, :, None] == labels[:, None, :]).any(axis=2)

    def count(values):
        return np.bincount(values[values >= 0], minlength=num_classes)

    total = count(ids) + count(labels)
    return 2 * count(ids[hit]) / np.maximum(total, 1)


def labels_of(job, data, folder):
    """Labels of the training rows, with a teacher's classes if there is one."""
    if not job.loss.startswith("distilled"):
        return data.train.labels
    with np.load(job.teacher(folder)) as found:
        return with_teacher(data.train.labels, found["ids"], found["scores"])


def keep_teacher(model, job, data, folder):
    """Answers on the training rows, for the distilled model of the seed."""
    losses = long_tail.SETS[job.set].losses
    if job.loss != "plain" or not any(x.startswith("dist") for x in losses):
        return
    ids, probabilities = best(model, data.train, data)
    path = job.teacher(folder)
    np.savez(path + ".part.npz", ids=ids, scores=probabilities)
    os.replace(path + ".part.npz", path)


def run(job, data, folder):
    """The result of a job, a dict."""
    keras.utils.set_random_seed(job.seed)
    propensities = tfxclass.metrics.propensities(
        data.counts, data.train.num_rows
    )
    head = make_head(job, data, propensities)
    model = make_model(data, SETS[job.set], head)
    seconds = train(model, job, data, labels_of(job, data, folder))
    keep_teacher(model, job, data, folder)
    ids, _ = best(model, data.test, data)
    return {
        "cpu_s": seconds,
        "scores": scores(
            ids,
            data.test.labels,
            data.counts,
            propensities,
            long_tail.SETS[job.set],
        ),
    }


def main(job, path, folder):
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    job = long_tail.Job(*json.loads(job))
    print(json.dumps(run(job, rows_lib.load(path), folder)))


if __name__ == "__main__":
    main(*sys.argv[1:])
