"""What brokers let a producer from outside do: by what they say of themselves, else by a group that is made for it."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace as Row
from typing import Any

import pytest

from support.fake_kafka import FakeKafka
from support.scripted_wire import Answer, ByScript, coordinators, each, wire_to
from tidegate.kafka import capabilities as known
from tidegate.kafka.capabilities import BrokerApis, Capability, told
from tidegate.kafka.errors import KafkaFailure, NotAuthorized, Unavailable
from tidegate.kafka_client.probe import LOOK_AGAIN_S, PREFIX, TRY_AGAIN_S, KafkaCapabilities, KafkaProbe
from tidegate.resources.connection import GroupKind, Support

EMPTY, CLASSIC, CONSUMER, STREAMS = GroupKind
YES, NO, NOT_OFFERED, UNKNOWN = Support
TRIED = None
"""What the brokers say decides nothing."""


def broker(commit: int | tuple[int, int] | None, *others: int, **features: int) -> BrokerApis:
    """``commit``: the newest version of TxnOffsetCommit, or both; ``others``: API keys."""
    versions = dict.fromkeys(others, (0, 1))
    if commit is not None:
        versions[known.TXN_OFFSET_COMMIT] = (0, commit) if isinstance(commit, int) else commit
    return BrokerApis(versions, {name.replace("_", "."): level for name, level in features.items()} or None)


K848, STREAMS_API = known.CONSUMER_GROUP_HEARTBEAT, known.STREAMS_GROUP_HEARTBEAT


@pytest.mark.parametrize(
    ("brokers", "expected"),
    [
        pytest.param([broker(3)], [TRIED, TRIED, NOT_OFFERED, NOT_OFFERED], id="3.6"),
        pytest.param([broker(4, K848)], [TRIED, TRIED, TRIED, NOT_OFFERED], id="3.9 that knows of KIP-848"),
        pytest.param([broker(5, K848)], [YES, YES, YES, NOT_OFFERED], id="4.0"),
        pytest.param([broker(5, K848, STREAMS_API)] * 3, [YES, YES, YES, YES], id="4.3, three brokers"),
        pytest.param([broker(6, K848, STREAMS_API)], [YES, YES, YES, YES], id="4.4"),
        pytest.param([broker(7, K848)], [TRIED, TRIED, TRIED, NOT_OFFERED], id="one that nobody has tested"),
        pytest.param([broker((4, 7), K848)], [NO, NO, NO, NO], id="none that our client can speak to"),
        pytest.param([broker(None, K848)], [NO, NO, NO, NO], id="none with transactions"),
        pytest.param([broker(3), broker(5, K848)], [UNKNOWN, UNKNOWN, UNKNOWN, NOT_OFFERED], id="an upgrade"),
        pytest.param([broker(5), broker(5, K848)], [YES, YES, UNKNOWN, NOT_OFFERED], id="one of two has KIP-848"),
        pytest.param(
            [broker(None), broker(5)], [UNKNOWN, UNKNOWN, NOT_OFFERED, NOT_OFFERED], id="one without transactions"
        ),
        pytest.param(
            [broker(5, K848, STREAMS_API, group_version=1, streams_version=0)],
            [YES, YES, YES, NOT_OFFERED],
            id="streams groups switched off",
        ),
        pytest.param(
            [broker(5, K848, STREAMS_API, group_version=0)], [YES, YES, NOT_OFFERED, YES], id="KIP-848 switched off"
        ),
        pytest.param([broker(4, K848, group_version=0)], [TRIED, TRIED, TRIED, NOT_OFFERED], id="features of old"),
    ],
)
def test_what_brokers_say_of_themselves(brokers: list[BrokerApis], expected: list[Support | None]) -> None:
    found = [told(kind, brokers) for kind in GroupKind]
    assert [None if capability is None else capability.support for capability in found] == expected


@pytest.mark.parametrize(
    ("brokers", "reason"),
    [
        ([broker(5, K848)], known.KNOWN_VERSIONS),
        ([broker((4, 7), K848)], known.OLD_VERSIONS_GONE),
        ([broker(3, K848), broker(5, K848)], known.BROKERS_DIFFER),
        ([broker(5)], known.NO_SUCH_GROUPS),
    ],
)
def test_how_it_is_known_is_said(brokers: list[BrokerApis], reason: str) -> None:
    found = told(CONSUMER, brokers)
    assert found is not None
    assert found.reason == reason


# --- remembering ------------------------------------------------------------------------------------------------------


class Asked:
    """Brokers and probes by script, and how often they were asked. ``now``: seconds."""

    def __init__(self, *apis: BrokerApis, found: Support = YES) -> None:
        self.apis: list[BrokerApis] = list(apis)
        self.found = found
        self.now = 1000.0
        self.looks = 0
        self.probes: list[GroupKind] = []
        self.failure: KafkaFailure | None = None
        self.capabilities = KafkaCapabilities(self._ask, self._probe, lambda: self.now)

    def _ask(self) -> list[BrokerApis]:
        self.looks += 1
        if self.failure is not None:
            raise self.failure
        return list(self.apis)

    def _probe(self, kind: GroupKind) -> Capability:
        self.probes.append(kind)
        return Capability(self.found, "Scripted", "")

    def support(self, kind: GroupKind) -> Support:
        return self.capabilities.of([kind])[kind].support


def test_brokers_of_known_versions_are_asked_every_few_minutes_and_nothing_is_tried() -> None:
    asked = Asked(broker(5, K848, STREAMS_API))
    for _ in range(10):
        assert {c.support for c in asked.capabilities.of(list(GroupKind)).values()} == {YES}
    assert (asked.looks, asked.probes) == (1, [])

    asked.now += LOOK_AGAIN_S
    asked.support(CLASSIC)

    assert (asked.looks, asked.probes) == (2, [])


def test_what_must_not_be_tried_is_unknown_unless_it_was_tried_before() -> None:
    asked = Asked(broker(4, K848))

    found = asked.capabilities.of([CLASSIC], probe=False)[CLASSIC]
    assert (found.support, found.reason, asked.probes) == (UNKNOWN, known.NOT_TRIED, [])

    asked.support(CLASSIC)
    assert asked.capabilities.of([CLASSIC], probe=False)[CLASSIC].support is YES


def test_what_a_probe_found_to_work_is_not_tried_again() -> None:
    asked = Asked(broker(4, K848))
    for _ in range(100):
        assert asked.support(CLASSIC) is YES
        asked.now += TRY_AGAIN_S
    assert asked.probes == [CLASSIC]


@pytest.mark.parametrize("found", [NO, UNKNOWN, NOT_OFFERED])
def test_what_did_not_work_is_tried_again_after_a_while(found: Support) -> None:
    asked = Asked(broker(4, K848), found=found)
    assert asked.support(CONSUMER) is found
    asked.found = YES

    asked.now += TRY_AGAIN_S - 1
    assert asked.support(CONSUMER) is found

    asked.now += 1
    assert asked.support(CONSUMER) is YES
    assert asked.probes == [CONSUMER] * 2


@pytest.mark.parametrize("versions", [[broker(4, K848), broker(4, K848)], [broker(4, K848, group_version=1)]])
def test_only_other_brokers_are_tried_anew(versions: list[BrokerApis]) -> None:
    asked = Asked(broker(4, K848))
    assert asked.support(CLASSIC) is YES
    asked.apis = versions
    asked.now += LOOK_AGAIN_S
    asked.found = NO

    same = len(versions) > 1
    assert asked.support(CLASSIC) is (YES if same else NO)
    assert len(asked.probes) == (1 if same else 2)


def test_an_upgrade_ends_a_refusal_without_a_probe() -> None:
    asked = Asked(broker(4, K848), found=NO)
    assert asked.support(CONSUMER) is NO
    asked.apis = [broker(5, K848)]
    asked.now += LOOK_AGAIN_S

    assert asked.support(CONSUMER) is YES
    assert asked.probes == [CONSUMER]


def test_brokers_that_do_not_answer_are_asked_again_at_once() -> None:
    asked = Asked(broker(5))
    asked.failure = Unavailable("nobody there")
    with pytest.raises(Unavailable):
        asked.support(CLASSIC)
    asked.failure = None
    assert asked.support(CLASSIC) is YES


# --- probing ----------------------------------------------------------------------------------------------------------

NO_ERROR, UNKNOWN_MEMBER, UNSUPPORTED_VERSION, NO_GROUP_RIGHT, NON_EMPTY, UNKNOWN_TOPIC = 0, 25, 35, 30, 68, 3
HEARTBEATS = {CONSUMER: "ConsumerGroupHeartbeat", STREAMS: "StreamsGroupHeartbeat"}


def code(number: int) -> Any:
    return Row(error_code=number, error_message=None)


def metadata(topic: int) -> Answer:
    """``topic``: the error code of the topic that is asked for."""
    return each(Row(brokers=[Row(node_id=0)], topics=[Row(error_code=topic)]))


def deleting(number: int = NO_ERROR) -> Answer:
    return each(Row(results=[Row(error_code=number)]))


class Probed:
    """A probe at brokers by script; ``kafka``: where its transactions go."""

    def __init__(self, control: int = NO_ERROR, **answers: Answer) -> None:
        self.kafka = FakeKafka()
        self.kafka.create_topic("__tidegate", 1)
        script = {"FindCoordinator": coordinators(1), "Metadata": metadata(control), "DeleteGroups": deleting()}
        self.brokers = ByScript(**script | answers)
        wire = wire_to(self.brokers)
        self.probe = KafkaProbe(
            "__tidegate",
            wire,
            lambda: wire,
            lambda name: self.kafka.writer(name, transaction_timeout_s=10),
            self.kafka.topics,
        )

    def requests(self, name: str) -> list[Any]:
        return [request for asked, _, request in self.brokers.asked if asked == name]

    def support(self, kind: GroupKind) -> Support:
        return self.probe.of(kind).support


@pytest.fixture(params=HEARTBEATS, ids=str)
def kind(request: pytest.FixtureRequest) -> GroupKind:
    """Those that are joined by heartbeats."""
    return GroupKind(request.param)


def joining(kind: GroupKind, *answers: int) -> dict[str, Answer]:
    return {HEARTBEATS[kind]: each(*map(code, answers))}


def test_a_group_without_members_is_tried_without_one() -> None:
    probed = Probed()
    assert probed.support(EMPTY) is YES
    assert set(probed.kafka.calls) == {"fence", "send"}  # no commit: it is aborted
    assert [r.groups_names[0].startswith(PREFIX) for r in probed.requests("DeleteGroups")] == [True]


def test_a_member_joins_and_leaves_and_its_group_is_deleted(kind: GroupKind) -> None:
    probed = Probed(**joining(kind, NO_ERROR))

    found = probed.probe.of(kind)

    assert (found.support, found.reason) == (YES, known.PROBED)
    heartbeats = probed.requests(HEARTBEATS[kind])
    assert [h.member_epoch for h in heartbeats] == [0, -1]
    [deleted] = probed.requests("DeleteGroups")
    assert deleted.groups_names == [heartbeats[0].group_id]
    assert heartbeats[0].group_id.startswith(f"{PREFIX}{kind.value.lower()}-")
    assert probed.kafka.committed(heartbeats[0].group_id) == {}


def test_each_probe_has_a_group_of_its_own(kind: GroupKind) -> None:
    probed = Probed(**joining(kind, NO_ERROR))
    probed.support(kind)
    probed.support(kind)
    assert len({h.group_id for h in probed.requests(HEARTBEATS[kind])}) == 2


def test_what_the_coordinator_says_against_it_is_told(kind: GroupKind) -> None:
    probed = Probed(**joining(kind, NO_ERROR))
    probed.kafka.refuses = frozenset({EMPTY})  # the fake's groups have no members

    found = probed.probe.of(kind)

    assert (found.support, found.reason) == (NO, known.PROBE_REFUSED)
    assert "UNKNOWN_MEMBER_ID" in found.message
    assert [h.member_epoch for h in probed.requests(HEARTBEATS[kind])] == [0, -1]
    assert probed.requests("DeleteGroups")


def test_a_group_that_its_member_had_left_proves_nothing(kind: GroupKind) -> None:
    assert Probed(**joining(kind, NO_ERROR, UNKNOWN_MEMBER)).support(kind) is UNKNOWN


def test_what_is_switched_off_is_not_offered(kind: GroupKind) -> None:
    probed = Probed(**joining(kind, UNSUPPORTED_VERSION))
    assert probed.support(kind) is NOT_OFFERED
    assert "send" not in probed.kafka.calls


def no_right_to_write(probed: Probed) -> None:
    probed.kafka.fail("fence", NotAuthorized("allow the principal Write"))


def no_right_to_commit(probed: Probed) -> None:
    probed.kafka.fail("send", NotAuthorized("allow the principal Read"))


def nobody_there(probed: Probed) -> None:
    probed.kafka.fail("send", Unavailable("nobody there"))


@pytest.mark.parametrize(
    ("breaks", "reason"),
    [
        (no_right_to_write, known.NOT_AUTHORIZED),
        (no_right_to_commit, known.NOT_AUTHORIZED),
        (nobody_there, known.PROBE_FAILED),
    ],
)
def test_what_keeps_a_probe_from_its_end_is_no_no(
    kind: GroupKind, breaks: Callable[[Probed], None], reason: str
) -> None:
    probed = Probed(**joining(kind, NO_ERROR))
    breaks(probed)

    found = probed.probe.of(kind)

    assert (found.support, found.reason) == (UNKNOWN, reason)
    # Whoever has joined leaves.
    heartbeats = [h.member_epoch for h in probed.requests(HEARTBEATS[kind])]
    assert heartbeats in ([], [0, -1])


def test_without_the_right_to_join_it_is_not_known(kind: GroupKind) -> None:
    found = Probed(**joining(kind, NO_GROUP_RIGHT)).probe.of(kind)
    assert (found.support, found.reason) == (UNKNOWN, known.NOT_AUTHORIZED)
    assert PREFIX in found.message


@pytest.mark.parametrize("answer", [NO_GROUP_RIGHT, NON_EMPTY])
def test_a_group_that_cannot_be_deleted_changes_nothing(kind: GroupKind, answer: int) -> None:
    assert Probed(DeleteGroups=deleting(answer), **joining(kind, NO_ERROR)).support(kind) is YES


def test_without_a_topic_nothing_can_be_tried(kind: GroupKind) -> None:
    probed = Probed(control=UNKNOWN_TOPIC, **joining(kind, NO_ERROR))
    found = probed.probe.of(kind)
    assert (found.support, found.reason) == (UNKNOWN, known.NO_TOPIC)
    assert not probed.requests(HEARTBEATS[kind])

    probed.kafka.create_topic("orders", 1)
    assert probed.support(kind) is YES
