"""Every version that objects of a kind had, as a watch tells of them, and when it was told."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

from kubernetes import client as kube
from kubernetes import watch

_SLICE_S: Final = 10


@dataclass(frozen=True, slots=True)
class Version:
    """One version of an object at `t` (epoch seconds); `gone`: its last one, as it was deleted."""

    t: float
    body: Mapping[str, Any]
    gone: bool = False

    @property
    def name(self) -> str:
        return str(self.body["metadata"]["name"])

    @property
    def status(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self.body.get("status") or {}
        return found

    @property
    def phase(self) -> str:
        return str(self.status.get("phase", ""))


class ObjectWatch:
    """Collects, in a thread, each version of all objects that `list_` lists, while the ``with`` block lasts.

    `list_`: a method of a Kubernetes client that lists and watches, with its arguments. A watch that missed versions
    fails instead of going on: nothing may be judged by a history with gaps.
    """

    def __init__(self, list_: Callable[..., Any], *arguments: Any, **options: Any) -> None:
        self._list = list_
        self._arguments = arguments
        self._options = options
        self._over = threading.Event()
        self._failure: BaseException | None = None
        self._changed = threading.Condition()
        self._versions: list[Version] = []
        self._thread = threading.Thread(target=self._run, name="object watch", daemon=True)

    def __enter__(self) -> Self:
        found = self._list(*self._arguments, **self._options)
        metadata = found["metadata"] if isinstance(found, dict) else None
        self._version = metadata["resourceVersion"] if metadata is not None else found.metadata.resource_version
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(3 * _SLICE_S)
        assert not self._thread.is_alive(), "the watch does not end"
        assert self._failure is None, self._failure

    def _run(self) -> None:
        try:
            while not self._over.is_set():
                self._follow()
        except BaseException as failure:  # told by whoever waits for it
            self._failure = failure
            with self._changed:
                self._changed.notify_all()
            raise

    def _follow(self) -> None:
        stream = watch.Watch()
        events = stream.stream(
            self._list,
            *self._arguments,
            **self._options,
            resource_version=self._version,
            timeout_seconds=_SLICE_S,
        )
        for event in events:
            if event["type"] == "ERROR":
                raise AssertionError(f"the watch has missed versions: {event['raw_object']}")
            now, body = time.time(), event["raw_object"]
            self._version = body["metadata"]["resourceVersion"]
            with self._changed:
                self._versions.append(Version(now, body, event["type"] == "DELETED"))
                self._changed.notify_all()
            if self._over.is_set():
                stream.stop()

    @property
    def mark(self) -> int:
        """How many versions there are so far, for `wait`."""
        with self._changed:
            return len(self._versions)

    def versions(self, name: str) -> list[Version]:
        """Of the object of this name, in their order."""
        with self._changed:
            return [version for version in self._versions if version.name == name]

    def newest(self) -> dict[str, Version]:
        """By name, of what is there."""
        with self._changed:
            found = {version.name: version for version in self._versions}
        return {name: version for name, version in found.items() if not version.gone}

    def wait(
        self, reached: Callable[[Version], bool], what: str, *, since: int = 0, timeout_s: float = 60.0
    ) -> Version:
        """The first version after `since` (a `mark`) for which it is so, as soon as that is told."""
        deadline = time.monotonic() + timeout_s
        at = since
        with self._changed:
            while True:
                for version in self._versions[at:]:
                    at += 1
                    if reached(version):
                        return version
                assert self._failure is None, self._failure
                left = deadline - time.monotonic()
                assert left > 0, f"not within {timeout_s:g} s: {what}"
                self._changed.wait(left)


def watch_custom(client: kube.ApiClient, namespace: str, plural: str) -> ObjectWatch:
    """Tidegate's resources of a kind."""
    objects = kube.CustomObjectsApi(client)
    return ObjectWatch(objects.list_namespaced_custom_object, "tidegate.io", "v1alpha1", namespace, plural)


def watch_config_maps(client: kube.ApiClient, namespace: str) -> ObjectWatch:
    """ConfigMaps: among them, the runs' documents."""
    return ObjectWatch(kube.CoreV1Api(client).list_namespaced_config_map, namespace)
