"""Writing to the ack topic of one cluster."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from confluent_kafka.cimpl import KafkaError, KafkaException, Producer

from tidegate_agent.gates import Partition
from tidegate_agent.own_clients import OwnClients, client_log, plain
from tidegate_agent.records import Ack, AckKey, encode_key, encode_value
from tidegate_agent.troubles import Troubles

log = logging.getLogger("tidegate_agent")

_ACK_MS: Final = 10_000


@dataclass
class _Batch:
    """Acks that were given at once."""

    records: Sequence[tuple[bytes, bytes | None]]
    """Keys and values."""
    is_current: Callable[[], bool]
    done: Callable[[bool], None]
    unanswered: int
    failed: bool = False


class AckWriter:
    """Its producer is made with the first ack. ``changed``: the lock that ``outstanding`` is looked at with."""

    def __init__(self, clients: OwnClients, topic: str, changed: threading.Condition, troubles: Troubles) -> None:
        self._clients = clients
        self._topic = topic
        self._changed = changed
        self._troubles = troubles
        self._producer: Producer | None = None
        self.is_being_made = False
        """Its producer, at this moment."""
        self._queued: deque[_Batch] = deque()
        self.outstanding = 0
        """Acks that the broker has not answered yet: for that, ``poll`` has to be called."""

    def send(
        self,
        group: str,
        member: str,
        acks: Mapping[Partition, tuple[int, int]],
        is_current: Callable[[], bool],
        done: Callable[[bool], None],
    ) -> None:
        """Send acks; ``done`` is called once, maybe from another thread, with whether the broker has them all.

        It returns at once. Acks that wait for the producer and are not current any more by then are not sent;
        ``is_current`` is called with the lock.
        """
        records = [
            (encode_key(AckKey(group, *partition)), encode_value(Ack(epoch, offset, member)))
            for partition, (epoch, offset) in acks.items()
        ]
        with self._changed:
            self._queued.append(_Batch(records, is_current, done, len(records)))
            self.outstanding += len(records)
            self._changed.notify_all()
            producer = self._producer
            is_first = producer is None and not self.is_being_made
            self.is_being_made |= is_first
        if producer is not None:
            self._produce(producer)
        elif is_first:
            try:
                # A thread of its own: it may take seconds, see OwnClients.make, and the link's have gates to read.
                threading.Thread(target=self._make, name="tidegate-agent", daemon=True).start()
            except RuntimeError as error:  # the interpreter is ending
                self._fail(error)

    def poll(self, seconds: float) -> None:
        """Have the broker's answers delivered."""
        producer = self._producer
        if producer is not None:
            producer.poll(seconds)
        elif seconds:
            with self._changed:
                self._changed.wait(seconds)

    def _make(self) -> None:
        of_acks = {
            "linger.ms": 2,
            "message.timeout.ms": _ACK_MS,
            # The order of a partition's acks is what they mean; with one request at a time it is kept without the
            # rights that idempotence may need.
            "acks": "all",
            "max.in.flight.requests.per.connection": 1,
            "allow.auto.create.topics": False,
        }
        try:
            producer = self._clients.make(
                "acks", lambda settings: plain(Producer)({**settings, **of_acks}, logger=client_log())
            )
        except (KafkaException, RuntimeError, ValueError, TypeError, OSError) as error:
            self._fail(error)
            return
        with self._changed:
            self._producer, self.is_being_made = producer, False
        self._produce(producer)

    def _produce(self, producer: Producer) -> None:
        """Hand over what is queued, in its order, from any thread."""
        errors: list[Exception] = []
        ended: list[_Batch] = []
        with self._changed:
            while self._queued:
                batch = self._queued.popleft()
                left = len(batch.records)
                try:
                    for key, value in batch.records if batch.is_current() else ():
                        producer.produce(self._topic, value, key, on_delivery=partial(self._delivered, batch))
                        left -= 1
                except (KafkaException, BufferError, RuntimeError, ValueError, TypeError) as error:
                    errors.append(error)
                if left:
                    batch.failed = True
                    if self._count(batch, left):
                        ended.append(batch)
        for trouble in errors:
            self._say(str(trouble))
        for batch in ended:
            batch.done(False)

    def _fail(self, error: Exception) -> None:
        """There is no producer; the next acks have it tried again."""
        with self._changed:
            self.is_being_made = False
            failed = list(self._queued)
            self._queued.clear()
            for batch in failed:
                self._count(batch, batch.unanswered)
        self._say(str(error))
        for batch in failed:
            batch.done(False)

    def _delivered(self, batch: _Batch, error: KafkaError | None, _message: object) -> None:
        with self._changed:
            batch.failed |= error is not None
            is_last = self._count(batch, 1)
        if error is not None:
            self._say(error.str())
        if is_last:
            if not batch.failed:
                self._troubles.over("acks", f"acks are written to topic {self._topic} again")
            batch.done(not batch.failed)

    def _count(self, batch: _Batch, ended: int) -> bool:
        """Have so many acks of a batch not be outstanding any more; whether those were the last. Under the lock."""
        self.outstanding -= ended
        batch.unanswered -= ended
        self._changed.notify_all()
        return batch.unanswered == 0

    def _say(self, reason: str) -> None:
        self._troubles.say("acks", f"cannot write acks to topic {self._topic}: {reason}")
