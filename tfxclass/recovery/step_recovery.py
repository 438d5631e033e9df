"""Recovery by one preconditioned gradient step of a searched length."""

import itertools
import warnings
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf

from tfxclass.checks import check_positive_int
from tfxclass.recovery.back_projection import back_projected_blocks
from tfxclass.recovery.held_out_rows import HeldOutRows
from tfxclass.recovery.line_search import Direction
from tfxclass.recovery.line_search import Step
from tfxclass.recovery.line_search import losses_of
from tfxclass.recovery.recovery_sums import RecoverySums
from tfxclass.recovery.rows import Rows

# Rows that the search is made on, and the rows of its first part: that many,
# fewer where there are more classes.
_HELD_OUT, _COARSE = range(1024, 4096), range(128, 1024)
_LOGITS, _COARSE_LOGITS = 2**30, 2**27
# In mean eigenvalues of S, and in 1 / num_classes.
_RIDGES = (1e-2, 1e-1, 1.0)
_SHARES = (1.0, 10.0, 100.0)
_KEEPS = (1.0, 0.5, 0.25, 0.1, 0.0)
_LENGTHS = 10.0 ** np.arange(-2.0, 4.5, 0.5)
_FINER = 10.0 ** (np.arange(-3, 4) / 12)


class Report(NamedTuple):
    """The result of a search.

    Attributes:
        eta, mu, q, keep: floats, of the step (`Step`).
        smoothness: float, L of the mean loss.
        loss: float, mean cross-entropy of the rows that were held out, after
            the step.
        lifted_loss: float, before it.
        num_rows: int, of these rows.
    """

    eta: float
    mu: float
    q: float
    keep: float
    smoothness: float
    loss: float
    lifted_loss: float
    num_rows: int

    def __str__(self):
        return (
            f"step: eta {self.eta:.3g}, mu {self.mu:.3g}, q {self.q:.3g}, kept "
            f"{self.keep:.3g}, L {self.smoothness:.3g}; loss of "
            f"{self.num_rows:,} rows held out {self.lifted_loss:.4g} before, "
            f"{self.loss:.4g} after"
        )


def rows_held_out(num_classes: int) -> int:
    """How many examples are held out for the search, 1,024 to 4,096."""
    return _within(_HELD_OUT, _LOGITS // num_classes)


def _within(bounds, number):
    return min(max(number, bounds.start), bounds.stop)


class StepRecovery(RecoverySums):
    """Collects the sums for one step from the lifted to the full matrix.

    Use `recover(method="step")`, which does it for a whole data set. The result
    is

        W = keep V R^T + eta diag(1 / (p + q)) G (S + mu I)^-1
        G = (Y - P)^T X / n,  S = X^T X / n,  p = class frequencies

    V are the short class vectors, R is the projection, X are the features, Y
    the labels and P the probabilities of the projected model. The gradient of
    the mean loss at the lifted matrix is -G. The lifted matrix has the
    logits of the projected model. The two
    other factors approximate the inverse of its second derivative, as in
    natural gradient methods: the derivative for class c is about `p_c S`. It
    does not need an optimum of the projected model, or `l2`.

    eta, mu, q and keep are chosen by the loss on held-out examples: a uniform
    sample of a tenth of all examples, at most 4,096 (`rows_held_out`). They are
    not part of the sums. With eta = 0 and keep = 1 the result is the lifted
    matrix, so the step is never worse on these examples. Only if the projected
    model is overconfident is keep less than 1. Then it alone lowers the loss.

    The search costs the logits of at most 277,504 examples (a sixth for a
    million classes), whatever the size of the data, and memory for a few blocks
    of them.

    Args:
        head: a built `ProjectedSoftmax` or `AdaptiveProjectedSoftmax`.
        num_sampled: as in `RecoverySums`.
        held_out: int, largest number of held-out examples. None is
            `rows_held_out(num_classes)`.
        seed: int, for the choice of held-out examples and sampled classes.

    Attributes:
        report: `Report` of the last `result`, or None.

    Other attributes are described in `RecoverySums`.

    References:
        The dual of Yuan et al. (ECCV 2020) with a searched step length.
        Martens & Grosse, Optimizing Neural Networks with Kronecker-factored
        Approximate Curvature, ICML 2015 (the factors).
    """

    def __init__(
        self,
        head: keras.layers.Layer,
        num_sampled: int | None = None,
        held_out: int | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__(head, num_sampled, seed)
        if held_out is None:
            held_out = rows_held_out(head.num_classes)
        held_out = check_positive_int("held_out", held_out)
        self.held_out = HeldOutRows(held_out, seed)
        self.report = None

    def _take(self, rows: Rows) -> None:
        keys = self.held_out.keys(len(rows.weights))
        kept = self.held_out.is_kept(keys)
        self._sum(rows.at(~kept))
        self.held_out.keep(rows.at(kept), keys[kept])
        if len(self.held_out) > 2 * self.held_out.most:
            self._settle()

    def _settle(self):
        """Adds the examples that were held out for a while to the sums."""
        surplus = self.held_out.surplus()
        if surplus is not None:
            self._sum(surplus)

    def result(self) -> np.ndarray:
        """The class matrix, float32 `[num_classes, dim]`; sets `report`.

        Without labeled held-out examples, it is the lifted matrix.

        Raises:
            ValueError: if there were no examples.
        """
        self._settle()
        self._check_rows()
        step, inverse = self._search()
        kernel = np.empty(self.kernel.shape, np.float32)
        for at, rows in back_projected_blocks(self.head):
            kernel[at] = rows * np.float32(step.keep)
            if step.eta:
                kernel[at] += tf.matmul(self._moves(step, at), inverse).numpy()
        return kernel

    def _moves(self, step, at):
        """The change of the classes `at`, before the inverse is applied."""
        factor = step.eta / self.total_weight / (self._frequencies[at] + step.q)
        return self.kernel[at] * factor.astype(np.float32)[:, np.newaxis]

    @property
    def _frequencies(self):
        return self.counts / self.total_weight

    def _search(self):
        """The `Step`, and the inverse of `S + mu I` for it."""
        rows = self._labelled()
        if rows is None:
            self._tell(Step(0.0, 0.0, 0.0), np.nan, np.nan, 0)
            return Step(0.0, 0.0, 0.0), None
        self._warn_of_lone(rows)
        inverses = self._inverses()
        shares = [share / self.head.num_classes for share in _SHARES]
        count = _within(_COARSE, _COARSE_LOGITS // self.head.num_classes)
        some = np.linspace(0, len(rows.weights) - 1, count).astype(int)
        some = rows.at(np.unique(some))
        kept = [Step(0.0, min(inverses), shares[0], keep) for keep in _KEEPS]
        keep = self._best(some, kept, inverses).keep
        keeps = dict.fromkeys((1.0, keep))
        grid = itertools.product(_LENGTHS, inverses, shares, keeps)
        best = self._best(some, [Step(*one) for one in grid], inverses)
        lifted = best._replace(eta=0.0, keep=1.0)
        finer = [best._replace(eta=best.eta * factor) for factor in _FINER]
        found = self._losses(rows, [lifted, *finer], inverses)
        step = [lifted, *finer][int(np.argmin(found))]
        self._tell(step, found.min(), found[0], len(rows.weights))
        return step, inverses[step.mu]

    def _best(self, rows, steps, inverses):
        return steps[int(np.argmin(self._losses(rows, steps, inverses)))]

    def _warn_of_lone(self, rows):
        """Warns if most held-out examples are alone in their class."""
        ids = rows.targets.ids.numpy()
        seen = (ids >= 0) & (self.counts[ids] > 0)
        lone = len(ids) - np.count_nonzero(seen.any(axis=1))
        if 2 * lone > len(ids):
            warnings.warn(
                f"{lone} of the {len(ids)} held-out examples are the only "
                "ones of their class. A step cannot help them, so it will be "
                "too short. Give two or more examples for each class.",
                stacklevel=2,
            )

    def _inverses(self):
        """Inverses of `S + mu I`, a dict by mu."""
        moments = self.moments / self.total_weight
        identity = np.eye(len(moments))
        mean = float(np.trace(moments)) / len(moments)
        # Features that are all zero leave nothing to divide by.
        ridges = [ridge * mean for ridge in _RIDGES] if mean > 0 else [1.0]
        return {
            mu: np.linalg.inv(moments + mu * identity).astype(np.float32)
            for mu in ridges
        }

    def _labelled(self):
        """Rows held out that have a label and a weight, or None."""
        rows = self.held_out.rows()
        if rows is None:
            return None
        counts = rows.weights * rows.targets.is_labelled > 0
        return rows.at(counts.numpy()) if np.any(counts) else None

    def _losses(self, rows, steps, inverses):
        queries = {
            mu: tf.matmul(rows.features, inverses[mu]).numpy()
            for mu in {step.mu for step in steps}
        }
        direction = Direction(
            self.kernel, 1 / self.total_weight, self._frequencies, queries
        )
        return losses_of(self.head, rows, direction, steps)

    def _tell(self, step, loss, lifted_loss, num_rows):
        self.report = Report(
            *step,
            self.smoothness(),
            float(loss),
            float(lifted_loss),
            num_rows,
        )
