"""Counts and latencies, as Prometheus reads them."""

try:
    import prometheus_client
    from prometheus_client.core import Metric
except ImportError as e:
    raise ImportError(
        "The metrics need prometheus_client. Fix: pip install prometheus-client"
    ) from e

PATH = "/monitoring/prometheus/metrics"
TYPE = prometheus_client.CONTENT_TYPE_PLAIN_0_0_4
_COUNT = ":tensorflow:serving:request_count"
_LATENCY = ":tensorflow:serving:request_latency"
# Microseconds, as TensorFlow Serving counts.
_BOUNDS = [10 * 1.8**i for i in range(33)]
_SUFFIXES = ("_bucket", "_sum", "_count")


class Metrics:
    """Requests by model and status, their latency by model and API."""

    def __init__(self):
        self._count = prometheus_client.Counter(
            _COUNT, "Requests.", ["model_name", "status"], registry=None
        )
        self._latency = prometheus_client.Histogram(
            _LATENCY,
            "Microseconds of a request.",
            ["model_name", "API", "entrypoint"],
            buckets=_BOUNDS,
            registry=None,
        )

    def add(self, model, api, entrypoint, status, seconds):
        """Notes a request; `model` must be one that is served."""
        self._count.labels(model, status).inc()
        self._latency.labels(model, api, entrypoint).observe(1e6 * seconds)

    def collect(self):
        """The families of samples, under TensorFlow Serving's names."""
        # As a counter its name would end in "_total".
        yield _family(self._count, "unknown", {_COUNT + "_total": _COUNT})
        names = {_LATENCY + x: _LATENCY + x for x in _SUFFIXES}
        yield _family(self._latency, "histogram", names)

    def page(self):
        """The text of the page, bytes."""
        return prometheus_client.generate_latest(self)


def _family(source, kind, names):
    """One of `source`'s, with the samples of `names` under new names."""
    (found,) = source.collect()
    family = Metric(found.name, found.documentation, kind)
    for sample in found.samples:
        if sample.name in names:
            family.add_sample(names[sample.name], sample.labels, sample.value)
    return family
