"""The DropMax table on tiny data, and its readers."""

import gzip
import types

import numpy as np
import pytest
import tensorflow as tf

from benchmarks import dropmax
from benchmarks import dropmax_methods
from benchmarks import dropmax_retained
from benchmarks import measure
from tests.support.benchmark_sets import generated_pictures
from tests.support.contract import BATCH
from tests.support.contract import built
from tests.support.contract import data

# A script of benchmarks, which no user runs.
pytestmark = pytest.mark.slow


class TestCommand:
    @pytest.mark.slow
    def test_table(self, tmp_path, monkeypatch, capsys):
        for name in ("CACHE", "RESULTS"):
            monkeypatch.setattr(measure, name, str(tmp_path / name))
        given = "--sets generated --usual --seeds 0 --methods".split()
        given += ["base", "random 0.4", "adaptive"]
        dropmax.main(given)
        rows = measure.finished("dropmax")
        assert [row["method"] for row in rows] == [
            "base",
            "random 0.4 (18)",
            "random 0.4 (17)",
            "adaptive (18)",
            "adaptive (17)",
        ]
        for row in rows:
            assert 0 <= row["error_%"] <= 100 and 0 <= row["ece"] <= 1
        trained = "base l2=0.0001,lambda=own seed=0"
        assert trained in capsys.readouterr().out
        # What has a result is not trained again.
        (tmp_path / "RESULTS" / "dropmax.json").unlink()
        dropmax.main(given)
        assert trained not in capsys.readouterr().out
        assert len(measure.finished("dropmax")) == len(rows)

    @pytest.mark.slow
    def test_a_method_learns(self):
        made = generated_pictures(None, 0)
        setting = dropmax.Setting(1e-4)
        result, model = dropmax_methods.train("posterior", setting, made, 0, 96)
        losses = [point["test"] for point in result["curve"]]
        assert len(losses) == dropmax_methods.POINTS and losses[-1] < losses[0]
        assert {*result["scores"]} == {
            f"{part} {n}" for part in ("validation", "test") for n in (17, 18)
        }
        assert model.predict(made.test[0], verbose=0).shape == (100, 10)

    @pytest.mark.slow
    def test_steps_are_those_of_fit(self):
        made = generated_pictures(None, 0)
        setting = dropmax.Setting(1e-4)
        x, y = made.train
        order = np.random.default_rng(0).permutation(len(y)).reshape(4, 50)
        found = []
        for is_fit in (False, True):
            model = dropmax_methods.make_model("base", setting, made, 0, 9)
            start = [v.numpy() for v in model.trainable_variables]
            if is_fit:
                rows = order.ravel()
                model.fit(x[rows], y[rows], 50, shuffle=False, verbose=0)
            else:
                dropmax_methods.steps_on(model, x, y)(tf.constant(order))
            found.append([v.numpy() for v in model.trainable_variables])
        for ours, theirs, first in zip(*found, start):
            np.testing.assert_allclose(ours, theirs, atol=1e-5)
            assert np.abs(ours - first).max() > 1e-4


def test_a_recipe_of_its_own():
    """The paper's: dropout of the hidden layer, and a rate that stays."""
    made = generated_pictures(None, 0)
    recipe = dropmax.SETS["mnist_1k_paper"].recipe
    setting = dropmax.Setting(1e-4)
    model = dropmax_methods.make_model("base", setting, made, 0, 9, recipe)
    dropped = np.mean(model.layers[-2](tf.ones([20, 500]), training=True) == 0)
    assert dropped == pytest.approx(0.5, abs=0.05)
    model.optimizer.iterations.assign(8)
    assert float(model.optimizer.learning_rate) == pytest.approx(1e-4)


class TestChoice:
    """Jobs are made up here, not trained."""

    @pytest.fixture
    def args(self, tmp_path, monkeypatch):
        monkeypatch.setattr(measure, "CACHE", str(tmp_path))
        return types.SimpleNamespace(seeds=[4, 5, 6], usual=False)

    def all_jobs(self, args, error_of):
        """What is trained, in order, if a setting errs by `error_of`."""
        done = []

        def train(setting, seed):
            # The best on validation rows is the worst on test rows.
            error = error_of(setting)
            scores = {"validation 18": error, "test 18": 9 - error}
            scores = {k: {"error": v} for k, v in scores.items()}
            done.append((setting.l2, setting.entropy_weight, seed))
            return {"scores": scores, "seed": seed}

        found = dropmax.results_of(args, "mnist_1k", "posterior", train)
        found = [(*s, n, [r["seed"] for r in rows]) for s, n, rows in found]
        return done, found

    def test_settings_by_validation_then_seeds(self, args):
        """Lambda, then l2 beside the best; the best with all seeds."""
        done, found = self.all_jobs(
            args, lambda s: (s.entropy_weight != 5) + 100 * s.l2
        )
        seeds = [4, 5, 6]
        assert done == [
            *((1e-4, None, seed) for seed in seeds),
            *((1e-4, weight, 4) for weight in (1.0, 5.0)),
            *((l2, 5.0, 4) for l2 in (0.0, 1e-5, 1e-3)),
            *((0.0, 5.0, seed) for seed in seeds[1:]),
        ]
        assert found == [(1e-4, None, 1, seeds), (0.0, 5.0, 6, seeds)]

    def test_the_usual_setting_may_be_the_best(self, args):
        done, found = self.all_jobs(
            args, lambda s: (s.entropy_weight is not None) + (s.l2 != 1e-4)
        )
        assert len(done) == 3 + 2 + 3
        assert found == [(1e-4, None, 6, [4, 5, 6])]

    def test_usual_settings_alone(self, args):
        args.usual = True
        done, found = self.all_jobs(args, lambda s: s.l2)
        assert len(done) == 3
        assert found == [(1e-4, None, 1, [4, 5, 6])]

    @pytest.mark.parametrize("method", dropmax_methods.METHODS)
    def test_every_weight_is_a_head(self, method):
        made = dropmax_methods.METHODS[method]
        assert made.entropy_weights[0] is None
        for wanted in made.entropy_weights:
            head = made.make(2000, 0, wanted)
            assert wanted is None or head.entropy_weight == wanted


def test_a_row_of_several_seeds():
    found = [
        {
            "scores": {
                f"{part} 18": {"error": error, "ece": 0.1, "loss": error / 8}
                for part in ("test", "validation")
            },
            "cpu_s": error,
        }
        for error in (2.0, 3.0, 7.0)
    ]
    setting = dropmax.USUAL
    row = dropmax._row("mnist_1k", "posterior", "18", setting, 6, found)
    assert row["method"] == "posterior (18)"
    assert (row["setting"], row["lambda"], row["best of"]) == (
        "usual",
        "own",
        6,
    )
    assert (row["error_%"], row["least"], row["most"]) == (4.0, 2.0, 7.0)
    assert (row["median_%"], row["test_loss"]) == (3.0, 0.5)
    # The square root of 7, over that of 3.
    assert row["standard_error"] == 1.53
    setting = setting._replace(l2=0.0)
    row = dropmax._row("mnist_1k", "base", "18", setting, 4, found[:1])
    assert row["setting"] == "chosen" and row["standard_error"] == ""


def test_scores():
    p = np.array([[0.8, 0.2], [0.3, 0.7], [0.6, 0.4], [0.58, 0.42]])
    found = dropmax_methods.scores(p, np.array([0, 0, 0, 1]))
    assert found["error"] == 50.0
    assert np.exp(-4 * found["loss"]) == pytest.approx(0.8 * 0.3 * 0.6 * 0.42)
    # Bins of a fifteenth: 0.58 is in that of 0.53 to 0.6, 0.6 is not.
    gaps = abs(0.8 - 1) + abs(0.7 - 0) + abs(0.6 - 1) + abs(0.58 - 0)
    assert found["ece"] == pytest.approx(gaps / 4)


class TestRowSampledSoftmax:
    @pytest.mark.parametrize("learned", [False, True])
    def test_all_classes_often_enough_is_the_softmax(self, learned):
        """With every class drawn and Q uniform, the correction is common."""
        head = dropmax_methods.RowSampledSoftmax(6, 40.0, learned, seed=1)
        built(head)
        if learned:
            head.proposal.kernel.assign(tf.zeros(head.proposal.kernel.shape))
            head.proposal.bias.assign(tf.zeros([6]))
        x, y = data(classes=6)
        losses = head.compute_loss(x, y, training=True)
        expected = head.compute_loss(x, y).numpy()
        if learned:
            expected = expected + np.log(6)  # Q's own loss
        np.testing.assert_allclose(losses, expected, rtol=1e-5, atol=1e-5)

    def test_few_classes_of_each_row(self):
        head = built(dropmax_methods.RowSampledSoftmax(60, seed=1))
        x, y = data()
        with tf.GradientTape() as tape:
            tape.watch(head.kernel.value)
            logits = tf.Variable(head.all_logits(tf.constant(x)))
            head.all_logits = lambda queries: tf.convert_to_tensor(logits)
            loss = head.compute_loss(x, y, training=True)
        moved = tape.gradient(loss, logits).numpy() != 0
        assert np.all(moved[np.arange(BATCH), y])
        # 40 % of 60 classes without replacement, and the label.
        np.testing.assert_array_equal(moved.sum(axis=1), 25)


class TestReaders:
    def write_mnist(self, folder):
        (folder / "mnist").mkdir()
        random = np.random.default_rng(0)
        for part, rows in (("train", 6000), ("t10k", 30)):
            x = random.integers(0, 256, (rows, 28, 28), np.uint8)
            y = (np.arange(rows) % 10).astype(np.uint8)
            for name, array in (("images-idx3", x), ("labels-idx1", y)):
                head = bytes([0, 0, 8, array.ndim])
                head += np.array(array.shape, ">i4").tobytes()
                path = folder / "mnist" / f"{part}-{name}-ubyte.gz"
                path.write_bytes(gzip.compress(head + array.tobytes(), 1))
        return x

    def test_mnist(self, tmp_path):
        images = self.write_mnist(tmp_path)
        found = dropmax.mnist(50, tmp_path, seed=0)
        assert found.train[0].shape == (50, 28, 28, 1)
        np.testing.assert_array_equal(np.bincount(found.train[1]), 5)
        assert len(found.validation[1]) == 5000
        np.testing.assert_allclose(found.test[0][..., 0], images / 255)
        other = dropmax.mnist(50, tmp_path, seed=1)
        assert not np.array_equal(found.train[0], other.train[0])
        assert len(dropmax.mnist(1000, tmp_path, 0).train[1]) == 1000


class TestRetained:
    def test_confused_classes(self):
        """A correlation of 1 where confused classes are retained the most."""
        retain = np.array([[0.9, 0.2, 0.4], [0.3, 0.9, 0.5], [0.6, 0.7, 0.8]])
        scores = {"test 18": {"error": 2.0}, "validation 18": {"error": 3.0}}
        result = {"answers": retain.tolist(), "scores": scores}
        # The last row is hard.
        base = {"answers": (retain**2 - np.diag([0, 0, 0.2])).tolist()}
        row = dropmax_retained.row_of(
            [result] * 2, [base] * 2, np.arange(3), dropmax_retained.numbers_of
        )
        assert row["correlation"] == pytest.approx(1.0)
        assert (row["least"], row["most"]) == pytest.approx((0.2, 0.7))
        assert row["of the label"] == pytest.approx(retain.diagonal().mean())
        assert (row["error_%"], row["validation_error_%"]) == (2.0, 3.0)
        assert (row["hard rows"], row["hard confused"]) == (1, 0.7)

    def test_hard_rows(self):
        """By hand: rows 1 and 2 are hard, and row 1's rival is the greatest."""
        retained = np.array(
            [
                [0.9, 0.1, 0.2, 0.3],
                [0.8, 0.7, 0.4, 0.2],
                [0.5, 0.3, 0.6, 0.1],
            ]
        )
        guesses, labels = np.array([0, 1, 0]), np.array([0, 0, 1])
        found = dropmax_retained.hard_rows(retained, guesses, labels)
        assert found == pytest.approx(
            {
                "hard rows": 2,
                "hard label": (0.8 + 0.3) / 2,
                "hard confused": (0.7 + 0.5) / 2,
                "hard rest": (0.4 + 0.2 + 0.6 + 0.1) / 4,
                "confused is greatest_%": 50.0,
                "hard least class": (0.2 + 0.1) / 2,
                "hard greatest class": (0.8 + 0.5) / 2,
                "easy label": 0.9,
                "easy others": (0.1 + 0.2 + 0.3) / 3,
            }
        )
