"""Points in time, given as numbers or as dates, as arrays with an order."""

import datetime
from typing import Any

import numpy as np

from tfxclass.checks import as_array


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
        found, bad = [], array[~np.isfinite(array)].tolist()
    else:
        # Of a Series, since its array may not know the time zone.
        found = [_moment(value) for value in values]
        bad = [x for x, moment in zip(values, found) if moment is None]
    if bad:
        raise ValueError(
            f"`{name}` must be finite numbers, or dates: datetime64, Python's "
            "datetime or date, or strings such as '2024-05-31T18:00'. "
            f"Received: {bad[0]!r}, a {type(bad[0]).__name__}"
        )
    if array.dtype.kind in "iuf":
        return array, "numbers"
    zones = {moment.tzinfo for moment in found}
    if len(zones) > 1:
        raise ValueError(
            f"`{name}` must be dates of one time zone, or all without one. "
            f"Received: {sorted(map(str, zones))[:3]}. Fix: convert them to "
            "UTC first, e.g. with pandas.to_datetime(times, utc=True)"
        )
    if zones <= {None}:
        return np.array(found, "datetime64[us]"), "dates"
    utc = datetime.timezone.utc
    found = [m.astimezone(utc).replace(tzinfo=None) for m in found]
    return np.array(found, "datetime64[us]"), "dates with a time zone"


def _moment(value):
    """A `datetime.datetime`, or None for what is none."""
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    if isinstance(value, str):
        try:
            # Python 3.10 does not read the letter.
            value = value.replace("Z", "+00:00")
            value = datetime.datetime.fromisoformat(value)
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
