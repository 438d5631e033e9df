"""What the examples print is for a reader."""

import ast
import pathlib

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    "path",
    [
        "examples/__init__.py",
        "examples/reverse_dictionary/__main__.py",
        "serving/demo.py",
    ],
)
def test_notes_of_tensorflow_are_hidden_first(path):
    """That they are, a process of the server shows: tests/serve."""
    tree = ast.parse((ROOT / path).read_text(encoding="utf8"))
    first = next(x for x in tree.body if isinstance(x, ast.ImportFrom))
    assert (first.module, first.names[0].name) == ("tfxclass_serve", "quiet")
    before = tree.body[: tree.body.index(first)]
    imports = [x for x in before if isinstance(x, ast.Import)]
    names = {name.name for x in imports for name in x.names}
    assert names <= {"os", "subprocess", "sys"}, "Python's own modules"


def test_help_says_what_data_is_read():
    found = [
        call
        for path in sorted((ROOT / "examples").glob("*.py"))
        for call in path.read_text(encoding="utf8").split("add_argument(")
        if call.lstrip().startswith('"--data"')
    ]
    assert found and all("help=" in call for call in found)
