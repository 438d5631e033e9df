"""Approximate top k with stock TensorFlow ops alone: inverted lists."""

import keras
import numpy as np
import tensorflow as tf

from tfxclass import progress
from tfxclass.checks import check_fraction
from tfxclass.checks import check_optional_int
from tfxclass.export import searches
from tfxclass.export.list_search import ListSearch
from tfxclass.inference.graph import check_plain_logits
from tfxclass.ops import bfloat16_rows
from tfxclass.ops import library
from tfxclass.rows import stock_search
from tfxclass.rows.best import Best
from tfxclass.types import Array
from tfxclass.types import Config

# Class vectors that are questions where there are no examples.
_NUM_QUERIES = 256


class InvertedLists:
    """Approximate search for an export, which reads only some of the classes.

    Use it for 500,000 classes and more, if reading every class vector is too
    slow. Class vectors are kept in clusters of a spherical k-means. A query
    reads the `num_probes` clusters whose mean vectors have the greatest
    products with it.

    With a softmax, scores are the exact logits of the classes that were found:
    their probabilities depend on the classes that are not read. With a
    sigmoid, scores are exact probabilities.

    Args:
        num_lists: int, number of clusters. Defaults to four times the square
            root of the number of classes.
        num_probes: int, number of clusters that a query reads. By default the
            fewest that hold `top_k` classes, doubled until the recall is
            `min_recall`.
        min_recall: float in (0, 1]. The export is refused if the recall at
            `top_k` is lower. It is measured on the features of
            `example_inputs`, or on class vectors, which overestimates it.
        seed: int. The same seed and class vectors give the same clusters.
        portable: bool, whether LiteRT and OpenVINO must be able to read the
            export. A search in TensorFlow is then somewhat slower.

    Example:

    ```python
    search = tfxclass.export.InvertedLists(min_recall=0.95)
    ```
    """

    def __init__(
        self,
        num_lists: int | None = None,
        num_probes: int | None = None,
        min_recall: float = 0.95,
        seed: int = 0,
        portable: bool = False,
    ) -> None:
        self.num_lists = check_optional_int("num_lists", num_lists)
        self.num_probes = check_optional_int("num_probes", num_probes)
        self.min_recall = check_fraction("min_recall", min_recall)
        self.seed = seed
        self.portable = bool(portable)

    def build(
        self,
        head: keras.layers.Layer,
        k: int,
        features: Array | None = None,
        max_excluded: int = 0,
        quantize: bool = False,
    ) -> ListSearch:
        """Builds the `ListSearch` of a head, measured on `features` `[n, dim]`.

        Answers are searched among `max_excluded` classes more.
        """
        search, queries, best = self.prepared(head, k, features, quantize)
        most = min(k + max_excluded, head.num_answers)
        with progress.log_if_slow("Measuring the recall of the lists"):
            recall = self._choose_probes(search, k, queries, best.ids, most)
        measured: Config = {
            "num_lists": search.num_lists,
            "num_probes": search.num_probes,
            "recall": recall,
            "measured_on": "class rows" if features is None else "examples",
        }
        if quantize:
            answers = search.top_k_of(queries, k, search.num_probes)
            expected = best.ids, search.scores_of(best.logits)
            found = searches.measure(answers, expected)
            measured["quantize"] = searches.INT8
            measured["score_error"] = found["score_error"]
        search.measured = measured
        return search

    def prepared(
        self,
        head: keras.layers.Layer,
        k: int,
        features: Array | None,
        quantize: bool = False,
    ) -> tuple[ListSearch, tf.Tensor, Best]:
        """`(search, queries, best)`: queries and their `k` best classes."""
        check_plain_logits("`search`", head, "Leave it out for exact search.")
        (served,) = head.export_weights()
        rows = tf.convert_to_tensor(served.kernel)
        # Removed classes are in no list.
        bias = None if head.bias is None else served.bias
        count = self.num_lists or max(round(4 * rows.shape[0] ** 0.5), 1)
        with progress.log_if_slow(f"Clustering {rows.shape[0]:,} class rows"):
            # Centres in two levels, as a `ClusterIndex` has them: 10 s of a
            # core for 1M rows of 128 in 4,000 clusters.
            lists = library.ops.tfxclass_k_means(
                rows, min(count, rows.shape[0]), self.seed
            )
        search = ListSearch(
            head, rows, bias, lists.numpy(), quantize, self.portable
        )
        if features is None:
            rng = np.random.default_rng(self.seed)
            count = min(_NUM_QUERIES, len(search.live))
            some = np.sort(rng.choice(len(search.live), count, replace=False))
            queries = bfloat16_rows.take(rows, search.live[some])
        else:
            queries = head.queries(features)
            # Features of padding may be NaN, and have no best classes.
            queries = queries[tf.reduce_all(tf.math.is_finite(queries), 1)]
        with progress.log_if_slow("Answering exactly"):
            best = stock_search.best(queries, served, k, with_logsumexp=False)
        return search, queries, best

    def _choose_probes(self, search, k, queries, expected, most):
        """Sets the number of lists to read; returns the recall."""
        least = search.min_probes(most)
        probes = self.num_probes or least
        if not least <= probes <= search.num_lists:
            raise ValueError(
                f"`num_probes` must be {least}..{search.num_lists} for "
                f"top_k={k} (with what may be excluded, {most}) of "
                f"{search.num_lists} lists. Received: {probes}"
            )
        answer = tf.function(search.top_k_of)
        while True:
            search.num_probes = probes
            found, _ = answer(queries, k, tf.constant(probes))
            recall = searches.recall(found.numpy(), expected.numpy())
            if recall >= self.min_recall:
                return recall
            if self.num_probes or probes == search.num_lists:
                raise ValueError(
                    f"Recall at {k} must be at least min_recall="
                    f"{self.min_recall}. Received: {recall:.4f} with num_probes"
                    f"={probes}. Read more lists, or give `example_inputs`."
                )
            probes = min(2 * probes, search.num_lists)
