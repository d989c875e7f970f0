"""Records and committed offsets, made and looked at by an ordinary client."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from support.clients import ConsumerFleet
from support.operator_process import until

NO_COORDINATOR = (
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
)


def produce(bootstrap: str, topic: str, partitions: int, each: int) -> None:
    """`each` records into every partition."""
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    for number in range(each * partitions):
        producer.produce(topic, str(number).encode(), partition=number % partitions)
    assert producer.flush(30) == 0


@contextmanager
def _client(bootstrap: str, group: str) -> Iterator[Consumer]:
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False, "log_level": 0}
    )
    try:
        yield consumer
    finally:
        consumer.close()


def commit(bootstrap: str, group: str, topic: str, offsets: Mapping[int, int]) -> None:
    """As an application without a subscription commits; once the group has a coordinator, where the broker is new."""
    with _client(bootstrap, group) as consumer:
        wanted = [TopicPartition(topic, partition, offset) for partition, offset in offsets.items()]
        for done in until(lambda: _committed(consumer, wanted), f"group {group} has a coordinator", timeout_s=90):
            assert done.error is None, done.error


def leave_at(bootstrap: str, group: str, topic: str, offsets: Mapping[int, int]) -> None:
    """As an application that has subscribed to the topic commits before it ends: the group has had a member, so that a
    reset need not watch for consumers that no group shows."""
    with _client(bootstrap, group) as consumer:
        consumer.subscribe([topic])

        def assigned() -> bool:
            consumer.poll(0.1)
            return bool(consumer.assignment())

        until(assigned, f"{group} is assigned {topic}", timeout_s=90)
        for done in consumer.commit(
            offsets=[TopicPartition(topic, partition, offset) for partition, offset in offsets.items()],
            asynchronous=False,
        ):
            assert done.error is None, done.error


def _committed(consumer: Consumer, wanted: list[TopicPartition]) -> list[TopicPartition]:
    """What became of each; nothing while no broker coordinates the group."""
    try:
        done: list[TopicPartition] = consumer.commit(offsets=wanted, asynchronous=False)
    except KafkaException as error:
        if error.args[0].code() not in NO_COORDINATOR:
            raise
        return []
    return done


def committed(bootstrap: str, group: str, topic: str, partitions: int) -> dict[int, int]:
    """By partition; those without a commit are left out."""
    with _client(bootstrap, group) as consumer:
        found = consumer.committed([TopicPartition(topic, number) for number in range(partitions)], 15)
    return {partition.partition: partition.offset for partition in found if partition.offset >= 0}


@contextmanager
def live_group(bootstrap: str, group: str, topic: str, partitions: int) -> Iterator[ConsumerFleet]:
    """Two ordinary consumers that own the topic's partitions and have read it to its end."""
    with ConsumerFleet("librdkafka", bootstrap, group, [topic], 2, auto_commit_interval_s=0.5) as fleet:
        fleet.wait_assigned([(topic, number) for number in range(partitions)], members=2)
        yield fleet
