"""What the page shows of one resource or one group. Pure; every text is made visible (``tidegate.cli.ui.rows``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from tidegate.cli.review import described
from tidegate.cli.ui.rows import line, made_visible, time_text
from tidegate.incident.account import account_of
from tidegate.incident.as_json import as_json
from tidegate.incident.gather_kube import connection_seen, kube_seen, pause_seen, policy_seen
from tidegate.incident.listings import Lists, about_group
from tidegate.incident.resource_sentences import connection_told, pause_told, policy_told
from tidegate.incident.seen import KafkaSeen, Named, PauseSeen, Seen, Unseen
from tidegate.incident.sentences import sections
from tidegate.kafka.model import TopicPartition
from tidegate.kube.ports import CONNECTIONS, PAUSES, POLICIES, RESETS, Kind, Object
from tidegate.printable import visible
from tidegate.reset.store import Run
from tidegate.resources.base import has_readable_status, read_status
from tidegate.resources.durations import format_duration
from tidegate.resources.offset_reset import OffsetResetStatus
from tidegate.resources.reset import ResetPhase

MOST_LANES: Final = 2_000
"""Partitions that are shown one by one, of a group and of a reset."""
MOST_STEPS: Final = 300
"""Lines of a run's journal, the newest; when each phase was reached is told of all of them."""

Facts = list[tuple[str, str | None]]


# --- a group ----------------------------------------------------------------------------------------------------------


def group_detail(
    group_id: str,
    connection: Named,
    lists: Lists,
    kafka: KafkaSeen | None,
    why_not: str,
    now: datetime,
    context: str | None = None,
) -> dict[str, Any]:
    """As ``tidegate why -o json`` has it, with the sentences in order. Without Kafka, what pauses say of partitions.

    ``why_not``: why Kafka was not asked. ``context``: of the kubeconfig, where one was given.
    """
    listed = about_group(lists, group_id, connection)
    kube = kube_seen(listed, where="what is shown", connection=connection, context=context)
    unseen = () if kafka is not None else (Unseen("Kafka", why_not),)
    seen = Seen(group_id, now, kafka, kube, unseen)
    account = account_of(seen)
    told = sections(seen, account)
    found = as_json(seen, account, told)
    by_kafka = kafka is not None and kafka.is_reached
    partitions = found["partitions"] if by_kafka else _by_pauses(kube.pauses)
    return {
        **made_visible({**found, "partitions": partitions[:MOST_LANES]}),
        "group": group_id,  # as it is: it is asked for by it again
        "connection": "/".join(connection),
        "sections": [{"title": s.title, "sentences": list(s.sentences)} for s in told],
        "partitionsOmitted": max(0, len(partitions) - MOST_LANES),
        "byKafka": by_kafka,
        # What was asked and did not answer may do so next time.
        "isAsked": kafka is not None,
        # What could not be read is not nothing.
        "isGroupSeen": kafka is not None and kafka.group is not None,
        "areOffsetsSeen": kafka is not None and kafka.committed is not None,
    }


def _by_pauses(pauses: Sequence[PauseSeen]) -> list[dict[str, Any]]:
    """What the operator has written of the paused partitions; the end of a log follows from the lag."""
    found = []
    for pause in pauses:
        for p in pause.status.partitions if pause.status is not None else ():
            known = p.offset is not None and p.offset >= 0
            found.append(
                {
                    "topic": p.topic,
                    "partition": p.partition,
                    "owner": p.member,
                    "committed": p.offset if known else None,
                    "logStart": None,
                    "logEnd": p.offset + p.lag if known and p.offset is not None and p.lag is not None else None,
                    "lag": p.lag,
                    "flow": p.phase.value,
                    "holds": [
                        {
                            "holder": f"ConsumerGroupPause {pause.common.label}",
                            "reason": (pause.spec.reason if pause.spec is not None else None) or "",
                            "since": time_text(p.since),
                        }
                    ],
                }
            )
    return found


# --- a reset ----------------------------------------------------------------------------------------------------------


def reset_detail(
    body: Object, run: Run | None, problem: str, kafka: KafkaSeen | None, approvals: Sequence[str]
) -> dict[str, Any]:
    """``problem``: why there is no run to be shown. ``kafka``: how the group stands now, where that is known."""
    status = read_status(OffsetResetStatus, body) if has_readable_status(OffsetResetStatus, body) else None
    phase = status.phase if status is not None else None
    lanes = _lanes(run, kafka) if run is not None else []
    awaits = phase is ResetPhase.AWAITING_APPROVAL and run is not None and bool(run.digest)
    detail = made_visible(
        {
            "line": line(RESETS, body),
            "phase": (phase or ResetPhase.PENDING).value if status is not None else "Unreadable",
            "facts": _facts(body, status, run),
            "conditions": _conditions(body),
            "steps": _steps(run),
            "stepsOmitted": max(0, len(run.journal) - MOST_STEPS) if run is not None else 0,
            "reached": _reached(run),
            "lanes": lanes[:MOST_LANES],
            "lanesOmitted": max(0, len(lanes) - MOST_LANES),
            "byKafka": kafka is not None and kafka.committed is not None,
            "isAsked": kafka is not None,
            "problem": problem,
            "isPlanned": run is not None and run.is_planned,
            "isFleet": run is not None and run.fleet is not None,
            # What an approval would be of: the digest that this very plan was checked against.
            "digest": run.digest if run is not None and awaits else None,
            "effect": _effect(run),
            "approvals": list(approvals),
            "undoable": phase is ResetPhase.SUCCEEDED,
            "uid": str(body["metadata"]["uid"]),
        }
    )
    # The names of groups as they are: links lead by them, and the page makes them visible itself.
    return {**detail, **_groups(run), "line": {**detail["line"], "groups": line(RESETS, body)["groups"]}}


def _effect(run: Run | None) -> dict[str, int] | None:
    """What the plan itself does, for whoever is to approve it: the status is another document."""
    plan = None if run is None else run.fleet or run.plan
    if plan is None:
        return None
    return {
        "partitions": plan.partitions if isinstance(plan.partitions, int) else len(plan.partitions),
        "moved": plan.moved,
        "again": plan.records_replayed,
        "skipped": plan.records_skipped,
    }


def _groups(run: Run | None) -> dict[str, Any]:
    """Those of a fleet, each of which has a page with its lanes."""
    found = run.fleet.groups if run is not None and run.fleet is not None else ()
    shown = [
        {
            "group": g.group_id,
            "partitions": g.partitions,
            "moved": g.moved,
            "way": "" if g.way is None else g.way.value,
            "refused": visible(f"{g.refused}: {g.message}") if g.refused else "",
        }
        for g in found[:MOST_LANES]
    ]
    return {"groups": shown, "groupsOmitted": len(found) - len(shown)}


def _facts(body: Object, status: OffsetResetStatus | None, run: Run | None) -> Facts:
    spec = body.get("spec") or {}
    facts: Facts = []
    if run is not None:
        at = run.plan.made_at if run.plan is not None else run.fleet.made_at if run.fleet is not None else None
        if at is not None:
            facts.append(("Target", described(run.request.target, at)))
    if not facts:
        to = spec.get("to") or {}
        facts.append(("Target", ", ".join(f"{k}: {v}" if v != {} else str(k) for k, v in to.items())))
    facts.append(("Approval", str(spec.get("approval") or "Automatic")))
    if status is None:
        return facts
    plan = status.plan
    facts += [
        ("Requested by", status.requester),
        ("Approved by", status.approval.approver if status.approval is not None else None),
        ("Began", time_text(status.started_at)),
        ("Ended", time_text(status.finished_at)),
        ("Strategy", status.way.value if status.way is not None else None),
        (
            "Partitions",
            None if plan is None or plan.moved is None else f"{plan.moved:,} of {plan.partitions or 0:,} move",
        ),
        ("Read again", None if plan is None or plan.records_replayed is None else f"{plan.records_replayed:,}"),
        ("Skipped", None if plan is None or plan.records_skipped is None else f"{plan.records_skipped:,}"),
        ("Longest standstill", None if status.standstill is None else format_duration(status.standstill.max)),
        ("Reset again", None if not status.redone else f"{status.redone:,}"),
    ]
    if status.search is not None:
        facts.append(("Searched", f"{status.search.percent} % of {status.search.records_total:,} records"))
    if status.fleet is not None:
        fleet = status.fleet
        told = (
            f"{fleet.groups:,} groups: {fleet.reset:,} reset, {fleet.failed:,} failed, {fleet.put_back:,} rolled back"
        )
        facts.append(("Fleet", told + (f"; wave {fleet.wave} of {fleet.waves}" if fleet.wave is not None else "")))
    return [(name, told) for name, told in facts if told]


def _steps(run: Run | None) -> list[dict[str, Any]]:
    """The journal, the newest last; then how it ended."""
    if run is None:
        return []
    steps = [
        {
            "phase": p.phase.value,
            "at": time_text(p.at),
            "round": p.round,
            "message": p.message or p.waits_for or (f"rolling back: {p.putting_back}" if p.putting_back else ""),
        }
        for p in run.journal[-MOST_STEPS:]
    ]
    if run.result is not None:
        end = run.result
        steps.append({"phase": end.phase.value, "at": time_text(end.finished_at), "round": 0, "message": end.message})
    return steps


def _reached(run: Run | None) -> list[dict[str, Any]]:
    """When each phase was reached first, in that order."""
    if run is None:
        return []
    at = {p.phase.value: p.at for p in reversed(run.journal)}
    if run.result is not None:
        at.setdefault(run.result.phase.value, run.result.finished_at)
    order = dict.fromkeys([*(p.phase.value for p in run.journal), *at])
    return [{"phase": phase, "at": time_text(at[phase])} for phase in order]


def _lanes(run: Run, kafka: KafkaSeen | None) -> list[dict[str, Any]]:
    """By partition: where the group stood before, where it goes, and where it stands now; those that move, first."""
    if run.plan is None:
        return []
    before = _before(run)
    now = kafka.committed if kafka is not None else None
    bounds = kafka.bounds if kafka is not None else {}
    lanes = []
    for p in run.plan.partitions:
        at, bound = p.topic_partition, bounds.get(p.topic_partition)
        lanes.append(
            {
                "topic": p.topic,
                "partition": p.partition,
                "earliest": bound.earliest if bound is not None else p.earliest,
                "latest": bound.latest if bound is not None else p.latest,
                "before": before.get(at, p.committed),
                "target": p.target,
                "now": None if now is None else now.get(at),
                "clamped": None if p.clamped is None else p.clamped.value,
                "moves": p.moves,
            }
        )
    return sorted(lanes, key=lambda lane: not lane["moves"])


def _before(run: Run) -> Mapping[TopicPartition, int]:
    """The committed offsets just before the first commit, where that has been written down."""
    written = run.result.before if run.result is not None and run.result.before else ()
    if not written:
        written = next((p.before for p in reversed(run.journal) if p.before), ())
    return {each.topic_partition: each.offset for each in written}


# --- anything ---------------------------------------------------------------------------------------------------------


def object_detail(kind: Kind, body: Object, now: datetime, context: str | None = None) -> dict[str, Any]:
    """Sentences, conditions, and what its status counts; of a policy its history. ``context``: of the kubeconfig, where
    one was given."""
    told: list[str] = []
    history: list[dict[str, Any]] = []
    partitions: list[dict[str, Any]] = []
    if kind == PAUSES:
        told = list(pause_told(pause_seen(body), now))
        partitions = _by_pauses([pause_seen(body)])
    elif kind == POLICIES:
        policy = policy_seen(body)
        told = list(policy_told(policy, now, context))
        history = [
            {"id": each.id, "phase": each.phase.value, "finishedAt": time_text(each.finished_at)}
            for each in (policy.status.history if policy.status is not None else ())
        ]
    elif kind == CONNECTIONS:
        told = list(connection_told(connection_seen(body), context))
    shown = line(kind, body)
    detail = made_visible(
        {
            "line": shown,
            "sentences": told,
            "conditions": _conditions(body),
            "history": history,
            "partitions": partitions[:MOST_LANES],
            "partitionsOmitted": max(0, len(partitions) - MOST_LANES),
        }
    )
    return {**detail, "line": {**detail["line"], "groups": shown["groups"]}}


def _conditions(body: Object) -> list[dict[str, Any]]:
    """As they are, also of a status that this version can't read as a whole."""
    found = (body.get("status") or {}).get("conditions")
    return [
        {name: str(each.get(name) or "") for name in ("type", "status", "reason", "message", "lastTransitionTime")}
        for each in (found if isinstance(found, list) else [])
        if isinstance(each, Mapping)
    ]
