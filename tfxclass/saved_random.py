"""A layer's random state, saved with its weights."""

import keras
import tensorflow as tf

from tfxclass.types import Store


class SavedRandom:
    """Mixin for layers with random state, which Keras does not save.

    A subclass calls `make_random` in its constructor, and derives from
    `keras.layers.Layer` after this.
    """

    def make_random(self, seed: int | None) -> None:
        """Makes `random`, a `keras.random.SeedGenerator`."""
        self.random = keras.random.SeedGenerator(seed)

    def next_seed(self) -> tf.Tensor:
        """int64 `[2]`, another one each step."""
        return tf.cast(self.random.next(), tf.int64)

    def save_own_variables(self, store: Store) -> None:
        super().save_own_variables(store)
        store["random_state"] = self.random.state.numpy()

    def load_own_variables(self, store: Store) -> None:
        weights = {key: store[key] for key in store.keys() if key.isdigit()}
        super().load_own_variables(weights)
        self.random.state.assign(store["random_state"][()])
