"""Values by the identity of an object, as long as the object lives."""

import functools
import weakref
from typing import Any


class WeakRegistry:
    """A weak mapping whose keys may be variables.

    A variable cannot be a key of a dict or of a `weakref.WeakKeyDictionary`:
    it has no hash, and `==` compares its elements. An entry goes with its key,
    so a value must not hold a strong reference to the key.
    """

    def __init__(self) -> None:
        self._entries: dict[int, tuple[weakref.ref, Any]] = {}

    def get(self, key: Any) -> Any:
        """The value of `key`, or None."""
        reference, value = self._entries.get(id(key), (None, None))
        # Another object may have had the same id before.
        return value if reference is not None and reference() is key else None

    def set(self, key: Any, value: Any) -> None:
        """Gives `key` a value in place of the one it had."""
        forget = functools.partial(_forget, self._entries, id(key))
        self._entries[id(key)] = weakref.ref(key, forget), value


def _forget(entries, number, reference):
    if entries.get(number, (None, None))[0] is reference:
        del entries[number]
