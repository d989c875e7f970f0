"""Where partitions without a committed offset begin: KIP-1327's behaviour table and test plan, and what they leave."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate_agent.ages import Clock, PartitionTable
from tidegate_agent.gates import Known, Partition
from tidegate_agent.records import PartitionKey, PartitionSeen
from tidegate_agent.start import (
    ALIVE_S,
    Options,
    Rule,
    RuleError,
    Start,
    Verdict,
    judge,
    parse_max_age,
    parse_new_partitions,
    reset_policy,
    rule_for,
)

HOUR = 3_600_000
NOW_MS = 1_763_700_000_000
DEADLINE = 1_000.0
BEFORE, AFTER = DEADLINE - 1, DEADLINE
ORDERS = Partition("orders", 4)
INITIAL = PartitionSeen(initial=True)
EARLIEST = {"earliest": Start.EARLIEST}
LATEST = {"latest": Start.LATEST}


def known(
    *records: tuple[int, PartitionSeen | None] | tuple[int, PartitionSeen | None, str],
    clock: Clock | None = None,
    topic_id: str | None = "new",
) -> Known:
    """Partition records of orders: number, value and, unless it is the topic that is there now, the topic's id."""
    table = PartitionTable()
    for number, value, *ids in records:
        table.take(PartitionKey("orders", ids[0] if ids else "new", number), value)
    ids = {"orders": topic_id} if topic_id is not None else {}
    return Known(discovered=table.view(), topic_ids=ids, clock=clock)


def aged(age_ms: int) -> PartitionSeen:
    """Seen so long before `NOW_MS`."""
    return PartitionSeen(NOW_MS - age_ms)


def now(*, is_live: bool = True, at: float = AFTER, ago_s: float = 0.0) -> Clock:
    """A clock that reads `NOW_MS` at this time."""
    return Clock(NOW_MS - round(ago_s * 1000), at - ago_s, is_live)


def start(verdict: Verdict | float) -> Start | None:
    assert isinstance(verdict, Verdict), f"waits until {verdict}"
    return verdict.start


def asked(rule: Rule, said: Known, at: float) -> Verdict | float:
    """Of `ORDERS`, which was assigned just now."""
    return judge(rule, said, ORDERS, assigned=at, now=at, deadline=DEADLINE)


# --- the KIP's tables -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("age_ms", [0, 1, HOUR - 1, HOUR, HOUR + 1, 30 * 24 * HOUR])
@pytest.mark.parametrize("max_age_ms", [0, 1, HOUR - 1, HOUR, HOUR + 1, 2**63 - 1])
def test_a_partition_no_older_than_the_threshold_is_hot_and_any_other_cold(age_ms: int, max_age_ms: int) -> None:
    verdict = asked(Rule(Start.EARLIEST, max_age_ms), known((4, aged(age_ms)), clock=now()), AFTER)
    why = f"it is {age_ms} ms old, and new up to {max_age_ms} ms"
    assert verdict == Verdict(Start.EARLIEST if age_ms <= max_age_ms else None, why)


UNKNOWN = {
    "no control topic": Known(),
    "nothing of this topic": known(clock=now()),
    "it predates discovery": known((4, INITIAL), clock=now()),
    "no broker's time": known((4, aged(1))),
    "taken back": known((4, aged(1)), (5, aged(1)), (4, None), clock=now()),
    "a gap that no expansion leaves": known((3, INITIAL), (5, aged(1)), clock=now()),
    "an undiscovered one, and no broker's time": known((0, INITIAL), (1, INITIAL)),
}


@pytest.mark.parametrize("case", UNKNOWN)
@pytest.mark.parametrize("rule", [Rule(Start.EARLIEST, 2**63 - 1), Rule(Start.EARLIEST, 0)])
def test_a_partition_whose_age_is_unknown_follows_latest(rule: Rule, case: str) -> None:
    verdict = asked(rule, UNKNOWN[case], AFTER)
    assert start(verdict) is None
    assert verdict.is_known is (case == "it predates discovery")


@pytest.mark.parametrize(
    ("max_age_ms", "reset", "rule"),
    [
        (HOUR, "latest", Rule(Start.EARLIEST, HOUR)),
        (0, "latest", Rule(Start.EARLIEST, 0)),
        (HOUR, "largest", Rule(Start.EARLIEST, HOUR)),
        (HOUR, " END ", Rule(Start.EARLIEST, HOUR)),
        (-1, "latest", None),
        (None, "latest", None),
        (HOUR, "earliest", None),
        (HOUR, "smallest", None),
        (HOUR, "beginning", None),
        (HOUR, "none", None),
        (HOUR, "error", None),
        (HOUR, "by_duration:PT1H", None),
        (HOUR, None, None),
    ],
)
def test_the_threshold_counts_only_where_the_policy_is_latest(
    max_age_ms: int | None, reset: str | None, rule: Rule | None
) -> None:
    assert rule_for(Options(latest_max_age_ms=max_age_ms), reset_policy(reset)) == rule


@pytest.mark.parametrize(
    ("value", "age_ms"), [(HOUR, HOUR), (str(HOUR), HOUR), (0, 0), (-1, -1), ("-1", -1), ("\x1c0\t", 0)]
)
def test_a_threshold_is_milliseconds_from_minus_one(value: object, age_ms: int) -> None:
    assert parse_max_age(value) == age_ms


@pytest.mark.parametrize("value", [-2, "-2", "1h", "", 1.5, "1.5", True, None, 2**63, "1_000", "\u0663", "\xa01"])
def test_any_other_threshold_is_a_configuration_error(value: object) -> None:
    with pytest.raises(RuleError, match="whole number of milliseconds, or -1"):
        parse_max_age(value)


# --- the accepted form ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "reset", "rule"),
    [
        (Options(None, Start.EARLIEST), Start.LATEST, Rule(Start.EARLIEST)),
        (Options(None, Start.LATEST), Start.EARLIEST, Rule(Start.LATEST)),
        (Options(None, Start.EARLIEST), None, Rule(Start.EARLIEST)),
        (Options(None, Start.EARLIEST), Start.EARLIEST, None),
        (Options(None, Start.LATEST), Start.LATEST, None),
        (Options(HOUR, Start.EARLIEST), Start.LATEST, Rule(Start.EARLIEST, HOUR)),
        (Options(-1, Start.EARLIEST), Start.LATEST, Rule(Start.EARLIEST)),
        (Options(HOUR, Start.LATEST), Start.EARLIEST, Rule(Start.LATEST)),
        (Options(HOUR, Start.LATEST), Start.LATEST, None),
    ],
)
def test_new_partitions_have_a_policy_of_their_own_and_the_threshold_says_which_are_new(
    options: Options, reset: Start | None, rule: Rule | None
) -> None:
    assert rule_for(options, reset) == rule


@pytest.mark.parametrize("wanted", Start)
def test_without_a_threshold_whatever_came_after_the_first_discovery_is_new_and_no_clock_is_needed(
    wanted: Start,
) -> None:
    rule = Rule(wanted)
    assert start(asked(rule, known((4, aged(365 * 24 * HOUR))), BEFORE)) is wanted
    assert start(asked(rule, known((4, INITIAL)), BEFORE)) is None
    assert start(asked(rule, Known(), BEFORE)) is None


@pytest.mark.parametrize("value", ["none", "by_duration:PT1H", "", 1, None])
def test_a_policy_for_new_partitions_that_the_agent_has_not_is_a_configuration_error(value: object) -> None:
    assert parse_new_partitions("Earliest") is Start.EARLIEST
    with pytest.raises(RuleError, match="earliest or latest"):
        parse_new_partitions(value)


def test_the_consumers_own_word_wins_also_where_it_turns_the_rule_off() -> None:
    environment = Options(HOUR, Start.EARLIEST)
    assert Options(latest_max_age_ms=-1).over(environment) == Options(-1, Start.EARLIEST)
    assert Options(latest_max_age_ms=0, new_partitions=Start.LATEST).over(environment) == Options(0, Start.LATEST)
    assert Options().over(environment) == environment


# --- the broker's clock -----------------------------------------------------------------------------------------------


def test_the_clock_goes_on_by_the_time_that_has_passed_here_since_it_arrived() -> None:
    rule, said = Rule(Start.EARLIEST, HOUR), known((4, aged(HOUR - 5_000)), clock=now(at=AFTER))
    assert start(asked(rule, said, AFTER + 5.0)) is Start.EARLIEST
    assert start(asked(rule, said, AFTER + 5.002)) is None


def test_a_broker_whose_clock_was_behind_when_it_saw_the_partition_makes_it_no_younger_than_new() -> None:
    assert start(asked(Rule(Start.EARLIEST, 0), known((4, aged(-500)), clock=now()), AFTER))


def test_a_clock_that_was_in_the_topic_already_proves_old_age_but_not_youth() -> None:
    stale = now(is_live=False, at=BEFORE)
    old, young = known((4, aged(HOUR + 1)), clock=stale), known((4, aged(HOUR)), clock=stale)
    rule = Rule(Start.EARLIEST, HOUR)
    assert start(asked(rule, old, BEFORE)) is None
    assert asked(rule, young, BEFORE) == DEADLINE, "the next one tells"
    assert start(asked(rule, young, AFTER)) is None, "by what has passed here meanwhile"
    assert start(asked(Rule(Start.EARLIEST, HOUR + 1_000), young, AFTER)) is Start.EARLIEST


def test_a_partition_that_has_grown_old_since_it_was_assigned_is_new() -> None:
    """Its gate was closed meanwhile, or its record was waited for."""
    rule, said = Rule(Start.EARLIEST, HOUR), known((4, aged(2 * HOUR)), clock=now(at=AFTER + 3_600))
    assert judge(rule, said, ORDERS, assigned=AFTER, now=AFTER + 3_600, deadline=DEADLINE) == Verdict(
        Start.EARLIEST, f"it is {HOUR} ms old, and new up to {HOUR} ms"
    )


@given(
    max_age_ms=st.integers(0, 100_000),
    age_ms=st.integers(0, 200_000),
    is_live=st.booleans(),
    arrived_ago_ms=st.integers(0, 50_000),
    behind_ms=st.integers(0, 300_000),
    waited=st.booleans(),
)
def test_what_is_as_young_as_the_threshold_is_never_taken_for_old(
    max_age_ms: int, age_ms: int, is_live: bool, arrived_ago_ms: int, behind_ms: int, waited: bool
) -> None:
    """`behind_ms`: how old the clock record was when it arrived."""
    at = AFTER if waited else BEFORE
    behind = 0 if is_live else behind_ms
    clock = Clock(NOW_MS - arrived_ago_ms - behind, at - arrived_ago_ms / 1000, is_live)
    verdict = asked(Rule(Start.EARLIEST, max_age_ms), known((4, aged(age_ms)), clock=clock), at)
    if isinstance(verdict, float):
        assert not is_live
        assert not waited
    elif verdict.start is None:
        assert age_ms > max_age_ms
    else:
        assert age_ms <= max_age_ms + behind + 1, "a millisecond is rounding's"


# --- which record counts ----------------------------------------------------------------------------------------------


def test_a_record_of_a_topic_that_was_made_anew_since_does_not_decide() -> None:
    rule = Rule(Start.EARLIEST, HOUR)
    old_says_cold = known((4, aged(2 * HOUR), "old"), (4, aged(1)), clock=now())
    old_says_hot = known((4, aged(1), "old"), (4, aged(2 * HOUR)), clock=now())
    assert start(asked(rule, old_says_cold, AFTER)) is Start.EARLIEST
    assert start(asked(rule, old_says_hot, AFTER)) is None
    newest_is_of_the_old = known((4, aged(2 * HOUR)), (4, aged(1), "old"), clock=now())
    assert start(asked(rule, newest_is_of_the_old, AFTER)) is None


def test_where_the_brokers_do_not_tell_the_topics_id_the_newest_record_of_the_partition_counts() -> None:
    rule = Rule(Start.EARLIEST, HOUR)
    of_another_partition = known((4, aged(1)), (5, INITIAL, "another"), clock=now(), topic_id=None)
    assert start(asked(rule, of_another_partition, AFTER)) is Start.EARLIEST
    said = known((4, aged(2 * HOUR)), (4, aged(1), "another"), clock=now(), topic_id=None)
    assert start(asked(rule, said, AFTER)) is Start.EARLIEST


LATER = {
    "made while nobody looked": known((0, INITIAL), (3, INITIAL), clock=now(ago_s=3600.0)),
    "of a topic made anew while nobody looked": known((4, INITIAL, "old"), clock=now()),
}


@pytest.mark.parametrize("case", LATER)
@pytest.mark.parametrize("rule", [Rule(Start.EARLIEST, 0), Rule(Start.EARLIEST)])
def test_what_discovery_has_not_come_to_yet_is_waited_for_and_counts_as_new(rule: Rule, case: str) -> None:
    assert asked(rule, LATER[case], BEFORE) == DEADLINE
    assert start(asked(rule, LATER[case], AFTER)) is Start.EARLIEST


@pytest.mark.parametrize(
    ("clock", "waits"),
    [
        (None, False),
        (now(at=BEFORE, ago_s=ALIVE_S), True),
        (now(at=BEFORE, ago_s=ALIVE_S + 0.01), False),
        (now(at=BEFORE, is_live=False, ago_s=60.0), True),
    ],
)
def test_a_record_is_waited_for_only_while_somebody_may_write_it(clock: Clock | None, waits: bool) -> None:
    verdict = asked(Rule(Start.EARLIEST, HOUR), known(clock=clock), BEFORE)
    assert isinstance(verdict, float) is waits
    if not waits:
        assert start(verdict) is None
