"""When offsets expire: Kafka's own cases, each at its bound."""

from __future__ import annotations

import pytest

from tidegate.kafka.model import GroupState, GroupType
from tidegate.kafka.offset_expiry import (
    AT_ONCE,
    CommitTime,
    GroupFacts,
    RetentionSettings,
    expiry_ms,
    explicit_expiry_ms,
)

DAY = 86_400_000
SETTINGS = RetentionSettings.of_minutes(7 * 24 * 60, 600_000)
RETENTION = 7 * DAY
COMMITTED = 1_795_000_000_000
EMPTIED = COMMITTED + 3 * DAY
EXPLICIT = COMMITTED + 2 * DAY

EMPTY_CLASSIC = GroupFacts(GroupType.CLASSIC, GroupState.EMPTY, EMPTIED)
EMPTY_CONSUMER = GroupFacts(GroupType.CONSUMER, GroupState.EMPTY, EMPTIED)
SIMPLE = GroupFacts(GroupType.SIMPLE, GroupState.EMPTY)


def stable(kind: GroupType, *topics: str) -> GroupFacts:
    return GroupFacts(kind, GroupState.STABLE, None, frozenset(topics))


@pytest.mark.parametrize(
    ("group", "commit", "expected"),
    [
        pytest.param(SIMPLE, CommitTime(COMMITTED), COMMITTED + RETENTION, id="simple consumer: per commit"),
        pytest.param(SIMPLE, CommitTime(COMMITTED, EXPLICIT), EXPLICIT, id="simple consumer, explicit expiry"),
        pytest.param(
            EMPTY_CLASSIC, CommitTime(COMMITTED), EMPTIED + RETENTION, id="Empty group: since it became Empty"
        ),
        pytest.param(EMPTY_CLASSIC, CommitTime(COMMITTED, EXPLICIT), EXPLICIT, id="Empty group, explicit expiry"),
        pytest.param(
            EMPTY_CLASSIC,
            CommitTime(EMPTIED + DAY),
            EMPTIED + RETENTION,
            id="Empty group: a commit while it is Empty does not count",
        ),
        pytest.param(
            GroupFacts(GroupType.CLASSIC, GroupState.EMPTY, None),
            CommitTime(COMMITTED),
            COMMITTED + RETENTION,
            id="Empty group of an old broker, which wrote no time of its state: per commit",
        ),
        pytest.param(
            GroupFacts(GroupType.CLASSIC, GroupState.EMPTY, EMPTIED, None),
            CommitTime(COMMITTED),
            EMPTIED + RETENTION,
            id="Empty group of another protocol, such as Connect's",
        ),
        pytest.param(
            EMPTY_CONSUMER, CommitTime(COMMITTED), COMMITTED + RETENTION, id="Empty KIP-848 group: per commit"
        ),
        pytest.param(EMPTY_CONSUMER, CommitTime(COMMITTED, EXPLICIT), EXPLICIT, id="Empty KIP-848 group, explicit"),
        pytest.param(
            stable(GroupType.CLASSIC, "other"),
            CommitTime(COMMITTED),
            COMMITTED + RETENTION,
            id="Stable group, topic no longer subscribed: per commit",
        ),
        pytest.param(
            stable(GroupType.CLASSIC, "other"),
            CommitTime(COMMITTED, EXPLICIT),
            EXPLICIT,
            id="Stable group, topic no longer subscribed, explicit expiry",
        ),
        pytest.param(
            stable(GroupType.CONSUMER, "other"),
            CommitTime(COMMITTED),
            COMMITTED + RETENTION,
            id="KIP-848 group with members, topic no longer subscribed",
        ),
        pytest.param(
            GroupFacts(GroupType.CONSUMER, GroupState.RECONCILING, None, frozenset({"other"})),
            CommitTime(COMMITTED),
            COMMITTED + RETENTION,
            id="KIP-848 group in a rebalance: no exception for topics that are not subscribed",
        ),
        pytest.param(
            GroupFacts(GroupType.STREAMS, GroupState.EMPTY),
            CommitTime(COMMITTED),
            COMMITTED + RETENTION,
            id="Empty streams group: per commit",
        ),
    ],
)
def test_an_offset_expires_at_its_bound_and_not_a_millisecond_before(
    group: GroupFacts, commit: CommitTime, expected: int
) -> None:
    at = expiry_ms(group, "orders", commit, SETTINGS)

    assert at == expected


REBALANCING = [GroupState.PREPARING_REBALANCE, GroupState.COMPLETING_REBALANCE]


@pytest.mark.parametrize(
    ("group", "commit"),
    [
        pytest.param(stable(GroupType.CLASSIC, "orders"), CommitTime(0), id="Stable group, subscribed topic"),
        pytest.param(
            stable(GroupType.CLASSIC, "orders"), CommitTime(0, 1), id="Stable group, subscribed topic, explicit expiry"
        ),
        pytest.param(stable(GroupType.CONSUMER, "orders"), CommitTime(0), id="KIP-848 group, subscribed topic"),
        *(
            pytest.param(GroupFacts(GroupType.CLASSIC, state, None, frozenset({"other"})), CommitTime(0), id=state)
            for state in REBALANCING
        ),
        *(
            pytest.param(
                GroupFacts(GroupType.CLASSIC, state, None, frozenset({"other"})),
                CommitTime(0, 1),
                id=f"{state} explicit",
            )
            for state in REBALANCING
        ),
        pytest.param(
            GroupFacts(GroupType.CLASSIC, GroupState.STABLE, None, None), CommitTime(0), id="Stable, topics unknown"
        ),
        pytest.param(
            GroupFacts(GroupType.CONSUMER, GroupState.ASSIGNING, None, frozenset({"orders"})),
            CommitTime(0),
            id="KIP-848 group in a rebalance, subscribed topic",
        ),
    ],
)
def test_an_offset_that_never_expires(group: GroupFacts, commit: CommitTime) -> None:
    assert expiry_ms(group, "orders", commit, SETTINGS) is None


@pytest.mark.parametrize("group", [SIMPLE, EMPTY_CLASSIC, EMPTY_CONSUMER, stable(GroupType.CLASSIC, "other")], ids=str)
@pytest.mark.parametrize("explicit", [None, EXPLICIT])
def test_a_pending_transactional_commit_blocks_expiry(group: GroupFacts, explicit: int | None) -> None:
    commit = CommitTime(COMMITTED, explicit)

    assert expiry_ms(group, "orders", commit, SETTINGS, pending=True) is None
    assert expiry_ms(group, "orders", commit, SETTINGS) is not None


@pytest.mark.parametrize("group", [SIMPLE, EMPTY_CLASSIC, EMPTY_CONSUMER, stable(GroupType.CLASSIC, "orders")], ids=str)
def test_deleted_partitions_drop_their_offsets(group: GroupFacts) -> None:
    assert expiry_ms(group, "orders", CommitTime(COMMITTED), SETTINGS, exists=False, pending=True) == AT_ONCE


def test_the_longest_retention_that_brokers_take_does_not_overflow() -> None:
    settings = RetentionSettings.of_minutes(2**31 - 1, 600_000)

    at = expiry_ms(SIMPLE, "orders", CommitTime(COMMITTED), settings)

    assert at == COMMITTED + (2**31 - 1) * 60_000
    assert at < 2**63


@pytest.mark.parametrize(
    ("retention_ms", "expected"),
    [
        (-1, None),
        (0, COMMITTED),
        (10**15, COMMITTED + 10**15),
        (2**63 - 1 - COMMITTED, 2**63 - 1),
        (2**63 - COMMITTED, -(2**63)),
        (2**63 - 1, -(2**63) + COMMITTED - 1),
    ],
    ids=["the default: none", "none at all", "for ever, nearly", "the longest", "one more overflows", "Long.MAX_VALUE"],
)
def test_an_explicit_retention_is_added_as_java_adds(retention_ms: int, expected: int | None) -> None:
    assert explicit_expiry_ms(COMMITTED, retention_ms) == expected
