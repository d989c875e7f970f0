"""What injection tells Prometheus, in the operator's registry."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from tidegate.kube.injection import Evicted

_SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1, 5)


_ADMISSIONS: Final = ("Injected", "Unchanged", "NotSelected", "Ignored", "Refused", "Failed")
_STATUSES: Final = (400, 403, 404, 405, 408, 413)
"""HTTP's, of requests that are refused."""


class InjectionMetrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        self._admissions = Counter(
            "tidegate_webhook_admissions",
            "Pods that the webhook was asked about: Injected, Unchanged, NotSelected, Ignored, Refused; Failed: the "
            "pod could not be read.",
            ["outcome"],
            registry=registry,
        )
        self._refused = Counter(
            "tidegate_webhook_refused_requests",
            "Requests that were refused, by HTTP status: 400 not a review, or one with too many parts; 403 another "
            "client certificate; 404, 405 another path or method; 408 not sent in time; 413 too large.",
            ["status"],
            registry=registry,
        )
        self._seconds = Histogram(
            "tidegate_webhook_seconds", "How long an admission took.", buckets=_SECONDS, registry=registry
        )
        self._expires = Gauge(
            "tidegate_webhook_certificate_expiry_timestamp_seconds",
            "When the webhook's own certificate expires; 0 where another one is mounted.",
            registry=registry,
        )
        self._evictions = Counter(
            "tidegate_evictions",
            "Evictions of pods with an older setting: Evicted, Budget, Gone.",
            ["outcome"],
            registry=registry,
        )

        # Here before the first of its kind: a counter counts from the first value that Prometheus sees.
        for outcome in _ADMISSIONS:
            self._admissions.labels(outcome)
        for status in _STATUSES:
            self._refused.labels(f"{status}")
        for evicted in Evicted:
            self._evictions.labels(evicted.value)

    def admitted(self, outcome: str, seconds: float) -> None:
        self._admissions.labels(outcome).inc()
        self._seconds.observe(seconds)

    def refused(self, status: int) -> None:
        self._refused.labels(f"{status}").inc()

    def certificate_expires(self, at: datetime) -> None:
        self._expires.set(at.timestamp())

    def evicted(self, outcome: str) -> None:
        self._evictions.labels(outcome).inc()
