"""Adam for dense weights, Adagrad for class vectors and embeddings."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from tfxclass.checks import check_nonnegative
from tfxclass.checks import check_number
from tfxclass.checks import check_positive
from tfxclass.keras_internals import tf_variable
from tfxclass.ops import placement
from tfxclass.ops import row_update
from tfxclass.ops.exact_softmax import ClassGradient
from tfxclass.ops.row_update import RowStorage
from tfxclass.optimizers import rules
from tfxclass.optimizers.row_optimizer import RowOptimizer
from tfxclass.rows.class_matrix import ClassMatrix
from tfxclass.rows.sharded_rows import shards_of
from tfxclass.types import Config
from tfxclass.types import Variable

#: Factor of the rates where class vectors are trained already: Adagrad's first
#: steps are its longest, and would undo the training.
TRAINED_FACTOR = 0.05
# The column of `gradient_scale` that is 1 for such class vectors.
_IS_TRAINED = 2


@dataclasses.dataclass(frozen=True)
class ScaledAdagrad:
    """Adagrad whose offset is relative to the size of the gradients."""

    rate: float  #: Relative to the optimizer's learning rate.
    offset: float  #: Relative to the mean square of the gradients.
    #: Whether the mean square is averaged over all steps, or of the step alone.
    has_scale: bool = False
    #: The rule of dense gradients. Its second moments are the accumulators.
    dense_rule: rules.Adam | None = None
    matrix: ClassMatrix | None = None
    #: The state that tells whether class vectors were trained before.
    trained_marks: Sequence[Variable] = ()

    @property
    def takes_dense(self) -> bool:
        """Whether Keras updates the variable from a dense gradient."""
        return self.dense_rule is not None

    def state(self, variable: Variable, storage: RowStorage) -> rules.Specs:
        if self.dense_rule is not None:
            return self.dense_rule.state(variable, storage)
        accumulator = rules.second_moment(variable, storage)
        if not self.has_scale:
            return {"accumulator": accumulator}
        # A sum of scales, their number, and whether class vectors were trained.
        mark = float(self.matrix is not None and self.matrix.is_trained())
        scale = rules.one_row(storage, [0.0, 0.0, mark])
        return {"gradient_scale": scale, "accumulator": accumulator}

    def update(self, step: rules.RowStep) -> Any:
        ids, grads = step.ids, step.grads
        if isinstance(grads, ClassGradient):
            scale = _target_gradient_scale(step.variable, grads)
        else:
            wide = tf.cast(grads, rules.compute_dtype(step.storage))
            ids, sums = row_update.sum_duplicate_rows(ids, wide)
            grads = tf.cast(sums, grads.dtype)
            scale = rules.gradient_scale(sums)
        if self.has_scale:
            scale = _mean_so_far(step.state["gradient_scale"], scale)
        name = "velocity" if self.takes_dense else "accumulator"
        return row_update.update(
            "adagrad",
            slots=[step.state[name]],
            learning_rate=step.wide_rate * (self.rate * self._trained_factor()),
            # At least so much that a gradient of 0 moves nothing.
            offset=tf.cast(tf.maximum(self.offset * scale, 1e-30), tf.float64),
            **step._replace(ids=ids, grads=grads).options,
        )

    def _trained_factor(self):
        """1, or `TRAINED_FACTOR` for class vectors that were trained before."""
        if not self.trained_marks:
            return tf.ones([], tf.float64)
        states = map(tf_variable, self.trained_marks)
        marks = [rules.read(x.handle, x.dtype) for x in states]
        is_trained = tf.reduce_any(tf.stack(marks)[:, 0, _IS_TRAINED] > 0)
        factors = tf.constant([1.0, TRAINED_FACTOR], tf.float64)
        return factors[tf.cast(is_trained, tf.int32)]


#: Rates and offsets, chosen by `benchmarks.defaults`. With cosine similarity
#: the first steps decide the length of a class vector, which divides later
#: gradients. A large offset keeps later steps short.
RULES = {
    "dot": ScaledAdagrad(500.0, 0.2, has_scale=True),
    "cosine": ScaledAdagrad(300.0, 10.0, has_scale=True),
    "embedding": ScaledAdagrad(200.0, 4.0),
}


@keras.saving.register_keras_serializable(package="tfxclass")
class HeadAdam(RowOptimizer, keras.optimizers.Adam):
    """The default optimizer for a model that ends in a head of tfxclass.

    Adam updates the dense weights of the encoder. Adagrad updates the rows that
    a step touches: class vectors, and the embeddings of words or items. Their
    learning rates are fixed multiples of `learning_rate`.

    With Adam, a sampled negative whose probability is tiny would move as far as
    the class vector of a label. The best `initial_accumulator_value` of plain
    Adagrad depends on the batch size and the features. Here it is measured:

        accumulator += gradient ** 2
        row -= rate * gradient / sqrt(accumulator + offset * scale)

    `scale` is the mean square of the gradient, over the rows that a step
    touches. For class vectors it is averaged over all steps so far.

    | rows | rate | offset |
    | --- | --- | --- |
    | class vectors, `similarity="dot"` | 500 `learning_rate` | 0.2 |
    | class vectors, `similarity="cosine"` | 300 `learning_rate` | 10 |
    | embeddings | 200 `learning_rate` | 4 |

    Adagrad's first steps are its longest. A new optimizer takes a twentieth of
    these rates for a model that was trained before, or whose class vectors come
    from data (`tfxclass.initialize_classes`). It detects both when it is built:
    class vectors are then over 1.3 times as large as their initializer makes
    them. Sharded class vectors always count as new.

    The state of class vectors takes 4 bytes for each number, where Adam needs
    8. `docs/choosing.md` compares this optimizer with others on many tasks.

    Args:
        learning_rate: float or a schedule of `keras.optimizers.schedules`.
            Defaults to 1e-3.
        class_rate: float > 0 or None, the learning rate of class vectors
            relative to `learning_rate`. None (default) is as above.
        embedding_rate: as `class_rate`, of embeddings, or `"adam"`: Adam
            updates them, as in `LazyAdam`.
        second_moment: str, `"element"` (default), or `"row"` for one
            accumulator for each class vector, which takes almost no memory.
        **kwargs: as for `LazyAdam`. Clipping, weight decay, `l2`, loss scale
            and gradient accumulation apply to class vectors as well.
            `amsgrad=True` and `slot_dtype` are not supported.

    Raises:
        ValueError: if an argument is out of range.

    Example:

    ```python
    head = tfxclass.layers.SampledSoftmax(100_000, num_sampled=1024)
    model = keras.Sequential([keras.layers.Dense(32), head])
    model.compile(tfxclass.optimizers.HeadAdam(), loss=head.loss)
    model.fit(np.ones([32, 20]), np.arange(32), verbose=0)
    ```

    References:

    - [Kingma and Ba, 2014](https://arxiv.org/abs/1412.6980) (Adam)
    - [Duchi et al., 2011](https://jmlr.org/papers/v12/duchi11a.html) (Adagrad)
    """

    SECOND_MOMENTS = ("element", "row")

    def __init__(
        self,
        learning_rate: Any = 1e-3,
        class_rate: float | None = None,
        embedding_rate: float | str | None = None,
        second_moment: str = "element",
        **kwargs: Any,
    ) -> None:
        if class_rate is not None:
            check_positive("class_rate", class_rate)
        if embedding_rate not in (None, "adam"):
            check_number(
                "embedding_rate",
                embedding_rate,
                lambda x: 0 < x < math.inf,
                'a finite number > 0, or None, or "adam"',
            )
        super().__init__(learning_rate, second_moment=second_moment, **kwargs)
        self.class_rate = class_rate
        self.embedding_rate = embedding_rate

    def _check_arguments(self):
        check_nonnegative("epsilon", self.epsilon)
        if self.amsgrad:
            raise ValueError(
                "`amsgrad` is not supported. Fix: leave it out. Received: "
                "amsgrad=True"
            )

    def _rule_of(self, variable, matrix):
        if matrix is not None:
            return self._class_rule(variable, matrix)
        adam = rules.Adam(self.beta_1, self.beta_2, self.epsilon)
        if self.embedding_rate == "adam" or len(variable.shape) < 2:
            return adam
        # An embedding follows the class vectors of its model.
        rule = self._with_rate(RULES["embedding"], self.embedding_rate)
        return dataclasses.replace(rule, dense_rule=adam)

    def _class_rule(self, variable, matrix):
        rule = RULES["cosine" if matrix.normalize else "dot"]
        rule = dataclasses.replace(rule, matrix=matrix)
        rule = self._with_rate(rule, self.class_rate)
        if self._is_replicated and shards_of(variable) is not None:
            # Each replica takes the scale of its own classes in a step.
            return dataclasses.replace(rule, has_scale=False)
        return rule

    def _with_rate(self, rule, own_rate):
        """A rule with the rate that a user chose, or slower where trained."""
        if own_rate is not None:
            return dataclasses.replace(rule, rate=own_rate)
        if not self.built:
            return rule
        marks = [
            state["gradient_scale"]
            for variable, state in zip(self._built_for, self._states)
            if "gradient_scale" in state
            and rule.matrix in (None, self._matrices[self._key_of(variable)])
        ]
        return dataclasses.replace(rule, trained_marks=marks)

    def get_config(self) -> Config:
        names = "class_rate", "embedding_rate"
        return super().get_config() | {x: getattr(self, x) for x in names}


def _mean_so_far(handle, scale):
    """The mean of the scales so far, whose sum and number are in `handle`."""
    counts = tf.cast(scale > 0, scale.dtype)
    seen = tf.stack([scale, counts, tf.zeros_like(scale)])
    new = rules.read(handle, scale.dtype) + seen[tf.newaxis]
    tf.raw_ops.AssignVariableOp(resource=handle, value=new)
    return tf.math.divide_no_nan(new[0, 0], new[0, 1])


def _target_gradient_scale(matrix, gradient):
    """`gradient_scale` of what each label's own rows add in an exact loss."""
    is_label = gradient.ids >= 0
    ids = tf.reshape(tf.maximum(gradient.ids, 0), [-1])
    factors = tf.where(is_label, gradient.target_grads, 0.0)
    rows = factors[..., tf.newaxis] * gradient.queries[:, tf.newaxis, :]
    rows = tf.reshape(rows, [tf.size(ids), gradient.queries.shape[-1]])
    if gradient.epsilon > 0:
        # The derivative of a normalized class vector.
        vectors = tf.cast(placement.gather(matrix, ids), tf.float32)
        squared = tf.reduce_sum(tf.square(vectors), axis=1, keepdims=True)
        inverse = tf.math.rsqrt(tf.maximum(squared, gradient.epsilon))
        unit = vectors * inverse
        along = tf.reduce_sum(rows * unit, axis=1, keepdims=True)
        rows = (rows - along * unit) * inverse
    return rules.gradient_scale(row_update.sum_duplicate_rows(ids, rows)[1])


# For `compile("HeadAdam")`: Keras looks up a name as it is given.
keras.saving.get_custom_objects()["HeadAdam"] = HeadAdam
