"""Finds out that the tags of a file are separated by another character."""

from collections.abc import Sequence

_SEPARATORS = (",", ";", "|")
# Fewer fields with several parts tell nothing: their number, and their share.
_MIN_COUNT, _MIN_SHARE = 3, 0.1
# Share of the fields from which semicolons and bars are no part of names.
_CERTAIN_SHARE = 0.3
# Share of the later parts that also come first. It is 0.37 to 0.71 for tags
# with commas between them, and up to 0.09 for names and titles with commas.
_MIN_MOVED = 0.2


def other_separator(fields: Sequence[str], separator: str) -> str | None:
    """The separator that fields of tags seem to have, if it is another one.

    A name such as "Music, Baroque" has a comma, too. But its parts keep their
    places: "Music" is first and "Baroque" last. A tag may be first or alone in
    one field, and last in another.

    Args:
        fields: str, the tags of some rows.
        separator: str, the separator that was given.

    Returns:
        A str, or None if a field has `separator`, or no other one is likely.
    """
    if not separator or any(separator in field for field in fields):
        return None
    others = [x for x in _SEPARATORS if x != separator]
    return next((x for x in others if _separates(x, fields)), None)


def _separates(separator, fields):
    parts = [[x.strip() for x in field.split(separator)] for field in fields]
    several = [x for x in parts if len(x) > 1]
    if len(several) < max(_MIN_COUNT, _MIN_SHARE * len(fields)):
        return False
    if separator != "," and len(several) >= _CERTAIN_SHARE * len(fields):
        return True
    first = {x[0] for x in parts}
    has_moved = [part in first for x in several for part in x[1:]]
    return sum(has_moved) >= _MIN_MOVED * len(has_moved)
