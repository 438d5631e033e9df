"""Points in time, given as numbers or as dates, as arrays with an order."""

import datetime
from typing import Any
from typing import NamedTuple

import numpy as np

from tfxclass.checks import as_array

_WANTED = (
    "finite numbers, or dates: datetime64, Python's datetime or date, or "
    "strings such as '2024-05-31T18:00'"
)


class Times(NamedTuple):
    """Points in time that can be compared.

    Attributes:
        values: int64, float64 or datetime64 `[n]`, dates with a time zone in
            UTC.
        kind: str, what can be compared with what.
    """

    values: np.ndarray
    kind: str


def as_times(name: str, values: Any) -> Times:
    """`values` in their order as `Times`; ValueError for others.

    Args:
        name: str, the argument that an error names.
        values: array, list, tuple, or a Series of pandas or polars.
    """
    array = as_array(name, values)
    if array.ndim != 1:
        raise ValueError(
            f"`{name}` must have shape [n]. Received: {array.shape}"
        )
    if array.dtype.kind not in "iuf":
        # Of a Series, since its array may not know the time zone.
        return _dates(name, list(values))
    if not np.all(np.isfinite(array)):
        raise _error(name, array[~np.isfinite(array)][0])
    return Times(array, "numbers")


def compared(name: str, value: Any, times: Times) -> Any:
    """One point in time that can be compared with `times`; or ValueError."""
    other = as_times(name, [value])
    if other.kind != times.kind and len(times.values):
        raise ValueError(
            f"`{name}` must be like `times`, which are {times.kind}. "
            f"Received: {value!r}"
        )
    return other.values[0]


def _dates(name, values):
    """Dates, or strings of them, as datetime64 and their kind."""
    found = [_moment(value) for value in values]
    if None in found:
        raise _error(name, values[found.index(None)])
    zones = {moment.tzinfo for moment in found}
    if len(zones) > 1:
        raise ValueError(
            f"`{name}` must be dates of one time zone, or all without one. "
            f"Received: {sorted(map(str, zones))[:3]}. Fix: convert them to "
            "UTC first, e.g. with pandas.to_datetime(times, utc=True)"
        )
    kind = "dates" if zones <= {None} else "dates with a time zone"
    if kind != "dates":
        utc = datetime.timezone.utc
        found = [m.astimezone(utc).replace(tzinfo=None) for m in found]
    return Times(np.array(found, "datetime64[us]"), kind)


def _moment(value):
    """A `datetime.datetime`, or None for what is none."""
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    if isinstance(value, str):
        try:
            # Python 3.10 does not read the letter.
            value = datetime.datetime.fromisoformat(
                value.replace("Z", "+00:00")
            )
        except ValueError:
            return None
    if isinstance(value, np.datetime64):
        value = value.astype("datetime64[us]").item()
    # pandas' NaT is a datetime that differs from itself.
    if isinstance(value, datetime.datetime) and value == value:
        return value
    if type(value) is datetime.date:
        return datetime.datetime.combine(value, datetime.time())
    return None


def _error(name, value):
    return ValueError(
        f"`{name}` must be {_WANTED}. Received: {value!r}, a "
        f"{type(value).__name__}"
    )
