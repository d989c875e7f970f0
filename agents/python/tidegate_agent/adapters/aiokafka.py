"""``aiokafka.AIOKafkaConsumer`` that obeys gates: the core is driven in the consumer's own event loop.

What the client is made of is replaced where it looks it up, class by class:

* ``SubscriptionState``: an assignment is paused in the same step in which it is made, so nothing of it is delivered
  before its gates are read. aiokafka looks at a pause for each record it hands out, also for those it has buffered.
* ``GroupCoordinator``: every OffsetCommit goes through one coroutine of it; sealed partitions are taken out there.
* ``FetchResult`` and ``TopicPartitionState``: which record of a partition was handed out last. The position does not
  tell, because it is also moved past transactions' markers.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
import time
import weakref
from collections.abc import Callable, Collection, Iterable, Mapping
from types import ModuleType
from typing import Any, Final, cast

import aiokafka.errors as errors
from aiokafka.client import ConnectionGroup
from aiokafka.consumer import fetcher, subscription_state
from aiokafka.consumer.fetcher import FetchResult, OffsetResetStrategy
from aiokafka.consumer.group_coordinator import GroupCoordinator
from aiokafka.consumer.subscription_state import SubscriptionState, TopicPartitionState
from aiokafka.structs import OffsetAndMetadata, TopicPartition

from tidegate_agent import process
from tidegate_agent.adapters.aiokafka_offsets import StableOffsetFetch, committed_offsets
from tidegate_agent.adapters.certificates import note_certificates
from tidegate_agent.adapters.client_settings import Untranslatable, librdkafka_settings
from tidegate_agent.adapters.consumer_gate import ConsumerGate, Link, Passed, Unreachable, transaction_begins
from tidegate_agent.adapters.replacing import named_as, replace_class, replace_part
from tidegate_agent.adapters.reset_options import OwnOptions, take_out
from tidegate_agent.core import Core
from tidegate_agent.effects import Begin, Commit, Committed, Effect, Forget, Pause, Position, Resume, Seek, SendAcks
from tidegate_agent.gates import Partition
from tidegate_agent.settings import Settings
from tidegate_agent.start import Rule, Start

log = logging.getLogger("tidegate_agent")

REQUEST_S: Final = 10.0
"""After so many seconds without an answer an effect is tried again."""

TOKEN_S: Final = 30.0
"""How long the application's token provider may take."""

_STRATEGY_OF: Final = {Start.EARLIEST: OffsetResetStrategy.EARLIEST, Start.LATEST: OffsetResetStrategy.LATEST}

OpenLink = Callable[[Mapping[str, Any]], Link]


class _PartitionState(TopicPartitionState):  # type: ignore[misc]
    delivered: int | None = None

    def await_reset(self, strategy: int) -> None:
        self.delivered = None
        super().await_reset(strategy)

    def reset_to(self, position: int) -> None:
        self.delivered = None
        super().reset_to(position)

    def seek(self, position: int) -> None:
        self.delivered = None
        super().seek(position)


class _FetchResult(FetchResult):  # type: ignore[misc]
    def __init__(self, tp: TopicPartition, *, assignment: Any, **others: Any) -> None:
        super().__init__(tp, assignment=assignment, **others)
        self._state = assignment.state_value(tp)

    def _update_position(self) -> None:
        # For each record that getone() gives: no slower than what it replaces, which looks the state up each time.
        records = self._partition_records
        self._state.consumed_to(records.next_fetch_offset)
        if getattr(records, "_records_iterator", records) is not None:
            self._state.delivered = records.next_fetch_offset

    def getall(self, max_records: int | None = None) -> Any:
        records = super().getall(max_records)
        if records:
            self._state.delivered = records[-1].offset + 1
        return records


class _Subscription(SubscriptionState):  # type: ignore[misc]
    gatekeeper: Gatekeeper | None = None

    def assign_from_user(self, partitions: Iterable[TopicPartition]) -> None:
        super().assign_from_user(partitions)
        self._changed()

    def assign_from_subscribed(self, assignment: Collection[TopicPartition]) -> None:
        super().assign_from_subscribed(assignment)
        self._changed()

    def unsubscribe(self) -> None:
        super().unsubscribe()
        self._changed()

    def _changed(self) -> None:
        # A subscription to other topics takes nothing away before the next assignment: until then the client commits.
        if self.gatekeeper is not None:
            self.gatekeeper.assignment_changed()


class _Coordinator(GroupCoordinator):  # type: ignore[misc]
    async def _do_commit_offsets(self, assignment: Any, offsets: Mapping[TopicPartition, Any]) -> None:
        gatekeeper = getattr(self._subscription, "gatekeeper", None)
        if gatekeeper is None:
            await super()._do_commit_offsets(assignment, offsets)
            return
        passed = gatekeeper.gate.commit_begins({Partition(*tp): offsets[tp].offset for tp in offsets})
        try:
            await super()._do_commit_offsets(
                assignment, {tp: offset for tp, offset in offsets.items() if tp not in passed.dropped}
            )
        finally:
            passed.ends()


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
        except (TimeoutError, errors.KafkaError) as error:
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

    def _state(self, partition: Partition) -> Any:
        return self._assignment.state_value(partition) if self._assignment is not None else None

    @staticmethod
    def _partitions(assignment: Any) -> tuple[Partition, ...]:
        return tuple(Partition(*tp) for tp in assignment.tps) if assignment is not None else ()


def consumer_class(plain: type[Any], settings: Settings, open_link: OpenLink) -> type[Any]:
    """A subclass of ``AIOKafkaConsumer`` whose consumers of a group obey gates."""
    known = inspect.signature(plain.__init__).parameters.keys()

    class AIOKafkaConsumer(plain):  # type: ignore[misc]
        _gatekeeper: Gatekeeper | None = None

        def __init__(self, *topics: str, **arguments: Any) -> None:
            own = _own_options(arguments, known)
            super().__init__(*topics, **own.rest)
            self._tidegate_own = own

        async def start(self) -> None:
            if (
                self._group_id is not None
                and self._gatekeeper is None
                and isinstance(self._subscription, _Subscription)
            ):
                own = self._tidegate_own
                link = _link(own.rest, self._loop, open_link)
                rule = own.rule(self._group_id, self._auto_offset_reset, settings.new_partitions_of(self._group_id))
                self._gatekeeper = Gatekeeper(self, self._group_id, link, settings, rule)
                weakref.finalize(self, self._gatekeeper.close).atexit = False
                self._subscription.gatekeeper = self._gatekeeper
                self._gatekeeper.assignment_changed()
            await super().start()

        async def stop(self) -> None:
            if self._gatekeeper is not None:
                self._gatekeeper.close()
            await super().stop()

        def pause(self, *partitions: TopicPartition) -> None:
            super().pause(*partitions)
            if self._gatekeeper is not None:
                self._gatekeeper.gate.pause([Partition(*tp) for tp in partitions])

        def paused(self) -> set[TopicPartition]:
            paused = cast("set[TopicPartition]", super().paused())
            if self._gatekeeper is None:
                return paused
            return {tp for tp in paused if tp in self._gatekeeper.gate.app_paused}

        def resume(self, *partitions: TopicPartition) -> None:
            if self._gatekeeper is not None and all(isinstance(tp, TopicPartition) for tp in partitions):
                free = self._gatekeeper.gate.resume([Partition(*tp) for tp in partitions])
                partitions = tuple(tp for tp in partitions if tp in free)
                self._gatekeeper.wake()
            super().resume(*partitions)

        def seek(self, partition: TopicPartition, offset: int) -> None:
            super().seek(partition, offset)
            if self._gatekeeper is not None:
                self._gatekeeper.gate.sought([Partition(*partition)])

        async def seek_to_beginning(self, *partitions: TopicPartition) -> Any:
            self._sought(partitions)
            return await super().seek_to_beginning(*partitions)

        async def seek_to_end(self, *partitions: TopicPartition) -> Any:
            self._sought(partitions)
            return await super().seek_to_end(*partitions)

        def _sought(self, partitions: tuple[TopicPartition, ...]) -> None:
            if self._gatekeeper is not None and all(isinstance(tp, TopicPartition) for tp in partitions):
                self._gatekeeper.gate.sought([Partition(*tp) for tp in partitions or self.assignment()])

    return named_as(AIOKafkaConsumer, plain)


def producer_class(plain: type[Any]) -> type[Any]:
    """A subclass of ``AIOKafkaProducer`` that keeps closed partitions' offsets out of transactions."""

    class AIOKafkaProducer(plain):  # type: ignore[misc]
        async def send_offsets_to_transaction(self, offsets: Any, group_id: str) -> None:
            passed = _transaction(offsets, group_id)
            try:
                rest = {tp: offset for tp, offset in offsets.items() if tp not in passed.dropped} if passed else offsets
                # aiokafka refuses to send no offsets; where all were dropped there is nothing to send.
                if rest or not passed:
                    await super().send_offsets_to_transaction(rest, group_id)
            finally:
                if passed is not None:
                    passed.ends()

    return named_as(AIOKafkaProducer, plain)


def _transaction(offsets: Any, group: Any) -> Passed | None:
    """``None``: what was given is no offsets; the client says so itself."""
    try:
        named = {Partition(*tp): value if isinstance(value, int) else value[0] for tp, value in offsets.items()}
    except (AttributeError, IndexError, TypeError):
        return None
    return transaction_begins(group, named) if named and isinstance(group, str) else None


def _own_options(arguments: Mapping[str, Any], known: Collection[str]) -> OwnOptions:
    """Raises ``ValueError``, as aiokafka does for a setting that is none."""
    return take_out(arguments, lambda option: option.replace(".", "_"), lambda name, _: name in known)


def _link(arguments: Mapping[str, Any], loop: asyncio.AbstractEventLoop, open_link: OpenLink) -> Link:
    provider: Any = arguments.get("sasl_oauth_token_provider")

    def token() -> str:
        # Asked for on a thread of librdkafka's; the provider belongs to the consumer's loop.
        return cast("str", asyncio.run_coroutine_threadsafe(provider.token(), loop).result(TOKEN_S))

    try:
        return open_link(librdkafka_settings(arguments, token if provider is not None else None, now=time.time))
    except Untranslatable as error:
        log.error("the agent cannot read the control topic as aiokafka is set up here: %s", error)
        return Unreachable()


def replace_parts(module: ModuleType) -> None:
    """Have the client make its consumers of the classes above; without a gatekeeper they are as ever.

    Raises ``AttributeError`` for a version of aiokafka that is built otherwise.
    """
    replace_part(subscription_state, _PartitionState, "await_reset", "reset_to", "seek", "pause", "resume")
    replace_part(fetcher, _FetchResult, "getall", "_update_position")
    replace_part(module, _Subscription, "assign_from_user", "assign_from_subscribed", "unsubscribe")
    replace_part(module, _Coordinator, "_do_commit_offsets")


def install_consumer(module: ModuleType) -> None:
    """Make ``aiokafka.consumer.consumer``, just imported or long since, give consumers that obey gates.

    Raises ``SettingsError``.
    """
    plain = module.AIOKafkaConsumer
    note_certificates()
    replace_parts(module)
    replace_class(
        plain, consumer_class(plain, process.settings(), process.link), module, "aiokafka.consumer", "aiokafka"
    )


def install_producer(module: ModuleType) -> None:
    """The same for ``aiokafka.producer.producer``."""
    plain = module.AIOKafkaProducer
    replace_class(plain, producer_class(plain), module, "aiokafka.producer", "aiokafka")
