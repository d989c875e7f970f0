"""Reads the resources that are about a group; what can't be read is left out, and said to be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TypeVar

from tidegate.incident.listings import Listed
from tidegate.incident.seen import (
    UNREADABLE,
    Common,
    ConnectionSeen,
    KubeSeen,
    Named,
    PauseSeen,
    PolicySeen,
    ResetSeen,
)
from tidegate.kube.ports import (
    APPROVALS,
    CONNECTIONS,
    PAUSES,
    POLICIES,
    RESETS,
    Object,
    connection_named,
    name_of,
    namespace_of,
    uid_of,
)
from tidegate.resources.approval import OffsetResetApprovalStatus
from tidegate.resources.base import (
    InvalidResource,
    SpecModel,
    StatusModel,
    has_readable_status,
    parse_spec,
    read_status,
)
from tidegate.resources.conditions import EFFECTIVE, find_condition
from tidegate.resources.connection import ConnectionStatus, KafkaConnectionSpec
from tidegate.resources.offset_reset import OffsetResetSpec, OffsetResetStatus
from tidegate.resources.pause import ConsumerGroupPauseSpec, PauseStatus
from tidegate.resources.policy import OffsetResetPolicySpec, PolicyStatus
from tidegate.resources.timestamps import parse_timestamp

Spec = TypeVar("Spec", bound=SpecModel)
Status = TypeVar("Status", bound=StatusModel)


def kube_seen(listed: Listed, *, where: str, connection: Named | None = None, context: str | None = None) -> KubeSeen:
    """What was listed that is about a group, read. Pure.

    ``connection``: only what goes through this KafkaConnection, or through another one to the same cluster.
    ``context``: of the kubeconfig, where one was given.
    """
    found = {kind: listed.of(kind) for kind in (PAUSES, RESETS, POLICIES)}
    named = {connection_named(body) for bodies in found.values() for body in bodies}
    if connection is not None:
        named.add(connection)
    seen = {_key(body): connection_seen(body) for body in listed.of(CONNECTIONS)}
    kept = {
        kind: [body for body in bodies if _goes_there(connection_named(body), seen, connection)]
        for kind, bodies in found.items()
    }
    approvals = approvals_by_reset(listed.of(APPROVALS))
    return KubeSeen(
        where,
        pauses=tuple(map(pause_seen, kept[PAUSES])),
        resets=tuple(reset_seen(body, approvals.get(_key(body), ())) for body in kept[RESETS]),
        policies=tuple(map(policy_seen, kept[POLICIES])),
        connections={key: value for key, value in seen.items() if key in named},
        of_others=sum(map(len, found.values())) - sum(map(len, kept.values())),
        listed=listed.kinds,
        unseen=listed.unseen,
        context=context,
    )


def _key(body: Object) -> Named:
    return namespace_of(body), name_of(body)


def _goes_there(named: Named, connections: Mapping[Named, ConnectionSeen], wanted: Named | None) -> bool:
    if wanted is None or named == wanted:
        return True
    # Two connections may be to one cluster.
    mine = _cluster_id(connections.get(wanted))
    return mine is not None and mine == _cluster_id(connections.get(named))


def _cluster_id(connection: ConnectionSeen | None) -> str | None:
    return connection.status.cluster_id if connection is not None and connection.status is not None else None


def of_cluster(kube: KubeSeen, cluster_id: str) -> KubeSeen:
    """Without what goes to another cluster, by the status of its KafkaConnection; what does not tell is kept. Pure."""

    def is_there(common: Common) -> bool:
        return _may_reach(kube.connections.get(common.connection), cluster_id)

    pauses = tuple(p for p in kube.pauses if is_there(p.common))
    resets = tuple(r for r in kube.resets if is_there(r.common))
    policies = tuple(p for p in kube.policies if is_there(p.common))
    before = len(kube.pauses) + len(kube.resets) + len(kube.policies)
    return replace(
        kube,
        pauses=pauses,
        resets=resets,
        policies=policies,
        connections={key: c for key, c in kube.connections.items() if _may_reach(c, cluster_id)},
        of_others=kube.of_others + before - len(pauses) - len(resets) - len(policies),
    )


def _may_reach(connection: ConnectionSeen | None, cluster_id: str) -> bool:
    """Whether it may be to this cluster."""
    return _cluster_id(connection) in (None, cluster_id)


def approvals_by_reset(bodies: Sequence[Object]) -> Mapping[Named, tuple[str, ...]]:
    """By OffsetReset, what the operator has said of each approval of it."""
    found: dict[Named, tuple[str, ...]] = {}
    for body in bodies:
        key = (namespace_of(body), str((body.get("spec") or {}).get("reset", "")))
        status = _status(OffsetResetApprovalStatus, body)
        said = find_condition(status.conditions, EFFECTIVE) if status is not None else None
        text = UNREADABLE if status is None else "the operator has not looked at it yet"
        text = text if said is None else f"{said.reason}: {said.message}"
        found[key] = (*found.get(key, ()), f"OffsetResetApproval {name_of(body)}: {text}")
    return found


# --- one object -------------------------------------------------------------------------------------------------------


def pause_seen(body: Object) -> PauseSeen:
    spec, problem = _spec(ConsumerGroupPauseSpec, body)
    return PauseSeen(common_of(body, problem), spec, _status(PauseStatus, body))


def reset_seen(body: Object, approvals: tuple[str, ...] = ()) -> ResetSeen:
    spec, problem = _spec(OffsetResetSpec, body)
    return ResetSeen(common_of(body, problem), spec, _status(OffsetResetStatus, body), approvals)


def policy_seen(body: Object) -> PolicySeen:
    spec, problem = _spec(OffsetResetPolicySpec, body)
    return PolicySeen(common_of(body, problem), spec, _status(PolicyStatus, body))


def connection_seen(body: Object) -> ConnectionSeen:
    spec, problem = _spec(KafkaConnectionSpec, body)
    return ConnectionSeen(common_of(body, problem), spec, _status(ConnectionStatus, body))


def common_of(body: Object, problem: str = "") -> Common:
    """``problem``: why its spec can't be read."""
    metadata = body["metadata"]
    return Common(
        namespace=namespace_of(body),
        name=name_of(body),
        uid=uid_of(body),
        connection=connection_named(body),
        created_at=_timestamp(metadata.get("creationTimestamp")),
        is_deleting=bool(metadata.get("deletionTimestamp")),
        problem=problem,
    )


def _timestamp(text: object) -> datetime | None:
    try:
        return parse_timestamp(text) if isinstance(text, str) else None
    except ValueError:
        return None


def _spec(model: type[Spec], body: Object) -> tuple[Spec | None, str]:
    try:
        return parse_spec(model, body), ""
    except InvalidResource as invalid:
        return None, str(invalid)


def _status(model: type[Status], body: Object) -> Status | None:
    return read_status(model, body) if has_readable_status(model, body) else None
