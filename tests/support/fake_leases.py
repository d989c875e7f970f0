"""A Lease in memory; `tests/contract/test_leases.py` runs against it and the API server."""

from __future__ import annotations

import threading
from dataclasses import replace

from tidegate.kube.lease import LeaseRecord
from tidegate.kube.ports import Conflict, KubeFailure


class FakeLeases:
    """Implements `tidegate.kube.lease.Leases`. Thread-safe. `failure`: what each call raises, if any."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._record: LeaseRecord | None = None
        self._version = 0
        self.failure: KubeFailure | None = None
        self.told: list[str] = []

    def read(self) -> LeaseRecord | None:
        with self._lock:
            self._fail()
            return self._record

    def create(self, record: LeaseRecord) -> LeaseRecord:
        with self._lock:
            self._fail()
            if self._record is not None:
                raise Conflict("create Lease: there is one")
            return self._put(record)

    def update(self, record: LeaseRecord, over: LeaseRecord) -> LeaseRecord:
        with self._lock:
            self._fail()
            if self._record is None or self._record.lease != over.lease:
                raise Conflict("write Lease: it was changed")
            return self._put(record)

    def tell(self, record: LeaseRecord, message: str) -> None:  # noqa: ARG002 - the port's signature
        self.told.append(message)

    def delete(self) -> None:
        with self._lock:
            self._record = None

    def _fail(self) -> None:
        if self.failure is not None:
            raise self.failure

    def _put(self, record: LeaseRecord) -> LeaseRecord:
        self._version += 1
        self._record = replace(record, lease={"metadata": {"resourceVersion": str(self._version)}})
        return self._record
