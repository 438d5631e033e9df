"""The development server: models, their polling, and the two APIs."""

import logging
import threading
import time
from concurrent import futures

from tfxclass_serve import c_loader
from tfxclass_serve.folders import discover
from tfxclass_serve.libraries import library_folder
from tfxclass_serve.libraries import text_libraries
from tfxclass_serve.metrics import Metrics
from tfxclass_serve.models import Models
from tfxclass_serve.rest import RestServer
from tfxclass_serve.servable import Servable

_log = logging.getLogger("tfxclass_serve")


class Server:
    """Serves models until `close`.

    Args:
        sources: folder of models or of one, or a dict of `Source` by name.
        host: address to listen at.
        rest_port, grpc_port: ints, 0 for any that is free; None for none.
        poll_seconds: how often folders are looked at.
        batching: `Batching`, or None.
        settle_seconds: for which no file of a new version has changed.
        **limits: of `HttpServer`.
    """

    def __init__(
        self,
        sources,
        host="127.0.0.1",
        rest_port=0,
        grpc_port=None,
        poll_seconds=1.0,
        batching=None,
        settle_seconds=1.0,
        **limits,
    ):
        api = c_loader.CApi(library_folder())
        for path in text_libraries():
            api.load_ops(path)
        is_dict = isinstance(sources, dict)
        self.models = Models(
            lambda folder: Servable(api, folder, batching),
            lambda: sources if is_dict else discover(sources),
            settle_seconds,
        )
        self.metrics = Metrics()
        self.rest = self.grpc = None
        most = limits.get("max_request_bytes", 1 << 26)
        if grpc_port is not None:
            # It needs more of the extra.
            from tfxclass_serve.grpc_server import GrpcServer

            self.grpc = GrpcServer(
                self.models, self.metrics, (host, grpc_port), most
            )
        if rest_port is not None:
            self.rest = RestServer(
                self.models, self.metrics, (host, rest_port), **limits
            )
        self._poll_seconds = poll_seconds
        self._settle_seconds = settle_seconds
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._poll, daemon=True)

    def load(self):
        """Loads what is there; waits for files that were just written."""
        end = time.monotonic() + 2.0 * self._settle_seconds
        while not self.models.poll() and time.monotonic() < end:
            time.sleep(0.05)

    def start(self):
        """Loads what is there, then answers and polls."""
        self.load()
        for api in self._apis():
            api.start()
        self._thread.start()

    def _apis(self):
        return [api for api in (self.rest, self.grpc) if api is not None]

    def _poll(self):
        while not self._stopped.wait(self._poll_seconds):
            try:
                self.models.poll()
            except Exception:  # A folder that is odd must not end the polls.
                _log.exception("A look at the folders failed.")

    def stop(self, grace=10.0):
        """Takes no more requests, answers those under way.

        Args:
            grace: seconds; what takes longer is cut off.

        Returns:
            Whether every request under way was answered.
        """
        self._stopped.set()
        with futures.ThreadPoolExecutor(2) as pool:
            ends = [pool.submit(api.close, grace) for api in self._apis()]
            return all([end.result() for end in ends])

    def close(self, grace=10.0):
        """`stop`, then the models are unloaded."""
        is_clean = self.stop(grace)
        if self._thread.is_alive():
            self._thread.join()
        self.models.close()
        return is_clean
