"""Puts the pages of the site together, for `mkdocs build`: `make docs`.

    python docs/site.py build/pages

Copies README.md and all that it and other pages link to, each at its own path,
so that links hold as they do in the repository; and writes a page of the API
for each public module, from its `__all__`. Needs no TensorFlow.
"""

import ast
import pathlib
import re
import shutil
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
#: Modules of the API, a page each.
MODULES = (
    "layers",
    "optimizers",
    "samplers",
    "losses",
    "metrics",
    "callbacks",
    "plot",
    "data",
    "text",
    "trees",
    "calibration",
    "recovery",
    "retrieval",
    "distribute",
    "export",
    "planning",
)


def links_of(page: pathlib.Path) -> list[str]:
    """Paths that a page links to, relative to it, without `#` and http."""
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf8"), flags=re.S)
    found = re.findall(r"\]\(([^)\s]+)\)", text)
    paths = [link.split("#")[0] for link in found if "://" not in link]
    return [path for path in paths if path and not path.startswith("mailto:")]


def linked_files(first: list[pathlib.Path]) -> set[pathlib.Path]:
    """`first` and the files of the repository that they lead to.

    Raises:
        FileNotFoundError: a link that leads nowhere.
    """
    found, to_read = set(), list(first)
    while to_read:
        path = to_read.pop()
        if path in found:
            continue
        if not path.exists():
            raise FileNotFoundError(f"A page links to {path}: not there.")
        found.add(path)
        if path.suffix == ".md":
            to_read += [(path.parent / x).resolve() for x in links_of(path)]
    return found


def public_names(module: str) -> list[str]:
    """Names in `__all__` of a module, or of its classes and functions."""
    path = ROOT / "tfxclass" / module
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    tree = ast.parse(path.read_text(encoding="utf8"))
    for node in tree.body:
        if isinstance(node, ast.Assign) and node.targets[0].id == "__all__":
            return ast.literal_eval(node.value)
    kinds = (ast.ClassDef, ast.FunctionDef)
    names = [node.name for node in tree.body if isinstance(node, kinds)]
    return [name for name in names if not name.startswith("_")]


def api_page(module: str) -> str:
    """Markdown that mkdocstrings fills with the docstrings of a module."""
    entries = [f"::: tfxclass.{module}.{x}" for x in public_names(module)]
    return "\n\n".join([f"# tfxclass.{module}", *entries]) + "\n"


def write(folder: pathlib.Path) -> None:
    """Writes all pages into `folder`, anew."""
    shutil.rmtree(folder, ignore_errors=True)
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    for path in linked_files(pages):
        if path.is_dir():
            continue
        copy = folder / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)
    shutil.copyfile(ROOT / "docs" / "site.css", folder / "site.css")
    api = folder / "api"
    api.mkdir()
    for module in MODULES:
        (api / f"{module}.md").write_text(api_page(module), encoding="utf8")


if __name__ == "__main__":
    write(pathlib.Path(sys.argv[1]).resolve())
