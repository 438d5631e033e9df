"""Class-parallel softmax: the contract on one device, and real replicas."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfxclass
from tests.support import contract
from tests.support import reference
from tests.support import sharded
from tests.support.cases import quick
from tests.support.processes import free_ports
from tests.support.processes import run
from tests.support.processes import run_all
from tfxclass import callbacks
from tfxclass import layers
from tfxclass import optimizers
from tfxclass import samplers

# Each row is a process: the number of replicas, and what they check.
CHECKS = [
    (4, ["equal", "memory"]),
    (2, ["pruning", "samplers", "options", "export", "half"]),
    (2, ["inference", "negatives", "restart"]),
    (2, ["equal", "initial", "blocks", "sampled", "errors"]),
]
SLOW = 3  # so many of them


class TestContract(contract.HeadContract):
    slow_tests = contract.LONG

    def make_head(self, num_classes=contract.CLASSES, **changes):
        return layers.ShardedSoftmax(num_classes, **changes)


@pytest.mark.slow
class TestSampledContract(contract.HeadContract):
    is_random = True

    def make_head(self, num_classes=contract.CLASSES, **changes):
        changes = {"sample_rate": 0.5, "correct_fill": True, **changes}
        return layers.ShardedSoftmax(num_classes, **changes)


def check_replicas(count, names, folder):
    _, output = run(
        ["tests.support.sharded", str(count), str(folder), *names], folder
    )
    lines = output.splitlines()
    missing = [name for name in names if f"passed: {name}" not in lines]
    assert not missing, output[-3000:]


@pytest.mark.parametrize(
    ("count", "names"),
    [pytest.param(*c, marks=pytest.mark.slow) for c in CHECKS[:SLOW]]
    + CHECKS[SLOW:],
    ids=[f"{n}-{names[0]}" for n, names in CHECKS],
)
def test_replicas(tmp_path, count, names):
    check_replicas(count, names, tmp_path)


@pytest.mark.parametrize("counts", quick([(2,), (4, 2)], []), ids=str)
def test_files_go_with_any_number_of_replicas(tmp_path, counts):
    """Each reads the files of those before it."""
    one = tf.distribute.get_strategy()
    sharded.check_files(one, tmp_path)
    for count in counts:
        check_replicas(count, ["files"], tmp_path)
    sharded.check_loading(one, tmp_path)


def test_sampled_loss_is_corrected_only_if_asked():
    """Over all seeds, the corrected sum of exponentials is the full one."""
    x, y = contract.data()
    kernel = np.random.default_rng(2).normal(size=(60, contract.DIM))
    full = reference.cross_entropy(reference.head_logits(x, kernel), y)
    means = []
    for correct in (True, False):
        head = layers.ShardedSoftmax(
            60, sample_rate=0.6, correct_fill=correct, seed=0
        )
        head.build((None, contract.DIM))
        head.kernel.assign(kernel)
        step = tf.function(lambda h=head: h.compute_loss(x, y, training=True))
        losses = np.array([step() for _ in range(400)])
        # exp(loss) is linear in the sum of exponentials.
        means.append(np.log(np.exp(losses).mean(axis=0)))
    np.testing.assert_allclose(means[0], full, rtol=0.02)
    assert np.all(means[1] < full)


def test_sampler_goes_on_from_a_file(tmp_path):
    """Its index, too; warnings are errors here."""
    sampler = samplers.KMeansSampler(30, rebuild_interval=2, seed=1)
    model = contract.make_model(layers.ShardedSoftmax(60, sampler))
    x, y = contract.data()
    options = {"epochs": 6, "batch_size": 4, "shuffle": False, "verbose": 0}
    model.fit(x, y, **options)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    losses = [m.fit(x, y, **options).history["loss"] for m in (model, loaded)]
    assert losses[0] == losses[1]


def test_sampler_by_its_name_and_what_it_measures(tmp_path):
    head = layers.ShardedSoftmax(60, "hashing_forest", num_sampled=30, seed=1)
    again = layers.ShardedSoftmax.from_config(head.get_config())
    assert type(again.sampler) is samplers.HashingForestSampler
    assert again.num_sampled == again.sampler.num_sampled == 30
    x, y = contract.data()
    model = keras.Sequential([keras.Input(x.shape[1:]), head])
    model.compile("sgd", loss=head.loss)
    log = callbacks.SamplerLog()
    history = model.fit(x, y, 4, verbose=0, callbacks=[log]).history
    assert 0 < history["recall"][0] <= 1


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"sample_rate": 0.0}, "`sample_rate` must be in (0, 1]"),
        ({"sample_rate": 1.5}, "Received: 1.5"),
        ({"num_sampled": 0}, "`num_sampled` must be a positive integer"),
        ({"sampler": "forest"}, "a tfxclass.samplers.Sampler"),
        ({"num_sampled": 5, "sample_rate": 0.1}, "Give one"),
    ],
)
def test_bad_arguments(changes, part):
    with pytest.raises(ValueError) as error:
        layers.ShardedSoftmax(60, **changes)
    assert part in str(error.value)


def run_workers(folder):
    """Two workers to their end."""
    ports = free_ports(2)
    codes, outputs = run_all(
        [
            ["tests.support.sharded_worker", str(i), str(folder), *ports]
            for i in (0, 1)
        ],
        folder,
    )
    assert codes == [0, 0], "\n".join(output[-3000:] for output in outputs)


@pytest.mark.slow
def test_two_workers_equal_one_device(tmp_path):
    run_workers(tmp_path)
    one = sharded.make_model(
        layers.FullSoftmax,
        lambda: optimizers.LazyAdam(0.02),
        **sharded.COSFACE,
    )
    sharded.fit(one)
    x, y = sharded.data()
    losses = one.layers[-1].compute_loss(one.layers[0](x), y)
    ids, scores = tfxclass.top_k(one, 5).predict(x, verbose=0)
    found = [np.load(tmp_path / f"worker_{i}.npz") for i in range(2)]
    for name, expected in (("losses", losses), ("scores", scores)):
        both = np.concatenate([x[name] for x in found])
        np.testing.assert_allclose(both, expected, **sharded.TOLERANCE)
    np.testing.assert_array_equal(
        np.concatenate([x["ids"] for x in found]), ids
    )
    for i in range(2):
        model = keras.saving.load_model(tmp_path / f"worker_{i}.keras")
        sharded.assert_same(sharded.values(model), _with_seed(one, model))


def _with_seed(one, model):
    """`values` of a model without the seed that a sharded one has."""
    at = len(one.trainable_variables)
    seeds = [v.numpy() for v in model.weights[at:]]
    found = sharded.values(one)
    return [*found[:at], *seeds, *found[at:]]
