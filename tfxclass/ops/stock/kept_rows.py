"""Rows of variables, read in what they are computed in and written as kept.

See `tfxclass.ops.row_update.RowStorage`. 16-bit rows are computed in float32
and rounded once; a bfloat16 matrix with float32 slots is rounded by chance.
"""

import tensorflow as tf

from tfxclass import keras_internals
from tfxclass.ops.stock.twin import InvalidInput
from tfxclass.ops.stock.twin import wrapped

# Of splitmix64 (Steele et al., 2014).
_GOLDEN = wrapped(0x9E3779B97F4A7C15)
_MIXES = (
    (30, wrapped(0xBF58476D1CE4E5B9)),
    (27, wrapped(0x94D049BB133111EB)),
)


def round_by_chance(values: tf.Tensor, bits: tf.Tensor) -> tf.Tensor:
    """float32 `values` as bfloat16 ones that are equal on average.

    Args:
        bits: int32, uniform in [0, 2^16).
    """
    wide = tf.bitcast(values, tf.int32)
    finite = tf.math.is_finite(values)
    rounded = tf.where(finite, wide + bits, wide)
    rounded = tf.bitwise.bitwise_and(rounded, -65536)  # the upper half
    rounded = tf.cast(tf.bitcast(rounded, tf.float32), tf.bfloat16)
    # Not NaN whose bits are all in the lower half.
    return tf.where(finite, rounded, tf.cast(values, tf.bfloat16))


def _chance_bits(seed, step, ids, shape):
    """Two int32 tensors of `shape`, uniform in [0, 2^16).

    They depend on the row's id, not on which others there are.
    """
    width = tf.reduce_prod(tf.cast(shape[1:], tf.int64))
    key = _mixed(_mixed(tf.constant(seed, tf.int64)) + step)
    places = ids[:, tf.newaxis] * width + tf.range(width)
    drawn = tf.reshape(_mixed(key + places), shape)
    halves = [tf.bitwise.right_shift(drawn, n) for n in (48, 32)]
    return [tf.cast(tf.bitwise.bitwise_and(x, 65535), tf.int32) for x in halves]


def _mixed(x):
    """int64, all bits of which depend on all of `x`: splitmix64."""
    x += _GOLDEN
    for shift, factor in _MIXES:
        x = tf.bitwise.bitwise_xor(x, _shifted(x, shift)) * factor
    return tf.bitwise.bitwise_xor(x, _shifted(x, 31))


def _shifted(x, places):
    """To the right, filled with zeros."""
    return tf.bitwise.bitwise_and(
        tf.bitwise.right_shift(x, places), (1 << 64 - places) - 1
    )


class KeptRows:
    """A matrix and its slots.

    Args:
        variable, slots: handles.
        dtype, slot_dtype, row_moments, bfloat16_moments, seed: as of
            `RowStorage`.
        num_moments: int, how many of the slots are first moments.
    """

    def __init__(
        self,
        variable: tf.Tensor,
        slots: list[tf.Tensor],
        dtype: tf.DType,
        slot_dtype: tf.DType,
        row_moments: bool,
        bfloat16_moments: bool,
        seed: int,
        num_moments: int,
    ) -> None:
        self.variable, self.slots = variable, slots
        self.dtype = tf.as_dtype(dtype)
        self.slot_dtype = tf.as_dtype(slot_dtype)
        self.row_moments, self.seed = row_moments, seed
        self.bfloat16_moments = bfloat16_moments
        self.num_moments = num_moments
        self._check_types()
        #: What rows are computed in.
        self.wide = tf.float64 if self.slot_dtype == tf.float64 else tf.float32

    def num_rows(self) -> tf.Tensor:
        """int64."""
        return tf.raw_ops.VariableShape(input=self.variable, out_type=tf.int64)[
            0
        ]

    def whole(self) -> tf.Tensor:
        """The matrix, as it is kept."""
        return tf.raw_ops.ReadVariableOp(
            resource=self.variable, dtype=self.dtype
        )

    def read(self, ids: tf.Tensor) -> tuple[tf.Tensor, list[tf.Tensor]]:
        """Rows and their slots."""
        rows = self._gather(self.variable, ids, self.dtype)
        slots = []
        for i, slot in enumerate(self.slots):
            values = self._gather(slot, ids, self._slot_type(i))
            if self._is_one_a_row(i):
                values = self._broadcast_to_rows(values, rows)
            slots.append(values)
        return rows, slots

    def write(
        self,
        ids: tf.Tensor,
        rows: tf.Tensor,
        slots: list[tf.Tensor],
        step: tf.Tensor,
    ) -> list[tf.Operation]:
        """Writes rows, none twice, and their slots."""
        bits = None
        if self.bfloat16_moments or self.dtype != self.slot_dtype:
            bits = _chance_bits(self.seed, step, ids, tf.shape(rows))
        by_chance = self.dtype != self.slot_dtype
        written = [
            _scatter(
                self.variable,
                ids,
                round_by_chance(rows, bits[0])
                if by_chance
                else tf.cast(rows, self.dtype),
            )
        ]
        for i, (handle, values) in enumerate(zip(self.slots, slots)):
            if self._is_one_a_row(i):
                values = tf.reshape(values, [-1])
            elif self.bfloat16_moments:
                values = round_by_chance(values, bits[1])
            values = tf.cast(values, self._slot_type(i))
            written.append(_scatter(handle, ids, values))
        return written

    def _broadcast_to_rows(self, numbers, rows):
        """Numbers [n], one for each row, in a shape that fits `rows`."""
        shape = tf.concat(
            [tf.shape(numbers), tf.ones([tf.rank(rows) - 1], tf.int32)], axis=0
        )
        return tf.reshape(tf.cast(numbers, self.wide), shape)

    def _check_types(self):
        """A gather of another type would end the process."""
        types = [self.dtype, *map(self._slot_type, range(len(self.slots)))]
        for handle, expected in zip([self.variable, *self.slots], types):
            found = keras_internals.dtype_of_handle(handle)
            if found not in (None, expected):
                raise InvalidInput(
                    f"The variable and its slots must be {expected.name}. "
                    f"Received: {found.name}"
                )

    def _is_one_a_row(self, slot):
        return self.row_moments and slot >= self.num_moments

    def _slot_type(self, slot):
        is_moment = self.bfloat16_moments and slot < self.num_moments
        return tf.bfloat16 if is_moment else self.slot_dtype

    def _gather(self, handle, ids, dtype):
        rows = tf.raw_ops.ResourceGather(
            resource=handle, indices=ids, dtype=dtype
        )
        return tf.cast(rows, self.wide)


def _scatter(handle, ids, values):
    return tf.raw_ops.ResourceScatterUpdate(
        resource=handle, indices=ids, updates=values
    )
