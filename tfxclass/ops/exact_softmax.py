"""The softmax over all classes in two passes over the class vectors.

By compiled ops, for CPUs; `rows/exact_blocks.py` has the functions for GPUs.
Logits are not held beyond `kept_bytes`, nor, where an optimizer takes a
`ClassGradient`, the gradient. The number of threads makes no difference.
custom_ops/core/exact_softmax.h has the mathematics and the references.

In all functions:
    queries: float32 [batch, dim].
    kernel: float32 or bfloat16 [classes, dim].
    bias: float32 [classes], or None.
    ids: int64 [batch, p], the targets, -1 for padding, none twice in a row.
    epsilon: float; where it is > 0 rows are divided by their norms, or by its
        root where they are shorter.
    bfloat16_products: bool, whether the factors of products are rounded to
        bfloat16 where `multiplies_bfloat16`. Sums are float32.
"""

import functools
from typing import Any
from typing import NamedTuple

import tensorflow as tf

from tfxclass.ops import library
from tfxclass.ops.library import ops
from tfxclass.types import Scalar

tf.no_gradient("Tfxclass>ExactSoftmax")
tf.no_gradient("Tfxclass>ExactSoftmaxGrad")


@functools.cache
def multiplies_bfloat16() -> bool:
    """Whether the ops multiply bfloat16 numbers where they are asked to.

    They do on processors with AMX, unless Linux refuses this process its use
    (`HasAmx` in custom_ops/core/amx_products.h).
    """
    if library.build()["ops"] != "compiled":
        return False
    with tf.init_scope(), tf.device("CPU"):
        # The logit is 1 if its factor was rounded, and more otherwise.
        given = [[1 + 2**-10]], [[1.0]], None, [[-1]], [[0.0]]
        top, *_ = sums(
            *given, epsilon=0.0, wants_rows=False, bfloat16_products=True
        )
        return float(top[0]) == 1.0


class ClassGradient(NamedTuple):
    """The inputs from which the gradient of a kernel is computed.

    The gradient of a logit is factor * (softmax - uniform), and at the targets
    target_grads - factor * uniform. `factor` and `logsumexp` are float32
    `[batch]`, and `target_grads` `[batch, p]`. `block` is how many classes
    `rows/exact_blocks.py` takes at a time, None for the op, and `kept` what
    `sums` kept.
    """

    queries: Any
    bias: Any
    ids: Any
    target_grads: Any
    logsumexp: Any
    factor: Any
    uniform: float = 0.0
    epsilon: float = 0.0
    bfloat16_products: bool = False
    block: Scalar | None = None
    kept: Any = ()

    @property
    def inputs(self) -> dict[str, Any]:
        """The inputs of the op, by name."""
        given = self._asdict()
        del given["epsilon"], given["block"]
        targets = given.pop("ids")
        return {**given, "bias": _listed(self.bias), "targets": targets}

    def dense(self, kernel: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor | None]:
        """The gradients as tensors: float32 `[classes, dim]`, `[classes]`.

        Without a bias, the latter is None.
        """
        of_kernel, of_bias = ops.tfxclass_exact_softmax_grad(
            kernel=kernel, epsilon=self.epsilon, **self.inputs
        )
        return of_kernel, None if self.bias is None else of_bias


def sums(
    queries: tf.Tensor,
    kernel: tf.Tensor,
    bias: tf.Tensor | None,
    ids: tf.Tensor,
    deltas: tf.Tensor,
    *,
    epsilon: float,
    wants_rows: bool,
    kept_bytes: int = 0,
    bfloat16_products: bool = False,
) -> tuple[tf.Tensor, ...]:
    """One pass over all classes; `deltas` raise the targets' logits.

    Returns `(top, total, rows, *kept)`: float32 and float64 `[batch]`, the
    log-sum-exp is top + log(total); if `wants_rows`, float32 `[batch, dim]`,
    the sum of exp(logit - top) times the (normalised) row of all classes but
    the targets; for a gradient with a product less, 4 bytes for each logit,
    or empty where that is more than `kept_bytes`.
    """
    return ops.tfxclass_exact_softmax(
        queries=queries,
        kernel=kernel,
        bias=_listed(bias),
        targets=ids,
        deltas=deltas,
        epsilon=epsilon,
        wants_rows=wants_rows,
        kept_bytes=kept_bytes,
        bfloat16_products=bfloat16_products,
    )


def _listed(bias):
    return [] if bias is None else [bias]
