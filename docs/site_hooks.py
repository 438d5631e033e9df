"""A hook of `mkdocs build`: the address of the repository, if there is one."""

import pathlib
import re
import typing

PYPROJECT = pathlib.Path(__file__).resolve().parent.parent / "pyproject.toml"


def repository_of(text: str) -> str | None:
    """The address in `[project.urls]` of a pyproject.toml, or None."""
    urls = re.search(r"^\[project\.urls\]\n((?:[^\[\n].*\n?|\n)*)", text, re.M)
    found = urls and re.search(
        r'^"?(?:Repository|Source|Homepage)"?\s*=\s*"([^"]+)"', urls[1], re.M
    )
    return found[1] if found else None


def on_config(config: typing.Any) -> typing.Any:
    """Sets `repo_url`: a link at the top of each page."""
    config["repo_url"] = repository_of(PYPROJECT.read_text(encoding="utf8"))
    return config
