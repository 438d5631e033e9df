"""Arguments of samplers that earlier versions called otherwise."""

import warnings
from collections.abc import Mapping
from typing import Any

#: The former name of the argument of every sampler with an index.
INDEXED = {"query_share": "query_fraction"}
#: Renamed arguments of an `LSHSampler`.
LSH = {**INDEXED, "hash": "hash_family", "rescored": "rerank_factor"}


def translated(names: Mapping[str, str], options: Any) -> Any:
    """A configuration of a saved file, with the names of today.

    Args:
        names: dict from an old name to the new one.
        options: dict by name. Anything else is returned as it is.
    """
    if not isinstance(options, Mapping):
        return options
    return {names.get(name, name): value for name, value in options.items()}


def take(
    sampler: str, names: Mapping[str, str], arguments: dict[str, Any]
) -> dict[str, Any]:
    """Takes old arguments out and returns the new ones in their place.

    Args:
        sampler: str, name of the sampler's class.
        names: dict from an old name to the new one.
        arguments: keyword arguments of the sampler, changed in place.
    """
    found = {}
    for old, new in names.items():
        if old in arguments:
            found[new] = arguments.pop(old)
            warnings.warn(
                f"Use {sampler}({new}={found[new]!r}) instead of {old}=...",
                DeprecationWarning,
                stacklevel=3,
            )
    return found
