"""Groups and clusters as an audit might have seen them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Final

from tidegate.inspection.brokers import of_brokers
from tidegate.inspection.findings import Finding
from tidegate.inspection.judging import judged
from tidegate.inspection.report import Report, Unseen, sorted_findings
from tidegate.inspection.resetting import Verdict
from tidegate.inspection.seen import Before, ClusterSeen, GroupSeen
from tidegate.kafka.capabilities import KNOWN_VERSIONS, Capabilities, Capability
from tidegate.kafka.model import (
    Broker,
    Cluster,
    Group,
    GroupState,
    GroupType,
    ListedGroup,
    LogBounds,
    Member,
    Subscription,
    Topic,
    TopicPartition,
)
from tidegate.kafka.offset_records import GroupLog
from tidegate.resources.connection import GroupKind, Support

NOW: Final = datetime(2026, 11, 26, 3, tzinfo=UTC)
NOW_MS: Final = int(NOW.timestamp() * 1000)
DAY: Final = timedelta(days=1)
SOON: Final = DAY
SETTINGS: Final = {
    "offsets.retention.minutes": "10080",
    "offsets.retention.check.interval.ms": "600000",
    "group.max.size": "2147483647",
}
SUPPORTED: Final[Capabilities] = {
    kind: Capability(Support.SUPPORTED, KNOWN_VERSIONS, "brokers of these versions were tested") for kind in GroupKind
}
Ends = Mapping[int, tuple[int, int]]
"""Start and end of the log by partition of ``orders``."""


def at(*numbers: int, topic: str = "orders") -> frozenset[TopicPartition]:
    return frozenset(TopicPartition(topic, number) for number in numbers)


def member(name: str = "c1", *numbers: int, topic: str = "orders") -> Member:
    return Member(f"{name}-4f1c", name, "/10.0.0.7", assignment=at(*numbers, topic=topic))


def cluster(
    *settings: Mapping[str, str],
    partitions: int = 4,
    capabilities: Capabilities = SUPPORTED,
    more: tuple[str, ...] = (),
) -> ClusterSeen:
    topics = {name: Topic(name, f"id-{name}", partitions) for name in ("orders", *more)}
    brokers = Cluster("5L6g3nShT-eMCtK--X86sw", tuple(Broker(n, f"kafka-{n}", 9092) for n in range(3)))
    return ClusterSeen(NOW, brokers, topics, capabilities, settings or (SETTINGS,))


def group(*members: Member, kind: GroupType = GroupType.CLASSIC, assignor: str = "range") -> Group:
    state = GroupState.STABLE if members else GroupState.EMPTY
    return Group("payments", state, kind, assignor if members else "", members)


def seen(
    described: Group | None,
    committed: Mapping[int, int] | None = None,
    *,
    before: Mapping[int, int] | None = None,
    ends: Ends | None = None,
    ends_before: Ends | None = None,
    listed: ListedGroup | None = None,
    log: GroupLog | None = None,
) -> GroupSeen:
    """Offsets by partition of ``orders``. ``before``: those at the first look, 20 s earlier; absent, there was none."""
    state = described.state.value if described is not None else ""
    kind = described.type.value if described is not None else ""
    members = described.members if described is not None else ()
    return GroupSeen(
        listed or ListedGroup("payments", "consumer", kind, state),
        described,
        {TopicPartition("orders", n): offset for n, offset in (committed or {}).items()},
        bounds(ends or {}),
        None if before is None else _before(before, ends_before or {}),
        {m.member_id: Subscription(frozenset(p.topic for p in m.assignment), version=3) for m in members},
        log,
    )


def _before(committed: Mapping[int, int], ends: Ends) -> Before:
    return Before({TopicPartition("orders", n): o for n, o in committed.items()}, bounds(ends), 20.4)


def bounds(ends: Ends) -> dict[TopicPartition, LogBounds]:
    return {TopicPartition("orders", n): LogBounds(*both) for n, both in ends.items()}


def findings(what: GroupSeen, of: ClusterSeen | None = None) -> tuple[Finding, ...]:
    return judged(what, of or cluster(), SOON)[0]


def verdict(what: GroupSeen, of: ClusterSeen | None = None) -> Verdict:
    return judged(what, of or cluster(), SOON)[1]


def a_report() -> Report:
    """What an audit of a cluster finds in which a bit of everything is wrong."""
    owners = (member("checkout-1", 0, 1), member("checkout-2", 2))
    grew: Ends = {0: (0, 9_000), 1: (0, 8_000), 2: (120, 9_100), 3: (0, 40)}
    ends: Ends = {0: (0, 9_140), 1: (0, 8_100), 2: (120, 9_250), 3: (0, 55)}
    groups = {
        "checkout": seen(
            group(*owners),
            {0: 7_311, 1: 8_090, 2: 9_240},
            before={0: 7_311, 1: 7_990, 2: 9_090},
            ends=ends,
            ends_before=grew,
        ),
        "nightly-report": seen(group(), {0: 9_000, 2: 90}, before={0: 9_000, 2: 90}, ends=ends, ends_before=grew),
        "search-index": seen(
            group(member("search-1", 0, 1, 2, 3), kind=GroupType.CONSUMER), dict.fromkeys(range(4), 50)
        ),
        "connect-workers": seen(None, listed=ListedGroup("connect-workers", "connect", "classic", "Stable")),
    }
    settings = {**SETTINGS, "offsets.retention.minutes": "2880"}
    of = cluster(settings, capabilities={**SUPPORTED, GroupKind.CONSUMER: _REFUSED})
    return report_of(of, groups)


_REFUSED: Final = Capability(Support.UNSUPPORTED, "ProbeRefused", "tried with a group of its own: UNKNOWN_MEMBER_ID")


def report_of(of: ClusterSeen, groups: Mapping[str, GroupSeen]) -> Report:
    found, verdicts = list(of_brokers(of)), list[Verdict]()
    for name, what in groups.items():
        described = None if what.group is None else replace(what.group, group_id=name)
        more, how = judged(replace(what, listed=replace(what.listed, group_id=name), group=described), of, SOON)
        found += more
        verdicts.append(how)
    return Report(
        at=of.at,
        cluster_id=of.cluster.cluster_id,
        brokers=len(of.cluster.brokers),
        groups=len(groups),
        partitions=4,
        watched=timedelta(seconds=20),
        probed=False,
        capabilities=of.capabilities,
        settings={name: (value,) for name, value in of.settings[0].items()},
        findings=sorted_findings(found),
        verdicts=tuple(verdicts),
        unseen=(
            Unseen(
                "exactly when committed offsets expire", "the principal may not", "Read on topic __consumer_offsets"
            ),
            Unseen("the logs of 1 partitions, such as orders-9", "no leader reported their ends"),
        ),
    )
