"""Puts the pages of the site together, for `mkdocs build`: `make docs`.

    python docs/site.py build/pages

Copies README.md and all that it and other pages link to, each at its own path,
so that links hold as they do in the repository; and writes a page of the API
for tfxclass and for each public module, whose names docs/api_groups.py lists by
task. Needs no TensorFlow.
"""

import ast
import pathlib
import re
import shutil
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
# The folder of this file is not on the path where a test loads it.
sys.path.insert(0, str(ROOT / "docs"))
from api_groups import GROUPS  # noqa: E402
from api_groups import LEFT_OUT  # noqa: E402, F401
from api_groups import MEMBERS  # noqa: E402
from api_groups import TOP_LEVEL  # noqa: E402

#: Modules of the API, a page each; `TOP_LEVEL` is the page "tfxclass".
MODULES = tuple(GROUPS)
_IMPORTS = """Examples assume these imports:

```python
import keras
import numpy as np
import tensorflow as tf
import tfxclass
```
"""


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


def module_file(module: str) -> pathlib.Path:
    """The file of a module, such as "layers" or "tfxclass_text.fields"."""
    module = "tfxclass_text" if module == "text" else module
    is_text = module.startswith("tfxclass_text")
    path = ROOT if is_text else ROOT / "tfxclass"
    path /= module.replace(".", "/")
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def public_names(module: str) -> list[str]:
    """Names in `__all__` of a module, or of its classes and functions."""
    tree = ast.parse(module_file(module).read_text(encoding="utf8"))
    for node in tree.body:
        if isinstance(node, ast.Assign) and node.targets[0].id == "__all__":
            return ast.literal_eval(node.value)
    kinds = (ast.ClassDef, ast.FunctionDef)
    names = [node.name for node in tree.body if isinstance(node, kinds)]
    return [name for name in names if not name.startswith("_")]


def summary(module: str, name: str) -> str:
    """The first line of the docstring of a name, "" without one."""
    tree = ast.parse(module_file(module).read_text(encoding="utf8"))
    for node in tree.body:
        if getattr(node, "name", None) == name:
            return (ast.get_docstring(node) or "").partition("\n")[0]
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                source = node.module.removeprefix("tfxclass.")
                is_ours = node.module.startswith("tfxclass")
                if alias.name == name and is_ours:
                    return summary(source, name)
    return ""


def full_name(path: str) -> str:
    """Where a name of the API is defined for readers, "tfxclass.layers.X"."""
    if path.startswith("text."):
        return path.replace("text.", "tfxclass_text.", 1)
    if module_file(path).exists():  # The function of a module of its name.
        path += "." + path.rpartition(".")[2]
    return f"tfxclass.{path}"


def entry(path: str) -> str:
    """What mkdocstrings replaces by the docstring of `path`."""
    if path.startswith("text."):
        return f"::: {full_name(path)}"
    # Other methods are for subclasses and for the library itself.
    members = MEMBERS.get(path, False)
    return f"::: {full_name(path)}\n    options:\n      members: {members}"


def api_page(title: str, groups: dict[str, list[str]], module: str) -> str:
    """Markdown of a page: a table of its names, then their docstrings.

    Args:
        title: of the page.
        groups: names by task.
        module: the module of the names, "" for tfxclass itself.
    """
    prefix = f"{module}." if module else ""
    parts = [f"# {title}", _IMPORTS]
    for group, names in groups.items():
        rows = [
            f"| [`{name}`][{full_name(prefix + name)}] | "
            f"{summary(module or '__init__', name)} |"
            for name in names
        ]
        parts.append("\n".join([f"| {group} | |", "| --- | --- |", *rows]))
    for group, names in groups.items():
        parts.append(f"## {group}")
        parts += [entry(prefix + name) for name in names]
    return "\n\n".join(parts) + "\n"


def write(folder: pathlib.Path) -> None:
    """Writes all pages into `folder`, anew."""
    shutil.rmtree(folder, ignore_errors=True)
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    for path in linked_files(pages):
        if path.is_dir():
            continue
        copy = folder / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)
        if path.suffix == ".md" and path.is_relative_to(ROOT / "benchmarks"):
            # Wide tables take the place of the table of contents.
            text = path.read_text(encoding="utf8")
            copy.write_text("---\nhide: [toc]\n---\n\n" + text, encoding="utf8")
    shutil.copyfile(ROOT / "docs" / "site.css", folder / "site.css")
    api = folder / "api"
    api.mkdir()
    pages = {"tfxclass": api_page("tfxclass", TOP_LEVEL, "")}
    for module, groups in GROUPS.items():
        pages[module] = api_page(f"tfxclass.{module}", groups, module)
    for name, text in pages.items():
        (api / f"{name}.md").write_text(text, encoding="utf8")


if __name__ == "__main__":
    write(pathlib.Path(sys.argv[1]).resolve())
