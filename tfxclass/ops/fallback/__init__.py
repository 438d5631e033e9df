"""Fallbacks of the compiled ops, for where these cannot be loaded.

`ops` has a function of the name and the arguments of each compiled op. The ops
that training and exporting the usual heads need compute the same in
TensorFlow's own ops: slower, and equal but for rounding. Random numbers are
others, of the same distribution. Fallbacks check only what users pass, such as
labels. The other ops raise `NeedsCompiledOps`
(`tfxclass.ops.fallback.refused`).

`TFXCLASS_FALLBACK=1` chooses them (`tfxclass.ops.library`).
"""

import types

from tfxclass.ops.fallback.active_classes import active_classes
from tfxclass.ops.fallback.class_tree import tree_log_probabilities
from tfxclass.ops.fallback.refused import REFUSED
from tfxclass.ops.fallback.refused import refusing
from tfxclass.ops.fallback.row_update import lazy_adagrad_update
from tfxclass.ops.fallback.row_update import lazy_adam_update
from tfxclass.ops.fallback.row_update import lazy_sgd_update
from tfxclass.ops.fallback.row_update import sum_duplicate_rows
from tfxclass.ops.fallback.softmax_blocks import empty_like
from tfxclass.ops.fallback.softmax_blocks import softmax_block_grad
from tfxclass.ops.fallback.softmax_blocks import softmax_block_stats
from tfxclass.ops.fallback.softmax_blocks import sparsemax_threshold
from tfxclass.ops.fallback.softmax_blocks import top_k_block
from tfxclass.ops.fallback.softmax_blocks import write_rows

#: In place of the module that `tf.load_op_library` returns.
ops = types.SimpleNamespace(
    tfxclass_active_classes=active_classes,
    tfxclass_empty_like=empty_like,
    tfxclass_lazy_adagrad_update=lazy_adagrad_update,
    tfxclass_lazy_adam_update=lazy_adam_update,
    tfxclass_lazy_sgd_update=lazy_sgd_update,
    tfxclass_softmax_block_grad=softmax_block_grad,
    tfxclass_softmax_block_stats=softmax_block_stats,
    tfxclass_sparsemax_threshold=sparsemax_threshold,
    tfxclass_sum_duplicate_rows=sum_duplicate_rows,
    tfxclass_top_k_block=top_k_block,
    tfxclass_tree_log_probabilities=tree_log_probabilities,
    tfxclass_write_rows=write_rows,
    **{f"tfxclass_{op}": refusing(op) for op in REFUSED},
)
