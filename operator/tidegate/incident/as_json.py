"""An account of a group for programs; docs/reference/cli.md describes it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

from tidegate.incident.account import Account, PartitionTold
from tidegate.incident.seen import Common, KubeSeen, Seen
from tidegate.incident.sentences import Section
from tidegate.resources.conditions import Condition
from tidegate.resources.timestamps import format_timestamp

VERSION: Final = 1
"""Raised when a member is removed or changes its meaning; new members may come without that."""


def as_json(seen: Seen, account: Account, told: Sequence[Section]) -> dict[str, Any]:
    """Names are as the brokers and resources tell them; ``null``: there is none, or it is not known (``notSeen``)."""
    kafka, group = seen.kafka, account.group
    return {
        "kind": "GroupExplanation",
        "version": VERSION,
        "at": _time(seen.at),
        "group": seen.group_id,
        "clusterId": (kafka.cluster_id or None) if kafka is not None else None,
        "state": None if group is None else group.state.value,
        "type": None if group is None else group.type.value,
        "assignor": None if group is None else group.assignor or None,
        "lag": account.lag if kafka is not None and kafka.committed is not None and _are_known(account) else None,
        "members": None
        if group is None
        else [
            {
                "memberId": m.member.member_id,
                "clientId": m.member.client_id,
                "host": m.member.host,
                "groupInstanceId": m.member.group_instance_id,
                "runsAgent": m.runs_agent,
                "partitions": [str(p.partition) for p in m.partitions],
            }
            for m in account.members
        ],
        "partitions": [_partition(p) for p in account.partitions],
        "claims": [
            {
                "run": claim.run,
                "reason": claim.reason,
                "renewedAt": _time(claim.renewed_at),
                "leaseSeconds": claim.lease.total_seconds(),
                "lapsed": claim.has_lapsed,
            }
            for claim in account.claims
        ],
        "resources": None if seen.kube is None else _resources(seen.kube),
        "sentences": {section.title: list(section.sentences) for section in told},
        "notSeen": [{"what": unseen.what, "why": unseen.why} for unseen in seen.all_unseen],
    }


def _are_known(account: Account) -> bool:
    """Whether there is a lag to be told: not where committed offsets are known and the ends of the logs are not."""
    committed = [p for p in account.partitions if p.committed is not None and not p.is_gone]
    return not committed or any(p.lag is not None for p in committed)


def _partition(p: PartitionTold) -> dict[str, Any]:
    return {
        "topic": p.partition.topic,
        "partition": p.partition.partition,
        "owner": p.owner.member_id if p.owner is not None else None,
        "committed": p.committed,
        "logStart": p.log_start,
        "logEnd": p.log_end,
        "lag": p.lag,
        "exists": not p.is_gone if p.is_gone or p.log_end is not None else None,
        "pendingCommit": p.is_pending,
        "flow": p.standing.flow.value if p.standing is not None else None,
        "holds": [
            {
                "holder": hold.holder.name,
                "holderKind": hold.holder.kind.value,
                "reason": hold.reason,
                "since": _time(hold.since),
                "epoch": hold.epoch,
            }
            for hold in p.holds
        ],
        "limits": [{"holder": limit.holder, "offset": limit.offset, "reason": limit.reason} for limit in p.limits],
        "ack": None if p.ack is None else {"epoch": p.ack.epoch, "offset": p.ack.offset, "member": p.ack.member},
    }


def _resources(kube: KubeSeen) -> dict[str, Any]:
    def told(common: Common, phase: str | None, conditions: Sequence[Condition] | None) -> dict[str, Any]:
        return {
            "namespace": common.namespace,
            "name": common.name,
            "uid": common.uid,
            "connection": "/".join(common.connection),
            "deleting": common.is_deleting,
            "phase": phase,
            "conditions": None
            if conditions is None
            else [
                {"type": c.type, "status": c.status.value, "reason": c.reason, "message": c.message} for c in conditions
            ],
        }

    def phase(status: Any) -> str | None:
        return status.phase.value if status is not None and status.phase is not None else None

    return {
        "where": kube.where,
        "complete": kube.complete,
        "offsetResets": [
            told(r.common, phase(r.status), r.status.conditions if r.status is not None else None) for r in kube.resets
        ],
        "consumerGroupPauses": [
            told(p.common, phase(p.status), p.status.conditions if p.status is not None else None) for p in kube.pauses
        ],
        "offsetResetPolicies": [
            told(p.common, None, p.status.conditions if p.status is not None else None) for p in kube.policies
        ],
        "kafkaConnections": [
            told(c.common, None, c.status.conditions if c.status is not None else None)
            for c in kube.connections.values()
        ],
        "leftOut": kube.of_others,
    }


def _time(at: datetime | None) -> str | None:
    return None if at is None else format_timestamp(at.replace(microsecond=0))
