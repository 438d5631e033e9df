"""The paper's recovery: the full class matrix by its dual."""

import warnings

import numpy as np

from tfxclass.recovery.recovery_sums import RecoverySums


class DualRecovery(RecoverySums):
    """Collects the sums for dual recovery, the method of the paper.

    Use `recover(method="dual")`, which does it for a whole data set. The best
    class matrix for `mean loss + l2 / 2 |W|^2` has a gradient of zero:

        l2 W = (Y - P)^T X / n

    with features X `[n, dim]`, labels Y and probabilities P `[n, num_classes]`,
    the dual variables. P is taken from the projected model. (The paper prints
    the factor both as 1 / (n l2) and as 1 / l2.) Examples with weight w count w
    times, and n is the sum of the weights.

    The projected model has the logits of the lifted matrix `V R^T`. So the dual
    is one gradient step of length 1 / l2 from there:

        (Y - P)^T X / (n l2) = V R^T - grad(V R^T) / l2

    The step is sure to improve the objective only below 2 / (L + l2), with L as
    in `smoothness`. A longer step recovers the optimum if the rank of the
    features is low relative to the projected width (Theorem 1). Otherwise it
    overshoots. `StepRecovery` searches for the length instead.

    The arguments and attributes are described in `RecoverySums`.

    References:
        Yuan et al., Accelerating Deep Learning with Millions of Classes, ECCV
        2020, dual recovery.
    """

    def result(self, l2: float) -> np.ndarray:
        """The class matrix, float32 `[num_classes, dim]`.

        It warns if the step of 1 / l2 is longer than 2 / L.

        Args:
            l2: float > 0, weight of `|W|^2 / 2` in the mean loss.

        Raises:
            ValueError: if `l2` is not positive, or there were no examples.
        """
        factor = self._dual_factor(l2)
        step, smoothness = 1 / l2, self.smoothness()
        # If all features are zero, any step is as good.
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
