"""Acks that were written to do harm: what of them is believed, and what is kept."""

from __future__ import annotations

import gc
import tracemalloc

import pytest

from support.alone import alone
from tidegate.control.acks import MOST_AHEAD, MOST_GROUPS, MOST_LOOKS, Acks
from tidegate.control.records import Ack, AckKey

MIB = 1024 * 1024
MINE, VICTIM, STRANGER = "mine", "victim", "stranger"
KEY = AckKey(MINE, "orders", 0)


class Topic:
    """An ack topic of one partition beside a control topic, read by one reader."""

    def __init__(self, acks: Acks | None = None, *groups: str) -> None:
        self.acks = acks or Acks()
        self.acks.ask(groups or (MINE,))
        self.end = 100
        """The control topic's log end offset."""
        self.log: list[tuple[AckKey, Ack | None]] = []

    def write(self, key: AckKey, ack: Ack | None) -> None:
        """It is read at once."""
        self.log.append((key, ack))
        self._read(len(self.log) - 1)

    def read_again(self) -> None:
        """From the start, by the same reader."""
        self.acks.rewind()
        for offset in range(len(self.log)):
            self._read(offset)

    def _read(self, offset: int) -> None:
        self.acks.looked(0, offset + 1, self.end)
        self.acks.take(*self.log[offset], 0, offset)

    def says(self, key: AckKey = KEY) -> Ack | None:
        return next(reversed(self.acks.of([key.group]).get(key, ())), None)


def test_groups_that_nobody_asks_about_leave_nothing_behind() -> None:
    topic = Topic()
    for number in range(1_000):
        topic.write(AckKey(f"{STRANGER}-{number}", "orders", 0), Ack(1, 0, "m"))

    assert (topic.acks.bytes, topic.acks.of([f"{STRANGER}-1"])) == (0, {})
    assert topic.acks.heard, "somebody runs an agent, whatever it says"


def bytes_held_for_groups_that_nobody_asks_about() -> int:
    gc.collect()
    tracemalloc.start()
    try:
        acks = Acks()
        acks.ask((MINE,))
        acks.looked(0, 20_000, 100)
        for number in range(20_000):
            acks.take(AckKey(f"{number:06}" + "g" * 249, "orders", 0), Ack(1, 0, "m"), 0, number)
        gc.collect()
        return tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()


def test_groups_that_nobody_asks_about_take_no_memory() -> None:
    assert alone(bytes_held_for_groups_that_nobody_asks_about) < MIB / 10


def flooded() -> tuple[Acks, int]:
    """What was kept of 20,000 acks with the longest names of the largest characters; how many bytes it takes."""
    gc.collect()
    tracemalloc.start()
    try:
        acks = Acks(most_bytes=2 * MIB)
        acks.ask((MINE,))
        for number in range(20_000):
            key = AckKey(MINE, f"{number:06}" + "t" * 243, number)
            acks.looked(0, number + 1, 100)
            acks.take(key, Ack(1, 0, f"{number}" + "😀" * 255), 0, number)
        gc.collect()
        return acks, tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()


def test_a_flood_takes_no_more_memory_than_is_allowed() -> None:
    acks, held = alone(flooded)

    kept = acks.of([MINE])
    assert 500 < len(kept) < 2_000
    assert acks.bytes <= 2 * MIB
    assert held < 2.5 * MIB, "what it counts is what it takes"
    assert AckKey(MINE, "019999" + "t" * 243, 19_999) in kept, "the newest stay"


def test_a_flood_costs_only_the_group_that_it_names() -> None:
    topic = Topic(Acks(most_bytes=MIB), MINE, VICTIM)
    for number in range(100):
        topic.write(AckKey(MINE, "orders", number), Ack(1, number, "me"))
    for number in range(10_000):
        topic.write(AckKey(VICTIM, "orders", number), Ack(1, number, "them"))

    assert len(topic.acks.of([MINE])) == 100
    assert 0 < len(topic.acks.of([VICTIM])) < 10_000


def test_a_group_that_was_flooded_takes_nothing_once_it_is_forgotten() -> None:
    topic = Topic(Acks(most_bytes=MIB), VICTIM)
    for number in range(5_000):
        topic.write(AckKey(VICTIM, "orders", number), Ack(1, number, "them"))
    assert 0 < topic.acks.bytes <= MIB

    topic.acks.ask([f"g-{number}" for number in range(MOST_GROUPS)])

    assert (topic.acks.bytes, topic.acks.of([VICTIM])) == (0, {})


def test_one_partition_acked_over_and_over_takes_the_place_of_one() -> None:
    topic = Topic()
    topic.write(KEY, Ack(1, 0, "m"))
    once = topic.acks.bytes
    for number in range(1_000):
        topic.write(KEY, Ack(number % 100, number, "m"))

    assert topic.acks.bytes == once
    topic.write(KEY, None)
    assert (topic.acks.bytes, topic.says()) == (0, None)


def test_an_epoch_that_was_not_reached_is_not_believed_once_it_is() -> None:
    topic = Topic()
    topic.write(KEY, Ack(100, 42, "m"))
    assert topic.says() is None

    topic.end = 1_000

    assert topic.says() is None
    topic.read_again()
    assert topic.says() is None, "nor when the topic is read again for another group's sake"
    topic.write(KEY, Ack(100, 43, "m"))
    assert topic.says() == Ack(100, 43, "m")


def test_an_ack_that_is_not_believed_takes_the_place_of_its_members_earlier_one() -> None:
    topic = Topic()
    topic.write(KEY, Ack(50, 42, "m"))
    topic.write(KEY, Ack(2**63 - 1, 42, "m"))

    assert (topic.says(), topic.acks.bytes) == (None, 0)


def test_a_late_ack_of_a_former_owner_does_not_hide_the_owners() -> None:
    """It was waiting for a broker when its member lost the partition, or its process was frozen."""
    topic = Topic()
    topic.write(KEY, Ack(50, 42, "owner"))
    topic.write(KEY, Ack(0, -1, "former"))

    assert topic.acks.of([MINE])[KEY] == (Ack(50, 42, "owner"), Ack(0, -1, "former"))


def test_acks_of_very_many_members_for_one_partition_take_the_place_of_a_few() -> None:
    topic = Topic()
    for number in range(1_000):
        topic.write(KEY, Ack(1, 0, f"m{number:03}"))

    assert [ack.member for ack in topic.acks.of([MINE])[KEY]] == [f"m{1_000 - left:03}" for left in range(4, 0, -1)]
    held = topic.acks.bytes
    topic.write(KEY, Ack(1, 0, "m000"))
    assert topic.acks.bytes == held


def test_an_ack_that_is_not_believed_is_taken_back_also_where_another_member_has_spoken_since() -> None:
    """Or whoever reads the topic once its epoch is reached would believe it."""
    topic = Topic()
    topic.write(KEY, Ack(10**12, 0, "one"))
    topic.write(KEY, Ack(1, 0, "another"))
    assert topic.acks.ahead() == (KEY,)

    topic.write(KEY, Ack(2, 0, "one"))

    assert topic.acks.ahead() == ()


def test_what_is_ahead_is_remembered_to_be_taken_back_within_a_bound() -> None:
    topic = Topic()
    for number in range(MOST_AHEAD + 50):
        topic.write(AckKey(STRANGER, "orders", number), Ack(10**12, 0, "m"))
    assert len(topic.acks.ahead()) == MOST_AHEAD
    newest = AckKey(STRANGER, "orders", MOST_AHEAD + 49)
    assert newest in topic.acks.ahead()

    topic.write(newest, Ack(99, 0, "m"))

    assert newest not in topic.acks.ahead(), "its owner has spoken since"


def test_what_was_looked_at_is_remembered_within_a_bound_and_never_too_strictly() -> None:
    topic = Topic()
    for number in range(3 * MOST_LOOKS):
        topic.end += 1
        topic.write(AckKey(MINE, "orders", number), Ack(topic.end - 1, 0, "m"))
    liar = AckKey(MINE, "orders", 10**6)
    topic.write(liar, Ack(topic.end, 0, "m"))
    topic.end += 1_000

    topic.read_again()

    assert len(topic.acks.of([MINE])) == 3 * MOST_LOOKS, "what was true then is true now"
    assert topic.says(liar) is None
    assert sum(len(looks) for looks in topic.acks._looks.values()) <= MOST_LOOKS


@pytest.mark.parametrize("at_once", [1, 100])
def test_groups_that_were_not_asked_about_lately_are_forgotten(at_once: int) -> None:
    topic = Topic()
    topic.write(KEY, Ack(1, 0, "m"))
    names = [f"g-{number}" for number in range(MOST_GROUPS)]
    for first in range(0, MOST_GROUPS, at_once):
        assert topic.acks.ask(names[first : first + at_once])

    assert (topic.says(), topic.acks.bytes) == (None, 0)
    assert not topic.acks.ask(names)
    assert topic.acks.ask([MINE]), "the topic has to be read again for it"


def test_however_many_are_asked_about_at_once_all_are_kept() -> None:
    acks = Acks()
    names = [f"g-{number}" for number in range(2 * MOST_GROUPS)]
    assert acks.ask(names)
    assert not acks.ask(names)
