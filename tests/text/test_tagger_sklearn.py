"""A tagger in scikit-learn's tools."""

import pickle

import numpy as np
import pytest

from tests.text.test_tagger import TAGS
from tests.text.test_tagger import TEXTS
from tests.text.test_tagger import quiet
from tfxclass_text import Field
from tfxclass_text import Tagger
from tfxclass_text import TaggerClassifier

sklearn = pytest.importorskip("sklearn", "1.6")

MANY = TEXTS * 5
ONE = [tags[0] for tags in TAGS] * 5
SEVERAL = TAGS * 5


def fast(**options):
    return quiet(effort="fast", **options)


#: Checks of scikit-learn that do not apply, and why.
EXCEPTIONS = {
    "check_do_not_raise_errors_in_init_or_set_param": (
        "arguments are checked where they are given, before texts are read"
    ),
}


@pytest.mark.filterwarnings("ignore:Can't test estimator Tagger")
def test_checks_of_scikit_learn():
    """All that apply; scikit-learn skips those on arrays of numbers."""
    from sklearn.utils import estimator_checks

    results = estimator_checks.check_estimator(
        Tagger(), expected_failed_checks=EXCEPTIONS, on_skip=None, on_fail=None
    )
    failed = [x for x in results if x["status"] == "failed"]
    assert not failed, [(x["check_name"], str(x["exception"])) for x in failed]
    assert any(x["status"] == "passed" for x in results)


def test_clone_and_parameters():
    from sklearn.base import clone
    from sklearn.base import is_classifier
    from sklearn.utils import get_tags

    fields = [Field("text", min_count=1)]
    tagger = fast(c=0.7, fields=fields, embedding_dim=0, seed=3)
    copy = clone(tagger)
    assert copy.get_params() == tagger.get_params()
    assert copy.fields == fields and copy.c == 0.7
    assert tagger.set_params(c=0.1, effort="best") is tagger
    assert (tagger.c, tagger.effort, tagger.seed) == (0.1, "best", 3)
    with pytest.raises(ValueError, match="has the parameters .*'depth'"):
        tagger.set_params(depth=3)
    with pytest.raises(ValueError, match="`c` must be"):
        tagger.set_params(c=-1.0)
    assert tagger.c == 0.1
    assert is_classifier(tagger)
    assert get_tags(tagger).input_tags.string


def test_probabilities_and_scores():
    tagger = fast().fit(MANY, ONE)
    assert tagger.classes_.tolist() == sorted(set(ONE))
    found = tagger.predict_proba(TEXTS)
    assert found.shape == (6, len(tagger.tags)) and found.dtype == np.float32
    np.testing.assert_allclose(found.sum(axis=1), 1, atol=1e-5)
    for row, answers in zip(found, tagger.predict(TEXTS, k=9)):
        assert dict(answers) == dict(zip(tagger.classes_, row.tolist()))
    best = tagger.classes_[found.argmax(axis=1)]
    assert tagger.score(MANY, ONE) == np.mean(np.tile(best, 5) == ONE)
    several = fast().fit(MANY, SEVERAL)
    assert several.score(MANY, SEVERAL) == 1.0


def test_cross_validation_and_grids():
    """Several tags a text; one tag is in `test_tools_that_read_predictions`."""
    from sklearn.model_selection import GridSearchCV
    from sklearn.model_selection import KFold
    from sklearn.model_selection import cross_val_score

    folds = KFold(2, shuffle=True, random_state=0)
    assert np.all(cross_val_score(fast(), MANY, SEVERAL, cv=folds) > 0.5)
    search = GridSearchCV(fast(), {"c": [0.001, 1.0]}, cv=folds)
    search.fit(MANY, SEVERAL)
    assert search.best_params_["c"] in (0.001, 1.0)
    assert search.predict(["a red fox"])[0][0][0] == "animal"


def test_pipeline_and_pickle(tmp_path):
    import joblib
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import FunctionTransformer

    def clean(texts):
        return [text.replace("hare", "fox") for text in texts]

    pipeline = make_pipeline(FunctionTransformer(clean), fast())
    pipeline.fit(MANY, ONE)
    tagger = pipeline[-1]
    expected = tagger.predict(["a fox"])
    assert pipeline.predict(["a hare"]) == expected
    assert pickle.loads(pickle.dumps(tagger)).predict(["a fox"]) == expected
    joblib.dump(tagger, tmp_path / "tagger.joblib")
    loaded = joblib.load(tmp_path / "tagger.joblib")
    assert loaded.predict(["a fox"]) == expected
    loaded.partial_fit(["a boat"] * 3, ["boat"] * 3)
    assert loaded.predict(["boat"], k=1)[0][0][0] == "boat"


@pytest.mark.parametrize(
    "tags",
    [
        pytest.param(["fox", "hare", "cake"], marks=pytest.mark.slow),
        [200, 7, -1],
    ],
)
def test_tools_that_read_predictions(tags):
    """They number tags, and compare predictions with them."""
    from sklearn import model_selection
    from sklearn.calibration import CalibratedClassifierCV
    from sklearn.ensemble import StackingClassifier
    from sklearn.ensemble import VotingClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.multiclass import OneVsRestClassifier

    texts, tags = [f"a {tag} and more" for tag in tags] * 8, tags * 8
    scores = model_selection.cross_validate(
        fast(), texts, tags, cv=2, error_score="raise",
        scoring=["accuracy", "f1_macro", "neg_log_loss", "roc_auc_ovr"],
    )  # fmt: skip
    for name in ("accuracy", "f1_macro", "roc_auc_ovr"):
        assert scores[f"test_{name}"].tolist() == [1.0, 1.0]
    found = model_selection.cross_val_predict(
        fast(), texts, tags, cv=2, method="predict_proba"
    )
    assert found.shape == (24, 3)
    for tool in (
        VotingClassifier([("tagger", fast())]),
        StackingClassifier([("x", fast())], LogisticRegression(C=99.0), cv=2),
        CalibratedClassifierCV(fast(), cv=2),
        OneVsRestClassifier(fast()),
    ):
        tool.fit(texts, tags)
        assert tool.predict(texts).tolist() == tags, tool
    copy = pickle.loads(pickle.dumps(tool))
    assert copy.predict(texts).tolist() == tags


def test_a_classifier_predicts_tags_alone(tmp_path):
    from sklearn.base import clone

    classifier = TaggerClassifier(effort="fast", verbose=0)
    assert type(clone(fast())) is type(clone(classifier)) is TaggerClassifier
    with pytest.raises(ValueError, match="not fitted"):
        classifier.predict(TEXTS)
    classifier.fit(MANY, ONE).save(tmp_path)
    assert repr(classifier).startswith("<TaggerClassifier: ")
    tagger = Tagger.load(tmp_path)
    best = [row[0][0] for row in tagger.predict(MANY)]
    assert TaggerClassifier.load(tmp_path).predict(MANY).tolist() == best
    assert classifier.predict(TEXTS, k=2) == tagger.predict(TEXTS, k=2)
    # There is not one tag of each text.
    classifier.fit(MANY, SEVERAL)
    assert classifier.predict(TEXTS)[0][0][0] == "animal"


def test_data_frames():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"title": [x[:9] for x in MANY], "text": MANY})
    tagger = fast().fit(frame, ONE)
    assert set(tagger.model.input) == {"title", "text"}
    assert tagger.score(frame, ONE) > 0.9
