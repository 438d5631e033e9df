"""What scikit-learn's tools ask of an estimator, without importing it."""

import inspect
from typing import Any

import numpy as np

from tfxclass.types import Tags
from tfxclass.types import Texts


class Estimator:
    """Parameters, tags and scores of a `Tagger`, as scikit-learn names them."""

    tags: list[Any]
    model: Any
    evaluate: Any
    _check_fitted: Any
    _answers: Any
    # Of scikit-learn before 1.6.
    _estimator_type = "classifier"

    @classmethod
    def _parameters(cls):
        return list(inspect.signature(cls).parameters)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The arguments of the constructor, by name; `deep` has no effect."""
        del deep
        return {name: getattr(self, name) for name in self._parameters()}

    def set_params(self, **params: Any) -> Any:
        """Changes arguments of the constructor, and returns the tagger.

        Raises:
            ValueError: an unknown name, or a value out of range.
        """
        names = self._parameters()
        for name in params:
            if name not in names:
                raise ValueError(
                    f"A {type(self).__name__} has the parameters {names}. "
                    f"Received: {name!r}"
                )
        params = {**self.get_params(), **params}
        # Refuses values before anything is changed.
        type(self)(**params)
        type(self).__init__(self, **params)
        return self

    @property
    def classes_(self) -> np.ndarray:
        """The tags in the order of the columns of `predict_proba`."""
        self._check_fitted()
        is_text = isinstance(self.tags[0], str)
        return np.array(self.tags, object if is_text else None)

    def predict_proba(self, texts: Texts) -> np.ndarray:
        """The probability of each tag, float32 `[texts, tags]`.

        It takes 4 bytes for each text and tag. `predict` gives the best tags
        only, in less memory. A text whose scores overflow has NaN.
        """
        self._check_fitted()
        found = []
        for ids, probabilities in self._answers(texts, len(self.tags)):
            dense = np.full(ids.shape, np.nan, np.float32)
            # Scores of a text that overflows have no order, and an id of -1.
            rows, places = np.nonzero(ids >= 0)
            dense[rows, ids[rows, places]] = probabilities[rows, places]
            found.append(dense)
        return np.concatenate(found)

    def score(self, texts: Texts, tags: Tags) -> float:
        """Precision at 1: the share of texts whose best tag is right.

        With one tag a text, it is the accuracy. `evaluate` has more measures.
        """
        return self.evaluate(texts, tags, ks=(1,))["precision_at_1"]

    def __sklearn_is_fitted__(self) -> bool:
        return self.model is not None

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import ClassifierTags
        from sklearn.utils import InputTags
        from sklearn.utils import Tags
        from sklearn.utils import TargetTags

        return Tags(
            estimator_type="classifier",
            target_tags=TargetTags(required=True),
            classifier_tags=ClassifierTags(multi_label=True),
            input_tags=InputTags(
                one_d_array=True, two_d_array=False, string=True, dict=True
            ),
        )
