"""Every status that a resource had, as a watch tells of them."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any, Final, Self

from kubernetes import client as kube
from kubernetes import watch

_SLICE_S: Final = 2


class StatusWatch:
    """Collects, in a thread, each version of one object's `status` from `__enter__` on."""

    def __init__(self, client: kube.ApiClient, namespace: str, plural: str, name: str) -> None:
        self._objects = kube.CustomObjectsApi(client)
        self._where = ("tidegate.io", "v1alpha1", namespace, plural)
        self._name = name
        self._over = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=f"watch {name}", daemon=True)
        self.statuses: list[Mapping[str, Any]] = []

    def __enter__(self) -> Self:
        found = self._objects.get_namespaced_custom_object(*self._where, self._name)
        self._version = found["metadata"]["resourceVersion"]
        self.statuses.append(found.get("status") or {})
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(30)
        assert not self._thread.is_alive(), "the watch does not end"
        assert self._failure is None, self._failure

    def _run(self) -> None:
        try:
            while not self._over.is_set():
                self._follow()
        except kube.exceptions.ApiException as failure:
            self._failure = failure

    def _follow(self) -> None:
        for event in watch.Watch().stream(
            self._objects.list_namespaced_custom_object,
            *self._where,
            field_selector=f"metadata.name={self._name}",
            resource_version=self._version,
            timeout_seconds=_SLICE_S,
        ):
            body = event["object"]
            self._version = body["metadata"]["resourceVersion"]
            self.statuses.append(body.get("status") or {})

    @property
    def phases(self) -> list[str]:
        """As they followed one another."""
        return _without_repetitions([str(status.get("phase", "")) for status in self.statuses])

    def conditions(self, condition: str) -> list[str]:
        """`status/reason` of a condition, as they followed one another."""
        found = [
            f"{each['status']}/{each['reason']}"
            for status in self.statuses
            for each in status.get("conditions", ())
            if each["type"] == condition
        ]
        return _without_repetitions(found)


def _without_repetitions(texts: list[str]) -> list[str]:
    return [text for text, before in zip(texts, ["", *texts], strict=False) if text != before]
