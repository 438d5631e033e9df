"""Ties the numbers of README and of the guides to committed results.

    python benchmarks/page_numbers.py [PAGE ...]

lists the numbers of pages that nothing stands for yet. docs/numbers.json has,
for each page, sentences with a place for each number and the cells that fill
them (the expressions of `notes.py`, after the name of a results file):

    "figures": {
      "a step takes {:.0f} ms": ["step_time_large median_ms: method=lsh"],
      "at {:.1f} % of the time": ["100 * growth ms: method=a / method=b"]
    },
    "exempt": {"samples 1 % of the classes": "a default of the layer"}

A sentence that is no longer on its page, and a number that nothing stands for,
fail tests/project/test_numbers.py. Each results file says by which command, on
which machine and when it was measured.
"""

import json
import os
import re
import string
import sys

import measure
import notes

ROOT = os.path.dirname(measure.FOLDER)
TABLE = os.path.join(ROOT, "docs", "numbers.json")

_NUMBER = r"(?<![\w.,])[-+]?\d+(?:,\d{3})*(?:\.\d+)?"
_UNIT = r"(?:%|(?:ms|s|GB|MB|seconds?|minutes?|hours?|points?|times)\b)"
# A number with a unit, or a fraction: an accuracy, a recall.
_MEASURED = re.compile(rf"{_NUMBER}(?:\s?{_UNIT})|(?<![\w.])0\.\d\d+\b")
_CELL = re.compile(_NUMBER)
_HEADER = re.compile(rf"(?:^|[\s,(]){_UNIT}")
# A table that a command computes has a test of its own (docs/scale.md).
_COMPUTED = r"<!-- table: \w+ -->.*?<!-- end -->"
_CODE = re.compile(
    rf"^```.*?^```|`[^`\n]*`|\]\([^)]*\)|{_COMPUTED}", re.M | re.S
)


def filled(template, expressions):
    """A sentence with its numbers, as the page should have it."""
    return template.format(*map(notes.value, expressions))


def pattern(template, expressions=()):
    """A regular expression for a sentence, whatever the line breaks.

    A number that lies halfway between two printed ones may be rounded to both.
    """
    values = iter(list(map(notes.value, expressions)))
    found = ""
    for text, field, spec, _ in string.Formatter().parse(template):
        found += re.sub(r"(?:\\?\s)+", r"\\s+", re.escape(text))
        if field is not None:
            value = next(values)
            near = {format(value * (1 + x), spec) for x in (-1e-9, 0, 1e-9)}
            found += f"(?:{'|'.join(map(re.escape, sorted(near)))})"
    return found


def numbers_of(text):
    """Spans of the numbers that need a source.

    Code, links and computed tables need none.
    """
    text = _CODE.sub(lambda found: " " * len(found[0]), text)
    spans = {match.span() for match in _MEASURED.finditer(text)}
    return sorted(spans | set(_cells(text)))


def _cells(text):
    """Spans of numbers in columns whose header is a unit."""
    start, units = 0, None
    for line in text.splitlines(keepends=True):
        cells = line.split("|")
        if not line.lstrip().startswith("|"):
            units = None
        elif units is None:
            units = [bool(_HEADER.search(cell)) for cell in cells]
        else:
            at = start
            for cell, wanted in zip(cells, units):
                if wanted and (match := _CELL.search(cell)):
                    yield match.start() + at, match.end() + at
                at += len(cell) + 1
        start += len(line)


def check(text, entry):
    """What is wrong with a page, a list of sentences.

    Args:
        text: str, the page.
        entry: dict, the page's part of docs/numbers.json.
    """
    wrong, covered = [], []
    sentences = [
        (pattern(*one), filled(*one))
        for one in entry.get("figures", {}).items()
    ]
    for sentence in entry.get("exempt", {}):
        plain = sentence.replace("{", "{{").replace("}", "}}")
        sentences.append((pattern(plain), sentence))
    for wanted, sentence in sentences:
        found = [match.span() for match in re.finditer(wanted, text)]
        covered += found
        if not found:
            wrong.append(f"The page does not say: {sentence!r}")
    for begin, end in numbers_of(text):
        if not any(a <= begin and end <= b for a, b in covered):
            line = text[: begin + 1].count("\n") + 1
            around = " ".join(text[max(begin - 40, 0) : end + 20].split())
            wrong.append(f"Line {line}: no source for {around!r}")
    return wrong


def load():
    with open(TABLE, encoding="utf8") as f:
        return json.load(f)


def read(page):
    with open(os.path.join(ROOT, page), encoding="utf8") as f:
        return f.read()


def main(pages):
    table = load()
    for page in pages or table["pages"]:
        for line in check(read(page), table["pages"].get(page, {})):
            print(f"{page}: {line}")


if __name__ == "__main__":
    main(sys.argv[1:])
