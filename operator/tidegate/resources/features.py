"""What a policy keeps for its group: ``latest``, ``consumers`` and ``retention``; and their status."""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum
from typing import Annotated, Any, Final

from pydantic import BeforeValidator, Field, PlainSerializer, StrictBool, WithJsonSchema

from tidegate.resources import durations
from tidegate.resources.base import ResourceModel
from tidegate.resources.durations import format_duration, parse_duration
from tidegate.resources.fields import Count, Duration, Timestamp, cel_at_most_ten_years
from tidegate.resources.rules import Facet, Rule, cel_matches, described, matching, problem, rule, unique

_OR_OFF: Final = ", or -1 for off"


def _off_or_duration(value: Any) -> timedelta | None:
    if value in (-1, "-1") and not isinstance(value, bool):
        return None
    if isinstance(value, timedelta):
        return value
    try:
        return parse_duration(value if isinstance(value, str) else "")
    except ValueError as error:
        raise problem(f"{error}{_OR_OFF}") from None


class LatestSpec(ResourceModel):
    """KIP-1327: partitions up to an age begin at their start."""

    max_age: Annotated[
        timedelta | None,
        BeforeValidator(_off_or_duration),
        PlainSerializer(lambda age: None if age is None else format_duration(age), when_used="json"),
        WithJsonSchema({"x-kubernetes-int-or-string": True, "maxLength": durations.MAX_LENGTH}),
        Facet(
            (
                Rule(
                    f"type(self) == int ? self == -1 : (self == '-1' || ({cel_at_most_ten_years('string(self)')}))",
                    f"{durations.ACCEPTED}{_OR_OFF}",
                ),
            )
        ),
    ] = None
    """The age, such as 1h, up to which consumers read a new partition from its start, with and without the agent. In
    older partitions they begin where their configuration says. A partition whose age is not known counts as young.
    Without this field, and with -1, the rule is off."""


LabelValue = Annotated[
    str,
    matching(
        r"([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?",
        "must be a label value: letters, digits, '-', '_' and '.', at most 63 characters",
        most=63,
    ),
    described("A label's value."),
]

_KEY: Final = r"([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_KEY_MESSAGE: Final = "must be a label key such as app or app.kubernetes.io/name"
_MAX_KEY: Final = 317

LabelKey = Annotated[str, matching(_KEY, _KEY_MESSAGE, most=_MAX_KEY)]

# A schema says nothing of a map's keys: for the API server the map has their rule.
Labels = Annotated[
    dict[LabelKey, LabelValue],
    Field(max_length=32),
    Facet((Rule(f"self.all(key, key.size() <= {_MAX_KEY} && {cel_matches('key', _KEY)})", _KEY_MESSAGE),)),
]


class SelectorOperator(StrEnum):
    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"


class SelectorRequirement(ResourceModel):
    """One condition on a label.

    ``metav1.LabelSelectorRequirement``.
    """

    key: LabelKey
    """The label's key."""

    operator: SelectorOperator
    """How the label's value is compared with values."""

    values: Annotated[tuple[LabelValue, ...], Field(max_length=64)] = ()
    """The values for the operators In and NotIn."""

    @rule(
        "(self.operator in ['In', 'NotIn']) == (has(self.values) && self.values.size() > 0)",
        "operators In and NotIn need values, Exists and DoesNotExist take none: change one of them",
    )
    def _values_fit_operator(self) -> bool:
        return (self.operator in (SelectorOperator.IN, SelectorOperator.NOT_IN)) == bool(self.values)


class Selector(ResourceModel):
    """``metav1.LabelSelector``."""

    match_labels: Labels = Field(default_factory=dict)
    """Labels that the pods must have, all of them."""

    match_expressions: Annotated[tuple[SelectorRequirement, ...], Field(max_length=16)] = ()
    """Conditions on the pods' labels, all of which must hold."""

    @rule(
        "(has(self.matchLabels) && self.matchLabels.size() > 0) "
        "|| (has(self.matchExpressions) && self.matchExpressions.size() > 0)",
        "must not be empty: it would select every pod of the namespace; add matchLabels",
    )
    def _selects_something(self) -> bool:
        return bool(self.match_labels or self.match_expressions)


class Rollout(StrEnum):
    """``RESTART``: workloads are rolled when the setting changes; ``WHEN_NEXT``: it waits for their next pods."""

    RESTART = "Restart"
    WHEN_NEXT = "WhenNext"


class ConsumerFormat(StrEnum):
    """How the settings reach the consumers: by Tidegate's agent for a language, or for both, which comes with them; or
    without an agent, under the names that a framework reads. ``tidegate.inject.environment`` has the names.
    """

    PYTHON = "Python"
    JAVA = "Java"
    AUTO = "Auto"
    SPRING = "Spring"
    QUARKUS = "Quarkus"
    CONNECT = "Connect"


ContainerName = Annotated[
    str,
    matching(
        r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?",
        "must be a container's name: lower-case letters, digits and '-', at most 63 characters",
        most=63,
    ),
    described("A container's name."),
]


class ConsumersSpec(ResourceModel):
    """The pods that get the policy's settings injected."""

    selector: Selector
    """Which pods of this namespace are the group's consumers."""

    format: ConsumerFormat = ConsumerFormat.PYTHON
    """How the settings reach the consumers. Python and Java load Tidegate's agent for that language into the process.
    Auto offers both agents, and each process takes the one for its language. Spring, Quarkus and Connect load no agent:
    they set the environment from which these Java frameworks build the consumer's configuration."""

    containers: Annotated[
        tuple[ContainerName, ...],
        Field(max_length=16),
        unique("must not repeat a container: remove the second one"),
    ] = ()
    """The containers that get the settings. Without this field, each pod's main container: the one that the annotation
    kubectl.kubernetes.io/default-container names, or else the first."""

    rollout: Rollout = Rollout.RESTART
    """When running consumers get changed settings. Restart evicts their pods one by one, as their disruption budgets
    allow, and waits for each replacement; the workload itself is not changed. WhenNext waits until pods are replaced
    anyway."""


class RetentionSpec(ResourceModel):
    """KIP-211."""

    guard: StrictBool = True
    """Keeps the offsets of a group without members from expiring."""

    warn_before: Duration = parse_duration("24h")
    """How long before the offsets of an unguarded group expire a warning Event is written."""


class RetentionStatus(ResourceModel):
    """How long the group's committed offsets are kept."""

    state: str | None = None
    """The group's state, as Kafka names it."""

    expires_at: Timestamp | None = None
    """When the first of the group's offsets would expire if nothing were done."""

    exact: StrictBool = False
    """Whether expiresAt is known exactly, from the brokers' settings and the coordinator's log. Otherwise it is the
    earliest time that is consistent with the observations."""

    guarded: StrictBool = False
    """Whether Tidegate keeps the group's offsets from expiring."""

    offsets: Count | None = None
    """How many of the group's offsets are guarded, in the topics of this policy."""

    kept: Count | None = None
    """How many of them have a retention of their own, longer than the brokers'."""

    renewed_at: Timestamp | None = None
    """When offsets were last committed again, unchanged, to keep them."""

    snapshot: str | None = None
    """The ConfigMap with the last known offsets, from which expired ones are restored."""


MAX_AGENT_VERSIONS: Final = 20


class AgentVersion(ResourceModel):
    """An image from which pods have their agent."""

    image: str
    """The image's name, as the pods have it."""

    pods: Count
    """How many pods have their agent from it."""


class InjectionStatus(ResourceModel):
    """How many of the selected pods have the policy's settings."""

    setting: str | None = None
    """The hash of the setting that pods should have. Pods that have it carry it in the annotation
    tidegate.io/injected."""

    pods: Count | None = None
    """How many pods are selected."""

    injected: Count | None = None
    """How many of them have the setting."""

    stale: Count | None = None
    """How many of them have an older setting, or none."""

    refused: Count | None = None
    """How many of them can't get the setting. The condition Injected says why."""

    versions: Annotated[tuple[AgentVersion, ...], Field(max_length=MAX_AGENT_VERSIONS)] = ()
    """The images from which the pods with the setting have their agent, until these pods are replaced."""

    stale_before: Count | None = None
    """How many pods were stale when the last one was evicted."""

    futile: Count | None = None
    """How many evictions in a row resulted in no pod with the setting."""

    retry_at: Timestamp | None = None
    """When the next pod is evicted, after evictions that made no difference."""
