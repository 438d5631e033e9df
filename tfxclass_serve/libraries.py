"""Finds TensorFlow's shared objects without importing it."""

import glob
import importlib.util
import os


def library_folder():
    """The folder of TensorFlow's library."""
    found = importlib.util.find_spec("tensorflow")
    if found is None:
        raise ImportError(
            "TensorFlow is not installed. Fix: pip install "
            "'tensorflow-cpu>=2.20,<2.23'"
        )
    return os.path.dirname(found.origin)


def text_libraries():
    """Paths of TensorFlow Text's ops, none where it is not installed.

    TensorFlow Serving is built with them: `SUPPORTED_TENSORFLOW_OPS` in
    tensorflow/serving, `model_servers/BUILD`, names `ops_lib` of
    tensorflow/text, `tensorflow_text/BUILD`, which are these.
    """
    found = importlib.util.find_spec("tensorflow_text")
    if found is None:
        return []
    folder = os.path.join(os.path.dirname(found.origin), "python")
    return sorted(glob.glob(os.path.join(glob.escape(folder), "*", "_*.so")))
