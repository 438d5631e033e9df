"""State belongs to the object that owns it, not to a module.

Values by the name of a head leaked from one model to another that way.
"""

import ast
from pathlib import Path

import tfxclass

# What may stay, and why one object's state cannot reach another by it.
ALLOWED = {
    "core/forward.py:_features_only": "set within one call of a model, which "
    "takes no arguments for its layers",
    "rows/class_matrix.py:_OWNERS": "by the identity of a variable, weakly: "
    "Keras hands optimizers and files variables alone",
    "shards/exchange.py:NO_EXCHANGE": "nothing changes it",
    "ops/library.py:build": "of the process: which library it has loaded",
    "ops/library.py:processor_features": "of the processor",
    "ops/exact_softmax.py:multiplies_bfloat16": "of the processor",
    "ops/placement.py:warn_once": "of the machine: a warning for each reason",
}
MAKERS = (
    "Condition ContextVar Counter Lock OrderedDict RLock Semaphore "
    "WeakKeyDictionary WeakSet WeakValueDictionary count cycle "
    "defaultdict deque dict list local set"
).split()
CHANGES = (
    "add append clear discard extend insert pop popitem remove setdefault "
    "update"
).split()


def name_of(node):
    """`f` of `f`, `a.f`, `f()` and `a.f()`."""
    node = node.func if isinstance(node, ast.Call) else node
    return getattr(node, "attr", getattr(node, "id", ""))


def changed_names(tree):
    """Names whose object some code of the module changes."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Global):
            yield from node.names
        elif isinstance(node, ast.Subscript):
            if not isinstance(node.ctx, ast.Load):
                yield name_of(node.value)
        elif isinstance(node, ast.Attribute) and node.attr in CHANGES:
            yield name_of(node.value)


def is_state(value, is_changed, makers):
    if isinstance(value, ast.Call) and name_of(value) in makers:
        return True
    if isinstance(value, (ast.Dict, ast.List, ast.Set)):
        is_empty = not getattr(value, "keys", getattr(value, "elts", None))
        return is_empty or is_changed
    return is_changed


def states_of(source):
    """Names of a module's state, and of functions that cache results."""
    tree = ast.parse(source)
    changed = set(changed_names(tree))
    makers = [x.name for x in tree.body if isinstance(x, ast.ClassDef)]
    makers += MAKERS
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            decorators = map(name_of, node.decorator_list)
            if {"cache", "lru_cache"} & set(decorators):
                yield node.name
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = getattr(node, "targets", [getattr(node, "target", 0)])
            for target in targets:
                if is_state(node.value, name_of(target) in changed, makers):
                    yield name_of(target)


def test_modules_have_no_state_of_objects():
    root = Path(tfxclass.__file__).parents[1]
    found = {
        f"{path.relative_to(folder)}:{name}"
        for folder in (root / "tfxclass", root / "tfxclass_text")
        for path in sorted(folder.rglob("*.py"))
        for name in states_of(path.read_text())
    }
    assert found - set(ALLOWED) == set(), "move it to the object that owns it"
    assert set(ALLOWED) - found == set(), "gone: delete the exception"


def test_what_is_state():
    source = """
a = {}
b: set = set()
c = weakref.WeakSet()
TABLE = {"x": 1}
d = [1]
d.append(2)
e = None
def f():
    global e
@functools.cache
def g(): ...
NAMES = ["x"]
"""
    assert list(states_of(source)) == ["a", "b", "c", "d", "e", "g"]
