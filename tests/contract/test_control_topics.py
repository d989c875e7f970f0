"""What ``tidegate.control.ports`` promises, held against topics in memory and against a real broker's."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, Protocol

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka import TopicPartition as ClientTopicPartition
from confluent_kafka.admin import AdminClient, ConfigEntry, ConfigResource, NewTopic

from devstack import KafkaCluster
from support.fake_control import FakeControlTopics, FakeTopics
from support.obeyed import acked
from support.operator_process import until
from tidegate.control.codec import encode_key, encode_value
from tidegate.control.ports import ControlTopics
from tidegate.control.records import (
    Ack,
    AckKey,
    Claim,
    ClaimKey,
    Hold,
    HoldKey,
    Limit,
    LimitKey,
    Outcome,
    PartitionKey,
    PartitionSeen,
    Run,
    RunKey,
)
from tidegate.control.run_records import begin, executed
from tidegate.control.topics import ACKS_CONFIG, CONTROL_CONFIG
from tidegate.kafka.connection import Connection, acks_topic
from tidegate.kafka.errors import Fenced, Refused, Unavailable
from tidegate.kafka.model import TopicPartition
from tidegate.kafka_client import control_reader, fenced_writer
from tidegate.kafka_client.client import KafkaClient
from tidegate.kafka_client.control import KafkaControlTopics
from tidegate.kafka_client.fenced_writer import FencedWriter, WriterProcess

GROUP = "payments"
P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)


def key(partition: TopicPartition = P0, holder: str = "pause/c/1") -> HoldKey:
    return HoldKey(GROUP, partition.topic, partition.partition, holder)


class World(Protocol):
    """The two topics, with what agents, users and other clients do to them."""

    @property
    def control(self) -> ControlTopics: ...

    def another(self) -> ControlTopics:
        """Another client of the same topics."""
        ...

    def process_of(self, operator: str) -> ControlTopics:
        """Another process of this operator."""
        ...

    def ack(self, partition: TopicPartition, ack: Ack) -> None: ...

    def garble(self) -> None:
        """Write records that nobody can read: on the control topic at least one."""
        ...

    def lose(self) -> None:
        """Delete the control topic; the ack topic stays."""
        ...

    def close(self) -> None: ...


class FakeWorld:
    def __init__(self) -> None:
        self._topics = FakeTopics()
        self._control = FakeControlTopics(self._topics)

    @property
    def control(self) -> FakeControlTopics:
        return self._control

    def another(self) -> FakeControlTopics:
        return FakeControlTopics(self._topics)

    def process_of(self, operator: str) -> FakeControlTopics:
        return FakeControlTopics(self._topics, operator)

    def ack(self, partition: TopicPartition, ack: Ack) -> None:
        self._control.ack(GROUP, partition.topic, partition.partition, ack)

    def garble(self) -> None:
        self._control.garble()

    def lose(self) -> None:
        self._control.lose()

    def close(self) -> None:
        pass


class RealWorld:
    def __init__(self, bootstrap: str) -> None:
        self.name = f"__control-{uuid.uuid4().hex[:12]}"
        self.bootstrap = bootstrap
        self.admin = AdminClient({"bootstrap.servers": bootstrap})
        self._clients: list[KafkaClient] = []
        self._producer: Producer | None = None
        self._control = self.another()

    @property
    def control(self) -> ControlTopics:
        return self._control

    def another(self) -> ControlTopics:
        return self.process_of("")

    def process_of(self, operator: str, process: WriterProcess | None = None) -> ControlTopics:
        client = KafkaClient(Connection(self.bootstrap, control_topic=self.name), operator, process)
        self._clients.append(client)
        return client.control

    def ack(self, partition: TopicPartition, ack: Ack) -> None:
        record = AckKey(GROUP, partition.topic, partition.partition)
        self.write(acks_topic(self.name), encode_key(record), encode_value(ack))

    def garble(self) -> None:
        self.write(self.name, b'{"kind":"hold","group":"","topic":"t","partition":0,"holder":"h"}', b"{}")
        self.write(self.name, b'{"kind":"later"}', b"{}")
        self.write(self.name, b"\xff", b"\xff")

    def write(self, topic: str, record_key: bytes | None, value: bytes | None) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap})
        failed: list[object] = []
        producer.produce(topic, value, record_key, on_delivery=lambda error, _: failed.append(error) if error else None)
        assert producer.flush(20) == 0
        assert not failed

    def lose(self) -> None:
        self.admin.delete_topics([self.name])[self.name].result(20)
        until(lambda: self.name not in self.admin.list_topics(timeout=10).topics, "the control topic is gone")

    def create(self, name: str, config: Mapping[str, str], partitions: int = 1) -> None:
        def created() -> bool:
            try:
                self.admin.create_topics([NewTopic(name, partitions, 1, config=dict(config))])[name].result(20)
            except KafkaException:
                return False  # a topic that is just being deleted still has its name
            return True

        until(created, f"{name} is created")
        until(lambda: name in self.admin.list_topics(timeout=10).topics, f"{name} is there")

    def close(self) -> None:
        for client in self._clients:
            client.control.close()
            client.close()


@pytest.fixture(params=["fake", pytest.param("real", marks=pytest.mark.kafka)])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    made: World = FakeWorld() if request.param == "fake" else RealWorld(request.getfixturevalue("kafka").bootstrap)
    yield made
    made.close()


@pytest.fixture
def real(kafka: KafkaCluster) -> Iterator[RealWorld]:
    made = RealWorld(kafka.bootstrap)
    yield made
    made.close()


# --- where there are none ---------------------------------------------------------------------------------------------


def test_without_topics_nothing_is_held_and_none_are_made_by_reading(world: World) -> None:
    assert not world.control.read().holds
    assert not world.control.exist
    assert not world.another().read().holds
    assert not world.control.exist


def test_a_hold_without_a_control_topic_is_refused_at_once(world: World) -> None:
    began = time.monotonic()
    with pytest.raises(Unavailable):
        world.control.hold({key(): Hold()})
    world.control.release([key()])
    assert time.monotonic() - began < 10


def test_ensuring_makes_both_topics_and_has_nothing_against_its_own(world: World) -> None:
    assert world.control.ensure() == ()
    assert world.control.ensure() == ()
    world.control.read()
    assert world.control.exist


# --- holds ------------------------------------------------------------------------------------------------------------


def test_a_hold_is_read_as_soon_as_it_is_written(world: World) -> None:
    world.control.ensure()
    for number in range(20):
        hold = Hold(f"reason {number}", number, f"connection {number}" if number % 2 else "")
        epochs = world.control.hold({key(holder=f"pause/c/{number}"): hold})
        held = world.control.read().holders(GROUP, P0)[key(holder=f"pause/c/{number}")]
        assert held.hold == hold
        assert held.epoch == epochs[key(holder=f"pause/c/{number}")]


def test_several_holds_have_epochs_of_their_own_and_a_rewritten_one_a_later_one(world: World) -> None:
    world.control.ensure()
    first = world.control.hold({key(P0): Hold(), key(P1): Hold()})
    again = world.control.hold({key(P0): Hold("another reason")})

    gates = world.control.read([GROUP])

    assert len(set(first.values())) == 2
    assert again[key(P0)] > max(first.values())
    assert gates.epoch(GROUP, P0) == again[key(P0)]
    assert gates.epoch(GROUP, P1) == first[key(P1)]


def test_the_very_first_hold_is_not_obeyed_by_an_ack_of_the_empty_topic(world: World) -> None:
    world.control.ensure()
    world.ack(P0, Ack(0, 7, "member-1"))

    epochs = world.control.hold({key(): Hold()})

    assert epochs[key()] > 0
    assert acked(world.control.read([GROUP]), GROUP, P0) is None


def test_a_released_hold_is_gone_and_the_other_holders_stay(world: World) -> None:
    world.control.ensure()
    world.control.hold({key(holder="pause/c/1"): Hold(), key(holder="pause/c/2"): Hold()})

    world.control.release([key(holder="pause/c/1"), key(P1, "never/held")])

    assert list(world.control.read().holders(GROUP, P0)) == [key(holder="pause/c/2")]
    assert list(world.another().read().holders(GROUP, P0)) == [key(holder="pause/c/2")]


def test_a_limit_is_read_as_soon_as_it_is_written_and_is_gone_once_it_is_released(world: World) -> None:
    world.control.ensure()
    limit = LimitKey(GROUP, P0.topic, P0.partition, "reset/u/one")
    said = Limit(30, "a replay", 5_000, "c")
    epochs = world.control.limit({limit: said})
    assert epochs[limit] >= 1
    read = world.control.read()
    assert read.limits[limit].limit == said
    assert read.limits[limit].epoch == epochs[limit]
    assert not read.holds
    again = world.control.limit({limit: said})
    assert again[limit] > epochs[limit]
    hold = key(holder="reset/u/one")
    world.control.hold({hold: Hold()})
    world.control.release([limit, hold])
    read = world.control.read()
    assert (dict(read.limits), dict(read.holds)) == ({}, {})


def test_a_limit_that_is_not_of_the_contract_is_refused(world: World) -> None:
    world.control.ensure()
    limit = LimitKey(GROUP, P0.topic, P0.partition, "reset/u/one")
    with pytest.raises(Refused):
        world.control.limit({limit: Limit(-1)})
    assert not world.control.read().limits


def test_what_another_client_has_written_is_in_the_next_reading(world: World) -> None:
    world.control.ensure()
    world.control.read()
    another = world.another()
    for number in range(10):
        another.hold({key(holder=f"other/{number}"): Hold()})
        assert key(holder=f"other/{number}") in world.control.read().holders(GROUP, P0)


def test_writers_side_by_side_lose_nothing(world: World) -> None:
    world.control.ensure()
    world.control.read()
    clients = [world.another() for _ in range(3)]
    found: list[Mapping[HoldKey, int]] = []

    def write(client: ControlTopics, name: str) -> None:
        found.extend(client.hold({key(TopicPartition(name, n), name): Hold()}) for n in range(20))

    threads = [threading.Thread(target=write, args=(client, f"t{n}")) for n, client in enumerate(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)

    epochs = [epoch for written in found for epoch in written.values()]
    gates = world.control.read([GROUP])
    assert len(epochs) == len(set(epochs)) == 60
    assert {k: h.epoch for k, h in gates.holds.items()} == {k: e for written in found for k, e in written.items()}


def test_a_reading_belongs_to_whoever_made_it(world: World) -> None:
    world.control.ensure()
    world.control.hold({key(): Hold()})
    before = world.control.read()
    world.control.release([key()])
    assert not world.control.read().holds
    assert list(before.holds) == [key()]
    before.take(key(P1), Hold(), 99)
    assert not world.control.read().holds


# --- acks -------------------------------------------------------------------------------------------------------------


def test_an_ack_of_the_hold_or_later_tells_that_it_was_obeyed(world: World) -> None:
    world.control.ensure()
    epoch = world.control.hold({key(): Hold()})[key()]
    assert acked(world.control.read([GROUP]), GROUP, P0) is None

    world.ack(P0, Ack(epoch, 42, "member-1"))

    gates = world.control.read([GROUP])
    assert acked(gates, GROUP, P0) == Ack(epoch, 42, "member-1")
    again = world.control.hold({key(holder="another"): Hold()})
    assert acked(world.control.read([GROUP]), GROUP, P0) is None
    assert acked(world.control.read([GROUP]), GROUP, P0, epoch) == Ack(epoch, 42, "member-1")
    world.ack(P0, Ack(again[key(holder="another")], 42, "member-1"))
    assert acked(world.control.read([GROUP]), GROUP, P0) is not None


def test_waiting_ends_with_the_news_or_with_its_time(world: World) -> None:
    world.control.ensure()
    epoch = world.control.hold({key(): Hold()})[key()]
    world.control.read()
    began = time.monotonic()
    world.control.read(wait_s=0.4)
    assert time.monotonic() - began > 0.3

    speaker = threading.Timer(0.3, world.ack, (P0, Ack(epoch, 7, "m")))
    speaker.start()
    began = time.monotonic()
    gates = world.control.read([GROUP], wait_s=60)
    speaker.join()
    assert acked(gates, GROUP, P0) is not None
    assert time.monotonic() - began < 60, "it waited for all its time"


# --- processes of one operator ----------------------------------------------------------------------------------------


def test_a_process_that_comes_back_after_another_took_over_writes_nothing_any_more(world: World) -> None:
    held = key(P0)
    earlier = world.process_of("uid-1")
    earlier.ensure()
    epochs = earlier.hold({held: Hold("INC-4711")})
    assert earlier.read().holds[held].epoch == epochs[held]

    later = world.process_of("uid-1")
    later.ensure()

    with pytest.raises(Fenced):
        earlier.release([held])
    with pytest.raises(Fenced):
        earlier.hold({held: Hold("an old reason"), key(P1): Hold()})
    with pytest.raises(Fenced):
        earlier.write_clock()
    with pytest.raises(Fenced):
        earlier.ensure()
    for reader in (later, earlier, world.control, world.another()):
        gates = reader.read()
        assert {k: (h.epoch, h.hold.reason) for k, h in gates.holds.items()} == {held: (epochs[held], "INC-4711")}
    later.release([held])
    assert not world.control.read().holds


def test_a_process_with_nothing_to_write_hears_that_it_was_replaced_when_it_asks(world: World) -> None:
    earlier, later, of_another = world.process_of("uid-1"), world.process_of("uid-1"), world.process_of("uid-2")
    earlier.confirm()
    earlier.ensure()
    of_another.ensure()
    for _ in range(3):
        earlier.confirm()
    epochs = earlier.hold({key(P0): Hold()})
    later.confirm()
    earlier.confirm()

    later.ensure()

    for _ in range(2):
        with pytest.raises(Fenced):
            earlier.confirm()
    later.confirm()
    of_another.confirm()
    world.control.confirm()
    assert later.read().holds[key(P0)].epoch == epochs[key(P0)]


def test_a_command_writes_beside_an_operator_and_fences_it_as_little_as_it_is_fenced(world: World) -> None:
    operator, command = world.process_of("uid-1"), world.another()
    operator.ensure()
    for number in range(5):
        operator.hold({key(P0, f"pause/uid-1/{number}"): Hold()})
        command.ensure()
        command.hold({key(P1, f"cli/{number}"): Hold()})
        command.claim(ClaimKey(GROUP, f"c-{number}"), claim_of("reset/cli/1"))
        command.withdraw([ClaimKey(GROUP, f"c-{number}")])
    later = world.process_of("uid-1")
    later.ensure()
    command.release([key(P0, "pause/uid-1/0")])
    later.release([key(P1, "cli/0")])

    holders = {k.holder for k in world.another().read().holds}
    assert holders == {f"{who}/{n}" for who in ("pause/uid-1", "cli") for n in range(1, 5)}


def test_a_connection_that_is_opened_anew_goes_on_as_the_same_process(real: RealWorld) -> None:
    """Its Secret may have changed; passes that still have the earlier client may be in the middle of a write."""
    told: list[str] = []
    process = WriterProcess(told.append)
    before, after = real.process_of("uid-1", process), real.process_of("uid-1", process)
    before.ensure()
    with ThreadPoolExecutor(2) as pool:
        writing = [
            pool.submit(lambda c=client, w=who: [c.hold({key(P0, f"{w}/{n}"): Hold()}) for n in range(20)])
            for who, client in (("before", before), ("after", after))
        ]
        for written in writing:
            written.result(60)
    before.close()
    after.ensure()
    after.release([key(P0, "before/0")])

    assert len(real.control.read().holds) == 39
    assert not told


def test_a_process_that_was_replaced_takes_nothing_over_by_a_connection_that_it_opens_anew(real: RealWorld) -> None:
    """It was frozen, say, while its successor worked, and then sees that the connection's Secret has changed."""
    told: list[str] = []
    process = WriterProcess(told.append)
    earlier, later = real.process_of("uid-1", process), real.process_of("uid-1")
    earlier.ensure()
    later.ensure()

    with pytest.raises(Fenced):
        real.process_of("uid-1", process).confirm()

    assert len(told) == 1
    assert f"another process of this operator writes topic {real.name} now" in told[0]
    for client in (earlier, real.process_of("uid-1", process), real.process_of("uid-2", process)):
        with pytest.raises(Fenced, match="another process of this operator"):
            client.ensure()
    later.hold({key(P0): Hold()})
    assert len(told) == 1


def test_a_process_whose_turn_is_over_takes_nothing_over_and_writes_nothing(real: RealWorld) -> None:
    """It was frozen, say, before it had written anything: it must not fence its successor."""
    turn = True
    earlier = real.process_of("uid-1", WriterProcess(may_write=lambda: turn))
    earlier.ensure()
    other = real.process_of("uid-2", WriterProcess(may_write=lambda: turn))
    later = real.process_of("uid-2")
    later.ensure()

    turn = False
    for write in (other.ensure, lambda: other.hold({key(P0): Hold()}), lambda: earlier.release([key(P0)])):
        with pytest.raises(Unavailable, match="this process does not hold the Lease"):
            write()
    later.hold({key(P0): Hold()})


def test_processes_of_other_operators_and_runs_go_on(world: World) -> None:
    first, second = world.process_of("uid-1"), world.process_of("uid-2")
    first.ensure()
    second.ensure()
    world.process_of("uid-3").ensure()

    first.hold({key(P0, "first"): Hold()})
    second.hold({key(P0, "second"): Hold()})
    world.control.hold({key(P0, "a run's"): Hold()})

    assert {k.holder for k in world.another().read().holds} == {"first", "second", "a run's"}


def test_an_operator_writes_all_that_others_do(world: World) -> None:
    operator = world.process_of("uid-1")
    operator.ensure()
    first = operator.hold({key(P0): Hold("", 0)})
    assert first[key(P0)] > 0
    many = {PartitionKey(f"topic-{n % 100}", "id", n // 100): PartitionSeen(initial=True) for n in range(12_000)}
    operator.write_partitions(many)
    began_ms = operator.write_clock()
    operator.claim(ClaimKey(GROUP, "a"), claim_of("a"))

    gates = world.another().read()

    assert gates.holds[key(P0)].epoch == first[key(P0)]
    assert gates.partitions == many
    assert gates.clock_ms == began_ms
    assert [c.claim.run for c in gates.claims.queue(GROUP)] == ["a"]
    operator.withdraw([ClaimKey(GROUP, "a")])
    assert turns(world.control) == []
    with pytest.raises(Refused):
        operator.hold({key(P0): Hold("r" * 1025)})
    world.lose()
    with pytest.raises(Unavailable):
        operator.hold({key(P0): Hold()})
    operator.ensure()
    operator.hold({key(P1): Hold()})
    assert list(world.another().read().holds) == [key(P1)]


def test_an_earlier_process_that_stops_in_the_middle_of_a_write_has_written_nothing(
    real: RealWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has appended its records and freezes before it commits them; meanwhile another process takes over."""
    held = key(P0)
    earlier, later = real.process_of("uid-1"), real.process_of("uid-1")
    earlier.ensure()
    epochs = earlier.hold({held: Hold()})
    thawed, frozen = threading.Event(), threading.Event()
    commit = FencedWriter._end

    def freeze(writer: FencedWriter, *args: Any, **kwargs: Any) -> None:
        if threading.current_thread() is not threading.main_thread():
            frozen.set()
            assert thawed.wait(60)
        commit(writer, *args, **kwargs)

    monkeypatch.setattr(FencedWriter, "_end", freeze)
    with ThreadPoolExecutor(1) as process:
        releasing = process.submit(earlier.release, [held])
        assert frozen.wait(30)
        later.ensure()
        before = later.read().holds[held].epoch
        thawed.set()
        with pytest.raises(Fenced):
            releasing.result(60)

    assert before == epochs[held]
    assert real.control.read().holds[held].epoch == epochs[held]
    assert list(real.another().read().holds) == [held]


def test_a_process_whose_transaction_the_brokers_have_ended_goes_on(
    real: RealWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They raise the epoch at the time-out as they do for another process; that there is none is told by how far."""
    monkeypatch.setattr(fenced_writer, "LASTS_S", 0.5)
    operator = real.process_of("uid-1")
    operator.ensure()
    commit = FencedWriter._end
    ended: list[bool] = []

    def late(writer: FencedWriter, *args: Any, **kwargs: Any) -> None:
        if not ended:
            ended.append(True)
            until(lambda: is_ended(real), "the brokers have ended the transaction", pause_s=0.5)
        commit(writer, *args, **kwargs)

    monkeypatch.setattr(FencedWriter, "_end", late)

    epochs = operator.hold({key(P0): Hold()})

    assert ended
    assert real.control.read().holds[key(P0)].epoch == epochs[key(P0)]


def is_ended(real: RealWorld) -> bool:
    """Whether no transaction is open on the control topic."""
    consumers = [
        Consumer({"bootstrap.servers": real.bootstrap, "group.id": "contract", "isolation.level": level})
        for level in ("read_committed", "read_uncommitted")
    ]
    try:
        partition = ClientTopicPartition(real.name, 0)
        return len({c.get_watermark_offsets(partition, timeout=10)[1] for c in consumers}) == 1
    finally:
        for consumer in consumers:
            consumer.close()


# --- what discovery writes --------------------------------------------------------------------------------------------

SEEN = {
    PartitionKey("orders", "id-1", 0): PartitionSeen(initial=True),
    PartitionKey("orders", "id-1", 1): PartitionSeen(seen_ms=1_700_000_000_200, seen_absent_ms=1_700_000_000_000),
    PartitionKey("orders", "id-2", 0): PartitionSeen(seen_ms=1_700_000_000_400),
}


def test_partitions_are_read_as_they_were_written(world: World) -> None:
    world.control.ensure()
    assert not world.control.read().partitions
    world.control.write_partitions(SEEN)
    before = world.control.read()
    first, second, third = SEEN

    world.control.write_partitions({first: None, second: SEEN[third]})

    assert before.partitions == SEEN
    for client in (world.control, world.another()):
        assert client.read().partitions == {second: SEEN[third], third: SEEN[third]}


def test_thousands_of_partitions_are_written_at_once(world: World) -> None:
    world.control.ensure()
    many = {PartitionKey(f"topic-{n % 100}", "id", n // 100): PartitionSeen(initial=True) for n in range(12_000)}
    world.control.write_partitions(many)
    assert world.control.read().partitions == many
    world.control.write_partitions({})


def test_the_clock_tells_the_brokers_time(world: World) -> None:
    world.control.ensure()
    assert world.control.read().clock_ms is None
    began_ms = time.time_ns() // 1_000_000

    at_ms = world.control.write_clock()

    assert began_ms <= at_ms <= time.time_ns() // 1_000_000
    assert world.control.read().clock_ms == at_ms
    later_ms = world.another().write_clock()
    assert later_ms >= at_ms
    assert world.control.read().clock_ms == later_ms


def test_without_a_control_topic_discovery_has_nowhere_to_write(world: World) -> None:
    with pytest.raises(Unavailable):
        world.control.write_clock()
    with pytest.raises(Unavailable):
        world.control.write_partitions(SEEN)
    world.control.write_partitions({})


# --- claims -----------------------------------------------------------------------------------------------------------


def claim_of(run: str, *, lease_ms: int = 60_000, epoch: int | None = None, renews_ms: int | None = None) -> Claim:
    return Claim(run, f"for {run}", lease_ms, epoch, renews_ms)


def turns(control: ControlTopics) -> list[str]:
    return [claimed.claim.run for claimed in control.read().claims.queue(GROUP)]


def lapses(control: ControlTopics, claimed: ClaimKey) -> None:
    """Let the topic's time go on, by records, until a claim has lapsed."""

    def lapsed() -> bool:
        control.claim(ClaimKey("another-group", uuid.uuid4().hex), claim_of("r"))
        return claimed in {c.key for c in control.read().claims.lapsed(GROUP)}

    until(lapsed, "the claim has lapsed")


def test_a_claim_without_a_control_topic_is_refused_at_once(world: World) -> None:
    with pytest.raises(Unavailable):
        world.control.claim(ClaimKey(GROUP, "a"), claim_of("a"))
    world.control.withdraw([ClaimKey(GROUP, "a")])


def test_claims_are_in_the_order_in_which_they_were_written_for_everybody(world: World) -> None:
    world.control.ensure()
    another = world.another()
    world.control.claim(ClaimKey(GROUP, "z"), claim_of("first"))
    another.claim(ClaimKey(GROUP, "a"), claim_of("second"))
    world.control.claim(ClaimKey("another-group", "b"), claim_of("elsewhere"))

    [first, second] = world.control.read().claims.queue(GROUP)

    assert (first.claim, second.claim) == (claim_of("first"), claim_of("second"))
    assert first.epoch < second.epoch
    assert first.until_ms - first.at_ms == 60_000
    assert turns(another) == turns(world.another()) == ["first", "second"]


def test_a_renewed_claim_keeps_its_place_and_a_withdrawn_one_is_gone(world: World) -> None:
    world.control.ensure()
    mine, other = ClaimKey(GROUP, "a"), ClaimKey(GROUP, "b")
    world.control.claim(mine, claim_of("first"))
    world.control.claim(other, claim_of("second"))
    was = world.control.read().claims.get(mine)
    assert was is not None

    world.control.claim(mine, claim_of("first", epoch=was.epoch, renews_ms=was.at_ms))

    renewed = world.control.read().claims.get(mine)
    assert renewed is not None
    assert (renewed.epoch, renewed.at_ms >= was.at_ms) == (was.epoch, True)
    assert turns(world.another()) == ["first", "second"]
    world.control.withdraw([mine, ClaimKey(GROUP, "never-claimed")])
    assert turns(world.control) == turns(world.another()) == ["second"]


def test_a_claim_lapses_by_the_clock_of_the_topic_and_cannot_be_renewed_then(world: World) -> None:
    world.control.ensure()
    mine = ClaimKey(GROUP, "a")
    world.control.claim(mine, claim_of("slow", lease_ms=1))
    world.control.claim(ClaimKey(GROUP, "b"), claim_of("next"))
    was = world.control.read().claims.get(mine)
    assert was is not None

    lapses(world.control, mine)
    world.control.claim(mine, claim_of("slow", lease_ms=60_000, epoch=was.epoch, renews_ms=was.at_ms))

    assert turns(world.control) == turns(world.another()) == ["next"]


def test_a_claim_that_nobody_could_read_is_not_written(world: World) -> None:
    world.control.ensure()
    with pytest.raises(Refused):
        world.control.claim(ClaimKey(GROUP, "a"), claim_of("r", lease_ms=300_001))
    with pytest.raises(Refused):
        world.control.claim(ClaimKey(GROUP, "no/id"), claim_of("r"))
    assert turns(world.control) == []


# --- runs that were executed ------------------------------------------------------------------------------------------

RUN = RunKey("shop", "payments", "replay-1")


def test_a_run_that_was_executed_is_known_to_everybody(world: World) -> None:
    world.control.ensure()
    assert not world.control.read().runs
    begun, ended = Run("5f/replay-1", 1_000), Run("5f/replay-1", 1_000, Outcome.SUCCEEDED, 2_000, "sha256:5f0c")
    other = RunKey("shop", "payments", "replay-2")

    world.control.note_runs({RUN: begun, other: begun})
    before = world.control.read()
    world.control.note_runs({RUN: ended, other: None})

    assert before.runs == {RUN: begun, other: begun}
    assert world.control.read().runs == world.another().read().runs == {RUN: ended}
    assert not world.control.read().holds


def test_a_reset_is_begun_once_whoever_asks_and_its_run_may_ask_again(world: World) -> None:
    world.control.ensure()
    mine, other = Run("5f/replay-1", 1_000), Run("77/replay-1", 2_000)
    assert executed(world.control, RUN) is None

    assert begin(world.control, RUN, mine) == mine
    assert begin(world.another(), RUN, other) == mine
    assert begin(world.another(), RUN, replace(mine, started_ms=3_000)) == mine

    ended = replace(mine, outcome=Outcome.FAILED, finished_ms=4_000)
    world.control.note_runs({RUN: ended})
    assert begin(world.another(), RUN, other) == ended
    assert executed(world.another(), RUN) == ended
    assert executed(world.control, replace(RUN, policy="invoices")) is None


def test_a_reset_that_begins_makes_the_topics_that_are_missing(world: World) -> None:
    mine = Run("5f/replay-1", 1_000)
    assert begin(world.control, RUN, mine) == mine
    assert executed(world.another(), RUN) == mine


def test_a_run_that_begins_what_another_has_begun_is_not_believed(world: World) -> None:
    """Both have read that nobody has begun it, and then both have written: the log's order decides."""
    world.control.ensure()
    mine, other = Run("5f/replay-1", 1_000), Run("77/replay-1", 2_000)
    world.control.read()
    world.control.note_runs({RUN: mine})
    world.another().note_runs({RUN: other})

    for reader in (world.control, world.another()):
        assert executed(reader, RUN) == mine
    assert begin(world.another(), RUN, other) == mine


def test_of_resets_that_begin_at_once_one_run_has_the_id(world: World) -> None:
    world.control.ensure()
    clients = {f"{n}/replay-1": world.another() for n in range(4)}
    barrier = threading.Barrier(len(clients))

    def begun(uid: str, control: ControlTopics) -> Run:
        assert executed(control, RUN) is None
        barrier.wait(30)
        return begin(control, RUN, Run(uid, 1_000))

    with ThreadPoolExecutor(len(clients)) as pool:
        answers = [answer.result(60) for answer in [pool.submit(begun, *client) for client in clients.items()]]

    assert len(set(answers)) == 1
    assert executed(world.another(), RUN) == answers[0]


def test_a_process_that_was_replaced_begins_no_reset(world: World) -> None:
    earlier, later = world.process_of("c-1"), world.process_of("c-1")
    earlier.ensure()
    later.ensure()
    with pytest.raises(Fenced):
        begin(earlier, RUN, Run("5f/replay-1", 1_000))
    assert executed(earlier, RUN) is None
    assert begin(later, RUN, Run("5f/replay-1", 1_000)).started_ms == 1_000


def test_a_run_that_nobody_could_read_is_not_written(world: World) -> None:
    with pytest.raises(Unavailable):
        world.control.note_runs({RUN: Run("u", 1)})
    world.control.ensure()
    with pytest.raises(Refused, match="id must be"):
        world.control.note_runs({RUN: Run("u", 1), RunKey("shop", "payments", "a/b"): Run("u", 1)})
    with pytest.raises(Refused, match="finished_ms must be"):
        world.control.note_runs({RUN: Run("u", 1, Outcome.FAILED)})
    assert not world.control.read().runs


# --- what nobody can read, and topics that go -------------------------------------------------------------------------


def test_records_that_nobody_can_read_are_counted_and_passed_over(world: World) -> None:
    world.control.ensure()
    world.control.hold({key(P0): Hold()})
    world.garble()
    world.control.hold({key(P1): Hold()})

    assert set(world.control.read().holds) == {key(P0), key(P1)}
    assert world.control.unreadable >= 1


def test_a_lost_control_topic_holds_nothing_and_is_made_anew(world: World) -> None:
    world.control.ensure()
    for _ in range(5):
        old = world.control.hold({key(): Hold()})[key()]
    world.ack(P0, Ack(old, 42, "member-1"))
    world.control.write_partitions(SEEN)
    world.control.write_clock()
    assert acked(world.control.read([GROUP]), GROUP, P0) is not None

    world.lose()
    gates = world.control.read([GROUP])
    assert (dict(gates.holds), dict(gates.partitions), gates.clock_ms) == ({}, {}, None)
    assert not world.control.exist

    assert world.control.ensure() == ()
    epoch = world.control.hold({key(): Hold()})[key()]
    gates = world.control.read([GROUP])
    assert world.control.exist
    assert list(gates.holds) == [key()]
    assert epoch < old
    assert acked(gates, GROUP, P0) is None, "an ack of the earlier topic looks like one of this"
    for number in range(10):
        world.control.hold({key(holder=str(number)): Hold()})
    assert world.control.read([GROUP]).ack(GROUP, P0, "member-1") is None


def test_a_late_ack_of_a_former_owner_does_not_hide_the_owners(world: World) -> None:
    world.control.ensure()
    epoch = world.control.hold({key(): Hold()})[key()]
    world.ack(P0, Ack(epoch, 42, "member-1"))
    world.ack(P0, Ack(0, -1, "member-2"))

    for reader in (world.control, world.another()):
        gates = reader.read([GROUP])
        assert gates.ack(GROUP, P0, "member-1") == Ack(epoch, 42, "member-1")
        assert gates.ack(GROUP, P0, "member-2") == Ack(0, -1, "member-2")
        assert gates.ack(GROUP, P0, "member-3") is None


def test_an_ack_of_an_epoch_that_was_never_written_is_nobodys_word(world: World) -> None:
    world.control.ensure()
    epoch = world.control.hold({key(): Hold()})[key()]
    world.ack(P0, Ack(epoch + 100, 42, "member-1"))
    assert world.control.read([GROUP]).ack(GROUP, P0, "member-1") is None
    world.ack(P0, Ack(epoch, 42, "member-1"))
    assert world.control.read([GROUP]).ack(GROUP, P0, "member-1") is not None


def test_such_an_ack_is_nobodys_word_either_once_its_epoch_is_written(world: World) -> None:
    world.control.ensure()
    epoch = world.control.hold({key(): Hold()})[key()]
    world.ack(P0, Ack(epoch + 3, 42, "member-1"))
    assert world.control.read([GROUP]).ack(GROUP, P0, "member-1") is None

    for number in range(5):
        world.control.hold({key(holder=str(number)): Hold()})

    assert world.control.read([GROUP]).ack(GROUP, P0, "member-1") is None
    assert world.control.read([GROUP, "another"]).ack(GROUP, P0, "member-1") is None, (
        "the topic is read again for its sake"
    )


def test_such_an_ack_is_taken_back_before_its_epoch_is_written(world: World) -> None:
    """So whoever comes later does not believe it either."""
    world.control.ensure()
    epoch = world.control.hold({key(): Hold()})[key()]
    world.ack(P0, Ack(epoch + 3, 42, "member-1"))
    assert world.another().ensure() == ()

    for number in range(5):
        world.control.hold({key(holder=str(number)): Hold()})

    assert world.another().read([GROUP]).ack(GROUP, P0, "member-1") is None


def test_acks_are_told_of_the_groups_that_are_asked_about(world: World) -> None:
    world.control.ensure()
    epoch = world.control.hold({key(): Hold()})[key()]
    assert not world.control.read(["another"]).heard
    world.ack(P0, Ack(epoch, 42, "member-1"))

    gates = world.control.read(["another"])
    assert (dict(gates.acks), gates.heard) == ({}, True)
    assert not world.control.read().acks
    assert acked(world.control.read([GROUP]), GROUP, P0) == Ack(epoch, 42, "member-1"), "asked about only now"
    assert not world.control.read(["another"]).acks


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (HoldKey("g\ud800", "orders", 0, "h"), "surrogates not allowed"),
        (HoldKey("g" * 256, "orders", 0, "h"), "group must be 1 to 255 characters"),
        (HoldKey(GROUP, "orders/eu", 0, "h"), "topic must be"),
        (HoldKey(GROUP, "orders", -1, "h"), "partition must be a whole number from 0"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_hold_that_no_agent_would_read_is_refused(world: World, bad: HoldKey, why: str) -> None:
    world.control.ensure()
    with pytest.raises(Refused, match=why):
        world.control.hold({key(): Hold(), bad: Hold()})
    with pytest.raises(Refused, match="reason must be at most 1024 characters"):
        world.control.hold({key(): Hold("r" * 1025)})
    assert not world.control.read().holds


def test_a_partition_that_no_agent_would_read_of_is_refused(world: World) -> None:
    world.control.ensure()
    beyond = PartitionKey("orders", "id-1", 1_000_000)
    with pytest.raises(Refused, match="partition must be a whole number from 0 to 999999"):
        world.control.write_partitions({**SEEN, beyond: PartitionSeen(initial=True)})
    with pytest.raises(Refused, match="seen_ms must be"):
        world.control.write_partitions({**SEEN, PartitionKey("orders", "id-1", 7): PartitionSeen(seen_ms=2**63)})
    assert not world.control.read().partitions


# --- settings, on a real broker ---------------------------------------------------------------------------------------


def test_the_topics_are_made_as_they_have_to_be(real: RealWorld) -> None:
    real.control.ensure()

    for name, wanted in ((real.name, CONTROL_CONFIG), (acks_topic(real.name), ACKS_CONFIG)):
        assert len(real.admin.list_topics(name, timeout=10).topics[name].partitions) == 1
        resource = ConfigResource(ConfigResource.Type.TOPIC, name)
        found: Mapping[str, ConfigEntry] = real.admin.describe_configs([resource])[resource].result(20)
        assert {setting: found[setting].value for setting in wanted} == wanted


def test_topics_that_others_made_wrongly_are_named_with_what_mends_them(real: RealWorld) -> None:
    real.create(real.name, {"cleanup.policy": "delete", "delete.retention.ms": "60000"}, partitions=2)
    real.create(acks_topic(real.name), {"cleanup.policy": "compact,delete"})

    found = real.control.ensure()

    assert len(found) == 5
    text = "\n".join(found)
    assert f"{real.name} has 2 partitions" in text
    assert f"--entity-name {real.name} --add-config cleanup.policy=compact" in text
    assert f"--entity-name {real.name} --add-config message.timestamp.type=LogAppendTime" in text
    assert f"--entity-name {real.name} --add-config delete.retention.ms=7200000" in text
    assert f"--entity-name {acks_topic(real.name)} --add-config cleanup.policy=compact" in text


def test_a_control_topic_with_other_timestamps_tells_no_time(real: RealWorld) -> None:
    real.create(real.name, CONTROL_CONFIG | {"message.timestamp.type": "CreateTime"})
    real.create(acks_topic(real.name), ACKS_CONFIG)

    with pytest.raises(Refused, match=real.name):
        real.control.write_clock()

    assert real.control.read().clock_ms is None


@pytest.mark.parametrize(
    ("config", "partitions"), [({"message.timestamp.type": "CreateTime"}, 1), ({}, 2)], ids=["timestamps", "partitions"]
)
def test_a_control_topic_without_one_order_or_the_brokers_clock_takes_no_claims(
    real: RealWorld, config: Mapping[str, str], partitions: int
) -> None:
    real.create(real.name, CONTROL_CONFIG | config, partitions)
    real.create(acks_topic(real.name), ACKS_CONFIG)

    with pytest.raises(Refused, match=real.name):
        real.control.claim(ClaimKey(GROUP, "a"), claim_of("r"))

    assert turns(real.control) == []


def test_a_control_topic_that_somebody_else_made_anew_is_read_from_its_start(real: RealWorld) -> None:
    real.control.ensure()
    for _ in range(3):
        real.control.hold({key(): Hold()})
    assert real.control.read().holds
    real.lose()
    real.create(real.name, CONTROL_CONFIG)

    assert not real.control.read().holds
    assert real.control.exist
    epoch = real.control.hold({key(P1): Hold()})[key(P1)]
    assert epoch == 1
    assert list(real.control.read().holds) == [key(P1)]


def test_topics_that_nobody_read_for_long_are_read_from_their_start(
    real: RealWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tombstone of a hold may be gone by then."""
    real.control.ensure()
    kept = real.control.hold({key(P0): Hold()})
    client = real.another()
    assert isinstance(client, KafkaControlTopics)
    client.read()
    client._reader._gates.take(key(P1), Hold("released since"), 1)
    assert set(client.read().holds) == {key(P0), key(P1)}

    monkeypatch.setattr(control_reader, "REREAD_AFTER_S", 0.0)

    assert {k: held.epoch for k, held in client.read().holds.items()} == kept


def test_a_compacted_control_topic_is_read_to_its_end(real: RealWorld) -> None:
    """Its last records may be gone: then the end lies behind the last record that there is to read."""
    compacting = {
        "segment.ms": "100",
        "min.cleanable.dirty.ratio": "0.001",
        "max.compaction.lag.ms": "100",
        "delete.retention.ms": "0",
    }
    real.create(real.name, CONTROL_CONFIG | compacting)
    real.create(acks_topic(real.name), ACKS_CONFIG)
    kept, dropped = key(P0, "kept"), key(P1, "dropped")
    real.control.hold({kept: Hold()})

    def compacted() -> bool:
        # Each batch rolls a segment; only those that are not written to any more are cleaned.
        real.control.hold({dropped: Hold()})
        real.control.release([dropped])
        return records_in(real.bootstrap, real.name) < len(written_to(real)) // 2

    until(compacted, "the log cleaner has been there", timeout_s=90, pause_s=0.5)

    for client in (real.control, real.another()):
        began = time.monotonic()
        assert list(client.read().holds) == [kept]
        assert time.monotonic() - began < 10


def written_to(real: RealWorld) -> range:
    consumer = Consumer({"bootstrap.servers": real.bootstrap, "group.id": "contract"})
    low, high = consumer.get_watermark_offsets(ClientTopicPartition(real.name, 0), timeout=10)
    consumer.close()
    return range(low, high)


def records_in(bootstrap: str, topic: str) -> int:
    """How many records there still are."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "contract", "enable.partition.eof": True})
    consumer.assign([ClientTopicPartition(topic, 0, 0)])
    count = 0
    while (message := consumer.poll(10)) is not None and message.error() is None:
        count += 1
    consumer.close()
    return count
