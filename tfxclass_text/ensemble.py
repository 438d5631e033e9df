"""What is mixed with a tagger's linear scores, where held-out texts gain."""

from collections.abc import Callable
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

import numpy as np

from tfxclass.types import Columns
from tfxclass.types import Config
from tfxclass_text import embeddings
from tfxclass_text import encoder as encoder_lib
from tfxclass_text import kernel_ridge
from tfxclass_text import mixed_scores
from tfxclass_text import near_texts
from tfxclass_text import neighbors
from tfxclass_text import perceptron
from tfxclass_text import trials
from tfxclass_text.sparse_rows import LabeledRows
from tfxclass_text.sparse_rows import SparseRows

#: Layers of the model that mix in scores of a perceptron, of embeddings and
#: of an encoder.
HIDDEN, EMBEDDED = "mixed_hidden", "mixed_embeddings"
ENCODED = "mixed_scores"
# Labels from which on embeddings take the place of a perceptron.
_MANY_LABELS = 100
# Embeddings are not learned again with the held-out texts if these are fewer.
_FEW_HELD = 0.05
# Where no held-out texts tell.
_SHARE = neighbors.WEIGHT / (1 + neighbors.WEIGHT)


class ValidationSplit(NamedTuple):
    """Texts to learn from, and held-out ones to judge by.

    Attributes:
        learned: `LabeledRows`, terms and labels of the texts that are learned
            from.
        held: `SparseRows`, terms of the held-out texts.
        embedded: `LabeledRows`, the terms that embeddings are learned from, of
            the same texts as `learned`.
        held_embedded: `SparseRows`, such terms of the held-out texts.
        trial: `trials.Trial`, the linear scores of those.
        size: int, of all texts, which the final scores are learned from.
        texts: function without arguments: columns and labels of the texts that
            are learned from, and of the held-out ones.
    """

    learned: LabeledRows
    held: SparseRows
    embedded: LabeledRows
    held_embedded: SparseRows
    trial: trials.Trial
    size: int
    texts: Callable[[], list[tuple[Columns, SparseRows]]]


class Plan(NamedTuple):
    """What is tried of what can be mixed in; 0 for what is not.

    Attributes:
        landmarks: int.
        neighbors: int.
        hidden: `(units, passes)` of a network.
        embedding: `(length, passes)` of embeddings, if there is no network.
    """

    landmarks: int
    neighbors: int
    hidden: tuple[int, int]
    embedding: tuple[int, int]


class Ensemble:
    """Scores that are mixed with the linear ones, where they help.

    Args:
        tagger: `Tagger`.
        single_label: whether a text has one label.
        report: list, gets what was tried.
        linear_only: whether nothing is mixed in.

    Attributes:
        encoded: a layer of logits of the encoder and a `MixedScores`, or None.
    """

    def __init__(
        self,
        tagger: Any,
        single_label: bool,
        report: list[Any],
        linear_only: bool = False,
    ) -> None:
        self.tagger, self.report = tagger, report
        self.single_label = single_label
        self.num_labels = len(tagger.tags)
        self.linear_only = linear_only
        landmarks = 0 if linear_only else tagger.landmarks or 0
        votes = 0 if linear_only else tagger.neighbors or 0
        self.landmarks, self.kernel_share = landmarks, _SHARE
        self.neighbors, self.vote_share = votes, _SHARE
        self.hidden_units, self.hidden_epochs, self.hidden = 0, 0, None
        self.embedding_dim, self.embedding_epochs = 0, 0
        self.embedded, self._embedding = None, None
        self.encoded, self.encoder_epochs = None, 0
        self._plan: Any = None

    @property
    def is_wanted(self) -> bool:
        """Whether anything is tried."""
        tagger = self.tagger
        if self.linear_only:
            return False
        given = (
            tagger.neighbors,
            tagger.landmarks,
            tagger.hidden_units,
            tagger.embedding_dim,
        )
        return (
            tagger.effort != "fast" or tagger.encoder is not None or any(given)
        )

    @property
    def wants_embeddings(self) -> bool:
        """Whether embeddings are tried."""
        given = self.tagger.embedding_dim
        if self.linear_only or given == 0:
            return False
        return bool(given) or self.tagger.effort != "fast"

    def choose(self, answers: np.ndarray, data: ValidationSplit) -> np.ndarray:
        """The answers with all that is wanted or helps.

        Args:
            answers: float32 `[held-out rows, labels]`, linear probabilities.
            data: `ValidationSplit`.
        """
        self._plan = self.plan(
            data.learned, data.embedded, data.size, len(data.trial.labels)
        )
        for add in (
            self._kernel,
            self._votes,
            self._perceptron,
            self._embeddings,
            self._encoder,
        ):
            answers = add(answers, data)
        return answers

    def plan(
        self,
        learned: LabeledRows,
        embedded: LabeledRows,
        size: int,
        num_judged: int,
    ) -> Plan:
        """What is tried, which depends on the sizes of the data.

        Args:
            learned, embedded, size: as in `ValidationSplit`.
            num_judged: int, labels that held-out texts are judged by. Among
                some of the labels a text has few rivals, and gains there do not
                hold among all.
        """
        tagger = self.tagger
        can_judge = self.single_label or num_judged == self.num_labels
        is_tried = tagger.effort != "fast" and can_judge

        def count(given, usual):
            return given if given is not None else usual if is_tried else 0

        def layer(given, usual, module, texts):
            units = count(given, usual)
            epochs = module.num_epochs(texts, units) if units else 0
            return units, max(epochs, module.MIN_EPOCHS) if given else epochs

        landmarks = kernel_ridge.num_landmarks(size, self.num_labels)
        # Embeddings do better where one of many labels is right.
        is_one_of_many = self.single_label and self.num_labels > _MANY_LABELS
        units = 0 if is_one_of_many else perceptron.UNITS
        length = embeddings.num_units(embedded)
        return Plan(
            count(tagger.landmarks, landmarks),
            count(tagger.neighbors, neighbors.NEIGHBORS),
            layer(tagger.hidden_units, units, perceptron, learned),
            layer(tagger.embedding_dim, length, embeddings, embedded),
        )

    def _kernel(self, answers, data):
        wanted, count = self.tagger.landmarks, self._plan.landmarks
        if not count:
            return answers
        layer = kernel_ridge.build_kernel_scores(
            data.learned, count, single_label=self.single_label,
            seed=self.tagger.seed,
        )  # fmt: skip
        share, mixed = self._shared(answers, layer, data, kernel_ridge.SHARES)
        if not self._gains("kernel", wanted, answers, mixed, data):
            return answers
        self.landmarks, self.kernel_share = min(count, data.size), share
        return mixed

    def _votes(self, answers, data):
        wanted, count = self.tagger.neighbors, self._plan.neighbors
        if not count:
            return answers
        layer = neighbors.build_neighbor_votes(data.learned, count)
        share, mixed = self._shared(answers, layer, data, neighbors.SHARES)
        if not self._gains("neighbors", wanted, answers, mixed, data):
            return answers
        self.neighbors, self.vote_share = count, share
        return mixed

    def _perceptron(self, answers, data):
        wanted, (units, epochs) = self.tagger.hidden_units, self._plan.hidden
        if not units or not epochs:
            return answers
        network = self._train_perceptron(data.learned, units, epochs)
        logits = network.logits_of(data.held, data.trial.labels)
        mixed, both = self._fitted(answers, logits, data, HIDDEN)
        if not self._gains("perceptron", wanted, answers, both, data):
            return answers
        self.hidden_units, self.hidden_epochs = units, epochs
        self.hidden = mixed
        return both

    def _train_perceptron(self, data, units, epochs):
        return perceptron.train(
            data, units, epochs, self.single_label, self.tagger.seed,
            self.tagger.detail,
        )  # fmt: skip

    def _embeddings(self, answers, data):
        wanted, texts = self.tagger.embedding_dim, data.embedded
        units, epochs = self._plan.embedding
        # A perceptron's scores are of the same kind.
        is_done = wanted is None and self.hidden_units
        if is_done or not units or not epochs:
            return answers
        embedding = self._train_embeddings(texts, units, epochs)
        added = embedding.log_probabilities_of(
            data.held_embedded, data.trial.labels
        )
        mixed, both = self._fitted(answers, added, data, EMBEDDED)
        if not self._gains("embeddings", wanted, answers, both, data):
            return answers
        self.embedding_dim, self.embedding_epochs = units, epochs
        self.embedded = mixed
        if len(texts.rows) >= (1 - _FEW_HELD) * data.size:
            self._embedding = embedding
        return both

    def _train_embeddings(self, data, units, epochs):
        return embeddings.train(
            data, units, epochs, self.tagger.seed, self.tagger.detail
        )

    def _encoder(self, answers, data):
        encoder = self.tagger.encoder
        if encoder is None:
            return answers
        learned, held = data.texts()
        layer, epochs = encoder_lib.train(
            encoder, self.tagger.learning_rate, learned, held,
            self.num_labels, self.single_label, self.tagger.seed,
            self.tagger.detail,
        )  # fmt: skip
        logits = encoder_lib.logits_of(encoder, layer, held[0])
        logits = logits[:, data.trial.labels]
        mixed, both = self._fitted(answers, logits, data, ENCODED)
        if not self._gains("encoder", None, answers, both, data):
            return answers
        self.encoded, self.encoder_epochs = (layer, mixed), epochs
        return both

    def _shared(self, answers, layer, data, shares):
        """The best share of the layer's scores, and the answers with it."""
        scores = near_texts.scores_of(layer, data.held, data.trial.labels)
        return best_share(
            answers, scores, data.trial.truth, shares, self.single_label
        )

    def _fitted(self, answers, logits, data, name):
        """A `MixedScores`, and the answers with the logits."""
        mixed = mixed_scores.build_mixed_scores(
            answers, logits, data.trial.truth, self.single_label, name
        )
        return mixed, mixed(answers, logits).numpy()

    def _gains(self, name, wanted, before, after, data):
        """Whether held-out texts gain enough, or it is wanted anyway."""
        truth = data.trial.truth
        before, after = (
            scores(x, truth, self.single_label) for x in (before, after)
        )
        self.report.append((name, round(float(after.mean()), 4)))
        self.tagger.detail(f"{name}: {before.mean():.4f} to {after.mean():.4f}")
        is_clear = trials.clear_gain(after, before) >= trials.MIN_GAIN
        return wanted is not None or is_clear

    def layers(self, data: Any) -> list[Callable[..., Any]]:
        """What a model mixes in: `(ids, values, outputs)` to outputs.

        Args:
            data: `LabeledRows`, terms and labels of all texts.
        """
        found: list[Callable[..., Any]] = []
        if self.landmarks:
            kernel = kernel_ridge.build_kernel_scores(
                data, self.landmarks, share=self.kernel_share,
                single_label=self.single_label, seed=self.tagger.seed,
                name="kernel",
            )  # fmt: skip
            found.append(kernel)
        if self.neighbors:
            votes = neighbors.build_neighbor_votes(
                data, self.neighbors, self.vote_share, "neighbors"
            )
            found.append(votes)
        if self.hidden is not None:
            network = self._train_perceptron(
                data, self.hidden_units, self.hidden_epochs
            )

            def mix(ids, values, outputs):
                return self.hidden(outputs, network.logits(ids, values))

            found.append(mix)
        return found

    def embedding(
        self, data: Callable[[], LabeledRows]
    ) -> embeddings.TextEmbedding | None:
        """Embeddings that are mixed in, or None.

        Args:
            data: function without arguments to `LabeledRows`, the terms and
                labels of all texts that embeddings are learned from.
        """
        if self.embedded is None or self._embedding is not None:
            return self._embedding
        return self._train_embeddings(
            data(), self.embedding_dim, self.embedding_epochs
        )

    def summary(self) -> Config:
        """What was chosen, for `Tagger.summary`."""
        return {
            "landmarks": self.landmarks,
            "kernel_share": _share(self.landmarks, self.kernel_share),
            "neighbors": self.neighbors,
            "vote_share": _share(self.neighbors, self.vote_share),
            "hidden_units": self.hidden_units,
            "hidden_passes": self.hidden_epochs,
            "embedding_dim": self.embedding_dim,
            "embedding_passes": self.embedding_epochs,
            "encoder_passes": self.encoder_epochs,
        }


def scores(
    answers: np.ndarray, truth: np.ndarray, single_label: bool
) -> np.ndarray:
    """How good the answers of each judged row are; the higher the better.

    Args:
        answers: float, `[rows, labels]`.
        truth: bool, `[rows, labels]`.
        single_label: whether a row has one label.
    """
    measure = trials.reciprocal_ranks if single_label else trials.row_precisions
    return measure(answers, truth)


def best_share(
    answers: np.ndarray,
    added: np.ndarray,
    truth: np.ndarray,
    shares: Sequence[float],
    single_label: bool,
) -> tuple[float, np.ndarray]:
    """The best of `shares` of the scores, and the answers with it."""
    mixes = [(1 - x) * answers + x * added for x in shares]
    best = int(
        np.argmax([scores(x, truth, single_label).mean() for x in mixes])
    )
    return shares[best], mixes[best]


def _share(count, share):
    """For the summary: 0 of what is not mixed in."""
    return round(share, 3) if count else 0.0
