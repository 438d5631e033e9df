"""The paper's recovery: the full class matrix by its dual."""

import warnings

import numpy as np

from tfxclass.recovery.recovery_sums import RecoverySums


class DualRecovery(RecoverySums):
    """The sums from which the full class matrix follows by its dual.

    The best class matrix of `mean loss + l2 / 2 |W|^2` has a gradient of zero:
    `l2 W = (Y - P)^T X / n`, with features X `[n, dim]`, labels Y and
    probabilities P `[n, num_classes]`, the dual variables. P is taken from the
    slim model; the paper prints the factor both as 1 / (n l2) and as 1 / l2.
    Rows with weights w count w times, and n is the sum of the weights.

    The slim model has the logits of the lifted matrix `V R^T`, so the dual is
    one gradient step of length 1 / l2 from there:

        (Y - P)^T X / (n l2) = V R^T - grad(V R^T) / l2

    It improves the objective for sure only below 2 / (L + l2), L as in
    `smoothness`. A longer step recovers the optimum where the features have a
    low rank against the projected width (the paper's Theorem 1), and
    overshoots elsewhere. `StepRecovery` searches the length instead.

    Arguments and attributes are those of `RecoverySums`.

    References:
        Yuan et al., Accelerating Deep Learning with Millions of Classes, ECCV
        2020, dual recovery.
    """

    method = "dual"

    def result(self, l2: float, reduction: str = "mean") -> np.ndarray:
        """The class matrix, float32 `[num_classes, dim]`.

        Warns where the step of 1 / l2 is longer than 2 / L.

        Args:
            l2: float > 0, weight of `|W|^2 / 2` in what was minimised.
            reduction: `"mean"` where the losses were averaged, or `"sum"`.

        Raises:
            ValueError: `l2` is not positive, or there were no rows.
        """
        factor = self._dual_factor(l2, reduction)
        # Of the mean of losses, whatever the reduction is.
        step, smoothness = factor * self.total_weight, self.smoothness()
        # Of features that are all zero any step is as good.
        longest = 2 / smoothness if smoothness else float("inf")
        if step > longest:
            warnings.warn(
                f"The dual is a gradient step of 1/l2 = {step:.3g} from the "
                f"lifted matrix; steps above 2/L = {longest:.3g} may overshoot "
                "(L: smoothness of the mean loss). It may be worse than the "
                'slim model. Fix: method="step" looks for the step.',
                stacklevel=2,
            )
        return self.kernel * factor
