"""The ops of the GPU, run on the processor by the CUDA emulator."""

import contextlib
import functools
import os
import tempfile

import tensorflow as tf

import tfxclass  # noqa: F401 - registers the ops
from custom_ops.gpu_tests import build


@functools.cache
def _names():
    """Names of the ops that have a kernel for the GPU."""
    folder = tempfile.mkdtemp()
    library = os.path.join(folder, "emulated_ops.so")
    build.build_emulated_ops(library)
    tf.load_op_library(library)
    kernels = tf.python.framework.kernels.get_all_registered_kernels().kernel
    return sorted({k.op for k in kernels if k.label == "emulated"})


@contextlib.contextmanager
def kernels():
    """Ops that are added to the graph in this context are the GPU's."""
    graph = tf.compat.v1.get_default_graph()
    with graph._kernel_label_map(dict.fromkeys(_names(), "emulated")):
        yield


def run(function, *args):
    """`function(*args)` with the GPU's ops."""
    _names()

    @tf.function
    def graph_function():
        with kernels():
            return function(*args)

    return graph_function()
