"""One AdmissionReview (admission.k8s.io/v1) answered: the pod is always let in, injected or with a warning. Pure."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from tidegate.inject.eligibility import PodRefusal, Surroundings, wish_for
from tidegate.inject.environment import AgentTopics, Injection
from tidegate.inject.patch import AgentImage, patch_for
from tidegate.kube.ports import EventType, KubeEvent
from tidegate.printable import visible

REFUSED: Final = "InjectionRefused"
UNREADABLE: Final = "PodUnreadable"

_API_VERSION: Final = "admission.k8s.io/v1"
_MESSAGE_LIMIT: Final = 1000
"""Characters of an Event's message: a pod may have names without end."""
_WARNING_LIMIT: Final = 240
"""Longer ones are cut by some clients; the API server takes 4096 bytes in all."""


class BadReview(ValueError):
    """What was posted is no AdmissionReview of this version; there is nothing to answer to."""


@dataclass(frozen=True, slots=True)
class Notice:
    """A refusal to be told as an Event, about what made the pod and the policies that want it injected.

    ``about``: the pod's controller, with ``apiVersion``, ``kind``, ``name`` and ``uid``, as the review claims.
    """

    namespace: str
    about: Mapping[str, str]
    policies: tuple[str, ...]
    happening: KubeEvent


@dataclass(frozen=True, slots=True)
class Answer:
    """``outcome``: for the metric. ``notice`` and ``topics``, those that the pod's agent is told of: never
    for a dry run, which must leave no trace.
    """

    response: Mapping[str, Any]
    outcome: str
    notice: Notice | None = None
    topics: AgentTopics | None = None


@dataclass(frozen=True, slots=True)
class _Outcome:
    name: str
    operations: tuple[Mapping[str, Any], ...] = ()
    warnings: tuple[str, ...] = ()
    refusal: PodRefusal | None = None
    annotations: Mapping[str, str] = field(default_factory=dict)
    topics: AgentTopics | None = None


def answer(review: Any, around: Callable[[str], Surroundings | None], agent: AgentImage) -> Answer:
    """Answer a review. ``around``: a namespace's policies; ``None`` for one that is not served.

    Raises ``BadReview``.
    """
    request = _request(review)
    namespace, pod = asked_namespace(review), request.get("object")
    if not _is_new_pod(request) or not isinstance(pod, Mapping):
        return _answered(request, _Outcome("Ignored"))
    surroundings = around(namespace)
    if surroundings is None:
        return _answered(request, _Outcome("Ignored"))
    try:
        outcome = _decided(pod, surroundings, agent)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        # Nobody has validated the pod yet. The API server will; it must say so, not we.
        outcome = _Outcome("Failed", refusal=PodRefusal(UNREADABLE, f"the pod can't be read ({error!r})"))
    return _answered(request, outcome, _notice(namespace, pod, outcome))


def asked_namespace(review: Any) -> str:
    """The namespace that the review is about. Raises ``BadReview``."""
    namespace = _request(review).get("namespace")
    return namespace if isinstance(namespace, str) else ""


def _request(review: Any) -> Mapping[str, Any]:
    request = review.get("request") if isinstance(review, Mapping) else None
    uid = request.get("uid") if isinstance(request, Mapping) else None
    if request is None or review.get("apiVersion") != _API_VERSION or not isinstance(uid, str) or not uid:
        raise BadReview(f"this takes an AdmissionReview of {_API_VERSION} with a request")
    found: Mapping[str, Any] = request
    return found


def _is_new_pod(request: Mapping[str, Any]) -> bool:
    resource = request.get("resource")
    if not isinstance(resource, Mapping):
        return False
    return (
        request.get("operation") == "CREATE"
        and not request.get("subResource")
        and (resource.get("group") or "", resource.get("resource")) == ("", "pods")
    )


def _decided(pod: Mapping[str, Any], around: Surroundings, agent: AgentImage) -> _Outcome:
    wish = wish_for(pod, around)
    if wish is None:
        return _Outcome("NotSelected")
    if isinstance(wish, PodRefusal):
        return _Outcome("Refused", refusal=wish)
    patch = patch_for(pod, wish, agent)
    if isinstance(patch, PodRefusal):
        return _Outcome("Refused", refusal=patch)
    if not patch.operations:
        return _Outcome("Unchanged")
    return _Outcome(
        "Injected",
        patch.operations,
        _conflicts(wish),
        annotations={"setting": wish.setting},
        topics=wish.topics,
    )


def _conflicts(wish: Injection) -> tuple[str, ...]:
    """Without names: whoever asks may be anybody, and the policies that lose say so in their status."""
    told = "another policy also selects this pod, but does not take effect: see the condition Injected of policies"
    return (told,) if wish.conflicts else ()


def _answered(request: Mapping[str, Any], outcome: _Outcome, notice: Notice | None = None) -> Answer:
    response: dict[str, Any] = {"uid": request["uid"], "allowed": True}
    warnings = list(outcome.warnings)
    if outcome.operations:
        patch = json.dumps(outcome.operations, separators=(",", ":")).encode()
        response |= {"patchType": "JSONPatch", "patch": base64.b64encode(patch).decode()}
    if outcome.refusal is not None:
        warnings.append(f"not injected: {outcome.refusal.message}")
    if warnings:
        response["warnings"] = [_cut(f"tidegate: {warning}") for warning in warnings[:8]]
    if outcome.annotations:
        response["auditAnnotations"] = dict(outcome.annotations)
    answered = Answer({"apiVersion": _API_VERSION, "kind": "AdmissionReview", "response": response}, outcome.name)
    return answered if request.get("dryRun") else replace(answered, notice=notice, topics=outcome.topics)


def _cut(text: str) -> str:
    shown = visible(text[: _WARNING_LIMIT + 1])
    return shown if len(shown) <= _WARNING_LIMIT else f"{shown[: _WARNING_LIMIT - 3]}..."


def _notice(namespace: str, pod: Mapping[str, Any], outcome: _Outcome) -> Notice | None:
    about = _controller(pod)
    if outcome.refusal is None or about is None:
        return None
    refusal = outcome.refusal
    message = visible(refusal.message[:_MESSAGE_LIMIT])
    happening = KubeEvent(
        EventType.WARNING,
        REFUSED,
        f"{refusal.reason}: the pod of {about['kind']} {about['name']} is not injected: {message}",
        f"{REFUSED}/{refusal.reason}/{message}",
    )
    return Notice(namespace, about, refusal.policies, happening)


def _controller(pod: Mapping[str, Any]) -> Mapping[str, str] | None:
    """The pod's; ``None`` where it has none of which all is said: then there is nothing to look up."""
    metadata = pod.get("metadata")
    owners = metadata.get("ownerReferences") if isinstance(metadata, Mapping) else None
    for owner in owners if isinstance(owners, list) else ():
        if isinstance(owner, Mapping) and owner.get("controller"):
            found = {name: owner.get(name) for name in ("apiVersion", "kind", "name", "uid")}
            told = {
                name: value for name, value in found.items() if isinstance(value, str) and value.isascii() and value
            }
            return told if len(told) == len(found) else None
    return None
