"""Adam's second moment as one number for all class rows of a matrix."""

from typing import Any

import tensorflow as tf

from tfxclass.checks import check_choice
from tfxclass.keras_internals import adam_slots
from tfxclass.keras_internals import tf_variable
from tfxclass.ops import half_rows
from tfxclass.ops import row_update
from tfxclass.optimizers import skipped_steps
from tfxclass.optimizers.lazy_rows import LazyRows
from tfxclass.types import Config
from tfxclass.types import Initializer
from tfxclass.types import Variable


class SharedMoment(LazyRows):
    """`LazyRows` for an optimizer with Adam's arguments.

    The update is SGD's with momentum, at a rate that the moment divides.
    """

    def __init__(
        self, *args: Any, shared_second_moment: bool = False, **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        check_choice(
            "shared_second_moment", shared_second_moment, (False, True)
        )
        self.shared_second_moment = shared_second_moment
        if shared_second_moment and self.amsgrad:
            raise ValueError(
                "`amsgrad` keeps the largest second moment of each element, "
                "and with `shared_second_moment=True` there is none. Fix: "
                "leave out one of both. Received: amsgrad=True"
            )

    def _is_shared(self, variable):
        """Whether the rows of a variable share their second moment."""
        return bool(
            self.shared_second_moment
            and half_rows.are_class_rows(variable)
            and len(variable.shape) > 1
        )

    def add_variable_from_reference(
        self,
        reference_variable: Variable,
        name: str | None = None,
        initializer: Initializer = "zeros",
    ) -> Any:
        if name != "velocity" or not self._is_shared(reference_variable):
            return super().add_variable_from_reference(
                reference_variable, name=name, initializer=initializer
            )
        is_double = tf.as_dtype(reference_variable.dtype) == tf.float64
        dtype = "float64" if is_double else "float32"
        with self._beside(reference_variable):
            # A weighted sum of mean squares, and the sum of its weights; not
            # of rank 1, or with two classes it would look like one a row.
            return self._add(reference_variable, name, (1, 2), dtype)

    def _kept_as(self, index):
        kept = super()._kept_as(index)
        if not self._is_shared(self._built_for[index]):
            return kept
        moment = tf_variable(adam_slots(self, index)[1])
        return kept._replace(second_moment=moment.handle)

    def _shared_update(
        self, variable, slots, history, ids, grads, learning_rate, options
    ):
        return row_update.shared_adam_update(
            variable,
            slots[0],
            history,
            ids,
            grads,
            learning_rate=learning_rate,
            **options,
        )

    def _has_rates(self, variable):
        # The first moment has them in it.
        return super()._has_rates(variable) and not self._is_shared(variable)

    def _skipped_shared_moves(self, slots, sums, capacity):
        terms = skipped_steps.sgd_terms(self.beta_1, False, capacity)
        return slots[0] * sums(terms)

    def _catch_up_shared(self, variable, slots, history, ids, **options):
        row_update.sgd_catch_up(
            variable,
            slots[0],
            history,
            ids,
            terms=skipped_steps.sgd_terms(self.beta_1, False, history.capacity),
            momentum=self.beta_1,
            **options,
        )

    def get_config(self) -> Config:
        own = {"shared_second_moment": self.shared_second_moment}
        return {**super().get_config(), **own}
