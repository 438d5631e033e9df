"""Approximate top k with stock TensorFlow ops alone: inverted lists."""

import keras
import tensorflow as tf

from tfxclass import progress
from tfxclass.checks import check_positive_int
from tfxclass.export import accuracy
from tfxclass.export.list_search import ListSearch
from tfxclass.export.loading import check_plain_logits
from tfxclass.ops import kmeans
from tfxclass.rows import search
from tfxclass.rows import stock_search
from tfxclass.rows.best import Best
from tfxclass.types import Array


class InvertedLists:
    """Approximate search for an export, which reads only some of the classes.

    Use it for 500,000 classes and more, if reading every class vector is too
    slow. Class vectors are kept in clusters of a spherical k-means. A query
    reads the `num_probes` clusters whose mean vectors have the greatest
    products with it. The graph uses TensorFlow's own ops only. The class
    vectors are in the export once, in the order of the clusters.

    Scores are exact logits of the classes that were found, or probabilities
    with `probabilities=True`. The log-sum-exp of the other clusters is then
    estimated from their mean vectors and spread. The errors of the scores and
    of this estimate are measured.

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
        probabilities: bool, whether answers have probabilities, which
            `threshold` needs.
        portable: bool, whether LiteRT and OpenVINO must be able to read the
            export. A search in TensorFlow is then somewhat slower. Without it
            they refuse the op `RaggedRange`.

    Raises:
        ValueError: if an argument is out of range.

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
        probabilities: bool = False,
        portable: bool = False,
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
        self.probabilities = bool(probabilities)
        self.portable = bool(portable)

    def build(
        self,
        head: keras.layers.Layer,
        k: int,
        features: Array | None = None,
        max_excluded: int = 0,
        quantize: bool = False,
    ) -> ListSearch:
        """Builds the `ListSearch` of a head; see `saved_model`.

        Args:
            head: a head with one class vector for each class.
            k: int, number of classes in an answer.
            features: float `[n, dim]` on which the recall is measured, or None.
            max_excluded: int, number of classes that a question may exclude.
                Answers are searched among as many more.
            quantize: whether class vectors are kept in int8.

        Raises:
            ValueError: if the head is of another kind, or the recall is below
                `min_recall`.
        """
        search, queries, best = self.prepared(head, k, features, quantize)
        most = min(k + max_excluded, head.num_answers)
        with progress.log_if_slow("Measuring the recall of the lists"):
            self._choose_probes(search, k, queries, best.ids.numpy(), most)
        if search.sums is not None:
            seen = search.read(queries, k)[2]
            search.log_sum_error = search.sums.fit(seen, best.logsumexp)
        if quantize or self.probabilities:
            found = accuracy.measure(
                search.top_k_of(queries, k), _scores(search, head, best)
            )
            search.score_error = found["score_error"]
        search.measured_on = "class rows" if features is None else "examples"
        return search

    def prepared(
        self,
        head: keras.layers.Layer,
        k: int,
        features: Array | None,
        quantize: bool = False,
    ) -> tuple[ListSearch, tf.Tensor, Best]:
        """`(search, queries, best)`: queries and their `k` best classes."""
        self._check_head(head)
        (served,) = head.export_weights()
        rows = tf.convert_to_tensor(served.kernel)
        # Removed classes are in no list.
        bias = None if head.bias is None else served.bias
        with progress.log_if_slow(f"Clustering {rows.shape[0]:,} class rows"):
            lists = self._lists(rows)
        count = int(lists.max()) + 1
        search = ListSearch(
            head, rows, bias, lists, count, quantize, self.probabilities,
            self.portable,
        )  # fmt: skip
        if features is None:
            drawn = tf.gather(rows, search.live)
            queries = accuracy.drawn(drawn, self.seed)
        else:
            queries = head.queries(features)
        with progress.log_if_slow("Answering exactly"):
            best = self._best(head, queries, served, k, search.sums)
        return search, queries, best

    def _lists(self, rows):
        """The list of each class, int64 `[num_classes]`."""
        count = self.num_lists or max(round(4 * rows.shape[0] ** 0.5), 1)
        count = min(count, rows.shape[0])
        return kmeans.clusters(rows, count, self.seed).numpy()

    def _best(self, head, queries, served, k, sums):
        """`Best` by logits or, with `probabilities`, by answers."""
        if self.probabilities:
            parts = search.scaled([(queries, served)], head.answer_scale)
            ((queries, served),) = parts
        return stock_search.best(
            queries, served, k, with_logsumexp=sums is not None
        )

    def _choose_probes(self, search, k, queries, expected, most):
        least = search.min_probes(most)
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
            search.recall = accuracy.recall(found.numpy(), expected)
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

    def _check_head(self, head):
        check_plain_logits("`search`", head, "Leave it out for exact search.")
        if self.probabilities and head.activation is None:
            raise ValueError(
                "`probabilities` needs a head with probabilities. Received: "
                f"{head.name!r} with activation=None"
            )


def _scores(search, head, best):
    """Turns `Best` into the `(ids, scores)` of a search."""
    if search.activation is None:
        return best[:2]
    return best.ids, head.objective.probabilities(best.logits, best.logsumexp)
