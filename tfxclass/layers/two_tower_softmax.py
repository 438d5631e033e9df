"""Softmax whose class vectors an encoder makes from class features."""

from typing import Any

import keras
import tensorflow as tf
from keras.initializers import Constant

from tfxclass.checks import as_distinct_classes
from tfxclass.checks import check_value
from tfxclass.core.class_update import ClassUpdate
from tfxclass.core.forward import Step
from tfxclass.core.forward import is_features_only
from tfxclass.core.targets import Targets
from tfxclass.layers import class_tower as table_lib
from tfxclass.layers.class_tower import ClassTower
from tfxclass.layers.head_weights import WeightSpec
from tfxclass.layers.head_weights import fixed_spec
from tfxclass.layers.output_head import do_not_convert
from tfxclass.layers.sampled_softmax import SampledSoftmax
from tfxclass.ops import norms
from tfxclass.ops import placement as placement_lib
from tfxclass.ops import row_update
from tfxclass.rows.class_matrix import ClassRows
from tfxclass.samplers.sampler import Sample
from tfxclass.samplers.sampler import Sampler
from tfxclass.types import Array
from tfxclass.types import Config
from tfxclass.types import Labels
from tfxclass.types import Shape
from tfxclass.types import Store

# Classes that are encoded at a time outside of training steps.
_REFRESH_BATCH = 512
# Values of `state`: what the class vectors in `kernel` are.
_FRESH, _STALE, _NEVER_ENCODED = range(3)


@keras.saving.register_keras_serializable("tfxclass")
class TwoTowerSoftmax(SampledSoftmax):
    """Softmax over classes that have features: a two-tower model.

    Use it where classes have a title, a picture or attributes, and where new
    classes come often. The layers before the head encode the query, and
    `class_tower` encodes the features of a class to its class vector. Both are
    trained together. Each training step encodes only the sampled classes.

    `kernel` keeps each class vector as it was last encoded. Evaluation,
    `top_k`, saving and exports encode all classes again if a training step came
    in between. Call `refresh()` yourself after you set weights in another way.
    An export has no class encoder.

    Args:
        class_tower: a `tfxclass.layers.ClassTower` with the encoder and the
            features of the classes.
        sampler: as in `SampledSoftmax`. Defaults to `"uniform"`. `"batch"` is
            the usual two-tower training, with negatives from the batch.
        **kwargs: other arguments of `SampledSoftmax`, without `kernel_dtype`,
            `placement` and `tied_to`.

    Example:

    ```python
    words = keras.Input([8], dtype="int64")
    embedding = keras.layers.Embedding(10_000, 64)
    mean = keras.layers.GlobalAveragePooling1D()
    encoder = keras.Model(words, mean(embedding(words)))
    titles = np.zeros([50_000, 8], "int64")
    tower = tfxclass.layers.ClassTower(encoder, titles)
    head = tfxclass.layers.TwoTowerSoftmax(50_000, tower)
    model = keras.Sequential([encoder, head])
    model.compile(tfxclass.optimizers.HeadAdam(), loss=head.loss)
    ```

    References:
        Yi et al., Sampling-Bias-Corrected Neural Modeling for Large Corpus Item
        Recommendations, RecSys 2019.
    """

    default_sampler = "uniform"
    kernel_dtypes = ("float32",)

    # An exact step would encode all classes.
    can_train_on_all = False
    residual: Any = None

    def __init__(
        self,
        num_classes: int,
        class_tower: ClassTower,
        num_sampled: int | None = None,
        sampler: str | Sampler | None = None,
        **kwargs: Any,
    ) -> None:
        for name in ("tied_to", "placement"):
            if kwargs.pop(name, None) is not None:
                raise ValueError(
                    f"A TwoTowerSoftmax has no `{name}`: `class_tower` makes "
                    "its class vectors. Fix: leave it out"
                )
        super().__init__(num_classes, num_sampled, sampler, **kwargs)
        wanted = "a tfxclass.layers.ClassTower with an encoder and features"
        is_tower = isinstance(class_tower, ClassTower)
        check_value("class_tower", class_tower, is_tower, wanted)
        self.class_encoder = class_tower.encoder
        self.use_residual = class_tower.use_residual
        self.refresh_interval = class_tower.refresh_interval
        self._take_columns(class_tower.features)

    def _take_columns(self, features):
        # In a function, or Keras would wrap dicts and lists.
        columns = table_lib.columns_of(features, self.num_classes, "features")
        self._columns = lambda: columns

    def weight_specs(self, dim: int) -> list[WeightSpec]:
        kernel, *others = super().weight_specs(dim)
        # No part: the encoder makes class vectors, and not the mean features.
        kernel = kernel._replace(initializer="zeros", part=None)
        specs = [kernel._replace(trainable=False), *others]
        if self.use_residual:
            specs.append(kernel._replace(name="residual"))
        return [
            *specs,
            *table_lib.weight_specs(self._columns()),
            fixed_spec("state", (), Constant(_NEVER_ENCODED), "int64"),
            fixed_spec("next_class", (), Constant(0), "int64"),
        ]

    @property
    def _table(self):
        """The weights with the features of classes, by column."""
        return [
            weight
            for name, weight in self.weights_by_name.items()
            if name.startswith(table_lib.PREFIX)
        ]

    def _packed(self, columns):
        """Columns of the table in the structure that was given."""
        return keras.tree.pack_sequence_as(self._columns(), columns)

    def build(self, input_shape: Shape) -> None:
        if tf.distribute.has_strategy():
            raise ValueError(
                "A TwoTowerSoftmax is for one device. Received: a "
                f"{type(tf.distribute.get_strategy()).__name__}. Fix: make the "
                "model without a strategy"
            )
        super().build(input_shape)
        # The weights have the values now.
        self._take_columns(table_lib.to_config(self._columns()))
        shape = self.encode(tf.zeros([1], tf.int64)).shape
        if shape.rank != 2 or shape[1] != input_shape[-1]:
            raise ValueError(
                "The class encoder must return vectors as wide as the features "
                f"of the query, [n, {input_shape[-1]}]. Received: shape "
                f"{tuple(shape)}"
            )

    @property
    def class_features(self) -> Any:
        """The features of all classes, NumPy arrays; None before `build`."""
        if not self.built:
            return None
        return self._packed([weight.numpy() for weight in self._table])

    def set_class_features(self, ids: Array, class_features: Any) -> None:
        """Sets the features of some classes, and encodes their class vectors.

        Args:
            ids: integers `[n]`, distinct classes.
            class_features: features of these classes, in the structure of the
                constructor's argument, with `n` rows.

        Raises:
            ValueError: if the head is not built, or an argument does not fit.
        """
        if not self.built:
            raise ValueError(
                f"The head {self.name!r} is not built. Fix: give the features "
                "to the constructor, or call the model on a batch first"
            )
        ids = as_distinct_classes(ids, self.num_classes)
        table_lib.set_rows(self._table, ids, class_features)
        if int(self.state) == _FRESH:
            self._encode_all(tf.constant(ids, tf.int64))

    def encode(self, ids: tf.Tensor, training: bool = False) -> tf.Tensor:
        """The encoded vectors of `ids` `[n]`, float32, not normalized."""
        features = [placement_lib.gather(x, ids) for x in self._table]
        vectors = self.class_encoder(self._packed(features), training=training)
        vectors = tf.cast(vectors, tf.float32)
        if self.residual is None:
            return vectors
        return vectors + placement_lib.gather(self.residual, ids)

    @do_not_convert
    def refresh(self) -> None:
        """Encodes the class vectors of all classes, 512 at a time.

        Evaluation, `top_k`, saving and exports call it after training steps.
        """
        self._encode_all(tf.range(self.num_classes, dtype=tf.int64))
        self.state.assign(_FRESH)

    def _encode_all(self, ids):
        """Encodes distinct classes, int64 `[n]`, in batches."""

        def encode_batch(start):
            batch = ids[start : start + _REFRESH_BATCH]
            self._keep(batch, self.encode(batch))
            return [start + _REFRESH_BATCH]

        tf.while_loop(
            lambda start: start < tf.size(ids),
            encode_batch,
            [tf.constant(0)],
            parallel_iterations=1,
        )

    def _keep(self, ids, vectors):
        """Writes class vectors of distinct classes to `kernel`."""
        handle = placement_lib.handle_of(self.kernel)
        row_update.assign_rows(handle, ids, tf.stop_gradient(vectors))

    def _refresh_from(self, state):
        """Encodes all classes unless `kernel` is fresher than `state`."""

        def refresh():
            self.refresh()
            return True

        tf.cond(self.state >= state, refresh, lambda: False)

    @do_not_convert
    def call(
        self,
        features: tf.Tensor,
        labels: Labels | None = None,
        training: bool | None = None,
    ) -> tf.Tensor:
        if not training and not is_features_only():
            self._refresh_from(_STALE)
        return super().call(features, labels, training)

    def training_step(self, features: tf.Tensor, targets: Targets) -> Step:
        if self.sampler.reads_class_vectors:
            # The first index is of all class vectors.
            self._refresh_from(_NEVER_ENCODED)
            self._encode_next()
        self.state.assign(tf.maximum(self.state, _STALE))
        return super().training_step(features, targets)

    def _encode_next(self):
        """Encodes the next few classes of a round through all of them."""
        if self.refresh_interval is None:
            return
        count = -(-self.num_classes // self.refresh_interval)
        start = tf.convert_to_tensor(self.next_class)
        ids = (start + tf.range(count, dtype=tf.int64)) % self.num_classes
        self._keep(ids, self.encode(ids))
        self.sampler.rows_moved(ids)
        self.next_class.assign((start + count) % self.num_classes)

    def sampled_rows(
        self, sample: Sample
    ) -> tuple[tf.Tensor, tf.Tensor | None]:
        vectors = self.encode(sample.ids, training=True)
        self._keep(sample.ids, vectors)
        if self.similarity == "cosine":
            vectors = norms.normalize(vectors)
        bias = self.class_matrix.bias
        if bias is None:
            return vectors, None
        return vectors, placement_lib.gather(bias, sample.ids)

    def class_rows(self) -> list[ClassRows]:
        self._refresh_from(_STALE)
        return super().class_rows()

    def all_logits(self, features: tf.Tensor, weights: Any = None) -> tf.Tensor:
        # `call` refreshes before, unless in training.
        weights = super().class_rows() if weights is None else weights
        return super().all_logits(features, weights)

    def save_own_variables(self, store: Store) -> None:
        self._refresh_from(_STALE)
        super().save_own_variables(store)

    # How classes come and go.

    def class_weights(self) -> list[WeightSpec]:
        return [x for x in self.weight_specs(self.dim) if x.shape]

    def changed_config(self, change: ClassUpdate) -> Config:
        # The head after the change has the same class encoder.
        config = super().changed_config(change)
        tower = {**config["class_tower"], "encoder": self.class_encoder}
        return {**config, "class_tower": tower}

    def get_config(self) -> Config:
        config = super().get_config()
        del config["placement"], config["tied_to"]
        return {
            **config,
            "class_tower": {
                "encoder": keras.saving.serialize_keras_object(
                    self.class_encoder
                ),
                "features": table_lib.to_config(self._columns()),
                "use_residual": self.use_residual,
                "refresh_interval": self.refresh_interval,
            },
        }

    @classmethod
    def from_config(cls, config: Config) -> "TwoTowerSoftmax":
        tower = dict(config["class_tower"])
        if isinstance(tower["encoder"], dict):
            tower["encoder"] = keras.saving.deserialize_keras_object(
                tower["encoder"]
            )
        return super().from_config(
            {**config, "class_tower": ClassTower(**tower)}
        )
