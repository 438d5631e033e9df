"""Logits, loss and search of all heads with class vectors, in parts."""

from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from tfxclass.core import targets as targets_lib
from tfxclass.core.flat_features import flatten
from tfxclass.core.forward import Step
from tfxclass.layers.class_set import ClassWeight
from tfxclass.layers.class_set import offset_specs
from tfxclass.layers.head_weights import WeightSpec
from tfxclass.layers.output_head import OutputHead
from tfxclass.losses.options import ALL_OPTIONS
from tfxclass.ops import placement
from tfxclass.rows import products
from tfxclass.rows import read
from tfxclass.rows import search
from tfxclass.rows import servable_ops
from tfxclass.rows.blocks import logits_at
from tfxclass.rows.class_rows import ClassRows
from tfxclass.rows.class_rows import in_blocks
from tfxclass.shards.exchange import NO_EXCHANGE
from tfxclass.shards.exchange import ReplicaGroup
from tfxclass.types import Margin
from tfxclass.types import Scalar
from tfxclass.types import Variable


class PartitionedHead(OutputHead):
    """Base class of heads whose logits are products with class vectors.

    A subclass tells in `class_rows` and `part_queries` which class vectors are
    multiplied by which features, and defines `training_step`. Features are
    float32 `[rows, dim]` in all methods.
    """

    supported_options = ALL_OPTIONS

    kernel_dtypes = ("float32", "bfloat16")

    #: What logits are divided by before they become probabilities.
    answer_temperature = 1.0

    def class_rows(self) -> list[ClassRows]:
        """Lists the `ClassRows` of all classes, in their order."""
        raise NotImplementedError

    def part_queries(self, features: tf.Tensor) -> list[tf.Tensor]:
        """Lists the queries of each entry of `class_rows`, or one for all."""
        return [self.queries(features)]

    def kernel_specs(
        self, sizes: Sequence[int], widths: Sequence[int]
    ) -> list[WeightSpec]:
        """Specifies matrices `[sizes[i], widths[i]]`, for `take_kernels`.

        If classes were removed, it also specifies the offsets of their logits.
        """
        kernels = [
            WeightSpec(
                f"kernel_{i}", shape, self.kernel_initializer, self.kernel_dtype
            )
            for i, shape in enumerate(zip(sizes, widths, strict=True))
        ]
        names = [f"offsets_{i}" for i in range(len(kernels))]
        return kernels + offset_specs(self.removed, sizes, names)

    def take_kernels(self, weights_by_name: dict[str, keras.Variable]) -> None:
        """Sets `kernels`, a list, and `offsets`, as many or None."""
        self.kernels = [
            v for k, v in weights_by_name.items() if k.startswith("kernel_")
        ]
        offsets = [
            v for k, v in weights_by_name.items() if k.startswith("offsets_")
        ]
        self.offsets = offsets or None

    def rows_of(
        self, kernels: list[Variable], offsets: list[tf.Tensor] | None
    ) -> list[ClassRows]:
        """`ClassRows` of matrices whose classes are numbered through."""
        return in_blocks(kernels, offsets, self.compute_dtype == "bfloat16")

    def class_weights(self) -> list[ClassWeight]:
        """The weights of heads with `kernels`; others override it."""
        found = []
        for i, rows in enumerate(self.class_rows()):
            found.append(ClassWeight(f"kernel_{i}", rows.first, rows.size, i))
            if self.offsets is not None:
                found.append(ClassWeight(f"offsets_{i}", *found[-1][1:3]))
        return found

    def exchange(self, features: tf.Tensor) -> ReplicaGroup:
        """Communication between the replicas (see `tfxclass.shards`)."""
        return NO_EXCHANGE

    def parts(self, features: tf.Tensor) -> list[tuple[tf.Tensor, ClassRows]]:
        """Lists `(queries, ClassRows)`: together they give all logits."""
        return self._paired(flatten(features), self.class_rows())

    def _paired(self, features, class_rows):
        queries = self.part_queries(features)
        if len(queries) == 1:
            queries *= len(class_rows)
        return list(zip(queries, class_rows, strict=True))

    def scaled(
        self, parts: list[tuple[tf.Tensor, ClassRows]], factor: Scalar
    ) -> list[tuple[tf.Tensor, ClassRows]]:
        """Parts whose logits are the logits of `parts` times a number."""
        scaled = []
        for queries, rows in parts:
            if rows.bias is not None:
                bias = factor * tf.convert_to_tensor(rows.bias)
                rows = rows._replace(bias=bias)
            scaled.append((factor * queries, rows))
        return scaled

    @property
    def answer_scale(self) -> float:
        """The factor of logits in answers."""
        return 1.0 if self.activation is None else 1.0 / self.answer_temperature

    def _answering(self, parts):
        """The `parts` of the logits in answers."""
        scale = self.answer_scale
        return parts if scale == 1.0 else self.scaled(parts, scale)

    def target_margin(self) -> Margin | None:
        """The margin as a function of the labels' logits, or None."""
        return None

    def training_step(
        self, features: tf.Tensor, targets: targets_lib.Targets
    ) -> Step:
        """Returns the `Step` of a training step.

        By default it computes the exact loss, with the margin and the loss
        options.
        """
        options, margin = self.loss_options, self.target_margin()
        targets, finish = self.apply_class_weights(targets)
        if options is None or self.objective.is_plain(options):
            losses = self.exact_loss(features, targets, margin)
        else:
            losses = self._shaped_loss(features, targets, margin)
        return Step(finish(losses))

    def _shaped_loss(self, features, targets, margin):
        """`exact_loss` with all of `loss_options`."""
        exchange, options = self.exchange(features), self.loss_options
        parts = [(x, read.whole(rows)) for x, rows in self.parts(features)]
        return self.objective.streamed(
            options.shape_parts(parts, self.num_classes),
            targets.map(exchange.gather),
            exchange=exchange,
            margin=margin,
            options=options,
            num_classes=self.num_classes,
        )

    def exact_loss(
        self,
        features: tf.Tensor,
        targets: targets_lib.Targets,
        margin: Margin | None = None,
    ) -> tf.Tensor:
        """Loss over all classes, computed in blocks, float32 `[rows]`."""
        exchange = self.exchange(features)
        return self.objective.streamed(
            self.parts(features),
            targets.map(exchange.gather),
            exchange=exchange,
            margin=margin,
        )

    def all_logits(self, features: tf.Tensor) -> tf.Tensor:
        """Logits of all classes, float32 `[rows, num_classes]`."""
        exchange = self.exchange(features)
        logits = [
            _all_products(exchange.gather(queries), rows)
            for queries, rows in self.parts(features)
        ]
        logits = self.adjust_logits(features, exchange.own_from_all(logits))
        return tf.concat(logits, axis=1)

    #: Whether the logit of a class is a product with its row.
    has_own_logits = True

    def logits_of(self, features: tf.Tensor, ids: tf.Tensor) -> tf.Tensor:
        if not self.has_own_logits:
            return super().logits_of(features, ids)
        return _logits_of(self._paired(features, self.class_rows()), ids)

    def servable_logits_of(
        self, features: tf.Tensor, ids: tf.Tensor, weights: Any
    ) -> tf.Tensor:
        """`logits_of` with TensorFlow's own ops only.

        If a logit needs more than its own class vector, such as a log-sum-exp,
        all class vectors are read, block by block.
        """
        parts = self._paired(features, weights)
        if self.has_own_logits:
            return _logits_of(parts, ids)
        found = []
        for queries, rows in parts:
            logits = logits_at(queries, rows, rows.local_ids(ids))
            total = servable_ops.best(queries, rows, 1).logsumexp
            found.append(search.Best(ids, logits, total))
        logits = tf.zeros(tf.shape(ids))
        for (_, rows), best in zip(parts, self.adjust_best(features, found)):
            is_here = rows.local_ids(ids) >= 0
            logits = tf.where(is_here, tf.cast(best.logits, tf.float32), logits)
        return logits

    def best(self, features: tf.Tensor, k: int) -> tuple[tf.Tensor, tf.Tensor]:
        """The best classes, `(ids, scores)`, `[rows, k]` (see `top_k`)."""
        exchange = self.exchange(features)
        found = [
            search.best(exchange.gather(queries), rows, k, self.needs_logsumexp)
            for queries, rows in self._answering(self.parts(features))
        ]
        fields = [exchange.own_from_all(list(x)) for x in zip(*found)]
        return self._answer(features, list(map(search.Best, *fields)), k)

    def _answer(self, features, found, k):
        """`(ids, scores)` of the `Best` of each part."""
        best = search.merge(self.adjust_best(features, found), k)
        if self.activation is None:
            return best.ids, tf.cast(best.logits, tf.float32)
        scores = self.objective.probabilities(best.logits, best.logsumexp)
        return best.ids, scores

    @property
    def needs_logsumexp(self) -> bool:
        """Whether the best classes need the log-sum-exp of all logits."""
        return self.activation is not None and self.objective.needs_logsumexp

    def adjust_logits(
        self, features: tf.Tensor, logits: list[tf.Tensor]
    ) -> list[tf.Tensor]:
        """Computes the logits of the parts, a list, from their products."""
        return logits

    def adjust_best(
        self, features: tf.Tensor, found: list[search.Best]
    ) -> list[search.Best]:
        """The same as `adjust_logits`, for the `Best` of each part."""
        return found

    def export_weights(self) -> Any:
        """The weights that `export_top_k` reads and an export saves.

        By default they are a list of `ClassRows` of variables that need no
        further normalization. For cosines they are normalized copies, which
        saves time in each request.
        """
        return [servable_ops.servable(rows) for rows in self.class_rows()]

    def servable_best(
        self, features: tf.Tensor, k: int, weights: Any
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """`best` with TensorFlow's own ops only."""
        found = [
            servable_ops.best(queries, rows, k, self.needs_logsumexp)
            for queries, rows in self._answering(
                self._paired(features, weights)
            )
        ]
        return self._answer(features, found, k)

    def servable_scores(self, features: tf.Tensor, weights: Any) -> tf.Tensor:
        """Scores of all classes, `[rows, num_classes]`, with stock ops only."""
        logits = [
            servable_ops.all_logits(queries, rows)
            for queries, rows in self._paired(features, weights)
        ]
        logits = tf.concat(self.adjust_logits(features, logits), axis=1)
        return self.activate(logits) if self.activation else logits


def _logits_of(parts, ids):
    """Logits of the classes `ids` `[rows, q]`, each from its part."""
    logits = tf.zeros(tf.shape(ids))
    for queries, rows in parts:
        local = rows.local_ids(ids)
        with placement.on(rows.device):
            found = logits_at(queries, rows, local)
        logits = tf.where(local >= 0, found, logits)
    return logits


def _all_products(queries, rows):
    with placement.on(rows.device):
        return products.all_products(queries, read.whole(rows))
