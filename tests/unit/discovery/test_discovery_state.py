"""FLIP-288's state, with a number of partitions in place of a set of them."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.discovery import sightings
from tidegate.discovery import state as core
from tidegate.discovery.state import Discovered, DiscoveryState, KnownTopic, grown, settle, without
from tidegate.kafka.model import Topic, TopicPartition

ORDERS = Topic("orders", "id-1", 3)


def discover(state: DiscoveryState, seen: Mapping[str, Topic], existed: Mapping[str, int] | None = None) -> Discovered:
    return core.discover(state, seen, existed or {})


def parts(topic: str, *numbers: int) -> tuple[TopicPartition, ...]:
    return tuple(TopicPartition(topic, number) for number in numbers)


def after_first(*topics: Topic) -> DiscoveryState:
    return discover(DiscoveryState(), {t.name: t for t in topics}).state


def test_what_the_first_discovery_finds_is_initial_and_not_new() -> None:
    found = discover(DiscoveryState(), {"orders": ORDERS})

    assert found.new == ()
    assert found.state == DiscoveryState(True, {"orders": KnownTopic("id-1", 3, 3)})
    assert found.state.is_initial(TopicPartition("orders", 2))
    assert not found.state.is_initial(TopicPartition("orders", 3))


def test_a_first_discovery_that_finds_nothing_is_one_all_the_same() -> None:
    state = after_first()

    assert state.initial_discovery_finished
    assert discover(state, {"orders": ORDERS}).new == parts("orders", 0, 1, 2)


def test_partitions_added_later_are_new_until_they_are_settled() -> None:
    state = after_first(ORDERS)
    grown = {"orders": Topic("orders", "id-1", 5)}

    found = discover(state, grown)
    again = discover(found.state, grown)
    settled = settle(again.state, parts("orders", 3, 4))

    assert found.new == again.new == parts("orders", 3, 4)
    assert discover(settled, grown).new == ()
    assert not settled.is_initial(TopicPartition("orders", 3))


def test_a_partition_above_one_that_is_not_settled_is_settled_all_the_same() -> None:
    grown = {"orders": Topic("orders", "id-1", 6)}
    state = settle(after_first(ORDERS), parts("orders", 5))

    assert discover(state, grown).new == parts("orders", 3, 4)
    assert discover(settle(state, parts("orders", 4)), grown).new == parts("orders", 3)
    assert settle(state, parts("orders", 3, 4)).topics["orders"] == KnownTopic("id-1", 3, 6)


def test_a_topic_made_anew_under_its_name_is_another_topic() -> None:
    state = after_first(ORDERS)
    anew = {"orders": Topic("orders", "id-2", 2)}

    found = discover(state, anew)

    assert found.new == parts("orders", 0, 1)
    assert not found.state.is_initial(TopicPartition("orders", 0))


def test_a_broker_that_lags_behind_takes_nothing_back() -> None:
    state = settle(discover(after_first(ORDERS), {"orders": Topic("orders", "id-2", 2)}).state, parts("orders", 0, 1))

    for lagging in ({"orders": ORDERS}, {"orders": Topic("orders", "id-2", 1)}, {}):
        found = discover(state, lagging)
        assert found.new == ()
        assert found.state == state


def test_a_topic_the_group_turns_to_has_its_old_partitions_as_initial_ones() -> None:
    state = after_first()

    found = discover(state, {"orders": ORDERS}, existed={"id-1": 2})

    assert found.new == parts("orders", 2)
    assert found.state.topics["orders"] == KnownTopic("id-1", 2, 2)


@pytest.mark.parametrize("shown", [1, 3, 5])
def test_partitions_that_existed_are_old_also_where_a_broker_does_not_show_them_yet(shown: int) -> None:
    look = {"orders": Topic("orders", "id-1", shown)}

    for state in (DiscoveryState(), after_first()):
        found = discover(state, look, existed={"id-1": 5})
        later = discover(found.state, {"orders": Topic("orders", "id-1", 6)})

        assert found.new == ()
        assert found.state.topics["orders"] == KnownTopic("id-1", 5, 5)
        assert later.new == parts("orders", 5)


def test_what_was_seen_of_a_topic_does_not_shrink() -> None:
    sizes = grown({}, {"orders": ORDERS})

    for lagging in ({"orders": Topic("orders", "id-1", 2)}, {}):
        assert grown(sizes, lagging) == {"id-1": 3}
    assert grown(sizes, {"orders": Topic("orders", "id-1", 5)}) == {"id-1": 5}
    assert grown(sizes, {"orders": Topic("orders", "id-2", 1)}) == {"id-1": 3, "id-2": 1}


def test_a_broker_that_lags_two_topics_behind_does_not_hide_the_one_that_is_there() -> None:
    """The name was removed and made anew twice, and the broker still shows the first."""
    state = after_first(ORDERS)
    ids = ["id-2", "id-3", "id-1", "id-2", "id-3"]
    looks = [discover(state, {"orders": Topic("orders", "id-2", 2)}, {})]
    for topic_id in ids[1:]:
        looks.append(discover(looks[-1].state, {"orders": Topic("orders", topic_id, 2)}, {}))

    assert [look.new for look in looks] == [parts("orders", 0, 1)] * 2 + [()] * 2 + [parts("orders", 0, 1)]
    assert looks[-1].state.topics["orders"].topic_id == "id-3"


def test_of_a_topic_that_has_long_been_gone_nothing_is_known_but_what_would_be_old() -> None:
    state = without(settle(after_first(ORDERS), parts("orders", 4)), {"orders"})

    assert state == DiscoveryState(True, {}, {"id-1": 5})
    again = discover(state, {"orders": Topic("orders", "id-1", 6)}, {})
    assert again.new == parts("orders", 5)
    assert again.state == DiscoveryState(True, {"orders": KnownTopic("id-1", 5, 5)})
    assert discover(state, {"orders": Topic("orders", "id-2", 2)}, {}).new == parts("orders", 0, 1)


def test_of_topics_that_come_and_go_the_newest_thousand_are_remembered() -> None:
    state = DiscoveryState(True)
    for number in range(1005):
        name = f"t-{number}"
        state = without(discover(state, {name: Topic(name, f"id-{number}", 1)}, {}).state, {name})

    assert list(state.gone) == [f"id-{number}" for number in range(5, 1005)]


@given(st.lists(st.integers(1, 8), min_size=1, max_size=8), st.data())
def test_every_partition_after_the_first_look_is_new_exactly_until_it_is_settled(
    sizes: list[int], data: st.DataObject
) -> None:
    state, settled, top = DiscoveryState(), set[TopicPartition](), 0
    for look, size in enumerate(sizes):
        found = discover(state, {"t": Topic("t", "id", size)})
        state = found.state
        top = max(top, size)
        expected = set() if look == 0 else set(parts("t", *range(sizes[0], size))) - settled
        assert set(found.new) == expected
        if found.new:
            done = data.draw(st.sets(st.sampled_from(found.new)))
            state = settle(state, done)
            settled |= done


def test_of_topics_that_looks_do_not_show_any_more_the_newest_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core, "_MOST_UNSEEN", 10, raising=False)
    sizes: dict[str, int] = {}
    for number in range(100):
        sizes = grown(sizes, {"kept": Topic("kept", "kept", 3), "t": Topic("t", f"id-{number}", number)})

    assert sizes == {**{f"id-{number}": number for number in range(89, 100)}, "kept": 3}


def test_sightings_of_topics_that_nobody_remembers_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sightings, "_SWEEP_AFTER", 10, raising=False)
    seen = sightings.Sightings()
    for number in range(1000):
        topics = {"kept": Topic("kept", "kept", 3), f"t-{number}": Topic(f"t-{number}", f"id-{number}", 1)}
        seen.note({"kept": 3 if number else 0}, topics, number * sightings.HEARD_OF_S)

    assert seen.long_ago(["kept"], 1001 * sightings.HEARD_OF_S) == {"kept": 3}
    assert len(seen._long) + len(seen._recent) < 30
