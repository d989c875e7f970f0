"""Copies are compared with their sources for as long as a mirror copies: anywhere, not only at their ends."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from random import Random

import pytest

from support.mirror.fake_cluster import FakeMirrorCluster
from support.mirror.passes import World
from support.mirror.written import Written, batch
from tidegate.kafka.errors import Unavailable
from tidegate.kafka.model import Topic, TopicPartition
from tidegate.mirror.comparison import Sample
from tidegate.offset_mirror import opening
from tidegate.offset_mirror import status as mirror_status
from tidegate.offset_mirror.comparing import Comparing, differed
from tidegate.offset_mirror.copying import Sampling
from tidegate.offset_mirror.topics import Copied
from tidegate.resources.offset_mirror import CopyState, DifferentPlace, OffsetMirrorStatus

P, Q = TopicPartition("t", 0), TopicPartition("t", 1)
NOW = datetime(2026, 11, 27, 12, tzinfo=UTC)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """It compares a hundred times as often as it is asked to."""
    monkeypatch.setattr(opening, "Sampling", lambda interval_s, comparing: Sampling(interval_s / 100, comparing))
    world = World()
    world.spec["parity"] = {"interval": "2s"}
    yield world
    world.close()


def spoil(cluster: FakeMirrorCluster, offset: int, value: bytes = b"somebody else's") -> None:
    log = cluster.log("t").log
    [at] = [at for at, one in enumerate(log) if one.base <= offset < one.until]
    content = {place: Written(1, b"foreign", value) for place in range(log[at].until - log[at].base)}
    stamp = struct.unpack_from(">qhi", log[at].data, 43)
    log[at] = replace(log[at], data=batch(log[at].base, content, len(content), producer=stamp))


def test_what_was_compared_is_counted(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.one_pass()
    world.copied()

    def has_compared() -> bool:
        return world.status.parity is not None and world.status.parity.records > 0

    monkeypatch.setattr(mirror_status, "_WRITTEN_EVERY", timedelta(0))
    world.passes(has_compared)
    parity = world.status.parity
    assert parity is not None
    assert parity.places > 0
    assert parity.different == ()
    assert parity.at is not None
    assert parity.since <= parity.at


def test_a_copy_that_differs_anywhere_is_not_written_any_more(world: World) -> None:
    """Its end is what the source has: who looks only there would go on."""
    world.one_pass()
    world.copied()
    for offset in range(10):
        spoil(world.there, offset)

    world.passes(lambda: world.condition("Drifted").status == "True")
    end = world.there.log("t").end
    world.here.write("t", 5)
    world.here.write("t", 5, 1)
    world.passes(lambda: world.there.log("t", 1).end == 10)

    assert world.there.log("t").end == end
    parity = world.status.parity
    assert parity is not None
    [place] = parity.different
    assert (place.topic, place.partition) == ("t", 0)
    assert "differ" in place.message
    assert place.message in world.condition("Ready").message
    assert world.status.topics[0].state is CopyState.DRIFTED

    # Another process does not have to find it first.
    world.run(world.reconciler.stop())
    world.restart()
    world.passes(lambda: world.there.log("t", 1).end == 10 and world.status.parity != parity)
    for _ in range(20):
        world.one_pass()
    assert world.condition("Drifted").status == "True"
    assert world.there.log("t").end == end

    # What somebody puts right goes on.
    for offset in range(10):
        spoil(world.there, offset, b"record")
    world.passes(lambda: world.condition("Drifted").status == "False")
    world.copied()
    assert world.there.log("t").end == end + 5


def drifted(world: World) -> int:
    """Where the copy of the first partition has ended, since it is not what the source has."""
    world.one_pass()
    world.copied()
    for offset in range(10):
        spoil(world.there, offset)
    world.passes(lambda: world.condition("Drifted").status == "True")
    return world.there.log("t").end


def change_a_setting(world: World) -> None:
    kept = world.here.kept["t"].settings
    kept["retention.ms"] = "1000000"
    world.passes(lambda: "settings" in world.condition("Ready").message)
    kept["retention.ms"] = "-1"


def lose_the_topic(world: World) -> None:
    """As brokers do that have just begun."""
    topic = world.here.kept.pop("t")
    world.passes(lambda: world.status.topics[0].state is CopyState.SOURCE_GONE)
    world.here.kept["t"] = topic


def hide_the_topic(world: World) -> None:
    world.here.hidden.add("t")
    world.passes(lambda: "no longer shows topic t" in world.condition("Ready").message)
    world.here.hidden.clear()


@pytest.mark.parametrize("change", [change_a_setting, lose_the_topic, hide_the_topic])
def test_a_copy_that_differs_still_does_after_it_was_not_copied_for_a_while(
    world: World, change: Callable[[World], None]
) -> None:
    end = drifted(world)

    change(world)
    world.here.write("t", 5)
    world.here.write("t", 5, 1)
    world.passes(lambda: world.there.log("t", 1).end == 10)

    assert world.condition("Drifted").status == "True"
    assert world.there.log("t").end == end
    parity = world.status.parity
    assert parity is not None
    assert [place.partition for place in parity.different] == [0]


def test_of_each_topic_that_differs_something_is_told() -> None:
    places = [DifferentPlace(topic=t, partition=n, offset=0, message="differs") for t in "abc" for n in range(12)]
    clusters = FakeMirrorCluster("here"), FakeMirrorCluster("there")

    told = Comparing(*clusters, lambda: NOW, known=places).told.different

    assert [(one.topic, one.partition) for one in told] == [*(("a", n) for n in range(8)), ("b", 0), ("c", 0)]


def test_a_copy_that_has_lost_its_end_gets_it_back_while_the_source_is_idle(world: World) -> None:
    """As by an unclean election at the target. It is in sync as far as was seen, and groups are carried beyond it."""
    world.one_pass()
    world.copied()
    log = world.there.log("t")
    log.log = [one for one in log.log if one.until <= 15]
    log.forget_producers()

    world.passes(lambda: world.there.log("t").end == 20)
    assert log.visible() == world.here.log("t").visible()
    world.copied()


def test_what_somebody_else_writes_to_a_copy_is_seen_while_the_source_is_idle(world: World) -> None:
    world.one_pass()
    world.copied()
    world.there.write("t", 1)

    world.passes(lambda: world.condition("Drifted").status == "True" or world.copying[0].comparing.told.places > 50)
    assert world.condition("Drifted").status == "True"
    assert "somebody else" in world.status.worst[0].message


def test_what_no_pass_has_told_before_a_suspension_outlives_the_process(world: World) -> None:
    world.one_pass()
    world.copied()
    for offset in range(10):
        spoil(world.there, offset)
    while not world.copying[0].comparing.different:
        world.run(asyncio.sleep(0.01))
    world.spec["suspend"] = True

    world.one_pass()

    parity = world.status.parity
    assert parity is not None
    assert [place.partition for place in parity.different] == [0]
    assert world.status.topics[0].state is CopyState.DRIFTED
    world.run(world.reconciler.stop())
    world.restart()
    del world.spec["suspend"]
    world.one_pass()
    world.passes(lambda: world.condition("Drifted").status == "True")


@pytest.mark.parametrize("meanwhile", [False, True], ids=["running", "restarted"])
def test_a_copy_that_was_deleted_for_it_is_copied_again(world: World, meanwhile: bool) -> None:
    drifted(world)
    if meanwhile:
        world.run(world.reconciler.stop())
    del world.there.kept["t"]
    if meanwhile:
        world.restart()

    world.passes(lambda: "t" in world.there.kept)
    world.copied()

    assert world.there.log("t").visible() == world.here.log("t").visible()
    parity = world.status.parity
    assert parity is not None
    assert parity.different == ()


def test_a_copy_that_nobody_asks_for_any_more_differs_no_more(world: World) -> None:
    drifted(world)
    world.run(world.reconciler.stop())
    world.restart()
    world.spec["topics"] = {"include": ["another"]}

    world.one_pass()
    world.passes(lambda: world.status.parity is not None and world.status.parity.different == ())

    assert world.condition("Drifted").status == "False"


class Clusters:
    """Two clusters with the same six records."""

    def __init__(self) -> None:
        self.here, self.there = FakeMirrorCluster("here"), FakeMirrorCluster("there")
        for cluster in (self.here, self.there):
            cluster.create_topic("t", 2, {})
            cluster.write("t", 6)
        topics = (Topic("t", cluster.kept["t"].topic_id, 2) for cluster in (self.here, self.there))
        self.copied = Copied(*topics, compacts=False, filler_key=None)

    def comparing(self, *known: DifferentPlace) -> Comparing:
        return Comparing(self.here, self.there, lambda: NOW, known, Random(1))


def place(partition: TopicPartition, offset: int) -> DifferentPlace:
    return DifferentPlace(topic=partition.topic, partition=partition.partition, offset=offset, message="they differ")


def test_places_are_chosen_from_all_that_the_copies_have() -> None:
    clusters = Clusters()
    comparing = clusters.comparing()

    chosen = {comparing.choose([(P, 6), (Q, 2)]) for _ in range(200)}

    assert chosen == {*((P, offset) for offset in range(6)), *((Q, offset) for offset in range(2))}
    assert comparing.choose([]) is None


def test_nothing_is_chosen_that_is_deleted_already() -> None:
    clusters = Clusters()
    comparing = clusters.comparing()
    clusters.here.log("t").delete_records(4)
    assert comparing.place(P, 0, clusters.copied) is None

    assert {comparing.choose([(P, 6)]) for _ in range(50)} == {(P, 4), (P, 5)}


def test_a_place_that_differed_is_compared_again_every_other_time() -> None:
    comparing = Clusters().comparing(place(Q, 7))

    chosen = [comparing.choose([(P, 6)]) for _ in range(10)]

    assert chosen.count((Q, 7)) == 5
    assert comparing.choose([]) == (Q, 7)


@pytest.mark.parametrize("which", ["here", "there"])
def test_a_cluster_that_does_not_answer_says_nothing_of_a_copy(which: str) -> None:
    clusters = Clusters()
    comparing = clusters.comparing()
    cluster = {"here": clusters.here, "there": clusters.there}[which]
    cluster.headless.add(P)
    assert comparing.place(P, 0, clusters.copied) is None

    cluster.headless.clear()
    cluster.kept["t"].topic_id = "another topic of that name"
    assert comparing.place(P, 0, clusters.copied) is None


def test_what_differs_only_once_does_not_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where a leader of the source has lost what its successor has."""
    clusters = Clusters()
    spoil(clusters.there, 3)
    comparing = clusters.comparing()
    source, reads = clusters.here.source, 0

    def lagging(partition: TopicPartition, topic_id: str) -> object:
        nonlocal reads
        reads += 1
        if reads == 2:
            spoil(clusters.there, 3, b"record")
        return source(partition, topic_id)

    monkeypatch.setattr(clusters.here, "source", lagging)

    assert comparing.place(P, 3, clusters.copied) == Sample(3)
    assert reads == 2


def test_the_first_difference_of_a_copy_is_kept_until_it_is_over() -> None:
    comparing = Clusters().comparing()

    comparing.note(P, 3, Sample(0, "the records at offset 3 differ"))
    comparing.note(P, 5, Sample(0, "the records at offset 5 differ"))
    comparing.note(P, 0, Sample(3))
    assert [(one.offset, one.message) for one in comparing.told.different] == [(3, "the records at offset 3 differ")]
    comparing.note(P, 3, Sample(3))

    assert comparing.told.different == ()
    assert (comparing.told.places, comparing.told.records) == (4, 6)


def test_the_place_that_is_told_is_where_the_two_differ() -> None:
    """And not where the comparison began: what is told apart has to be found there, however much is answered next."""
    clusters = Clusters()
    spoil(clusters.there, 4)
    comparing = clusters.comparing()
    found = comparing.place(P, 1, clusters.copied)
    assert found is not None

    comparing.note(P, 1, found)

    assert [one.offset for one in comparing.told.different] == [4]


def compare_again(comparing: Comparing, clusters: Clusters) -> tuple[DifferentPlace, ...]:
    """The places that differ, after some more looks at them."""
    for _ in range(4):
        chosen = comparing.choose([])
        if chosen is not None and (found := comparing.place(*chosen, clusters.copied)) is not None:
            comparing.note(*chosen, found)
    return comparing.told.different


def test_a_difference_is_not_over_where_only_what_is_before_it_was_deleted() -> None:
    clusters = Clusters()
    spoil(clusters.there, 4)
    comparing = clusters.comparing(place(P, 2))

    for cluster in (clusters.here, clusters.there):
        cluster.log("t").delete_records(3)
        assert compare_again(comparing, clusters)
    spoil(clusters.there, 4, b"record")

    assert not compare_again(comparing, clusters)


def test_a_difference_is_not_over_while_the_source_has_nothing_there() -> None:
    clusters = Clusters()
    clusters.there.write("t", 3)
    comparing = clusters.comparing(place(P, 7))

    assert compare_again(comparing, clusters)
    clusters.here.write("t", 3)

    assert not compare_again(comparing, clusters)


@pytest.mark.parametrize("which", ["here", "there"])
def test_a_difference_is_over_once_it_was_deleted(which: str) -> None:
    clusters = Clusters()
    spoil(clusters.there, 4)
    comparing = clusters.comparing(place(P, 2))

    {"here": clusters.here, "there": clusters.there}[which].log("t").delete_records(6)

    assert not compare_again(comparing, clusters)


def test_all_places_that_differ_are_known_to_what_copies_next_in_this_process() -> None:
    partitions = [TopicPartition("t", number) for number in range(12)]

    known = differed(Clusters().comparing(*(place(partition, 3) for partition in partitions)), OffsetMirrorStatus())

    assert [one.partition for one in known] == list(range(12))


def test_what_a_record_is_called_cannot_break_a_line() -> None:
    comparing = Clusters().comparing()

    comparing.note(P, 3, Sample(0, "a\nb" + "c" * 1000))

    [place] = comparing.told.different
    assert "\n" not in place.message
    assert len(place.message) == 500


def test_no_answer_is_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    clusters = Clusters()
    comparing = clusters.comparing()

    def refused(partition: TopicPartition, topic_id: str) -> object:
        raise Unavailable("nobody is there")

    monkeypatch.setattr(clusters.there, "source", refused)

    assert comparing.place(P, 0, clusters.copied) is None
    assert comparing.told.places == 0
