"""Fallbacks of the compiled ops: the same arguments, the same results."""

import inspect
import itertools
import json
import os
import pathlib
import re
import subprocess
import sys
import warnings

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfxclass
from tests.fuzz_ops import block_ops  # noqa: F401
from tests.fuzz_ops import calls
from tests.fuzz_ops import linear_ops  # noqa: F401
from tests.fuzz_ops import row_ops  # noqa: F401
from tests.fuzz_ops import search_ops  # noqa: F401
from tests.fuzz_ops import tree_ops  # noqa: F401
from tests.fuzz_ops.descriptions import DESCRIPTIONS
from tests.fuzz_ops.descriptions import is_moderate
from tests.fuzz_ops.values import Draw
from tests.fuzz_ops.values import Index
from tests.fuzz_ops.values import Variable
from tfxclass.keras_internals import is_onednn_on
from tfxclass.ops import active_classes as active
from tfxclass.ops import exact_softmax
from tfxclass.ops import fallback
from tfxclass.ops import library
from tfxclass.ops import row_update
from tfxclass.ops.fallback.refused import REFUSED
from tfxclass.ops.fallback.refused import NeedsCompiledOps

pytestmark = pytest.mark.host

ROOT = pathlib.Path(__file__).resolve().parents[2]
# They draw from other random numbers, or have state: promises are checked.
DRAWN = ("active_classes",)
COMPILED = library.ops
#: The ops that fallbacks compute.
FALLBACKS = sorted(
    name
    for name in vars(fallback.ops)
    if name.removeprefix("tfxclass_") not in REFUSED
)


def is_drawn(name):
    if name == "tfxclass_empty_like":  # its values are undefined
        return True
    return name.removeprefix("tfxclass_").startswith(DRAWN)


def run(ops, call, monkeypatch, check=None):
    """Outputs, then the variables as the op left them; or the refusal."""
    left = []

    def look(args, outputs, live):
        for name, value in args.items():
            given = zip(value, live[name]) if type(value) is list else ()
            for variable, handle in [*given, (value, live[name])]:
                if isinstance(variable, Variable):
                    left.append(read(variable, handle))
        if check is not None:
            check(args, outputs, live)

    with monkeypatch.context() as patch:
        patch.setattr(library, "ops", ops)
        patch.setattr(calls, "ops", ops)
        try:
            outputs = calls.run(call, look)
        except (*calls.REFUSALS, NeedsCompiledOps) as e:
            return e
    return [x for x in outputs if x is not None] + left


def read(variable, handle):
    if variable.value is None:
        return np.zeros(0)
    dtype = tf.as_dtype(variable.value.dtype)
    values = tf.raw_ops.ReadVariableOp(resource=handle, dtype=dtype)
    return np.asarray(tf.cast(values, tf.float64))


def random_of(name, number):
    return np.random.default_rng([number, sum(name.encode())])


def draw(name, drawing):
    args = DESCRIPTIONS[name].draw(drawing)
    is_index = any(isinstance(x, Index) for x in args.values())
    # A handle that no variable made does not tell its type.
    args = {key: as_float32(value, is_index) for key, value in args.items()}
    if "softmax" in name or "_class_" in name:  # they have no target twice
        args["targets"] = without_repeats(args["targets"])
    if "bfloat16_products" in args:  # fallbacks multiply float32
        args["bfloat16_products"] = False
    if name.endswith("count_terms"):  # bytes that are no UTF-8 are not `plain`
        args["texts"] = np.array([*map(ascii_of, args["texts"])], object)
    return calls.Call(name, args)


def ascii_of(text):
    return bytes(byte & 127 for byte in text)


def without_repeats(targets):
    """int64 [batch, n], -1 where an id is there before."""
    same = targets[:, :, np.newaxis] == targets[:, np.newaxis]
    return np.where(np.tril(same, -1).any(axis=2), -1, targets)


def as_float32(value, is_index):
    if isinstance(value, Index) and value.kernel is not None:
        return value._replace(kernel=value.kernel.astype(np.float32))
    if isinstance(value, Variable) and value.value is not None:
        if value.value.dtype.name == "bfloat16" and is_index:
            return Variable(value.value.astype(np.float32))
    return value


def least_norm(args):
    """Of the rows that an op divides by their norms, at most 1."""
    key = "epsilon_of_norm" if "epsilon_of_norm" in args else "epsilon"
    if "logsumexp" not in args or not args.get(key):
        return 1.0
    rows = args["variable"].value if "variable" in args else args["kernel"]
    squares = np.sum(np.square(np.asarray(rows, np.float32)), axis=1)
    return np.sqrt(np.min(np.maximum(squares, args[key]), initial=1.0))


def numbers_of(args):
    """Arrays, those in lists and the values of variables, too."""
    lists = [x if type(x) is list else [x] for x in args.values()]
    values = [getattr(x, "value", x) for x in itertools.chain(*lists)]
    return [x for x in values if isinstance(x, np.ndarray)]


def assert_equal(found, expected, call):
    assert type(found) is list, f"{found!r}\n{call.snippet()}"
    assert len(found) == len(expected)
    for ours, theirs in zip(found, expected):
        assert np.shape(ours) == np.shape(theirs), call.snippet()
        if theirs.dtype.kind in "iub":
            np.testing.assert_array_equal(ours, theirs, call.snippet())
            continue
        scale = np.max(np.abs(theirs), initial=1.0, where=np.isfinite(theirs))
        # float32 sums of a few hundred terms, in any order.
        error = 2e-5 * scale / least_norm(call.args)
        np.testing.assert_allclose(
            ours, theirs, 2e-4, error, err_msg=call.snippet()
        )


def is_equal(name, call, monkeypatch, check=None):
    """Asserts that op and fallback agree; False if the op refuses the call."""
    expected = run(COMPILED, call, monkeypatch)
    if isinstance(expected, Exception) or not is_plain(call.args):
        return False
    found = run(fallback.ops, call, monkeypatch, check)
    assert not isinstance(found, Exception), f"{found}\n{call.snippet()}"
    if is_moderate(*numbers_of(call.args)) and not is_drawn(name):
        assert_equal(found, expected, call)
    return True


def is_plain(args):
    """Whether optimizer state is of the class vectors' type, a fill uniform."""
    if "row_moments" not in args:
        return args.get("fill", "uniform") == "uniform"
    rounds = args["row_moments"] or args["bfloat16_moments"]
    grads = np.asarray(getattr(args["grads"], "value", args["grads"]))
    return not rounds and args["T"] == grads.dtype.name


def check_calls(name, numbers, monkeypatch):
    """How many of the calls with these numbers are not refused."""
    check = DESCRIPTIONS[name].check
    drawn = (draw(name, Draw(random_of(name, number))) for number in numbers)
    return sum(is_equal(name, call, monkeypatch, check) for call in drawn)


def first_accepted(name, monkeypatch):
    """The least number of a call that is not refused; it is checked."""
    numbers = range(30)
    return next(x for x in numbers if check_calls(name, [x], monkeypatch))


@pytest.mark.parametrize("name", FALLBACKS)
def test_fallback_equals_its_op(name, monkeypatch):
    first_accepted(name, monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("name", FALLBACKS)
def test_fallback_equals_its_op_for_other_arguments(name, monkeypatch):
    assert check_calls(name, range(1, 30), monkeypatch)


class NothingAt(Draw):
    """Draws as `Draw` does, but size number `place` is 0."""

    def __init__(self, random, place):
        super().__init__(random)
        self.place, self.sizes = place, 0

    def size(self, *bounds, **options):
        drawn = super().size(*bounds, **options)
        self.sizes += 1
        return 0 if self.sizes == self.place + 1 else drawn


@pytest.mark.parametrize("name", FALLBACKS)
def test_fallback_takes_as_little_as_its_op(name, monkeypatch):
    """No rows, no columns, no labels: each size in turn is 0."""
    number = first_accepted(name, monkeypatch)
    for place in itertools.count():
        drawing = NothingAt(random_of(name, number), place)
        try:
            call = draw(name, drawing)
        except (ValueError, IndexError):  # what is drawn needs one of these
            continue
        if drawing.sizes <= place:
            break
        is_equal(name, call, monkeypatch)


def test_every_op_is_refused_or_has_a_fallback_with_its_arguments():
    names = [x for x in dir(COMPILED) if x.startswith("tfxclass_")]
    # TensorFlow adds a function of its own for each op.
    names = {x for x in names if not x.endswith("_fallback")}
    assert names == {*vars(fallback.ops)}
    for name in FALLBACKS:
        of_op = set(inspect.signature(getattr(COMPILED, name)).parameters)
        parameters = set(inspect.signature(vars(fallback.ops)[name]).parameters)
        if "given" not in parameters:  # the rest is of the update itself
            assert of_op - parameters <= {"name", "T"}, name
        assert parameters - {"given"} <= of_op, name


def sampled(**options):
    return tfxclass.layers.SampledSoftmax(60, 40, **options)


@pytest.mark.parametrize(
    ("make", "feature"),
    [
        (lambda: tfxclass.layers.SelectiveSoftmax(60, 40), "hashing forest"),
        (lambda: sampled(sampler="hashing_forest"), "hashing forest"),
        (lambda: sampled(sampler="kmeans"), "cluster index"),
        (lambda: sampled(sampler="pca_hash"), "PCA hash"),
        (
            lambda: tfxclass.layers.LSHSoftmax(60, 40),
            "Hash tables of classes",
        ),
        (
            lambda: tfxclass.layers.HierarchicalSoftmax(60, tree="balanced"),
            "class tree",
        ),
        (lambda: sampled(sampler="log_uniform"), "sample by frequency"),
    ],
)
def test_a_head_without_fallback_says_so_when_built(make, feature, monkeypatch):
    monkeypatch.setattr(library, "ops", fallback.ops)
    with pytest.raises(NeedsCompiledOps) as error:
        keras.Sequential([keras.Input([8]), make()])
    check_refusal(error.value, feature)


@pytest.mark.parametrize(
    ("make", "feature"),
    [
        (
            lambda: tfxclass.optimizers.LazyAdam(second_moment="row"),
            "second_moment='row'",
        ),
        (
            lambda: tfxclass.optimizers.LazySGD(slot_dtype="bfloat16"),
            "slot_dtype='bfloat16'",
        ),
    ],
)
def test_an_optimizer_without_fallback_says_so_when_made(
    make, feature, monkeypatch
):
    monkeypatch.setattr(library, "ops", fallback.ops)
    with pytest.raises(NeedsCompiledOps) as error:
        make()
    check_refusal(error.value, feature)


def test_bfloat16_rows_are_refused_when_the_optimizer_is_built(monkeypatch):
    monkeypatch.setattr(library, "ops", fallback.ops)
    head = tfxclass.layers.FullSoftmax(60, kernel_dtype="bfloat16")
    head.build((None, 8))
    with pytest.raises(NeedsCompiledOps) as error:
        tfxclass.optimizers.LazyAdam().build(head.trainable_variables)
    check_refusal(error.value, "bfloat16")


def test_a_refused_op_names_itself_and_its_feature():
    with pytest.raises(NeedsCompiledOps) as error:
        fallback.ops.tfxclass_forest_query(1, name="x")
    check_refusal(error.value, "SelectiveSoftmax")
    assert "the compiled op forest_query" in str(error.value)


def check_refusal(error, feature):
    """One message: the feature, the wheel for this TensorFlow, the build."""
    minor = ".".join(tf.__version__.split(".")[:2])
    for part in (feature, "pip install tfxclass", minor, "make setup", "g++"):
        assert part in str(error), error


@pytest.mark.parametrize(
    ("make", "feature"),
    [
        (lambda: tfxclass.trees.clustered(np.eye(9)), "clusters"),
        (
            lambda: tfxclass.text.Tagger(verbose=False).fit(
                ["a b", "c d"] * 9, [["x"], ["y"]] * 9
            ),
            "Tagger",
        ),
    ],
)
def test_a_feature_without_fallback_says_so(make, feature, monkeypatch):
    monkeypatch.setattr(library, "ops", fallback.ops)
    with pytest.raises(NeedsCompiledOps) as error:
        make()
    check_refusal(error.value, feature)


def test_labels_out_of_range_are_refused_in_a_graph():
    labels, none = tf.constant([3, 50], tf.int64), tf.zeros([0], tf.int64)

    @tf.function
    def draw(labels):
        return fallback.ops.tfxclass_active_classes(
            labels, none, [], [1, 2], tf.constant(9, tf.int64), 1.0, [], 50
        )

    with pytest.raises(tf.errors.InvalidArgumentError, match="be in .-1, 50"):
        draw(labels)


def test_a_fill_by_frequency_is_refused(monkeypatch):
    monkeypatch.setattr(library, "ops", fallback.ops)
    with pytest.raises(NeedsCompiledOps, match="A sample by frequency"):
        active.active_classes([3], 5, 10, [1, 2], fill="log_uniform")


@pytest.mark.slow
def test_log_counts_of_a_fill_are_its_chances(monkeypatch):
    """How often a class is in, against what is said."""
    monkeypatch.setattr(library, "ops", fallback.ops)
    labels = tf.constant([3, -1, 7], tf.int64)

    @tf.function
    def draw(seed):
        return active.active_classes(labels, 5, 10, seed)

    sums, runs = np.zeros(10), 300
    for seed in range(runs):
        found = draw(tf.constant([seed, 1], tf.int64))
        ids = found.ids.numpy()
        assert len(set(ids)) == 5 and list(ids[:2]) == [3, 7]
        sums[ids] += np.exp(-found.log_expected_count.numpy())
    # Weighted by 1 / chance each class counts 1 a run on average.
    np.testing.assert_allclose(sums / runs, 1.0, atol=0.45)
    np.testing.assert_allclose(sums.mean() / runs, 1.0, atol=0.08)


TRAINED = """
import json, sys, warnings
import numpy as np, tensorflow as tf, keras
import tfxclass
from tfxclass.ops import library

keras.utils.set_random_seed(1)
random = np.random.default_rng(0)
x = random.normal(size=(64, 8)).astype(np.float32)
y = random.integers(0, 60, 64)
L, O, S = tfxclass.layers, tfxclass.optimizers, tfxclass.samplers
heads = {
    "full": (L.FullSoftmax(60), O.LazyAdam(0.05)),
    "sampled": (L.SampledSoftmax(60, 30), O.LazySGD(0.5, momentum=0.9)),
    "auto": (L.SampledSoftmax(60, 40, sampler="auto"), O.LazyAdam(0.05)),
}
found = {"ops": library.build()["ops"]}
for name, (head, optimizer) in heads.items():
    model = keras.Sequential([keras.Input([8]), head])
    model.compile(optimizer=optimizer, loss=head.loss)
    before = model.evaluate(x, y, verbose=0)
    model.fit(x, y, batch_size=16, epochs=12, verbose=0)
    after = model.evaluate(x, y, verbose=0)
    ids, _ = tfxclass.top_k(model, 3).predict(x, verbose=0)
    best = np.argsort(-model.predict(x, verbose=0), axis=1, kind="stable")
    found[name] = [before, after, bool(np.all(ids == best[:, :3]))]
    if name == "full":
        found[name].append(model.get_weights()[0].ravel()[:6].tolist())
print(json.dumps(found))
"""


def run_child(code, **environment):
    """The last line that a process prints, read as JSON; and its stderr."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1]), done.stderr


def check_trained(found):
    assert found.pop("ops") == "fallback"
    for name, (before, after, ranks_alike, *_) in found.items():
        assert after < 0.75 * before and ranks_alike, (name, before, after)


def test_a_head_trains_with_fallback_ops(monkeypatch):
    for module in (library, row_update, exact_softmax):
        monkeypatch.setattr(module, "ops", fallback.ops)
    library.build.cache_clear()
    keras.utils.set_random_seed(1)
    random = np.random.default_rng(0)
    x = random.normal(size=(64, 8)).astype(np.float32)
    y = random.integers(0, 60, 64)
    # While all samples are uniform, neighbors of no rows are recalled.
    head = tfxclass.layers.SampledSoftmax(60, 40, sampler="auto")
    model = keras.Sequential([keras.Input([8]), head])
    model.compile(tfxclass.optimizers.LazyAdam(0.05), loss=head.loss)
    before = float(tf.reduce_mean(head.compute_loss(x, y, training=False)))
    model.fit(x, y, batch_size=16, epochs=12, verbose=0)
    after = float(tf.reduce_mean(head.compute_loss(x, y, training=False)))
    assert after < 0.75 * before


@pytest.mark.slow
def test_heads_train_alike_with_compiled_and_fallback_ops():
    compiled, _ = run_child(TRAINED, TFXCLASS_FALLBACK="0")
    found, _ = run_child(TRAINED, TFXCLASS_FALLBACK="1")
    np.testing.assert_allclose(
        found["full"][3], compiled["full"][3], rtol=1e-3, atol=1e-4
    )
    assert found["full"][1] == pytest.approx(compiled["full"][1], rel=1e-3)
    check_trained(found)


@pytest.mark.parametrize(
    ("value", "ops"), [("1", "fallback"), ("0", "compiled")]
)
def test_the_environment_chooses(value, ops):
    found, _ = library.load(value)
    assert (found is fallback.ops) == (ops == "fallback")


def test_no_library_is_one_warning_with_the_command(monkeypatch, tmp_path):
    check, missing = library.check, str(tmp_path / "no")
    monkeypatch.setattr(library, "check", lambda: check(missing, missing))
    with pytest.warns(UserWarning) as caught:
        assert library.load("") == (fallback.ops, None)
    (warning,) = caught
    assert library.REBUILD in str(warning.message)
    with pytest.raises(ImportError, match="are missing"):
        library.load("0")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert library.load("1") == (fallback.ops, None)
    with pytest.raises(ValueError, match="Received: 'yes'"):
        library.load("yes")


def test_a_library_that_does_not_load_is_told_in_a_line(monkeypatch, tmp_path):
    bad = tmp_path / "ops.so"
    bad.write_bytes(b"no library")
    monkeypatch.setattr(library, "check", lambda: None)
    monkeypatch.setattr(library, "LIBRARY", str(bad))
    with pytest.warns(UserWarning, match="do not load: .*Rebuild: pip"):
        assert library.load("") == (fallback.ops, None)


def test_show_build(capsys, monkeypatch):
    library.build.cache_clear()
    library.show_build()
    text = capsys.readouterr().out
    assert f"ops: compiled, for TensorFlow {tf.__version__}" in text
    assert "processor: -march=" in text
    assert f"oneDNN: {'on' if is_onednn_on() else 'off; TF_ENABLE'}" in text
    monkeypatch.setattr(library, "ops", fallback.ops)
    library.build.cache_clear()
    library.show_build()
    text = capsys.readouterr().out
    assert "ops: fallback" in text and "oneDNN: " in text


def contracts():
    """Where heads keep their contract: a file, and classes that inherit it."""
    yield "tests/layers/test_heads.py"
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        classes = re.findall(r"^class (Test\w+)\(.*\):", path.read_text(), re.M)
        for name in classes if "Contract)" in path.read_text() else ():
            yield f"{path.relative_to(ROOT)}::{name}"


@pytest.mark.slow
@pytest.mark.parametrize("name", [*contracts()])
def test_contracts_hold_with_fallback_ops(name):
    """Every test of it that is not refused, in a process with the switch."""
    # A class that is slow as a whole would be skipped.
    command = [sys.executable, "-m", "pytest", "-q", "--slow", name]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "TFXCLASS_FALLBACK": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-4000:]
    assert " passed" in done.stdout


@pytest.fixture(autouse=True)
def forget_build():
    yield
    library.build.cache_clear()
