"""Whether a pod is to be injected, and with what: by its labels and annotations, and its namespace's policies. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Final

from tidegate.inject.environment import (
    AgentTopics,
    Injection,
    NamedPolicy,
    agent_environment,
    agents_of,
    injection_for,
    injection_of,
)
from tidegate.resources.features import ConsumerFormat

INJECT: Final = "tidegate.io/inject"
"""Label, or annotation, of a pod: a format, or false."""
POLICY: Final = "tidegate.io/policy"
"""Annotation of a pod: whose settings it gets, whatever the policies select."""
CONTAINERS: Final = "tidegate.io/containers"
"""Annotation of a pod: names of containers, separated by commas."""
MIRROR: Final = "kubernetes.io/config.mirror"
"""Annotation of what a kubelet runs from a file: the pod here only shows it."""

UNKNOWN_FORMAT: Final = "UnknownFormat"
UNKNOWN_POLICY: Final = "UnknownPolicy"
NO_POLICY: Final = "NoPolicy"
NO_CONNECTION: Final = "NoConnection"

_OFF: Final = ("false", "disabled", "no", "off")
_FORMATS: Final = {wanted.value.lower(): wanted for wanted in ConsumerFormat}


@dataclass(frozen=True, slots=True)
class Surroundings:
    """A namespace's valid policies, each with its connection's topics, and ``topics``: of each connection, by name."""

    policies: tuple[NamedPolicy, ...] = ()
    topics: Mapping[str, AgentTopics] = field(default_factory=lambda: MappingProxyType({}))

    def telling(self, namespace: str, topics: AgentTopics) -> frozenset[tuple[str, str]]:
        """The connections with these topics of which pods of this namespace are told: namespace and name."""
        own = {(namespace, name) for name, told in self.topics.items() if told == topics}
        return frozenset(own | {policy.connection for policy in self.policies if policy.topics == topics})


@dataclass(frozen=True, slots=True)
class PodRefusal:
    """Why a pod is left as it is although somebody wants it injected. ``policies``: who does, as far as is known."""

    reason: str
    message: str
    policies: tuple[str, ...] = ()


def wish_for(pod: Mapping[str, Any], around: Surroundings) -> Injection | PodRefusal | None:
    """``None``: nobody wants this pod injected, or it says no itself."""
    metadata = pod.get("metadata") or {}
    labels, annotations = dict(metadata.get("labels") or {}), dict(metadata.get("annotations") or {})
    asked = [text.strip().lower() for text in (labels.get(INJECT), annotations.get(INJECT)) if text is not None]
    if any(text in _OFF for text in asked) or MIRROR in annotations:
        return None
    unknown = [text for text in asked if text not in _FORMATS]
    if unknown:
        return PodRefusal(
            UNKNOWN_FORMAT,
            f"{INJECT} is {unknown[0]!r}: it has to be one of {', '.join(_FORMATS)}, or false",
        )
    wanted = _FORMATS[asked[0]] if asked else None
    found = _by_name(annotations.get(POLICY), wanted, around) or _selected(labels, wanted, around)
    if isinstance(found, Injection):
        # Each once, however often it is named: what a container gets is much longer than its name.
        named = (name.strip() for name in annotations.get(CONTAINERS, "").split(","))
        chosen = tuple(dict.fromkeys(name for name in named if name))
        return replace(found, containers=chosen or found.containers)
    return found


def _by_name(name: str | None, wanted: ConsumerFormat | None, around: Surroundings) -> Injection | PodRefusal | None:
    if name is None:
        return None
    policy = next((policy for policy in around.policies if policy.name == name), None)
    if policy is None:
        return PodRefusal(
            UNKNOWN_POLICY,
            f"{POLICY} names {name!r}, but the namespace has no valid OffsetResetPolicy of that name whose "
            "KafkaConnection exists",
        )
    if policy.spec.group is None and agents_of(wanted or policy.format):
        return PodRefusal(
            UNKNOWN_POLICY,
            f"{POLICY} names {name!r}, which is for many groups, so that the agent can't be told which one: name a "
            "policy for one group",
            (name,),
        )
    return injection_of(policy, wanted)


def _selected(
    labels: Mapping[str, str], wanted: ConsumerFormat | None, around: Surroundings
) -> Injection | PodRefusal | None:
    found = injection_for(labels, around.policies, wanted)
    if found.policies:
        return found
    if wanted is None:
        return None
    if not agents_of(wanted):
        return PodRefusal(
            NO_POLICY,
            f"no OffsetResetPolicy says which settings {wanted.value} consumers get: name one in annotation {POLICY}",
        )
    topics = sorted(set(around.topics.values()))
    if len(topics) != 1:
        why = (
            "has no KafkaConnection without spec.observe"
            if not topics
            else "has KafkaConnections with different control or ack topics"
        )
        return PodRefusal(
            NO_CONNECTION,
            f"the namespace {why}, so Tidegate does not know which topics the agent has to use: name a policy in "
            f"annotation {POLICY}",
        )
    return Injection(MappingProxyType(agent_environment(topics[0])), format=wanted)
