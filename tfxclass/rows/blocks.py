"""Logits of all classes, block by block: [batch, num_classes] is never held."""

from collections.abc import Callable
from typing import Any
from typing import NamedTuple

import tensorflow as tf

from tfxclass.core.softmax import empty_stats
from tfxclass.core.softmax import logsumexp_of
from tfxclass.ops import bfloat16_rows
from tfxclass.ops import library
from tfxclass.ops import norms
from tfxclass.ops import placement
from tfxclass.ops.stored_rows import StoredRows
from tfxclass.rows.class_matrix import ClassRows
from tfxclass.types import Scalar

# Logits or copied numbers of a block: 8 MiB, about a last-level cache.
BLOCK_LOGITS = 1 << 21
# On a GPU it is this many times as large, as each launches a dozen kernels.
GPU_BLOCKS = 32
# Classes of a block at least.
LEAST_BLOCK = 1024


def block_size(batch: Scalar, on_gpu: bool = False, dim: int = 1) -> Scalar:
    """Classes of a block, int or int32 scalar; `dim` is a `copied_width`."""
    numbers = BLOCK_LOGITS * (GPU_BLOCKS if on_gpu else 1)
    if isinstance(batch, int):
        return max(numbers // max(batch, dim), LEAST_BLOCK)
    return tf.maximum(numbers // tf.maximum(batch, dim), LEAST_BLOCK)


def copied_width(rows: ClassRows) -> int:
    """The width of rows of which a block is a copy; 1 of others."""
    if isinstance(rows.kernel, StoredRows):
        return 1
    is_copied = rows.normalize or bfloat16_rows.is_half(rows.kernel)
    return rows.kernel.shape[1] if is_copied else 1


class Blocks:
    """Products of queries with class rows, a block of classes at a time.

    Args:
        queries: float32 `[batch, dim]`, at most `max_queries` of them, where
            `batch` is not known before a step.
        rows: `ClassRows` of tensors without padding.
        size: int or int32 scalar tensor, classes of a block; the last may have
            fewer. By default it goes by the batch.
    """

    def __init__(
        self,
        queries: tf.Tensor,
        rows: ClassRows,
        max_queries: int | None = None,
        size: Scalar | None = None,
    ) -> None:
        self.queries, self.class_rows = queries, rows
        self.batch = tf.shape(queries)[0]
        self.num_classes = rows.kernel.shape[0] or tf.shape(rows.kernel)[0]
        if size is None:
            known = (max_queries, queries.shape[0], self.batch)
            most = next(x for x in known if x is not None)
            on_gpu = placement.on_gpu(rows.device)
            size = block_size(most, on_gpu, copied_width(rows))
        self.size = size

    def read(self, start: Scalar) -> tuple[tf.Tensor, tf.Tensor]:
        """Rows as stored and as multiplied, float32 `[size, dim]`."""
        stored = self.class_rows.kernel[start : start + self.size]
        stored = bfloat16_rows.widen(stored)
        if not self.class_rows.normalize:
            return stored, stored
        return stored, norms.normalize(stored)

    def logits(self, start: Scalar, rows: tf.Tensor | None = None) -> tf.Tensor:
        """float32 `[batch, size]`; `rows` are the block's rows, if known."""
        rows = self.read(start)[1] if rows is None else rows
        logits = tf.matmul(self.queries, rows, transpose_b=True)
        if self.class_rows.bias is None:
            return logits
        return logits + self.class_rows.bias[start : start + self.size]

    def all_logits(self) -> tf.Tensor:
        """float32 `[batch, num_classes]`, where that is what is wanted."""

        def step(start, columns):
            logits = tf.transpose(self.logits(start))
            return [columns.write(columns.size(), logits)]

        columns = tf.TensorArray(tf.float32, 0, True, infer_shape=False)
        (columns,) = self.fold(step, (columns,))
        return tf.transpose(columns.concat())

    def sum_of_rows(self) -> tuple[tf.Tensor, tf.Tensor]:
        """Sums of all rows, `[dim]`, and of their biases, `[]`; float32."""
        dim = tf.shape(self.queries)[1]
        (kernel,) = self.fold(
            lambda at, total: [total + tf.reduce_sum(self.read(at)[1], 0)],
            (tf.zeros([dim]),),
        )
        bias = self.class_rows.bias
        return kernel, tf.zeros([]) if bias is None else tf.reduce_sum(bias)

    def fold(
        self, step: Callable[..., Any], state: tuple[tf.Tensor, ...]
    ) -> tuple[tf.Tensor, ...]:
        """state = step(start, *state) for each block; `start` is int32."""
        return fold(step, state, self.num_classes, self.size)


def fold(
    step: Callable[..., Any],
    state: tuple[Any, ...],
    num_classes: Scalar,
    size: Scalar,
    parallel_iterations: int = 2,
) -> tuple[Any, ...]:
    """`Blocks.fold`; by default the next product is computed meanwhile."""
    # Of int64, which is not in the host's memory, a loop waits for the GPU.
    start = tf.zeros([], tf.int32)
    are_known = isinstance(num_classes, int) and isinstance(size, int)
    if are_known and num_classes <= size:
        return tuple(step(start, *state))
    return tf.while_loop(
        lambda start, *_: start < num_classes,
        lambda start, *state: (start + size, *step(start, *state)),
        (start, *state),
        parallel_iterations=parallel_iterations,
    )[1:]


def logits_at(
    queries: tf.Tensor, rows: ClassRows, columns: tf.Tensor
) -> tf.Tensor:
    """Logits `[batch, p]` of the rows `columns`, of row 0 for padding."""
    safe = tf.maximum(columns, 0)
    taken = bfloat16_rows.take(rows.kernel, safe)
    taken = norms.normalize(taken) if rows.normalize else taken
    logits = tf.einsum("bd,bpd->bp", queries, taken)
    return logits if rows.bias is None else logits + tf.gather(rows.bias, safe)


class Effective(NamedTuple):
    """What `effective_classes` returns of each row.

    Attributes:
        k_eff: float32, (sum p)^2 / sum p^2 over the classes that are no labels.
        missed: float32, 1 - p_y.
        counts: bool, whether the row has labels and other classes; where not,
            the others are 1 and 0.
        best: int64 `[n, num_best]`, the classes of the greatest logits, labels
            among them, best first; -1 where there are no more.
    """

    k_eff: Any
    missed: Any
    counts: Any
    best: Any


def effective_classes(
    queries: tf.Tensor,
    target_ids: tf.Tensor,
    rows: ClassRows,
    num_best: Scalar = 1,
    max_queries: int | None = None,
) -> Effective:
    """The exact effective number of the negatives' classes, in one pass.

    `target_ids` are int64 `[n, p]`, -1 is padding, and `num_best` is at most
    the number of classes.
    """
    blocks = Blocks(queries, rows, max_queries)
    batch = blocks.batch
    ops = library.ops
    # What is added to the labels' logits leaves them out.
    out = tf.fill(tf.shape(target_ids), float("-inf"))
    no_delta = tf.zeros_like(out)

    def step(start, mass, squares, everything, best):
        logits = blocks.logits(start)

        def folded(logits, delta, stats):
            stats = ops.tfxclass_softmax_block_stats(
                logits, target_ids, delta, start, *stats
            )
            return tuple(stats)

        return (
            folded(logits, out, mass),
            folded(2.0 * logits, out, squares),
            folded(logits, no_delta, everything),
            tuple(ops.tfxclass_top_k_block(logits, start, *best)),
        )

    none = (
        tf.fill([batch, num_best], float("-inf")),
        tf.fill([batch, num_best], tf.constant(-1, tf.int64)),
    )
    *stats, best = blocks.fold(step, (*[tuple(empty_stats(batch))] * 3, none))
    mass, squares, everything = (logsumexp_of(*each) for each in stats)
    k_eff = tf.cast(tf.exp(2.0 * mass - squares), tf.float32)
    missed = tf.cast(tf.exp(mass - everything), tf.float32)
    counts = tf.reduce_any(target_ids >= 0, axis=1)
    counts &= tf.math.is_finite(mass) & tf.math.is_finite(k_eff)
    k_eff, missed = tf.where(counts, k_eff, 1.0), tf.where(counts, missed, 0.0)
    return Effective(k_eff, missed, counts, best[1])
