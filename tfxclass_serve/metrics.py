"""Counts and latencies, as Prometheus reads them."""

import bisect
import collections
import threading

PATH = "/monitoring/prometheus/metrics"
# Microseconds, as TensorFlow Serving counts.
_BOUNDS = [10 * 1.8**i for i in range(33)]


class Metrics:
    """Requests by model and status, their latency by model and API."""

    def __init__(self):
        self._lock = threading.Lock()
        self._counts = collections.Counter()
        self._buckets = {}

    def add(self, model, api, entrypoint, status, seconds):
        """Notes a request; `model` must be one that is served."""
        micros = 1e6 * seconds
        key = model, api, entrypoint
        with self._lock:
            self._counts[model, status] += 1
            counts, total = self._buckets.get(key, ([0] * 34, 0.0))
            counts[bisect.bisect_left(_BOUNDS, micros)] += 1
            self._buckets[key] = counts, total + micros

    def page(self):
        """The text of the page."""
        with self._lock:
            lines = ["# TYPE :tensorflow:serving:request_count counter"]
            for (model, status), count in sorted(self._counts.items()):
                labels = f'model_name="{_escape(model)}",status="{status}"'
                lines.append(
                    f":tensorflow:serving:request_count{{{labels}}} {count}"
                )
            lines.append("# TYPE :tensorflow:serving:request_latency histogram")
            for key, (counts, total) in sorted(self._buckets.items()):
                lines += _histogram(key, counts, total)
        return "\n".join(lines) + "\n"


def _histogram(key, counts, total):
    model, api, entrypoint = key
    name = ":tensorflow:serving:request_latency"
    labels = (
        f'model_name="{_escape(model)}",API="{api}",entrypoint="{entrypoint}"'
    )
    so_far = 0
    for bound, count in zip([*_BOUNDS, "+Inf"], counts):
        so_far += count
        bound = bound if isinstance(bound, str) else f"{bound:g}"
        yield f'{name}_bucket{{{labels},le="{bound}"}} {so_far}'
    yield f"{name}_sum{{{labels}}} {total:g}"
    yield f"{name}_count{{{labels}}} {so_far}"


def _escape(text):
    text = text.replace("\\", "\\\\").replace('"', '\\"')
    return text.replace("\n", "\\n")
