"""Counts how long and how plain the sentences of guides and docstrings are.

    python docs/sentences.py               # guides and docstrings, with bounds;
                                           # private docstrings, too
    python docs/sentences.py FOLDER ...    # all docstrings of other packages

Prints the counts, and the twenty worst sentences of a part that passes a bound
or of a FOLDER. Exits with 1 where a count is above its bound, so that `make
docs` stops. Counts are a symptom: a page passes when it reads well.

Code, tables, headings, links' addresses and references are no sentences.
Nothing is imported: docstrings are read from the source.
"""

import ast
import inspect
import pathlib
import re
import sys
import typing

ROOT = pathlib.Path(__file__).resolve().parent.parent
#: Guides outside docs/.
GUIDES = (
    "README.md",
    "CONTRIBUTING.md",
    "custom_ops/gpu_tests/README.md",
    "examples/README.md",
    "examples/multi_worker/README.md",
    "examples/reverse_dictionary/README.md",
    "serving/README.md",
)
MAX_WORDS = 35
#: Shorter ones are labels and fragments, and would lower the mean.
MIN_WORDS = 6
#: The highest value of each count.
BOUNDS = {
    "words a sentence": 15.5,
    "over 35 words, %": 3.5,
    "that of, those of, in 1,000 words": 0.1,
    "beside, in 1,000 words": 0.1,
    "sentences that begin with Of, %": 0.1,
}
THAT_OF = re.compile(r"\b(?:that|those) of\b", re.I)
BESIDE = re.compile(r"\bbeside\b", re.I)
OF = re.compile(r"Of\b")
ABBREVIATION = re.compile(r"\b(al|cf|e\.g|i\.e|eq|fig|vs|approx|no)\.", re.I)
END = re.compile(r"(?<=[.!?])[\"')\]*]*\s+(?=[\"'(\[*]*[A-Z0-9`])")


class Sentence(typing.NamedTuple):
    """A sentence, and the page or the name whose text has it."""

    place: str
    text: str

    @property
    def words(self) -> int:
        """How many words it has, split at white space."""
        return len(self.text.split())


def plain(paragraph: str) -> str:
    """A paragraph on one line, without addresses of links."""
    text = re.sub(r"!\[[^\]]*\]\([^)]*\)", "", paragraph)
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
    text = re.sub(r"https?://\S+", "address", text)
    return " ".join(text.replace("**", "").split())


def sentences_of(place: str, paragraphs: list[str]) -> list[Sentence]:
    """Sentences of a text's paragraphs, in order."""
    found = []
    for paragraph in paragraphs:
        text = ABBREVIATION.sub(r"\1", plain(paragraph))
        found += [Sentence(place, part.strip()) for part in END.split(text)]
    return [sentence for sentence in found if sentence.words >= MIN_WORDS]


def paragraphs_of_page(text: str) -> list[str]:
    """Paragraphs and list items of Markdown."""
    text = re.sub(r"<!--.*?-->", "", text, flags=re.S)
    text = re.sub(r"^ *```.*?^ *```", "", text, flags=re.S | re.M)
    text = re.sub(r"^(#|\|).*$", "", text, flags=re.M)
    text = re.sub(r"^ *(?:[-*]|\d+\.) ", "\n\n", text, flags=re.M)
    return re.split(r"\n\s*\n", text)


SECTION = re.compile(r"([A-Z][\w ]*):$")
ENTRY = re.compile(r"\s+\*{0,2}[\w`\"][^:.]{0,60}: |\s*(?:[-*]|\d+\.) ")


def paragraphs_of_docstring(text: str) -> list[str]:
    """Paragraphs and entries of a docstring, without code and references."""
    text = re.sub(r"^ *```.*?^ *```", "", text, flags=re.S | re.M)
    # The indent of a section's text: what is deeper after a blank line is code.
    found, indent, is_skipped = [""], 0, False
    for line in inspect.cleandoc(text).splitlines():
        width = len(line) - len(line.lstrip())
        if not line.strip():
            found.append("")
            continue
        if section := SECTION.match(line):
            indent, is_skipped = None, section[1].startswith("Reference")
            found.append("")
            continue
        if width == 0:
            indent, is_skipped = 0, False
        indent = width if indent is None else indent
        is_code = found[-1] == "" and width > indent + 2
        if is_skipped or is_code or ">>>" in line:
            continue
        if width == indent and ENTRY.match(line):
            found.append("")
            line = ENTRY.sub("", line, count=1)
        found[-1] += line + "\n"
    return found


def module_path(name: str) -> pathlib.Path:
    """The source file of a module or of a package."""
    path = ROOT / name.replace(".", "/")
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def public_names(tree: ast.Module) -> list[str]:
    """`__all__`, or the names of its classes and functions."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == (
            "__all__"
        ):
            return ast.literal_eval(node.value)
    return [node.name for node in tree.body if has_docstring(node)]


def has_docstring(node: ast.AST) -> bool:
    """Whether it is a public class or function with a docstring."""
    kinds = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    return (
        isinstance(node, kinds)
        and not node.name.startswith("_")
        and ast.get_docstring(node) is not None
    )


def docstrings_of(node: ast.AST, place: str) -> dict[str, str]:
    """Docstrings of a class or function, and of its public methods."""
    found = {place: ast.get_docstring(node)} if has_docstring(node) else {}
    if isinstance(node, ast.ClassDef):
        for part in filter(has_docstring, node.body):
            found |= docstrings_of(part, f"{place}.{part.name}")
    return found


def public_docstrings(module: str = "tfxclass") -> dict[str, str]:
    """Docstrings of what a package exports, and its public subpackages."""
    tree = ast.parse(module_path(module).read_text(encoding="utf8"))
    sources = {
        alias.asname or alias.name: (node.module, alias.name)
        for node in tree.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    here = {getattr(node, "name", None): node for node in tree.body}
    found = {}
    for name in public_names(tree):
        if name in here:
            found |= docstrings_of(here[name], f"{module}.{name}")
        elif name in sources:
            found |= imported_docstrings(*sources[name])
    return found


def imported_docstrings(module: str, name: str) -> dict[str, str]:
    """Docstrings of `from module import name`."""
    if module_path(f"{module}.{name}").exists():
        return public_docstrings(f"{module}.{name}")
    tree = ast.parse(module_path(module).read_text(encoding="utf8"))
    for node in tree.body:
        if getattr(node, "name", None) == name:
            return docstrings_of(node, f"{module}.{name}")
    return {}


def every_docstring() -> dict[str, str]:
    """Docstrings of what both packages export."""
    return public_docstrings() | public_docstrings("tfxclass_text")


def all_docstrings(folder: str | pathlib.Path) -> dict[str, str]:
    """Docstrings of all modules, classes and functions below a folder."""
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    found = {}
    for path in sorted(pathlib.Path(folder).rglob("*.py")):
        if "test" in path.name:
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf8"))):
            if isinstance(node, kinds) and (text := ast.get_docstring(node)):
                line = getattr(node, "lineno", 1)
                found[f"{path}:{line}"] = text
    return found


def guide_sentences() -> list[Sentence]:
    """Sentences of README and guides."""
    pages = [ROOT / page for page in GUIDES]
    pages += sorted((ROOT / "docs").rglob("*.md"))
    found = []
    for page in pages:
        text = page.read_text(encoding="utf8")
        place = str(page.relative_to(ROOT))
        found += sentences_of(place, paragraphs_of_page(text))
    return found


def docstring_sentences(docstrings: dict[str, str]) -> list[Sentence]:
    """Sentences of docstrings by the name of what they describe."""
    found = []
    for place, text in docstrings.items():
        found += sentences_of(place, paragraphs_of_docstring(text))
    return found


def counts(sentences: list[Sentence]) -> dict[str, float]:
    """The counts of `BOUNDS`."""
    words = sum(sentence.words for sentence in sentences)
    text = "\n".join(sentence.text for sentence in sentences)
    long = sum(sentence.words > MAX_WORDS for sentence in sentences)
    of = sum(bool(OF.match(sentence.text)) for sentence in sentences)
    values = (
        words / len(sentences),
        100 * long / len(sentences),
        1000 * len(THAT_OF.findall(text)) / words,
        1000 * len(BESIDE.findall(text)) / words,
        100 * of / len(sentences),
    )
    return dict(zip(BOUNDS, values))


def badness(sentence: Sentence) -> float:
    """Its length, and 20 words more for each phrase that is hard to read."""
    phrases = len(THAT_OF.findall(sentence.text))
    phrases += len(BESIDE.findall(sentence.text))
    phrases += bool(OF.match(sentence.text))
    return sentence.words + 20 * phrases


def report(title: str, sentences: list[Sentence], worst: int = 0) -> bool:
    """Prints counts, and the worst sentences where they are asked for or a
    bound is passed. Whether all bounds hold.
    """
    found = counts(sentences)
    are_good = all(value <= BOUNDS[name] for name, value in found.items())
    print(f"{title}: {len(sentences)} sentences")
    for name, value in found.items():
        mark = "" if value <= BOUNDS[name] else "  <- too many"
        print(f"  {value:6.2f} (bound {BOUNDS[name]}) {name}{mark}")
    shown = worst if are_good else 20
    for sentence in sorted(sentences, key=badness, reverse=True)[:shown]:
        print(f"  [{sentence.words}] {sentence.place}: {sentence.text}")
    return are_good


def main(folders: list[str]) -> int:
    """The exit code: 1 if a bound is passed."""
    if folders:
        for folder in folders:
            report(folder, docstring_sentences(all_docstrings(folder)), 20)
        return 0
    are_good = [
        report("guides", guide_sentences()),
        report("docstrings", docstring_sentences(every_docstring())),
    ]
    # Private ones are for readers of the code.
    for folder in ("tfxclass", "tfxclass_text", "tfxclass_serve"):
        found = docstring_sentences(all_docstrings(ROOT / folder))
        are_good.append(report(f"all docstrings of {folder}", found))
    return int(not all(are_good))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
