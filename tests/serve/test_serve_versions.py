"""Versions that come, fail, change, and go."""

import os
import shutil
import threading
import time

import pytest

from tests.support.serving_cases import X
from tests.support.serving_cases import assert_refused
from tests.support.serving_cases import call
from tests.support.serving_cases import needs_grpc
from tests.support.serving_cases import predict
from tfxclass_serve import folders
from tfxclass_serve import models
from tfxclass_serve.c_loader import TensorFlowError
from tfxclass_serve.server import Server


@needs_grpc
@pytest.mark.parametrize(
    ("policy", "wanted"),
    [
        ("", {3}),
        ("model_version_policy { latest { num_versions: 2 } }", {2, 3}),
        ("model_version_policy { all {} }", {1, 2, 3}),
        ("model_version_policy { specific { versions: 1 } }", {1}),
    ],
)
def test_policies(policy, wanted):
    from google.protobuf import text_format
    from tensorflow_serving.config import model_server_config_pb2

    from tfxclass_serve.model_config import sources_of

    text = f'config {{ name: "m" base_path: "/m" {policy} }}'
    config = model_server_config_pb2.ModelServerConfig()
    text_format.Parse(f"model_config_list {{ {text} }}", config)
    assert sources_of(config)["m"].wanted({1: "", 2: "", 3: ""}) == wanted


class Fake:
    """A servable that is text, of a folder that has the file `model`."""

    def __init__(self, folder):
        with open(os.path.join(folder, "model")) as f:
            self.text = f.read()
        if not self.text.startswith("good"):
            raise ValueError("broken " + "x" * 5_000)

    is_closed = False

    def close(self):
        self.is_closed = True


class TestRetries:
    """A version that failed is tried again; models are text here."""

    @pytest.fixture
    def path(self, tmp_path):
        self.loads = []
        return tmp_path / "m"

    def models(self, path, **options):
        def load(folder):
            self.loads.append(folder)
            return Fake(folder)

        sources = {"m": folders.Source(str(path))}
        options = {"settle_seconds": 0.0, "retry_seconds": 1e6, **options}
        return models.Models(load, lambda: sources, **options)

    def write(self, path, version, text):
        (path / version).mkdir(parents=True, exist_ok=True)
        (path / version / "model").write_text(text)

    def served(self, served):
        with served.use("m") as (servable, version):
            return version, servable.text

    def test_when_its_files_change(self, path, caplog):
        self.write(path, "1", "good")
        self.write(path, "2", "half")
        served = self.models(path)
        served.poll()
        served.poll()
        assert len(self.loads) == 1  # Of version 2, the latest.
        (line,) = [x.getMessage() for x in caplog.records]
        assert "m version 2 did not load" in line and "broken" in line
        assert len(line) < 1_500
        with pytest.raises(TensorFlowError, match="not found"):
            self.served(served)
        self.write(path, "2", "good now")
        served.poll()
        assert self.served(served) == (2, "good now")
        assert served.status("m") == [(2, models.AVAILABLE, None)]

    def test_after_a_back_off(self, path, monkeypatch):
        """What failed may have been memory: the files stay as they are."""
        self.write(path, "1", "good")
        now, fails = [0.0], [True]
        monkeypatch.setattr(models.time, "monotonic", lambda: now[0])

        def load(folder):
            self.loads.append(now[0])
            if fails[0]:
                raise MemoryError
            return Fake(folder)

        sources = {"m": folders.Source(str(path))}
        served = models.Models(load, lambda: sources, 0.0, 5.0)
        while now[0] < 2_000:
            served.poll()
            now[0] += 1.0
        # It doubles, up to five minutes.
        assert self.loads[:7] == [0, 5, 15, 35, 75, 155, 315]
        assert self.loads[7:] == [615, 915, 1215, 1515, 1815]
        fails[0] = False
        now[0] = 2_115.0
        served.poll()
        assert self.served(served) == (1, "good")

    def test_a_copy_under_way_is_not_loaded(self, path):
        """Half a vocabulary would load, and answer wrongly."""
        self.write(path, "1", "good")
        served = self.models(path, settle_seconds=0.5)
        for text in ("good 1", "good 12"):
            self.write(path, "1", text)
            assert served.poll() is False
            assert not self.loads
            time.sleep(0.1)
        time.sleep(0.5)
        assert served.poll() is True
        assert self.served(served) == (1, "good 12")

    def test_all_versions(self, path):
        """As many as are there, or as are wanted of the latest."""
        for version in "123":
            self.write(path, version, "good")
        source = folders.Source(str(path), latest=None)
        served = models.Models(Fake, lambda: {"m": source}, 0.0)
        served.poll()
        assert [row[0] for row in served.status("m")] == [3, 2, 1]
        with served.use("m", 1) as (servable, version):
            assert (servable.text, version) == ("good", 1)
        shutil.rmtree(path / "2")
        served.poll()
        assert [row[0] for row in served.status("m")] == [3, 1]
        self.write(path, "4", "good")
        served.configure({"m": source._replace(latest=2)})
        assert [row[0] for row in served.status("m")] == [4, 3]

    def test_a_slow_copy_of_what_failed(self, path):
        self.write(path, "1", "half")
        served = self.models(path, settle_seconds=0.3)
        time.sleep(0.35)
        served.poll()
        assert len(self.loads) == 1
        self.write(path, "1", "good half")
        served.poll()
        assert len(self.loads) == 1
        self.write(path, "1", "good whole")
        time.sleep(0.35)
        served.poll()
        assert self.served(served) == (1, "good whole")

    def test_the_last_user_unloads(self, path):
        """A poll does not wait for it: other models come and go meanwhile."""
        self.write(path, "1", "good")
        served = self.models(path)
        served.poll()
        with served.use("m") as (servable, _):
            self.write(path, "2", "good")
            poll = threading.Thread(target=served.poll, daemon=True)
            poll.start()
            poll.join(20)
            assert not poll.is_alive()
            states = [row[:2] for row in served.status("m")]
            assert states == [(2, models.AVAILABLE), (1, models.UNLOADING)]
            assert not servable.is_closed
        assert servable.is_closed
        assert [row[0] for row in served.status("m")] == [2]
        served.close()
        assert served.names() == []

    def test_a_version_that_comes_back_while_it_is_used(self, path):
        self.write(path, "1", "good")
        served = self.models(path)
        served.poll()
        with served.use("m") as (old, _):
            os.rename(path / "1", path / "x")
            served.poll()
            os.rename(path / "x", path / "1")
            served.poll()
            with served.use("m") as (new, _):
                assert new is not old
        assert old.is_closed and not new.is_closed
        assert served.status("m") == [(1, models.AVAILABLE, None)]

    @pytest.mark.parametrize(
        "name", [str(2**63), "9" * 5_000, "1" * 200, "-1", "1.0", "\u0661"]
    )
    def test_folders_that_are_no_versions(self, path, name):
        self.write(path, "1", "good")
        if len(name) < 256:
            self.write(path, name, "good")
        assert folders.to_version(name) is None
        served = self.models(path)
        served.poll()
        assert self.served(served)[0] == 1

    def test_the_largest_version(self, path):
        self.write(path, "000" + str(2**63 - 1), "good")
        served = self.models(path)
        served.poll()
        assert self.served(served)[0] == 2**63 - 1

    def test_a_clock_that_is_ahead(self):
        later = time.time_ns() + 10**12
        assert folders.is_settled([("x", 1, later)], 1.0)
        assert not folders.is_settled([("x", 1, time.time_ns())], 1.0)


class TestVersions:
    """Polling, with files that are copied."""

    @pytest.fixture
    def own(self, served_models, tmp_path):
        """A server of one model, polled by hand."""
        shutil.copytree(served_models / "numbers", tmp_path / "m" / "numbers")
        server = Server(str(tmp_path / "m"), poll_seconds=1e6, settle_seconds=0)
        server.models.poll()
        server.rest.start()
        yield server, tmp_path / "m" / "numbers"
        server.rest.close()
        server.models.close()

    def states(self, server):
        rows = server.models.status("numbers")
        return [(version, models.STATES[state]) for version, state, _ in rows]

    def test_a_new_version_takes_over(self, own):
        server, path = own
        with server.models.use("numbers") as (old, version):
            assert version == 1
            os.rename(shutil.copytree(path / "1", path / "x"), path / "0012")
            poll = threading.Thread(target=server.models.poll)
            poll.start()
            while self.states(server)[0] != (12, "AVAILABLE"):
                time.sleep(0.01)
            # What is under way is not cut off.
            assert old.predict("", {"x": X})["ids"].shape == (4, 3)
            assert self.states(server)[1:] == [(1, "UNLOADING")]
        poll.join()
        assert self.states(server) == [(12, "AVAILABLE")]
        assert predict(server, {"inputs": X.tolist()})[0] == 200

    def test_a_broken_version_leaves_the_old_one(self, own):
        server, path = own
        shutil.copytree(path / "1", path / "2")
        (path / "2" / "saved_model.pb").write_bytes(b"broken")
        server.models.poll()
        assert self.states(server) == [(2, "END"), (1, "AVAILABLE")]
        assert predict(server, {"inputs": X.tolist()})[0] == 200
        status = call(server, "GET", "/v1/models/numbers/versions/2")[1]
        error = status["model_version_status"][0]["status"]
        assert error["error_code"] != "OK" and error["error_message"]
        shutil.rmtree(path / "2")
        server.models.poll()
        assert self.states(server) == [(1, "AVAILABLE")]

    def test_a_bad_warmup_stops_the_load(self, own):
        server, path = own
        shutil.copytree(path / "1", path / "2")
        (path / "2" / "assets.extra").mkdir(exist_ok=True)
        warmup = path / "2" / "assets.extra" / "tf_serving_warmup_requests"
        warmup.write_bytes(b"no record" * 10)
        server.models.poll()
        assert self.states(server) == [(2, "END"), (1, "AVAILABLE")]

    def test_folders_that_go(self, own):
        server, path = own
        os.rename(path / "1", path / "away")
        server.models.poll()
        answer = predict(server, {"inputs": X.tolist()})
        assert_refused(answer, 404, "Latest(numbers)")

    def test_pinned_versions_and_labels(self, own):
        server, path = own
        shutil.copytree(path / "1", path / "2")
        shutil.copytree(path / "1", path / "3")
        labels = {"stable": 1, "canary": 2}
        source = folders.Source(str(path), frozenset([1, 2]), labels)
        server.models.configure({"numbers": source})
        assert [version for version, _ in self.states(server)] == [2, 1]
        with server.models.use("numbers", label="stable") as (_, version):
            assert version == 1
        at = "/v1/models/numbers/labels/canary"
        assert (
            call(server, "GET", at)[1]["model_version_status"][0]["version"]
            == "2"
        )
        body = {"inputs": X.tolist()}
        assert call(server, "POST", at + ":predict", body)[0] == 200
        with pytest.raises(TensorFlowError, match="cannot be supplied"):
            with server.models.use("numbers", 1, "stable"):
                pass
