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
        save(self.random, store)

    def load_own_variables(self, store: Store) -> None:
        super().load_own_variables(load(self.random, store))


def save(random: keras.random.SeedGenerator | None, store: Store) -> None:
    """Writes a random state, if there is one."""
    if random is not None:
        store["random_state"] = random.state.numpy()


def load(random: keras.random.SeedGenerator | None, store: Store) -> Store:
    """Reads what `save` wrote; returns the other entries."""
    if random is None:
        return store
    random.state.assign(store["random_state"][()])
    return {key: store[key] for key in store.keys() if key.isdigit()}
