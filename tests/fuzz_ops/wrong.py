"""Each argument of a call in turn, changed in every way that may be wrong."""

import numpy as np

from tests.fuzz_ops.values import Typed
from tests.fuzz_ops.values import Variable

WRONG_INTEGERS = (-(2**31), -2, -1, 0, 2**40)
WRONG_FLOATS = (np.nan, np.inf, -np.inf, -1.0, 0.0)


def wrong_calls(call):
    """`(argument, how it is changed, call)`, one change each."""
    for name, value in call.args.items():
        for what, changed in wrong_values(value):
            args = {**call.args, name: changed}
            yield name, what, call._replace(args=args)


def wrong_values(value):
    """`(how it is changed, value)`, for an argument of any kind."""
    if isinstance(value, (Variable, Typed)):
        for what, changed in wrong_values(np.asarray(value.value)):
            yield what, type(value)(changed)
    elif isinstance(value, list):
        yield from _wrong_lists(value)
    elif isinstance(value, (np.ndarray, np.generic)):
        yield from _wrong_shapes(np.asarray(value))
        yield from _wrong_numbers(np.asarray(value))
    elif isinstance(value, str):
        yield "another name", "other"
    elif isinstance(value, int) and not isinstance(value, bool):
        for number in WRONG_INTEGERS[:-1]:
            yield str(number), number
    elif isinstance(value, float):
        for number in WRONG_FLOATS:
            yield str(number), number


def _wrong_lists(values):
    yield "one more", [*values, *values[:1]]
    if values:
        yield "none", []
        for what, changed in wrong_values(values[0]):
            yield f"first, {what}", [changed, *values[1:]]


def _wrong_shapes(array):
    yield "another axis", array[np.newaxis]
    yield "an axis at the end", array[..., np.newaxis]
    if array.ndim:
        yield "its first number", array.reshape(-1)[:1]
    if array.size:
        yield "a scalar", array.reshape(-1)[0]
    for axis in range(array.ndim):
        before = (slice(None),) * axis
        yield f"axis {axis} empty", array[(*before, slice(0))]
        yield f"axis {axis} shorter", array[(*before, slice(-1))]
        yield f"axis {axis} doubled", np.concatenate([array, array], axis)


def _wrong_numbers(array):
    wrong = {"i": WRONG_INTEGERS, "f": WRONG_FLOATS}.get(array.dtype.kind, ())
    for number in wrong if array.size else ():
        if array.dtype.kind == "i" and number > np.iinfo(array.dtype).max:
            number = np.iinfo(array.dtype).max
        for place in {0, array.size - 1}:
            changed = array.copy()
            changed.flat[place] = number
            yield f"{number} at {place}", changed
