"""What a tagger chose, as a person reads it."""

from typing import Any


def lines(summary: dict[str, Any]) -> list[str]:
    """A line for each entry; lists that are not short, below their name.

    Args:
        summary: `Tagger.summary`.
    """
    width = max((len(key) for key in summary), default=0)
    found = []
    for key, value in summary.items():
        items = value if isinstance(value, (list, tuple)) else [value]
        first = items[0] if len(items) else "none"
        found.append(f"  {key.replace('_', ' '):<{width}}  {first}")
        found += [f"  {'':<{width}}  {item}" for item in items[1:]]
    return found
