"""Hierarchical softmax: a class is a path through a tree."""

from typing import Any

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import ArrayLike

from tfxclass import trees
from tfxclass.checks import check_choice
from tfxclass.checks import check_positive_int
from tfxclass.checks import check_value
from tfxclass.core.class_update import ClassUpdate
from tfxclass.core.forward import Step
from tfxclass.core.targets import Targets
from tfxclass.core.targets import pick_one
from tfxclass.core.targets import take_columns
from tfxclass.layers.class_growth import TreeGrowth
from tfxclass.layers.class_growth import changed_tree
from tfxclass.layers.head_weights import WeightSpec
from tfxclass.layers.head_weights import constant
from tfxclass.layers.head_weights import fixed_spec
from tfxclass.layers.output_head import OutputHead
from tfxclass.losses.options import LABEL_OPTIONS
from tfxclass.ops import class_tree
from tfxclass.ops import library
from tfxclass.ops import placement
from tfxclass.rows.best import mask_missing
from tfxclass.trees import servable_search
from tfxclass.types import Answers
from tfxclass.types import Config


@keras.saving.register_keras_serializable("tfxclass")
class HierarchicalSoftmax(OutputHead):
    """Softmax as a series of decisions from the root of a tree to the class.

    Use it when the exact loss is needed but a full softmax is too slow. A node
    with two children is a logistic regression, and a wider node is a softmax
    over its children. The probability of a class is the product along its path.
    Each training step computes and updates only the O(log(num_classes)) nodes
    on the paths to its labels.

    `trees.clustered` is more accurate than `"huffman"`, which is faster. With
    several labels for each example, `"plt"` on a clustered tree of wide nodes
    (`arity=16, leaf_size=32`) was closest to the full softmax.

    The best classes are found by best-first search. It visits few nodes if the
    model is confident. Logits (`activation=None`) are log-probabilities.

    Args:
        tree: a `tfxclass.trees.Tree`, `"huffman"` (which needs `counts`) or
            `"balanced"`.
        counts: numbers `[num_classes]`, how often each class occurs. Only for
            `tree="huffman"`.
        multi_label: how examples with several labels are trained. `"all"`: all
            labels have the same weight. `"pick_one"`: each step samples one
            label, as fastText does. `"plt"`: a probabilistic label tree, where
            each child of a node is a binary decision. Each label then has its
            own probability, given that the example has a label, and the best
            labels maximize precision at k.
        use_bias: bool, whether each node vector has a bias.
        beam_width: int, number of nodes that an export keeps at each level, and
            at least `k`. `num_classes` of them miss nothing.
        **kwargs: other arguments of `OutputHead`, without `kernel_dtype` and
            `loss`.

    Example:

    ```python
    class_vectors = np.random.default_rng(0).normal(size=[500, 16])
    tree = tfxclass.trees.clustered(class_vectors)
    head = tfxclass.layers.HierarchicalSoftmax(500, tree)
    ```

    References:
        Morin & Bengio, Hierarchical probabilistic neural network language
        model, AISTATS 2005.
        Joulin et al., Bag of tricks for efficient text classification, 2016
        (fastText).
        Jasinska et al., Extreme F-measure maximization using sparse probability
        estimates, ICML 2016 (PLT).
        Wydmuch et al., A no-regret generalization of hierarchical softmax to
        extreme multi-label classification, NeurIPS 2018.
    """

    kernel_dtypes = ("float32",)
    supported_options = LABEL_OPTIONS
    has_class_rows = False

    def __init__(
        self,
        num_classes: int,
        tree: str | trees.Tree = "huffman",
        counts: ArrayLike | None = None,
        multi_label: str = "all",
        use_bias: bool = False,
        beam_width: int = 32,
        **kwargs: Any,
    ) -> None:
        super().__init__(num_classes, **kwargs)
        check_choice("multi_label", multi_label, ("all", "pick_one", "plt"))
        if multi_label == "plt":
            wanted = 'None with multi_label="plt", a sum over nodes'
            is_none = self.loss_options is None
            check_value("loss_options", self.options.used, is_none, wanted)
        self.tree = _tree(tree, counts, self.num_classes)
        self.max_depth = max(1, int(self.tree.depths().max()))
        self.multi_label = multi_label
        self.independent = multi_label == "plt"
        self.use_bias = use_bias
        self.beam_width = check_positive_int("beam_width", beam_width)
        self.random = keras.random.SeedGenerator(self.seed)

    def weight_specs(self, dim: int) -> list[WeightSpec]:
        library.require_op("tree_path_loss")
        shape = self.tree.num_rows(self.independent), dim + int(self.use_bias)
        nodes = self.tree.nodes(self.independent)
        leaves = self.tree.leaves[self.tree.live]
        return [
            WeightSpec("kernel", shape, self._initial_node_rows),
            fixed_spec("nodes", nodes.shape, constant(nodes), "int64"),
            fixed_spec("leaves", leaves.shape, constant(leaves), "int64"),
        ]

    def _initial_node_rows(self, shape, dtype=None):
        if not self.use_bias:
            return self.kernel_initializer(shape, dtype=dtype)
        rows = self.kernel_initializer((shape[0], shape[1] - 1), dtype=dtype)
        return keras.ops.pad(rows, [[0, 0], [0, 1]])

    def queries(self, features: tf.Tensor) -> tf.Tensor:
        features = super().queries(features)
        if not self.use_bias:
            return features
        return tf.pad(features, [[0, 0], [0, 1]], constant_values=1.0)

    def training_step(self, features: tf.Tensor, targets: Targets) -> Step:
        if self.multi_label == "pick_one":
            targets = pick_one(targets, self.next_seed())
        return super().training_step(features, targets)

    def exact_loss(self, features: tf.Tensor, targets: Targets) -> tf.Tensor:
        ids = targets.ids
        if self.removed:
            removed = tf.constant(list(self.removed), tf.int64)
            below = tf.searchsorted(removed, tf.reshape(ids, [-1]))
            ids -= tf.cast(tf.reshape(below, tf.shape(ids)), tf.int64)
        with placement.on(self.rows_device):
            return class_tree.path_loss(
                self.queries(features),
                tf.convert_to_tensor(self.kernel),
                tf.convert_to_tensor(self.nodes),
                tf.convert_to_tensor(self.leaves),
                ids,
                targets.weights,
                self.independent,
                self.max_depth,
            )

    def all_logits(self, features: tf.Tensor, weights: Any = None) -> tf.Tensor:
        with placement.on(self.rows_device):
            kernel = tf.convert_to_tensor(self.kernel)
            logs = class_tree.log_probabilities(
                tf.matmul(self.queries(features), kernel, transpose_b=True),
                tf.convert_to_tensor(self.nodes),
                self.num_answers,
                self.independent,
            )
            return self._of_all_classes(logs, float("-inf"))

    def activate(self, logits: tf.Tensor) -> tf.Tensor:
        return tf.exp(logits)

    def logits_of(
        self, features: tf.Tensor, ids: tf.Tensor, weights: Any = None
    ) -> tf.Tensor:
        return take_columns(self.all_logits(features), ids)

    def best(self, features: tf.Tensor, k: int, weights: Any = None) -> Answers:
        queries = self.queries(features)
        if weights is None:
            with placement.on(self.rows_device):
                kernel = tf.convert_to_tensor(self.kernel)
                nodes = tf.convert_to_tensor(self.nodes)
                ids, logs = class_tree.top_k(
                    queries, kernel, nodes, k, self.independent
                )
        else:
            kernel, nodes = map(tf.convert_to_tensor, weights)
            beam = max(self.beam_width, k)
            ids, logs = servable_search.top_k(
                queries, kernel, nodes, k, self.independent, beam
            )
        if self.removed:
            # The search numbers the other classes through.
            live = tf.constant(self.tree.live)
            ids = tf.where(ids >= 0, tf.gather(live, tf.maximum(ids, 0)), ids)
        if self.activation is not None:
            return mask_missing(ids, tf.exp(logs))
        ids, logs = mask_missing(ids, logs)
        # The logarithm of a probability of 0.
        return ids, tf.where(ids >= 0, logs, float("-inf"))

    def export_weights(self) -> tuple[tf.Variable, ...]:
        return self.kernel.value, self.nodes.value

    def all_scores(self, features: tf.Tensor, weights: Any = None) -> tf.Tensor:
        ids, scores = self.best(features, self.num_answers, weights)
        places = tf.argsort(ids, axis=1)
        scores = tf.gather(scores, places, axis=1, batch_dims=1)
        none = 0.0 if self.activation else float("-inf")
        return self._of_all_classes(scores, none)

    def _of_all_classes(self, values, none):
        """`[rows, num_classes]` from the classes with a leaf."""
        if not self.removed:
            return values
        places = np.full(self.num_classes, self.num_answers)
        places[self.tree.live] = np.arange(self.num_answers)
        values = tf.pad(values, [[0, 0], [0, 1]], constant_values=none)
        return tf.gather(values, places, axis=1)

    def step_rows(self, batch: int) -> int | None:
        # Of one label a row. A node has one row, or one for each child.
        widest = int(self.tree.num_children.max())
        rows = batch * self.max_depth * (widest if widest > 2 else 1)
        return min(rows, self.tree.num_rows(self.independent))

    def activation_bytes(self, batch: int, dim: int) -> int:
        return 0  # a product a row of the path

    def index_bytes(self, dim: int) -> int:
        return self.tree.nbytes

    @property
    def growth(self) -> Any:
        return TreeGrowth(self)

    def class_weights(self) -> list[WeightSpec]:
        return []  # Weights belong to nodes, not to classes.

    def changed_config(self, change: ClassUpdate) -> Config:
        tree = changed_tree(self, change).tree
        config = super().changed_config(change)
        return {**config, "tree": keras.saving.serialize_keras_object(tree)}

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "tree": keras.saving.serialize_keras_object(self.tree),
            "multi_label": self.multi_label,
            "use_bias": self.use_bias,
            "beam_width": self.beam_width,
        }


def _tree(tree, counts, num_classes):
    if isinstance(tree, dict):
        tree = keras.saving.deserialize_keras_object(tree)
    if (tree == "huffman") != (counts is not None):
        raise ValueError(
            '`counts` must be given with tree="huffman", and with no other. '
            f"Received: tree={tree!r}, counts={counts}"
        )
    if tree == "huffman":
        tree = trees.huffman(counts)
    elif not isinstance(tree, trees.Tree):
        check_choice("tree", tree, ("balanced", "huffman"))
        tree = trees.balanced(num_classes)
    if tree.num_classes != num_classes:
        raise ValueError(
            "`tree` and `counts` must have a class for each of `num_classes`. "
            f"Received: {tree.num_classes} with num_classes={num_classes}."
        )
    return tree
