"""The papers' comparison: its data sets, its table of methods, its jobs."""

import lzma

import numpy as np
import pytest
import tensorflow as tf

from benchmarks import measure
from benchmarks.comparison import __main__ as comparison
from benchmarks.comparison import concentration
from benchmarks.comparison import methods
from benchmarks.comparison import open_set
from benchmarks.comparison import rows as rows_lib
from benchmarks.comparison import sets
from benchmarks.comparison import train
from benchmarks.comparison.rows import Rows
from benchmarks.comparison.train import Job
from tests.support.benchmark_sets import generated_rows
from tests.support.cases import quick

# A script of benchmarks, which no user runs.
pytestmark = pytest.mark.slow


def make_rows(words, labels, keep=1.0):
    ids = np.array(sum(words, []), np.int32)
    return Rows(
        np.cumsum([0, *map(len, words)]),
        ids,
        ids + 0.5,
        np.full(len(ids), keep, np.float32),
        np.array(labels),
    )


@pytest.fixture(scope="module")
def generated():
    return generated_rows()


class TestRows:
    def test_a_batch_is_padded_and_cut(self):
        rows = make_rows([[3, 1], [], [4, 5, 6]], [[0], [1], [2]])
        batch = rows.batch(np.array([2, 1, 0]), length=2)
        assert batch["ids"].tolist() == [[4, 5], [0, 0], [3, 1]]
        assert batch["values"].tolist() == [[4.5, 5.5], [0, 0], [3.5, 1.5]]

    def test_words_are_drawn_by_keep(self):
        rows = make_rows([[7] * 1000, [8] * 1000], [[0], [1]], keep=0.25)
        random = np.random.default_rng(0)
        ids = rows.batch(np.array([0, 1]), 1000, random)["ids"]
        counts = (ids > 0).sum(axis=1)
        # Five standard deviations of a binomial.
        assert np.all(np.abs(counts - 250) < 5 * np.sqrt(1000 * 0.25 * 0.75))
        # What is left out leaves no hole.
        assert [row[:n].min() for row, n in zip(ids, counts)] == [7, 8]

    def test_classes_are_numbered_by_frequency(self):
        train_rows = make_rows(
            [[0], [1], [2]], [[2, 5, -1], [5, 0, 2], [5, -1, -1]]
        )
        data = rows_lib.make_set(3, 1, 6, train_rows, train_rows)
        assert data.counts.tolist() == [3, 2, 1, 0, 0, 0]
        expected = [[1, 0, -1], [0, 2, 1], [0, -1, -1]]
        assert data.train.labels.tolist() == expected
        assert data.test.labels.tolist() == expected

    def test_the_test_is_sampled(self):
        count = rows_lib.TEST_ROWS + 50
        many = make_rows([[i] for i in range(count)], [[0]] * count)
        few = make_rows([[0]], [[0]])
        ids = rows_lib.make_set(count, 1, 1, few, many).test.ids
        assert len(ids) == rows_lib.TEST_ROWS and np.all(np.diff(ids) > 0)

    def test_validation_rows_are_training_rows(self, generated):
        data = rows_lib.validation(generated, one_in=10)
        count = generated.train.num_rows
        assert data.test.num_rows == count // 10
        assert data.train.num_rows == count - count // 10
        found = np.sort(np.concatenate([data.train.ids, data.test.ids]))
        expected = np.sort(generated.train.ids)
        np.testing.assert_array_equal(found, expected)

    def test_kept_for_the_next_process(self, tmp_path, monkeypatch, generated):
        monkeypatch.setattr(measure, "CACHE", str(tmp_path))
        first, second = (sets.load("generated", tmp_path) for _ in range(2))
        assert len(list(tmp_path.rglob("*.pickle"))) == 1
        for loaded in (first, second):
            np.testing.assert_array_equal(loaded.counts, generated.counts)
            for mine, other in zip(loaded.train, generated.train, strict=True):
                np.testing.assert_array_equal(mine, other)


def write_xz(path, text):
    path.parent.mkdir(exist_ok=True)
    with lzma.open(path, "wt") as f:
        f.write(text)


class TestSets:
    def test_word2vec_windows(self, tmp_path):
        lines = ["verse_id\ttext", "1\tthe sea end"]
        lines += ["2\tIn the beginning; the the end"] * 2
        write_xz(tmp_path / "verses" / "kjv.tsv.xz", "\n".join(lines))
        data = sets.read_word2vec(tmp_path)
        words = ["beginning", "end", "in", "the"]  # "sea" is in the test alone
        classes = ["beginning", "the", "end", "in"]  # by frequency
        assert data.counts.tolist() == [8, 6, 4, 4]

        def pairs(rows):
            return [
                (words[i], {classes[n] for n in labels[labels >= 0]})
                for i, labels in zip(rows.ids, rows.labels, strict=True)
            ]

        assert pairs(data.test) == [("the", {"end"}), ("end", {"the"})]
        assert pairs(data.train) == 2 * [
            ("in", {"the", "beginning"}),
            ("the", {"in", "beginning"}),
            ("beginning", {"in", "the"}),
            ("the", {"beginning", "end"}),
            ("the", {"beginning", "end"}),
            ("end", {"the"}),
        ]

    def test_xc_files(self, tmp_path):
        path = tmp_path / "xc" / "a.txt.xz"
        write_xz(path, "2 9 5\n3,0 1:2 8:0.5\n 4:1\n")
        rows, num_words, num_classes = sets.read_xc(path)
        assert (num_words, num_classes) == (9, 5)
        assert rows.starts.tolist() == [0, 2, 3]
        assert rows.ids.tolist() == [1, 8, 4]
        assert rows.values.tolist() == [2.0, 0.5, 1.0]
        assert rows.labels.tolist() == [[3, 0], [-1, -1]]

    @pytest.mark.parametrize(
        "name, classes, rows",
        [
            ("verses", 31_077, 93_231),
            ("eurlex57k", 4_271, 45_000),
            ("word2vec", 12_261, 751_657),
        ],
    )
    @pytest.mark.slow
    def test_real_ones(self, shared_data, name, classes, rows):
        data = sets.SETS[name].read(shared_data)
        assert (data.num_classes, data.train.num_rows) == (classes, rows)
        assert np.all(np.diff(data.counts) <= 0)
        assert data.train.ids.max() < data.num_words
        least = sets.SETS[name].num_sampled
        random = np.random.default_rng(0)
        for _ in range(20):
            size = sets.SETS[name].batch_size
            labels = data.train.labels[random.integers(0, rows, size)]
            assert len(np.unique(labels)) <= least


SOME_METHODS = ["full", "uniform", "forest_adaptive", "lsh_label_uncorrected"]
SOME_METHODS += ["nce"]


class TestMethods:
    @pytest.mark.parametrize("method", quick(methods.METHODS, SOME_METHODS))
    def test_takes_a_step(self, generated, method):
        job = Job("generated", method, epochs=1e-6)
        _, result = train.trained(job, generated)
        (point,) = result["curve"]
        assert point["step"] == 1 and np.isfinite(point["loss"])

    def test_options_replace_the_methods_own(self, generated):
        head = methods.make_head(
            "forest", {"num_trees": 3}, generated, sets.SETS["generated"], 0
        )
        assert head.sampler.num_trees == 3
        assert head.num_sampled == sets.SETS["generated"].num_sampled


class TestMasks:
    """Which classes are negatives of a row."""

    def sample(self, method, generated, **options):
        set_up = sets.SETS["generated"]
        head = methods.make_head(method, options, generated, set_up, 0)
        train.make_model(generated, set_up, head, 1e-2)
        targets = tf.constant([[3, -1], [9, 5]], tf.int64)
        queries = tf.random.normal([2, set_up.dim])
        watch = train.SampleWatch(head)
        sample = tf.function(
            lambda: head.sampler.sample(queries, targets, head.kernel)
        )
        return watch, sample, generated.num_classes

    def seen(self, sample, num_classes):
        """Classes of each row: bool `[rows, num_classes]`."""
        seen = np.zeros((2, num_classes), bool)
        seen[:, sample.ids.numpy()] = sample.mask.numpy()
        return seen

    def test_a_row_has_its_own_labels(self, generated):
        watch, sample, count = self.sample("lsh_embedding_paper", generated)
        seen = self.seen(sample(), count)
        assert seen[0, 3] and seen[1, [5, 9]].all()
        assert watch.classes_per_row() == seen.sum(axis=1).mean()

    def test_labels_of_other_rows_are_drawn_as_all_classes_are(self, generated):
        tf.random.set_seed(0)
        _, sample, count = self.sample(
            "random_over_all", generated, num_sampled=43
        )
        draws = [self.seen(sample(), count) for _ in range(400)]
        found = np.mean(draws, axis=0)
        assert found[0, 3] == 1 and (found[1, [5, 9]] == 1).all()
        # Of the classes that are no labels, 40 are drawn.
        others = [np.delete(found[0], 3), np.delete(found[1], [5, 9])]
        chance = 40 / (count - 3)
        assert np.concatenate(others) == pytest.approx(chance, abs=0.1)


class TestOverlap:
    def test_of_the_best_and_of_others(self, generated):
        set_up = sets.SETS["generated"]
        head = methods.make_head("uniform", {}, generated, set_up, 0)
        train.make_model(generated, set_up, head, 1e-2)
        random = np.random.default_rng(0)
        head.kernel.assign(random.normal(size=head.kernel.shape))
        targets = np.array([[2], [5], [5]])
        queries = tf.constant(random.normal(size=(3, set_up.dim)), tf.float32)
        rows = head.kernel.numpy()
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        order = np.argsort(-(queries.numpy() @ rows.T), axis=1)
        # Six places for three rows: the best two of each.
        best = np.setdiff1d(order[:, :2], targets)
        others = np.setdiff1d(np.arange(20), [*best, 2, 5])
        for chosen, expected in (
            ([*best, *others][:4], min(4 / len(best), 1)),
            (others[:4], 0.0),
            ([best[0], *others[:3]], 1 / len(best)),
        ):
            head.sampler.sample = lambda q, t, k, chosen=chosen: head_sample(
                np.concatenate([[2, 5], chosen])
            )
            watch = train.SampleWatch(head)
            head.sampler.sample(queries, tf.constant(targets), head.kernel)
            assert watch.overlap() == expected

    def test_a_head_without_a_sampler(self, generated):
        job = Job("generated", "full", epochs=1e-6)
        _, result = train.trained(job, generated)
        assert result["classes_per_row"] is None
        assert result["curve"][0]["overlap"] is None


def head_sample(ids):
    from tfxclass.samplers import Sample

    return Sample(tf.constant(ids, tf.int64), None, None)


class TestTraining:
    def test_precisions(self, generated):
        set_up = sets.SETS["generated"]
        head = methods.make_head("full", {}, generated, set_up, 0)
        model = train.make_model(generated, set_up, head, 1e-2)
        labels = np.full((300, 2), -1)
        labels[:, 0] = generated.test.labels[:, 0]
        labels[::3, 1] = 7
        test = generated.test._replace(labels=labels)
        find = train.make_search(model, generated.num_classes)
        found = train.precisions(find, generated._replace(test=test))
        words = test.batch(np.arange(300), generated.length)
        order = np.argsort(-model.predict(words, verbose=0), axis=1)
        for k in (1, 3, 5):
            hits = [
                len(set(best[:k]) & set(own[own >= 0]))
                for best, own in zip(order, labels)
            ]
            expected = np.mean(hits) / k
            assert found[f"precision@{k}"] == pytest.approx(expected)

    def test_the_same_batches_and_curve_for_the_same_seed(self, generated):
        job = Job("generated", "uniform", seed=3, epochs=0.3)
        first, second = (
            train.trained(job, generated)[1]["curve"] for _ in range(2)
        )
        assert len(first) == job.points
        for one, other in zip(first, second, strict=True):
            for name in ("step", "loss", "precision@1", "overlap"):
                # TensorFlow's sums are split between threads as they come.
                assert one[name] == pytest.approx(other[name], rel=1e-5)

    def test_it_learns(self, generated):
        _, found = train.trained(Job("generated", "full", epochs=4), generated)
        curve = found["curve"]
        assert curve[0]["precision@1"] < 0.2 < 0.5 < curve[-1]["precision@1"]

    def test_the_rate_falls_to_nothing(self, generated, monkeypatch):
        rates, make_model = [], train.make_model

        def watched(*arguments):
            model = make_model(*arguments)
            update = model.train_step

            def step(batch):
                rates.append(float(model.optimizer.learning_rate))
                return update(batch)

            model.train_step = step
            monkeypatch.setattr(train.tf, "function", Eager)
            return model

        monkeypatch.setattr(train, "make_model", watched)
        monkeypatch.setattr(train, "precisions", lambda *_: {})
        monkeypatch.setattr(train, "make_search", lambda *_: None)
        train.trained(Job("generated", "uniform", epochs=0.2), generated)
        set_up = sets.SETS["generated"]
        steps = 0.2 * generated.train.num_rows / set_up.batch_size
        assert len(rates) == np.ceil(steps)
        part = np.arange(len(rates)) / steps
        expected = set_up.first_rate * (1 + np.cos(np.pi * part)) / 2
        np.testing.assert_allclose(rates, expected, rtol=1e-5)

    def test_adaptive_allocation_grows_over_the_training(self, generated):
        set_up = sets.SETS["generated"]
        by_epochs = Job("generated", "forest_adaptive", epochs=2.0)
        steps = train.steps_of(by_epochs, generated, set_up)
        assert steps == round(2 * generated.train.num_rows / set_up.batch_size)
        head = methods.make_head(
            "forest_adaptive", {}, generated, set_up, 0, steps=600
        )
        trees = [
            int(head.sampler.allocation.refresh(step, 1e6)["num_trees"])
            for step in (0, 119, 120, 300, 599, 600)
        ]
        assert trees == [10, 10, 18, 26, 42, 50]


class Eager:
    """A function that is not traced."""

    def __init__(self, function, **_):
        self.function = function

    def __call__(self, *arguments):
        return self.function(*arguments)

    def get_concrete_function(self, *_):
        pass


class TestJobs:
    def test_each_once_and_named(self):
        jobs = comparison.jobs_of(
            "eurlex57k", ["uniform", "top_k_paper"], ["curves", "num_sampled"],
            [0], 4.0,
        )  # fmt: skip
        names = [job.name for job in jobs]
        assert len(set(names)) == len(names) == 2 + 3
        usual = "set=eurlex57k,method=top_k_paper,epochs=4.0"
        assert usual in names
        assert (
            usual.replace("epochs", "options=num_sampled=480,epochs") in names
        )

    def test_the_rate_follows_the_root_of_the_batch(self):
        jobs = comparison.jobs_of(
            "verses_third", ["full", "top_k_paper"], ["curves", "percent"],
            [0], 4.0, batch=64,
        )  # fmt: skip
        assert [job.options.get("num_sampled") for job in jobs] == [
            None,
            None,
            103,
            1036,
        ]
        assert {(job.batch_size, job.rate) for job in jobs} == {(64, 0.003)}

    def test_a_failure_stops_no_other(self, tmp_path, monkeypatch, capsys):
        monkeypatch.setattr(measure, "CACHE", str(tmp_path))
        jobs = [
            Job("generated", name, epochs=2.0) for name in ("full", "uniform")
        ]
        asked = []

        def ask(folder, *job):
            asked.append((folder, Job(*job)))
            failed = asked[-1][1].method == "full"
            return {"error": "no memory"} if failed else {"curve": []}

        monkeypatch.setattr(measure, "ask", ask)
        expected = [(jobs[1], {"curve": []})]
        assert train.ends_of(jobs, "data") == expected
        assert "no memory" in capsys.readouterr().out
        (stored,) = tmp_path.rglob("*.json*")
        assert stored.name == "set=generated,method=uniform,epochs=2.0.json"
        # The other one is tried again.
        assert train.ends_of(jobs, "data") == expected
        assert asked == [("data", jobs[i]) for i in (0, 1, 0)]


class TestCommand:
    @pytest.mark.slow
    def test_runs_once(self, tmp_path, monkeypatch):
        for name in ("CACHE", "RESULTS"):
            monkeypatch.setattr(measure, name, str(tmp_path / name))
        monkeypatch.setattr(train.measure, "use_one_thread", lambda: None)
        asked = []

        def ask(*job):
            asked.append(job[2])
            return train.child(*job)

        monkeypatch.setattr(measure, "ask", ask)
        given = "--sets generated --epochs 0.2 --methods full".split()
        assert comparison.main([*given, "forest"]) == 0
        assert comparison.main([*given, "uniform"]) == 0
        assert asked == ["full", "forest", "uniform"]
        rows = measure.finished("comparison/generated_steps")
        methods = [row["method"] for row in rows]
        assert methods == ["forest", "full softmax", "uniform"]


class TestTable:
    @pytest.fixture
    def rows(self):
        def result(*points, num_sampled=None):
            names = "cpu_seconds", "precision@1", "overlap"
            same = ("precision@5", "accuracy@10", "epochs", "seconds")
            curve = [
                dict(zip(names, point)) | dict.fromkeys(same, 1.0)
                for point in points
            ]
            about = {"date": "a", "machine": "m", "peak_gb": 1.0}
            return {**about, "num_sampled": num_sampled, "curve": curve}

        full = result((1.0, 0.1, None), (2.0, 0.5, None))
        first = result((1.0, 0.4, 0.1), (2.0, 0.6, 0.3), num_sampled=8)
        second = result((3.0, 0.8, 0.5), num_sampled=8)
        varied = result((1.0, 0.9, 0.9), num_sampled=512)
        ended = [
            (Job("generated", "full"), full),
            (Job("generated", "uniform"), first),
            (Job("generated", "uniform", seed=1), second),
            (Job("generated", "uniform", {"num_sampled": 512}), varied),
        ]
        return comparison.rows_of(ended, with_settings=True)

    def test_means_over_seeds(self, rows):
        full, uniform, varied = rows
        assert [row["seeds"] for row in rows] == [1, 2, 1]
        assert uniform["precision@1"] == pytest.approx(0.7)
        assert uniform["precision@1 +-"] == pytest.approx(0.02**0.5)
        assert uniform["overlap"] == pytest.approx(0.3)
        assert (full["overlap"], full["precision@1 +-"]) == ("", "")
        assert (full["num_sampled"], uniform["num_sampled"]) == ("", 8)
        assert varied["setting"] == "num_sampled=512"
        assert varied["measured"]["machine"] == "m"

    def test_the_time_to_an_accuracy(self, rows):
        # 90 % of 0.9.
        assert [row["cpu_s_to_90%"] for row in rows] == ["", "", 1.0]


class TestFreshProcess:
    def run(self, code, **options):
        return measure.in_fresh_process("-c", code, **options)

    def test_the_last_line_is_the_result(self):
        assert self.run("print('note'); print('[1, 2]')") == [1, 2]

    def test_the_last_line_of_an_error(self):
        found = self.run("raise ValueError('no such set')")
        assert found == {"error": "ValueError: no such set"}

    def test_one_that_is_killed_says_nothing(self):
        code = "import os; os.kill(os.getpid(), 9)"
        assert self.run(code) == {"error": "exit status -9"}


def test_concentration_is_an_exact_mean(generated):
    x, y = generated.test.batch(np.arange(40), 8), generated.test.labels[:40]
    set_up = sets.SETS["generated"]
    head = methods.make_head("uniform", {}, generated, set_up, seed=0)
    model = train.make_model(generated, set_up, head, 1e-2)
    found = concentration.point(
        concentration.Subject(
            model, None, 0, lambda at: {k: v[at] for k, v in x.items()}, y
        )
    )
    p = model.predict(x, verbose=0)
    energy = (p - np.eye(generated.num_classes)[y[:, 0]]) ** 2
    order = np.argsort(-p, axis=1)[:, :10]
    share = np.take_along_axis(energy, order, 1).sum(1) / energy.sum(1)
    assert found["NCG_10"] == pytest.approx(share.mean(), abs=1e-3)
    best = np.take_along_axis(p, order, 1)
    assert found["CP_10"] == pytest.approx(best.sum(1).mean(), abs=1e-3)
    # 3 of 300 classes are 1.15 %, rounded.
    assert found["CP of 1.15 %"] == pytest.approx(
        best[:, :3].sum(1).mean(), abs=1e-3
    )


def test_identities_of_the_open_set_are_other_verses():
    """The labels of a half alone are compared, and each with its own."""
    count = 4 * open_set.STEP
    words = [[i] for i in range(count)]
    rows = make_rows(words, [[i] for i in range(count)])
    verses = rows_lib.DataSet(count, 1, np.ones(count), rows, rows)
    seen = []

    class Encoder:
        def predict(self, words, **_):
            seen.append(words["ids"][:, 0])
            return np.eye(count)[words["ids"][:, 0]]

    found = open_set.open_set(Encoder(), verses, open_set.HALVES[1])
    assert found == {"TPR@0.001": 1.0, "hit rate@1": 1.0}
    for ids in seen:
        assert set(ids % open_set.STEP) == set(open_set.HALVES[1])
