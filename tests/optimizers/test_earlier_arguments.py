"""Arguments and functions of earlier versions."""

import keras
import numpy as np
import pytest

from tfxclass import optimizers

RENAMED = [
    ("LazyAdam", "compact_slots", ("row", "bfloat16")),
    ("LazyAdamW", "compact_slots", ("row", "bfloat16")),
    ("LazySGD", "compact_slots", ("element", "bfloat16")),
    ("LazyAdagrad", "compact_slots", ("row", "float32")),
    ("LazyAdam", "shared_second_moment", ("matrix", "float32")),
]


def storage_of(optimizer):
    return optimizer.second_moment, optimizer.slot_dtype


@pytest.mark.parametrize("kind, name, expected", RENAMED)
def test_renamed_arguments_warn(kind, name, expected):
    cls = getattr(optimizers, kind)
    with pytest.warns(DeprecationWarning, match=f"`{name}=True`.*Use") as told:
        optimizer = cls(0.1, **{name: True})
    assert told[0].filename == __file__
    assert storage_of(optimizer) == expected
    assert storage_of(cls(0.1, **{name: False})) == ("element", "float32")
    with pytest.raises(ValueError, match=f"`{name}`.*Received: 'no'"):
        cls(0.1, **{name: "no"})


@pytest.mark.parametrize("kind, name, expected", RENAMED)
def test_configs_of_saved_files(kind, name, expected):
    cls = getattr(optimizers, kind)
    config = cls(0.1).get_config()
    config.pop("second_moment", None)
    config.pop("slot_dtype", None)
    earlier = {"catch_up": False, "compact_slots": False}
    if "Adam" in kind:
        earlier["shared_second_moment"] = False
    optimizer = cls.from_config({**config, **earlier, name: True})
    assert storage_of(optimizer) == expected
    again = cls.from_config(optimizer.get_config())
    assert storage_of(again) == expected


def test_both_together_are_one_moment_of_small_slots():
    config = optimizers.LazyAdam().get_config()
    del config["second_moment"], config["slot_dtype"]
    config.update(compact_slots=True, shared_second_moment=True)
    optimizer = optimizers.LazyAdam.from_config(config)
    assert storage_of(optimizer) == ("matrix", "bfloat16")


@pytest.mark.parametrize("kind", ["SGD", "Adagrad", "Adam", "AdamW"])
@pytest.mark.parametrize("name", ["catch_up", "use_ema"])
def test_removed_arguments(kind, name):
    cls = getattr(optimizers, f"Lazy{kind}")
    message = f"keras.optimizers.{kind}.*Received: {name}=True"
    with pytest.raises(ValueError, match=message):
        cls(0.1, **{name: True})
    optimizer = cls(0.1, **{name: False})
    config = {**optimizer.get_config(), name: True}
    with pytest.warns(UserWarning, match=f"saved with `{name}=True`"):
        assert cls.from_config(config).use_ema is False


def test_small_first_moments_need_small_second_ones():
    with pytest.raises(ValueError, match='Fix: second_moment="row"'):
        optimizers.LazyAdam(slot_dtype="bfloat16")


def test_catch_up_does_nothing_but_warn():
    variable = keras.Variable(np.ones((3, 2)))
    with pytest.warns(DeprecationWarning, match="does nothing"):
        optimizers.catch_up(variable, [0])
    np.testing.assert_array_equal(variable, np.ones((3, 2)))
