"""Which groups' offsets brokers let Tidegate change, by what they say of themselves. Pure.

Every way of a reset commits in a transaction, as a producer that is no member of the group (``TxnOffsetCommit`` with
generation −1 and an empty member id, KAFKA-9365). Brokers have differed on whether that is taken, by the kind of group.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

from tidegate.kafka.model import Group, GroupState, GroupType
from tidegate.resources.connection import GroupKind, Support

TXN_OFFSET_COMMIT: Final = 28
CONSUMER_GROUP_HEARTBEAT: Final = 68
STREAMS_GROUP_HEARTBEAT: Final = 88
"""API keys of ApiVersions. KIP-848 groups are joined by the second, streams groups (KIP-1071) by the third."""

NEWEST_COMMIT_SENT: Final = 3
"""The newest version of TxnOffsetCommit that is sent. From 4 on brokers answer otherwise, from 5 on the request is of
transaction version 2 (KIP-890), from 6 on it names topics by ids (KIP-1319)."""

KNOWN_COMMIT_VERSIONS: Final = (5, 6)
"""Newest versions of TxnOffsetCommit of the brokers from 4.0 on that were tested: they take offsets for every kind of
group that they have. Below, who takes what shows only when it is tried: 3.7 to 3.9 offer KIP-848 groups and take no
offsets for live ones."""


KNOWN_VERSIONS: Final = "KnownVersions"
OLD_VERSIONS_GONE: Final = "OldVersionsGone"
NO_SUCH_GROUPS: Final = "NoSuchGroups"
BROKERS_DIFFER: Final = "BrokersDiffer"
PROBED: Final = "Probed"
PROBE_REFUSED: Final = "ProbeRefused"
PROBE_FAILED: Final = "ProbeFailed"
NOT_AUTHORIZED: Final = "NotAuthorized"
NO_TOPIC: Final = "NoTopic"
NOT_TRIED: Final = "NotTried"


@dataclass(frozen=True, slots=True)
class Capability:
    """Whether offsets of one kind of group can be changed. ``reason``: PascalCase, how it is known, or why not."""

    support: Support
    reason: str
    message: str


Capabilities = Mapping[GroupKind, Capability]


@dataclass(frozen=True, slots=True)
class BrokerApis:
    """What one broker says of itself (ApiVersions).

    ``versions``: oldest and newest by API key. ``features``: the cluster's level of each feature that the broker knows
    (KIP-584), 0 for one that is off; ``None`` where it does not tell.
    """

    versions: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    features: Mapping[str, int] | None = None


_JOINED_BY: Final = {GroupKind.CONSUMER: CONSUMER_GROUP_HEARTBEAT, GroupKind.STREAMS: STREAMS_GROUP_HEARTBEAT}
_SWITCHED_BY: Final = {GroupKind.CONSUMER: "group.version", GroupKind.STREAMS: "streams.version"}


def kind_of(group: Group) -> GroupKind | None:
    """``None`` for members of a kind that is not told. A group whose state is unknown may have members unseen."""
    if not group.has_members and group.state is not GroupState.UNKNOWN:
        return GroupKind.EMPTY
    kinds = {
        GroupType.CLASSIC: GroupKind.CLASSIC,
        GroupType.CONSUMER: GroupKind.CONSUMER,
        GroupType.STREAMS: GroupKind.STREAMS,
    }
    return kinds.get(group.type)


def told(kind: GroupKind, brokers: Collection[BrokerApis]) -> Capability | None:
    """What the brokers' own words decide; ``None``: nothing, it has to be tried."""
    commits = {broker.versions.get(TXN_OFFSET_COMMIT) for broker in brokers}
    spoken = {commit is not None and commit[0] <= NEWEST_COMMIT_SENT for commit in commits}
    if spoken == {False}:
        return Capability(
            Support.UNSUPPORTED,
            OLD_VERSIONS_GONE,
            f"no broker offers TxnOffsetCommit in a version up to {NEWEST_COMMIT_SENT}, as Tidegate speaks it",
        )
    joining = _JOINED_BY.get(kind)
    offered = {joining is None or joining in broker.versions for broker in brokers}
    if offered == {False}:
        return _no_such_groups(kind, f"no broker offers API {joining}")
    if len(spoken) > 1 or len(offered) > 1 or len({commit and commit[1] for commit in commits}) > 1:
        return Capability(
            Support.UNKNOWN,
            BROKERS_DIFFER,
            "the brokers are not of one version, as during an upgrade: it is found out when they are",
        )
    if any(commit is None or commit[1] not in KNOWN_COMMIT_VERSIONS for commit in commits):
        return None
    switch = _SWITCHED_BY.get(kind, "")
    if any(broker.features is not None and broker.features.get(switch) == 0 for broker in brokers):
        return _no_such_groups(kind, f"feature {switch} is off")
    return Capability(
        Support.SUPPORTED, KNOWN_VERSIONS, "brokers of these versions were tested, so nothing had to be tried"
    )


def _no_such_groups(kind: GroupKind, why: str) -> Capability:
    return Capability(Support.NOT_OFFERED, NO_SUCH_GROUPS, f"the brokers have no groups of kind {kind.value}: {why}")
