"""What one consumer of aiokafka is told to do by its core, carried out in its event loop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import weakref
from typing import Any, Final

import aiokafka.errors as errors
from aiokafka.client import ConnectionGroup
from aiokafka.consumer.fetcher import OffsetResetStrategy
from aiokafka.structs import OffsetAndMetadata, TopicPartition

from tidegate_agent.adapters.aiokafka_offsets import StableOffsetFetch, committed_offsets
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
from tidegate_agent.time_outs import TIME_OUTS

log = logging.getLogger("tidegate_agent")

REQUEST_S: Final = 10.0
"""After so many seconds without an answer an effect is tried again."""

_STRATEGY_OF: Final = {Start.EARLIEST: OffsetResetStrategy.EARLIEST, Start.LATEST: OffsetResetStrategy.LATEST}


class Gatekeeper:
    """Carries out one consumer's effects, in its event loop."""

    def __init__(self, consumer: Any, group: str, link: Link, settings: Settings, rule: Rule | None = None) -> None:
        self._loop: asyncio.AbstractEventLoop = consumer._loop
        self._subscription = consumer._subscription
        self._consumer = weakref.ref(consumer)
        self._link = link
        self._assignment: Any = None
        self._timer: asyncio.Handle | None = None
        self._tasks: set[asyncio.Future[Any]] = set()
        auto_commit = bool(consumer._enable_auto_commit)
        core = Core(
            group,
            client_commits=auto_commit,
            client_stores=auto_commit,
            open_unread_after_s=settings.open_unread_after_s,
            rule=rule,
        )
        self.gate = ConsumerGate(core, link, self._delivered, self._woken_from_outside)
        link.listen(self._woken_from_outside)

    def close(self) -> None:
        """Nothing is done any more; what was sealed stays sealed for the client's last commit."""
        if self.gate.closed:
            return
        self.gate.closed = True
        self._link.unlisten(self._woken_from_outside)
        if self._timer is not None:
            self._timer.cancel()
        for task in self._tasks:
            task.cancel()

    # --- what happens -------------------------------------------------------------------------------------------------

    def assignment_changed(self) -> None:
        subscription = self._subscription.subscription
        assignment = subscription.assignment if subscription is not None else None
        lost = self._delivered(self._partitions(self._assignment))
        self._assignment = assignment
        for partition in self._partitions(assignment):
            self._state(partition).gate = self.gate
        for partition in self.gate.reassign(lost, self._partitions(assignment)):
            self._state(partition).pause()
        self.wake()

    def wake(self) -> None:
        """Look for work as soon as the loop comes to it."""
        if not self.gate.closed:
            self._schedule(0.0)

    def _woken_from_outside(self) -> None:
        if not self.gate.closed:
            # The loop may have been closed under a consumer that was never stopped.
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self.wake)

    def _schedule(self, seconds: float | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if seconds is None else self._loop.call_later(seconds, self._work)

    # --- effects ------------------------------------------------------------------------------------------------------

    def _work(self) -> None:
        if self.gate.closed:
            return
        if self._consumer() is None:
            self.close()
            return
        while (effect := self.gate.work()) is not None:
            try:
                self._carry_out(effect)
            except Exception:  # noqa: BLE001  (it must not reach the application)
                self.gate.failed_unforeseen(effect)
        self._schedule(self.gate.wakes_in())

    def _carry_out(self, effect: Effect) -> None:
        states = {p: state for p in effect.partitions if (state := self._state(p)) is not None}
        if isinstance(effect, Pause):
            for state in states.values():
                state.pause()
            self.gate.done(effect)
        elif isinstance(effect, Resume):
            for state in states.values():
                state.resume()
            self.gate.done(effect)
        elif isinstance(effect, Next):
            self.gate.done(effect, self._next(effect.partitions))
        elif isinstance(effect, Position):
            self.gate.done(effect, self._delivered(effect.partitions))
        elif isinstance(effect, Forget):
            # What aiokafka commits by itself are positions, and these do not pass the coordinator while sealed.
            self.gate.done(effect)
        elif isinstance(effect, Seek):
            self.gate.done(effect, self._seek(effect))
        elif isinstance(effect, Begin):
            self.gate.done(effect, self._begin(effect))
        elif isinstance(effect, SendAcks):
            self._send_acks(effect)
        else:
            task = self._loop.create_task(self._ask(effect))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _seek(self, effect: Seek) -> list[Partition]:
        consumer = self._consumer()
        if consumer is None or consumer._fetcher is None:
            return []
        sought = [p for p in effect.offsets if self._state(p) is not None]
        for partition in sought:
            consumer._fetcher.seek_to(TopicPartition(*partition), effect.offsets[partition])
        return sought

    def _begin(self, effect: Begin) -> list[Partition]:
        """Also of what is paused aiokafka looks the position up; an answer under way would be taken for ours."""
        consumer = self._consumer()
        if consumer is None or consumer._fetcher is None:
            return []
        states = {p: self._state(p) for p in effect.partitions}
        free = [p for p, state in states.items() if state is not None and not state.awaiting_reset]
        if free:
            consumer._fetcher.request_offset_reset([TopicPartition(*p) for p in free], _STRATEGY_OF[effect.start])
        return free

    def _send_acks(self, effect: SendAcks) -> None:
        consumer = self._consumer()
        member = ""
        if self._subscription.partitions_auto_assigned():
            coordinator = consumer._coordinator if consumer is not None else None
            member = coordinator.member_id if coordinator is not None else ""
            if not member or self._subscription.reassignment_in_progress:
                # It is not known yet whose the partitions are; an ack without a member would speak for another one.
                self.gate.failed(effect)
                return

        def answered(written: bool) -> None:
            if written:
                self.gate.done(effect)
            else:
                self.gate.failed(effect)
            self._woken_from_outside()

        self._link.send_acks(self.gate.core.group, member, effect.acks, effect.generation, answered)

    async def _ask(self, effect: Effect) -> None:
        """Effects that need the group's coordinator."""
        try:
            consumer = self._consumer()
            coordinator = consumer._coordinator if consumer is not None else None
            del consumer
            if coordinator is None:
                self.gate.failed(effect)
            elif isinstance(effect, Committed):
                offsets = await asyncio.wait_for(self._committed(coordinator, effect.partitions), REQUEST_S)
                self.gate.committed(effect, offsets)
            elif isinstance(effect, Commit):
                await asyncio.wait_for(self._commit(coordinator, effect.partitions), REQUEST_S)
                self.gate.done(effect)
        except (*TIME_OUTS, errors.KafkaError) as error:
            log.debug("group %s: %s: %r", self.gate.core.group, type(effect).__name__, error)
            self.gate.failed(effect)
        except Exception:  # noqa: BLE001  (it must not reach the application)
            self.gate.failed_unforeseen(effect)
        self.wake()

    async def _committed(self, coordinator: Any, partitions: tuple[Partition, ...]) -> dict[Partition, int | None]:
        await coordinator.ensure_coordinator_known()
        request = StableOffsetFetch(coordinator.group_id, partitions)
        try:
            response = await coordinator._client.send(
                coordinator.coordinator_id, request, group=ConnectionGroup.COORDINATION
            )
            return committed_offsets(response)
        except (errors.NotCoordinatorForGroupError, errors.KafkaConnectionError, errors.NodeNotReadyError):
            coordinator.coordinator_dead()
            raise

    async def _commit(self, coordinator: Any, partitions: tuple[Partition, ...]) -> None:
        assignment = self._assignment
        offsets = {}
        for partition in partitions:
            state = self._state(partition)
            if state is not None and state.has_valid_position:
                offsets[TopicPartition(*partition)] = OffsetAndMetadata(state.position, "")
        if offsets:
            await coordinator.commit_offsets(assignment, offsets)

    def _delivered(self, partitions: tuple[Partition, ...]) -> dict[Partition, int | None]:
        states = {p: self._state(p) for p in partitions}
        return {p: state.delivered if state is not None else None for p, state in states.items()}

    def _next(self, partitions: tuple[Partition, ...]) -> dict[Partition, int | None]:
        states = {p: self._state(p) for p in partitions}
        return {
            p: state.position if state is not None and state.has_valid_position else None for p, state in states.items()
        }

    def _state(self, partition: Partition) -> Any:
        return self._assignment.state_value(partition) if self._assignment is not None else None

    @staticmethod
    def _partitions(assignment: Any) -> tuple[Partition, ...]:
        return tuple(Partition(*tp) for tp in assignment.tps) if assignment is not None else ()
