"""Prometheus metrics, with one registry per server."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

_LATENCIES = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_BATCHES = (1, 2, 4, 8, 16, 24, 32, 48, 64, 128)
StoreCounts = Callable[[], Iterable[tuple[str, int, int]]]  # name, sentences, entries


class _StoreCollector(Collector):
    def __init__(self, count: StoreCounts) -> None:
        self._count = count

    def collect(self) -> Iterable[GaugeMetricFamily]:
        sentences = GaugeMetricFamily("nearmt_store_sentences", "Sentences in a store", labels=["store"])
        entries = GaugeMetricFamily("nearmt_store_entries", "Entries in a store", labels=["store"])
        for name, num_sentences, num_entries in self._count():
            sentences.add_metric([name], num_sentences)
            entries.add_metric([name], num_entries)
        return [sentences, entries]


class Metrics:
    """The metrics of one server."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        self._requests = Counter(
            "nearmt_requests", "Requests handled", ["route", "method", "status"], registry=registry
        )
        self._seconds = Histogram(
            "nearmt_request_seconds", "Time to handle a request", ["route"], buckets=_LATENCIES, registry=registry
        )
        self._batches = Histogram(
            "nearmt_batch_sentences", "Sentences decoded together", buckets=_BATCHES, registry=registry
        )
        self._decoding = Counter("nearmt_decoding_seconds", "Time spent decoding", registry=registry)
        self._sentences = Counter("nearmt_sentences", "Sentences translated", registry=registry)
        self._tokens = Counter("nearmt_tokens", "Tokens generated", registry=registry)
        self._queue = Gauge("nearmt_queue_sentences", "Sentences waiting to be decoded", registry=registry)

    def watch(self, queue_length: Callable[[], float], store_counts: StoreCounts) -> None:
        """Register metrics whose values are computed on each scrape."""
        self._queue.set_function(queue_length)
        self.registry.register(_StoreCollector(store_counts))

    def on_request(self, route: str, method: str, status: int, seconds: float) -> None:
        self._requests.labels(route, method, str(status)).inc()
        self._seconds.labels(route).observe(seconds)

    def on_batch(self, num_sentences: int, seconds: float, results: Sequence[Any]) -> None:
        self._batches.observe(num_sentences)
        self._decoding.inc(seconds)
        self._sentences.inc(num_sentences)
        self._tokens.inc(sum(result.num_tokens for result in results))

    def text(self) -> bytes:
        """All metrics in the Prometheus text format."""
        return generate_latest(self.registry)
