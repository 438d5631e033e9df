"""Approximate top k with stock TensorFlow ops alone: inverted lists."""

import keras
import numpy as np
import tensorflow as tf

from tfxclass import progress
from tfxclass.checks import check_k
from tfxclass.checks import check_positive_int
from tfxclass.layers.class_numbers import GONE
from tfxclass.layers.output_head import unflatten
from tfxclass.ops import kmeans
from tfxclass.rows import half_rows
from tfxclass.rows import stock
from tfxclass.rows.blocks import logits_at
from tfxclass.rows.class_rows import ClassRows
from tfxclass.types import Array
from tfxclass.types import Config

_QUERIES = 256


class InvertedLists:
    """How an export searches a part of the classes only.

    Class rows are kept in the clusters of a spherical k-means. A query is
    answered from the `num_probes` lists whose mean rows answer it most: a
    product with these, a gather, a product, a top_k, all TensorFlow's own
    ops. For half a million classes and more, where reading every row is too
    slow. The rows are in the export once, in the order of the lists.

    Scores are logits, exact for the classes found: the sum of a softmax would
    read every row.

    Args:
        num_lists: int, by default four times the root of the classes.
        num_probes: int, lists read for a query; by default the fewest that
            hold `top_k` classes, doubled until the recall is `min_recall`.
        min_recall: float in (0, 1]. Recall at `top_k` is measured at export
            on the features of `example_inputs` or, without, on class rows,
            which flatters it; below `min_recall` the export is refused.
        seed: int. Same seed and rows, same lists.

    Raises:
        ValueError: an argument out of range.
    """

    def __init__(
        self,
        num_lists: int | None = None,
        num_probes: int | None = None,
        min_recall: float = 0.95,
        seed: int = 0,
    ) -> None:
        if num_lists is not None:
            num_lists = check_positive_int("num_lists", num_lists)
        if num_probes is not None:
            num_probes = check_positive_int("num_probes", num_probes)
        if not 0 < min_recall <= 1:
            raise ValueError(
                f"`min_recall` must be in (0, 1]. Received: {min_recall}"
            )
        self.num_lists = num_lists
        self.num_probes = num_probes
        self.min_recall = min_recall
        self.seed = seed

    def build(
        self,
        head: keras.layers.Layer,
        k: int,
        features: Array | None = None,
        most_excluded: int = 0,
    ) -> "ListSearch":
        """`ListSearch` of a head; see `saved_model`.

        Args:
            head: a head with one row a class.
            k: int, classes in an answer.
            features: float `[n, dim]` that recall is measured on, or None.
            most_excluded: int, classes that a question may exclude: the lists
                that are read have so many more.

        Raises:
            ValueError: another kind of head, or a recall below `min_recall`.
        """
        search, queries, expected = self.prepared(head, k, features)
        most = min(k + most_excluded, head.num_answers)
        with progress.told("Measuring the recall of the lists"):
            self._choose_probes(search, k, queries, expected, most)
        search.measured_on = "class rows" if features is None else "examples"
        return search

    def prepared(
        self, head: keras.layers.Layer, k: int, features: Array | None
    ) -> tuple["ListSearch", tf.Tensor, np.ndarray]:
        """`(search, queries, expected)`: what is asked, ids `[n, k]`."""
        _check_head(head)
        (served,) = head.export_weights()
        rows = tf.convert_to_tensor(served.kernel)
        # Removed classes are in no list.
        bias = None if head.bias is None else served.bias
        count = self.num_lists or max(round(4 * rows.shape[0] ** 0.5), 1)
        count = min(count, rows.shape[0])
        with progress.told(f"Clustering {rows.shape[0]:,} class rows"):
            lists = kmeans.clusters(rows, count, self.seed).numpy()
        search = ListSearch(head, rows, bias, lists, count)
        if features is None:
            drawn = tf.gather(rows, search.live)
            queries = _drawn(drawn, _QUERIES, self.seed)
        else:
            queries = head.queries(features)
        with progress.told("Answering exactly"):
            best = stock.best(queries, served, k, with_logsumexp=False)
        return search, queries, best.ids.numpy()

    def _choose_probes(self, search, k, queries, expected, most):
        least = search.least_probes(most)
        probes = self.num_probes or least
        if not least <= probes <= search.num_lists:
            raise ValueError(
                f"`num_probes` must be {least}..{search.num_lists} for "
                f"top_k={k} (with what may be excluded, {most}) of "
                f"{search.num_lists} lists. Received: {probes}"
            )
        while True:
            search.num_probes = probes
            found, _ = search.top_k_of(queries, k)
            search.recall = recall_of(found.numpy(), expected)
            if search.recall >= self.min_recall:
                return
            if self.num_probes or probes == search.num_lists:
                raise ValueError(
                    f"Recall at {k} must be at least min_recall="
                    f"{self.min_recall}. Received: {search.recall:.4f} with "
                    f"num_probes={probes}. Read more lists, or give real "
                    "`example_inputs`."
                )
            probes = min(2 * probes, search.num_lists)


def _check_head(head):
    if not getattr(head, "has_plain_logits", False):
        raise ValueError(
            "`search` needs a head with one row a class, and of its logits "
            f"softmax, sigmoid or nothing. Received: {type(head).__name__}. "
            "Leave it out for exact search."
        )


class ListSearch(tf.Module):
    """The lists of a head, and the search in them.

    Args:
        head: the head.
        rows: float32 or bfloat16 tensor `[num_classes, dim]`, as they are
            multiplied; kept and saved in that type.
        bias: float32 `[num_classes]`, or None.
        lists: int `[num_classes]`, the list of each class.
        num_lists: int.
    """

    def __init__(
        self,
        head: keras.layers.Layer,
        rows: tf.Tensor,
        bias: tf.Tensor | None,
        lists: np.ndarray,
        num_lists: int,
    ) -> None:
        super().__init__()
        order = np.argsort(lists, kind="stable")
        order = order[~np.isin(order, head.removed)]
        self.live = np.sort(order)
        sizes = np.bincount(lists[order], minlength=num_lists)
        sizes = sizes[sizes > 0]
        self.num_lists = len(sizes)
        self.num_probes = None
        self.recall = None
        self.measured_on = None
        # Untracked: the head's own copies of these would be saved, too.
        self._head = lambda: head
        self.query_weights = head.query_weights()
        self.order = _constant(order, tf.int64, "order")
        places = np.full(head.num_classes, -1)
        places[order] = np.arange(len(order))
        self.places = _constant(places, tf.int64, "places")
        starts = np.concatenate([[0], np.cumsum(sizes)])
        self.starts = _constant(starts, tf.int64, "starts")
        self.rows = _constant(tf.gather(rows, order), rows.dtype, "rows")
        self.bias = None
        if bias is not None:
            bias = tf.gather(tf.convert_to_tensor(bias), order)
            self.bias = _constant(bias, tf.float32, "bias")
        means = self._means(sizes)
        self.centres = _constant(means[0], tf.float32, "centres")
        self.centre_bias = _constant(means[1], tf.float32, "centre_bias")

    def _means(self, sizes):
        """Mean row and greatest bias of each list."""
        centres = _segment_means(tf.convert_to_tensor(self.rows), sizes)
        if self.bias is None:
            return centres, tf.zeros(len(sizes))
        of_list = np.repeat(np.arange(len(sizes)), sizes)
        return centres, tf.math.segment_max(self.bias, of_list)

    def report(self) -> Config:
        """What was measured, a dict."""
        return {
            "num_lists": self.num_lists,
            "num_probes": self.num_probes,
            "recall": self.recall,
            "measured_on": self.measured_on,
        }

    def least_probes(self, k: int) -> int:
        """Lists to read that hold `k` classes whichever they are, int."""
        sizes = np.sort(np.diff(self.starts.numpy()))
        return int(np.searchsorted(np.cumsum(sizes), k)) + 1

    @property
    def head(self) -> keras.layers.Layer:
        """The head; it is not saved."""
        return self._head()

    def top_k(self, features: tf.Tensor, k: int) -> tuple[tf.Tensor, tf.Tensor]:
        """`(ids, logits)`: int64 and float32 `[..., k]`, best first."""
        features = tf.convert_to_tensor(features)
        found = self.top_k_of(self._head().queries(features), k)
        return tuple(unflatten(x, features) for x in found)

    def top_k_of(
        self, queries: tf.Tensor, k: int
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """`top_k` of queries, float32 `[batch, dim]`."""
        k = check_k(k, self.order.shape[0])
        answers = tf.matmul(queries, self.centres, transpose_b=True)
        answers += self.centre_bias
        probes = tf.math.top_k(answers, self.num_probes, sorted=False).indices
        starts, rows = tf.identity(self.starts), tf.identity(self.rows)
        bias = None if self.bias is None else tf.identity(self.bias)

        def answer(query_and_lists):
            query, lists = query_and_lists
            at = tf.ragged.range(
                tf.gather(starts, lists), tf.gather(starts, lists + 1)
            ).flat_values
            read = half_rows.widen(tf.gather(rows, at))
            logits = tf.linalg.matvec(read, query)
            if bias is not None:
                logits += tf.gather(bias, at)
            scores, columns = tf.math.top_k(logits, k)
            return tf.gather(at, columns), scores

        # One query at a time: the rows that all of a batch read at once would
        # be gigabytes.
        at, scores = tf.map_fn(
            answer,
            (queries, probes),
            fn_output_signature=(
                tf.TensorSpec([k], tf.int64),
                tf.TensorSpec([k], tf.float32),
            ),
            parallel_iterations=2,
        )
        return tf.gather(self.order, at), scores

    def logits_of(self, features: tf.Tensor, ids: tf.Tensor) -> tf.Tensor:
        """Logits of classes `[rows, q]` for features `[rows, dim]`."""
        at = tf.gather(self.places, tf.maximum(ids, 0))
        rows = ClassRows(self.rows, self.bias)
        return logits_at(self._head().queries(features), rows, at)

    def scores(self, features: tf.Tensor) -> tf.Tensor:
        """All scores, exact, float32 `[..., num_classes]`."""
        head = self._head()
        rows = half_rows.widen(tf.identity(self.rows))
        logits = stock.products(head.queries(features), rows)
        if self.bias is not None:
            logits += self.bias
        logits = tf.pad(logits, [[0, 0], [1, 0]], constant_values=GONE)
        logits = tf.gather(logits, tf.identity(self.places) + 1, axis=1)
        logits = unflatten(logits, features)
        return head.activate(logits) if head.activation else logits


def _constant(value, dtype, name):
    # A variable, not a constant: those lie in saved_model.pb.
    value = tf.convert_to_tensor(value, dtype)
    return tf.Variable(value, trainable=False, name=name)


def _drawn(rows, count, seed):
    rng = np.random.default_rng(seed)
    count = min(count, rows.shape[0])
    ids = rng.choice(rows.shape[0], count, replace=False)
    return half_rows.widen(tf.gather(rows, np.sort(ids)))


def _segment_means(rows, sizes):
    """Means of consecutive rows, float32; some lists are widened at a time."""
    means, ends = [], np.cumsum(sizes)
    for lists in np.array_split(np.arange(len(sizes)), -(-len(sizes) // 256)):
        first = ends[lists[0]] - sizes[lists[0]]
        part = half_rows.widen(rows[first : ends[lists[-1]]])
        of_list = np.repeat(np.arange(len(lists)), sizes[lists])
        means.append(tf.math.segment_mean(part, of_list))
    return tf.concat(means, axis=0)


def recall_of(found: np.ndarray, expected: np.ndarray) -> float:
    """The share of the ids `expected` `[n, k]` that are in rows of `found`."""
    shared = [np.intersect1d(*pair).size for pair in zip(found, expected)]
    return sum(shared) / expected.size
