"""Heads with a class matrix for each block of classes."""

from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from tfxclass.layers.class_set import ClassWeight
from tfxclass.layers.class_set import offset_specs
from tfxclass.layers.head_weights import WeightSpec
from tfxclass.layers.output_head import OutputHead
from tfxclass.rows.class_matrix import ClassRows
from tfxclass.rows.class_matrix import in_blocks


class BlockHead(OutputHead):
    """Base class of heads whose classes lie in blocks, each with a matrix.

    Class vectors of different blocks may have different widths. A subclass
    calls `kernel_specs` in `weight_specs`, and defines `part_queries`.

    Args:
        **kwargs: arguments of `OutputHead`.
    """

    def kernel_specs(
        self, sizes: Sequence[int], widths: Sequence[int]
    ) -> list[WeightSpec]:
        """Specifies matrices `[sizes[i], widths[i]]`.

        If classes were removed, it also specifies the offsets of their logits.
        """
        kernels = [
            WeightSpec(
                f"kernel_{i}",
                shape,
                self.kernel_initializer,
                self.kernel_dtype,
                bias=f"offsets_{i}",
            )
            for i, shape in enumerate(zip(sizes, widths, strict=True))
        ]
        names = [f"offsets_{i}" for i in range(len(kernels))]
        return kernels + offset_specs(self.removed, sizes, names)

    def take_weights(self, weights_by_name: dict[str, keras.Variable]) -> None:
        """Sets `kernels`, a list, and `offsets`, as many or None."""

        def named(prefix):
            return [
                v for k, v in weights_by_name.items() if k.startswith(prefix)
            ]

        self.kernels = named("kernel_")
        self.offsets = named("offsets_") or None

    def class_rows(self) -> list[ClassRows]:
        return self.rows_of(self.kernels, self.offsets)

    def rows_of(
        self, kernels: Sequence[Any], offsets: Sequence[tf.Tensor] | None
    ) -> list[ClassRows]:
        """`ClassRows` of matrices whose classes are numbered through."""
        return in_blocks(kernels, offsets, self.compute_dtype == "bfloat16")

    def class_weights(self) -> list[ClassWeight]:
        found = []
        for i, rows in enumerate(self.class_rows()):
            found.append(
                ClassWeight(f"kernel_{i}", rows.first, rows.num_classes, i)
            )
            if self.offsets is not None:
                found.append(ClassWeight(f"offsets_{i}", *found[-1][1:3]))
        return found
