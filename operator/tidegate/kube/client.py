"""The Kubernetes API behind ``tidegate.kube.ports``: the official client, with bounded calls and our failures."""

from __future__ import annotations

import base64
import hashlib
import socket
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from json import JSONDecodeError
from typing import Any, Final

import urllib3
from kubernetes.client import ApiClient
from kubernetes.client.exceptions import ApiException

from tidegate.clock import Clock
from tidegate.kube.answers import NO_JSON, is_already_there, is_of_ending_namespace, message_of, why_unanswered
from tidegate.kube.core import CoreObjects
from tidegate.kube.custom import CustomResources, page_of
from tidegate.kube.labels import owner_label
from tidegate.kube.ports import (
    Conflict,
    Kind,
    KubeEvent,
    KubeFailure,
    KubeUnavailable,
    NotFound,
    NotOwned,
    Object,
    User,
    kept_of,
    name_of,
    namespace_of,
    owner_reference,
    uid_of,
)
from tidegate.kube.requests import Requests

_TIMEOUT_S: Final = (5.0, 20.0)
"""(connecting, reading) of one call."""

_COMPONENT: Final = "tidegate-operator"
_MESSAGE_LIMIT: Final = 1024
"""What the API server takes as an Event's message, in bytes."""


_CONFIG_MAPS: Final = "configmaps"
_PAGE: Final = 250
"""Objects in one answer to a listing."""


class KubeClient:
    """Implements ``tidegate.kube.ports.Kube``. ``namespaces``: those served; empty for the whole cluster."""

    def __init__(self, api_client: ApiClient, clock: Clock, namespaces: Sequence[str] = ()) -> None:
        self._objects = CustomResources(api_client)
        self._core = CoreObjects(api_client)
        self._requests = Requests(api_client)
        self._clock = clock
        self._namespaces = tuple(namespaces)

    def get(self, kind: Kind, namespace: str, name: str) -> Object:
        return self._object(
            f"read {kind.kind} {namespace}/{name}",
            self._objects.read,
            kind,
            namespace,
            name,
        )

    def list(self, kind: Kind) -> Sequence[Object]:
        found: list[Object] = []
        for namespace in self._namespaces or ("",):
            found += self._listed(kind, namespace)
        return found

    def _listed(self, kind: Kind, namespace: str) -> Iterator[Object]:
        """Page by page, all as of one moment: what is kept of an object is a fraction of what is decoded."""
        what, following = f"list {kind.plural}{f' in {namespace}' if namespace else ''}", ""
        while True:
            # resource_version "0" would be answered from a cache: what others have begun has to be seen here.
            answer = bounded_object(what, self._objects.list, kind, namespace, limit=_PAGE, following=following)
            page = page_of(what, kind, answer)
            yield from page.bodies
            following = page.following
            if not following:
                return

    def replace_status(self, kind: Kind, body: Object, status: Mapping[str, Any]) -> Object:
        namespace, name = namespace_of(body), name_of(body)
        return self._object(
            f"write the status of {kind.kind} {namespace}/{name}",
            self._objects.replace_status,
            kind,
            namespace,
            name,
            {**body, "status": dict(status)},
        )

    def set_finalizers(self, kind: Kind, body: Object, finalizers: Sequence[str]) -> Object:
        metadata = {"resourceVersion": body["metadata"]["resourceVersion"], "finalizers": list(finalizers)}
        return self._patched("write the finalizers of", kind, body, {"metadata": metadata})

    def make(self, kind: Kind, owner: Object, name: str, spec: Mapping[str, Any]) -> Object:
        namespace = namespace_of(owner)
        metadata = {
            "name": name,
            "namespace": namespace,
            "labels": {"app.kubernetes.io/managed-by": "tidegate", **owner_label(owner_reference(owner))},
            "ownerReferences": [owner_reference(owner)],
        }
        return self._object(
            f"create {kind.kind} {namespace}/{name}",
            self._objects.create,
            kind,
            namespace,
            {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, "spec": dict(spec)},
        )

    def create(self, kind: Kind, body: Object, *, dry_run: bool = False) -> Object:
        """Create an object of nobody's, as a user does. Raises ``KubeFailure`` where the API server refuses it."""
        namespace = namespace_of(body)
        return self._object(
            f"create {kind.kind} in {namespace}",
            self._objects.create,
            kind,
            namespace,
            dict(body),
            strict=True,
            dry_run=dry_run,
        )

    def change_spec(self, kind: Kind, body: Object, spec: Mapping[str, Any]) -> Object:
        """The object with these members of its spec changed, as a user does. Raises ``Conflict`` unless ``body`` is its
        newest version, and ``NotFound``."""
        metadata = {"resourceVersion": body["metadata"]["resourceVersion"]}
        return self._patched("change", kind, body, {"metadata": metadata, "spec": dict(spec)})

    def annotate(self, kind: Kind, body: Object, annotations: Mapping[str, str], *, dry_run: bool = False) -> Object:
        """The object with these annotations, as a user does. ``dry_run``: the API server judges it, and changes
        nothing. Raises ``NotFound``."""
        metadata = {"uid": uid_of(body), "annotations": dict(annotations)}
        return self._patched("annotate", kind, body, {"metadata": metadata}, dry_run=dry_run)

    def remove(self, kind: Kind, body: Object) -> bool:
        namespace, name = namespace_of(body), name_of(body)
        try:
            self._call(
                f"delete {kind.kind} {namespace}/{name}",
                self._objects.delete,
                kind,
                namespace,
                name,
                {
                    "preconditions": {"uid": uid_of(body), "resourceVersion": body["metadata"]["resourceVersion"]},
                    "propagationPolicy": "Background",
                },
            )
        except (NotFound, Conflict):  # a Conflict: it was changed, or is another by now
            return False
        return True

    def record(self, body: Object, happening: KubeEvent) -> None:
        namespace, name, uid = namespace_of(body), name_of(body), uid_of(body)
        digest = hashlib.sha256(f"{uid}/{happening.key}".encode()).hexdigest()[:16]
        at = self._clock.now().isoformat(timespec="microseconds").replace("+00:00", "Z")
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"namespace": namespace, "name": f"{name[:200].rstrip('-.')}.{digest}"},
            "involvedObject": {
                "apiVersion": body["apiVersion"],
                "kind": body["kind"],
                "namespace": namespace,
                "name": name,
                "uid": uid,
                "resourceVersion": body["metadata"]["resourceVersion"],
            },
            "type": happening.type.value,
            "reason": happening.reason,
            "message": _shortened(happening.message),
            "firstTimestamp": at[:19] + "Z",
            "lastTimestamp": at[:19] + "Z",
            "eventTime": at,
            "count": 1,
            "action": happening.reason,
            "source": {"component": _COMPONENT},
            "reportingComponent": _COMPONENT,
            "reportingInstance": socket.gethostname()[:128],
        }
        try:
            self._call(f"record an Event of {namespace}/{name}", self._core.create, "events", namespace, event)
        except Conflict as conflict:
            # It was recorded by an earlier pass that died before it wrote the status.
            if not is_already_there(conflict.__cause__):
                raise
        except KubeFailure as failure:
            # Nothing can be made there any more, and what holds up the namespace's end has to be let go of.
            if not is_of_ending_namespace(failure.__cause__):
                raise

    def told_of(self, body: Object, reasons: Collection[str]) -> Sequence[str]:
        """The messages of Events with one of these reasons about this very object, which may be gone."""
        namespace, name = namespace_of(body), name_of(body)
        what, about = f"list Events of {namespace}/{name}", f"involvedObject.uid={uid_of(body)}"
        found = bounded_object(what, self._core.list, "events", namespace, field_selector=about)["items"]
        return [str(event.get("message", "")) for event in found if event.get("reason") in reasons]

    def secret(self, namespace: str, name: str) -> Mapping[str, bytes]:
        secret = self._object(f"read Secret {namespace}/{name}", self._core.read, "secrets", namespace, name)
        return {key: base64.b64decode(value) for key, value in (secret.get("data") or {}).items()}

    def config_map(self, namespace: str, name: str) -> Mapping[str, str]:
        return dict(self._config_map(f"read ConfigMap {namespace}/{name}", namespace, name).get("data") or {})

    def own_config_map(self, owner: Object, name: str) -> Mapping[str, str]:
        namespace, what = namespace_of(owner), f"read ConfigMap {namespace_of(owner)}/{name}"
        config_map = self._config_map(what, namespace, name)
        if not _is_owned(config_map, owner):
            raise NotOwned(f"{what}: it is not {name_of(owner)}'s")
        return dict(config_map.get("data") or {})

    def change_config_map(
        self, owner: Object, name: str, change: Callable[[Mapping[str, str]], Mapping[str, str] | None]
    ) -> None:
        namespace, what = namespace_of(owner), f"change ConfigMap {namespace_of(owner)}/{name}"
        there = self._config_map(what, namespace, name)
        if not _is_owned(there, owner):
            raise NotOwned(f"{what}: it is not {name_of(owner)}'s")
        data = change(dict(there.get("data") or {}))
        if data is not None:
            self._call(what, self._core.replace, _CONFIG_MAPS, namespace, name, {**there, "data": dict(data)})

    def put_config_map(self, owner: Object, name: str, data: Mapping[str, str]) -> None:
        namespace, what = namespace_of(owner), f"write ConfigMap {namespace_of(owner)}/{name}"
        labels = {"app.kubernetes.io/managed-by": "tidegate"}
        metadata = {
            "name": name,
            "namespace": namespace,
            "labels": labels,
            "ownerReferences": [owner_reference(owner)],
        }
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": dict(data)}
        try:
            self._call(what, self._core.create, _CONFIG_MAPS, namespace, body)
        except Conflict:
            there = self._config_map(what, namespace, name)
            if not _is_owned(there, owner):
                raise Conflict(f"{what}: one of this name is there that is not {name_of(owner)}'s") from None
            # With its other owners (``add_owner``), and what somebody else has noted on it.
            body["metadata"] = {**there["metadata"], "labels": (there["metadata"].get("labels") or {}) | labels}
            self._call(what, self._core.replace, _CONFIG_MAPS, namespace, name, body)

    def own_name(self) -> str:
        """The user name by which the API server knows whoever asks. Raises ``KubeFailure``."""
        review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
        what = "ask who I am"
        return str(self._reviewed(what, "selfsubjectreviews", review)["userInfo"]["username"])

    def add_owner(self, namespace: str, config_map: str, owner: Mapping[str, Any]) -> Mapping[str, Any]:
        what = f"add an owner to ConfigMap {namespace}/{config_map}"
        found = self._config_map(what, namespace, config_map)
        owners = found["metadata"].get("ownerReferences") or []
        if all(each["uid"] != owner["uid"] for each in owners):
            # One of them at most may be the controller.
            metadata = {**found["metadata"], "ownerReferences": [*owners, {**owner, "controller": False}]}
            body = {**found, "metadata": metadata}
            self._call(what, self._core.replace, _CONFIG_MAPS, namespace, config_map, body)
        return {"apiVersion": "v1", "kind": "ConfigMap", "name": config_map, "uid": found["metadata"]["uid"]}

    def remove_config_map(self, namespace: str, name: str) -> None:
        what = f"delete ConfigMap {namespace}/{name}"
        with suppress(NotFound):
            self._call(what, self._core.delete, _CONFIG_MAPS, namespace, name)

    def user_of_token(self, token: str, audience: str = "") -> User | None:
        """Whose token it is; ``None``: nobody's. Implements ``tidegate.service.metrics_access.Reviews``."""
        spec = {"token": token, **({"audiences": [audience]} if audience else {})}
        review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": spec}
        status = self._reviewed("review a token", "tokenreviews", review)
        # An authenticator that knows nothing of audiences answers without any: it has not looked.
        if not status.get("authenticated") or (audience and audience not in (status.get("audiences") or ())):
            return None
        user = status["user"]
        return User(user["username"], user.get("uid") or "", tuple(user.get("groups") or ()), user.get("extra") or {})

    def may_get(self, user: User, path: str) -> bool:
        """Whether the user may ``get`` a non-resource URL. Implements ``tidegate.service.metrics_access.Reviews``."""
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {
                "user": user.name,
                "uid": user.uid,
                "groups": list(user.groups),
                "extra": {key: list(values) for key, values in user.extra.items()},
                "nonResourceAttributes": {"path": path, "verb": "get"},
            },
        }
        what = f"review whether {user.name} may get {path}"
        return bool(self._reviewed(what, "subjectaccessreviews", review).get("allowed"))

    def _reviewed(self, what: str, plural: str, review: Mapping[str, Any]) -> Mapping[str, Any]:
        """What the API server says of a review, which is kept nowhere."""
        path = f"/apis/{review['apiVersion']}/{plural}"

        def ask(*, _request_timeout: Any) -> Any:
            return self._requests.ask("POST", path, body=review, timeout=_request_timeout)

        status: Mapping[str, Any] = bounded_object(what, ask)["status"]
        return status

    def _config_map(self, what: str, namespace: str, name: str) -> Object:
        return self._object(what, self._core.read, _CONFIG_MAPS, namespace, name)

    def _patched(self, doing: str, kind: Kind, body: Object, patch: Object, **options: bool) -> Object:
        namespace, name = namespace_of(body), name_of(body)
        what = f"{doing} {kind.kind} {namespace}/{name}"
        return self._object(what, self._objects.patch, kind, namespace, name, patch, **options)

    def _object(self, what: str, method: Callable[..., Any], *arguments: Any, **options: Any) -> Object:
        return kept_of(bounded_object(what, method, *arguments, **options))

    def _call(self, what: str, method: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        return bounded_call(what, method, *arguments, **options)


def bounded_object(
    what: str,
    method: Callable[..., Any],
    *arguments: Any,
    timeout_s: tuple[float, float] = _TIMEOUT_S,
    **options: Any,
) -> dict[str, Any]:
    """The same for an answer that is an object as JSON."""
    answer = bounded_call(what, method, *arguments, timeout_s=timeout_s, **options)
    if not isinstance(answer, dict):
        raise KubeFailure(f"{what}: the API server answered with {type(answer).__name__}")
    return answer


def bounded_call(
    what: str,
    method: Callable[..., Any],
    *arguments: Any,
    timeout_s: tuple[float, float] = _TIMEOUT_S,
    **options: Any,
) -> Any:
    """The client's answer, within bounded time. ``what`` is done begins the message of a ``KubeFailure``.

    ``timeout_s``: for connecting, and for reading.
    """
    try:
        return method(*arguments, _request_timeout=timeout_s, **options)
    except ApiException as error:
        raise failure_of(what, error) from error
    except (urllib3.exceptions.HTTPError, OSError) as error:
        raise KubeUnavailable(f"{what}: {why_unanswered(error)}") from error
    except (JSONDecodeError, UnicodeDecodeError) as error:
        # Of a proxy, or cut off. It says that it was done, and not what is there now.
        raise KubeUnavailable(f"{what}: {NO_JSON}") from error


def _is_owned(config_map: Object, owner: Object) -> bool:
    owners = config_map["metadata"].get("ownerReferences") or ()
    return any(reference["uid"] == uid_of(owner) for reference in owners)


def failure_of(what: str, error: ApiException) -> KubeFailure:
    text = f"{what}: {error.status} {message_of(error)}"
    match error.status:
        case 404:
            return NotFound(text)
        case 409:
            return Conflict(text)
        case 0 | 429 | 500 | 502 | 503 | 504:
            return KubeUnavailable(text)
        case _:
            return KubeFailure(text)


def _shortened(message: str) -> str:
    raw = message.encode()
    return message if len(raw) <= _MESSAGE_LIMIT else raw[: _MESSAGE_LIMIT - 3].decode(errors="ignore") + "..."
