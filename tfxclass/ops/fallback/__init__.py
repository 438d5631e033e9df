"""Fallbacks of the compiled ops, for where these cannot be loaded.

`ops` has a function of the name and the arguments of each compiled op. Those
that training with the usual heads, taggers and exports need compute the same
in TensorFlow's own ops and in NumPy: slower, and equal but for rounding.
Random numbers are others, of the same distribution. The cache of neighbors
stays empty. The rest raise `NeedsCompiledOps`
(`tfxclass.ops.fallback.refused`).

`TFXCLASS_FALLBACK=1` chooses them (`tfxclass.ops.library`). Fallbacks in NumPy
run only in the process that built the graph, and hold Python's lock.
"""

from tfxclass.ops.fallback import active_classes  # noqa: F401
from tfxclass.ops.fallback import exact_softmax  # noqa: F401
from tfxclass.ops.fallback import kmeans  # noqa: F401
from tfxclass.ops.fallback import neighbor_memory  # noqa: F401
from tfxclass.ops.fallback import row_update  # noqa: F401
from tfxclass.ops.fallback import softmax_blocks  # noqa: F401
from tfxclass.ops.fallback import tree_path  # noqa: F401
from tfxclass.ops.fallback import tree_search  # noqa: F401
from tfxclass.ops.fallback.refused import REFUSED
from tfxclass.ops.fallback.refused import refusing
from tfxclass.ops.fallback.registry import ops

for _op in REFUSED:
    setattr(ops, f"tfxclass_{_op}", refusing(_op))
