"""The gRPC server: the services, their threads, and how they end."""

import threading
import time
from concurrent import futures

try:
    import grpc
    from grpc_health.v1 import health
    from grpc_health.v1 import health_pb2
    from grpc_health.v1 import health_pb2_grpc
    from tensorflow_serving.apis import model_service_pb2
    from tensorflow_serving.apis import model_service_pb2_grpc
    from tensorflow_serving.apis import prediction_service_pb2
    from tensorflow_serving.apis import prediction_service_pb2_grpc
except ImportError as e:
    raise ImportError(
        "gRPC needs the protocol of TensorFlow Serving. Fix: pip install "
        "grpcio grpcio-health-checking, and pip install --no-deps "
        "'tensorflow-serving-api==2.21.*'; or serve REST alone with --port=0."
    ) from e

from tfxclass_serve.grpc_services import Management
from tfxclass_serve.grpc_services import OpenCalls
from tfxclass_serve.grpc_services import Prediction

_THREADS = 32
# Calls that are cut off end at once, unless the gRPC library fails.
_MAX_CANCEL_SECONDS = 2.0


class _Pool(futures.ThreadPoolExecutor):
    """Threads that know whether they have work."""

    def __init__(self, size):
        super().__init__(size)
        self._count, self._changed = 0, threading.Condition()

    def submit(self, *arguments, **options):
        with self._changed:
            self._count += 1
        future = super().submit(*arguments, **options)
        future.add_done_callback(self._note_end)
        return future

    def _note_end(self, _):
        with self._changed:
            self._count -= 1
            self._changed.notify_all()

    def wait_for_none(self, seconds):
        with self._changed:
            return self._changed.wait_for(lambda: not self._count, seconds)


class GrpcServer:
    """Answers gRPC requests until `close`.

    Its health service (grpc.health.v1) serves from `start` on.

    Args:
        models: `Models`.
        metrics: `Metrics`.
        address: `(host, port)`; port 0 is any that is free.
        max_request_bytes: int, size of a message; larger ones are refused.
    """

    def __init__(self, models, metrics, address, max_request_bytes=1 << 26):
        self._pool, self._calls = _Pool(_THREADS), OpenCalls()
        self._server = grpc.server(
            self._pool,
            options=[
                ("grpc.max_receive_message_length", max_request_bytes),
                ("grpc.max_send_message_length", -1),
                ("grpc.so_reuseport", 0),
            ],
        )
        prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(
            Prediction(models, metrics, self._calls, max_request_bytes),
            self._server,
        )
        model_service_pb2_grpc.add_ModelServiceServicer_to_server(
            Management(models, self._calls), self._server
        )
        self._watchers = futures.ThreadPoolExecutor(1)
        self._health = health.HealthServicer(
            experimental_non_blocking=True,
            experimental_thread_pool=self._watchers,
        )
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        host, port = address
        host = f"[{host}]" if ":" in host else host
        self.port = self._server.add_insecure_port(f"{host}:{port}")

    def start(self):
        serving = health_pb2.HealthCheckResponse.SERVING
        for service in (
            prediction_service_pb2.DESCRIPTOR.services_by_name.values(),
            model_service_pb2.DESCRIPTOR.services_by_name.values(),
        ):
            for one in service:
                self._health.set(one.full_name, serving)
        self._server.start()

    def close(self, grace=10.0):
        """Takes no more requests, waits for those under way.

        Args:
            grace: seconds; what takes longer is cut off.

        Returns:
            Whether every request under way was answered, and the answer has
            left.
        """
        end = time.monotonic() + grace
        self._health.enter_graceful_shutdown()
        self._server.stop(grace)
        # Those that wait for a thread are no calls yet.
        self._pool.wait_for_none(grace)
        left = max(end - time.monotonic(), 0.0)
        is_clean = self._calls.wait_for_none(left)
        # Those who watch the health would hold it up to the end.
        self._server.stop(0).wait(_MAX_CANCEL_SECONDS)
        for pool in (self._pool, self._watchers):
            pool.shutdown(wait=False)
        return is_clean
