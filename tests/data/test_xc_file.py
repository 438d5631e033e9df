"""The extreme-classification reader against a plain Python one, row by row."""

import gzip
import lzma
import tracemalloc

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from tests.support import helpers
from tfxclass.data import XCFile
from tfxclass.data import passes
from tfxclass.data import xc_file
from tfxclass.ops.library import ops

OPEN = {"": open, ".gz": gzip.open, ".xz": lzma.open}
SMALL = b"3 5 4\n0,2 0:1 4:2.5\n 1:3\n3\n"


def random_rows(count, num_features, num_classes, seed=0):
    """A list of `(labels, features)`; some rows lack the one or the other."""
    random = np.random.default_rng(seed)
    rows = []
    for _ in range(count):
        labels = random.integers(0, num_classes, random.integers(0, 5))
        ids = random.integers(0, num_features, random.integers(0, 9))
        values = random.normal(size=len(ids)).astype(np.float32)
        rows.append((labels.tolist(), list(zip(ids.tolist(), values))))
    return rows


def read(dataset):
    """The rows of all batches, as `random_rows` has them."""
    return rows_of(dataset.as_numpy_iterator())


def rows_of(batches):
    rows = []
    for x, y in batches:
        ids, values = x["feature_ids"], x["feature_values"]
        assert ids.dtype == y.dtype == np.int64 and values.dtype == np.float32
        assert ids.shape == values.shape and len(ids) == len(y)
        for i, v, labels in zip(ids, values, y):
            count = np.flatnonzero(v)[-1] + 1 if v.any() else 0
            # Padding is behind, and is nothing else.
            assert not i[count:].any()
            known = labels[labels >= 0]
            assert np.all(labels[: len(known)] == known)
            rows.append((known.tolist(), list(zip(i[:count], v))))
    return rows


def write(path, content):
    with OPEN[path.suffix if path.suffix in OPEN else ""](path, "wb") as f:
        f.write(content)
    return XCFile(path)


@pytest.fixture
def small(tmp_path):
    return write(tmp_path / "small.txt", SMALL)


class TestRows:
    @pytest.mark.parametrize("suffix", OPEN)
    @pytest.mark.parametrize("block", [1, 7, 1 << 20])
    def test_every_row_as_written(self, tmp_path, monkeypatch, suffix, block):
        """Wherever the file is cut into blocks."""
        monkeypatch.setattr(xc_file, "_BLOCK_BYTES", block)
        rows = random_rows(50, 30, 20)
        path = tmp_path / f"train.txt{suffix}"
        helpers.write_xc(path, rows, 30, 20)
        file = XCFile(path)
        assert (file.num_rows, file.num_features, file.num_classes) == (
            50,
            30,
            20,
        )
        assert read(file.batches(7)) == rows
        assert file.batches(7).cardinality() == 8

    @pytest.mark.parametrize("end", [b"", b"\n", b"\r\n"])
    def test_ends_of_lines(self, tmp_path, end):
        content = SMALL.replace(b"\n", b"\r\n") if b"\r" in end else SMALL
        file = write(tmp_path / "a.txt", content.rstrip() + end)
        assert read(file.batches(2)) == [
            ([0, 2], [(0, 1.0), (4, 2.5)]),
            ([], [(1, 3.0)]),
            ([3], []),
        ]

    def test_shapes(self, small):
        x, y = next(iter(small.batches(3)))
        assert x["feature_ids"].numpy().tolist() == [[0, 4], [1, 0], [0, 0]]
        assert x["feature_values"].numpy().tolist() == [
            [1, 2.5],
            [3, 0],
            [0, 0],
        ]
        assert y.numpy().tolist() == [[0, 2], [-1, -1], [3, -1]]

    def test_a_batch_has_a_column_for_nothing(self, small):
        batches = list(small.batches(1))
        assert batches[1][1].numpy().tolist() == [[-1]]
        assert batches[2][0]["feature_values"].numpy().tolist() == [[0.0]]

    def test_drop_remainder(self, small):
        dataset = small.batches(2, drop_remainder=True)
        assert dataset.element_spec[1].shape[0] == 2
        assert len(read(dataset)) == 2

    def test_epochs_follow_one_another(self, small):
        assert len(read(small.batches(2, num_epochs=3))) == 9
        assert small.batches(2, num_epochs=3).cardinality() == 5
        endless = small.batches(2, num_epochs=None)
        assert endless.cardinality() == tf.data.INFINITE_CARDINALITY
        assert len(read(endless.take(10))) == 20

    def test_shuffle(self, tmp_path):
        rows = [([i], [(i, 1.0)]) for i in range(40)]
        helpers.write_xc(tmp_path / "a.txt", rows, 40, 40)
        dataset = XCFile(tmp_path / "a.txt").batches(6, 40, seed=1)
        first, second = read(dataset), read(dataset)
        assert sorted(first) == sorted(second) == rows
        assert len({str(x) for x in (rows, first, second)}) == 3
        again = XCFile(tmp_path / "a.txt").batches(6, 40, seed=1)
        assert read(again) == first

    @pytest.mark.parametrize("block", [20, 1 << 20])
    def test_blocks_of_any_size(self, tmp_path, monkeypatch, block):
        monkeypatch.setattr(xc_file, "_BLOCK_BYTES", block)
        rows = random_rows(50, 30, 20)
        helpers.write_xc(tmp_path / "a.txt", rows, 30, 20)
        dataset = XCFile(tmp_path / "a.txt").batches(4)
        assert read(dataset) == rows
        assert dataset.cardinality() == 13

    def test_counts(self, tmp_path):
        rows = random_rows(50, 30, 20)
        helpers.write_xc(tmp_path / "a.txt.gz", rows, 30, 20)
        features, labels = XCFile(tmp_path / "a.txt.gz").counts()
        assert features.dtype == labels.dtype == np.int64
        assert (
            features.tolist()
            == np.bincount(
                [i for _, pairs in rows for i, _ in pairs], minlength=30
            ).tolist()
        )
        assert (
            labels.tolist()
            == np.bincount(
                [i for ids, _ in rows for i in ids], minlength=20
            ).tolist()
        )

    def test_memory_does_not_grow_with_the_file(self, tmp_path):
        line = b"1 " + b" ".join(b"%d:1" % i for i in range(100, 200)) + b"\n"
        peaks = []
        for count in (10_000, 80_000):  # 6 and 48 MB
            path = tmp_path / f"{count}.txt.gz"
            with gzip.open(path, "wb", compresslevel=1) as f:
                f.write(b"%d 200 2\n" % count)
                for _ in range(count // 1000):
                    f.write(line * 1000)
            tracemalloc.start()
            for _ in XCFile(path)._row_blocks():
                pass
            peaks.append(tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()
        assert peaks[1] < 8e6 and peaks[1] < 1.2 * peaks[0]

    def test_equals_the_shared_data(self, shared_data):
        file = XCFile(shared_data / "bibtex" / "bibtex_test.txt.xz")
        assert (file.num_rows, file.num_features) == (2515, 1836)
        rows = read(file.batches(100))
        path = shared_data / "bibtex" / "bibtex_test.txt.xz"
        with lzma.open(path, "rt") as f:
            expected = [helpers.parse_xc(line) for line in list(f)[1:]]
        assert rows == expected


class TestPasses:
    """Many readers of a file at once, some of which give up."""

    @pytest.fixture
    def rows_and_file(self, tmp_path, monkeypatch):
        monkeypatch.setattr(xc_file, "_BLOCK_BYTES", 50)
        rows = random_rows(24, 30, 20)
        helpers.write_xc(tmp_path / "a.txt.xz", rows, 30, 20)
        return rows, XCFile(tmp_path / "a.txt.xz")

    # 4 are kept waiting; with 7 some are wound on from the start.
    @pytest.mark.parametrize("count", [2, 7])
    def test_readers_in_turns(self, rows_and_file, count):
        rows, file = rows_and_file
        dataset = file.batches(1)
        readers = [dataset.as_numpy_iterator() for _ in range(count)]
        found = [[] for _ in readers]
        for i in range(24):
            for reader, mine in zip(readers, found):
                # In step and out of step.
                if mine is found[0] and i >= 12:
                    continue
                mine.extend(rows_of([next(reader)]))
        assert found[0] == rows[:12]
        assert all(mine == rows for mine in found[1:])

    def test_readers_that_give_up(self, rows_and_file):
        rows, file = rows_and_file
        dataset = file.batches(4)
        for n in (1, 5, 3, 2, 4, 2):
            assert read(dataset.take(n)) == rows[: 4 * n]
        assert read(dataset) == rows

    def test_few_generators_are_kept(self):
        closed = []

        def make():
            try:
                yield from range(100)
            finally:
                closed.append(1)

        many = passes.Passes(make)
        for i in range(20):
            assert many.element(i) == i
            assert many.element(0) == 0
        assert len(closed) == 20 + 1 - passes._MOST_WAITING
        assert many.element(100) is None

    def test_memory_allocation_stays_as_it_was(self, small):
        """TensorFlow's GeneratorDataset would change it; see passes.py."""
        graph = tf.raw_ops.DatasetToGraphV2(
            input_dataset=tf.data.experimental.to_variant(small.batches(2)),
            external_state_policy=1,
        )
        assert b"TakeWhileDataset" in graph.numpy()
        assert b"GeneratorDataset" not in graph.numpy()


class TestErrors:
    HEADERS = {
        "empty": b"",
        "blank": b"\n",
        "missing": b"1,2 3:1.0 4:2.0\n",
        "two numbers": b"3 4\n0 0:1\n",
        "four numbers": b"3 4 5 6\n",
        "negative": b"3 -4 5\n",
        "no rows": b"0 4 5\n",
        "not integers": b"3.0 4 5\n",
        "past 64 bits": b"3 4 99999999999999999999\n",
        "binary": bytes(range(256)) * 10,
        "one long line": b"\x00" * 3000,
    }

    @pytest.mark.parametrize("name", HEADERS)
    def test_headers(self, tmp_path, name):
        with pytest.raises(ValueError) as error:
            write(tmp_path / "bad.txt", self.HEADERS[name])
        for part in (
            "bad.txt, line 1",
            "`rows features labels`",
            "Received: b'",
        ):
            assert part in str(error.value)
        assert len(str(error.value)) < 600

    def test_no_file(self, tmp_path):
        with pytest.raises(FileNotFoundError):
            XCFile(tmp_path / "none.txt")

    # After a header of 3 rows, 5 features, 4 classes, and one good row.
    LINES = {
        "no colon": (b"1 2\n1", 3, "feature '2' has no colon"),
        "no number": (b"1 2:x\n1", 3, "value 'x' of feature 2 is not a"),
        "not finite": (b"1 2:nan\n1", 3, "value 'nan' of feature 2 is not a"),
        "feature": (b"1 5:1\n1", 3, "feature '5' is not in [0, 5)"),
        "label": (b"1,4 2:1\n1", 3, "label '4' is not in [0, 4)"),
        "no space": (b"2:1 3:1\n1", 3, "without labels starts with a space"),
        "empty": (b"\n1", 3, "the line is empty"),
        "last": (b"1\n2 2", 4, "feature '2' has no colon"),
        "garbage": (b"\x80\x00\xff\n1", 3, "label '\\x80\\x00\\xff' is not"),
        "fewer": (b"1", 4, "says 3 rows, but the file ends here, after 2"),
        "more": (b"1\n1\n1", 5, "says 3 rows, but here is another line"),
        "blank at the end": (b"1\n1\n\n", 5, "but here is another line"),
    }

    @pytest.mark.parametrize("name", LINES)
    def test_lines(self, tmp_path, name):
        lines, number, reason = self.LINES[name]
        file = write(tmp_path / "bad.txt", b"3 5 4\n1 1:1\n" + lines + b"\n")
        for consume in (
            lambda: read(file.batches(1, 10, num_epochs=2)),
            file.counts,
        ):
            with pytest.raises(tf.errors.InvalidArgumentError) as error:
                consume()
            assert f"bad.txt, line {number}: " in str(error.value)
            assert reason in str(error.value)

    def test_the_first_of_several_errors(self, tmp_path):
        lines = b"".join(b"1 1:x%d\n" % i for i in range(5000))
        file = write(tmp_path / "bad.txt", b"5000 5 4\n" + lines)
        with pytest.raises(
            tf.errors.InvalidArgumentError, match="line 2: .*x0"
        ):
            read(file.batches(5000))

    @pytest.mark.parametrize("suffix", [".gz", ".xz"])
    def test_damaged(self, tmp_path, suffix):
        path = tmp_path / f"bad.txt{suffix}"
        path.write_bytes(SMALL)
        with pytest.raises(ValueError, match=f"is damaged, or no {suffix} f"):
            XCFile(path)

    @pytest.mark.parametrize("suffix", [".gz", ".xz"])
    def test_cut_off(self, tmp_path, monkeypatch, suffix):
        monkeypatch.setattr(xc_file, "_BLOCK_BYTES", 1000)
        path = tmp_path / f"bad.txt{suffix}"
        rows = random_rows(300, 9_000, 9_000)
        helpers.write_xc(path, rows, 9_000, 9_000)
        content = path.read_bytes()
        path.write_bytes(content[: len(content) // 4 * 3])
        file = XCFile(path)
        with pytest.raises(tf.errors.InvalidArgumentError, match="is damaged"):
            read(file.batches(100))

    def test_no_newlines(self, tmp_path, monkeypatch):
        monkeypatch.setattr(xc_file, "_BLOCK_BYTES", 100)
        monkeypatch.setattr(xc_file, "_MOST_LINE_BYTES", 1000)
        file = write(tmp_path / "bad.txt", b"3 5 4\n1 1:1\n" + b"1" * 5000)
        match = "bad.txt, line 3: longer than 1000 bytes"
        with pytest.raises(tf.errors.InvalidArgumentError, match=match):
            read(file.batches(2))

    ARGUMENTS = {
        "batch_size": ({"batch_size": 0}, "`batch_size` must be a positive"),
        "no batch_size": ({"batch_size": None}, "`batch_size` must be a pos"),
        "shuffle": ({"shuffle_buffer_size": -1}, "`shuffle_buffer_size` must"),
        "num_epochs": ({"num_epochs": 0}, "`num_epochs` must be a positive"),
    }

    @pytest.mark.parametrize("name", ARGUMENTS)
    def test_arguments(self, small, name):
        options, message = self.ARGUMENTS[name]
        with pytest.raises(ValueError) as error:
            small.batches(**{"batch_size": 2, **options})
        assert message in str(error.value)


# TensorFlow's threads take subnormal numbers for 0.
VALUES = st.floats(-(2.0**99), 2.0**99, width=32, allow_subnormal=False)


def parse(lines, num_features=50, num_classes=40, first=2):
    numbers = np.arange(first, first + len(lines))
    return ops.tfxclass_parse_xc_lines(
        tf.constant(lines, tf.string), numbers, num_features, num_classes, "f"
    )


class TestOp:
    @given(
        rows=st.lists(
            st.tuples(
                st.lists(st.integers(0, 39), max_size=4),
                st.lists(
                    st.tuples(
                        st.integers(0, 49),
                        VALUES,
                    ),
                    max_size=4,
                ),
            ),
            max_size=8,
        )
    )
    def test_equals_python(self, rows):
        lines = [helpers.xc_line(labels, pairs) for labels, pairs in rows]
        parsed = [x.numpy() for x in parse(lines)]
        feature_splits, features, values, label_splits, labels = parsed
        pairs = [pair for _, row in rows for pair in row]
        assert (
            feature_splits.tolist()
            == np.cumsum([0] + [len(row) for _, row in rows]).tolist()
        )
        assert (
            label_splits.tolist()
            == np.cumsum([0] + [len(row) for row, _ in rows]).tolist()
        )
        assert labels.tolist() == [c for row, _ in rows for c in row]
        assert features.tolist() == [i for i, _ in pairs]
        # To the nearest: the same as Python's float, cast.
        assert values.tolist() == [np.float32(v) for _, v in pairs]

    def test_the_same_with_any_number_of_threads(self):
        rows = random_rows(5000, 50, 40)
        lines = [helpers.xc_line(*row) for row in rows]
        whole = parse(lines)
        parts = [parse(lines[i : i + 100]) for i in range(0, 5000, 100)]
        for name in ("features", "values", "labels"):
            np.testing.assert_array_equal(
                getattr(whole, name),
                np.concatenate([getattr(part, name) for part in parts]),
            )

    def test_ids_past_32_bits(self):
        top = 2**40
        parsed = parse([f"{top - 1} {top - 2}:1"], top, top)
        assert parsed.labels.numpy().tolist() == [top - 1]
        assert parsed.features.numpy().tolist() == [top - 2]

    def test_no_lines(self):
        parsed = parse([])
        assert parsed.feature_splits.numpy().tolist() == [0]
        assert parsed.label_splits.numpy().tolist() == [0]
        assert parsed.values.shape == [0]

    def test_static_shapes(self):
        @tf.function(input_signature=[tf.TensorSpec([3], tf.string)])
        def shapes(lines):
            parsed = ops.tfxclass_parse_xc_lines(
                lines, tf.range(3, dtype=tf.int64), 5, 4
            )
            assert parsed.feature_splits.shape == parsed.label_splits.shape
            assert parsed.label_splits.shape == [4]
            assert parsed.values.shape.as_list() == [None]
            return parsed.values

        assert shapes(tf.constant([" 1:1"] * 3)).numpy().tolist() == [1.0] * 3

    def test_numbers_of_other_shape(self):
        with pytest.raises(
            (ValueError, tf.errors.InvalidArgumentError), match="line_numbers"
        ):
            ops.tfxclass_parse_xc_lines(
                ["1", "2"], tf.range(3, dtype=tf.int64), 5, 4
            )

    def test_lines_of_other_rank(self):
        with pytest.raises(
            (ValueError, tf.errors.InvalidArgumentError), match="rank 1"
        ):
            ops.tfxclass_parse_xc_lines(
                [["1"]], tf.zeros([1, 1], tf.int64), 5, 4
            )
