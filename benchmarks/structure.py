"""How much of the package a reader needs at once, in numbers.

    python -m benchmarks.structure

Each number is of the worst of all heads, samplers or optimizers.
tests/project/test_structure.py keeps the numbers from rising.
"""

import ast
import inspect
import pathlib
import re
import sys

import keras
import numpy as np

import tfxclass
from tfxclass import layers
from tfxclass import optimizers
from tfxclass import samplers

ROOT = pathlib.Path(__file__).parents[1]
# Makers of objects that outlive a call and belong to no object of the user.
_REGISTRIES = r"(.*\.)?(ContextVar|Weak\w+)"
TAGS = 40


def python_files(*folders):
    return [x for name in folders for x in sorted((ROOT / name).rglob("*.py"))]


PACKAGES = python_files("tfxclass", "tfxclass_text")


def syntax_trees():
    """`{path from the root: syntax tree}` of the files of both packages."""
    return {
        path.relative_to(ROOT): ast.parse(path.read_text(encoding="utf-8"))
        for path in PACKAGES
    }


def num_lines(folder):
    return sum(
        len(path.read_text(encoding="utf-8").splitlines())
        for path in python_files(folder)
    )


def members(module, base):
    """The public classes of a module that extend `base`."""
    found = [getattr(module, name) for name in module.__all__]
    return [x for x in found if inspect.isclass(x) and issubclass(x, base)]


HEADS = members(layers, layers.OutputHead)
SAMPLERS = members(samplers, samplers.Sampler)
OPTIMIZERS = members(optimizers, object)


def classes_of_ours(cls):
    """How many classes of the package a class stands on, itself included."""
    return sum(base.__module__.startswith("tfxclass") for base in cls.__mro__)


def arguments_of(cls):
    """Arguments of a class, with those that it passes on."""
    names = set()
    for base in cls.__mro__:
        if base.__module__.startswith("tfxclass"):
            parameters = inspect.signature(base.__init__).parameters.values()
            names |= {p.name for p in parameters if p.kind not in (2, 4)}
    return names - {"self"}


def registries():
    """Where modules keep weak dicts and context variables: `file:line`."""
    return [
        f"{path}:{node.lineno}"
        for path, tree in syntax_trees().items()
        for node in tree.body
        if isinstance(node, (ast.Assign, ast.AnnAssign))
        for call in ast.walk(node)
        if isinstance(call, ast.Call)
        and re.fullmatch(_REGISTRIES, ast.unparse(call.func))
    ]


def attributes_on_others():
    """Attributes of objects of Keras and TensorFlow that are ours, or set."""
    code = "\n".join(path.read_text(encoding="utf-8") for path in PACKAGES)
    # What a tagger loads of itself is its own.
    return set(re.findall(r"\n +(?!self|tagger)\w+\.(_\w+) = ", code)) | {
        node.value
        for tree in syntax_trees().values()
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant)
        and re.fullmatch(r"_tfxclass_\w*", str(node.value))
    }


def calls_of(run):
    """`{(file that calls, file that is called)}` of the package in `run()`."""
    names = {str(path): str(path.relative_to(ROOT)) for path in PACKAGES}
    found = set()

    def note(frame, *_):
        called = names.get(frame.f_code.co_filename)
        if called and frame.f_code.co_name != "<module>":
            by = frame.f_back and frame.f_back.f_code.co_filename
            found.add((names.get(by), called))

    sys.settrace(note)  # Of calls alone: `note` returns nothing for lines.
    try:
        run()
    finally:
        sys.settrace(None)
    return found


def calls_of_a_step():
    """`calls_of` of the step that users get who choose nothing."""
    head = layers.SampledSoftmax(1000, 50)
    model = keras.Sequential([keras.Input([8]), keras.layers.Dense(8), head])
    model.compile(optimizers.HeadAdam(), loss=head.loss)
    x, y = np.zeros((16, 8), np.float32), np.arange(16)
    model.build()
    return calls_of(lambda: model.train_on_batch(x, y))


def calls_of_a_tagger(effort):
    """`calls_of` of `Tagger.fit` with 1,200 texts."""
    texts = [f"word{i % TAGS} about {i % 7} and {i}" for i in range(1200)]
    tags = [[f"tag{i % TAGS}"] for i in range(1200)]
    tagger = tfxclass.text.Tagger(effort=effort, verbose=0)
    return calls_of(lambda: tagger.fit(texts, tags))


def files_of(calls):
    return sorted({called for _, called in calls})


def mutual_pairs(calls):
    """Pairs of files that call each other both ways."""
    return {(a, b) for a, b in calls if a and a < b and (b, a) in calls}


def table():
    """`{what is counted: (number of now, goal)}`."""
    step = calls_of_a_step()
    best, fast = map(calls_of_a_tagger, ("best", "fast"))
    hidden = [*registries(), *attributes_on_others()]
    heads, of_samplers, of_optimizers = (
        map(classes_of_ours, kind) for kind in (HEADS, SAMPLERS, OPTIMIZERS)
    )
    return {
        "lines of heads": (num_lines("tfxclass"), 28_000),
        "lines of the tagger": (num_lines("tfxclass_text"), 6_000),
        "lines of benchmarks": (num_lines("benchmarks"), 9_000),
        "classes of ours under a head": (max(heads), 4),
        "classes of ours under a sampler": (max(of_samplers), 3),
        "classes of ours under an optimizer": (max(of_optimizers), 3),
        "files of the default step": (len(files_of(step)), 28),
        "pairs of files that call each other": (len(mutual_pairs(step)), 3),
        "registries and attributes on others": (len(hidden), 2),
        "arguments of a head": (max(len(arguments_of(x)) for x in HEADS), 18),
        "files of Tagger.fit, best": (len(files_of(best)), 45),
        "files of Tagger.fit, fast": (len(files_of(fast)), 25),
    }


def main():
    print("| what is counted | now | goal |\n| --- | --- | --- |")
    for name, (number, goal) in table().items():
        print(f"| {name} | {number:,} | {goal:,} |")


if __name__ == "__main__":
    main()
