"""Passes over the data that fill the sums of a recovery."""

import os

import keras
import numpy as np

from tfxclass import progress
from tfxclass.data.batches import Batches
from tfxclass.layers.adaptive_projected_softmax import AdaptiveProjectedSoftmax
from tfxclass.layers.full_softmax import FullSoftmax
from tfxclass.layers.projected_softmax import ProjectedSoftmax
from tfxclass.ops import placement
from tfxclass.paths import local_path
from tfxclass.recovery.back_projection import full_dim
from tfxclass.recovery.back_projection import row_blocks
from tfxclass.recovery.feature_moments import block_ends
from tfxclass.recovery.recovery_sums import RecoverySums
from tfxclass.recovery.step_recovery import StepRecovery
from tfxclass.recovery.step_recovery import rows_held_out
from tfxclass.rows import blocks
from tfxclass.types import Path

_SUFFIX = "_recovered"
# Class matrices in full width: the sums, the result and the new head's, two at
# a time, and a copy of the last one while it is written (measured).
_MATRICES = 3


class Passes:
    """Runs an encoder over batches, and keeps files of the sums.

    Args:
        encoder: a model whose outputs are the features.
        batches: `Batches`.
        checkpoint: path or None, as in `recover`.
        interval: int, batches between files.
        verbose: 1 or 0, as in `recover`.
    """

    def __init__(
        self,
        encoder: keras.Model,
        batches: Batches,
        checkpoint: Path | None,
        interval: int,
        verbose: int,
    ) -> None:
        self.encoder = encoder
        self.batches = batches
        self.checkpoint = None
        if checkpoint is not None:
            self.checkpoint = local_path(checkpoint, "checkpoint")
        self.interval = interval
        self.verbose = verbose

    def steps(
        self,
        head: keras.layers.Layer,
        count: int,
        l2: float,
        reduction: str,
        **options: int | None,
    ) -> FullSoftmax:
        """The head after `count` steps, each with its own pass.

        `options` are `StepRecovery`'s.

        Raises:
            ValueError: a file of a run with more steps.
        """
        origin = head
        done, head = self._resumed(head, count)
        for number in range(done, count):
            sums = StepRecovery(head, number=number, **options)
            sums.origin = origin
            self.run(sums)
            if l2 and not isinstance(head, FullSoftmax):
                self.tell_stationarity(sums, l2, reduction)
            with progress.log_if_slow("Solving for the class rows"):
                kernel = sums.result()
            self._tell(str(sums.report))
            del sums  # as large as the class matrix
            head = full_head(head, kernel)
            if number + 1 < count and self.checkpoint is not None:
                # What the next step begins at is nowhere else.
                following = StepRecovery(head, number=number + 1, **options)
                following.origin = origin
                following.save(self.checkpoint)
        self.end()
        return head

    def _resumed(self, head, count):
        """Steps that a file has behind it, and the head after them."""
        if not self._has_file():
            return 0, head
        with np.load(self.checkpoint) as stored:
            number = int(stored["number"]) if "number" in stored else 0
            if number >= count:
                raise ValueError(
                    "`checkpoint` is of a run with more steps. Received: "
                    f"{self.checkpoint}, in step {number + 1}, with "
                    f"steps={count}."
                )
            start = stored["start"] if number else None
        return number, full_head(head, start) if number else head

    def run(self, sums: RecoverySums) -> None:
        """Adds all batches that a file does not have."""
        if self._has_file():
            sums.load(self.checkpoint)
            self._check_batches(sums)
        done = sums.num_batches
        bar = keras.utils.Progbar(self.batches.count, verbose=self.verbose)
        for number, batch in enumerate(self.batches.after(done), done + 1):
            x, y, weight = keras.utils.unpack_x_y_sample_weight(batch)
            sums.add(self.encoder(x, training=False), y, weight)
            if self.checkpoint is not None and number % self.interval == 0:
                sums.save(self.checkpoint)
            bar.update(number)

    def _check_batches(self, sums):
        first = next(iter(self.batches.after(0)), None)
        if first is not None:
            _, labels, _ = keras.utils.unpack_x_y_sample_weight(first)
            sums.check_first_batch(self.checkpoint, len(labels))

    def end(self) -> None:
        """Removes the file: all is done."""
        if self._has_file():
            os.remove(self.checkpoint)

    def _has_file(self):
        return self.checkpoint is not None and os.path.exists(self.checkpoint)

    def tell_stationarity(
        self, sums: RecoverySums, l2: float, reduction: str
    ) -> None:
        """Prints it, if verbose; l2 > 0."""
        error = sums.stationarity_error(l2, reduction) if self.verbose else 0
        self._tell(f"stationarity error: {error:.3g} (0 at the optimum)")

    def _tell(self, line):
        if self.verbose:
            print(line)


def full_head(head: keras.layers.Layer, kernel: np.ndarray) -> FullSoftmax:
    """A built `FullSoftmax` with `kernel` and the bias of `head`, if any."""
    bias = getattr(head, "bias", None)
    full = FullSoftmax(
        head.num_classes,
        use_bias=bias is not None,
        activation=head.activation,
        # Others hold two more matrices for a moment.
        kernel_initializer="zeros",
        seed=head.seed,
        name=head.name.removesuffix(_SUFFIX) + _SUFFIX,
        class_names=head.class_names,
        removed=head.removed,
    )
    full.build((None, full_dim(head)))
    # At once, it would be copied twice.
    for at in row_blocks(*kernel.shape):
        full.kernel.value[at].assign(kernel[at])
    if bias is not None:
        full.bias.assign(bias)
    return full


def pass_bytes(head: keras.layers.Layer, dim: int, batch: int) -> int:
    """The most memory that recovery by a step adds to the model, int.

    Args:
        head: any head; 0 where `recover` takes none of its kind.
        dim: int, width of the features.
        batch: int, rows of a batch.
    """
    heads = (ProjectedSoftmax, AdaptiveProjectedSoftmax, FullSoftmax)
    if not isinstance(head, heads):
        return 0
    if getattr(head, "similarity", "dot") != "dot":
        return 0
    ends = block_ends(dim)
    squares = sum((b - a) ** 2 for a, b in zip([0, *ends[:-1]], ends))
    # Sums in float64; inverses for three ridges, and one in the making.
    moments = (8 + 3 * 4 + 3 * 8) * squares
    held_out = 2 * 4 * rows_held_out(head.num_classes) * dim
    return (
        _MATRICES * 4 * head.num_classes * dim
        + moments
        + held_out
        + _block_bytes(head.num_classes, dim, batch)
    )


def _block_bytes(num_classes, dim, batch):
    """Rows of a block of classes, their sum's copy, and logits."""
    classes = blocks.classes_of(batch, placement.on_gpu(None))
    return 4 * min(classes, num_classes) * (2 * dim + 3 * batch)
