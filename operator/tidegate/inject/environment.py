"""The environment that a policy gives to its consumers' processes, and the pods it is meant for. Pure.

Where an agent comes with it, the names are the agents' (``agents``), which are the same in each language. Without one,
what the policy says about new partitions is given under the names from which Java's frameworks make the settings of
their Kafka consumers. Nothing in it is secret: how the cluster is reached, and as whom, is the consumer's own
configuration.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from enum import StrEnum
from types import MappingProxyType
from typing import Final, assert_never

from tidegate.resources.connection import KafkaConnectionSpec
from tidegate.resources.discovery import NewPartitions
from tidegate.resources.features import ConsumerFormat, Selector, SelectorOperator, SelectorRequirement
from tidegate.resources.policy import OffsetResetPolicySpec

_CONTROL_TOPIC: Final = "TIDEGATE_CONTROL_TOPIC"
_ACK_TOPIC: Final = "TIDEGATE_ACK_TOPIC"
_MAX_AGE: Final = "auto.offset.reset.latest.max.age"
"""KIP-1327, as drafted: milliseconds."""
_NEW_PARTITIONS: Final = "auto.offset.reset.new.partitions"
"""KIP-1327, as accepted."""

_PREFIXES: Final = {
    # Spring Boot reads a map's key from what is left of the variable: lower case, "_" as ".".
    ConsumerFormat.SPRING: ("SPRING_KAFKA_CONSUMER_PROPERTIES_",),
    # Quarkus takes all that begins with "kafka" into the map "default-kafka-broker", "_" as ".".
    ConsumerFormat.QUARKUS: ("KAFKA_",),
    # The images of Confluent and Debezium make a worker's properties of CONNECT_*; "consumer." is for sink connectors.
    ConsumerFormat.CONNECT: ("CONNECT_CONSUMER_",),
}


class Agent(StrEnum):
    """An agent that can be brought into a pod; its value is the name of its folder in the agents' image."""

    PYTHON = "python"
    JAVA = "java"


_AGENTS: Final = {
    ConsumerFormat.PYTHON: (Agent.PYTHON,),
    ConsumerFormat.JAVA: (Agent.JAVA,),
    # An agent costs nothing in a process of another language, and no pod says which languages are in its images.
    ConsumerFormat.AUTO: (Agent.PYTHON, Agent.JAVA),
}


def agents_of(wanted: ConsumerFormat) -> tuple[Agent, ...]:
    """The agents that come with settings of this format; none: only the environment does."""
    return _AGENTS.get(wanted, ())


@dataclass(frozen=True, slots=True, order=True)
class AgentTopics:
    """Whose holds an agent obeys, and where it writes its acks; empty: where the control topic's name says."""

    control: str
    acks: str = ""


def agent_topics(spec: KafkaConnectionSpec) -> AgentTopics:
    """Those of a connection."""
    return AgentTopics(spec.control_topic.name, spec.control_topic.ack_topic or "")


@dataclass(frozen=True, slots=True)
class NamedPolicy:
    """A policy as far as this is concerned. ``topics``: of its connection, which ``connection`` names by namespace and
    name."""

    name: str
    spec: OffsetResetPolicySpec
    topics: AgentTopics
    connection: tuple[str, str]

    @property
    def format(self) -> ConsumerFormat:
        consumers = self.spec.consumers
        return consumers.format if consumers is not None else ConsumerFormat.PYTHON


@dataclass(frozen=True, slots=True)
class Injection:
    """What a pod gets. ``environment``: as a container's ``env`` has it. ``policies``: whose it is; ``conflicts``:
    policies that want something else, and what.

    A process has one environment: of two policies that differ the one that comes first in the alphabet is obeyed, and
    the other one is named, with the variables. ``containers``: to which it goes; empty: the pod's main one.
    """

    environment: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    policies: tuple[str, ...] = ()
    conflicts: tuple[str, ...] = ()
    format: ConsumerFormat = ConsumerFormat.PYTHON
    containers: tuple[str, ...] = ()

    @property
    def agents(self) -> tuple[Agent, ...]:
        """What is brought into the pod."""
        return agents_of(self.format)

    @property
    def topics(self) -> AgentTopics | None:
        """Those of the agent that this starts; ``None``: it starts none."""
        control = self.environment.get(_CONTROL_TOPIC)
        return None if control is None else AgentTopics(control, self.environment.get(_ACK_TOPIC, ""))

    @property
    def setting(self) -> str:
        """What a pod has when it has this: equal for the same environment, format and containers, and for no other."""
        told = json.dumps(
            {"containers": self.containers, "environment": dict(self.environment), "format": self.format.value},
            sort_keys=True,
            separators=(",", ":"),
        )
        return hashlib.sha256(told.encode()).hexdigest()[:16]


def agent_environment(topics: AgentTopics) -> dict[str, str]:
    """What starts the agent, and nothing else: gates are obeyed, in every group of the process."""
    acks = {_ACK_TOPIC: topics.acks} if topics.acks else {}
    return {"TIDEGATE_AGENT": "1", _CONTROL_TOPIC: topics.control, **acks}


def environment_of(policy: NamedPolicy, wanted: ConsumerFormat | None = None) -> dict[str, str]:
    """The variables by name, sorted, in the format ``wanted``, or else the policy's own. Empty where it has nothing to
    say to such consumers.
    """
    spec, chosen = policy.spec, wanted or policy.format
    agents = agents_of(chosen)
    max_age = spec.latest.max_age if spec.latest is not None else None
    age = None if max_age is None else str(max_age // timedelta(milliseconds=1))
    new = spec.discovery.new_partitions if spec.discovery is not None and spec.discovery.interval else None
    if max_age is not None:
        # A client without the agent may know the accepted form alone. To it every new partition is young.
        new = NewPartitions.EARLIEST if max_age and not agents else None
    if agents:
        found = agent_environment(policy.topics) | {"TIDEGATE_GROUP": spec.only_group}
        names: tuple[tuple[str, str], ...] = (("TIDEGATE_LATEST_MAX_AGE", "TIDEGATE_NEW_PARTITIONS"),)
    else:
        found = {}
        names = tuple(
            (prefix + _variable(_MAX_AGE), prefix + _variable(_NEW_PARTITIONS)) for prefix in _PREFIXES[chosen]
        )
    for age_name, new_name in names:
        if age is not None:
            found[age_name] = age
        if new in (NewPartitions.EARLIEST, NewPartitions.LATEST):
            found[new_name] = new.value
    return dict(sorted(found.items()))


def unexpanded(value: str) -> str:
    """What a container's ``env`` has to say for this value: Kubernetes takes ``$$`` for one dollar, and ``$(NAME)`` for
    the value of another variable."""
    return value.replace("$", "$$")


def injection_of(policy: NamedPolicy, wanted: ConsumerFormat | None = None) -> Injection:
    """What a policy gives to the pods that it is for."""
    consumers = policy.spec.consumers
    return Injection(
        MappingProxyType({name: unexpanded(value) for name, value in environment_of(policy, wanted).items()}),
        (policy.name,),
        format=wanted or policy.format,
        containers=consumers.containers if consumers is not None else (),
    )


def injection_for(
    labels: Mapping[str, str], policies: Iterable[NamedPolicy], wanted: ConsumerFormat | None = None
) -> Injection:
    """What a pod with these labels gets from the policies of its namespace that select it, in the format ``wanted``, or
    else the policies' own.
    """
    found = Injection()
    for policy in sorted(policies, key=lambda p: p.name):
        consumers = policy.spec.consumers
        if consumers is None or not selects(consumers.selector, labels):
            continue
        one = injection_of(policy, wanted)
        clashing = _clashes(found, one) if found.policies else ()
        if clashing:
            found = replace(found, conflicts=(*found.conflicts, f"{policy.name}: {', '.join(clashing)}"))
            continue
        found = replace(
            one,
            environment=MappingProxyType(dict(sorted({**found.environment, **one.environment}.items()))),
            policies=(*found.policies, policy.name),
            conflicts=found.conflicts,
        )
    return found


def _clashes(found: Injection, other: Injection) -> tuple[str, ...]:
    names = [n for n, value in other.environment.items() if found.environment.get(n, value) != value]
    if found.topics is not None and other.topics is not None and found.topics.acks != other.topics.acks:
        names.append(_ACK_TOPIC)
    if other.format is not found.format:
        names.append("format")
    if other.containers != found.containers:
        names.append("containers")
    return tuple(sorted(set(names)))


def _variable(setting: str) -> str:
    return setting.upper().replace(".", "_")


def selects(selector: Selector, labels: Mapping[str, str]) -> bool:
    """As ``metav1.LabelSelector``: all of its requirements have to hold."""
    exact = all(labels.get(key) == value for key, value in selector.match_labels.items())
    return exact and all(_holds(requirement, labels) for requirement in selector.match_expressions)


def selector_text(selector: Selector) -> str:
    """The selector as the API server takes it in ``labelSelector``; it means what :func:`selects` means."""
    exact = [f"{key}={value}" for key, value in sorted(selector.match_labels.items())]
    return ",".join([*exact, *map(_requirement_text, selector.match_expressions)])


def _requirement_text(requirement: SelectorRequirement) -> str:
    key, values = requirement.key, ",".join(requirement.values)
    match requirement.operator:
        case SelectorOperator.IN:
            return f"{key} in ({values})"
        case SelectorOperator.NOT_IN:
            return f"{key} notin ({values})"
        case SelectorOperator.EXISTS:
            return key
        case SelectorOperator.DOES_NOT_EXIST:
            return f"!{key}"
        case _:
            assert_never(requirement.operator)


def _holds(requirement: SelectorRequirement, labels: Mapping[str, str]) -> bool:
    value = labels.get(requirement.key)
    match requirement.operator:
        case SelectorOperator.IN:
            return value is not None and value in requirement.values
        case SelectorOperator.NOT_IN:
            return value is None or value not in requirement.values
        case SelectorOperator.EXISTS:
            return value is not None
        case SelectorOperator.DOES_NOT_EXIST:
            return value is None
        case _:
            assert_never(requirement.operator)
