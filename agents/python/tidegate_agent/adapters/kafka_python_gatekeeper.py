"""What one consumer of kafka-python is told to do by its core, carried out when the application polls."""

from __future__ import annotations

import logging
import threading
import time
import weakref
from collections import deque
from collections.abc import Mapping
from typing import Any, Final

import kafka.errors as errors
from kafka.protocol.consumer import OffsetFetchRequest, OffsetResetStrategy
from kafka.structs import TopicPartition
from kafka.util import Timer

from tidegate_agent.adapters.consumer_gate import ConsumerGate, Link
from tidegate_agent.core import Core
from tidegate_agent.effects import (
    Begin,
    Commit,
    Committed,
    Effect,
    Forget,
    Next,
    Pause,
    Position,
    Resume,
    Seek,
    SendAcks,
)
from tidegate_agent.gates import Partition
from tidegate_agent.settings import Settings
from tidegate_agent.start import Rule, Start

log = logging.getLogger("tidegate_agent")

IDLE_MS: Final = 100
"""How long a poll without records may wait before it looks at the gates again."""

BUSY_MS: Final = 10
"""The same while a gate is being closed or opened."""

REQUEST_S: Final = 10.0
"""After so many seconds without an answer an effect is tried again."""

UNSTABLE_OFFSET_COMMIT: Final = 88

_STRATEGY_OF: Final = {Start.EARLIEST: OffsetResetStrategy.EARLIEST, Start.LATEST: OffsetResetStrategy.LATEST}


class Gatekeeper:
    """Carries out one consumer's effects, when the application polls."""

    def __init__(self, consumer: Any, link: Link, settings: Settings, rule: Rule | None = None) -> None:
        self._consumer = weakref.ref(consumer)
        self._subscription = consumer._subscription
        self._link = link
        self._running: list[tuple[Effect, Any, float]] = []
        """Requests to the coordinator: the effect, the client's future, when it has taken too long."""
        self._answers: deque[tuple[SendAcks, bool]] = deque()
        self._acking = 0
        self._wakes_at: float | None = 0.0
        self._driver = threading.Lock()
        self.news = True
        self.sought = False
        self.timer: Timer | None = None
        auto_commit = bool(consumer.config["enable_auto_commit"])
        core = Core(
            consumer.config["group_id"],
            client_commits=auto_commit,
            client_stores=auto_commit,
            open_unread_after_s=settings.open_unread_after_s,
            rule=rule,
        )
        self.gate = ConsumerGate(core, link, self.delivered, self._has_news)
        link.listen(self._has_news)

    def close(self) -> None:
        """Nothing is done any more; what was sealed stays sealed for the client's last commit."""
        if not self.gate.closed:
            self.gate.closed = True
            self._link.unlisten(self._has_news)

    def _has_news(self) -> None:
        self.news = True

    @property
    def is_due(self) -> bool:
        """Whether ``drive`` may have something to do."""
        return self.news or (self._wakes_at is not None and time.monotonic() >= self._wakes_at)

    def wait_ms(self) -> float:
        """How long the client may wait for records before ``drive`` is called again."""
        if self.news or self._running or self._acking:
            return BUSY_MS
        if self._wakes_at is None:
            return IDLE_MS
        return min(IDLE_MS, max(1.0, (self._wakes_at - time.monotonic()) * 1000))

    def drive(self) -> None:
        """Do what is due, without waiting for anybody. In the application's thread."""
        if self.gate.closed or not self._driver.acquire(blocking=False):
            return
        try:
            self.news = False
            self._gather()
            while (effect := self.gate.work()) is not None:
                try:
                    self._carry_out(effect)
                except Exception:  # noqa: BLE001  (it must not reach the application)
                    self.gate.failed_unforeseen(effect)
            wakes_in = self.gate.wakes_in()
            self._wakes_at = None if wakes_in is None else time.monotonic() + wakes_in
            if self._running:
                self._wakes_at = time.monotonic()
        finally:
            self._driver.release()

    # --- effects ------------------------------------------------------------------------------------------------------

    def _gather(self) -> None:
        """What has been answered since."""
        while self._answers:
            acks, written = self._answers.popleft()
            self._acking -= 1
            if written:
                self.gate.done(acks)
            else:
                self.gate.failed(acks)
        running, self._running = self._running, []
        for effect, future, until in running:
            if not future.is_done and time.monotonic() < until:
                self._running.append((effect, future, until))
            elif not future.succeeded():
                log.debug("%s: %r", type(effect).__name__, future.exception)
                self.gate.failed(effect)
            elif isinstance(effect, Committed):
                self.gate.committed(effect, future.value)
            else:
                self.gate.done(effect)

    def _carry_out(self, effect: Effect) -> None:
        consumer = self._consumer()
        if consumer is None:
            self.gate.failed(effect)
            return
        assigned = [TopicPartition(*p) for p in effect.partitions if self._subscription.is_assigned(p)]
        if isinstance(effect, Pause):
            for tp in assigned:
                self._subscription.pause(tp)
            self.gate.done(effect)
        elif isinstance(effect, Resume):
            for tp in assigned:
                self._subscription.resume(tp)
            self.gate.done(effect)
        elif isinstance(effect, Next):
            self.gate.done(effect, self._next(effect.partitions))
        elif isinstance(effect, Position):
            self.gate.done(effect, self.delivered(effect.partitions))
        elif isinstance(effect, Forget):
            # What kafka-python commits by itself are positions, and these do not pass the coordinator while sealed.
            self.gate.done(effect)
        elif isinstance(effect, Seek):
            for tp in assigned:
                self._subscription.seek(tp, effect.offsets[Partition(*tp)])
            # The rest of a batch that is being iterated over is of before.
            self.sought, consumer._iterator = True, None
            self.gate.done(effect, [Partition(*tp) for tp in assigned])
        elif isinstance(effect, Begin):
            for tp in assigned:
                self._subscription.request_offset_reset(tp, _STRATEGY_OF[effect.start])
            self.gate.done(effect, [Partition(*tp) for tp in assigned])
        elif isinstance(effect, SendAcks):
            self._send_acks(consumer, effect)
        elif isinstance(effect, Committed):
            self._run(effect, consumer, _committed(consumer._coordinator, effect.partitions))
        elif isinstance(effect, Commit):
            positions = {tp: state.position for tp in assigned if (state := self._subscription.assignment.get(tp))}
            offsets = {tp: position for tp, position in positions.items() if position is not None}
            self._run(effect, consumer, consumer._coordinator._send_offset_commit_request(offsets))

    def _run(self, effect: Effect, consumer: Any, request: Any) -> None:
        """A coroutine, on the client's I/O thread."""
        future = consumer._net.call_soon_with_future(request)
        self._running.append((effect, future, time.monotonic() + REQUEST_S))

    def _send_acks(self, consumer: Any, effect: SendAcks) -> None:
        member = ""
        if self._subscription.partitions_auto_assigned():
            generation = consumer._coordinator.generation_if_stable()
            if generation is None or not generation.member_id:
                # It is not known yet whose the partitions are; an ack without a member would speak for another one.
                self.gate.failed(effect)
                return
            member = generation.member_id

        def answered(written: bool) -> None:
            self._answers.append((effect, written))
            self.news = True

        self._acking += 1
        self._link.send_acks(self.gate.core.group, member, effect.acks, effect.generation, answered)

    def delivered(self, partitions: tuple[Partition, ...]) -> dict[Partition, int | None]:
        """Also called on the I/O thread, for commits."""
        states = {p: self._subscription.assignment.get(p) for p in partitions}
        return {p: state.delivered if state is not None else None for p, state in states.items()}

    def _next(self, partitions: tuple[Partition, ...]) -> dict[Partition, int | None]:
        states = {p: self._subscription.assignment.get(p) for p in partitions}
        positions = {p: state.position if state is not None else None for p, state in states.items()}
        return {p: position.offset if position is not None else None for p, position in positions.items()}

    def below_limits(self, records: Mapping[Any, list[Any]], *, has_moved: bool) -> dict[Any, list[Any]]:
        """Those that may be handed to the application; the rest is fetched again. ``has_moved``: whether the positions
        are after these records already; otherwise each is moved as its record is taken by iteration."""
        kept = {}
        for tp, batch in records.items():
            count = self.gate.below_limit(Partition(*tp), batch, one_by_one=not has_moved)
            if count:
                kept[tp] = batch[:count]
            state = self._subscription.assignment.get(tp)
            if count < len(batch) and has_moved and state is not None:
                before = state.delivered
                self._subscription.seek(tp, batch[count].offset)
                state.delivered = before
        return kept

    def note(self, topic: str, partition: int, offset: int) -> None:
        """This record was handed to the application."""
        state = self._subscription.assignment.get((topic, partition))
        if state is not None:
            state.delivered = offset + 1


async def _committed(coordinator: Any, partitions: tuple[Partition, ...]) -> dict[Partition, int | None]:
    """The group's committed offsets, without those for which a transaction is open (KIP-447)."""
    node = coordinator.coordinator()
    if node is None:
        raise errors.CoordinatorNotAvailableError
    topics: dict[str, list[int]] = {}
    for topic, number in partitions:
        topics.setdefault(topic, []).append(number)
    group_of = OffsetFetchRequest.OffsetFetchRequestGroup
    request = OffsetFetchRequest(
        group_id=coordinator.group_id,
        topics=[OffsetFetchRequest.OffsetFetchRequestTopic(name=t, partition_indexes=n) for t, n in topics.items()],
        groups=[
            group_of(
                group_id=coordinator.group_id,
                topics=[group_of.OffsetFetchRequestTopics(name=t, partition_indexes=n) for t, n in topics.items()],
            )
        ],
        require_stable=True,
        min_version=0,
        max_version=8,
    )
    try:
        response = await coordinator._manager.send(request, node_id=node)
    except errors.KafkaError as error:
        coordinator._failed_request(node, request, error)
        raise
    answer = response.groups[0] if response.API_VERSION >= 8 else response
    _raise(coordinator, answer.error_code if response.API_VERSION >= 2 else 0)
    found: dict[Partition, int | None] = {}
    for topic in answer.topics:
        for entry in topic.partitions:
            if entry.error_code == UNSTABLE_OFFSET_COMMIT:
                continue
            _raise(coordinator, entry.error_code)
            offset = entry.committed_offset
            found[Partition(topic.name, entry.partition_index)] = offset if offset >= 0 else None
    return found


def _raise(coordinator: Any, code: int) -> None:
    kind = errors.for_code(code)
    if kind is errors.NoError:
        return
    error = kind()
    if isinstance(error, errors.NotCoordinatorError):
        coordinator.coordinator_dead(error)
    raise error
