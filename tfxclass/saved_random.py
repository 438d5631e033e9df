"""A layer's random state, saved with its weights."""

import keras

from tfxclass.types import Store


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
