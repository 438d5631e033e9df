"""A tagger whose predictions are tags, as scikit-learn's tools expect."""

import numpy as np

from tfxclass.types import Texts
from tfxclass_text.tagger import Tagger


class TaggerClassifier(Tagger):
    """A `Tagger` whose `predict` gives the best tag of each text, as an array.

    Use it in a `Pipeline` that you fit yourself. The other tools of
    scikit-learn take a `Tagger`, too: they fit copies of it, which are
    `TaggerClassifier`s. It takes the same arguments.

    Example:

    >>> classifier = tfxclass.text.TaggerClassifier(effort="fast")
    >>> classifier.fit(["milk", "red paint"], ["food", "colour"])
    >>> classifier.predict(["milk"])
    array(['food'], dtype=object)
    """

    def predict(  # type: ignore[override]
        self,
        texts: Texts,
        k: int | None = None,
        threshold: float | str | None = None,
    ) -> np.ndarray | list[list[tuple[str | int, float]]]:
        """The best tag of each text.

        Args:
            texts: as in `Tagger.predict`.
            k: int. With `k` or `threshold`, the answer is pairs, as from
                `Tagger.predict`.
            threshold: see `k`.

        Returns:
            An array of tags `[texts]`. If it was fitted to several tags of a
            text, the pairs of `Tagger.predict`.
        """
        self._check_fitted()
        is_plain = k is None and threshold is None
        if not (is_plain and self.summary["one_tag_a_text"]):
            return super().predict(texts, k, threshold)
        best = [ids[:, 0] for ids, _ in self._answers(texts, 1)]
        return self.classes_[np.concatenate(best)]
