"""Training of `KernelScores`: kernel ridge regression of labels."""

import numpy as np
import tensorflow as tf

from tfxclass.checks import check_positive_int
from tfxclass_text import linear_tree
from tfxclass_text import near_texts
from tfxclass_text.kernel_scores import KernelScores
from tfxclass_text.sparse_rows import LabeledRows

#: Best of 0.2 to 1.6 for precision at 1, 3 and 5 of texts held out (Delicious,
#: Bibtex); and shares to choose from.
PENALTY = 0.8
SHARES = (0.2, 0.4, 0.6, 0.8)
# All of so many texts are landmarks; of more, some of them.
_MAX_TEXTS, _LANDMARKS = 14_000, 3_000
# Texts times landmarks squared: 10 CPU seconds.
_MAX_PRODUCTS = 2e11
# An answer reads all weights: 8 MiB in 0.5 ms.
_MAX_WEIGHTS = 1 << 21
# Of texts by labels, in memory while it is trained.
_MAX_TRUTH = 1 << 26
_BATCH = 4096
# Of the kernel's diagonal: two texts may be alike.
_JITTER = 1e-3


def num_landmarks(num_texts: int, num_labels: int) -> int:
    """How many texts are landmarks, 0 where they would take too long.

    Args:
        num_texts: int, texts to learn from.
        num_labels: int.
    """
    if num_texts * num_labels > _MAX_TRUTH:
        return 0
    if num_texts <= _MAX_TEXTS:
        return num_texts
    is_cheap = num_texts * _LANDMARKS**2 <= _MAX_PRODUCTS
    return _LANDMARKS if is_cheap else 0


def build_kernel_scores(
    data: LabeledRows,
    count: int,
    penalty: float = PENALTY,
    share: float = 0.5,
    single_label: bool = False,
    seed: int = 0,
    name: str | None = None,
) -> KernelScores:
    """A trained `KernelScores`.

    Minimises, for each label, the squared error on the texts and `penalty`
    times the squared norm of the function: exact where all texts are landmarks.

    Args:
        data: `LabeledRows`, of the texts.
        count: int, landmarks, drawn from the texts.
        penalty: float > 0.
        share: float, of the scores in the output.
        single_label: whether a text has one label.
        seed: int.
        name: of the layer.

    References:
        Williams and Seeger, Using the Nystrom Method to Speed Up Kernel
        Machines, NIPS 2000. Rudi, Camoriano and Rosasco, Less is More: Nystrom
        Computational Regularization, NIPS 2015, equation 8.
    """
    rows, labels, num_features, num_labels = data
    count = min(check_positive_int("count", count), len(rows))
    rows = near_texts.unit_rows(rows, None)
    drawn = np.random.default_rng(seed).permutation(len(rows))[:count]
    drawn.sort()
    weights = near_texts.directions(rows.take(drawn), num_features, None)
    truth = np.zeros((len(rows), num_labels), np.float32)
    truth[labels.row_ids(), labels.ids] = 1
    means = truth.mean(axis=0)
    truth -= means
    kernel = _kernel(rows, weights)
    solve = _exact if count == len(rows) else _of_landmarks
    solution, fitted = solve(kernel, drawn, truth, penalty)
    rank, basis = 0, None
    if solution.size > _MAX_WEIGHTS:
        rank = _MAX_WEIGHTS // sum(solution.shape)
        basis = _basis(fitted, rank, seed)
        solution = solution @ basis.T
    similarity = near_texts.cosines_with(weights)
    layer = KernelScores(
        similarity, num_labels, share, rank, single_label, name=name
    )
    layer.kernel.assign(solution)
    layer.means.assign(means)
    if rank:
        layer.basis.assign(basis)
    return layer


def _kernel(rows, weights):
    """float32 `[rows, landmarks]`, as `scores_of_cosines` computes it."""
    found = linear_tree.margins(rows, weights)
    np.exp(found, out=found)
    found -= 1
    found /= np.expm1(np.float32(1))
    return found


def _exact(kernel, drawn, truth, penalty):
    """`(weights, scores of the texts)`."""
    del drawn
    diagonal = kernel.diagonal() + np.float32(_JITTER + penalty)
    factor = tf.linalg.cholesky(
        tf.linalg.set_diag(tf.constant(kernel), diagonal)
    )
    weights = tf.linalg.cholesky_solve(factor, tf.constant(truth)).numpy()
    return weights, truth - np.float32(penalty) * weights


def _of_landmarks(kernel, drawn, truth, penalty):
    """`(weights, scores of the texts)`."""
    own = kernel[drawn].astype(float)
    own[np.diag_indices(len(own))] += _JITTER
    squares = penalty * own
    for begin in range(0, len(kernel), _BATCH):
        part = kernel[begin : begin + _BATCH].astype(float)
        squares += part.T @ part
    weights = np.linalg.solve(squares, kernel.T @ truth).astype(np.float32)
    return weights, kernel @ weights


def _basis(scores, rank, seed):
    """Rows that span nearly all of the scores, float32 `[rank, labels]`.

    Halko, Martinsson and Tropp, Finding Structure with Randomness, 2011, 4.4.
    """
    random = np.random.default_rng(seed)
    found = random.standard_normal((scores.shape[1], rank), np.float32)
    for _ in range(2):
        found = np.linalg.qr(scores.T @ (scores @ found))[0]
    return found.T
