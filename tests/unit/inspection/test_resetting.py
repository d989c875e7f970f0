"""Whether a group could be reset, by which strategy, and why not; and what is said of the brokers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from support.audited import SETTINGS, SUPPORTED, cluster, findings, group, member, seen, verdict
from tidegate.inspection.brokers import of_brokers
from tidegate.inspection.findings import FindingKind, Severity
from tidegate.inspection.resetting import Possible, not_resettable
from tidegate.kafka.capabilities import NOT_TRIED, OLD_VERSIONS_GONE, PROBE_REFUSED, Capabilities, Capability
from tidegate.kafka.model import Group, GroupState, GroupType, ListedGroup
from tidegate.reset.planning.checks import LeftByStreams
from tidegate.resources.connection import GroupKind, Support
from tidegate.resources.reset import Way


def capable(**support: Capability) -> Capabilities:
    return {**SUPPORTED, **{GroupKind[name.upper()]: capability for name, capability in support.items()}}


REFUSED = Capability(Support.UNSUPPORTED, PROBE_REFUSED, "tried with a group of its own: INVALID_TXN_STATE")
UNTRIED = Capability(Support.UNKNOWN, NOT_TRIED, "it takes a try to find out")


@pytest.mark.parametrize(
    ("described", "way", "because"),
    [
        (group(), Way.UNOWNED, "no member owns the partitions"),
        (group(member("c1", 0)), Way.BARRIER, "a classic group whose members give up all partitions in a rebalance"),
        (
            group(member("c1", 0), assignor="cooperative-sticky"),
            Way.HANDOVER,
            "members with assignor cooperative-sticky keep their partitions in a rebalance",
        ),
        (
            group(member("c1", 0), kind=GroupType.CONSUMER),
            Way.HANDOVER,
            "members of a group of type consumer keep their partitions in a rebalance",
        ),
        (
            replace(group(member("c1")), state=GroupState.PREPARING_REBALANCE),
            Way.BARRIER,
            "a rebalance of this group is in progress",
        ),
    ],
    ids=["empty", "eager", "cooperative", "KIP-848", "rebalancing"],
)
def test_the_strategy_is_that_of_a_reset(described: Group, way: Way, because: str) -> None:
    found = verdict(seen(described, {0: 40}))
    assert (found.possible, found.way, found.because) == (Possible.YES, way, because)


def test_a_stopped_streams_application_with_state_stores_is_told_as_a_reset_tells_it() -> None:
    """Its changelog is among the topics; without one it can be reset."""
    topic = "payments-count-changelog"
    stopped = seen(group(), {0: 40})
    with_store = verdict(replace(stopped, left=LeftByStreams(frozenset({topic}))))
    assert (with_store.possible, with_store.way) == (Possible.NO, None)
    assert "is a stopped Kafka Streams application" in with_store.because
    assert topic in with_store.because
    [finding] = not_resettable(with_store)
    assert finding.known == "By the metadata of its commits, and the names of topics"
    assert verdict(replace(stopped, left=LeftByStreams())).possible is Possible.YES


def test_an_old_client_needs_another_strategy_and_an_unknown_one_is_not_guessed() -> None:
    what = seen(group(member("c1", 0)), {0: 40})
    old = {name: replace(said, version=0) for name, said in what.subscriptions.items()}
    assert verdict(replace(what, subscriptions=old)).way is Way.LEADING
    found = verdict(replace(what, subscriptions={}))
    assert (found.possible, found.way) == (Possible.YES, None)
    assert "was not read" in found.because


@pytest.mark.parametrize(
    ("listed", "described", "said"),
    [
        (ListedGroup("payments", "streams", "streams", "Stable"), None, "use kafka-streams-application-reset"),
        (ListedGroup("payments", "share", "share", "Stable"), None, "use kafka-share-groups"),
        (ListedGroup("payments", "connect", "classic", "Stable"), None, "not consumers: their protocol is connect"),
        (None, group(member("c1", 0), assignor="stream"), "is a running Kafka Streams application"),
    ],
    ids=["streams", "share", "connect", "classic streams"],
)
def test_groups_that_no_strategy_can_reset(listed: ListedGroup | None, described: Group | None, said: str) -> None:
    what = seen(described, listed=listed)
    found = verdict(what)
    assert (found.possible, found.way) == (Possible.NO, None)
    assert said in found.because
    [finding] = [f for f in findings(what) if f.kind is FindingKind.NOT_RESETTABLE]
    assert (finding.severity, finding.what) == (Severity.INFO, found.because)


def test_what_the_brokers_refuse_for_live_groups_works_once_they_are_stopped() -> None:
    of = cluster(capabilities=capable(consumer=REFUSED))
    live = seen(group(member("c1", 0), kind=GroupType.CONSUMER), {0: 40})
    found = verdict(live, of)
    assert (found.possible, found.way) == (Possible.WHEN_STOPPED, None)
    assert [f.severity for f in findings(live, of)] == [Severity.WARNING]
    assert verdict(seen(group(kind=GroupType.CONSUMER), {0: 40}), of).possible is Possible.YES


def test_where_nothing_is_accepted_for_empty_groups_nothing_can_be_reset() -> None:
    of = cluster(capabilities=capable(empty=REFUSED))
    assert {verdict(seen(one, {0: 1}), of).possible for one in (group(), group(member("c1", 0)))} == {Possible.NO}


def test_what_brokers_do_not_tell_is_not_known() -> None:
    found = verdict(seen(group(member("c1", 0)), {0: 40}), cluster(capabilities=capable(classic=UNTRIED)))
    assert (found.possible, found.way) == (Possible.UNKNOWN, Way.BARRIER)
    assert found.because.endswith("Classic (it takes a try to find out) is not known")
    lost = Group("payments", GroupState.UNKNOWN, GroupType.CONSUMER)
    assert verdict(seen(lost, {0: 40})).possible is Possible.UNKNOWN


def test_a_full_group_is_found() -> None:
    two = seen(group(member("c1", 0), member("c2", 1)))
    limited = cluster({**SETTINGS, "group.max.size": "2"})
    [found] = [f for f in findings(two, limited) if f.kind is FindingKind.GROUP_FULL]
    assert found.what == "2 members, and group.max.size is 2"
    assert findings(two, cluster({**SETTINGS, "group.max.size": "3"})) == ()
    assert findings(two, cluster({})) == ()


@pytest.mark.parametrize(
    ("minutes", "severity"), [("10080", None), ("10079", Severity.WARNING), ("1439", Severity.CRITICAL)]
)
def test_short_retention(minutes: str, severity: Severity | None) -> None:
    found = [f.severity for f in of_brokers(cluster({**SETTINGS, "offsets.retention.minutes": minutes}))]
    assert found == ([] if severity is None else [severity])


def test_brokers_that_are_configured_differently() -> None:
    [found] = of_brokers(cluster(SETTINGS, {**SETTINGS, "group.max.size": "100"}))
    assert (found.kind, found.what) == (FindingKind.BROKERS_DIFFER, "group.max.size is 100 and 2147483647")
    assert list(of_brokers(cluster({}))) == []


@pytest.mark.parametrize(
    ("capabilities", "what"),
    [
        (capable(consumer=REFUSED), ["no offsets are accepted for live groups of kind Consumer"]),
        (
            capable(empty=UNTRIED),
            [
                "whether offsets are accepted for groups without members is not known: --probe tries it with groups of "
                "its own"
            ],
        ),
        (
            capable(classic=Capability(Support.UNKNOWN, OLD_VERSIONS_GONE, "x")),
            ["whether offsets are accepted for live groups of kind Classic is not known"],
        ),
        (capable(streams=REFUSED, consumer=Capability(Support.NOT_OFFERED, "NoSuchGroups", "off")), []),
        ({}, []),
    ],
    ids=["refused", "untried", "unknown", "of no use", "not seen"],
)
def test_what_brokers_allow(capabilities: Capabilities, what: list[str]) -> None:
    assert [f.what for f in of_brokers(cluster(capabilities=capabilities))] == what
