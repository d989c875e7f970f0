"""Workloads of any kind behind ``tidegate.kube.workloads``: found by API discovery, scaled by merge patch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from kubernetes.client import ApiClient, CustomObjectsApi

from tidegate.clock import Clock
from tidegate.kube.client import bounded_call, bounded_object
from tidegate.kube.core import CoreObjects
from tidegate.kube.ports import NotFound, Object, name_of
from tidegate.kube.requests import MERGE
from tidegate.kube.workloads import KEDA_PAUSED_REPLICAS, NotScalable, Scale, ScaledObject
from tidegate.resources.pause import WorkloadRef

_FIELD_MANAGER: Final = "tidegate"
_KNOWN_FOR_S: Final = 300.0
"""How long an answer of the discovery counts; kinds come and go with CRDs."""
_ABSENT_FOR_S: Final = 30.0

_KEDA_GROUP: Final = "keda.sh"
_KEDA_VERSION: Final = "v1alpha1"
_KEDA_PLURAL: Final = "scaledobjects"


@dataclass(frozen=True, slots=True)
class _Served:
    """What a group's version has: the plural of each kind that has a scale subresource. ``until_s``: monotonic."""

    plurals: Mapping[str, str]
    until_s: float


class KubeWorkloads:
    """Implements ``tidegate.kube.workloads.Workloads``. Thread-safe."""

    def __init__(self, api_client: ApiClient, clock: Clock) -> None:
        self._objects = CustomObjectsApi(api_client)
        self._core = CoreObjects(api_client)
        self._clock = clock
        self._served: dict[str, _Served] = {}
        self._keda: tuple[bool, float] | None = None

    def scale(self, namespace: str, workload: WorkloadRef) -> Scale:
        try:
            return self._scale(namespace, workload)
        except NotFound:
            # Or its kind is served no more in this version, which says nothing of the workload.
            self._served.pop(workload.api_version, None)
            self._plural(workload)
            raise

    def _scale(self, namespace: str, workload: WorkloadRef) -> Scale:
        what = f"read the scale of {workload} in {namespace}"
        plural, (group, _, version) = self._plural(workload), workload.api_version.rpartition("/")
        if not group:
            return _scale(bounded_object(what, self._core.read, plural, namespace, workload.name, of="scale"))
        read = self._objects.get_namespaced_custom_object_scale
        return _scale(bounded_object(what, read, group, version, namespace, plural, workload.name))

    def set_replicas(self, namespace: str, workload: WorkloadRef, seen: Scale, replicas: int) -> None:
        what = f"scale {workload} in {namespace} to {replicas}"
        plural, (group, _, version) = self._plural(workload), workload.api_version.rpartition("/")
        body = {"metadata": {"resourceVersion": seen.version, "uid": seen.uid}, "spec": {"replicas": replicas}}
        if not group:
            named = (plural, namespace, workload.name)
            bounded_call(what, self._core.patch, *named, body, of="scale", field_manager=_FIELD_MANAGER)
            return
        options: dict[str, Any] = {"field_manager": _FIELD_MANAGER, "_content_type": MERGE}
        patch = self._objects.patch_namespaced_custom_object_scale
        bounded_call(what, patch, group, version, namespace, plural, workload.name, body, **options)

    def scaled_object(self, namespace: str, workload: WorkloadRef) -> ScaledObject | None:
        if not self._has_keda():
            return None
        what = f"list {_KEDA_PLURAL} in {namespace}"
        listing = self._objects.list_namespaced_custom_object
        try:
            found = bounded_object(what, listing, _KEDA_GROUP, _KEDA_VERSION, namespace, _KEDA_PLURAL)["items"]
        except NotFound:
            self._keda = None
            return None
        # KEDA itself allows one for a workload.
        mine = sorted((body for body in found if _scales(body, workload)), key=name_of)
        return _scaled_object(mine[0]) if mine else None

    def set_paused_replicas(self, namespace: str, seen: ScaledObject, paused_replicas: str | None) -> None:
        annotations = {KEDA_PAUSED_REPLICAS: paused_replicas}
        bounded_call(
            f"annotate ScaledObject {seen.name} in {namespace}",
            self._objects.patch_namespaced_custom_object,
            _KEDA_GROUP,
            _KEDA_VERSION,
            namespace,
            _KEDA_PLURAL,
            seen.name,
            {"metadata": {"resourceVersion": seen.version, "annotations": annotations}},
            field_manager=_FIELD_MANAGER,
            _content_type=MERGE,
        )

    def _plural(self, workload: WorkloadRef) -> str:
        served = self._served.get(workload.api_version)
        if served is None or self._clock.monotonic() >= served.until_s or workload.kind not in served.plurals:
            served = self._discover(workload.api_version)
            self._served[workload.api_version] = served
        if workload.kind not in served.plurals:
            raise NotScalable(
                f"the API server knows no kind {workload.kind} of {workload.api_version} whose replicas can be scaled"
            )
        return served.plurals[workload.kind]

    def _discover(self, api_version: str) -> _Served:
        group, _, version = api_version.rpartition("/")
        what = f"ask for the kinds of {api_version}"
        try:
            if group:
                found = bounded_call(what, self._objects.get_api_resources, group, version)
                kinds = [(each.kind, each.name, each.namespaced) for each in found.resources]
            elif version == "v1":
                told = bounded_object(what, self._core.kinds)["resources"]
                kinds = [(each["kind"], each["name"], each["namespaced"]) for each in told]
            else:
                return _Served({}, 0.0)
        except NotFound:
            return _Served({}, 0.0)
        names = {name for _, name, _ in kinds}
        plurals = {
            kind: name
            for kind, name, namespaced in kinds
            if namespaced and "/" not in name and f"{name}/scale" in names
        }
        return _Served(plurals, self._clock.monotonic() + _KNOWN_FOR_S)

    def _has_keda(self) -> bool:
        now_s = self._clock.monotonic()
        if self._keda is None or now_s >= self._keda[1]:
            what = f"ask for the kinds of {_KEDA_GROUP}/{_KEDA_VERSION}"
            try:
                found = bounded_call(what, self._objects.get_api_resources, _KEDA_GROUP, _KEDA_VERSION)
                is_there = any(resource.name == _KEDA_PLURAL for resource in found.resources)
            except NotFound:
                is_there = False
            self._keda = is_there, now_s + (_KNOWN_FOR_S if is_there else _ABSENT_FOR_S)
        return self._keda[0]


def _scale(body: Object) -> Scale:
    metadata, spec, status = body["metadata"], body.get("spec") or {}, body.get("status") or {}
    return Scale(
        uid=str(metadata["uid"]),
        version=str(metadata["resourceVersion"]),
        replicas=int(spec.get("replicas") or 0),
        running=int(status.get("replicas") or 0),
    )


def _scaled_object(body: Object) -> ScaledObject:
    metadata = body["metadata"]
    annotations = metadata.get("annotations") or {}
    return ScaledObject(name_of(body), str(metadata["resourceVersion"]), annotations.get(KEDA_PAUSED_REPLICAS))


def _scales(body: Object, workload: WorkloadRef) -> bool:
    """``spec.scaleTargetRef``, with KEDA's defaults: a Deployment of ``apps/v1``."""
    target: Mapping[str, Any] = (body.get("spec") or {}).get("scaleTargetRef") or {}
    group = str(target.get("apiVersion") or "apps/v1").rpartition("/")[0]
    named = (group, target.get("kind") or "Deployment", target.get("name"))
    return named == (workload.api_version.rpartition("/")[0], workload.kind, workload.name)
