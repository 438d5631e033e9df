"""Where variables lie, and ops on the device of those that they read.

A variable may lie in the memory of the host, or of a parameter server. A gather
there sends ids and rows; elsewhere TensorFlow would send the whole matrix.
"""

import contextlib
import functools
import warnings
from collections.abc import Iterable
from typing import Any

import keras
import tensorflow as tf

from tfxclass.keras_internals import path_of
from tfxclass.keras_internals import tf_variable
from tfxclass.ops import bfloat16_rows
from tfxclass.ops import fallback
from tfxclass.ops import library
from tfxclass.types import Variable


def on(device: str | None) -> contextlib.AbstractContextManager[Any]:
    """A context in which ops are placed on `device`; None changes nothing."""
    # `tf.device(None)` would undo what is around it.
    return contextlib.nullcontext() if device is None else tf.device(device)


def colocate_with(variable: Variable) -> contextlib.AbstractContextManager[Any]:
    """A context in which ops are placed on the device of `variable`."""
    return on(device_of(variable))


def host_of(variable: Any) -> str | None:
    """The CPU on the machine of `variable`; None of a mere shape."""
    device = device_of(variable)
    spec = tf.DeviceSpec.from_string(device or "")
    if not device or spec.device_type == "CPU":
        return device
    return spec.replace(device_type="CPU", device_index=0).to_string()


def has_gpu() -> bool:
    """Whether this process computes on a GPU."""
    # Not the logical devices: to list them would fix their configuration.
    return bool(tf.config.get_visible_devices("GPU"))


def on_gpu(device: str | None) -> bool:
    """Whether a device, or None of a step, is a GPU."""
    spec = tf.DeviceSpec.from_string(device or "")
    return has_gpu() and spec.device_type != "CPU"


def ops_for(tensor: tf.Tensor, ops: Any) -> Any:
    """Compiled `ops` of CPUs, or TensorFlow's own if `tensor` is on a GPU."""
    return fallback.ops if on_gpu(tensor.device) else ops


def why_not_on_gpu(head: keras.layers.Layer) -> str | None:
    """Why the rows of `head` cannot lie on the GPU that computes, or None."""
    if not has_gpu():
        return None
    if library.cuda_version() is None:
        return (
            "TensorFlow computes on a GPU, but tfxclass's ops were built "
            "without CUDA. Fix: install CUDA's compiler, nvcc, and build them "
            f"again. {library.REBUILD}."
        )
    sampler = getattr(head, "sampler", None)
    if sampler is None:
        return None
    if head.kernel_dtype == "bfloat16" and not sampler.has_gpu_half_ops:
        return f"{head.name!r} has an index of class rows in bfloat16."
    if sampler.has_gpu_ops:
        return None
    return f"The sampler of {head.name!r} has ops for CPUs only."


@functools.cache
def warn_once(reason: str) -> None:
    """Says once what it means that rows cannot lie on the GPU."""
    warnings.warn(
        f"{reason} Class matrices stay in host memory, and only active rows "
        "cross at a step (under a strategy of several GPUs the whole matrix).",
        stacklevel=2,
    )


def of_index(variable: Variable, has_gpu_ops: bool) -> str | None:
    """The device of an index of `variable`: its own, or its machine's CPU."""
    if has_gpu_ops and library.cuda_version() is not None:
        return device_of(variable)
    return host_of(variable)


def gather(variable: Variable, ids: tf.Tensor) -> tf.Tensor:
    """Rows of `variable`, bfloat16 ones as float32; row-sparse gradients."""
    with colocate_with(variable):
        # Not a sparse read of the variable: after that TensorFlow copies the
        # whole matrix at each full read, also at one that has been pruned.
        values = tf.convert_to_tensor(variable)
        if bfloat16_rows.is_half(values):
            return bfloat16_rows.gather(values, ids)
        return tf.gather(values, ids)


def device_of(variable: Any) -> str | None:
    """Name of the device of `variable`, str, or None of a mere shape."""
    return getattr(tf_variable(variable), "device", None)


def handle_of(variable: Variable) -> tf.Tensor:
    """The resource handle of a Keras or TensorFlow variable."""
    variable = tf_variable(variable)
    if tf.distribute.in_cross_replica_context():
        # All copies are equal: the first one will do.
        strategy = tf.distribute.get_strategy()
        variable = strategy.experimental_local_results(variable)[0]
    return variable.handle


def check_made_within(
    strategy: tf.distribute.Strategy, variables: Iterable[Variable]
) -> None:
    """Raises ValueError if variables were made outside of a strategy's scope.

    The default strategy means no scope.
    """
    extended = strategy.extended
    others = [
        path_of(v)
        for v in variables
        if not extended.variable_created_in_scope(tf_variable(v))
    ]
    if others:
        name = type(strategy).__name__
        scope = "no strategy" if name.startswith("_Default") else name
        raise ValueError(
            "A model, its head and its optimizer must be made within one "
            f"`strategy.scope()`. Received: {scope}, but made elsewhere: "
            f"{', '.join(others[:3])}. Fix: under one `with "
            "strategy.scope():`, build or load the model, make the head, "
            "call tfxclass.replace_head, and compile"
        )
