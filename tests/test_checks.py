"""Public arguments of a wrong type: a text as a number, a number as a list."""

import keras
import numpy as np
import pytest

import tfxclass
from tfxclass import checks
from tfxclass import export
from tfxclass import layers
from tfxclass import losses
from tfxclass import metrics
from tfxclass import optimizers
from tfxclass import retrieval
from tfxclass import samplers
from tfxclass import text


def model(**options):
    return keras.Sequential(
        [keras.Input([8]), layers.FullSoftmax(9, **options)]
    )


def test_one_number_stands_for_a_list_of_it():
    assert layers.FullSoftmax(9, removed=0).removed == [0]
    assert layers.FullSoftmax(9, removed=np.int64(3)).removed == [3]
    assert layers.AdaptiveSoftmax(9, cutoffs=5).cutoffs == [5]
    assert "recall_at_3" in metrics.ranking_scores([[1, 2, 0]], [[1]], ks=3)
    assert text.Field("title").columns == ("title",)
    found = tfxclass.remove_classes(model(), 2)
    assert found.layers[-1].removed == [2]
    head = layers.AdaptiveProjectedSoftmax(9, group_sizes=9, projection_dims=4)
    assert head.get_config()["group_sizes"] == [9]


NAMED = model(class_names=list("abcdefghi"))
WRONG = {
    "removed": lambda: layers.FullSoftmax(9, removed="a"),
    "removed_fraction": lambda: layers.FullSoftmax(9, removed=[1.5]),
    "class_names": lambda: layers.FullSoftmax(3, class_names="abc"),
    "cutoffs": lambda: layers.AdaptiveSoftmax(9, "5"),
    "blocks": lambda: layers.DifferentiatedSoftmax(9, 5),
    "blocks_flat": lambda: layers.DifferentiatedSoftmax(9, (9, 8)),
    "counts": lambda: layers.split_by_frequency(5, 2),
    "ks": lambda: metrics.ranking_scores([[1]], [[1]], "5"),
    "columns": lambda: text.Field(3),
    "fields": lambda: text.Tagger(fields=3),
    "labels": lambda: tfxclass.add_classes(NAMED, 1, labels="name"),
    "optimizers_and_layers": lambda: optimizers.MultiOptimizer(3),
    "stages": lambda: optimizers.LocalSGD(stages=3),
    "num_trees": lambda: samplers.AdaptiveAllocation(num_trees=3),
    "sequences": lambda: retrieval.leave_one_out(3),
}


@pytest.mark.parametrize("name", WRONG)
def test_the_argument_is_named(name):
    argument = name.removesuffix("_fraction").removesuffix("_flat")
    with pytest.raises(ValueError, match=f"`{argument}` must .*Received: "):
        WRONG[name]()


NUMBERS = {
    "a": lambda x: metrics.propensities([1, 2], 10, a=x),
    "c": lambda x: text.Tagger(c=x),
    "calibration": lambda x: layers.NegativeSampling(9, 4, calibration=x),
    "class_rate": lambda x: optimizers.HeadAdam(class_rate=x),
    "decay": lambda x: samplers.LSHTables(decay=x),
    "div_value": lambda x: layers.AdaptiveSoftmax(9, [4], div_value=x),
    "epsilon": lambda x: optimizers.LazyAdam(epsilon=x),
    "focal_gamma": lambda x: losses.LossOptions(focal_gamma=x),
    "gamma": lambda x: optimizers.LocalSGD(stages=[(0.1, 1, 1)], gamma=x),
    "kl_weight": lambda x: layers.DropMax(9, mode_options={"kl_weight": x}),
    "l2": lambda x: layers.ProjectedSoftmax(9, 4, l2=x),
    "l2_of_rows": lambda x: optimizers.LazyAdam(l2=x),
    "label_smoothing": lambda x: losses.LossOptions(label_smoothing=x),
    "log_normalizer": lambda x: layers.NoiseContrastive(9, log_normalizer=x),
    "logit_adjustment": lambda x: losses.LossOptions(
        class_counts=[1, 2], logit_adjustment=x
    ),
    "margin": lambda x: layers.Cosine(margin=x),
    "max_share": lambda x: text.Field("title", max_share=x),
    "min_recall": lambda x: export.InvertedLists(min_recall=x),
    "neighbor_fraction": lambda x: samplers.AutoSampler(3, neighbor_fraction=x),
    "num_rows": lambda x: metrics.propensities([1, 2], x),
    "power": lambda x: samplers.FrequencySampler(3, [1], power=x),
    "query_fraction": lambda x: samplers.LSHSampler(3, query_fraction=x),
    "rate": lambda x: samplers.BatchSampler(3, rate=x),
    "sample_rate": lambda x: layers.ShardedSoftmax(9, sample_rate=x),
    "scale": lambda x: layers.Cosine(scale=x),
    "seconds": lambda x: tfxclass.advise(None, None, seconds=x),
    "shrinkage": lambda x: tfxclass.calibrate(None, None, shrinkage=x),
    "temperature": lambda x: layers.DropMax(9, mode_options={"temperature": x}),
    "weight": lambda x: text.Field("title", weight=x),
}


@pytest.mark.parametrize("value", ["one", [1.0], float("nan")])
@pytest.mark.parametrize("name", NUMBERS)
def test_what_is_no_number_is_refused_by_name(name, value):
    argument = name.removesuffix("_of_rows")
    with pytest.raises(ValueError, match=f"`{argument}` must .*Received: "):
        NUMBERS[name](value)


@pytest.mark.parametrize(
    "make, meant",
    [
        (lambda: layers.SampledSoftmax(9, samler="uniform"), "sampler"),
        (lambda: layers.FullSoftmax(9, num_sampled=3), None),
        (lambda: layers.LSHSoftmax(9, tables=3), None),
        (lambda: layers.FullSoftmax(9, lost="sigmoid"), "loss"),
        (lambda: optimizers.HeadAdam(clip_norm=1.0), "clipnorm"),
        (lambda: optimizers.LazySGD(0.1, momentun=0.9), "momentum"),
        (lambda: optimizers.HeadAdam(lr=0.1), "learning_rate"),
        (lambda: samplers.UniformSampler(9, seeds=3), "seed"),
    ],
)
def test_a_misspelt_argument_is_told(make, meant):
    with pytest.raises(ValueError) as e:
        make()
    found = str(e.value).partition("Did you mean ")[2]
    assert found == (f"`{meant}`?" if meant else "")


def test_a_tensor_without_items_is_no_list():
    with pytest.raises(ValueError, match="`x` must be a list of integers"):
        checks.as_list("x", np.array(3.5))


@pytest.mark.parametrize(
    "values",
    [
        [3, 1, 2],
        (3, 1, 2),
        np.array([3, 1, 2], object),
        np.array([3, 1, 2], "float32"),
        [3.0, 1.0, 2.0],
        range(3, 0, -1),
    ],
)
def test_ids_of_any_kind(values):
    ids = checks.as_ids("x", values)
    assert ids.dtype.kind == "i" and ids.tolist() == list(map(int, values))


@pytest.mark.parametrize(
    "values",
    [
        [1.5],
        [np.nan],
        np.array([2**24], "float32"),
        [None, 1],
        ["1"],
        [True],
        {1: 2},
        {1, 2},
        iter([1]),
        [[1], [1, 2]],
    ],
)
def test_what_is_no_ids_is_refused_by_name(values):
    with pytest.raises(ValueError, match="`x` must"):
        checks.as_ids("x", values)


class Column:
    """A column with labels, as pandas' Series is one."""

    def __init__(self, values, index):
        self.values, self.index = values, index

    def __array__(self, dtype=None, copy=None):
        return np.array(self.values, dtype)


def test_numbers_of_classes_are_in_the_order_of_their_ids():
    counts = checks.as_numbers_of_classes("x", Column([5, 3], range(2)))
    assert counts.tolist() == [5, 3]
    for index in ([1, 0], ["a", "b"], [1, 2]):
        with pytest.raises(ValueError, match="`x` must be in the order"):
            checks.as_numbers_of_classes("x", Column([5, 3], index))


OF_CLASSES = {
    "counts": lambda x: tfxclass.samplers.FrequencySampler(2, x),
    "label_counts": lambda x: tfxclass.metrics.propensities(x, 100),
    "class_weight": lambda x: tfxclass.losses.LossOptions(class_weight=x),
    "class_counts": lambda x: tfxclass.losses.LossOptions(class_counts=x),
    "propensities": lambda x: tfxclass.losses.LossOptions(propensities=x),
    "thresholds": lambda x: setattr(
        tfxclass.layers.FullSoftmax(3), "thresholds", x
    ),
}


@pytest.mark.parametrize("name", OF_CLASSES)
def test_numbers_in_another_order_than_the_classes_are_refused(name):
    make = OF_CLASSES[name]
    make(Column([0.5, 0.5, 1], range(3)))
    wrong = [Column([1, 0.5, 0.5], [2, 0, 1]), {"a": 1}, ["1", "1", "1"]]
    for values in wrong:
        with pytest.raises(ValueError, match=f"`{name}` must"):
            make(values)


@pytest.mark.parametrize("table", ["pandas", "polars"])
def test_counts_of_tables(table):
    library = pytest.importorskip(table)
    make = tfxclass.initializers.LogOdds
    counts = library.Series([3, 2, 1])
    assert make(counts, 10).label_counts.tolist() == [3, 2, 1]
    if table == "pandas":
        with pytest.raises(ValueError, match="reindex"):
            make(library.Series([2, 2, 1]).value_counts(), 10)


@pytest.mark.parametrize("names", [{"a", "b"}, {"a": 0, "b": 1}])
def test_names_without_an_order_are_refused(names):
    with pytest.raises(ValueError, match="`class_names` must be a list"):
        tfxclass.layers.FullSoftmax(2, class_names=names)
