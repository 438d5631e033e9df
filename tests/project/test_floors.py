"""The order of the folders: each uses only those on floors below its own."""

import ast
import pathlib

import tfxclass

ROOT = pathlib.Path(tfxclass.__file__).parent
# From the ground up; a folder may use those on earlier lines. A file of the
# package itself is named as it is.
FLOORS = [
    ["checks", "progress", "text_files", "types"],
    ["initializers", "keras_internals", "paths", "saved_random"],
    ["saving"],
    ["ops"],
    ["callbacks", "core", "data", "retrieval", "shards", "trees"],
    ["rows"],
    ["distribute", "losses", "optimizers", "samplers"],
    ["layers"],
    ["inference"],
    ["calibration", "export", "growth", "metrics", "recovery"],
    ["plot"],
    ["advice", "planning"],
    ["text"],
]
FLOOR_OF = {name: i for i, names in enumerate(FLOORS) for name in names}


def folder_of(path):
    relative = path.relative_to(ROOT)
    return relative.parts[0].removesuffix(".py")


def imported(path):
    """Folders of tfxclass that a file imports from, wherever it does so."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module == "tfxclass":
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = node.module.split(".")
            if names[0] == "tfxclass":
                yield names[1]
        elif isinstance(node, ast.Import):
            for alias in node.names:
                names = alias.name.split(".")
                if names[0] == "tfxclass" and len(names) > 1:
                    yield names[1]


def test_only_the_alias_uses_the_tagger():
    users = [
        str(path.relative_to(ROOT))
        for path in ROOT.rglob("*.py")
        if "import tfxclass_text" in (text := path.read_text(encoding="utf-8"))
        or "from tfxclass_text" in text
    ]
    assert users == ["text.py"]


def test_the_tagger_uses_public_names():
    for path in (ROOT.parent / "tfxclass_text").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom):
                names = [node.module, *(alias.name for alias in node.names)]
                parts = [part for name in names for part in name.split(".")]
                private = [part for part in parts if part.startswith("_")]
                assert private in ([], ["__all__"]), path.name


def test_each_folder_has_a_floor():
    there = {folder_of(path) for path in ROOT.rglob("*.py")} - {"__init__"}
    assert there == set(FLOOR_OF)


def test_folders_use_only_those_below():
    wrong = [
        f"{path.relative_to(ROOT)} uses {name}"
        for path in ROOT.rglob("*.py")
        if folder_of(path) != "__init__"
        for name in imported(path)
        if name != folder_of(path)
        and FLOOR_OF[name] >= FLOOR_OF[folder_of(path)]
    ]
    assert not wrong, "\n".join(wrong)
