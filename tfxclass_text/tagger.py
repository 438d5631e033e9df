"""`Tagger`: texts in, names out."""

import copy
import itertools
import numbers
import sys
import time
import warnings
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfxclass import metrics
from tfxclass.checks import as_list
from tfxclass.checks import as_positive_ints
from tfxclass.checks import check_choice
from tfxclass.checks import check_positive
from tfxclass.checks import check_positive_int
from tfxclass.checks import check_value
from tfxclass.inference.thresholds import CALIBRATED
from tfxclass.types import Path
from tfxclass.types import Tags
from tfxclass.types import Texts
from tfxclass_text import columns as columns_lib
from tfxclass_text import corpus as corpus_lib
from tfxclass_text import encoder as encoder_lib
from tfxclass_text import explain as explain_lib
from tfxclass_text import growth
from tfxclass_text import selection
from tfxclass_text import tagger_files
from tfxclass_text import tagger_model
from tfxclass_text.corpus import Batches
from tfxclass_text.estimator import Estimator
from tfxclass_text.explain import Explanation
from tfxclass_text.fields import Field
from tfxclass_text.recipes import EMBEDDINGS_ALONE
from tfxclass_text.recipes import PRESETS

# Texts that are answered at a time. They share what is read of the weights;
# the scores of more would leave the cache (measured).
_BATCH, _MAX_SCORES = 64, 1 << 21


class Tagger(Estimator):
    """Names for texts: classifiers of TF-IDF terms, chosen for you.

    A text has one tag or several, out of a few or of hundreds of thousands. If
    each text has one of over 100 tags, embeddings of terms and tags are
    compared by cosine, unless `c` or `neighbors` is given. Otherwise
    classifiers are linear and one-vs-rest, along a label tree if all texts
    would take too long.

    Args:
        fields: list of `Field`, what is read and how. By default words are
            read, pairs of words of short columns, and runs of characters
            where spaces do not part words or where held-out texts gain by it.
        effort: `"best"` or `"fast"`.
        c: float, weight of the losses of linear classifiers; chosen on
            held-out texts by default.
        neighbors: int, texts nearest to a text by cosine that vote for their
            tags; 0 for none. They make answers slower. By default 30 with
            `effort="best"`, if held-out texts gain 0.002 of their score.
        embedding_dim: int, length of embeddings of terms and tags; 0 for none.
            By default 256 with `effort="best"` and 128 with `"fast"`, or less
            for more than 200,000 terms. With linear classifiers, they are by
            default used with `effort="best"`, if held-out texts gain 0.002 of
            their score and two minutes of a core are enough for two passes.
        encoder: Keras model or layer of texts to features `[batch, dim]` (or a
            dict with `"pooled_output"`, a backbone of KerasHub behind its
            preprocessor), or None. It is trained in place, and its logits are
            added if held-out texts gain 0.002 of their score. An input gets the
            column of its name; a single other input gets all columns joined.
        learning_rate: float, the encoder's own, of Adam.
        seed: int.
        verbose: 0 prints nothing; 1 the number of texts, the time that
            training will take and the result; 2 all that is tried and chosen.

    Attributes:
        tags: list of str or ints, the name of each class, sorted; a refit
            replaces it.
        model: `keras.Model` of stock TensorFlow ops, columns of strings to
            probabilities `[batch, tags]`.
        thresholds: float32 `[tags]`, the least probability of each tag, for
            `threshold="calibrated"`.
        summary: dict of what was chosen and how long it took.

    Example:

    >>> tagger = tfxclass.text.Tagger()
    >>> tagger.fit(["milk and eggs", "red paint"], [["food"], ["colour"]])
    >>> tagger.predict(["eggs, red"], k=1)
    """

    # Before `fit`.
    tags: list[Any] = []
    model: Any = None
    thresholds: Any = None
    summary: dict[str, Any] = {}
    _answer: Any = None
    _counts: Any = None
    _memory: Any = None

    def __init__(
        self,
        fields: Iterable[Field] | None = None,
        effort: str = "best",
        c: float | None = None,
        neighbors: int | None = None,
        embedding_dim: int | None = None,
        encoder: keras.layers.Layer | None = None,
        learning_rate: float = 1e-3,
        seed: int = 0,
        verbose: int = 1,
    ) -> None:
        check_choice("effort", effort, tuple(PRESETS))
        counts = {"neighbors": neighbors, "embedding_dim": embedding_dim}
        for name, value in {**counts, "seed": seed, "verbose": verbose}.items():
            is_count = isinstance(value, numbers.Integral) and value >> 63 == 0
            is_chosen = value is None and name in counts
            is_count &= name == "verbose" or not isinstance(value, bool)
            wanted = "an int of 0 or more, below 2^63"
            check_value(name, value, is_chosen or is_count, wanted)
        rates = {"learning_rate": learning_rate}
        for name, rate in (rates if c is None else {**rates, "c": c}).items():
            check_positive(name, rate)
        # scikit-learn's `clone` needs the same list.
        if fields is not None and not isinstance(fields, (list, tuple)):
            fields = as_list("fields", fields, "`tfxclass.text.Field`")
        wanted = "None, or a list with a `tfxclass.text.Field`"
        check_value("fields", fields, fields is None or bool(fields), wanted)
        self.fields: Any = fields
        self.effort, self.c = effort, c
        self.neighbors, self.embedding_dim = neighbors, embedding_dim
        self.encoder: Any = encoder
        self.learning_rate = learning_rate
        self.seed, self.verbose = seed, verbose

    def __getstate__(self) -> dict[str, Any]:
        # The function that answers cannot be pickled; it is made again.
        return {**self.__dict__, "_answer": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if self.summary.get("encoder_passes"):
            # The copied model has an encoder of its own.
            self.encoder = self.model.get_layer(self.encoder.name)

    def __sklearn_clone__(self) -> "Tagger":
        """The copy that scikit-learn's tools fit: it predicts tags alone."""
        from tfxclass_text.tagger_classifier import TaggerClassifier

        return TaggerClassifier(**copy.deepcopy(self.get_params()))

    def __repr__(self) -> str:
        what = f"{len(self.tags)} tags" if self.model else "not fitted"
        return f"<{type(self).__name__}: {what}, effort={self.effort!r}>"

    def fit(
        self,
        texts: Texts | Batches,
        tags: Tags | None = None,
        validation_data: tuple[Texts, Tags] | None = None,
        class_names: Mapping[Any, str | Sequence[str]] | None = None,
    ) -> "Tagger":
        """Learns from texts and their tags.

        Texts that are larger than memory are read in passes: give a
        `TextFile`, or an object that yields batches `(texts, tags)` anew each
        time it is iterated, and no `tags`.

        A refit begins anew, but for the weights of an `encoder`. If training
        fails, the tagger is not fitted.

        Args:
            texts: list of str, a dict of such lists (the columns) or a table
                (pandas, polars, PyArrow); or batches.
            tags: list, of each text a list of tags or one tag; or a table of
                one column. Tags are all ints, or all str. A str is one line of
                text: not empty, without line breaks, NULs, lone surrogates or a
                byte order mark. None for batches.
            validation_data: `(texts, tags)` that the choices are made on; by
                default a tenth of the texts, which are learned from, too.
            class_names: dict of tags to a name or a list of names, for texts
                of one column with one tag each. Names are more texts of their
                tags. Tags that no text has are answered, too, by embeddings.
                Tags may be left out.

        Returns:
            The tagger.

        Raises:
            ValueError: no texts, no tags, columns of different lengths, a tag
                that is no int and not one line of text; or texts and tagger do
                not go with `class_names`.

        Example:

        >>> names = {"food": "things to eat", "tool": ["tools", "hand tools"]}
        >>> tagger = tfxclass.text.Tagger()
        >>> tagger.fit(["milk", "eggs"], ["food", "food"], class_names=names)
        >>> tagger.predict(["a small hand tool"], k=1)
        """
        return self._fit(texts, tags, validation_data, class_names=class_names)

    def _fit(
        self, texts, tags, validation_data, linear_only=False, class_names=None
    ):
        began = time.process_time()
        if class_names is None:
            corpus = corpus_lib.read(texts, tags)
        else:
            self._check_embeds()
            corpus = corpus_lib.read_with_names(texts, tags, class_names)
        names = list(corpus.sample)
        if self.encoder is not None:
            encoder_lib.check(self.encoder, names)
            corpus.columns()
        if self.fields is not None:
            columns_lib.check_fields(self.fields, names)
        held = None
        if validation_data is not None:
            held = self._validation(validation_data, names)
        # What was learned is forgotten.
        self.tags, self.thresholds, self.summary = corpus.tags, None, {}
        self.model = self._answer = self._counts = self._memory = None
        if len(self.tags) == 1 and np.all(np.diff(corpus.labels().splits)):
            warnings.warn(
                f"All texts have the one tag {self.tags[0]!r}, so there is "
                "nothing to learn: it is the answer to every text.",
                stacklevel=3,
            )
        if held is not None:
            columns_lib.sorted_tags(itertools.chain(self.tags, *held[1]))
            held = held[0], corpus_lib.ids_of(held[1], self.tags)
            _warn_of_new_tags(held[1])
        learned = selection.learn(self, corpus, held, linear_only)
        self._take(learned, names, began)
        if self.verbose > 1:
            chosen = (f"  {key}: {x}" for key, x in self.summary.items())
            self.say("\n".join(["chosen", *chosen]))
        return self

    def partial_fit(
        self, texts: Texts | Batches, tags: Tags | None = None
    ) -> "Tagger":
        """Learns from more texts, which may have new tags.

        Use it for archives that grow. A tagger that is not fitted is fitted to
        the texts. Otherwise its weights are trained further: on the new texts,
        and on a sample of up to 20,000 earlier ones, which the tagger keeps and
        saves. What the first `fit` chose stays. Nearest texts, and embeddings
        that are mixed into linear scores, are left out from then on, with a
        warning. Use `fit` on all texts once in a while: it is more accurate.

        Args:
            texts: as in `fit`, with the same columns.
            tags: as in `fit`.

        Returns:
            The tagger.

        Raises:
            ValueError: as in `fit`; or the tagger has an encoder.

        Example:

        >>> tagger = tfxclass.text.Tagger(effort="fast").fit(texts, tags)
        >>> tagger.partial_fit(texts_of_november, tags_of_november)
        """
        if self.encoder is not None:
            raise ValueError(
                "`partial_fit` does not train an `encoder`. Use `fit` with all "
                "texts, or a Tagger without an encoder. Received: "
                f"encoder={self.encoder.name!r}"
            )
        if self.model is None:
            return self._fit(texts, tags, None, linear_only=True)
        began = time.process_time()
        corpus = corpus_lib.read(texts, tags)
        columns_lib.check_same(corpus.sample, self.model.input)
        dropped = [x for x in ("neighbors", "embedding_dim") if self.summary[x]]
        if dropped and self.summary["loss"] != EMBEDDINGS_ALONE:
            warnings.warn(
                f"`partial_fit` leaves out the scores of {dropped}, which know "
                "the texts of the first `fit` only.",
                stacklevel=2,
            )
        self.say(f"learning from {corpus.size} more texts")
        self._take(growth.grow(self, corpus), list(self.model.input), began)
        return self

    def predict(
        self,
        texts: Texts,
        k: int | None = None,
        threshold: float | str | None = None,
    ) -> list[list[tuple[str | int, float]]]:
        """The best tags of each text.

        Args:
            texts: list of str, or a dict of columns.
            k: int, most tags of a text; by default 5, and without end where
                there is a threshold.
            threshold: float, least probability of a tag, or `"calibrated"`:
                each tag's own, which made micro-F1 greatest on held-out texts.

        Returns:
            A list of lists of `(tag, probability)`, best first.
        """
        self._check_fitted()
        if k is None:
            k = 5 if threshold is None else len(self.tags)
        k = min(check_positive_int("k", k), len(self.tags))
        least = self.least(threshold)
        return [
            [
                (self.tags[i], float(p))
                for i, p in zip(ids[kept], probabilities[kept])
            ]
            for batch in self._answers(texts, k)
            for ids, probabilities, kept in zip(
                *batch, batch[1] >= least[batch[0]]
            )
        ]

    def least(self, threshold: float | str | None) -> np.ndarray:
        """The least probability of each tag, float32, for `predict`."""
        if isinstance(threshold, str) and threshold == CALIBRATED:
            return self.thresholds
        if threshold is None:
            return np.full(len(self.tags), -1, np.float32)
        is_share = isinstance(threshold, numbers.Real) and 0 <= threshold <= 1
        wanted = 'a number in [0, 1], "calibrated" or None'
        check_value("threshold", threshold, is_share, wanted)
        return np.full(len(self.tags), threshold, np.float32)

    def explain(
        self, text: str | dict[str, str], tag: str | int
    ) -> Explanation:
        """Why a text has a tag: what each of its terms adds to the logit.

        The logit is the number that the model's last sigmoid, or softmax, is
        applied to. It is the sum of `bias` and the `contribution` of each term.
        The `effect` of a term is how far the logit falls if the tagger does not
        know it: the other terms of its field then weigh more. The bias has what
        belongs to no single term. The effect has this, too, but for an encoder,
        which reads the whole text.

        Args:
            text: str, or a dict of one str by column.
            tag: one of `tags`.

        Returns:
            An `Explanation`: `tag`, `logit`, `bias`, and `terms`, a list of
            `(term, contribution, effect)`, the greatest contributions first.

        Raises:
            ValueError: an unknown tag, several texts, or other columns than
                `fit` was given.

        Example:

        >>> print(tagger.explain("eggs, red", "food"))
        """
        given = text if isinstance(text, dict) else {columns_lib.TEXT: text}
        columns = self._columns({name: [x] for name, x in given.items()})
        return explain_lib.explain(self, columns, tag)

    def evaluate(
        self, texts: Texts, tags: Tags, ks: Sequence[int] = (1, 3, 5)
    ) -> dict[str, float]:
        """How good the answers are; a dict of floats.

        `precision_at_k`, `recall_at_k`, `r_precision_at_k`, `ndcg_at_k`,
        `psp_at_k`, `coverage_at_k` for each of `ks`, `mean_reciprocal_rank`,
        and `micro_f1`, `macro_f1` at the threshold of the summary. Tags that
        were not learned count as missed.
        """
        self._check_fitted()
        ks = as_positive_ints("ks", ks)
        check_value("ks", ks, bool(ks), "one integer or several")
        columns = columns_lib.read(texts)
        size = columns_lib.size(columns)
        names = columns_lib.read_tags(tags, size)
        labels = columns_lib.padded_ids(names, self.tags)
        num_classes = max(int(labels.max(initial=0)) + 1, len(self.tags))
        # Past so many, none reaches the threshold.
        k = min(max(*ks, 100), len(self.tags))
        threshold, most = self.summary["threshold"], max(ks)
        ids, probabilities = (
            np.concatenate(part) for part in zip(*self._answers(columns, k))
        )
        # Answers are best first: later columns do not reach the threshold.
        used = np.count_nonzero((probabilities >= threshold).any(axis=0))
        # There is no answer in the places that the tags do not fill.
        missing = [(0, 0), (0, max(most - len(self.tags), 0))]
        ids, probabilities = (
            np.pad(x[:, : max(used, most)], missing, constant_values=-1)
            for x in (ids, probabilities)
        )
        micro, macro = metrics.f1_scores(
            ids, probabilities, labels, num_classes, threshold
        )
        counts = np.zeros(num_classes)
        counts[: len(self._counts)] = self._counts
        size = max(self.summary["texts"], 3)
        found = metrics.ranking_scores(
            ids, labels, ks, metrics.propensities(counts, size)
        )
        return {**found, "micro_f1": micro, "macro_f1": macro}

    def save(self, folder: Path) -> None:
        """Writes the tagger to a folder; `Tagger.load` reads it."""
        self._check_fitted()
        tagger_files.save(self, folder)

    @classmethod
    def load(cls, folder: Path) -> "Tagger":
        """The tagger that `save` wrote."""
        return tagger_files.load(cls, folder)

    def export(
        self,
        folder: Path,
        k: int = 10,
        threshold: float | str | None = None,
        verify: bool = True,
    ) -> str:
        """Writes the next version of a servable model, texts to names.

        Args:
            folder: of the model's versions.
            k: int, tags of an answer.
            threshold: as in `predict`; tags of a lesser probability are "".
            verify: whether the result is loaded from its files and its answers
                are compared.

        Returns:
            The folder written, str. Its signature `serving_default` takes the
            columns, string `[batch]`, and gives `ids` int64, `scores` float32
            and `labels` string, `[batch, k]`.
        """
        from tfxclass_text import tagger_export

        self._check_fitted()
        return tagger_export.export(self, folder, k, threshold, verify)

    def export_onnx(self, path: Path, k: int = 10, verify: bool = True) -> str:
        """Writes an ONNX model of the features of texts, see `features`.

        `model.onnx` reads `feature_ids` (int64) and `feature_values` (float32),
        `[batch, n]`. It gives `ids` (int64) and `scores` (float32),
        `[batch, k]`, best first. Line i of `labels.txt` is the name of tag i.
        It needs `pip install tf2onnx onnx onnxruntime`.

        Args:
            path: folder to make; it must not exist.
            k: int, tags of an answer.
            verify: whether ONNX Runtime's answers are compared.

        Returns:
            The path of `model.onnx`, str.

        Raises:
            ValueError: the folder exists, or the tagger has an encoder.
        """
        from tfxclass_text import tagger_onnx

        self._check_fitted()
        return tagger_onnx.export(self, path, k, verify)

    def features(self, texts: Texts) -> tuple[np.ndarray, np.ndarray]:
        """What the linear layer reads of texts: terms and their weights.

        Args:
            texts: list of str, or a dict of columns.

        Returns:
            `(ids, values)`, int64 and float32 `[texts, n]`, padded with value
            0.
        """
        columns = self._columns(texts)
        given = {name: tf.constant(x) for name, x in columns.items()}
        found = tagger_model.layers_of(self.model).features(given)
        return tuple(x.numpy() for x in found)

    def _validation(self, data, columns):
        """Columns and names of the tags, checked."""
        try:
            texts, tags = data
        except (TypeError, ValueError) as e:
            raise ValueError(
                "`validation_data` must be (texts, tags). Received: "
                f"{type(data).__name__}"
            ) from e
        held = columns_lib.read(texts)
        columns_lib.check_same(held, columns)
        return held, columns_lib.read_tags(tags, columns_lib.size(held))

    def _take(self, learned, names, began):
        """Has what was learned since `began`, a CPU time, of these columns."""
        self.model = tagger_model.make_model(names, learned.layers)
        self._answer = None
        self.tags, self.thresholds = learned.tags, learned.thresholds
        self._counts, self._memory = learned.counts, learned.memory
        values = [x.value for x in self.model.weights]
        size = sum(x.dtype.size * x.shape.num_elements() for x in values)
        linear = learned.layers.linear
        self.summary = {
            **learned.summary,
            "tags": len(self.tags),
            "weights": linear.num_entries + int(np.count_nonzero(linear.dense)),
            "features": learned.layers.features.num_features,
            "cpu_seconds": round(time.process_time() - began, 1),
            "megabytes": round(size / 1e6, 1),
        }

    def _answers(self, texts, k):
        """Batches of `(ids, probabilities)` `[batch, k]`, best first."""
        columns = self._columns(texts)
        if self._answer is None:
            self._answer = tagger_model.build_predictor(self.model)
        size = min(max(_MAX_SCORES // len(self.tags), 1), _BATCH)
        for batch in corpus_lib.slices(columns, size):
            yield self._answer(batch, k)

    def _columns(self, texts):
        """The columns of texts for a fitted tagger."""
        self._check_fitted()
        columns = columns_lib.read(texts)
        columns_lib.check_same(columns, self.model.input)
        return columns

    def _check_embeds(self):
        """Raises ValueError if settings exclude embeddings alone."""
        if self.c is not None or self.neighbors or self.embedding_dim == 0:
            raise ValueError(
                "`class_names` needs embeddings alone. Received: a Tagger with "
                f"c={self.c}, neighbors={self.neighbors}, "
                f"embedding_dim={self.embedding_dim}. Fix: leave these out"
            )

    def _check_fitted(self):
        if self.model is None:
            raise ValueError(
                "This tagger is not fitted. Fix: call `fit(texts, tags)` "
                "first, and again if it failed."
            )

    def say(self, message: str) -> None:
        """Prints a line, unless told not to."""
        if self.verbose:
            _show("")
            print(f"tagger: {message}", flush=True)

    def detail(self, message: str) -> None:
        """Prints progress if told to; else a terminal shows it for a while."""
        if self.verbose > 1:
            self.say(message)
        elif self.verbose:
            _show(f"tagger: {message}")


def _show(message):
    """Shows a line in place of the last one, on a terminal."""
    if sys.stderr.isatty():
        print(f"\r\033[K{message[:79]}", end="", file=sys.stderr, flush=True)


def _warn_of_new_tags(labels):
    """Warns if most texts of `validation_data` have unknown tags alone."""
    unknown = np.count_nonzero(np.diff(labels.splits) == 0)
    if 2 * unknown > len(labels):
        warnings.warn(
            f"{unknown} of {len(labels)} texts of `validation_data` have no "
            "tag that the texts to learn from have. They cannot tell what is "
            "best.",
            stacklevel=4,
        )
