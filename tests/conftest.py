"""Options and fixtures of all tests."""

import gc
import os
import pathlib

# Before TensorFlow is imported: its start-up notes bury the failures.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import pytest  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parent.parent


def pytest_addoption(parser):
    parser.addoption(
        "--slow", action="store_true", help="run the tests marked slow, too"
    )


def pytest_collection_modifyitems(config, items):
    for item in items:
        if item.get_closest_marker("slow") and not config.getoption("--slow"):
            item.add_marker(pytest.mark.skip(reason="slow: needs --slow"))
        if item.get_closest_marker("gpu") and not _has_gpu():
            item.add_marker(pytest.mark.skip(reason="no CUDA device here"))


def _has_gpu():
    import tensorflow as tf

    return bool(tf.config.list_physical_devices("GPU"))


@pytest.fixture(scope="module", autouse=True)
def small_collections():
    """TensorFlow keeps every traced graph: none is looked at again and again.

    Late in a run of all tests a full collection took half a minute.
    """
    yield
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def shared_data():
    """Path of ../shared/data, real data beside the checkout, or a skip."""
    path = ROOT.parent / "shared" / "data"
    if not path.is_dir():
        pytest.skip(f"no real data: {path} does not exist")
    return path


@pytest.fixture(scope="module")
def dictionary_folder(tmp_path_factory):
    """Versions of an exported model from a text to words."""
    import tfxclass
    from tests.helpers import make_text_model

    path = tmp_path_factory.mktemp("models") / "dictionary"
    tfxclass.export.saved_model(
        make_text_model(12),
        path,
        top_k=3,
        labels=[f"word{i} \u00e9" for i in range(12)],
        verify=False,
    )
    return path
