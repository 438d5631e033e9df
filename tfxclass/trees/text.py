"""Trees drawn as text."""

from collections.abc import Sequence
from typing import Any


def draw(tree: Any, names: Sequence[str] | None = None) -> str:
    """Lines of `tree`, a node a line, children below their parent."""
    of_leaf = dict(zip(tree.leaves.tolist(), range(tree.num_classes)))

    def label(node):
        if node not in of_leaf:
            return "."
        c = of_leaf[node]
        return str(c) if names is None else f"{c} {names[c]}"

    lines = [label(0)]
    # Not recursive: a chain may be deeper than Python's stack.
    pending = _children(tree, 0, "")
    while pending:
        node, indent, is_last = pending.pop()
        lines.append(indent + ("└─ " if is_last else "├─ ") + label(node))
        below = indent + ("   " if is_last else "│  ")
        pending.extend(_children(tree, node, below))
    return "\n".join(lines)


def _children(tree, node, indent):
    """`(node, indent, whether it is the last)`, the last one first."""
    first, count = tree.first_children[node], tree.num_children[node]
    children = range(int(first + count) - 1, int(first) - 1, -1)
    return [(child, indent, i == 0) for i, child in enumerate(children)]
