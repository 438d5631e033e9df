"""What a tagger chooses on held-out rows: fields, C, and probabilities."""

from typing import Any
from typing import NamedTuple

import numpy as np

from tfxclass.calibration.label_thresholds import Pairs
from tfxclass.calibration.label_thresholds import best_thresholds
from tfxclass_text import code_levels
from tfxclass_text import likelihood
from tfxclass_text import linear_tree
from tfxclass_text import sparse_linear
from tfxclass_text.centroids import centroids
from tfxclass_text.linear_ops import SparseWeights
from tfxclass_text.sparse_rows import LabeledRows
from tfxclass_text.sparse_rows import SparseRows

EPOCHS = 4
# No threshold is below.
_MIN_ANSWER = 0.01
# Of the centroids, where a row has one label; many labels gain nothing by them.
_SHARES = (0.5, 1.0, 2.0)
# Weights to choose from of the margins of the labels' parents.
_PARENT_WEIGHTS = (0.25, 0.5, 1.0)
# Rows that are answered at a time.
_ANSWERED = 256
#: By what a choice must raise the score, beyond its standard error.
MIN_GAIN = 0.002
# Pairs of row and label for each true one that a sigmoid is fitted to.
_PAIRS = 5
#: Of margins of hinge losses, where nothing could be learned.
SLOPE = 3.0
#: Slope of the margins of a label tree's groups, for one of 1 of the labels: a
#: group tells less of a text than a label (best of 0.1 to 1.7 on held-out
#: titles of libraries).
GROUP_SHARE = 0.4


#: C of the logistic loss, for a squared hinge's of 1: they do as well.
LOGISTIC_C = 20.0


def loss_options(loss: str, c: float) -> dict[str, Any]:
    """`loss` and `c` of `linear_tree.train_linear`.

    Args:
        loss: `"squared_hinge"` or `"logistic"`.
        c: float, weight of the losses of a squared hinge.
    """
    return {"loss": loss, "c": c * LOGISTIC_C if loss == "logistic" else c}


class Trial(NamedTuple):
    """Margins of held-out rows, and which of them are of labels they have.

    Attributes:
        margins: float32 `[rows, labels]`, of some of the labels.
        truth: bool `[rows, labels]`.
        labels: int `[labels]`, which labels.
        share: float, weight of the cosines with the labels' centroids.
        parent_weight: float, weight of the margins of the labels' parents
            (`code_levels`).
        score: float, the higher the better.
        row_scores: float `[judged rows]`, whose mean is the score.
        gates: `Gates` of a label tree, or None.
    """

    margins: np.ndarray
    truth: np.ndarray
    labels: np.ndarray
    share: float
    parent_weight: float
    score: float
    row_scores: np.ndarray
    gates: "Gates | None" = None

    def probabilities(
        self, slope: float, intercept: float, single_label: bool
    ) -> np.ndarray:
        """float32 `[rows, labels]`, as `SparseLinear` computes them.

        Args:
            slope: float, factor of the margins.
            intercept: float, added to them.
            single_label: whether a row has one label.
        """
        scaled = slope * self.margins + intercept
        gates = self.gates and self.gates.log_probabilities(slope)
        if single_label:
            scaled = scaled if gates is None else scaled + gates
            odds = np.exp(scaled - scaled.max(axis=1, keepdims=True))
            return odds / odds.sum(axis=1, keepdims=True)
        found = 1 / (1 + np.exp(-scaled))
        return found if gates is None else found * np.exp(gates)

    def gain(self, other: "Trial") -> float:
        """How much higher the score is than another's, less its error.

        The error is the standard error of the mean difference, on the same
        rows. Choices by less are noise, and do not hold on other texts.
        """
        return clear_gain(self.row_scores, other.row_scores)


class Gates(NamedTuple):
    """The first level of a label tree, for held-out rows.

    Attributes:
        margins: float32 `[rows, groups]`.
        group_of: int32 `[labels]`, the group of each label.
    """

    margins: np.ndarray
    group_of: np.ndarray

    def log_probabilities(self, slope: float) -> np.ndarray:
        """The log probability of each label's group, float32 `[rows, labels]`.

        Args:
            slope: float, of the labels' margins.
        """
        scaled = GROUP_SHARE * slope * self.margins
        return -np.logaddexp(0, -scaled)[:, self.group_of]


def split(
    size: int, share: float, most: int, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """`(training rows, held-out rows)`, int arrays in ascending order."""
    order = np.random.default_rng(seed).permutation(size)
    held = min(int(size * share), most)
    return np.sort(order[held:]), np.sort(order[:held])


def run_trial(
    data: LabeledRows,
    held: SparseRows,
    held_labels: SparseRows,
    single_label: bool,
    c: float,
    num_epochs: int = EPOCHS,
    parents: np.ndarray | None = None,
    some: np.ndarray | None = None,
    loss: str = "squared_hinge",
    among: np.ndarray | None = None,
    num_groups: int = 1,
) -> Trial:
    """Trains on `data`, and answers `held`; a `Trial`.

    Scores of trials can only be compared if they have the same `some`, `held`
    and `held_labels`.

    Args:
        data: `LabeledRows`.
        held: `SparseRows`, held-out rows.
        held_labels: `SparseRows`, their labels.
        single_label: whether a row has one label.
        c: float, weight of the losses, of `loss_options`.
        num_epochs: int.
        parents: int `[levels, num_labels]`, of `code_levels`, or None.
        some: int array of distinct labels that are tried; by default all.
        loss: `"squared_hinge"` or `"logistic"`.
        among: int array, the rows of `data` that are learned from; by default
            all.
        num_groups: int, of the label tree; 1 for none. With a tree all labels
            are tried, and neither centroids nor `parents`.
    """
    if some is None:
        some = np.arange(data.num_labels)
    place = np.full(data.num_labels, -1)
    place[some] = np.arange(len(some))
    tried = data._replace(
        labels=data.labels.renumbered(place), num_labels=len(some)
    )
    options = {
        **loss_options(loss, c), "num_epochs": num_epochs, "threshold": 0.02,
        "among": among,
    }  # fmt: skip
    if num_groups > 1:
        return _try_tree(data, held, held_labels, single_label, num_groups,
                         options)  # fmt: skip
    weights, _ = linear_tree.train_linear(*tried, **options)
    margins = linear_tree.margins(held, weights)
    truth = np.zeros(margins.shape, bool)
    own = held_labels.renumbered(place)
    truth[own.row_ids(), own.ids] = True
    if not single_label:
        found = row_precisions(margins, truth)
        return Trial(margins, truth, some, 0.0, 0.0, _mean(found), found)
    best = _ranked(margins, truth, some, 0.0, 0.0)
    if loss == "squared_hinge":
        learned = tried if among is None else tried.take(among)
        cosines = linear_tree.margins(held, centroids(learned))
        shared = (
            _ranked(margins + share * cosines, truth, some, share, 0.0)
            for share in _SHARES
        )
        best = better(best, max(shared, key=lambda trial: trial.score))
    if parents is None or not len(parents) or len(some) < data.num_labels:
        return best
    weights = train_parents(data, parents, **options)
    added = code_levels.parent_margins(
        linear_tree.margins(held, weights), parents
    )
    lifted = max(
        (
            _ranked(best.margins + x * added, truth, some, best.share, x)
            for x in _PARENT_WEIGHTS
        ),
        key=lambda trial: trial.score,
    )
    return better(best, lifted)


def _try_tree(data, held, held_labels, single_label, num_groups, options):
    """`run_trial` with a label tree."""
    among = options.pop("among")
    learned = data if among is None else data.take(among)
    weights, group_of = linear_tree.train_linear(
        *learned, num_groups, **options
    )
    layer = sparse_linear.from_weights(
        weights, data.num_labels, groups=group_of
    )
    margins = np.concatenate([
        layer.margins(*held.take(part).padded()).numpy()
        for part in np.array_split(
            np.arange(len(held)), len(held) // _ANSWERED + 1
        )
    ])  # fmt: skip
    labels = np.arange(data.num_labels)
    gates = Gates(margins[:, data.num_labels :], group_of)
    margins = margins[:, : data.num_labels]
    truth = np.zeros(margins.shape, bool)
    truth[held_labels.row_ids(), held_labels.ids] = True
    ranked = margins + gates.log_probabilities(SLOPE) / SLOPE
    measure = reciprocal_ranks if single_label else row_precisions
    found = measure(ranked, truth)
    return Trial(margins, truth, labels, 0.0, 0.0, _mean(found), found, gates)


def better(one: Trial, other: Trial) -> Trial:
    """`other` if it is better by `MIN_GAIN` beyond doubt, else `one`."""
    return other if other.gain(one) >= MIN_GAIN else one


def clear_gain(after: np.ndarray, before: np.ndarray) -> float:
    """Mean difference of the scores of rows, less its standard error."""
    difference = after - before
    if len(difference) < 2:
        return 0.0
    error = difference.std(ddof=1) / np.sqrt(len(difference))
    return float(difference.mean() - error)


def _ranked(margins, truth, labels, share, parent_weight):
    found = reciprocal_ranks(margins, truth)
    return Trial(
        margins, truth, labels, share, parent_weight, _mean(found), found
    )


def _mean(scores):
    return float(np.mean(scores)) if len(scores) else 0.0


def train_parents(
    data: LabeledRows, parents: np.ndarray, **options: Any
) -> SparseWeights:
    """Linear classifiers of the labels' parents, a column each.

    Args:
        data: `LabeledRows`.
        parents: int `[levels, num_labels]`, of `code_levels`.
        **options: of `linear_tree.train_linear`.
    """
    upper = data._replace(
        labels=code_levels.parent_labels(data.labels, parents),
        num_labels=code_levels.count(parents),
    )
    return linear_tree.train_linear(*upper, **options)[0]


def reciprocal_ranks(margins: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """1 / rank of the best true label of each row, `[rows]`.

    The label is in the middle of those with the same margin: all margins of a
    text without known terms may be the same.
    """
    rows = truth.any(axis=1)
    best = np.where(truth, margins, -np.inf).max(axis=1, keepdims=True)
    tied = ((margins == best) & ~truth).sum(axis=1)
    ranks = 1 + (margins > best).sum(axis=1) + tied / 2
    return rows / ranks


def row_precisions(scores: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """Average precision of each row that has a label, `[such rows]`.

    Labels with the same score are in the middle of their places.
    """
    rows = np.flatnonzero(truth.any(axis=1))
    return np.array([_precision(scores[i], truth[i]) for i in rows])


def _precision(scores, truth):
    # Sorting is much faster than the order of all.
    ordered, own = np.sort(scores), np.sort(scores[truth])[::-1]
    below = [np.searchsorted(ordered, own, side) for side in ("left", "right")]
    places = len(scores) + 0.5 - np.mean(below, axis=0)
    return np.mean(np.arange(1, len(own) + 1) / places)


def fit_sigmoid(
    margins: np.ndarray, truth: np.ndarray, gates: Gates | None = None
) -> tuple[float, float]:
    """`(slope, intercept)` of the log-likelihood's maximum, one for all.

    Args:
        margins: float `[rows, labels]`.
        truth: bool `[rows, labels]`.
        gates: `Gates` of a label tree, or None.

    References:
        Platt, Probabilistic Outputs for Support Vector Machines, 1999; its
        targets, which no finite number of rows drives to 0 or 1.
    """
    z, hits = margins.ravel(), truth.ravel()
    # Where it matters: the mass of labels far off would bend the line.
    kept = min(len(z), _PAIRS * max(int(np.count_nonzero(hits)), 1))
    ranked = z
    if gates is not None:
        ranked = z + gates.log_probabilities(SLOPE).ravel() / SLOPE
    best = np.argpartition(-ranked, kept - 1)[:kept]
    z, hits = z[best].astype(np.float64), hits[best]
    up, down = np.count_nonzero(hits), np.count_nonzero(~hits)
    if not up or not down:
        return SLOPE, 0.0
    target = np.where(hits, (up + 1) / (up + 2), 1 / (down + 2))
    x = np.stack([z, np.ones(len(z))], axis=1)
    slope, intercept = likelihood.fit_logistic(x, target, [SLOPE, 0.0], 1e-6)
    return max(float(slope), 1e-3), float(intercept)


def tag_thresholds(
    probabilities: np.ndarray,
    truth: np.ndarray,
    labels: np.ndarray,
    num_labels: int,
    default: float,
) -> np.ndarray:
    """Each label's least probability, for the greatest micro-F1 together.

    The thresholds of labels with few rows are near the one that is best for
    all.

    Args:
        probabilities: float32 `[rows, labels]`, held out.
        truth: bool `[rows, labels]`.
        labels: int `[labels]`, which labels.
        num_labels: int, of all.
        default: float, of labels that were not tried.

    Returns:
        float32 `[num_labels]`.
    """
    rows, columns = np.nonzero(probabilities >= _MIN_ANSWER)
    pairs = Pairs(
        columns,
        probabilities[rows, columns].astype(np.float32),
        truth[rows, columns],
        truth.sum(axis=0),
    )
    found = np.full(num_labels, default, np.float32)
    found[labels] = best_thresholds(pairs, "micro")[0]
    return found


def best_threshold(probabilities: np.ndarray, truth: np.ndarray) -> float:
    """The least probability of a tag that makes micro-F1 greatest."""
    total = np.count_nonzero(truth)
    if not total:
        return 0.5
    # No threshold is less, and most probabilities are.
    kept = probabilities >= _MIN_ANSWER
    if not kept.any():
        return _MIN_ANSWER
    flat = probabilities[kept]
    order = np.argsort(-flat, kind="stable")
    hits = np.cumsum(truth[kept][order])
    f1 = 2 * hits / (np.arange(1, len(hits) + 1) + total)
    return float(min(flat[order[np.argmax(f1)]], 0.99))
