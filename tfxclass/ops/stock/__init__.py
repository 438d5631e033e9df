"""Twins of the compiled ops, for where these cannot be loaded.

`ops` has a function of the name and the arguments of each compiled op, in
TensorFlow's own ops and in NumPy: slower, and equal but for rounding; what is
drawn is drawn by the same law from other random numbers. `TFXCLASS_STOCK=1`
chooses them (`tfxclass.ops.library`). Twins in NumPy run in the process that
built the graph alone, and hold Python's lock.
"""

import types

from tfxclass.ops.stock import active_classes  # noqa: F401
from tfxclass.ops.stock import exact_softmax  # noqa: F401
from tfxclass.ops.stock import forest  # noqa: F401
from tfxclass.ops.stock import groups  # noqa: F401
from tfxclass.ops.stock import hash_functions  # noqa: F401
from tfxclass.ops.stock import kmeans  # noqa: F401
from tfxclass.ops.stock import linear  # noqa: F401
from tfxclass.ops.stock import lsh  # noqa: F401
from tfxclass.ops.stock import neighbor_memory  # noqa: F401
from tfxclass.ops.stock import row_update  # noqa: F401
from tfxclass.ops.stock import softmax_blocks  # noqa: F401
from tfxclass.ops.stock import text_terms  # noqa: F401
from tfxclass.ops.stock import tree_path  # noqa: F401
from tfxclass.ops.stock import tree_search  # noqa: F401
from tfxclass.ops.stock import xc_lines  # noqa: F401
from tfxclass.ops.stock.twin import TWINS

#: In place of the module that `tf.load_op_library` returns.
ops = types.SimpleNamespace(**TWINS)
