"""The strongest way that the owners allow, and why not a stronger one."""

from __future__ import annotations

import pytest

from tidegate.kafka.model import Group, GroupState, GroupType, Member, TopicPartition
from tidegate.reset.ways import Owners, choose_way
from tidegate.resources.reset import Way

P0, P1, P2 = (TopicPartition("orders", n) for n in range(3))
A = Member("a-1", "a", "/127.0.0.1", assignment=frozenset({P0}))
B = Member("b-1", "b", "/127.0.0.1", assignment=frozenset({P1}))
STATIC = Member("s-1", "s", "/127.0.0.1", "s", assignment=frozenset({P1}))
KAFKA_GO = Member("k-1", "app@host (github.com/segmentio/kafka-go)", "/127.0.0.1", assignment=frozenset({P1}))
FRANZ_GO = Member("g-1", "kgo", "/127.0.0.1", assignment=frozenset({P1}))
NEW = {"a-1": 1, "b-1": 1, "s-1": 1, "g-1": 1}


def _owners(
    *members: Member,
    kind: GroupType = GroupType.CLASSIC,
    assignor: str = "range",
    managed: frozenset[str] = frozenset(),
    disobeyed: str | None = None,
    versions: dict[str, int] | None = None,
    kept_position: bool = False,
    transaction_open: bool = False,
    kept_after_leaving: bool = False,
    in_flight: bool = False,
    not_led: str | None = None,
) -> Owners:
    group = Group("payments", GroupState.STABLE, kind, assignor, members)
    versions = NEW if versions is None else versions
    return Owners(
        group,
        frozenset({P0, P1}),
        versions,
        kept_position=kept_position,
        transaction_open=transaction_open,
        kept_after_leaving=kept_after_leaving,
        in_flight=in_flight,
        not_led=not_led,
        managed=managed,
        disobeyed=disobeyed,
    )


def _kept(
    *members: Member,
    kind: GroupType = GroupType.CLASSIC,
    assignor: str = "cooperative-sticky",
    not_led: str | None = None,
) -> Owners:
    """An owner that was made to leave has kept its position."""
    return _owners(*members, kind=kind, assignor=assignor, kept_after_leaving=True, not_led=not_led)


BOTH = frozenset({"a-1", "b-1", "s-1"})


@pytest.mark.parametrize(
    ("owners", "way", "because"),
    [
        (_owners(), Way.UNOWNED, "no member owns"),
        (_owners(Member("c", "c", "/h", assignment=frozenset({P2}))), Way.UNOWNED, "no member owns"),
        (_owners(A, B), Way.BARRIER, "give up all partitions"),
        (_owners(A, B, assignor="cooperative-sticky"), Way.HANDOVER, "cooperative-sticky"),
        (_owners(A, B, kind=GroupType.CONSUMER, assignor="uniform"), Way.HANDOVER, "type consumer"),
        (_owners(A, STATIC), Way.BARRIER, "give up all partitions"),
        (_owners(A, STATIC, assignor="cooperative-sticky"), Way.HANDOVER, "cooperative-sticky"),
        (_owners(A, B, assignor="RoundRobinAssigner"), Way.HANDOVER, "assignor RoundRobinAssigner"),  # kafkajs' own
        (_owners(A, STATIC, versions={"a-1": 1, "s-1": 0}), Way.HANDOVER, "KIP-429"),
        (_owners(A, STATIC, transaction_open=True), Way.HANDOVER, "transaction"),
        (_owners(A, STATIC, kind=GroupType.CONSUMER, assignor="uniform"), Way.HANDOVER, "type consumer"),
        (_owners(A, versions={"a-1": 0}), Way.LEADING, "use a subscription from before KIP-429"),
        (_owners(A, B, versions={"a-1": 1, "b-1": 0}), Way.HANDOVER, "KIP-429"),
        (_owners(A, B, kept_position=True), Way.HANDOVER, "kept its position"),
        (_owners(A, B, transaction_open=True), Way.HANDOVER, "transaction"),
        (_kept(A, B), Way.LEADING, "made to leave has kept"),
        (_kept(A, STATIC), Way.LEADING, "made to leave has kept"),
        (_kept(A, B, assignor="range"), Way.LEADING, "made to leave has kept"),
        (_kept(A, B, assignor="RoundRobinAssigner"), Way.LEADING, "made to leave has kept"),  # kafkajs' own
        (_kept(A, KAFKA_GO), Way.HANDOVER, "cannot be led: it has segmentio/kafka-go"),
        (_kept(KAFKA_GO), Way.LEADING, "made to leave has kept"),
        (_kept(A, B, assignor="stream"), Way.HANDOVER, "cannot write the assignments of assignor stream"),
        (_kept(A, B, not_led="the group is full"), Way.HANDOVER, "cannot be led: the group is full"),
        (_kept(A, B, kind=GroupType.CONSUMER), Way.HANDOVER, "type consumer keep their partitions in a rebalance"),
        (_kept(), Way.UNOWNED, "no member owns"),
        (
            _owners(A, FRANZ_GO, in_flight=True),
            Way.LEADING,
            "a member's client (franz-go, kafka-go) holds late commits back",
        ),
        (_owners(A, FRANZ_GO, in_flight=True, not_led="it is full"), Way.BARRIER, "give up all partitions"),
        (_owners(A, FRANZ_GO), Way.BARRIER, "give up all partitions"),
        (
            _owners(A, B, in_flight=True, versions={"a-1": 1, "b-1": 0}),
            Way.LEADING,
            "late commits may wait until its join is over: 1 owner(s) use a subscription from before KIP-429",
        ),
        (_owners(A, B, in_flight=True), Way.BARRIER, "give up all partitions"),
        (_owners(A, FRANZ_GO, kind=GroupType.CONSUMER, in_flight=True), Way.HANDOVER, "type consumer"),
        (_owners(A, B, managed=BOTH), Way.GATED, "runs the agent"),
        (_owners(A, STATIC, managed=BOTH), Way.GATED, "runs the agent"),
        (_owners(A, B, kind=GroupType.CONSUMER, managed=BOTH), Way.GATED, "runs the agent"),
        (_owners(A, B, managed=frozenset({"a-1"})), Way.BARRIER, "give up all partitions"),
        (_owners(A, B, managed=BOTH, disobeyed="an owner runs no agent"), Way.BARRIER, "give up all partitions"),
        (_owners(managed=BOTH), Way.UNOWNED, "no member owns"),
    ],
)
def test_the_first_obstacle_to_each_way_decides(owners: Owners, way: Way, because: str) -> None:
    choice = choose_way(owners)

    assert choice.way is way
    assert because in choice.because


def test_members_that_own_none_of_the_partitions_need_no_agent() -> None:
    bystander = Member("c-1", "c", "/127.0.0.1", assignment=frozenset({P2}))

    assert choose_way(_owners(A, bystander, managed=frozenset({"a-1"}))).way is Way.GATED
