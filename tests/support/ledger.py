"""What an application in pods was given: its ledger, a topic, read as it grows (`e2e/cluster/application`)."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Collection
from types import TracebackType
from typing import Final, Self

from confluent_kafka import Consumer, KafkaException, TopicPartition

from support.deliveries import Delivery, Partition

_POLL_S: Final = 0.1


class Ledger:
    """Follows the ledger from its first entry while the ``with`` block lasts; any thread may ask.

    Pods are on this machine, so their times (epoch seconds) and ours are one clock's.
    """

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._topic = topic
        self._consumer = Consumer(
            {"bootstrap.servers": bootstrap, "group.id": f"{topic}-reader", "enable.auto.commit": False}
        )
        self._changed = threading.Condition()
        self._deliveries: list[Delivery] = []
        self._last: dict[Partition, Delivery] = {}
        self._joined: dict[str, float] = {}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"ledger {topic}", daemon=True)

    def __enter__(self) -> Self:
        self._consumer.assign([TopicPartition(self._topic, 0, 0)])
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stopping.set()
        self._thread.join()
        self._consumer.close()

    def deliveries(self, since: float = 0.0) -> list[Delivery]:
        """Those at or after `since`, in the order of the ledger."""
        with self._changed:
            return [delivery for delivery in self._deliveries if delivery.t >= since]

    def last(self, partition: Partition) -> Delivery | None:
        with self._changed:
            return self._last.get(partition)

    def members(self) -> dict[str, float]:
        """When each member last was given partitions, or records."""
        with self._changed:
            return dict(self._joined)

    def wait_for(self, holds: Callable[[], bool], seconds: float, what: str) -> None:
        """Until `holds`, looked at with each entry. Raises ``AssertionError`` naming `what`."""
        deadline = time.monotonic() + seconds
        with self._changed:
            while not holds():
                left = deadline - time.monotonic()
                assert left > 0, f"not within {seconds:.0f} s: {what}; last: {sorted(self._last.values())}"
                self._changed.wait(min(left, 0.2))

    def wait_flowing(self, partitions: Collection[Partition], seconds: float = 60.0) -> None:
        """Each partition delivers a record from now on."""
        since = time.time()

        def flows() -> bool:
            found = (self._last.get(partition) for partition in partitions)
            return all(delivery is not None and delivery.t >= since for delivery in found)

        self.wait_for(flows, seconds, f"every one of {len(partitions)} partitions delivers")

    def _run(self) -> None:
        while not self._stopping.is_set():
            message = self._consumer.poll(_POLL_S)
            if message is None:
                continue
            if message.error():
                if message.error().fatal():
                    raise KafkaException(message.error())
                continue  # a broker that is away: librdkafka goes on by itself
            entry = json.loads(message.value())
            member = str(entry["member"])
            batch = [Delivery(t, member, topic, partition, o) for topic, partition, o, t in entry["records"]]
            with self._changed:
                self._joined[member] = float(entry["t"])
                self._deliveries.extend(batch)
                self._last.update({(d.topic, d.partition): d for d in batch})
                self._changed.notify_all()
