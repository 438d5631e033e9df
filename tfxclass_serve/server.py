"""The development server: models, their polling, and the two APIs."""

import importlib.util
import os
import threading

from tfxclass_serve import c_loader
from tfxclass_serve.metrics import Metrics
from tfxclass_serve.models import Models
from tfxclass_serve.models import discover
from tfxclass_serve.models import loader
from tfxclass_serve.rest import RestServer


class Server:
    """Serves models until `close`.

    Args:
        sources: folder of models or of one, or a dict of `Source` by name.
        host: address to listen at.
        rest_port, grpc_port: ints, 0 for any that is free; None for none.
        poll_seconds: how often folders are looked at.
        batching: `Batching`, or None.
        **limits: `RestServer`'s `max_request_bytes`, `timeout`,
            `max_connections`.
    """

    def __init__(
        self,
        sources,
        host="127.0.0.1",
        rest_port=0,
        grpc_port=None,
        poll_seconds=1.0,
        batching=None,
        **limits,
    ):
        api = c_loader.CApi(library_folder())
        is_dict = isinstance(sources, dict)
        self.models = Models(
            loader(api, batching),
            lambda: sources if is_dict else discover(sources),
        )
        self.metrics = Metrics()
        self.rest = self.grpc = None
        most = limits.get("max_request_bytes", 1 << 26)
        if grpc_port is not None:
            # It needs an extra.
            from tfxclass_serve.grpc_server import GrpcServer

            self.grpc = GrpcServer(
                self.models, self.metrics, (host, grpc_port), most
            )
        if rest_port is not None:
            self.rest = RestServer(
                self.models, self.metrics, (host, rest_port), **limits
            )
        self._poll_seconds = poll_seconds
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._poll, daemon=True)

    def start(self):
        """Loads what is there, then answers and polls."""
        self.models.poll()
        for api in (self.rest, self.grpc):
            if api is not None:
                api.start()
        self._thread.start()

    def _poll(self):
        while not self._stopped.wait(self._poll_seconds):
            self.models.poll()

    def close(self):
        """Answers the requests under way, then ends."""
        self._stopped.set()
        self._thread.join()
        for api in (self.rest, self.grpc):
            if api is not None:
                api.close()
        self.models.close()


def library_folder():
    """Where TensorFlow's library is."""
    found = importlib.util.find_spec("tensorflow")
    if found is None:
        raise ImportError(
            "TensorFlow is not installed. Fix: pip install 'tfxclass[cpu]'"
        )
    return os.path.dirname(found.origin)
