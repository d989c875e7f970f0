"""The environment that a policy gives to its consumers' processes, and the pods it is meant for. Pure.

The names are the agent's (``agents/python``). Nothing in it is secret: how the cluster is reached, and as whom, the
agent takes from the consumer's own configuration.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from types import MappingProxyType
from typing import assert_never

from tidegate.resources.policy import (
    NewPartitions,
    OffsetResetPolicySpec,
    Selector,
    SelectorOperator,
    SelectorRequirement,
)


@dataclass(frozen=True, slots=True)
class NamedPolicy:
    """A policy as far as this is concerned. ``control_topic``: of its connection."""

    name: str
    spec: OffsetResetPolicySpec
    control_topic: str


@dataclass(frozen=True, slots=True)
class Injection:
    """What a pod gets. ``policies``: whose it is; ``conflicts``: policies that want a variable to say something else.

    A process has one environment: of two policies that differ the one that comes first in the alphabet is obeyed, and
    the other one is named, with the variables.
    """

    environment: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    policies: tuple[str, ...] = ()
    conflicts: tuple[str, ...] = ()


def environment_of(policy: NamedPolicy) -> dict[str, str]:
    """The variables by name, sorted."""
    spec = policy.spec
    found = {"TIDEGATE_AGENT": "1", "TIDEGATE_CONTROL_TOPIC": policy.control_topic, "TIDEGATE_GROUP": spec.group}
    max_age = spec.latest.max_age if spec.latest is not None else None
    new = spec.discovery.new_partitions if spec.discovery is not None and spec.discovery.interval else None
    if max_age is not None:
        found["TIDEGATE_LATEST_MAX_AGE"] = str(max_age // timedelta(milliseconds=1))
    elif new in (NewPartitions.EARLIEST, NewPartitions.LATEST):
        found["TIDEGATE_NEW_PARTITIONS"] = new.value
    return dict(sorted(found.items()))


def injection_for(labels: Mapping[str, str], policies: Iterable[NamedPolicy]) -> Injection:
    """What a pod with these labels gets from the policies of its namespace."""
    environment: dict[str, str] = {}
    names, conflicts = [], []
    for policy in sorted(policies, key=lambda p: p.name):
        consumers = policy.spec.consumers
        if consumers is None or not selects(consumers.selector, labels):
            continue
        wanted = environment_of(policy)
        clashing = sorted(name for name, value in wanted.items() if environment.get(name, value) != value)
        if clashing:
            conflicts.append(f"{policy.name}: {', '.join(clashing)}")
            continue
        names.append(policy.name)
        environment |= wanted
    return Injection(MappingProxyType(dict(sorted(environment.items()))), tuple(names), tuple(conflicts))


def selects(selector: Selector, labels: Mapping[str, str]) -> bool:
    """As ``metav1.LabelSelector``: all of its requirements have to hold."""
    exact = all(labels.get(key) == value for key, value in selector.match_labels.items())
    return exact and all(_holds(requirement, labels) for requirement in selector.match_expressions)


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
