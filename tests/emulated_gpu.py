"""The ops of the GPU, run on the processor by the CUDA emulator."""

import contextlib
import functools
import os
import re
import tempfile

import pytest
import tensorflow as tf
from tensorflow.python.framework import kernels as registered

from custom_ops.gpu_tests import build
from tfxclass.ops import library


@functools.cache
def _names():
    """Names of the ops that have a kernel for the GPU."""
    folder = tempfile.mkdtemp()
    library = os.path.join(folder, "emulated_ops.so")
    build.build_emulated_ops(library)
    tf.load_op_library(library)
    kernels = registered.get_all_registered_kernels().kernel
    return sorted({k.op for k in kernels if k.label == "emulated"})


@contextlib.contextmanager
def kernels():
    """Ops that are added to the graph in this context are the GPU's."""
    graph = tf.compat.v1.get_default_graph()
    with graph._kernel_label_map(dict.fromkeys(_names(), "emulated")):
        yield


def _emulated(op):
    """`op` of the GPU; in eager calls too."""

    @functools.wraps(op)
    def call(*args, **kwargs):
        def emulate():
            with kernels():
                result = op(*args, **kwargs)
            return None if isinstance(result, tf.Operation) else result

        if not tf.executing_eagerly():
            return emulate()
        # The label of a kernel can be chosen in graphs alone.
        return tf.function(emulate, autograph=False)()

    return call


@contextlib.contextmanager
def patched():
    """In this context the wrappers of `tfxclass.ops` call the GPU's ops."""
    with pytest.MonkeyPatch.context() as patch:
        for name in _names():
            attribute = _python_name(name)
            op = getattr(library.ops, attribute)
            patch.setattr(library.ops, attribute, _emulated(op))
        yield


def _python_name(name):
    """Of the op of that name: `tfxclass_lsh_hash` of "Tfxclass>LshHash"."""
    words = re.findall("[A-Z][a-z]*", name.replace(">", ""))
    return "_".join(words).lower()
