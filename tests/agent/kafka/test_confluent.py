"""confluent-kafka's consumers obey gates, in each of the ways an application may use them, on a real broker."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from agent.kafka.confluent_application import PROTOCOLS, Application, Scene, links_of_its_own
from devstack import KafkaCluster
from devstack.processes import eventually
from support.stack_fixtures import MakeTopic, Unique
from tidegate_agent import lifecycle
from tidegate_agent.adapters import confluent, confluent_client, confluent_driver, confluent_offsets
from tidegate_agent.adapters.confluent import ManagedConsumer
from tidegate_agent.control import ControlLink
from tidegate_agent.gates import Partition
from tidegate_agent.own_clients import plain
from tidegate_agent.partition_state import Stage

WAYS = [
    *[(protocol, "poll", "auto") for protocol in PROTOCOLS],
    *[("range", "poll", commit) for commit in ("sync", "async", "message", "store")],
    ("cooperative", "consume", "sync"),
    ("kip-848", "consume", "auto"),
    ("range", "deserializing", "auto"),
    ("kip-848", "deserializing", "message"),
    ("cooperative", "poll", "store"),
    ("range", "consume", "transaction"),
    ("kip-848", "consume", "transaction"),
]


pytestmark = pytest.mark.at_once(6)


@pytest.fixture
def scene(kafka: KafkaCluster, make_topic: MakeTopic, unique: Unique) -> Iterator[Scene]:
    made = Scene(kafka.bootstrap, make_topic(2), unique())
    with links_of_its_own(made.settings):
        try:
            yield made
        finally:
            made.close()


def is_whole(offsets: list[int]) -> bool:
    """Each record once, in order, none left out."""
    return all(after == before + 1 for before, after in pairwise(offsets))


def test_where_nothing_is_closed_what_poll_returns_is_not_looked_at(scene: Scene) -> None:
    application = scene.application()
    application.wait_flowing(0, 1)
    assert eventually(lambda: not application.consumer._tidegate.may_leak, 90)
    assert eventually(lambda: not {"poll", "consume"} & set(vars(application.consumer)), 90)


@pytest.mark.parametrize(("protocol", "style", "commit"), WAYS)
def test_a_paused_partition_stands_still_goes_on_where_it_was_and_then_where_it_was_reset_to(
    scene: Scene, protocol: str, style: str, commit: str
) -> None:
    application = scene.application(protocol=protocol, style=style, commit=commit)
    application.wait_flowing(0, 1)

    ack = scene.pause(0)
    acked = time.time()
    application.wait_flowing(1, since=acked + 0.7)
    assert not application.offsets(0, acked), "delivered after the ack"
    assert scene.committed(0) == ack.offset == application.offsets(0)[-1] + 1
    assert ack.member == application.member

    scene.release(0)
    application.wait_flowing(0, since=acked)
    assert is_whole(application.offsets(0)), "everything once: it had drained in time"

    ack = scene.pause(0)
    acked = time.time()
    scene.reset(0, 5)
    application.wait_flowing(1)
    scene.release(0)
    application.wait_flowing(0, since=acked)
    after = application.offsets(0, acked)
    assert after[0] == 5
    assert eventually(lambda: scene.committed(0) > 5, 90), (
        "what is read after a reset to an earlier offset is committed"
    )
    assert is_whole(application.offsets(0, acked))
    assert is_whole(application.offsets(1)), "the other partition notices nothing"
    assert application.error is None


@pytest.mark.parametrize(
    ("protocol", "style", "commit"),
    [("range", "poll", "sync"), ("cooperative", "consume", "sync"), ("kip-848", "poll", "store")],
)
def test_a_limit_is_where_it_closes_and_goes_on_once_it_is_removed(
    scene: Scene, protocol: str, style: str, commit: str
) -> None:
    application = scene.application(protocol=protocol, style=style, commit=commit)
    application.wait_flowing(0, 1)
    limit = scene.pause(0).offset + 40
    epoch = scene.limit(0, limit)
    scene.release(0)  # which is read after the limit

    assert eventually(lambda: (ack := scene.acked(0, epoch)) is not None and ack.offset >= limit, 90)
    ack = scene.wait_acked(0, epoch=epoch)
    closed = time.time()
    application.wait_flowing(1, since=closed + 0.7)

    assert ack.offset == limit
    assert application.offsets(0)[-1] == limit - 1
    assert scene.committed(0) == limit
    scene.limit(0, None)
    application.wait_flowing(0, since=closed)
    assert is_whole(application.offsets(0))
    assert is_whole(application.offsets(1))
    assert application.error is None


def test_with_automatic_commits_no_record_is_delivered_from_a_limit_on_and_none_is_lost_to_this_consumer(
    scene: Scene,
) -> None:
    """The committed offset is past the limit by what the last poll took: agents/contract/README.md says so."""
    application = scene.application(protocol="range", style="consume", commit="auto")
    application.wait_flowing(0, 1)
    limit = scene.pause(0).offset + 40
    epoch = scene.limit(0, limit)
    scene.release(0)  # which is read after the limit

    assert eventually(lambda: (ack := scene.acked(0, epoch)) is not None and ack.offset >= limit, 90)
    closed = time.time()
    application.wait_flowing(1, since=closed + 0.7)

    assert application.offsets(0)[-1] == limit - 1
    assert scene.committed(0) >= limit
    scene.limit(0, None)
    application.wait_flowing(0, since=closed)
    assert is_whole(application.offsets(0))
    assert is_whole(application.offsets(1))
    assert application.error is None


def wait_automatic_commit(scene: Scene) -> None:
    """Until librdkafka has committed by itself: of the other partition it does so twice."""
    seen: set[int] = set()

    def committed() -> int:
        seen.add(scene.committed(1))
        return len(seen)

    assert eventually(lambda: committed() > 2, 90)


@pytest.mark.parametrize("style", ["poll", "consume"])
def test_what_a_group_is_reset_to_at_a_limit_is_not_replaced_by_the_next_automatic_commit(
    scene: Scene, style: str
) -> None:
    """As at the end of a replay: the group had read beyond the limit, and its reset comes within the interval at which
    librdkafka commits."""
    application = scene.application(style=style, commit="auto", config={"auto.commit.interval.ms": 4_000})
    application.wait_flowing(0, 1)
    assert eventually(lambda: application.offsets(0)[-1] >= 60, 90)
    stood = scene.pause(0).offset
    epoch = scene.limit(0, 25)
    scene.reset(0, 5)
    scene.release(0)
    assert eventually(lambda: (ack := scene.acked(0, epoch)) is not None and ack.offset == 25, 90)
    replayed = time.time()

    scene.pause(0)
    scene.reset(0, stood)
    wait_automatic_commit(scene)

    assert scene.committed(0) == stood
    scene.limit(0, None)
    scene.release(0)
    application.wait_flowing(0, since=replayed)
    assert application.offsets(0, replayed)[0] == stood
    assert application.error is None


def test_a_consumer_that_polls_has_committed_no_more_than_up_to_its_limit(scene: Scene) -> None:
    """What it takes off its queue librdkafka stores, and commits; so it is paused before that."""
    application = scene.application(style="poll", commit="auto")
    application.wait_flowing(0, 1)
    limit = scene.pause(0).offset + 40
    epoch = scene.limit(0, limit)
    # As many records come to both partitions: those beyond the limit are there before those below it are read.
    assert eventually(lambda: application.offsets(1)[-1] > limit + 20, 90)
    scene.release(0)
    assert eventually(lambda: (ack := scene.acked(0, epoch)) is not None and ack.offset == limit, 90)
    wait_automatic_commit(scene)

    assert scene.committed(0) == limit
    assert application.offsets(0)[-1] == limit - 1
    scene.limit(0, None)
    assert eventually(lambda: application.offsets(0)[-1] > limit, 90)
    assert is_whole(application.offsets(0))


def test_a_resume_that_librdkafka_did_not_hear_is_told_again(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifecycle, "TELL_AGAIN_S", 20.0)
    application = scene.application()
    application.wait_flowing(0, 1)
    # As if the resume after the assignment had been dropped: the agent knows nothing of it.
    application.do(lambda consumer: plain(ManagedConsumer).pause(consumer, [TopicPartition(scene.topic, 0)]))
    stopped = time.time()
    application.wait_flowing(1, since=stopped + 1)
    assert not application.offsets(0, stopped + 0.5)

    application.wait_flowing(0, since=stopped + 1, timeout=120)
    assert is_whole(application.offsets(0))
    assert is_whole(application.offsets(1)), "of one that is not paused, resume does nothing"


class Deaf:
    """librdkafka's consumer that drops the first pauses."""

    def __init__(self, consumer: Any, drops: int) -> None:
        self._consumer = consumer
        self.drops = drops

    def __getattr__(self, name: str) -> Any:
        return getattr(self._consumer, name)

    def pause(self, consumer: Any, partitions: list[TopicPartition]) -> None:
        if self.drops:
            self.drops -= 1
        else:
            self._consumer.pause(consumer, partitions)


class Slow(Deaf):
    """librdkafka's consumer whose coordinator tells no committed offsets in time."""

    def __init__(self, consumer: Any) -> None:
        super().__init__(consumer, drops=0)
        self.is_slow = False

    def committed(self, *args: Any, **kwargs: Any) -> Any:
        if self.is_slow:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        return self._consumer.committed(*args, **kwargs)


def test_a_consumer_that_ends_while_it_is_paused_commits_no_offset_of_an_earlier_reset(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Long since, the group was reset to that; where it is now, nobody says in time."""
    slow = Slow(confluent_client.Consumer)
    monkeypatch.setattr(confluent_client, "Consumer", slow)
    application = scene.application(commit="auto")
    application.wait_flowing(0, 1)
    assert eventually(lambda: application.offsets(0)[-1] >= 30, 90)
    scene.pause(0)
    scene.reset(0, 5)
    reset = time.time()
    scene.release(0)
    assert eventually(lambda: len(application.offsets(0, reset)) > 40, 90)
    stands = scene.pause(0).offset
    assert stands > 40

    slow.is_slow = True
    application.close()

    assert scene.committed(0) == stands


def withheld(application: Application) -> dict[Partition, int]:
    found: dict[Partition, int] = application.do(lambda consumer: dict(consumer._tidegate._leaked))
    return found


def joins_behind_a_closed_gate(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, *, drops: int, **options: Any
) -> Application:
    """The gate of partition 0 is closed, and acked by a consumer whose first pauses librdkafka drops."""
    deaf = Deaf(confluent_client.Consumer, drops)
    monkeypatch.setattr(confluent_client, "Consumer", deaf)
    epoch = scene.hold(0)
    application = scene.application(**options)
    application.wait_flowing(1)
    assert not deaf.drops
    scene.wait_acked(0, epoch=epoch)
    return application


@pytest.mark.parametrize("style", ["poll", "consume"])
def test_records_that_come_with_their_assignment_are_withheld_where_the_pause_is_dropped(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, style: str
) -> None:
    application = joins_behind_a_closed_gate(scene, monkeypatch, drops=2, style=style)
    application.wait_flowing(1, since=time.time() + 1.5)
    assert not application.offsets(0)

    scene.release(0)

    application.wait_flowing(0)
    assert application.offsets(0)[0] == 0
    assert is_whole(application.offsets(0))
    assert is_whole(application.offsets(1))


@pytest.mark.parametrize("commit", ["auto", "sync"])
def test_what_was_withheld_before_its_gate_was_read_is_read_once_it_opens(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, commit: str
) -> None:
    monkeypatch.setattr(confluent_client, "Consumer", Deaf(confluent_client.Consumer, drops=2))
    monkeypatch.setattr(ControlLink, "ask", lambda *_: 10**6)  # the answer never comes
    with links_of_its_own(replace(scene.settings, open_unread=True, unreachable_after_s=2.0)):
        application = scene.application(commit=commit)
        assert eventually(lambda: len(withheld(application)) == 2, 90)
        assert not application.delivered

        application.wait_flowing(0, 1)

        for partition in (0, 1):
            assert application.offsets(partition)[0] == 0
            assert is_whole(application.offsets(partition))
        assert eventually(lambda: scene.committed(0) > 0, 90)
        assert application.error is None


@pytest.mark.parametrize("style", ["poll", "consume"])
@pytest.mark.parametrize("commit", ["auto", "sync", "store"])
def test_records_that_librdkafka_returns_although_their_gate_is_closed_are_withheld(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, commit: str, style: str
) -> None:
    # On a busy machine the second time may come before librdkafka has fetched anything, which is then never returned.
    monkeypatch.setattr(lifecycle, "TELL_AGAIN_S", 120.0)
    application = scene.application(commit=commit, style=style)
    application.wait_flowing(0, 1)
    scene.pause(0)
    closed = time.time()
    # As if the pause had been dropped.
    application.do(lambda consumer: plain(ManagedConsumer).resume(consumer, [TopicPartition(scene.topic, 0)]))
    assert eventually(lambda: list(withheld(application)) == [(scene.topic, 0)], 90), "librdkafka did return some"
    application.wait_flowing(1, since=time.time() + 2)
    assert not application.offsets(0, closed)

    scene.release(0)
    application.wait_flowing(0, since=closed + 2)

    assert is_whole(application.offsets(0)), "and they are read in their time"
    assert is_whole(application.offsets(1))


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_of_a_pause_that_is_dropped_as_its_partition_comes_nothing_is_read_or_committed(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, protocol: str
) -> None:
    """librdkafka would commit what it has returned when the consumer leaves, and the next owner would begin behind."""
    # Slow fetches: the pause is repeated before there is anything to return, however busy the machine is.
    slow = {"fetch.min.bytes": 1_000_000, "fetch.wait.max.ms": 2000}
    first = joins_behind_a_closed_gate(scene, monkeypatch, drops=1, protocol=protocol, config=slow)
    assert not withheld(first)
    first.close()
    assert scene.committed(0) < 0

    second = scene.application(protocol=protocol)
    scene.release(0)

    second.wait_flowing(0)
    assert second.offsets(0)[0] == 0


def test_what_was_withheld_is_not_committed_again_over_a_reset(scene: Scene) -> None:
    application = scene.application()
    application.wait_flowing(0, 1)
    scene.pause(0)
    closed = time.time()
    # As if the pause had been dropped.
    application.do(lambda consumer: plain(ManagedConsumer).resume(consumer, [TopicPartition(scene.topic, 0)]))
    assert eventually(lambda: (scene.topic, 0) in withheld(application), 90)
    # librdkafka commits once what it has returned, which nothing can prevent, and would overwrite a reset made before.
    application.wait_flowing(1, since=time.time() + 1)

    scene.reset(0, 5)

    # Longer than the consumer's interval of commits.
    application.wait_flowing(1, since=time.time() + 1)
    assert scene.committed(0) == 5
    scene.release(0)
    application.wait_flowing(0, since=closed)
    assert application.offsets(0, closed)[0] == 5
    assert is_whole(application.offsets(0, closed))


def returns_one_although_it_is_closed(scene: Scene, application: Application) -> int:
    """The offset of the first record that is withheld, as if the pause had been dropped."""
    application.do(lambda consumer: plain(ManagedConsumer).resume(consumer, [TopicPartition(scene.topic, 0)]))
    assert eventually(lambda: (scene.topic, 0) in withheld(application), 90)
    first, _ = withheld(application)[scene.topic, 0]
    return int(first)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("ends", ["closes", "gives it up"])
@pytest.mark.parametrize("committed", [False, True], ids=["at its end", "before"])
def test_what_was_withheld_is_read_by_the_next_owner(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, committed: bool, ends: str, protocol: str
) -> None:
    """librdkafka has stored what nobody was given. It commits that at its interval, or as the partition goes."""
    monkeypatch.setattr(lifecycle, "TELL_AGAIN_S", 120.0)
    application = scene.application(protocol=protocol, commit="auto")
    application.wait_flowing(0, 1)
    scene.pause(0)
    first = returns_one_although_it_is_closed(scene, application)
    if committed:
        assert eventually(lambda: scene.committed(0) > first, 90)

    if ends == "closes":
        application.close()
    elif protocol == "range":
        application.do(lambda consumer: consumer.unassign())
    else:
        application.do(lambda consumer: consumer.incremental_unassign([TopicPartition(scene.topic, 0)]))

    assert scene.committed(0) == first


@pytest.mark.parametrize("again", [False, True], ids=["opened once", "paused again"])
def test_what_was_withheld_is_not_lost_while_it_has_yet_to_be_read_again(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, again: bool
) -> None:
    """The gate is open and the application reads nothing: the group still stands after what was withheld."""
    monkeypatch.setattr(lifecycle, "TELL_AGAIN_S", 120.0)
    application = scene.application(commit="auto")
    application.wait_flowing(0, 1)
    scene.pause(0)
    first = returns_one_although_it_is_closed(scene, application)
    assert eventually(lambda: scene.committed(0) > first, 90)
    application.do(lambda consumer: consumer.pause([TopicPartition(scene.topic, 0)]))
    opens(scene, application)
    if again:
        assert scene.pause(0).offset == first
        opens(scene, application)

    application.close()

    assert scene.committed(0) == first


def test_what_was_withheld_is_read_by_the_next_owner_of_a_group_that_has_committed_nothing(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    seldom = {"auto.commit.interval.ms": 120_000}
    application = joins_behind_a_closed_gate(scene, monkeypatch, drops=2, commit="auto", config=seldom)
    assert eventually(lambda: (scene.topic, 0) in withheld(application), 90)
    assert scene.committed(0) < 0

    application.close()

    assert scene.committed(0) <= 0


def test_the_application_s_own_seek_counts_also_where_records_were_withheld(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What librdkafka has committed of them is no reset."""
    monkeypatch.setattr(lifecycle, "TELL_AGAIN_S", 120.0)
    application = scene.application(commit="auto")
    application.wait_flowing(0, 1)
    assert eventually(lambda: application.offsets(0)[-1] > 10, 90)
    scene.pause(0)
    first = returns_one_although_it_is_closed(scene, application)
    assert eventually(lambda: scene.committed(0) > first, 90)
    closed = time.time()
    application.do(lambda consumer: consumer.seek(TopicPartition(scene.topic, 0, 3)))

    scene.release(0)

    application.wait_flowing(0, since=closed)
    assert application.offsets(0, closed)[0] == 3
    assert is_whole(application.offsets(0, closed))
    assert eventually(lambda: scene.committed(0) > first + 10, 90)


def test_what_was_withheld_is_not_committed_over_a_reset_as_the_partition_goes(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It came with the assignment, and nothing has been read since the reset."""
    earlier = scene.application()
    assert eventually(lambda: earlier.offsets(0) != [] and earlier.offsets(0)[-1] > 10, 90)
    earlier.close()
    seldom = {"auto.commit.interval.ms": 120_000}
    application = joins_behind_a_closed_gate(scene, monkeypatch, drops=2, commit="auto", config=seldom)
    assert eventually(lambda: (scene.topic, 0) in withheld(application), 90)
    application.do(lambda consumer: consumer.pause([TopicPartition(scene.topic, 0)]))
    scene.reset(0, 5)
    opens(scene, application)

    application.close()

    assert scene.committed(0) == 5


def test_a_reset_that_nothing_was_read_of_is_not_committed_over_the_next_one(scene: Scene) -> None:
    application = scene.application(commit="auto", config={"auto.commit.interval.ms": 120_000})
    application.wait_flowing(0, 1)
    assert eventually(lambda: application.offsets(0)[-1] > 10, 90)
    ahead = scene.pause(0).offset + 10
    scene.reset(0, 5)
    partition = [TopicPartition(scene.topic, 0)]
    application.do(lambda consumer: consumer.pause(partition))
    opens(scene, application)
    scene.pause(0)
    scene.reset(0, ahead)
    opens(scene, application)
    opened = time.time()

    application.do(lambda consumer: consumer.resume(partition))

    application.wait_flowing(0, since=opened)
    # Longer than it takes to have a reset to an earlier offset committed.
    application.wait_flowing(1, since=time.time() + 1)
    assert application.offsets(0, opened)[0] == ahead
    assert scene.committed(0) == ahead


def opens(scene: Scene, application: Application) -> None:
    scene.release(0)
    core = application.consumer._tidegate.core
    assert eventually(lambda: core.stage(Partition(scene.topic, 0)) is Stage.OPEN, 90)


class Holding:
    """A poll that has a record of partition 0, and does not come back with it before it is told to."""

    def __init__(self, poll: Any) -> None:
        self._poll = poll
        self.hold, self.has_one, self.go_on = threading.Event(), threading.Event(), threading.Event()

    def __call__(self, consumer: Any, timeout: float) -> Any:
        message = self._poll(consumer, timeout)
        if self.hold.is_set() and message is not None and message.error() is None and message.partition() == 0:
            self.hold.clear()
            self.has_one.set()
            assert self.go_on.wait(60)
        return message


@pytest.mark.parametrize("commit", ["auto", "sync", "store", "none"])
@pytest.mark.parametrize("drain_s", [0.5, 20.0])
def test_a_record_on_its_way_to_the_application_is_not_lost(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, drain_s: float, commit: str
) -> None:
    """librdkafka has returned it, the application has not got it: the consumer's thread may stand still for seconds."""
    holding = Holding(confluent._poll)
    monkeypatch.setattr(confluent, "_poll", holding)
    first = scene.application(commit=commit)
    first.wait_flowing(0, 1)
    holding.hold.set()
    assert holding.has_one.wait(20)
    epoch = scene.hold(0, drain_s=drain_s)
    is_acked = eventually(lambda: scene.acked(0, epoch) is not None, 5.0 if drain_s < 1 else 1.0)
    assert is_acked or drain_s > 1
    holding.go_on.set()
    scene.wait_acked(0, epoch=epoch)

    first.close()
    second = scene.application(commit=commit)
    scene.release(0)
    second.wait_flowing(0)

    assert second.offsets(0)[0] <= first.offsets(0)[-1] + 1
    assert is_whole(first.offsets(0))
    assert is_whole(second.offsets(0))


@pytest.mark.parametrize("commit", ["auto", "sync", "store"])
def test_a_partition_that_was_reset_before_its_gate_was_read_begins_at_its_target(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, commit: str
) -> None:
    """It came in the middle of a reset: librdkafka has asked where to begin, the gate is open again when we look.

    It commits what follows, though librdkafka believes that a later offset is committed.
    """
    first = scene.application()
    assert eventually(lambda: len(first.offsets(0)) > 100, 90)
    first.close()
    before = scene.committed(0)
    looks = threading.Event()
    turn = confluent_driver.Driver._turn
    monkeypatch.setattr(confluent_driver.Driver, "_turn", lambda driver: turn(driver) if looks.is_set() else 0.05)
    second = scene.application(commit=commit, hold_s=0.1)
    assert eventually(lambda: second.owned == {0, 1}, 90)
    scene.hold(0)
    scene.reset(0, 2)
    scene.release(0)

    looks.set()

    second.wait_flowing(0)
    assert second.offsets(0)[0] == 2
    assert eventually(lambda: 2 < scene.committed(0) < before, 90)
    assert second.error is None
    second.wait_flowing(1)
    assert is_whole(second.offsets(0))
    assert is_whole(first.offsets(1) + second.offsets(1))


@pytest.mark.parametrize("delay_s", [0.0, 0.5])
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_partition_that_is_taken_away_just_after_it_was_reset_keeps_its_target(
    scene: Scene, protocol: str, delay_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of what is taken away librdkafka commits the offset that it has stored last, whatever is committed by then.

    ``delay_s``: until the agent commits the target again. A consumer that is being closed ends its connections as soon
    as it has nothing left to commit itself.
    """
    application = scene.application(protocol=protocol, tells_revocations=True)
    application.wait_flowing(0, 1)
    scene.pause(0)
    scene.reset(0, 3)

    delayed = []

    def later(topic: str, *args: Any) -> Any:
        if (topic, *args) == (scene.topic, 0, 3):
            delayed.append(delay_s)
            time.sleep(delay_s)
        return TopicPartition(topic, *args)

    for module in (confluent_driver, confluent_offsets):
        monkeypatch.setattr(module, "TopicPartition", later)
    application.close()

    assert application.error is None
    assert application.revoked == [{0: 3, 1: application.offsets(1)[-1] + 1}]
    assert delayed
    assert scene.committed(0) == 3


@pytest.mark.parametrize("commit", ["auto", "sync", "store"])
def test_a_commit_right_after_a_reset_does_not_bring_the_old_offset_back(scene: Scene, commit: str) -> None:
    """librdkafka still has the old offset stored when the partition opens, and nothing else to commit."""
    application = scene.application(commit=commit)
    application.wait_flowing(0, 1)
    scene.pause(0, drain_s=0)
    application.do(lambda consumer: consumer.commit(asynchronous=False))
    scene.reset(0, 3)
    application.do(lambda consumer: consumer.commit(asynchronous=False))
    assert scene.committed(0) == 3
    application.do(lambda consumer: consumer.pause([TopicPartition(scene.topic, 0)]))
    scene.release(0)
    scene.wait_acked(0, epoch=scene.hold(1) - 1)
    application.do(lambda consumer: consumer.commit(asynchronous=False))
    time.sleep(0.7)  # two auto-commits
    assert scene.committed(0) == 3
    application.do(lambda consumer: consumer.resume([TopicPartition(scene.topic, 0)]))
    since = time.time()
    application.wait_flowing(0)
    assert application.offsets(0, since - 0.5)[0] == 3


def test_a_slow_application_that_drains_in_time_loses_nothing_and_gets_nothing_twice(scene: Scene) -> None:
    application = scene.application(commit="message", style="consume", hold_s=1.0)
    application.wait_flowing(0)
    scene.hold(0)
    ack = scene.wait_acked(0)
    acked = time.time()
    assert application.offsets(0)[-1] + 1 == ack.offset == scene.committed(0)
    scene.release(0)
    application.wait_flowing(0, since=acked)
    assert is_whole(application.offsets(0))


def test_after_the_drain_time_out_at_most_what_it_had_in_hand_comes_twice(scene: Scene) -> None:
    application = scene.application(commit="none")
    application.wait_flowing(0)
    first = application.offsets(0)[0]
    application.do(lambda consumer: consumer.commit(offsets=[TopicPartition(scene.topic, 0, first + 2)]))
    before = time.time()
    ack = scene.pause(0, drain_s=1.5)
    acked = time.time()
    assert acked - before >= 1.4
    assert ack.offset == first + 2
    application.do(lambda consumer: consumer.commit(offsets=[TopicPartition(scene.topic, 0, first + 9)]))
    assert scene.committed(0) == first + 2, "what comes after the ack is dropped"
    scene.release(0)
    application.wait_flowing(0, since=acked)
    assert application.offsets(0, acked)[0] == first + 2
    assert is_whole(application.offsets(0, acked))


def test_a_partition_the_application_paused_itself_resumes_when_both_let_go(scene: Scene) -> None:
    application = scene.application()
    application.wait_flowing(0, 1)
    mine = [TopicPartition(scene.topic, 0)]
    application.do(lambda consumer: consumer.pause(mine))
    scene.pause(0)
    acked = time.time()
    application.do(lambda consumer: consumer.resume(mine))
    application.wait_flowing(1, since=acked + 0.5)
    assert not application.offsets(0, acked)
    application.do(lambda consumer: consumer.pause(mine))
    scene.release(0)
    application.wait_flowing(1, since=time.time() + 0.5)
    assert not application.offsets(0, acked)
    application.do(lambda consumer: consumer.resume(mine))
    application.wait_flowing(0, since=acked)
    assert is_whole(application.offsets(0))


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_partitions_assigned_by_hand_obey_as_well_and_are_acked_without_a_member(scene: Scene, protocol: str) -> None:
    scene.committed(0)  # so that the group has a coordinator: librdkafka asks long after an answer that it has none yet
    application = scene.application(by_hand=True, config={"group.protocol": protocol})
    application.wait_flowing(0, 1)
    ack = scene.pause(0)
    acked = time.time()
    assert ack.member == ""
    application.wait_flowing(1, since=acked + 0.5)
    assert not application.offsets(0, acked)
    scene.release(0)
    application.wait_flowing(0, since=acked)
    assert is_whole(application.offsets(0))


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_pause_survives_members_that_come_and_go(scene: Scene, protocol: str) -> None:
    first = scene.application(protocol=protocol)
    first.wait_flowing(0, 1)
    ack = scene.pause(0)
    acked = time.time()
    second = scene.application(protocol=protocol)
    assert eventually(lambda: len(first.owned) == len(second.owned) == 1, 60)
    flowing = time.time()
    assert eventually(lambda: first.offsets(1, flowing) or second.offsets(1, flowing), 90)
    first.close()
    scene.applications.remove(first)
    assert eventually(lambda: len(second.owned) == 2, 60)
    second.wait_flowing(1)
    owner = second.member
    assert eventually(lambda: (found := scene.acked(0)) is not None and found.member == owner, 90), "acked anew"
    assert not first.offsets(0, acked)
    assert not second.offsets(0)
    assert scene.committed(0) == ack.offset
    scene.release(0)
    second.wait_flowing(0)
    assert second.offsets(0)[0] == ack.offset


def test_a_member_that_joins_while_a_gate_is_closed_delivers_nothing_of_it(scene: Scene) -> None:
    scene.hold(0)
    application = scene.application()
    application.wait_flowing(1)
    assert scene.wait_acked(0).offset == -1
    application.wait_flowing(1, since=time.time() + 0.5)
    assert not application.offsets(0)
    scene.reset(0, 7)
    scene.release(0)
    application.wait_flowing(0)
    assert application.offsets(0)[0] == 7


def test_the_applications_own_callbacks_are_called_and_may_assign_and_seek(scene: Scene) -> None:
    seen: list[tuple[str, int]] = []
    application = scene.application(by_hand=True)
    application.close()
    scene.applications.clear()
    consumer = ManagedConsumer(
        {"bootstrap.servers": scene.bootstrap, "group.id": scene.group, "auto.offset.reset": "earliest"}
    )

    def on_assign(which: Any, partitions: Any) -> None:
        seen.append(("assign", len(partitions)))
        assert which is consumer
        for partition in partitions:
            partition.offset = 4
        which.assign(partitions)

    consumer.subscribe([scene.topic], on_assign=on_assign, on_revoke=lambda _, ps: seen.append(("revoke", len(ps))))
    message = None
    deadline = time.monotonic() + 30
    while message is None and time.monotonic() < deadline:
        message = consumer.poll(0.3)
    assert message is not None
    assert message.offset() == 4
    consumer.close()
    assert seen == [("assign", 2), ("revoke", 2)]


def test_the_control_topic_deleted_under_way_leaves_gates_as_they_are_until_there_is_one_again(scene: Scene) -> None:
    application = scene.application()
    application.wait_flowing(0, 1)
    scene.pause(0)
    acked = time.time()
    for future in scene.admin.delete_topics([scene.settings.control_topic, scene.settings.acks_topic]).values():
        future.result(20)
    application.wait_flowing(1, since=acked + 2)
    assert not application.offsets(0, acked)
    assert eventually(lambda: scene.control.ensure() == (), 90)
    application.wait_flowing(0, since=acked)
    assert is_whole(application.offsets(0))
    ack = scene.pause(1)
    assert ack.member == application.member


def test_a_topic_that_is_deleted_and_created_again_stays_held_until_the_release(scene: Scene) -> None:
    application = scene.application()
    application.wait_flowing(0, 1)
    scene.pause(0)
    scene.recreate_topic()
    application.wait_flowing(1, since=(again := time.time()), timeout=90)
    assert not application.offsets(0, again)
    assert list(scene.control.read([]).holds) == [scene.key(0)]
    scene.release(0)
    application.wait_flowing(0, since=again, timeout=90)


def test_a_closed_or_forgotten_consumer_leaves_no_thread_behind(scene: Scene) -> None:
    def drivers() -> int:
        return sum(thread.name == "tidegate-agent-consumer" for thread in threading.enumerate())

    before = drivers()
    application = scene.application()
    application.wait_flowing(0)
    assert drivers() == before + 1
    application.close()
    assert eventually(lambda: drivers() == before, 90)
    scene.applications.clear()
    consumer = ManagedConsumer({"bootstrap.servers": scene.bootstrap, "group.id": scene.group})
    consumer.assign([TopicPartition(scene.topic, 0)])
    gone = weakref.ref(consumer)
    del consumer, application
    assert eventually(lambda: gc.collect() >= 0 and gone() is None and drivers() == before, 90)


@pytest.mark.parametrize("commit", ["auto", "sync", "store"])
def test_what_is_read_after_a_reset_backwards_is_committed_long_before_the_old_offset(
    scene: Scene, commit: str
) -> None:
    """By itself librdkafka would commit nothing until it is beyond what it had committed before the reset."""
    application = scene.application(commit=commit)
    application.wait_flowing(0, 1)
    assert eventually(lambda: application.offsets(0)[-1] > 60, 90)
    application.do(lambda consumer: consumer.pause([TopicPartition(scene.topic, 1)]))
    scene.pause(0)
    scene.reset(0, 5)
    application.hold_s = 0.3
    scene.release(0)
    assert eventually(lambda: scene.committed(0) > 5, 8)
    assert scene.committed(0) < 60
