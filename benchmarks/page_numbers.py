"""Ties the numbers of README, guides and results pages to their sources.

    python benchmarks/page_numbers.py [PAGE]

lists the numbers that nothing stands for yet. For README and guides
docs/numbers.json has sentences with a place for each number and the cells that
fill them (the expressions of `notes.py`, after the name of a results file):

    "figures": {
      "a step takes {:.0f} ms": ["step_time_large median_ms: method=lsh"],
      "at {:.1f} % of the time": ["100 * growth ms: method=a / method=b"]
    },
    "exempt": {"samples 1 % of the classes": "a default of the layer"}

report.py makes the other pages of sources, where expressions stand in the text.
The numbers of a source outside of expressions are exempt, or a paper prints
them: "text" is the paper's file in ../shared/papers, and "paper" has phrases
of the source whose numbers the paper prints, and where:

    "text": "002_hierarchical_softmax.txt",
    "paper": {"a learning rate of 0.25": "Table I"}

A table needs no phrases: in a column or a row whose first cell begins with
"paper", all numbers are the paper's. Each of these numbers must be in the
paper's text, where that folder is there.

A sentence that is no longer on its page, and a number that nothing stands for,
fail tests/project/test_numbers.py.
"""

import glob
import os
import re
import string
import sys

import measure
import notes

ROOT = os.path.dirname(measure.FOLDER)
TABLE = os.path.join(ROOT, "docs", "numbers.json")
PAPERS = os.path.join(os.path.dirname(ROOT), "shared", "papers")
#: Texts that report.py makes pages of.
SOURCES = (
    "benchmarks/papers/*.md",
    "benchmarks/pages/answers/*.md",
    "benchmarks/results/**/*.md",
)

_NUMBER = r"(?<![\w.,])[-+]?\d+(?:,\d{3})*(?:\.\d+)?"
_UNIT = r"(?:%|(?:ms|s|GB|MB|seconds?|minutes?|hours?|points?|times)\b)"
# A number with a unit, or a fraction: an accuracy, a recall.
_MEASURED = re.compile(rf"{_NUMBER}(?:\s?{_UNIT})|(?<![\w.])0\.\d\d+\b")
_CELL = re.compile(_NUMBER)
_HEADER = re.compile(rf"(?:^|[\s,(]){_UNIT}")
_OF_PAPER = re.compile(r"\W*(?:the )?paper\b", re.I)
_PRINTED = re.compile(r"(?<![\w.])(?:\d+(?:,\d{3})*(?:\.\d+)?|\.\d+)(?!\w)")
# A table that a command computes has a test of its own (docs/scale.md).
_COMPUTED = r"<!-- table: \w+ -->.*?<!-- end -->"
_CODE = re.compile(
    rf"^```.*?^```|`[^`\n]*`|\]\([^)]*\)|{_COMPUTED}", re.M | re.S
)


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

    Code, links, computed tables and expressions need none.
    """
    text = _without_code(text)
    spans = {match.span() for match in _MEASURED.finditer(text)}
    for header, _, cell, start in _cells(text):
        if _HEADER.search(header) and (match := _CELL.search(cell)):
            spans.add((match.start() + start, match.end() + start))
    return sorted(spans)


def _without_code(text):
    for kind in (_CODE, notes.FIGURE):
        text = kind.sub(lambda found: " " * len(found[0]), text)
    return text


def _cells(text):
    """Of tables: the header, the row's first cell, the cell, its place."""
    start, headers = 0, None
    for line in text.splitlines(keepends=True):
        cells = line.split("|")
        if not line.lstrip().startswith("|"):
            headers = None
        elif headers is None:
            headers = cells
        else:
            at = start
            for header, cell in zip(headers, cells):
                yield header, cells[1], cell, at
                at += len(cell) + 1
        start += len(line)


def printed_numbers(text):
    """Numbers of a paper: `1,000` and `1K` are 1000, and `.5` is 0.5."""
    found = {_plain(match[0]) for match in _PRINTED.finditer(text)}
    found |= {x + "000" for x in re.findall(r"(\d+)(?:~\{ m )?[kK]\b", text)}
    # In "10,100,1000" commas are between numbers.
    return found | {_plain(x) for x in re.findall(r"\d+(?:\.\d+)?", text)}


def _plain(number):
    number = number.replace(",", "")
    return "0" + number if number.startswith(".") else number


def paper_text(entry):
    """The text of the paper that an entry names, None where there is none."""
    path = os.path.join(PAPERS, entry.get("text", ""))
    if not os.path.isfile(path):
        return None
    with open(path, encoding="utf8") as f:
        return f.read()


def check(text, entry):
    """What is wrong with a page or a source, a list of sentences."""
    wrong, exempt, of_paper = _covered(text, entry)
    if (paper := paper_text(entry)) is not None:
        printed = printed_numbers(paper)
        wrong += [
            _line("the paper does not print", text, *span)
            for span in _uncovered(_numbers_within(text, of_paper), exempt)
            if _plain(text[slice(*span)]) not in printed
        ]
    return wrong + [
        _line("no source for", text, *span)
        for span in _uncovered(numbers_of(text), exempt + of_paper)
    ]


def _covered(text, entry):
    """Sentences that are not there; spans that have a source; the paper's."""
    wrong, covered, of_paper = [], [], []
    sentences = []
    for template, expressions in entry.get("figures", {}).items():
        sentence = template.format(*map(notes.value, expressions))
        sentences.append((pattern(template, expressions), sentence, covered))
    for kind, spans in (("exempt", covered), ("paper", of_paper)):
        for sentence in entry.get(kind, ()):
            plain = sentence.replace("{", "{{").replace("}", "}}")
            sentences.append((pattern(plain), sentence, spans))
    for wanted, sentence, spans in sentences:
        found = [match.span() for match in re.finditer(wanted, text)]
        spans += found
        if not found:
            wrong.append(f"The page does not say: {sentence!r}")
    if "text" in entry:
        of_paper += [
            (start, start + len(cell))
            for header, first, cell, start in _cells(_without_code(text))
            if _OF_PAPER.match(header) or _OF_PAPER.match(first)
        ]
    return wrong, covered, of_paper


def _numbers_within(text, spans):
    plain = _without_code(text)
    found = {
        match.span()
        for begin, end in spans
        for match in _PRINTED.finditer(plain, begin, end)
    }
    return sorted(found)


def _uncovered(numbers, spans):
    return [
        (begin, end)
        for begin, end in numbers
        if not any(a <= begin and end <= b for a, b in spans)
    ]


def _line(told, text, begin, end):
    line = text[: begin + 1].count("\n") + 1
    around = " ".join(text[max(begin - 40, 0) : end + 20].split())
    return f"Line {line}: {told} {text[begin:end]!r} in {around!r}"


def load():
    return measure.read(TABLE)


def read(page):
    with open(os.path.join(ROOT, page), encoding="utf8") as f:
        return f.read()


def sources():
    found = [glob.glob(x, root_dir=ROOT, recursive=True) for x in SOURCES]
    return sorted(sum(found, []))


def pages():
    """`{path: entry}` of all pages and sources."""
    table = load()
    found = {path: table["sources"].get(path, {}) for path in sources()}
    return table["pages"] | found


def main():
    for page, entry in pages().items():
        if sys.argv[1:] in ([], [page]):
            for line in check(read(page), entry):
                print(f"{page}: {line}")


if __name__ == "__main__":
    main()
