"""The ops of the GPU, run on the processor by the CUDA emulator."""

import contextlib
import ctypes
import functools
import inspect
import os
import re
import tempfile

import pytest
import tensorflow as tf
from tensorflow.python.framework import kernels as registered
from tensorflow.python.framework import op_def_registry

from custom_ops.gpu_tests import build
from tfxclass.ops import library

#: Names of the ops that were called while `patched`.
used = set()


def waits() -> int:
    """How often ops have waited for the GPU so far."""
    return ctypes.CDLL(_library()).tfxclass_emulated_waits()


@functools.cache
def _library():
    """Path of the ops, loaded."""
    path = os.path.join(tempfile.mkdtemp(), "emulated_ops.so")
    build.build_emulated_ops(path)
    tf.load_op_library(path)
    return path


@functools.cache
def _names():
    """Names of the ops that have a kernel for the GPU."""
    _library()
    kernels = registered.get_all_registered_kernels().kernel
    return sorted({k.op for k in kernels if k.label == "emulated"})


@contextlib.contextmanager
def kernels():
    """Ops that are added to the graph in this context are the GPU's."""
    graph = tf.compat.v1.get_default_graph()
    with graph._kernel_label_map(dict.fromkeys(_names(), "emulated")):
        yield


def _emulated(name, op):
    """`op` of the GPU; in eager calls too."""
    declared = {arg.name: arg for arg in op_def_registry.get(name).input_arg}

    # The label of a kernel can be chosen in graphs alone.
    @functools.cache
    def graph_function(attrs):
        @functools.partial(tf.function, autograph=False, reduce_retracing=True)
        def call_in_graph(inputs):
            with kernels():
                result = op(**inputs, **dict(attrs))
            return None if isinstance(result, tf.Operation) else result

        return call_in_graph

    @functools.wraps(op)
    def call(*args, **kwargs):
        used.add(name)
        if not tf.executing_eagerly():
            with kernels():
                return op(*args, **kwargs)
        given = inspect.signature(op).bind(*args, **kwargs).arguments
        inputs = {
            key: _tensors(given.pop(key), arg) for key, arg in declared.items()
        }
        return graph_function(tuple(sorted(given.items())))(inputs)

    return call


def _tensors(value, arg):
    """The input `arg` of an op: a tensor or a list of them."""
    # Rows of a type to be chosen are float32, if they do not say it.
    if tf.is_tensor(value) and not arg.type:
        return value
    index = tf.int64 if arg.type_attr == "Index" else tf.float32
    dtype = tf.as_dtype(arg.type or index)
    if arg.number_attr:
        return [tf.convert_to_tensor(v, dtype) for v in value]
    return tf.convert_to_tensor(value, dtype)


@contextlib.contextmanager
def patched():
    """In this context the wrappers of `tfxclass.ops` call the GPU's ops."""
    with pytest.MonkeyPatch.context() as patch:
        for name in _names():
            attribute = _python_name(name)
            op = getattr(library.ops, attribute)
            patch.setattr(library.ops, attribute, _emulated(name, op))
        yield


def _python_name(name):
    """Of the op of that name: `tfxclass_lsh_hash` of "Tfxclass>LshHash"."""
    words = re.findall("[A-Z][a-z]*", name.replace(">", ""))
    return "_".join(words).lower()
