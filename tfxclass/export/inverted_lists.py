"""Approximate top k with stock TensorFlow ops alone: inverted lists."""

import keras
import tensorflow as tf

from tfxclass import progress
from tfxclass.checks import check_positive_int
from tfxclass.export import accuracy
from tfxclass.export import previous_index
from tfxclass.export.list_search import ListSearch
from tfxclass.export.loading import check_plain_logits
from tfxclass.ops import kmeans
from tfxclass.paths import local_path
from tfxclass.rows import servable_ops
from tfxclass.types import Array
from tfxclass.types import Path


class InvertedLists:
    """How an export searches a part of the classes only.

    Class rows are kept in the clusters of a spherical k-means. A query is
    answered from the `num_probes` lists whose mean rows answer it most: a
    product with these, a gather, a product, a top_k, all TensorFlow's own
    ops. For half a million classes and more, where reading every row is too
    slow. The rows are in the export once, in the order of the lists.

    Scores are logits, exact for the classes found (of int8 rows, for these), or
    with `probabilities` the head's. The log-sum-exp of a softmax is that of the
    lists read, and for the others estimated from their mean rows and the
    spread about these; its error is measured, and so is that of the scores.

    Args:
        num_lists: int, by default four times the root of the classes.
        num_probes: int, lists read for a query; by default the fewest that
            hold `top_k` classes, doubled until the recall is `min_recall`.
        min_recall: float in (0, 1]. Recall at `top_k` is measured at export
            on the features of `example_inputs` or, without, on class rows,
            which flatters it; below `min_recall` the export is refused.
        seed: int. Same seed and rows, same lists.
        probabilities: bool, for answers with probabilities, which `threshold`
            needs.
        base: folder of an earlier version, one with lists, whose lists these
            begin as: a class whose row has not changed stays in its list, and
            new classes and other rows join the list whose mean row is
            nearest. Recall is measured as always.

    Raises:
        ValueError: an argument out of range, or `base` with `num_lists`.
    """

    def __init__(
        self,
        num_lists: int | None = None,
        num_probes: int | None = None,
        min_recall: float = 0.95,
        seed: int = 0,
        probabilities: bool = False,
        base: Path | None = None,
    ) -> None:
        if num_lists is not None:
            num_lists = check_positive_int("num_lists", num_lists)
        if num_probes is not None:
            num_probes = check_positive_int("num_probes", num_probes)
        if not 0 < min_recall <= 1:
            raise ValueError(
                f"`min_recall` must be in (0, 1]. Received: {min_recall}"
            )
        if base is not None and num_lists is not None:
            raise ValueError(
                "`base` has as many lists as it has. Received: it and "
                f"num_lists={num_lists}"
            )
        self.num_lists = num_lists
        self.num_probes = num_probes
        self.min_recall = min_recall
        self.seed = seed
        self.probabilities = bool(probabilities)
        self.base = base if base is None else local_path(base, "base")

    def build(
        self,
        head: keras.layers.Layer,
        k: int,
        features: Array | None = None,
        max_excluded: int = 0,
        quantize: bool = False,
    ) -> ListSearch:
        """`ListSearch` of a head; see `saved_model`.

        Args:
            head: a head with one row a class.
            k: int, classes in an answer.
            features: float `[n, dim]` that recall is measured on, or None.
            max_excluded: int, classes that a question may exclude: the lists
                that are read have so many more.
            quantize: whether rows are kept in int8.

        Raises:
            ValueError: another kind of head, or a recall below `min_recall`.
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
    ) -> tuple[ListSearch, tf.Tensor, servable_ops.Best]:
        """`(search, queries, best)`: what is asked, and the `k` best of it."""
        self._check_head(head)
        (served,) = head.export_weights()
        rows = tf.convert_to_tensor(served.kernel)
        # Removed classes are in no list.
        bias = None if head.bias is None else served.bias
        with progress.log_if_slow(f"Clustering {rows.shape[0]:,} class rows"):
            lists = self._lists(rows, head.removed)
        count = int(lists.max()) + 1
        search = ListSearch(
            head, rows, bias, lists, count, quantize, self.probabilities
        )
        if features is None:
            drawn = tf.gather(rows, search.live)
            queries = accuracy.drawn(drawn, self.seed)
        else:
            queries = head.queries(features)
        with progress.log_if_slow("Answering exactly"):
            best = self._best(head, queries, served, k, search.sums)
        return search, queries, best

    def _lists(self, rows, removed):
        """The list of each class, int64 `[num_classes]`."""
        if self.base is not None:
            return previous_index.lists_of(self.base, rows, removed)
        count = self.num_lists or max(round(4 * rows.shape[0] ** 0.5), 1)
        count = min(count, rows.shape[0])
        return kmeans.clusters(rows, count, self.seed).numpy()

    def _best(self, head, queries, served, k, sums):
        """`Best` of logits or, with `probabilities`, of those of answers."""
        if self.probabilities:
            parts = head.scaled([(queries, served)], head.answer_scale)
            ((queries, served),) = parts
        return servable_ops.best(
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
                "`probabilities` needs a head that has them. Received: "
                f"{head.name!r} with activation=None"
            )


def _scores(search, head, best):
    """`(ids, scores)` of `Best`, as those of a search."""
    if search.activation is None:
        return best[:2]
    return best.ids, head.objective.probabilities(best.logits, best.logsumexp)
