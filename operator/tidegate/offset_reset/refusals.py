"""Why a reset may not begin, or has to wait: by what its spec says and its connection allows. Pure."""

from __future__ import annotations

from typing import Final

from tidegate.connection.allow import (
    GROUP_NOT_ALLOWED,
    TOPIC_NOT_ALLOWED,
    dead_letter_not_allowed,
    group_not_allowed,
    topic_not_allowed,
)
from tidegate.connection.live import Live
from tidegate.connection.sharing import is_foreign, not_usable
from tidegate.connection.sharing import refusal as connection_refused
from tidegate.kafka.names import covers, is_pattern, narrowed
from tidegate.kube.ports import Object, name_of
from tidegate.offset_reset.reading import is_suspended, status_is_readable, status_of
from tidegate.offset_reset.turns import not_ready, whose
from tidegate.reset.runs import reasons
from tidegate.reset.runs.request import selected_topics
from tidegate.reset.runs.seen import is_settled
from tidegate.reset.store import ForeignRun, Run
from tidegate.resources.conditions import Refusal
from tidegate.resources.offset_reset import OffsetResetSpec
from tidegate.resources.targets import ClusterTarget

UNDO_OF_OTHER_GROUP: Final = "UndoOfOtherGroup"


def of_other_group(run_id: str, spec: OffsetResetSpec) -> Refusal:
    return Refusal(
        UNDO_OF_OTHER_GROUP,
        f"spec.to.undo: reset {run_id} was not for {whose(spec)} through KafkaConnection {spec.connection_ref.name}: "
        "name the group and the connection that it was for",
    )


def of_foreign_run(undone: Object, spec: OffsetResetSpec, foreign: ForeignRun) -> Refusal:
    """Of one that was deleted, the document is the first that says of which group it was."""
    if "resourceVersion" not in undone["metadata"]:
        return of_other_group(name_of(undone), spec)
    return Refusal(reasons.FOREIGN_RUN, f"spec.to.undo: {foreign}")


def undone_to_wait_for(undone: Object | None) -> Refusal | None:
    """Why an ``OffsetReset`` that undoes another has to wait."""
    if undone is None or is_settled(status_of(undone)):
        return None
    if not status_is_readable(undone):
        return Refusal(
            reasons.UNREADABLE_STATUS,
            f"spec.to.undo: this version of Tidegate can't read the status of OffsetReset {name_of(undone)}: this "
            "reset waits for the version that wrote it",
        )
    return Refusal(
        reasons.UNDONE_NOT_ENDED,
        f"spec.to.undo: OffsetReset {name_of(undone)} has not ended: this reset waits until it has",
    )


def suspended(body: Object) -> Refusal | None:
    if not is_suspended(body):
        return None
    return Refusal(reasons.SUSPENDED, "spec.suspend is true: the reset goes ahead once it is false")


def connection_to_wait_for(body: Object, live: Live | None) -> Refusal | None:
    if live is None and is_foreign(body):
        return connection_refused(body)
    if live is None:
        return Refusal(reasons.WAITING_FOR_CONNECTION, f"{not_usable(body)}: this reset waits for it")
    return None if live.trouble is None else not_ready(live.label, live.trouble[0])


def other_to_wait_for(cluster: ClusterTarget, other: Live | None) -> Refusal | None:
    name = cluster.connection_ref.name
    if other is None:
        why = f"there is no usable KafkaConnection {name} in this namespace: this reset waits for it"
        return Refusal(reasons.WAITING_FOR_CONNECTION, why)
    return None if other.trouble is None else not_ready(name, other.trouble[0])


def not_allowed(spec: OffsetResetSpec, live: Live) -> Refusal | None:
    groups = [("spec.group", spec.group)] if spec.group is not None else []
    # What a fleet's patterns match beside what is allowed is left out of its plan.
    groups += [("spec.groups", name) for name in spec.groups or () if not is_pattern(name)]
    if spec.to.group is not None:
        groups.append(("spec.to.group", spec.to.group))
    for where, group in groups:
        message = group_not_allowed(live.label, live.allow, where, group)
        if message is not None:
            return Refusal(GROUP_NOT_ALLOWED, message)
    for topic in selected_topics(spec):
        message = topic_not_allowed(live.label, live.allow, topic)
        if message is not None:
            return Refusal(TOPIC_NOT_ALLOWED, message)
    return _dead_letter_not_allowed(spec, live)


def _dead_letter_not_allowed(spec: OffsetResetSpec, live: Live) -> Refusal | None:
    path, topic = "spec.deadLetter.topic", spec.dead_letter_topic
    message = dead_letter_not_allowed(live.label, live.allow, live.own_topics, path, topic)
    return None if message is None else Refusal(TOPIC_NOT_ALLOWED, message)


def plan_not_allowed(spec: OffsetResetSpec, run: Run, live: Live) -> Refusal | None:
    """Why a plan that has waited is not applied: the connection allows less of it than when it was made.

    Which topics a fleet's plan is about is in its groups' documents, so that is judged by what it was allowed.
    """
    for group in run.fleet.planned if run.fleet is not None else ():
        message = group_not_allowed(live.label, live.allow, "its plan", group)
        if message is not None:
            return Refusal(GROUP_NOT_ALLOWED, message)
    for topic in sorted({p.topic for p in run.plan.partitions}) if run.plan is not None else ():
        message = topic_not_allowed(live.label, live.allow, topic)
        if message is not None:
            return Refusal(TOPIC_NOT_ALLOWED, message)
    if run.fleet is None:
        return _dead_letter_not_allowed(spec, live)
    named = selected_topics(spec) or ("*",)
    for topics in narrowed(named, run.request.allowed_topics):
        if not any(covers(limit, topics) for limit in live.allow.topics):
            why = f"its plan may cover {topics}, but KafkaConnection {live.label} no longer allows all of that"
            return Refusal(TOPIC_NOT_ALLOWED, why)
    return None


def not_allowed_over_there(cluster: ClusterTarget, other: Live) -> Refusal | None:
    message = group_not_allowed(other.name, other.allow, "spec.to.cluster.group", cluster.group)
    return None if message is None else Refusal(GROUP_NOT_ALLOWED, message)


def same_groups(one: OffsetResetSpec, other: OffsetResetSpec) -> bool:
    return one.group == other.group and set(one.groups or ()) == set(other.groups or ())
