"""Finds out that the tags of a file are separated by another character."""

import re
from collections.abc import Sequence
from typing import NamedTuple

_SEPARATORS = (",", ";", "|")
# Fewer fields with several parts tell nothing: their number, and their share.
_MIN_COUNT, _MIN_SHARE = 3, 0.1
# Share of the fields from which semicolons and bars are no part of names.
_CERTAIN_SHARE = 0.3
# Share of the later parts that also come first. It is 0.37 to 0.71 for tags
# with commas between them, and up to 0.09 for names and titles with commas.
_MIN_MOVED = 0.2
# Share of the distinct tags with another separator whose parts are all tags.
_MIN_JOINED = 0.3
# Names have a space after a comma, and numbers such as 1,000 have none. Names
# hardly have a semicolon or a bar, except of an entity such as "&amp;".
_UNLIKE_NAMES = {
    ",": re.compile(r"[^\W\d]{2},[^\W\d]{2}"),
    ";": re.compile(r"(?<!&\w{2})(?<!&\w{3})(?<!&\w{4})(?<!&#\d{2});."),
    "|": re.compile(r"[|]"),
}
# Share of all fields, and of the fields with the other separator, from which
# such places tell that it separates tags.
_MIN_UNLIKE, _MIN_UNLIKE_SHARE = 0.01, 0.5


class Finding(NamedTuple):
    """Another separator, and what shows it."""

    separator: str
    #: A tag that has it.
    example: str
    #: How many have it.
    fields: int
    #: Whether other fields have the given separator.
    is_mixed: bool


def other_separator(fields: Sequence[str], separator: str) -> Finding | None:
    """The separator that fields of tags seem to have, if it is another one.

    A name such as "Music, Baroque" has a comma, too. But its parts keep their
    places: "Music" is first and "Baroque" last. A tag may be first or alone in
    one field, and last in another. If some fields have the given separator,
    their tags are known: "food,cake" is two tags if "food" and "cake" are
    tags of other fields. A comma without a space is not of a name, either.
    """
    if not separator:
        return None
    is_mixed = any(separator in field for field in fields)
    has_moved = _joins_tags if is_mixed else _separates
    for other in _SEPARATORS:
        if other == separator or not (
            has_moved(other, fields, separator) or _is_unlike(other, fields)
        ):
            continue
        shown = [field for field in fields if other in field]
        tags = _parts(shown[0], separator)
        example = next(tag for tag in tags if other in tag)
        return Finding(other, example, len(shown), is_mixed)
    return None


def of_known_tags(unknown: Sequence[str], known: set[str]) -> str | None:
    """The separator at which most unknown tags are known ones, or None."""
    for other in _SEPARATORS:
        joined = [
            other in tag and known.issuperset(_parts(tag, other))
            for tag in unknown
        ]
        if 2 * sum(joined) > len(unknown):
            return other
    return None


def _parts(field, separator):
    return [part.strip() for part in field.split(separator)]


def _separates(other, fields, separator):
    """Whether fields without the given separator have the other one."""
    parts = [_parts(field, other) for field in fields]
    several = [x for x in parts if len(x) > 1]
    if len(several) < max(_MIN_COUNT, _MIN_SHARE * len(fields)):
        return False
    if other != "," and len(several) >= _CERTAIN_SHARE * len(fields):
        return True
    first = {x[0] for x in parts}
    has_moved = [part in first for x in several for part in x[1:]]
    return sum(has_moved) >= _MIN_MOVED * len(has_moved)


def _joins_tags(other, fields, separator):
    """Whether tags are joined by the other separator in some fields."""
    tags = {tag for field in fields for tag in _parts(field, separator)}
    several = [_parts(tag, other) for tag in tags if other in tag]
    joined = [parts for parts in several if tags.issuperset(parts)]
    return len(joined) >= max(_MIN_COUNT, _MIN_JOINED * len(several))


def _is_unlike(other, fields):
    """Whether the separator often stands where it does not in names."""
    given = sum(other in field for field in fields)
    found = sum(bool(_UNLIKE_NAMES[other].search(field)) for field in fields)
    least = max(_MIN_UNLIKE * len(fields), _MIN_UNLIKE_SHARE * given)
    return found >= max(_MIN_COUNT, least)
