"""Points in time, given as numbers or as dates, as arrays with an order."""

import datetime
import numbers
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
    array, kind = _of_column(values)
    if array is None:
        array = as_array(name, values)
        kind = "numbers" if array.dtype.kind in "iuf" else "dates"
    if array.ndim != 1:
        raise ValueError(
            f"`{name}` must have shape [n]. Received: {array.shape}"
        )
    if array.dtype.kind in "OUS":
        array, kind = _of_objects(name, array.tolist())
    is_known = array.dtype.kind in "iufM"
    if not is_known or not np.all(np.isfinite(array)):
        raise _error(name, f"{array.dtype.name} values", array)
    return Times(array, kind)


def compared(name: str, value: Any, times: Times) -> Any:
    """One point in time that can be compared with `times`; or ValueError."""
    other = as_times(name, [value])
    if other.kind != times.kind and len(times.values):
        raise ValueError(
            f"`{name}` must be like `times`, which are {times.kind}. "
            f"Received: {value!r}"
        )
    return other.values[0]


def _of_column(values):
    """A Series of dates with a time zone, in UTC; or None twice."""
    dtype = getattr(values, "dtype", None)
    zone = getattr(dtype, "tz", None) or getattr(dtype, "time_zone", None)
    if zone is None:
        return None, None
    unit = getattr(dtype, "unit", None) or dtype.time_unit
    array = np.asarray(values, f"datetime64[{unit}]")
    return array, "dates with a time zone"


def _of_objects(name, values):
    """Dates of Python, or strings of them, as datetime64 and their kind."""
    found = [_moment(value) for value in values]
    bad = [v for v, moment in zip(values, found) if moment is None]
    if bad:
        raise _error(name, f"{type(bad[0]).__name__} values", bad)
    zones = {moment.tzinfo for moment in found}
    if len(zones) > 1:
        raise ValueError(
            f"`{name}` must be dates of one time zone, or all without one. "
            f"Received: {sorted(map(str, zones))[:3]}. Fix: convert them to "
            "UTC first, e.g. with pandas.to_datetime(times, utc=True)"
        )
    if zones == {None}:
        return np.array(found, "datetime64[us]"), "dates"
    utc = [m.astimezone(datetime.timezone.utc) for m in found]
    array = np.array([m.replace(tzinfo=None) for m in utc], "datetime64[us]")
    return array, "dates with a time zone"


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


def _error(name, received, values):
    return ValueError(
        f"`{name}` must be {_WANTED}. Received: {received}, among them "
        f"{_first_bad(values)!r}"
    )


def _first_bad(values):
    """A value that is not finite; else the first one."""
    for value in values:
        is_number = isinstance(value, (numbers.Real, np.datetime64))
        if not (is_number and np.isfinite(value)):
            return value
    return values[0]
