"""Linear one-vs-rest classifiers on sparse rows: training and scores."""

import numpy as np

from tests.fuzz_ops.descriptions import assert_ids
from tests.fuzz_ops.descriptions import assert_near
from tests.fuzz_ops.descriptions import described
from tests.fuzz_ops.descriptions import is_moderate
from tests.fuzz_ops.values import Variable


def check_weights(args, outputs, live):
    """A sparse matrix by feature, finite where its inputs are small."""
    del live
    splits, columns, weights, biases = outputs
    assert splits.shape == (args["num_features"] + 1,)
    assert splits[0] == 0 and np.all(np.diff(splits) >= 0)
    assert splits[-1] == len(columns) == len(weights)
    assert_ids(columns, max(len(biases), 1))
    assert biases.shape == np.shape(args["group_labels"])
    if np.all(np.abs(args["values"]) < 1e3) and args["c"] < 1e3:
        assert is_moderate(weights, biases)


@described("linear_one_vs_rest", check_weights)
def _draw_linear(d):
    rows, num_features, num_labels = d.size(), d.size(), d.size(1, 80)
    num_values, groups = d.size(1, 40), d.size(1, 4)
    labels = d.ids([d.size(1, 20)], num_labels)
    grouped = np.arange(num_labels)
    group_rows = d.ids([d.size(1, 20)], rows)
    num_features, num_labels = max(num_features, 1), max(num_labels, 1)
    # The weights that training starts from: none, or one of some features,
    # since columns must ascend within a feature.
    num_start = int(d.integer(0, num_features))
    of_labels = num_labels if num_start else 0
    return {
        "feature_splits": d.splits(rows, num_values),
        "features": d.ids([num_values], num_features).astype(np.int32),
        "values": d.floats(num_values),
        "label_splits": d.splits(rows, len(labels)),
        "labels": labels,
        "group_label_splits": d.splits(groups, num_labels),
        "group_labels": grouped,
        "group_row_splits": d.splits(groups, len(group_rows)),
        "group_rows": group_rows,
        "start_splits": np.minimum(np.arange(num_features + 1), num_start)
        if num_start
        else np.zeros(0, np.int64),
        "start_columns": d.ids([num_start], num_labels).astype(np.int32),
        "start_values": d.floats(num_start),
        "start_biases": d.floats(of_labels),
        "num_features": num_features,
        "num_labels": num_labels,
        "c": 1.0,
        "bias": 1.0,
        "num_epochs": int(d.integer(1, 4)),
        "tolerance": 0.0,
        "threshold": 0.01,
        "seed": int(d.integer(0, 9)),
    }


def check_scores(args, outputs, live):
    """Scores in NumPy; probabilities are in [0, 1]."""
    del live
    num_labels, activation = args["num_labels"], args["activation"]
    ids, values = args["ids"], np.asarray(args["values"], np.float64)
    assert outputs[0].shape == (len(ids), num_labels)
    floats = [x for x in args.values() if np.asarray(x).dtype.kind == "f"]
    if not is_moderate(*floats):
        return
    if activation != "none":
        assert np.all((outputs[0] >= 0) & (outputs[0] <= 1.0001))
        return
    expected = np.tile(np.float64(args["biases"]), [len(ids), 1])
    bound = np.abs(expected)
    for row, column in np.argwhere(values != 0):
        columns, entries = _weights_of(args, ids[row, column])
        terms = values[row, column] * entries.astype(np.float64)
        np.add.at(expected[row], columns, terms)
        np.add.at(bound[row], columns, np.abs(terms))
    bound = bound[:, :num_labels] * (ids.shape[1] + 3) * 2.0**-23
    assert_near(outputs[0], expected[:, :num_labels], bound)


def _weights_of(args, feature):
    """`(columns, entries)` of a feature."""
    place = args["places"][feature]
    if place >= 0:
        row = args["dense"][place]
        return np.arange(len(row)), row
    own = slice(*args["splits"][feature : feature + 2])
    return args["columns"][own], args["entries"][own]


@described("sparse_scores", check_scores)
def _draw_scores(d):
    batch, n, num_features = d.size(), d.size(), d.size()
    num_labels = max(d.size(1, 80), 1)
    # Several blocks of columns, at times.
    num_labels += 4000 * (d.integer(0, 9) == 0)
    num_groups, rows, num_entries = d.size(0, 4), d.size(), d.size(0, 40)
    width = num_labels + num_groups
    values = d.floats(batch, n)
    return {
        "ids": d.ids([batch, n], num_features),
        "values": values if num_features else 0 * values,
        "places": d.ids([num_features], rows, padded=True).astype(np.int32),
        "dense": d.floats(rows, width),
        "splits": d.splits(num_features, num_entries),
        "columns": d.ids([num_entries], width).astype(np.int32),
        "entries": d.floats(num_entries),
        "biases": d.floats(width),
        "groups": d.ids([num_labels if num_groups else 0], num_groups).astype(
            np.int32
        ),
        "slope": np.float32(d.choice([1.0, 3.0, -0.5])),
        "intercept": np.float32(d.choice([0.0, -1.0])),
        "num_labels": int(num_labels),
        "activation": d.choice(["none", "sigmoid", "softmax"]),
        "group_slope": 1.2,
    }


def check_loss(args, outputs, live):
    """A mean loss; it is finite where what is given is small."""
    del live
    assert outputs[0].shape == ()
    sums = [args[x].value for x in ("term_sums", "label_sums", "squares")]
    given = args["terms"].value, args["labels"].value, args["text_values"]
    numbers = [x for x in args.values() if isinstance(x, float)]
    is_small = max(numbers) < 1e3 and is_moderate(*given, *sums)
    if is_small and all(np.all(x >= 0) for x in sums):
        assert np.isfinite(outputs[0])


@described("train_text_embeddings", check_loss)
def _draw_embeddings(d):
    texts, terms, labels, dim = (d.size(1, 40) for _ in range(4))
    num_values = d.size(1, 40)
    return {
        "terms": Variable(d.floats(terms, dim)),
        "term_sums": Variable(np.abs(d.floats(terms))),
        "labels": Variable(d.floats(labels, dim)),
        "label_sums": Variable(np.abs(d.floats(labels))),
        "squares": Variable(np.zeros(4)),
        "text_splits": d.splits(texts, num_values),
        "text_terms": d.ids([num_values], terms).astype(np.int32),
        "text_values": d.floats(num_values),
        # Each has a label.
        "text_label_splits": np.arange(texts + 1),
        "text_labels": d.ids([texts], labels),
        "order": d.ids([d.size(0, 40)], texts),
        "first_step": d.integer(0, 9),
        "num_steps": d.integer(1, 9),
        "seed": d.integer(0, 9),
        "batch_size": int(d.integer(1, 40)),
        "num_sampled": int(d.integer(1, 40)),
        "scale": 8.0,
        "dropout": d.choice([0.0, 0.2]),
        "term_rate": 0.05,
        "label_rate": 0.3,
        "term_offset": 4.0,
        "label_offset": 10.0,
    }
