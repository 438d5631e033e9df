"""Arguments of a head that earlier versions had, and now belong elsewhere."""

import warnings
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any


def take(
    names: Sequence[str],
    options: Mapping[str, Any] | None,
    arguments: dict[str, Any],
) -> Mapping[str, Any] | None:
    """Moves what earlier versions had as `arguments` to `options`.

    Args:
        names: str, the options.
        options: what the head got as options, or None.
        arguments: keyword arguments of the head, or a configuration of it;
            the options among them are taken out.

    Returns:
        `options` itself if there were none of them, or else a dict.
    """
    moved = {x: arguments.pop(x) for x in names if x in arguments}
    return {**moved, **(options or {})} if moved else options


def take_with_warning(
    head: str,
    argument: str,
    names: Sequence[str],
    options: Mapping[str, Any] | None,
    arguments: dict[str, Any],
) -> Mapping[str, Any]:
    """As `take`, with a warning; refuses unknown options.

    Args:
        head: str, name of the head's class.
        argument: str, the argument that `options` is.
        names, options, arguments: as in `take`.

    Raises:
        ValueError: options that are no dict, one that is none of `names`, or
            one that is given twice.
    """
    if options is not None and not isinstance(options, Mapping):
        raise ValueError(
            f"`{argument}` of {head} must be a dict from the name of an option "
            f"to its value, or None. Received: {options!r}"
        )
    twice = [x for x in names if x in arguments and x in (options or {})]
    if twice:
        raise ValueError(
            f"Give {head} each option once, in `{argument}`. Received: "
            f"{', '.join(twice)} twice"
        )
    taken = take(names, options, arguments)
    if taken is not options:
        old = sorted(set(taken) - set(options or {}))
        warnings.warn(
            f"Use {head}(num_classes, {argument}={{{old[0]!r}: ...}}) instead "
            f"of {head}(num_classes, {old[0]}=...). Received: {', '.join(old)}",
            DeprecationWarning,
            stacklevel=3,
        )
    taken = {} if taken is None else taken
    unknown = sorted(set(taken) - set(names))
    if unknown:
        raise ValueError(
            f"`{argument}` of {head} may have {', '.join(names)}. Received: "
            f"{', '.join(unknown)}"
        )
    return taken
