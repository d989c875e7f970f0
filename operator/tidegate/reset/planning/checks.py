"""What has to hold before a plan is made: named checks, of which the first that objects refuses it. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from tidegate.kafka.capabilities import Capabilities, kind_of
from tidegate.kafka.model import Group, GroupState, GroupType, Offsets, Topic
from tidegate.reset.model.plan import Plan
from tidegate.reset.model.request import RunRequest
from tidegate.reset.model.targets import FromFile, FromGroup, ShiftBy, Undo
from tidegate.reset.planning.refusals import (
    INTERNAL_TOPIC,
    NOTHING_MATCHES,
    SAME_GROUP,
    SOURCE_WITHOUT_OFFSETS,
    TOPIC_NOT_ALLOWED,
    TOPIC_RECREATED,
    UNKNOWN_PARTITION,
    UNKNOWN_TOPIC,
    UNSUPPORTED_BY_BROKERS,
    UNSUPPORTED_GROUP,
    PlanRefused,
)
from tidegate.reset.planning.scope import Scope, listed
from tidegate.resources.conditions import Refusal
from tidegate.resources.connection import GroupKind, Support

STREAMS_ASSIGNOR: Final = "stream"
"""``StreamsPartitionAssignor``'s name: the assignor of every classic Kafka Streams application."""


@dataclass(frozen=True, slots=True)
class LeftByStreams:
    """Kafka Streams has committed the offsets of a group without members. ``changelogs``: the topics that are named as
    those of its state stores are, as far as the principal may see them."""

    changelogs: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Asked:
    """What was asked for, and what it met before any log was looked at. ``other``: the offsets of ``FromGroup``.

    ``managed``: ids of members that run the agent. ``left_by_streams``: where its assignor does not tell of which kind
    it is. ``capabilities``: what the brokers take, of ``kinds_written``.
    """

    request: RunRequest
    topics: Mapping[str, Topic]
    group: Group
    scope: Scope
    other: Offsets | None = None
    managed: frozenset[str] = frozenset()
    left_by_streams: LeftByStreams | None = None
    capabilities: Capabilities = field(default_factory=dict)


def kinds_written(group: Group) -> frozenset[GroupKind]:
    """For which kinds of group every way of its reset commits: its own, and the marker's, which nobody ever joins."""
    kind = kind_of(group)
    return frozenset({GroupKind.EMPTY} if kind is None else {GroupKind.EMPTY, kind})


def unsupported(group: Group, left: LeftByStreams | None = None) -> Refusal | None:
    """Why no reset could change this group's offsets and leave it consistent, whatever the brokers allow."""
    return _of_another_type(group) or _streams_application(group, left)


def _of_another_type(group: Group) -> Refusal | None:
    if group.type not in (GroupType.STREAMS, GroupType.SHARE):
        return None
    tool = "kafka-streams-application-reset" if group.type is GroupType.STREAMS else "kafka-share-groups"
    return Refusal(
        UNSUPPORTED_GROUP,
        f"group {group.group_id} is a {group.type} group, whose state is more than its committed offsets: use {tool}",
    )


def _streams_application(group: Group, left: LeftByStreams | None) -> Refusal | None:
    """Members do not show whether they have state stores; without members the changelogs do."""
    if group.assignor == STREAMS_ASSIGNOR:
        return Refusal(
            UNSUPPORTED_GROUP,
            f"group {group.group_id} is a running Kafka Streams application, whose state stores would not follow "
            "its offsets: stop it and use kafka-streams-application-reset",
        )
    if left is not None and left.changelogs and not group.has_members:
        return Refusal(
            UNSUPPORTED_GROUP,
            f"group {group.group_id} is a stopped Kafka Streams application, whose state stores would not follow "
            "its offsets: use kafka-streams-application-reset. Topics that are named as their changelogs are: "
            f"{listed(sorted(left.changelogs), 3)}",
        )
    return None


def not_taken(group: Group, capabilities: Capabilities) -> Refusal | None:
    """Every way ends with a commit from outside the group; where the brokers refuse it there is none to take."""
    for kind, advice in (
        (GroupKind.EMPTY, "No group can be reset there"),
        (kind_of(group), "Stop its consumers: it can be reset while it has no members"),
    ):
        capability = capabilities.get(kind) if kind is not None else None
        if capability is not None and capability.support is Support.UNSUPPORTED:
            groups = "groups without members" if kind is GroupKind.EMPTY else f"live groups of kind {kind}"
            return Refusal(
                UNSUPPORTED_BY_BROKERS,
                f"the brokers do not accept offsets for {groups} from clients outside the group "
                f"({capability.message}). {advice}; from Kafka 4.0 on brokers accept them",
            )
    return None


def _group_type_is_supported(asked: Asked) -> Refusal | None:
    return _of_another_type(asked.group)


def _group_is_no_streams_application(asked: Asked) -> Refusal | None:
    return _streams_application(asked.group, asked.left_by_streams)


def _source_is_another_group(asked: Asked) -> Refusal | None:
    target = asked.request.target
    if not isinstance(target, FromGroup) or target.group_id != asked.request.group_id:
        return None
    return Refusal(SAME_GROUP, f"group {target.group_id} cannot be set to its own offsets: name another group")


def _source_has_offsets(asked: Asked) -> Refusal | None:
    target = asked.request.target
    if not isinstance(target, FromGroup) or asked.other:
        return None
    return Refusal(SOURCE_WITHOUT_OFFSETS, f"group {target.group_id} has no committed offsets: check its name")


def _topics_are_not_internal(asked: Asked) -> Refusal | None:
    if not asked.scope.internal:
        return None
    return Refusal(INTERNAL_TOPIC, f"internal topics are never reset: {listed(sorted(asked.scope.internal))}")


def _topics_exist(asked: Asked) -> Refusal | None:
    if not asked.scope.unknown:
        return None
    return Refusal(
        UNKNOWN_TOPIC,
        f"no such topic, or no right to describe it: {listed(sorted(asked.scope.unknown))}",
    )


def _topics_are_allowed(asked: Asked) -> Refusal | None:
    if not asked.scope.not_allowed:
        return None
    return Refusal(
        TOPIC_NOT_ALLOWED,
        f"the connection allows topics {listed(asked.request.allowed_topics)}, but not "
        f"{listed(sorted(asked.scope.not_allowed))}: name the topics to reset, or extend allow.topics",
    )


def _partitions_exist(asked: Asked) -> Refusal | None:
    missing = sorted(asked.scope.unknown_partitions)
    if not missing:
        return None
    sizes = [f"{name} has {asked.topics[name].partitions}" for name in sorted({p.topic for p in missing})]
    return Refusal(UNKNOWN_PARTITION, f"no such partition: {listed(missing)} ({listed(sizes)})")


def _something_matches(asked: Asked) -> Refusal | None:
    if asked.scope.partitions:
        return None
    request = asked.request
    if request.selections:
        wanted = listed([s.topic for s in request.selections])
        return Refusal(NOTHING_MATCHES, _and_notes(f"no partition matches {wanted}", asked.scope))
    match request.target:
        case FromFile(source=source):
            return Refusal(NOTHING_MATCHES, f"{source} has no row for group {request.group_id}")
        case Undo(run_id=run_id):
            return Refusal(NOTHING_MATCHES, f"run {run_id} changed no partition")
        case ShiftBy() if asked.group.has_members:
            return Refusal(NOTHING_MATCHES, f"group {request.group_id} has no committed offset to shift")
        case _:
            state = "does not exist" if asked.group.state is GroupState.DEAD else f"is {asked.group.state}"
            return Refusal(
                NOTHING_MATCHES,
                _and_notes(
                    f"group {request.group_id} {state}, and has no committed offsets and no assigned partitions: "
                    "name the topics to reset, or check the group's name",
                    asked.scope,
                ),
            )


def recreated(plan: Plan, topic_ids: Mapping[str, str]) -> list[str]:
    """Topics of the plan that had these ids and were deleted and created again since: offsets mean other records."""
    return sorted({p.topic for p in plan.partitions if topic_ids.get(p.topic, p.topic_id) != p.topic_id})


def _topics_are_the_same_ones(asked: Asked) -> Refusal | None:
    target = asked.request.target
    if not isinstance(target, Undo):
        return None
    covered = {p.topic for p in asked.scope.partitions}
    then = dict(target.topic_ids)
    recreated = sorted(t for t in covered if t in then and asked.topics[t].topic_id != then[t])
    if not recreated:
        return None
    return Refusal(
        TOPIC_RECREATED,
        f"topics were deleted and created again since run {target.run_id}, so its offsets mean other records: "
        f"{listed(recreated)}. "
        "Select the other topics, or another target for these",
    )


def _brokers_take_its_offsets(asked: Asked) -> Refusal | None:
    return not_taken(asked.group, asked.capabilities)


CHECKS: Final[tuple[Callable[[Asked], Refusal | None], ...]] = (
    _group_type_is_supported,
    _group_is_no_streams_application,
    _source_is_another_group,
    _source_has_offsets,
    _topics_are_not_internal,
    _topics_exist,
    _topics_are_allowed,
    _partitions_exist,
    _something_matches,
    _topics_are_the_same_ones,
    _brokers_take_its_offsets,
)


def check(asked: Asked) -> None:
    """Raises ``PlanRefused`` for the first check that objects."""
    for objects in CHECKS:
        refusal = objects(asked)
        if refusal is not None:
            raise PlanRefused(refusal.reason, refusal.message)


def _and_notes(message: str, scope: Scope) -> str:
    return ". ".join([message, *scope.notes])
