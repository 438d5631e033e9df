"""How easy the package is to walk through, in numbers: `docs/architecture.md`.

    python -m benchmarks.structure
    python -m benchmarks.structure --files

The first command prints a table with what was counted before the package was
rebuilt, the goal, and the numbers of now. A training step enters the files in
which a function is called while one step of `SampledSoftmax(sampler="auto")`
with `LazyAdam` is traced and run. The second command lists these files.
"""

import ast
import collections
import inspect
import pathlib
import sys

import keras
import numpy as np

import tfxclass
from tfxclass import layers
from tfxclass import optimizers
from tfxclass import samplers

ROOT = pathlib.Path(tfxclass.__file__).parent
# What was counted before, and the goals.
BEFORE = {
    "largest cycle between folders": ("14", "1"),
    "classes of ours: LazyAdam, SampledSoftmax, AutoSampler": (
        "12, 8, 9",
        "3, 5, 4",
    ),
    "files entered by a training step": ("55", "30"),
    "hidden attributes": ("12", "3"),
    "reads of stack frames": ("2", "0"),
    "replaced methods": ("3", "0"),
    "lines": ("42,800", "35,000"),
    "constructor parameters of a head, at most": ("31", "18"),
}
# Of an attribute whose name is computed: a proxy's, or one of several options.
_COMPUTED = "a computed name"
# What Keras itself sets on tensors.
_MASK = "_keras_mask"
_FRAMES = {"_getframe", "_current_frames", "currentframe", "stack"}
_OWNERS = (
    keras.Variable,
    keras.layers.Layer,
    keras.Model,
    keras.optimizers.Optimizer,
)


def modules():
    """Paths of the package's Python files."""
    return sorted(ROOT.rglob("*.py"))


def trees():
    """The syntax tree of each file; an iterator."""
    return (ast.parse(path.read_text(encoding="utf-8")) for path in modules())


def folder_of(path):
    """The folder of a file, or the file itself where it is in none."""
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def uses():
    """Folders that each folder imports from: dict of sets."""
    found = collections.defaultdict(set)
    for path, tree in zip(modules(), trees()):
        for node in ast.walk(tree):
            for name in _imported(node):
                found[folder_of(path)].add(name)
    found.pop("__init__", None)
    return {a: names - {a} for a, names in found.items()}


def _imported(node):
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom) and node.module == "tfxclass":
        names = [f"tfxclass.{alias.name}" for alias in node.names]
    elif isinstance(node, ast.ImportFrom):
        names = [node.module or ""]
    else:
        names = []
    parts = [name.split(".") for name in names]
    return [p[1] for p in parts if p[0] == "tfxclass" and len(p) > 1]


def largest_cycle():
    """Folders in the largest set that all use each other, or 1."""
    above = uses()
    reached = {}
    for start in above:
        pending, seen = [start], set()
        while pending:
            for name in above.get(pending.pop(), ()):
                if name not in seen:
                    seen.add(name)
                    pending.append(name)
        reached[start] = seen
    sizes = [
        sum(a in reached[b] and b in reached[a] for b in above) for a in above
    ]
    return max(1, *sizes)


def classes_of_ours(cls):
    """How many classes of the package a class stands on, itself included."""
    return sum(base.__module__.startswith("tfxclass") for base in cls.__mro__)


def files_of_a_step():
    """Names of the files in which a step of training calls a function."""
    head = layers.SampledSoftmax(1000, 50, sampler="auto")
    model = keras.Sequential([keras.Input([8]), keras.layers.Dense(8), head])
    model.compile(optimizers.LazyAdam(1e-3), loss=head.loss)
    x, y = np.zeros((16, 8), np.float32), np.arange(16)
    model.build()
    files = set()

    def note(frame, event, _):
        if event == "call" and frame.f_code.co_name != "<module>":
            files.add(frame.f_code.co_filename)

    sys.setprofile(note)
    try:
        model.train_on_batch(x, y)
    finally:
        sys.setprofile(None)
    paths = (pathlib.Path(name) for name in files)
    return sorted(
        str(path.relative_to(ROOT)) for path in paths if ROOT in path.parents
    )


def attributes_set_on_others():
    """Names of the attributes that functions set on objects not their own.

    With `setattr`, or in an assignment whose object is not `self`, `cls` or
    made in the same function.
    """
    found = set()
    for tree in trees():
        constants = _constants(tree)
        for function in ast.walk(tree):
            if not isinstance(function, ast.FunctionDef):
                continue
            own = {"self", "cls", *_made_in(function)}
            for node in ast.walk(function):
                found.update(_set_by(node, own, constants))
    return found


def _constants(tree):
    """Strings that a file's constants stand for."""
    return {
        target.id: node.value.value
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
        for target in node.targets
        if isinstance(target, ast.Name)
    }


def _made_in(function):
    """Names that a function assigns what a class returned to."""
    return {
        target.id
        for node in ast.walk(function)
        if isinstance(node, ast.Assign) and _makes(node.value)
        for target in node.targets
        if isinstance(target, ast.Name)
    }


def _makes(value):
    if not isinstance(value, ast.Call):
        return False
    name = getattr(value.func, "attr", getattr(value.func, "id", ""))
    return name[:1].isupper() or name in ("cls", "super", "__new__")


def _set_by(node, own, constants):
    if isinstance(node, ast.Call):
        function = node.func
        is_setattr = isinstance(function, ast.Name) and function.id == "setattr"
        if is_setattr and getattr(node.args[0], "id", "") not in own:
            name = node.args[1]
            text = getattr(name, "value", None)
            yield text or constants.get(getattr(name, "id", ""), _COMPUTED)
    if isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign)):
        targets = getattr(node, "targets", None) or [node.target]
        for target in targets:
            if isinstance(target, ast.Attribute):
                owner = target.value
                if isinstance(owner, ast.Name) and owner.id not in own:
                    yield target.attr


def replaced_methods(names):
    """Those of `names` that are methods of Keras' objects."""
    return {n for n in names if any(_is_method(x, n) for x in _OWNERS)}


def _is_method(owner, name):
    return inspect.isfunction(inspect.getattr_static(owner, name, None))


def frame_reads():
    """How often a stack frame is read."""
    return sum(
        isinstance(node, ast.Attribute)
        and node.attr in _FRAMES
        and getattr(node.value, "id", "") in ("sys", "inspect")
        for tree in trees()
        for node in ast.walk(tree)
    )


def num_lines():
    """Lines of Python in the package."""
    return sum(
        len(path.read_text(encoding="utf-8").splitlines()) for path in modules()
    )


def constructor_parameters(cls):
    """Parameters of a class, with those that it passes on to ours."""
    names = set()
    for base in cls.__mro__:
        if base.__module__.startswith("tfxclass"):
            parameters = inspect.signature(base.__init__).parameters.values()
            names |= {p.name for p in parameters if p.kind not in (2, 4)}
    return names - {"self"}


def now():
    """What is counted now: dict from a line of `BEFORE` to str."""
    classes = [optimizers.LazyAdam, layers.SampledSoftmax, samplers.AutoSampler]
    heads = [getattr(layers, name) for name in layers.__all__]
    heads = [
        head
        for head in heads
        if inspect.isclass(head) and issubclass(head, layers.OutputHead)
    ]
    marks = attributes_set_on_others()
    replaced = replaced_methods(marks)
    # Attributes that each variable of Keras has are no marks of ours.
    of_keras = {"__name__", _MASK, *dir(keras.Variable(0.0))}
    hidden = {n for n in marks - replaced - of_keras if n[0] == "_"}
    numbers = [
        largest_cycle(),
        ", ".join(str(classes_of_ours(cls)) for cls in classes),
        len(files_of_a_step()),
        f"{len(hidden)}: {', '.join(sorted(hidden))}",
        frame_reads(),
        len(replaced),
        f"{num_lines():,}",
        max(len(constructor_parameters(head)) for head in heads),
    ]
    return dict(zip(BEFORE, map(str, numbers)))


def print_files():
    """Prints the files that a step enters, each with its lines."""
    for name in files_of_a_step():
        lines = (ROOT / name).read_text(encoding="utf-8").splitlines()
        print(f"{len(lines):5} {name}")


def main():
    """Prints the table, or with `--files` the files that a step enters."""
    if sys.argv[1:] == ["--files"]:
        print_files()
        return
    print("| | before | goal | now |\n| --- | --- | --- | --- |")
    for name, counted in now().items():
        before, goal = BEFORE[name]
        print(f"| {name} | {before} | {goal} | {counted} |")


if __name__ == "__main__":
    main()
