"""The choice of the active classes: what is in, in which order, how likely.

Statistics are over fixed seeds, so they cannot flake; tolerances are five
standard errors or more of what a right sampler shows.
"""

import itertools
import math

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from tests.support import reference
from tests.support.cases import quick
from tfxclass.ops.active_classes import active_classes


def choose(labels, num_sampled, num_classes, seed=0, stream=0, **options):
    labels = tf.constant(np.asarray(labels, np.int64))
    if options.get("candidates") is not None:
        options["candidates"] = np.asarray(options["candidates"], np.int64)
        options["scores"] = np.asarray(options["scores"], np.float32)
    weights = options.pop("weights", None)
    if weights is not None:
        options["cumulative"] = np.cumsum(np.asarray(weights, np.float64))
    return active_classes(
        labels,
        num_sampled,
        num_classes,
        tf.stack([tf.constant(seed, tf.int64), tf.cast(stream, tf.int64)]),
        **options,
    )


@st.composite
def cases(draw):
    num_classes = draw(st.integers(1, 60))
    ids = st.integers(-1, num_classes - 1)
    labels = draw(st.lists(ids, max_size=12))
    candidates = draw(st.lists(ids, max_size=25))
    # float32 numbers, some equal.
    scores = draw(
        st.lists(
            st.integers(-20, 20),
            min_size=len(candidates),
            max_size=len(candidates),
        )
    )
    least = max(1, len({c for c in labels if c >= 0}))
    return {
        "labels": labels,
        "num_classes": num_classes,
        "num_sampled": draw(st.integers(least, num_classes)),
        "candidates": candidates,
        "scores": [s / 4 for s in scores],
        "seed": draw(st.integers(-(2**63), 2**63 - 1)),
        "stream": draw(st.integers(0, 2**40)),
        "fill": draw(st.sampled_from(["uniform", "log_uniform", "frequency"])),
        "weights": draw(
            st.lists(
                st.sampled_from([0, 0, 1, 1e-12, 1e12]),
                min_size=num_classes,
                max_size=num_classes,
            ).filter(any)
        ),
        "sample_overflow": draw(st.booleans()),
        "candidate_share": draw(st.sampled_from([0.0, 0.3, 0.5, 1.0])),
    }


def best_scores(case):
    """The candidates that are no labels, with their best score."""
    best = {}
    for c, score in zip(case["candidates"], case["scores"]):
        if c >= 0 and c not in case["labels"]:
            best[c] = max(score, best.get(c, -np.inf))
    return best


@given(case=cases())
def test_targets_then_candidates_then_fill(case):
    chosen = choose(**case)
    ids = chosen.ids.numpy().tolist()
    assert len(set(ids)) == len(ids) == case["num_sampled"]
    assert all(0 <= c < case["num_classes"] for c in ids)
    targets = reference.distinct_labels(case["labels"])
    assert int(chosen.num_targets) == len(targets)
    assert ids[: len(targets)] == targets
    expected = [targets.index(c) if c >= 0 else -1 for c in case["labels"]]
    assert chosen.positions.numpy().tolist() == expected

    best = best_scores(case)
    room = case["num_sampled"] - len(targets)
    share = case["candidate_share"]
    # Below 1 one is left to the fill.
    room = min(
        math.ceil(np.float32(share) * np.float32(room)),
        max(room - (share < 1), 0),
    )
    taken = ids[len(targets) :][: int(chosen.num_candidates)]
    assert len(taken) == min(room, len(best))
    used = len(taken) / room if room else 0.0
    np.testing.assert_allclose(chosen.fill_rate, used, rtol=1e-6)
    assert set(taken) <= set(best)
    if not case["sample_overflow"] and len(best) > room:
        ranked = sorted(best, key=lambda c: (-best[c], c))
        assert taken == ranked[:room]

    counts = chosen.log_expected_count.numpy()
    known = len(targets) + len(taken)
    assert np.all(counts[:known] == 0)
    filled, rest = len(ids) - known, case["num_classes"] - known
    if case["fill"] == "uniform" and filled:
        np.testing.assert_allclose(
            counts[known:], np.log(filled / rest), rtol=1e-6, atol=1e-7
        )
    assert np.all(counts <= 0) and np.all(np.isfinite(counts))


@given(case=cases())
def test_same_seed_same_result(case):
    for first, second in zip(choose(**case), choose(**case)):
        np.testing.assert_array_equal(first, second)


def test_other_seed_or_stream_other_result():
    draws = [
        tuple(choose([0], 20, 10_000, seed, stream).ids.numpy())
        for seed in (1, 2, 2**40)
        for stream in (0, 1)
    ]
    assert len(set(draws)) == len(draws)


WEIGHTS = [3.0, 0.0, 1e-9, 1.0, 1.0, 0.0, 5.0]


@pytest.mark.parametrize("fill", ["uniform", "log_uniform", "frequency"])
@pytest.mark.parametrize("labels", [[], [3], [6, 0, 3, 6]])
def test_all_classes_are_all_classes(fill, labels):
    chosen = choose(labels, 7, 7, fill=fill, weights=WEIGHTS)
    assert sorted(chosen.ids.numpy()) == list(range(7))
    assert chosen.log_expected_count.numpy().tolist() == [0.0] * 7


def test_labels_of_any_shape():
    chosen = choose([[5, -1], [2, 5], [-1, -1]], 4, 9)
    assert chosen.positions.numpy().tolist() == [[0, -1], [1, 0], [-1, -1]]
    assert chosen.ids.numpy()[:2].tolist() == [5, 2]


def test_ids_past_32_bits():
    top = 2**40
    chosen = choose([top - 1, 7], 50, top)
    ids = chosen.ids.numpy()
    assert ids[:2].tolist() == [top - 1, 7]
    assert len(set(ids.tolist())) == 50
    # 48 uniform draws below 2^40: some are past 2^39.
    assert np.sum(ids[2:] > 2**39) > 10


def test_static_shape_in_a_function():
    @tf.function(input_signature=[tf.TensorSpec([2, 2], tf.int64)])
    def chosen(labels):
        result = active_classes(labels, 5, 100, tf.constant([1, 2], tf.int64))
        assert result.ids.shape == [5]
        assert result.log_expected_count.shape == [5]
        assert result.positions.shape.as_list() == [2, 2]
        return result.ids

    np.testing.assert_array_equal(
        chosen([[1, -1], [4, 1]]), choose([[1, -1], [4, 1]], 5, 100, 1, 2).ids
    )


TRIALS = 2500


def choices(trials=TRIALS, **arguments):
    """`choose` with a stream for each trial, in one graph.

    Returns:
        Arrays with an axis of the trials: ids, log expected counts, and log
        expected counts of the labels.
    """

    def one(stream):
        chosen = choose(stream=stream, **arguments)
        return (
            chosen.ids,
            chosen.log_expected_count,
            chosen.target_log_expected_count,
        )

    @tf.function
    def run():
        streams = tf.range(trials, dtype=tf.int64)
        types = (tf.int64, tf.float32, tf.float32)
        return tf.map_fn(one, streams, fn_output_signature=types)

    return [result.numpy() for result in run()]


def inclusion(num_classes, trials=TRIALS, **arguments):
    """How often each class is chosen, and the counts that were expected."""
    all_ids, log_counts, _ = choices(
        trials, num_classes=num_classes, seed=17, **arguments
    )
    hits = np.zeros(num_classes)
    expected = np.zeros(num_classes)
    for ids, log_count in zip(all_ids, log_counts):
        hits[ids] += 1
        expected[ids] += np.exp(log_count)
    # The mean of the expected count, over the trials in which a class was in.
    return hits / trials, expected / np.maximum(hits, 1)


def five_errors(probability, trials=TRIALS):
    return 5 * np.sqrt(probability * (1 - probability) / trials) + 1e-9


@pytest.mark.parametrize("num_sampled", [5, 15])  # thin, and over half
def test_uniform_fill_is_as_likely_as_it_says(num_sampled):
    often, expected = inclusion(20, labels=[4, 7], num_sampled=num_sampled)
    assert often[4] == often[7] == expected[4] == 1.0
    rest = np.setdiff1d(np.arange(20), [4, 7])
    probability = (num_sampled - 2) / 18
    np.testing.assert_allclose(expected[rest], probability, rtol=1e-6)
    assert np.all(np.abs(often[rest] - probability) < five_errors(probability))


def successive_inclusion(weights, places):
    """Exact: classes are drawn one after the other without replacement."""
    weights = np.asarray(weights, np.float64)
    inclusion = np.zeros(len(weights))
    for order in itertools.permutations(range(len(weights)), places):
        rest, probability = weights.sum(), 1.0
        for c in order:
            probability *= weights[c] / rest
            rest -= weights[c]
        inclusion[list(order)] += probability
    return inclusion


@pytest.mark.parametrize("fill", ["log_uniform", "frequency"])
def test_fill_by_a_law_is_drawn_without_replacement(fill):
    weights = [4.0, 1.0, 0.5, 0.0, 2.5, 2.0]
    often, _ = inclusion(
        6, labels=[], num_sampled=3, fill=fill, weights=weights
    )
    if fill == "log_uniform":
        weights = reference.log_uniform_probability(np.arange(6), 6)
    expected = successive_inclusion(weights, 3)
    assert np.all(np.abs(often - expected) < five_errors(expected))


@pytest.mark.parametrize("fill", ["log_uniform", "frequency"])
@pytest.mark.parametrize("num_sampled", [3, 25])
def test_expected_counts_of_a_law_are_unbiased(fill, num_sampled):
    """Each class adds 1 on average when weighted by its inverse count, also
    those that seldom come, and those beside a label."""
    weights = np.random.default_rng(1).gamma(0.7, size=40)
    total = np.zeros((TRIALS, 40))
    ids, log_counts, _ = choices(
        labels=[7],
        num_sampled=num_sampled,
        num_classes=40,
        seed=3,
        fill=fill,
        weights=weights,
    )
    np.put_along_axis(total, ids, np.exp(-log_counts), axis=1)
    mean = total.mean(axis=0)
    error = total.std(axis=0) / np.sqrt(TRIALS)
    assert mean[7] == 1.0
    # The error is known of classes that came some times, and one that missed
    # no trial might have missed one.
    known = (total > 0).sum(axis=0) > 20
    assert known.sum() >= 25
    assert np.all(np.abs(mean - 1)[known] <= 4.5 * error[known] + 2 / TRIALS)


def test_classes_without_weight_come_last():
    weights = [0.0, 2.0, 0.0, 1.0, 0.0, 0.0]
    for stream in range(20):
        chosen = choose([5], 3, 6, 0, stream, fill="frequency", weights=weights)
        assert set(chosen.ids.numpy()) == {5, 1, 3}
        assert np.all(chosen.log_expected_count.numpy() == 0)
    often, expected = inclusion(
        6, labels=[5], num_sampled=4, fill="frequency", weights=weights
    )
    assert often[1] == often[3] == 1.0
    np.testing.assert_allclose(expected[[0, 2, 4]], 1 / 3, rtol=1e-6)
    assert np.all(np.abs(often[[0, 2, 4]] - 1 / 3) < five_errors(1 / 3))


def test_rare_classes_are_found_when_the_places_ask_for_them():
    """Draws alone would take some 10^12 tries; the order is still the law's."""
    weights = np.array([1.0] + [1e-12, 3e-12] * 3)
    often, _ = inclusion(
        7,
        labels=[],
        num_sampled=2,
        fill="frequency",
        weights=weights,
        trials=500,
    )
    assert often[0] == 1.0
    expected = weights[1:] / weights[1:].sum()
    assert np.all(np.abs(often[1:] - expected) < five_errors(expected, 500))


@pytest.mark.parametrize(
    "fill", quick(["uniform", "log_uniform", "frequency"], ["frequency"])
)
@pytest.mark.parametrize("num_sampled", [2, 6])  # without a fill, and with
def test_count_of_a_label_is_its_chance_were_it_none(fill, num_sampled):
    """Noise contrastive estimation's count of the label, for label 3 of 1
    and 3: how often 3 is drawn where 1 alone is a label."""
    arguments = {
        "num_sampled": num_sampled,
        "num_classes": 12,
        "fill": fill,
        "weights": np.arange(12.0),
    }
    often, _ = inclusion(labels=[1], **arguments)
    _, _, log_counts = choices(labels=[1, 3], seed=18, **arguments)
    told = np.exp(log_counts[:, 1])
    error = 5 * told.std() / np.sqrt(TRIALS) + five_errors(often[3])
    assert abs(told.mean() - often[3]) < error
    assert 0.03 < often[3] < 0.9


def test_count_of_labels_of_several_rows_and_of_no_weight():
    chosen = choose([[5, -1], [2, 5], [0, -1]], 4, 9)
    counts = chosen.target_log_expected_count.numpy()
    # 5 is in whatever one of its rows says; 2 and 0 as one of 7 classes for
    # 2 places: their own and the one that is left.
    expected = np.log([[1.0, 1.0], [2 / 7, 1.0], [2 / 7, 1.0]])
    np.testing.assert_allclose(counts, expected, rtol=1e-6, atol=1e-7)
    # The law never draws class 2: a place among what it leaves.
    weights = [1.0, 1.0, 0.0, 1.0, 0.0]
    for num_sampled, chance in ((2, 1 / 4), (4, 1 / 2), (5, 1.0)):
        chosen = choose([2], num_sampled, 5, fill="frequency", weights=weights)
        count = np.exp(chosen.target_log_expected_count.numpy())
        np.testing.assert_allclose(count, [chance], rtol=1e-6)


def test_log_uniform_fill_of_nearly_all_classes_ends():
    chosen = choose([], 999, 1000, fill="log_uniform")
    assert len(set(chosen.ids.numpy().tolist())) == 999
    assert np.all(np.isfinite(chosen.log_expected_count))


def test_one_of_the_candidates_by_probability():
    """Gumbel top 1 draws by the softmax of the scores."""
    scores = np.array([0.0, 1.0, 2.0, -1.0, 0.5])
    often, _ = inclusion(
        30,
        labels=[9],
        num_sampled=2,
        candidates=np.arange(20, 25),
        scores=scores,
    )
    softmax = reference.softmax(scores[None])[0]
    assert np.all(np.abs(often[20:25] - softmax) < five_errors(softmax))


def test_two_of_the_candidates_without_replacement():
    scores = np.array([0.0, 1.0, 2.0, -1.0])
    often, _ = inclusion(
        10, labels=[], num_sampled=2, candidates=range(4), scores=scores
    )
    p = reference.softmax(scores[None])[0]
    # First, or second after another one was first.
    both = [
        p[i] + sum(p[j] * p[i] / (1 - p[j]) for j in range(4) if j != i)
        for i in range(4)
    ]
    both = np.array(both)
    assert np.all(np.abs(often[:4] - both) < five_errors(both))
    assert np.all(often[4:] == 0)


@pytest.mark.parametrize("share", [0.0, 0.5])
def test_sum_of_exponentials_is_unbiased(share):
    """Horvitz-Thompson: given the candidates, the mean over the fills of
    sum exp(logit - log_expected_count) is the sum over all classes."""
    logits = np.random.default_rng(3).normal(size=50)
    ids, log_counts, _ = choices(
        2000,
        labels=[1, 2],
        num_sampled=12,
        num_classes=50,
        seed=5,
        candidates=[30, 31, 32],
        scores=[0.0, 1.0, 2.0],
        candidate_share=share,
    )
    estimates = np.exp(logits[ids] - log_counts).sum(axis=1)
    error = np.std(estimates) / np.sqrt(len(estimates))
    assert abs(np.mean(estimates) - np.exp(logits).sum()) < 4 * error
    assert error < 0.02 * np.exp(logits).sum()


def test_infinite_and_equal_scores():
    inf = float("inf")
    chosen = choose(
        [],
        3,
        10,
        candidates=[5, 6, 7, 8],
        scores=[-inf, 0.0, inf, 0.0],
        sample_overflow=False,
    )
    assert chosen.ids.numpy().tolist() == [7, 6, 8]


@given(
    st.lists(st.integers(-1, 19), min_size=1, max_size=60),
    st.integers(1, 20),
    st.sampled_from(["uniform", "log_uniform"]),
)
def test_more_labels_than_num_sampled_are_all_chosen(labels, size, fill):
    chosen = choose(labels, size, 20, fill=fill, candidates=[3], scores=[1.0])
    distinct = list(dict.fromkeys(x for x in labels if x >= 0))
    ids = chosen.ids.numpy()
    assert len(set(ids)) == len(ids) == max(size, len(distinct))
    np.testing.assert_array_equal(ids[: len(distinct)], distinct)
    if len(distinct) >= size:
        np.testing.assert_array_equal(chosen.log_expected_count, 0)


INVALID = {
    "label_too_great": (
        {"labels": [0, 10]},
        ["`targets` must be in [-1, 10)", "10 at position 1"],
    ),
    "label_negative": ({"labels": [-2]}, ["`targets`", "-2 at position 0"]),
    "candidate_too_great": (
        {"candidates": [11], "scores": [0.0]},
        ["`candidates` must be in [-1, 10)", "11"],
    ),
    "scores_shape": (
        {"candidates": [1, 2], "scores": [0.0]},
        ["`scores` must have the shape of `candidates` (2)", "(1)"],
    ),
    "sampled_zero": (
        {"num_sampled": 0},
        ["`num_sampled` must be in [1, num_classes]", "num_sampled=0"],
    ),
    "sampled_too_many": (
        {"num_sampled": 11},
        ["num_sampled=11 with num_classes=10"],
    ),
    "cumulative_length": (
        {"fill": "frequency", "weights": [1.0, 2.0]},
        ["`cumulative`", "each of the 10 classes", "Received: 2"],
    ),
    "cumulative_zero": (
        {"fill": "frequency", "weights": [0.0] * 10},
        ["`cumulative` must end with a total > 0", "Received: 0"],
    ),
    "cumulative_nan": (
        {"fill": "frequency", "weights": [1.0] * 9 + [float("nan")]},
        ["`cumulative` must end with a total > 0", "nan"],
    ),
    "share_negative": (
        {"candidate_share": -0.5},
        ["`candidate_share` must be in [0, 1]", "-0.5"],
    ),
    "share_above": ({"candidate_share": 1.5}, ["candidate_share", "1.5"]),
    "share_nan": ({"candidate_share": np.nan}, ["candidate_share", "nan"]),
}


@pytest.mark.host
@pytest.mark.parametrize("name", INVALID)
def test_invalid_arguments(name):
    changes, parts = INVALID[name]
    arguments = {"labels": [1], "num_sampled": 4, "num_classes": 10, **changes}
    with pytest.raises(tf.errors.InvalidArgumentError) as error:
        choose(**arguments)
    for part in parts:
        assert part in str(error.value)


@pytest.mark.parametrize("length", [0, 1, 3])
def test_seed_has_two_elements(length):
    with pytest.raises(tf.errors.InvalidArgumentError) as error:
        active_classes([1], 2, 5, tf.zeros([length], tf.int64))
    assert f"`seed` must have 2 elements. Received: {length}" in str(
        error.value
    )
