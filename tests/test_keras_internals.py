"""Private names of Keras and TensorFlow: in one file, and each at work."""

import ast
import gc
import inspect
import pathlib
import sys
import warnings
import weakref

import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.framework import ops as tf_ops

from tfxclass import keras_internals
from tfxclass import layers

ROOT = pathlib.Path(__file__).parent.parent
INSIDE = ROOT / "tfxclass" / "keras_internals.py"
FOLDERS = (
    "tfxclass",
    "tfxclass_text",
    "tfxclass_serve",
    "examples",
    "benchmarks",
    "serving",
)
# What the file has to be asked for.
PRIVATE = set(
    "_accumulated_gradients _all_reduce_sum_gradients _apply_weight_decay "
    "_autocast _backend_apply_gradients _backend_update_step _clip_gradients "
    "_compile_metrics _flatten_layers _functions _get_variable_index "
    "_gradient_function _handle_data _inbound_nodes _iterations "
    "_keras_history _num_workers _pywrap_util_port _registry _save_state "
    "_trainable_variables _untrack_variable _use_weight_decay _user_metrics "
    "_user_weighted_metrics _value _var_key scratch_graph".split()
)
# Of NamedTuple and os, by Python's documentation.
PUBLIC = {"_asdict", "_exit", "_fields", "_replace"}


class Recorded(keras_internals.OptimizerHooks, keras.optimizers.Adam):
    """Names of what Keras called, in order."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.called = []

    def _on_apply(self, grads, variables):
        self.called.append("apply")
        super()._on_apply(grads, variables)

    def _on_clip(self, grads):
        self.called.append("clip")
        return super()._on_clip(grads)

    def _on_all_reduce(self, pairs):
        self.called.append("all_reduce")
        return super()._on_all_reduce(pairs)

    def update_step(self, gradient, variable, learning_rate):
        self.called.append("update")
        super().update_step(gradient, variable, learning_rate)


@pytest.fixture
def variables():
    values = np.arange(6, dtype=np.float32).reshape(3, 2)
    return [keras.Variable(values, name="a"), keras.Variable(values, name="b")]


def gradients():
    return [tf.fill([3, 2], 3.0), tf.fill([3, 2], 4.0)]


@pytest.fixture
def model():
    inputs = keras.Input((3,))
    hidden = keras.layers.Dense(2, name="hidden")(inputs)
    inner = keras.Sequential([keras.layers.Dense(2, name="inner")])
    return keras.Model(inputs, layers.FullSoftmax(4)(inner(hidden)))


class TestOptimizer:
    def test_keras_calls_hooks_in_this_order(self, variables):
        optimizer = Recorded(0.1)
        optimizer.apply(gradients(), variables)
        assert optimizer.called == [
            *("apply", "clip", "all_reduce", "update", "update")
        ]

    def test_step_is_that_of_keras(self, variables):
        options = {"weight_decay": 0.1, "global_clipnorm": 1.0}
        ours, plain = (
            Recorded(0.1, **options),
            keras.optimizers.Adam(0.1, **options),
        )
        others = [keras.Variable(variable) for variable in variables]
        ours.apply(gradients(), variables)
        plain.apply(gradients(), others)
        for variable, other in zip(variables, others):
            np.testing.assert_array_equal(variable, other)

    def test_clipping(self, variables):
        optimizer = Recorded(0.1, clipvalue=0.5)
        clipped = optimizer._on_clip(gradients())
        np.testing.assert_array_equal(clipped[0], np.full((3, 2), 0.5))

    def test_all_reduce_keeps_pairs(self, variables):
        optimizer = Recorded(0.1)
        pairs = list(zip(gradients(), variables))
        found = list(optimizer._on_all_reduce(pairs))
        assert [pair[1] is v for pair, v in zip(found, variables)] == [True] * 2
        np.testing.assert_array_equal(found[1][0], pairs[1][0])

    def test_update_all(self, variables):
        optimizer = Recorded(0.1)
        optimizer.build(variables)
        optimizer._update_all(gradients(), variables)
        assert optimizer.called == ["all_reduce", "update", "update"]
        assert (variables[0].numpy() < [[0, 1], [2, 3], [4, 5]]).all()

    def test_decay_all(self, variables):
        optimizer = Recorded(0.1, weight_decay=0.5)
        optimizer.exclude_from_weight_decay(var_names=["b"])
        optimizer.build(variables)
        before = variables[0].numpy()
        optimizer._decay_all(variables)
        np.testing.assert_allclose(variables[0], before * 0.95, rtol=1e-6)
        np.testing.assert_array_equal(variables[1], before)

    def test_has_decay(self, variables):
        optimizer = Recorded(0.1, weight_decay=0.5)
        optimizer.exclude_from_weight_decay(var_names=["b"])
        optimizer.build(variables)
        assert list(map(optimizer._has_decay, variables)) == [True, False]

    def test_index_of(self, variables):
        optimizer = Recorded(0.1)
        optimizer.build(variables)
        assert [optimizer._index_of(v) for v in variables] == [0, 1]
        assert [optimizer._index_of(v.value) for v in variables] == [0, 1]

    def test_key_of(self, variables):
        optimizer = Recorded(0.1)
        a, b = map(optimizer._key_of, variables)
        assert a != b
        assert a == optimizer._key_of(variables[0].value)

    def test_count_step(self, variables):
        optimizer = keras.optimizers.SGD(0.1, gradient_accumulation_steps=2)
        optimizer.build(variables)
        counts = []
        for _ in range(3):
            keras_internals.count_step(optimizer)
            counts.append(int(optimizer.iterations))
        assert counts == [0, 1, 1]

    def test_built_for_adds_no_state(self, variables):
        ours, plain = Recorded(0.1), keras.optimizers.Adam(0.1)
        ours.build(variables)
        plain.build(variables)
        assert [x is v for x, v in zip(ours._built_for, variables)] == [
            True
        ] * 2
        assert len(ours.variables) == len(plain.variables)

    def test_strategy_is_that_of_the_constructor(self):
        strategy = tf.distribute.OneDeviceStrategy("CPU:0")
        with strategy.scope():
            optimizer = Recorded(0.1)
        assert optimizer._strategy is strategy

    def test_merge_call(self):
        def add(strategy, x):
            return x + strategy.num_replicas_in_sync

        strategy = tf.distribute.get_strategy()
        assert keras_internals.merge_call(add, strategy, 2) == 3

    def test_eager_mode(self):
        with tf.Graph().as_default() as graph:
            assert not tf.executing_eagerly()
            with keras_internals.eager_mode():
                assert int(tf.constant(1) + 2) == 3
        assert not graph.get_operations()


class TestCustomGradient:
    @staticmethod
    def doubled():
        @keras_internals.custom_gradient
        def doubled(x):
            return 2.0 * x, lambda upstream: 5.0 * upstream

        return doubled

    def in_function(self, x):
        return self.doubled()(x)

    def in_branch(self, x):
        return tf.cond(x > 0, lambda: self.doubled()(x), lambda: x)

    def in_loop(self, x):
        def body(i, x):
            return i + 1, self.doubled()(x)

        return tf.while_loop(lambda i, _: i < 1, body, [0, x])[1]

    @pytest.mark.parametrize("name", ["in_function", "in_branch", "in_loop"])
    @pytest.mark.parametrize("is_outer", [True, False])
    def test_gradients(self, name, is_outer):
        function = getattr(self, name)

        def gradient(x):
            with tf.GradientTape() as tape:
                tape.watch(x)
                y = traced(x)
            return y, tape.gradient(y, x)

        traced = tf.function(function) if is_outer else function
        run = gradient if is_outer else tf.function(gradient)
        y, found = run(tf.constant(3.0))
        assert float(y) == 6.0 and float(found) == 5.0

    def test_eager(self):
        x = tf.constant(3.0)
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = self.doubled()(x)
        assert float(tape.gradient(y, x)) == 5.0

    def test_goes_with_the_graph(self):
        def names():
            return set(tf_ops.gradient_registry.list())

        def use():
            function = tf.function(self.doubled())
            graph = function.get_concrete_function(tf.constant(1.0)).graph
            assert names() - before
            return weakref.ref(graph)

        gc.collect()
        before = names()
        graph = use()
        gc.collect()
        assert graph() is None and names() <= before


class TestLayers:
    def test_tf_variable_under_autocast(self):
        class Layer(keras.layers.Layer):
            def build(self, shape):
                self.kernel = self.add_weight(shape=(2,))

            def call(self, x):
                assert self.kernel.value.dtype == "bfloat16"
                self.found = keras_internals.tf_variable(self.kernel)
                return x

        layer = Layer(dtype="mixed_bfloat16")
        layer(np.zeros(2, np.float32))
        assert layer.found.dtype == "float32"
        assert layer.found.handle is layer.kernel.value.handle

    def test_tf_variable_of_others(self):
        variable = tf.Variable(1.0)
        assert keras_internals.tf_variable(variable) is variable

    def test_flat_layers(self, model):
        found = keras_internals.flat_layers(model)
        names = [layer.name for layer in found]
        assert found[0] is model
        assert {"hidden", "inner"} <= set(names)
        assert len(set(map(id, found))) == len(found)

    def test_made_by(self, model):
        hidden = model.get_layer("hidden")
        layer, (argument,) = keras_internals.made_by(hidden.output)
        assert layer is hidden and argument is model.inputs[0]
        assert not keras_internals.made_by(argument)[1]

    def test_is_keras_building(self):
        seen = []

        class Loss(keras.losses.Loss):
            def call(self, y_true, y_pred):
                seen.append(keras_internals.is_keras_building())
                return tf.reduce_sum(y_pred, axis=-1)

        strategy = tf.distribute.MirroredStrategy(["CPU:0"])
        with strategy.scope():
            model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(2)])
            model.compile("sgd", loss=Loss())
        x = np.ones((4, 2), np.float32)
        model.fit(x, x, verbose=0)
        assert seen[0] and not seen[-1]
        assert not keras_internals.is_keras_building()

    def test_layers_before(self, model):
        (head,) = [x for x in model.layers if isinstance(x, layers.FullSoftmax)]
        found = keras_internals.layers_before(head.input)
        assert set(found) == set(model.layers) - {head}

    def test_untrack(self):
        layer = keras.layers.Dense(2)
        layer.build((None, 3))
        keras_internals.untrack(layer, layer.kernel)
        assert layer.weights == [layer.bias] == layer.trainable_variables

    def test_without_autocast(self):
        class Reads(keras.layers.Layer):
            def build(self, shape):
                self.weight = self.add_weight(shape=(2,), name="weight")

            def call(self, x):
                return tf.convert_to_tensor(self.weight)

        layer = Reads(dtype="mixed_bfloat16")
        assert layer(tf.zeros([1, 2])).dtype == tf.bfloat16
        keras_internals.without_autocast(layer.weight)
        assert layer(tf.zeros([1, 2])).dtype == tf.float32

    def test_called_graphs(self):
        inner = tf.function(lambda x: tf.strings.lower(x), autograph=False)
        outer = tf.function(lambda x: inner(x), autograph=False)
        graph = outer.get_concrete_function(tf.TensorSpec([], tf.string)).graph
        (found,) = keras_internals.called_graphs(graph)
        assert "StringLower" in [op.type for op in found.get_operations()]
        assert not list(keras_internals.called_graphs(found))


class TestVersions:
    def test_tested_versions_are_those_required(self):
        text = (ROOT / "pyproject.toml").read_text()
        assert f'dependencies = ["{keras_internals.TESTED}", ' in text

    @pytest.mark.parametrize("version", ["3.11.3", "3.17.0", "4.0.0.dev1"])
    def test_another_keras(self, monkeypatch, version):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            keras_internals.check_version()
        monkeypatch.setattr("keras.__version__", version)
        received = f"pip install.*Received: keras {version}"
        with pytest.warns(UserWarning, match=received):
            keras_internals.check_version()

    def test_another_backend(self, monkeypatch):
        monkeypatch.setattr("keras.backend.backend", lambda: "jax")
        with pytest.raises(ImportError, match="Received: 'jax'"):
            keras_internals.check_backend()


class _Names(ast.NodeVisitor):
    """Names that a file defines and uses, by their line, and its strings."""

    def __init__(self):
        self.defined, self.used, self.strings = set(PUBLIC), {}, set()

    def visit_FunctionDef(self, node):
        self.defined.add(node.name)
        self.generic_visit(node)

    def visit_Name(self, node):
        if isinstance(node.ctx, ast.Store):
            self.defined.add(node.id)

    def visit_Attribute(self, node):
        is_own = isinstance(node.value, ast.Name) and node.value.id == "self"
        if isinstance(node.ctx, ast.Store) and is_own:
            self.defined.add(node.attr)
        else:
            self.used[node.attr] = node.lineno
        self.generic_visit(node)

    def visit_Call(self, node):
        if getattr(node.func, "id", "") in ("getattr", "setattr", "hasattr"):
            name = getattr(node.args[1], "value", None)
            if isinstance(name, str):
                self.used[name] = node.lineno
        self.generic_visit(node)

    def visit_Constant(self, node):
        self.strings.add(node.value)


def _names_in(path):
    names = _Names()
    names.visit(ast.parse(path.read_text()))
    return names


@pytest.fixture(scope="module")
def files():
    paths = [p for f in FOLDERS for p in sorted((ROOT / f).rglob("*.py"))]
    # Environments of other tools are kept in the cache.
    cache = ROOT / "benchmarks" / "cache"
    paths = [x for x in paths if x != INSIDE and cache not in x.parents]
    return {path: _names_in(path) for path in paths}


class TestOneFile:
    """Nothing else in the repository spells a private name of theirs."""

    def test_listed_names(self, files):
        found = [
            f"{path.relative_to(ROOT)}: {name}"
            for path, names in files.items()
            for name in {*names.used, *names.defined, *names.strings} & PRIVATE
        ]
        assert not found

    def test_other_private_names_are_our_own(self, files):
        own = (_names_in(INSIDE).defined - PRIVATE).union(
            *(names.defined for names in files.values())
        )
        found = [
            f"{path.relative_to(ROOT)}:{line}: {name}"
            for path, names in files.items()
            for name, line in names.used.items()
            if name.startswith("_")
            and not name.startswith("__")
            and name not in own
        ]
        assert not found

    def test_modules(self, files):
        found = []
        for path in files:
            text = path.read_text()
            for inside in ("keras.src", "tensorflow.python", "__internal__"):
                if inside in text:
                    found.append(f"{path.relative_to(ROOT)}: {inside}")
        assert not found


def test_what_saving_reads_without_a_file(tmp_path, monkeypatch):
    model = keras.Sequential([keras.Input([2]), keras.layers.Dense(3)])
    read = []

    class Observed(keras.layers.Layer):
        def save_own_variables(self, store):
            store["0"] = np.zeros(2)
            read.append(self.name)

    for name in ("b", "a"):
        setattr(model, name, Observed(name=name))
    model.save_weights(tmp_path / "model.weights.h5")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    files = list(tmp_path.iterdir())
    keras_internals.save_nowhere(model)
    assert read[:2] == read[2:] and sorted(read[:2]) == ["a", "b"]
    assert list(tmp_path.iterdir()) == files


class _Extended:
    def __init__(self, **counts):
        vars(self).update(counts)


class _Strategy:
    def __init__(self, **counts):
        self.extended = _Extended(**counts)


def test_a_strategy_without_the_count_of_workers_is_left_alone():
    strategy = _Strategy()
    with keras_internals.without_broadcast(strategy):
        assert not vars(strategy.extended)
    assert not vars(strategy.extended)


def test_the_count_of_workers_comes_back():
    strategy = _Strategy(_num_workers=8)
    with pytest.raises(ValueError, match="an initializer's"):
        with keras_internals.without_broadcast(strategy):
            assert strategy.extended._num_workers == 1
            raise ValueError("an initializer's")
    assert strategy.extended._num_workers == 8


def test_multi_worker_strategies_count_their_workers():
    strategy = tf.distribute.MultiWorkerMirroredStrategy
    source = inspect.getsource(sys.modules[strategy.__module__])
    assert "if self._num_workers > 1:" in source
