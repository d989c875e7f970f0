"""The process's way to the control topic and the ack topic of one cluster: one reader and one writer, two threads.

This is imported while ``confluent_kafka`` is: of that only ``cimpl`` is there, until threads run.

Readers and writers are clients of their own beside the application's, with its connection settings. Nothing here ever
raises into the application or blocks it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final

from confluent_kafka.cimpl import (
    OFFSET_BEGINNING,
    TIMESTAMP_LOG_APPEND_TIME,
    Consumer,
    KafkaError,
    KafkaException,
    TopicPartition,
)

from tidegate_agent import control_reading
from tidegate_agent.ack_writer import AckWriter
from tidegate_agent.control_reading import ControlReading
from tidegate_agent.gates import Known, Partition
from tidegate_agent.own_clients import OwnClients, client_log, plain, reader_settings
from tidegate_agent.topic_description import REQUEST_S, Topic, topic_id, topic_ids, topic_now, unless_absent
from tidegate_agent.troubles import Troubles

log = logging.getLogger("tidegate_agent")

_LOOK_S: Final = 5.0
"""How often the topic is looked at unasked: whether it is still the same one."""
_ABSENT_LOOK_S: Final = 1.0
"""The same while there is none: the first pause of a cluster makes it, and should not have to wait for long."""
_AWAY_S: Final = 3600.0
"""After how long without having read to its end the topic is read from its start: tombstones may be gone that would
have opened gates. The brokers keep them for at least twice as long (``delete.retention.ms``)."""
_RETRY_S: Final = 0.5
_POLL_S: Final = 0.5
_BATCH: Final = 500


def _instant() -> tuple[float, float]:
    """Now, by two clocks of this machine (seconds): one of them stands while a virtual machine is suspended, the other
    may be set."""
    return time.monotonic(), time.time()


def _passed(since: tuple[float, float]) -> float:
    """How long ago that was: too long costs a reading of the topic, too short a gate that never opens."""
    return max(now - then for now, then in zip(_instant(), since, strict=True))


def _appended_ms(message: Any) -> int | None:
    """The broker's time of it; ``None`` where its timestamp is not the broker's."""
    kind, at_ms = message.timestamp()
    return at_ms if kind == TIMESTAMP_LOG_APPEND_TIME else None


class ControlLink:
    """``known`` is what was read, replaced as a whole; ``listen``ers are called from the link's threads.

    ``settings``: librdkafka's, see ``connection_settings``. Threads start with the first question.
    """

    def __init__(self, settings: Mapping[str, Any], control_topic: str, acks_topic: str) -> None:
        self._topic = control_topic
        self._acks_topic = acks_topic
        self._changed = threading.Condition()
        self._reading = ControlReading()
        self._listeners: list[Callable[[], None]] = []
        self._asked = 0
        self._named: dict[str, int] = {}
        """Topics whose ids are asked for, with the newest question."""
        self._wanted: Topic | None = None
        self._round = 0
        """Counts how often the topic has to be read from its start although it is the same."""
        self._begun = ("", 0)
        """The id of the topic that ``_position`` is of, and the round."""
        self._published = ("", 0)
        """The same of ``known``."""
        self._current: tuple[float, float] | None = None
        """The newest time as of which what was read is known to have no gaps."""
        self._doubted = False
        self._position = -1
        self._furthest = ("", 0)
        """The id of the topic that is read, and the highest position that was reached in it, by whatever reading."""
        self._rewound: tuple[str, int] | None = None
        """The reading that went on from an earlier offset by itself, and so has missed something."""
        self._cuts = 0
        """Counts how often brokers have lost the end of the topic, after it was read."""
        self._was_at_end = False
        self._lost_at: float | None = None
        """When the control topic was found lost before anything of it had been read."""
        self._stopped = False
        self._threads: list[threading.Thread] = []
        self._clients = OwnClients(settings, self._changed)
        self._troubles = Troubles()
        self._acks = AckWriter(self._clients, acks_topic, self._changed, self._troubles)

    # --- for adapters -------------------------------------------------------------------------------------------------

    @property
    def known(self) -> Known:
        return self._reading.known

    def ask(self, topics: Collection[str] = ()) -> int:
        """Have the control topic read to its end as it is now; the ticket that ``known.answered`` will reach.

        ``topics``: those whose ids are to be in ``known`` with the answer, as far as discovery has spoken of them and
        the brokers tell.
        """
        with self._changed:
            self._asked += 1
            self._named.update(dict.fromkeys(topics, self._asked))
            self._start()
            self._changed.notify_all()
            return self._asked

    def listen(self, changed: Callable[[], None]) -> None:
        """Call this, from one of the link's threads, whenever ``known`` has changed."""
        with self._changed:
            self._listeners.append(changed)

    def unlisten(self, changed: Callable[[], None]) -> None:
        with self._changed:
            if changed in self._listeners:
                self._listeners.remove(changed)

    def send_acks(
        self,
        group: str,
        member: str,
        acks: Mapping[Partition, tuple[int, int]],
        generation: int,
        done: Callable[[bool], None],
    ) -> None:
        """Send acks; ``done`` is called once, maybe from another thread, with whether the broker has them all.

        Acks of an earlier control topic are not sent: their epochs say nothing any more. Nor are those from before
        there was one, for there is nobody to read them: once there is one, each partition is acked again. Waiting for
        an ack topic, they would come after those of whoever owns the partitions by then.
        """
        if generation != self.known.generation:
            done(False)
            return
        if not generation:
            done(True)
            return
        self._acks.send(group, member, acks, lambda: self.known.generation == generation, done)
        with self._changed:
            self._start()

    def set_credentials(self, username: str, password: str) -> None:
        """What the application told its own client to use from now on."""
        self._clients.set_credentials(username, password)

    def settle(self, until: float) -> None:
        """Wait until none of the link's clients has a connection to make, or until that time (``time.monotonic``).

        Where the brokers cannot be reached clients connect again and again: that is not waited for.
        """
        with self._changed:
            self._changed.wait_for(self._is_settled, max(0.0, until - time.monotonic()))

    def close(self) -> None:
        """End the threads; what was not written is not. ``known`` stays."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(2 * REQUEST_S)

    # --- inside -------------------------------------------------------------------------------------------------------

    def _is_settled(self) -> bool:
        if self._clients.being_made or self._acks.is_being_made:
            return False
        is_at_work = bool(self._threads) and not self._stopped and not self._troubles.has("reach")
        return not is_at_work or (self.known.answered >= self._asked and not self._acks.outstanding)

    def _start(self) -> None:
        if self._stopped:
            return
        for work in (self._keep, self._read)[len(self._threads) :]:
            thread = threading.Thread(target=self._guarded, args=(work,), name="tidegate-agent", daemon=True)
            try:
                thread.start()
            except RuntimeError as error:  # there may be no more threads, or the interpreter is ending
                self._troubles.say("threads", f"the control topic is not read: {error}")
                return
            self._threads.append(thread)
        self._troubles.over("threads", "the control topic is read")

    def _guarded(self, work: Callable[[], None]) -> None:
        while not self._stopped:
            try:
                work()
            except (KafkaException, RuntimeError, ValueError, TypeError, OSError) as error:
                self._troubles.say("clients", f"the control topic cannot be read: {error}")
                self._rest(_RETRY_S)

    def _rest(self, seconds: float) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._stopped, seconds)

    def _publish(self, change: Callable[[], None]) -> None:
        """Change what is known, and tell it where it is new. The keeper and the reader each know a part of it."""
        with self._changed:
            before = self.known
            change()
            if self.known == before:
                return
            listeners = list(self._listeners)
            self._changed.notify_all()
        for changed in listeners:
            changed()

    # The keeper: looks at the topic, answers questions, has the producer's answers delivered.

    def _keep(self) -> None:
        from confluent_kafka.admin import AdminClient

        admin = self._clients.make("keeper", lambda settings: AdminClient(settings, logger=client_log()))
        answered, next_look = 0, 0.0
        while not self._stopped:
            with self._changed:
                asked, outstanding = self._asked, self._acks.outstanding
                if asked == answered and not outstanding and not self._doubted:
                    kept_until = self._reading.kept_until
                    until = next_look if kept_until is None else min(next_look, kept_until)
                    self._changed.wait(max(0.0, until - time.monotonic()))
                asked, doubted, self._doubted = self._asked, self._doubted, False
            self._publish(lambda: self._reading.release_kept(time.monotonic()))
            self._acks.poll(0.02 if outstanding else 0)
            if asked == answered and not doubted and time.monotonic() < next_look:
                continue
            looked, furthest = _instant(), self._furthest
            try:
                topic = self._look(admin)
                is_lost = self._is_lost(admin, topic)
            except KafkaException as error:
                self._troubles.say("reach", f"cannot look at control topic {self._topic}: {error.args[0]}")
                self._rest(_RETRY_S)
                continue
            if is_lost:
                self._troubles.say("gone", f"control topic {self._topic} is gone: the gates stay as they are")
                self._rest(_RETRY_S)
                continue
            next_look = time.monotonic() + (_ABSENT_LOOK_S if topic is None else _LOOK_S)
            if topic is None:
                self._troubles.say("none", f"there is no control topic {self._topic}: nothing is paused by it")
                answered = asked
                self._publish(partial(self._reading.answer, asked))
                continue
            with self._changed:
                self._wanted = self._as_another_if_cut(topic, furthest)
                if self._current is None or _passed(self._current) > _AWAY_S:
                    self._round += self._current is not None
                    self._current = looked
                self._changed.notify_all()
                read = self._changed.wait_for(self._is_wanted_read, REQUEST_S)
            if read:
                answered, self._current = asked, looked
                self._publish(partial(self._reading.answer, asked, self._identified(admin, asked)))
                self._troubles.over("reach", f"control topic {self._topic} is read again")
                self._troubles.over("gone", f"there is a control topic {self._topic} again: it was read from its start")
                self._troubles.forget("none")

    def _look(self, admin: Any) -> Topic | None:
        """The control topic as it is now, ``None`` when the brokers say that there is none. Raises KafkaException."""
        return unless_absent(lambda: topic_now(admin, self._topic))

    def _as_another_if_cut(self, topic: Topic, furthest: tuple[str, int]) -> Topic:
        """With an id of its own where the topic ends before what was read of it (``furthest``, from before that was
        looked at): offsets are used again, so that epochs from before say nothing any more."""
        found = f"{topic.topic_id} {self._cuts}"
        if furthest[0] == found and topic.end < furthest[1]:
            log.warning("control topic %s ends before what was read of it: brokers have lost records", self._topic)
            self._cuts += 1
        elif self._rewound == (found, self._round):
            self._round += 1
        self._rewound = None
        return replace(topic, topic_id=f"{topic.topic_id} {self._cuts}")

    def _identified(self, admin: Any, asked: int) -> dict[str, str] | None:
        """The ids of topics as they are now, where some were named with the questions so far."""
        with self._changed:
            named = {topic for topic, ticket in self._named.items() if ticket <= asked}
            self._named = {topic: ticket for topic, ticket in self._named.items() if ticket > asked}
        discovered = named & self.known.discovered.keys()
        if not discovered and not named & self.known.topic_ids.keys():
            return None
        kept = {topic: topic_id for topic, topic_id in self.known.topic_ids.items() if topic not in named}
        return kept | (topic_ids(admin, discovered) if discovered else {})

    def _is_lost(self, admin: Any, topic: Topic | None) -> bool:
        """Whether there was a control topic, and this is none, or none that could be read. Raises KafkaException."""
        if self.known.generation:
            return topic is None
        if self._lost_at is None:
            # The ack topic is made with the control topic: where it stands alone, the other one was lost.
            if topic is not None or unless_absent(lambda: topic_id(admin, self._acks_topic)) is None:
                return False
            self._lost_at = time.monotonic()
        is_written = topic is not None and topic.end > 0
        return not is_written and time.monotonic() < self._lost_at + control_reading.REBUILT_S

    def _is_wanted_read(self) -> bool:
        wanted = self._wanted
        return self._stopped or (
            wanted is not None and self._published == (wanted.topic_id, self._round) and self._position >= wanted.end
        )

    # The reader: takes records.

    def _read(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._stopped or self._wanted is not None)
        reading: tuple[str, int] | None = None
        consumer = self._clients.make(
            "reader", lambda settings: plain(Consumer)(reader_settings(settings), logger=client_log())
        )
        with self._changed:
            # Begun again after a failure, the same topic is read from its start.
            self._round += self._begun[0] != ""
        try:
            while not self._stopped:
                wanted = self._wanted_reading()
                if wanted is not None and wanted != reading:
                    reading = wanted
                    consumer.assign([TopicPartition(self._topic, 0, OFFSET_BEGINNING)])
                    with self._changed:
                        self._reading.begin(reading[0])
                        self._position, self._begun = 0, reading
                        self._was_at_end = False
                    self._take([])
                first = consumer.poll(_POLL_S)
                if first is not None and self._wanted_reading() == reading:
                    self._take([first, *consumer.consume(_BATCH, 0)])
        finally:
            self._clients.drop("reader")
            consumer.close()

    def _wanted_reading(self) -> tuple[str, int] | None:
        with self._changed:
            return None if self._wanted is None else (self._wanted.topic_id, self._round)

    def _take(self, messages: list[Any]) -> None:
        position, was_at_end = self._position, self._was_at_end
        end = self._wanted.end if self._wanted is not None else 0
        for message in messages:
            error = message.error()
            if error is not None:
                if error.code() == KafkaError._PARTITION_EOF:
                    position, self._was_at_end = max(position, message.offset()), True
                else:
                    if error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                        # Looking at it takes a smaller right: the keeper does not notice.
                        self._troubles.say("reach", f"cannot read control topic {self._topic}: {error.str()}")
                    self._suspect()
                continue
            if message.offset() < position:
                self._rewound = self._begun
                self._suspect()
                continue
            position = message.offset() + 1
            # What came after a look at the topic's end is not older than that.
            is_live = was_at_end or message.offset() >= end
            now, appended_ms = time.monotonic(), _appended_ms(message)
            self._reading.take(
                message.key(), message.value(), message.offset(), appended_ms=appended_ms, is_live=is_live, now=now
            )
        with self._changed:
            self._position = position
            reached = self._furthest[1] if self._furthest[0] == self._begun[0] else 0
            self._furthest = self._begun[0], max(position, reached)
            if self._published != self._begun and (self._wanted is None or position < self._wanted.end):
                return  # before its end is reached, holds would seem to be released
            self._published = self._begun
            # Before the keeper sees that the end was reached, or its answer would come before what was read.
            self._publish(lambda: self._reading.read_to(position, time.monotonic()))

    def _suspect(self) -> None:
        """The topic may be another one than before: have it looked at now."""
        with self._changed:
            self._doubted = True
            self._changed.notify_all()
