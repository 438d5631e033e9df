"""Linear one-vs-rest classifiers on sparse rows."""

import numpy as np

from tests.fuzz_ops.descriptions import assert_ids
from tests.fuzz_ops.descriptions import described
from tests.fuzz_ops.descriptions import is_moderate


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
        "features": d.ids([num_values], num_features),
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
        "loss": d.choice(["squared_hinge", "logistic"]),
        "c": 1.0,
        "bias": 1.0,
        "num_epochs": int(d.integer(1, 4)),
        "tolerance": 0.0,
        "threshold": 0.01,
        "seed": int(d.integer(0, 9)),
    }
