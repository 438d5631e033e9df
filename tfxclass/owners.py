"""Which object of ours a variable belongs to.

Keras hands optimizers and files variables alone. `OWNERS.get(variable)` is the
one way from there to what a head knows of its variable, without an attribute
on the variable itself.
"""

import functools
import weakref
from typing import Any


class WeakRegistry:
    """The owner of a variable, while both of them live.

    A variable cannot be a key of a dict or of a `weakref.WeakKeyDictionary`:
    it has no hash, and `==` compares its elements. Owners are held weakly,
    because they hold their variables.
    """

    def __init__(self) -> None:
        self._entries: dict[int, tuple[weakref.ref, weakref.ref]] = {}

    def get(self, variable: Any) -> Any:
        """The owner of `variable`, or None."""
        reference, owner = self._entries.get(id(variable), (None, None))
        # Another object may have had the same id before.
        if reference is None or owner is None or reference() is not variable:
            return None
        return owner()

    def set(self, variable: Any, owner: Any) -> None:
        """Gives `variable` an owner in place of the one it had."""
        forget = functools.partial(_forget, self._entries, id(variable))
        reference = weakref.ref(variable, forget)
        self._entries[id(variable)] = reference, weakref.ref(owner)


def _forget(entries, number, reference):
    if entries.get(number, (None, None))[0] is reference:
        del entries[number]


OWNERS = WeakRegistry()
