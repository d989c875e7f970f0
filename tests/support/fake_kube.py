"""An API server in memory, for what the operator needs of one; `tests/contract/test_kube.py` runs against both."""

import copy
import itertools
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from tidegate.kube.ports import (
    Conflict,
    Kind,
    KubeEvent,
    NotFound,
    NotOwned,
    Object,
    name_of,
    namespace_of,
    owner_reference,
    uid_of,
)


class FakeKube:
    """Implements `tidegate.kube.ports.Kube`; `create`, `change` and `delete` are what users do. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._versions = itertools.count(1)
        self._objects: dict[tuple[str, str, str], dict[str, Any]] = {}
        self._keys: set[tuple[str, str]] = set()
        self._happenings: list[tuple[str, KubeEvent]] = []
        self.secrets: dict[tuple[str, str], dict[str, bytes]] = {}
        self.config_maps: dict[tuple[str, str], dict[str, str]] = {}
        self.config_map_owners: dict[tuple[str, str], str] = {}
        self.added_owners: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
        self.writes = 0
        self.now: Callable[[], str] = lambda: "2026-01-01T00:00:00Z"
        """For when something was deleted; a world with a clock of its own has another."""

    # --- users --------------------------------------------------------------------------------------------------------

    def create(self, kind: Kind, namespace: str, name: str, spec: Mapping[str, Any], created: str) -> Object:
        with self._lock:
            number = next(self._versions)
            body: dict[str, Any] = {
                "apiVersion": kind.api_version,
                "kind": kind.kind,
                "metadata": {
                    "namespace": namespace,
                    "name": name,
                    "uid": f"uid-{number}",
                    "resourceVersion": str(number),
                    "generation": 1,
                    "creationTimestamp": created,
                },
                "spec": copy.deepcopy(dict(spec)),
            }
            self._objects[kind.plural, namespace, name] = body
            return copy.deepcopy(body)

    def restore(self, body: Mapping[str, Any], kind: Kind) -> Object:
        """Put an object there as another process has left it, with its uid and its status."""
        with self._lock:
            restored = copy.deepcopy(dict(body))
            restored["metadata"]["resourceVersion"] = str(next(self._versions))
            self._objects[kind.plural, namespace_of(restored), name_of(restored)] = restored
            return copy.deepcopy(restored)

    def change(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        *,
        spec: Mapping[str, Any] | None = None,
        annotations: Mapping[str, str] | None = None,
    ) -> Object:
        """A new spec (a new generation), or annotations (none)."""
        with self._lock:
            body = self._newest(kind, namespace, name)
            if spec is not None:
                body["spec"] = copy.deepcopy(dict(spec))
                body["metadata"]["generation"] += 1
            if annotations is not None:
                body["metadata"].setdefault("annotations", {}).update(annotations)
            return self._stored(body)

    def delete(self, kind: Kind, namespace: str, name: str, at: str) -> Object | None:
        """Gone at once (`None`), or marked when a finalizer holds it."""
        with self._lock:
            body = self._newest(kind, namespace, name)
            if not body["metadata"].get("finalizers"):
                del self._objects[kind.plural, namespace, name]
                return None
            body["metadata"]["deletionTimestamp"] = at
            return self._stored(body)

    def told_of(self, body: Object, reasons: Collection[str]) -> list[str]:
        """What a person who may list Events sees."""
        return [each.message for each in self.happenings_of(name_of(body)) if each.reason in reasons]

    def happenings_of(self, name: str) -> list[KubeEvent]:
        """The Events about the object of this name, in order."""
        with self._lock:
            return [happening for about, happening in self._happenings if about == name]

    # --- the port -----------------------------------------------------------------------------------------------------

    def get(self, kind: Kind, namespace: str, name: str) -> Object:
        with self._lock:
            return copy.deepcopy(self._newest(kind, namespace, name))

    def list(self, kind: Kind) -> Sequence[Object]:
        with self._lock:
            return [copy.deepcopy(body) for key, body in self._objects.items() if key[0] == kind.plural]

    def replace_status(self, kind: Kind, body: Object, status: Mapping[str, Any]) -> Object:
        with self._lock:
            newest = self._current(kind, body)
            newest["status"] = copy.deepcopy(dict(status))
            return self._written(newest)

    def set_finalizers(self, kind: Kind, body: Object, finalizers: Sequence[str]) -> Object:
        with self._lock:
            newest = self._current(kind, body)
            newest["metadata"]["finalizers"] = list(finalizers)
            if not finalizers:
                del newest["metadata"]["finalizers"]
                if newest["metadata"].get("deletionTimestamp"):
                    del self._objects[kind.plural, namespace_of(body), name_of(body)]
                    return newest
            return self._written(newest)

    def make(self, kind: Kind, owner: Object, name: str, spec: Mapping[str, Any]) -> Object:
        with self._lock:
            if (kind.plural, namespace_of(owner), name) in self._objects:
                raise Conflict(f"{kind.kind} {name} is there already")
            made = self.create(kind, namespace_of(owner), name, spec, owner["metadata"]["creationTimestamp"])
            body = self._newest(kind, namespace_of(owner), name)
            body["metadata"]["ownerReferences"] = [dict(owner_reference(owner))]
            body["metadata"]["uid"] = uid_of(made)
            return self._written(body)

    def remove(self, kind: Kind, body: Object) -> bool:
        with self._lock:
            newest = self._objects.get((kind.plural, namespace_of(body), name_of(body)))
            known = body["metadata"]
            if newest is None or any(newest["metadata"][k] != known[k] for k in ("uid", "resourceVersion")):
                return False
            self.delete(kind, namespace_of(body), name_of(body), self.now())
            return True

    def record(self, body: Object, happening: KubeEvent) -> None:
        with self._lock:
            key = (uid_of(body), happening.key)
            if key not in self._keys:
                self._keys.add(key)
                self._happenings.append((name_of(body), happening))

    def secret(self, namespace: str, name: str) -> Mapping[str, bytes]:
        return _found(self.secrets, namespace, name, "Secret")

    def config_map(self, namespace: str, name: str) -> Mapping[str, str]:
        return _found(self.config_maps, namespace, name, "ConfigMap")

    def own_config_map(self, owner: Object, name: str) -> Mapping[str, str]:
        key = (namespace_of(owner), name)
        with self._lock:
            found = _found(self.config_maps, *key, "ConfigMap")
            if not self._is_owned(key, owner):
                raise NotOwned(f"read ConfigMap {key[0]}/{name}: it is not {name_of(owner)}'s")
            return found

    def put_config_map(self, owner: Object, name: str, data: Mapping[str, str]) -> None:
        key = (namespace_of(owner), name)
        with self._lock:
            if key not in self.config_maps:
                self.config_map_owners[key] = uid_of(owner)
            elif not self._is_owned(key, owner):
                raise Conflict(f"ConfigMap {name} is not {name_of(owner)}'s")
            self.config_maps[key] = dict(data)

    def _is_owned(self, key: tuple[str, str], owner: Object) -> bool:
        added = (str(each["uid"]) for each in self.added_owners.get(key, ()))
        return uid_of(owner) in {self.config_map_owners.get(key), *added}

    def change_config_map(
        self, owner: Object, name: str, change: Callable[[Mapping[str, str]], Mapping[str, str] | None]
    ) -> None:
        with self._lock:
            before = self.own_config_map(owner, name)
            data = change(before)
            # Somebody else's word, that `change` itself has let come between.
            if self.own_config_map(owner, name) != before:
                raise Conflict(f"ConfigMap {name} was changed meanwhile")
            if data is not None:
                self.put_config_map(owner, name, data)

    def add_owner(self, namespace: str, config_map: str, owner: Mapping[str, Any]) -> Mapping[str, Any]:
        with self._lock:
            _found(self.config_maps, namespace, config_map, "ConfigMap")
            owners = self.added_owners.setdefault((namespace, config_map), [])
            if all(each["uid"] != owner["uid"] for each in owners):
                owners.append(owner)
            return {"apiVersion": "v1", "kind": "ConfigMap", "name": config_map, "uid": f"uid-of-{config_map}"}

    def remove_config_map(self, namespace: str, name: str) -> None:
        with self._lock:
            self.config_maps.pop((namespace, name), None)
            self.config_map_owners.pop((namespace, name), None)
            self.added_owners.pop((namespace, name), None)

    def _newest(self, kind: Kind, namespace: str, name: str) -> dict[str, Any]:
        found = self._objects.get((kind.plural, namespace, name))
        if found is None:
            raise NotFound(f"there is no {kind.kind} {namespace}/{name}")
        return found

    def _current(self, kind: Kind, body: Object) -> dict[str, Any]:
        newest = self._newest(kind, namespace_of(body), name_of(body))
        if newest["metadata"]["resourceVersion"] != body["metadata"]["resourceVersion"]:
            raise Conflict(f"{kind.kind} {name_of(body)} was changed")
        return newest

    def _written(self, body: dict[str, Any]) -> Object:
        self.writes += 1
        return self._stored(body)

    def _stored(self, body: dict[str, Any]) -> Object:
        body["metadata"]["resourceVersion"] = str(next(self._versions))
        return copy.deepcopy(body)


def _found(values: Mapping[tuple[str, str], Any], namespace: str, name: str, kind: str) -> Mapping[str, Any]:
    found = values.get((namespace, name))
    if found is None:
        raise NotFound(f"there is no {kind} {namespace}/{name}")
    return dict(found)
