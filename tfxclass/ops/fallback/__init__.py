"""Fallbacks of the compiled ops, for where these cannot be loaded.

The ops that training and exporting the usual heads need compute the same in
TensorFlow's own ops: slower, and equal but for rounding. Random numbers are
others, of the same distribution. Fallbacks check only what users pass, such as
labels. The other ops raise `NeedsCompiledOps`.
"""

import types

from tfxclass.ops.fallback import row_update
from tfxclass.ops.fallback import softmax_blocks
from tfxclass.ops.fallback.active_classes import active_classes
from tfxclass.ops.fallback.class_tree import tree_log_probabilities
from tfxclass.ops.fallback.refused import REFUSED
from tfxclass.ops.fallback.refused import refusing

_FUNCTIONS = (
    active_classes,
    tree_log_probabilities,
    row_update.lazy_adagrad_update,
    row_update.lazy_adam_update,
    row_update.lazy_sgd_update,
    row_update.sum_duplicate_rows,
    softmax_blocks.empty_like,
    softmax_blocks.softmax_block_grad,
    softmax_blocks.softmax_block_stats,
    softmax_blocks.sparsemax_threshold,
    softmax_blocks.top_k_block,
    softmax_blocks.write_rows,
)
#: In place of the module that `tf.load_op_library` returns: each compiled op.
ops = types.SimpleNamespace(
    **{f"tfxclass_{x.__name__}": x for x in _FUNCTIONS},
    **{f"tfxclass_{op}": refusing(op) for op in REFUSED},
)
