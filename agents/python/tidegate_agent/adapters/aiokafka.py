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
import inspect
import logging
import time
import weakref
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Final, cast

from aiokafka.consumer import fetcher, subscription_state
from aiokafka.consumer.fetcher import FetchResult
from aiokafka.consumer.group_coordinator import GroupCoordinator
from aiokafka.consumer.subscription_state import SubscriptionState, TopicPartitionState
from aiokafka.structs import TopicPartition

from tidegate_agent import green_threads, process
from tidegate_agent.adapters.aiokafka_gatekeeper import Gatekeeper
from tidegate_agent.adapters.certificates import note_certificates
from tidegate_agent.adapters.client_settings import Untranslatable, librdkafka_settings
from tidegate_agent.adapters.consumer_gate import ConsumerGate, Link, Passed, Unreachable, transaction_begins
from tidegate_agent.adapters.replacing import named_as, replace_class, replace_part
from tidegate_agent.adapters.reset_options import OwnOptions, take_out
from tidegate_agent.gates import Partition
from tidegate_agent.settings import Settings
from tidegate_agent.start import Rule

log = logging.getLogger("tidegate_agent")

TOKEN_S: Final = 30.0
"""How long the application's token provider may take."""

OpenLink = Callable[[Mapping[str, Any]], Link]


class _PartitionState(TopicPartitionState):  # type: ignore[misc]
    delivered: int | None = None
    gate: ConsumerGate | None = None

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
    _partition_records: Any

    def __init__(self, tp: TopicPartition, *, assignment: Any, **others: Any) -> None:
        super().__init__(tp, assignment=assignment, **others)
        self._state = assignment.state_value(tp)
        self._partition = Partition(*tp)

    def _update_position(self) -> None:
        # For each record that getone() gives: no slower than what it replaces, which looks the state up each time.
        records = self._partition_records
        self._state.consumed_to(records.next_fetch_offset)
        if getattr(records, "_records_iterator", records) is not None:
            self._state.delivered = records.next_fetch_offset

    def getone(self) -> Any:
        before = self._state.delivered if self._state is not None else None
        record = super().getone()
        return record if record is None or self._below_limit([record], before) else None

    def _below_limit(self, records: list[Any], before: int | None) -> list[Any]:
        """Those that may be delivered; the rest is fetched again. ``before``: what had been delivered before them."""
        gate = self._state.gate
        count = len(records) if gate is None else gate.below_limit(self._partition, records)
        if count == len(records):
            return records
        self._state.seek(records[count].offset)
        self._state.delivered = records[count - 1].offset + 1 if count else before
        self._partition_records = None
        return records[:count]

    def getall(self, max_records: int | None = None) -> Any:
        before = self._state.delivered if self._state is not None else None
        records = super().getall(max_records)
        if records and len(kept := self._below_limit(records, before)) < len(records):
            return kept
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


def consumer_class(plain: type[Any], settings: Settings, open_link: OpenLink) -> type[Any]:
    """A subclass of ``AIOKafkaConsumer`` whose consumers of a group obey gates.

    One piece, as a class is: it comes right before ``plain`` where methods are looked up.
    """
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
                rule = self._tidegate_own.rule(
                    self._group_id, self._auto_offset_reset, settings.new_partitions_of(self._group_id)
                )
                if not green_threads.keep_out(rule):
                    self._manage(self._group_id, rule)
            await super().start()

        def _manage(self, group: str, rule: Rule | None) -> None:
            link = _link(self._tidegate_own.rest, self._loop, open_link)
            self._gatekeeper = Gatekeeper(self, group, link, settings, rule)
            weakref.finalize(self, self._gatekeeper.close).atexit = False
            self._subscription.gatekeeper = self._gatekeeper
            self._gatekeeper.assignment_changed()

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


@dataclass(frozen=True)
class _Token:
    """Asks the application's provider, which belongs to the consumer's loop, from a thread of librdkafka's."""

    provider: Any
    loop: asyncio.AbstractEventLoop

    def __call__(self) -> str:
        """Raises ``RuntimeError`` where the application's loop is closed, and ``TimeoutError``."""
        token = self.provider.token()
        try:
            asked = asyncio.run_coroutine_threadsafe(token, self.loop)
        except RuntimeError:
            # Or Python would warn, in the application's log, of a coroutine that nobody awaits.
            token.close()
            raise
        return cast("str", asked.result(TOKEN_S))


def _link(arguments: Mapping[str, Any], loop: asyncio.AbstractEventLoop, open_link: OpenLink) -> Link:
    provider = arguments.get("sasl_oauth_token_provider")
    token = _Token(provider, loop) if provider is not None else None
    try:
        return open_link(librdkafka_settings(arguments, token, now=time.time))
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
