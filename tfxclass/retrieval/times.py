"""Points in time, given as numbers or as dates, as arrays with an order."""

import datetime
from typing import Any

import numpy as np

from tfxclass.checks import as_array

_WANTED = (
    "finite numbers, or dates: datetime64, Python's datetime or date, or "
    "strings such as '2024-05-31T18:00'"
)


def as_times(name: str, values: Any) -> tuple[np.ndarray, str]:
    """Points in time in their order, and their kind; ValueError for others.

    Times are int64, float64 or datetime64 `[n]`, dates with a time zone in UTC.
    Those of one kind, a str, can be compared.
    """
    array = as_array(name, values)
    if array.ndim != 1:
        raise ValueError(
            f"`{name}` must have shape [n]. Received: {array.shape}"
        )
    if array.dtype.kind in "iuf":
        if not np.all(np.isfinite(array)):
            raise _error(name, array[~np.isfinite(array)][0])
        return array, "numbers"
    # Of a Series, since its array may not know the time zone.
    values = list(values)
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
    return np.array(found, "datetime64[us]"), kind


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
