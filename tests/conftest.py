"""Options and fixtures of all tests."""

import collections
import gc
import os
import pathlib

# Before TensorFlow is imported: its start-up notes bury the failures.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
# Compiled ops that do not load are an error here, not slow fallbacks.
os.environ.setdefault("TFXCLASS_FALLBACK", "0")

import hypothesis  # noqa: E402
import pytest  # noqa: E402

# What imports make stays: looking for garbage takes a quarter of their time.
gc.disable()

ROOT = pathlib.Path(__file__).resolve().parent.parent


def pytest_addoption(parser):
    parser.addoption(
        "--slow", action="store_true", help="run the tests marked slow, too"
    )
    parser.addoption(
        "--durations-file",
        metavar="PATH",
        help="write the seconds of each test to a file, the slowest first",
    )


def pytest_configure(config):
    slow = config.getoption("--slow")
    hypothesis.settings.register_profile(
        "tfxclass", max_examples=200 if slow else 25, deadline=None
    )
    hypothesis.settings.load_profile("tfxclass")


def pytest_collection_modifyitems(config, items):
    from tests.support import gpu

    for item in items:
        if item.originalname in getattr(item.cls, "slow_tests", ()):
            item.add_marker(pytest.mark.slow)
        if item.get_closest_marker("slow") and not config.getoption("--slow"):
            item.add_marker(pytest.mark.skip(reason="slow: needs --slow"))
        if item.get_closest_marker("gpu") and not gpu.is_visible():
            item.add_marker(pytest.mark.skip(reason="no CUDA device here"))


def pytest_collection_finish():
    """All test files are imported."""
    gc.freeze()
    gc.enable()


def pytest_terminal_summary(terminalreporter, config):
    path = config.getoption("--durations-file")
    if not path:
        return
    seconds = collections.Counter()
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                seconds[report.nodeid] += report.duration
    lines = [f"{s:8.2f} {test}\n" for test, s in seconds.most_common()]
    pathlib.Path(path).write_text("".join(lines))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    """On a machine with a GPU, what `host` tests make is on the CPU, too."""
    if not item.get_closest_marker("host"):
        return (yield)
    import tensorflow as tf

    with tf.device("CPU:0"):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    """With TFXCLASS_FALLBACK=1, skips what only compiled ops can do."""
    try:
        return (yield)
    except Exception as e:
        refused = "NeedsCompiledOps" in f"{type(e).__name__}: {e}"
        if refused and os.environ["TFXCLASS_FALLBACK"] == "1":
            pytest.skip(str(e))
        raise


@pytest.fixture(scope="module", autouse=True)
def small_collections():
    """TensorFlow keeps every traced graph: none is looked at again and again.

    A full collection took 4 s after a third of all tests.
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
    from tests.support.helpers import make_text_model

    path = tmp_path_factory.mktemp("models") / "dictionary"
    tfxclass.export.saved_model(
        make_text_model(12),
        path,
        top_k=3,
        labels=[f"word{i} \u00e9" for i in range(12)],
        verify=False,
    )
    return path


@pytest.fixture(scope="session")
def served_models(tmp_path_factory):
    """A folder of three models, for the tests of the server."""
    from tests.support import serving_cases

    root = tmp_path_factory.mktemp("models")
    serving_cases.export_models(root)
    return root


@pytest.fixture(scope="session")
def server(served_models):
    """A server of them, for all tests; its limits are low."""
    from tests.support import serving_cases
    from tfxclass_serve.server import Server

    server = Server(
        str(served_models),
        grpc_port=0 if serving_cases.has_grpc() else None,
        poll_seconds=0.05,
        max_request_bytes=100_000,
        timeout=2.0,
        header_timeout=1.0,
    )
    server.start()
    yield server
    server.close()
