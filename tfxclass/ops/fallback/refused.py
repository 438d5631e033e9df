"""Compiled ops without a fallback, and the error of a call of one."""

import os
from collections.abc import Callable
from typing import Any

import tensorflow as tf

_FOREST = "A hashing forest (SelectiveSoftmax, HashingForestSampler)"
_CLUSTER = "A cluster index (KMeansSampler)"
_PCA_HASH = "A PCA hash (PCAHashSampler)"
_LSH = "Hash tables of classes (LSHSoftmax, LSHSampler)"
_TREE = "A class tree (HierarchicalSoftmax)"
_NEIGHBORS = "Neighbors of labels (AutoSampler)"
BY_FREQUENCY = "A sample by frequency (LogUniformSampler, FrequencySampler)"
_BY_CLASS = "A step class by class"  # Heads go another way without it.
_INDEXES = {
    "forest": _FOREST,
    "cluster": _CLUSTER,
    "pca_hash": _PCA_HASH,
    "lsh": _LSH,
}
_INDEX_OPS = ("handle", "mark", "build", "advance", "times", "save", "restore")
#: What needs an op, by the name of the op without "tfxclass_".
REFUSED = {
    **{f"{x}_{op}": name for x, name in _INDEXES.items() for op in _INDEX_OPS},
    "forest_query": _FOREST,
    "cluster_members": _CLUSTER,
    "pca_hash_members": _PCA_HASH,
    "lsh_query": _LSH,
    "lsh_members": _LSH,
    "lsh_hash": "A hash code of a vector",
    "k_means": "A search in lists of similar classes (InvertedLists)",
    "halve_groups": "A tree of clusters (tfxclass.trees.clustered)",
    "parse_xc_lines": "A file in the Extreme Classification format (XCFile)",
    "tree_path_loss": _TREE,
    "tree_path_grad": _TREE,
    "tree_top_k": _TREE,
    "tree_log_probabilities_grad": _TREE,
    # `NeighborCache` finds none without them.
    "recall_neighbors": _NEIGHBORS,
    "rank_neighbors": _NEIGHBORS,
    "exact_softmax": _BY_CLASS,
    "exact_softmax_grad": _BY_CLASS,
    "class_sgd_update": _BY_CLASS,
    "class_adagrad_update": _BY_CLASS,
    "class_adam_update": _BY_CLASS,
    "linear_one_vs_rest": "Training a Tagger",
    "count_terms": "Training a Tagger",
    "train_text_embeddings": "Training a Tagger",
    # `SparseLinear` of a Tagger has stock ops for the same.
    "sparse_scores": "The scores of sparse features",
}


class NeedsCompiledOps(RuntimeError):
    """A feature without fallback ops, in a process that has no others.

    Not a NotImplementedError, which `keras.Sequential` hides.
    """


def refusal(feature: str, op: str | None = None) -> NeedsCompiledOps:
    """The error of a feature that needs the op `op`, or several."""
    which = "the compiled ops" if op is None else f"the compiled op {op}"
    version = ".".join(tf.__version__.split(".")[:2])
    fix = (
        "on Linux x86-64, install the wheel (pip install tfxclass) for "
        f"TensorFlow {version}; elsewhere, install g++ and run `make setup` "
        "in a checkout"
    )
    if os.environ.get("TFXCLASS_FALLBACK") == "1":
        fix = f"unset TFXCLASS_FALLBACK. If no ops are installed: {fix}"
    return NeedsCompiledOps(
        f"{feature} needs {which} of tfxclass; this process has only the "
        f"fallback ops. Fix: {fix}."
    )


def refusing(op: str) -> Callable[..., Any]:
    """A function in place of the op `op` of `REFUSED`, which raises."""

    def refuse(*args: Any, **kwargs: Any) -> None:
        raise refusal(REFUSED[op], op)

    return refuse
