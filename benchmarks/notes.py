"""The text under a title of a results page: results/<name>.md, and only there.

A figure that compares rows of the table is not written by hand but computed
from them when the page is made:

    {{median_ms: classes=670091; method=dense}}
    {{median_ms: method=dense / method=tfxclass}}
    {{cpu_s: method=dense / wall_s: method=dense}}

is the cell of the one row with these values, or the ratio of two cells. The
column of the second one may be left out where it is that of the first. A page
that has no table of its own names the file first, and perhaps a factor:

    {{100 * comparison/verses_steps precision@1: method=uniform}}
"""

import re
import textwrap

import measure

FIGURE = re.compile(r"\{\{(.+?)\}\}", re.DOTALL)


def wrapped(text):
    return "\n\n".join(map(_wrapped, text.split("\n\n")))


def _wrapped(paragraph):
    # Lists and tables stay as they are; no line begins a list with a plus.
    if paragraph.startswith(("- ", "|", "#", "```", "1. ")):
        return paragraph
    lines = textwrap.wrap(
        " ".join(paragraph.split()).replace(" + ", "\0+ "),
        80,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return "\n".join(lines).replace("\0", " ")


def filled(text, rows):
    return FIGURE.sub(lambda found: figure(found[1], rows), text)


def figure(expression, rows):
    """What stands for `expression`, the inside of two pairs of braces."""
    value = number(expression, rows)
    if " / " in expression:
        return f"{value:,.0f}" if value >= 10 else f"{value:.2g}"
    return f"{value:,.0f}" if value >= 1000 else measure.cell(value)


def results(name):
    """Rows of results/<name>.json, which must name its command and machine."""
    path = measure.result_path(name + ".json")
    if (record := measure.recorded(name)) is None:
        raise ValueError(f"No results file for {name!r}: {path}")
    told = [row.get("measured", record) for row in record["rows"]]
    if not all(one.get("command") and one.get("machine") for one in told):
        raise ValueError(f"{path} must name its command and machine.")
    return record["rows"]


def value(expression):
    """The number of `FACTOR * FILE CELL`; the factor may be left out."""
    expression = " ".join(expression.split())
    factor, times, rest = expression.partition(" * ")
    name, _, cell = (rest if times else expression).partition(" ")
    found = number(cell, results(name))
    return float(factor) * found if times else found


def filled_from_files(text):
    """A page's text, with the figures of results files, in lines of 80."""

    def shown(found):
        number = value(found[1])
        return f"{number:,.0f}" if number >= 1000 else f"{number:.3g}"

    return wrapped(FIGURE.sub(shown, text.strip()))


def number(expression, rows):
    """The cell that `expression` names, or the ratio of two."""
    expression = " ".join(expression.split())
    first, slash, second = expression.partition(" / ")
    column, value = _cell(first, None, rows)
    return value / _cell(second, column, rows)[1] if slash else value


def _cell(text, column, rows):
    """A column, `column` where the text has none, and the value in it."""
    own, colon, where = text.partition(": ")
    if not colon or "=" in own:
        own, where = column, text
    wanted = [pair.split("=", 1) for pair in where.split("; ")]
    found = [
        row[own]
        for row in rows
        if own in row and all(str(row.get(k)) == v for k, v in wanted)
    ]
    if len(found) != 1:
        raise ValueError(
            "A figure of a note must name one cell. Received: "
            f"{text!r} with {len(found)} cells in column {own!r}"
        )
    return own, found[0]
