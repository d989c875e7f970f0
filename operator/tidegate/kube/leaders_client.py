"""The API server as only a leader writes to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from kubernetes.client import ApiClient

from tidegate.kube.api import NotLeading

_READS: Final = frozenset({"GET", "HEAD", "OPTIONS"})


class LeadersApiClient(ApiClient):  # type: ignore[misc]
    """Sends what changes something only while ``may_write`` says so; asked by the thread that writes, just before."""

    def __init__(self, like: ApiClient, may_write: Callable[[], bool]) -> None:
        super().__init__(like.configuration)
        self._may_write = may_write

    def call_api(self, method: str, url: str, *arguments: Any, **options: Any) -> Any:
        if method not in _READS and not self._may_write():
            raise NotLeading(f"this process does not hold the Lease: {method} was not sent")
        return super().call_api(method, url, *arguments, **options)
