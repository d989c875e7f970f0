"""``kafka.KafkaConsumer`` (kafka-python) that obeys gates: the core is driven by the application's own polls.

What the client is made of is replaced where it looks it up, class by class:

* ``SubscriptionState``: a partition that was newly assigned is paused in the same step, on the client's I/O thread.
* ``ConsumerCoordinator``: every OffsetCommit goes through one coroutine of it, on the I/O thread; sealed partitions
  are taken out there.
* ``TopicPartitionState``: which record of a partition was handed out last. The position does not tell, because it is
  also moved past transactions' markers.

A consumer that does not poll closes no gate: it may have any number of records in hand.
"""

from __future__ import annotations

import logging
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType
from typing import Any, cast

import kafka.errors as errors
from kafka.consumer import subscription_state
from kafka.consumer.subscription_state import SubscriptionState, TopicPartitionState
from kafka.coordinator.consumer import ConsumerCoordinator
from kafka.structs import OffsetAndMetadata, TopicPartition
from kafka.util import Timer

from tidegate_agent import green_threads, process
from tidegate_agent.adapters.certificates import note_certificates
from tidegate_agent.adapters.client_settings import Untranslatable, librdkafka_settings
from tidegate_agent.adapters.consumer_gate import Link, Passed, Unreachable, transaction_begins
from tidegate_agent.adapters.kafka_python_gatekeeper import Gatekeeper
from tidegate_agent.adapters.replacing import named_as, replace_class, replace_part
from tidegate_agent.adapters.reset_options import OwnOptions, take_out
from tidegate_agent.gates import Partition
from tidegate_agent.settings import Settings
from tidegate_agent.start import RuleError

log = logging.getLogger("tidegate_agent")

OpenLink = Callable[[Mapping[str, Any]], Link]


class _PartitionState(TopicPartitionState):  # type: ignore[misc]
    delivered: int | None = None

    def seek(self, offset: Any) -> None:
        self.delivered = None
        super().seek(offset)

    def reset(self, strategy: Any) -> None:
        self.delivered = None
        super().reset(strategy)


class _Subscription(SubscriptionState):  # type: ignore[misc]
    gatekeeper: Gatekeeper | None = None

    def _apply_assignment(self, partitions: Any, randomize: bool = False) -> None:
        with self._lock:
            before = dict(self.assignment)
            super()._apply_assignment(partitions, randomize)
            self._changed(before)

    def unsubscribe(self) -> None:
        with self._lock:
            before = dict(self.assignment)
            super().unsubscribe()
            self._changed(before)

    def _changed(self, before: Mapping[TopicPartition, _PartitionState]) -> None:
        if self.gatekeeper is None:
            return
        after = self.assignment
        # The client keeps the state of what it keeps: position, pause, records. So does the core.
        lost = {Partition(*tp): state.delivered for tp, state in before.items() if tp not in after}
        got = [Partition(*tp) for tp in after if tp not in before]
        for partition in self.gatekeeper.gate.reassign(lost, got):
            self.assignment[partition].pause()
        self.gatekeeper.news = True


class _Coordinator(ConsumerCoordinator):  # type: ignore[misc]
    @property
    def gatekeeper(self) -> Gatekeeper | None:
        return getattr(self._subscription, "gatekeeper", None)

    async def _send_offset_commit_request(self, offsets: Mapping[TopicPartition, Any]) -> Any:
        gatekeeper = self.gatekeeper
        if gatekeeper is None:
            return await super()._send_offset_commit_request(offsets)
        named = {Partition(*tp): value.offset for tp, value in offsets.items() if isinstance(value, OffsetAndMetadata)}
        passed = gatekeeper.gate.commit_begins(named)
        try:
            rest = {tp: value for tp, value in offsets.items() if tp not in passed.dropped}
            return await super()._send_offset_commit_request(rest)
        finally:
            passed.ends()

    def need_rejoin(self) -> bool:
        # kafka-python 3.0 forgets a join that new metadata asked for if the poll ended while SyncGroup was under way,
        # and would never have its partitions.
        is_joining = getattr(self, "_join_task", None) is not None and self._subscription.partitions_auto_assigned()
        return bool((self.gatekeeper is not None and is_joining) or super().need_rejoin())

    def ensure_active_group(self, timeout_ms: float | None = None) -> Any:
        # Joining, and the auto-commit before it, have as long as the application's poll, not as the agent's part of it.
        gatekeeper = self.gatekeeper
        if gatekeeper is not None and gatekeeper.timer is not None:
            timeout_ms = gatekeeper.timer.timeout_ms
        return super().ensure_active_group(timeout_ms)


def consumer_class(plain: type[Any], settings: Settings, open_link: OpenLink) -> type[Any]:
    """A subclass of ``KafkaConsumer`` whose consumers of a group obey gates.

    One piece, as a class is: it comes right before ``plain`` where methods are looked up.
    """

    class KafkaConsumer(plain):  # type: ignore[misc]
        _gatekeeper: Gatekeeper | None = None

        def __init__(self, *topics: str, **configs: Any) -> None:
            own = _own_options(configs, plain.DEFAULT_CONFIG)
            super().__init__(*topics, **own.rest)
            if self.config["group_id"] is not None and isinstance(self._subscription, _Subscription):
                group, reset = self.config["group_id"], self.config["auto_offset_reset"]
                rule = own.rule(group, reset, settings.new_partitions_of(group))
                if green_threads.keep_out(rule):
                    return
                self._gatekeeper = Gatekeeper(self, _link(own.rest, open_link), settings, rule)
                weakref.finalize(self, self._gatekeeper.close).atexit = False
                self._subscription.gatekeeper = self._gatekeeper

        def close(self, *args: Any, **kwargs: Any) -> None:
            if self._gatekeeper is not None:
                self._gatekeeper.close()
            super().close(*args, **kwargs)

        def poll(self, timeout_ms: float = 0, max_records: int | None = None, update_offsets: bool = True) -> Any:
            records = super().poll(timeout_ms, max_records, update_offsets)
            if records and self._gatekeeper is not None:
                records = self._gatekeeper.below_limits(records, has_moved=update_offsets)
            if update_offsets and self._gatekeeper is not None:
                for (topic, partition), batch in records.items():
                    self._gatekeeper.note(topic, partition, batch[-1].offset)
            return records

        def _poll_once(self, timer: Timer, max_records: int, update_offsets: bool = True) -> Any:
            gatekeeper = self._gatekeeper
            if gatekeeper is None:
                return super()._poll_once(timer, max_records, update_offsets)
            gatekeeper.timer = timer
            gatekeeper.drive()
            part = Timer(min(timer.timeout_ms, gatekeeper.wait_ms()))
            return super()._poll_once(part, max_records, update_offsets)

        def _message_generator_v2(self) -> Iterator[Any]:
            records = super()._message_generator_v2()
            gatekeeper = self._gatekeeper
            if gatekeeper is None:
                yield from records
                return
            gatekeeper.sought = False
            last = None
            for record in records:
                if last is None:
                    # Where the poll sought a partition the client lets go of this generator: nothing follows the yield.
                    gatekeeper.note(record.topic, record.partition, record.offset)
                elif record.partition != last.partition or record.topic != last.topic:
                    gatekeeper.note(last.topic, last.partition, last.offset)
                last = record
                yield record
                if gatekeeper.is_due:
                    gatekeeper.note(record.topic, record.partition, record.offset)
                    gatekeeper.drive()
                    if gatekeeper.sought:
                        return
            if last is not None:
                gatekeeper.note(last.topic, last.partition, last.offset)

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
                self._gatekeeper.news = True
            super().resume(*partitions)

        def seek(self, partition: TopicPartition, offset: int) -> None:
            super().seek(partition, offset)
            self._sought((partition,))

        def seek_to_beginning(self, *partitions: TopicPartition) -> None:
            super().seek_to_beginning(*partitions)
            self._sought(partitions)

        def seek_to_end(self, *partitions: TopicPartition) -> None:
            super().seek_to_end(*partitions)
            self._sought(partitions)

        def _sought(self, partitions: tuple[TopicPartition, ...]) -> None:
            if self._gatekeeper is not None:
                self._gatekeeper.gate.sought([Partition(*tp) for tp in partitions or self.assignment()])

    return named_as(KafkaConsumer, plain)


def producer_class(plain: type[Any]) -> type[Any]:
    """A subclass of ``KafkaProducer`` that keeps closed partitions' offsets out of transactions."""

    class KafkaProducer(plain):  # type: ignore[misc]
        def send_offsets_to_transaction(self, offsets: Any, group_metadata: Any) -> None:
            passed = _transaction(offsets, group_metadata)
            try:
                rest = {tp: offset for tp, offset in offsets.items() if tp not in passed.dropped} if passed else offsets
                if rest or not passed:
                    super().send_offsets_to_transaction(rest, group_metadata)
            finally:
                if passed is not None:
                    passed.ends()

    return named_as(KafkaProducer, plain)


def _transaction(offsets: Any, group_metadata: Any) -> Passed | None:
    """``None``: what was given is no offsets; the client says so itself."""
    group = group_metadata if isinstance(group_metadata, str) else getattr(group_metadata, "group_id", None)
    try:
        named = {Partition(*tp): value.offset for tp, value in offsets.items()}
    except (AttributeError, TypeError):
        return None
    return transaction_begins(group, named) if named and isinstance(group, str) else None


def _own_options(configs: Mapping[str, Any], known: Mapping[str, Any]) -> OwnOptions:
    """Raises ``KafkaConfigurationError``, as kafka-python does for a setting that is none."""
    try:
        return take_out(configs, lambda option: option.replace(".", "_"), lambda name, _: name in known)
    except RuleError as error:
        raise errors.KafkaConfigurationError(str(error)) from None


def _link(configs: Mapping[str, Any], open_link: OpenLink) -> Link:
    provider = configs.get("sasl_oauth_token_provider")
    try:
        token = provider.token if provider is not None else None
        return open_link(librdkafka_settings(configs, token, now=time.time))
    except Untranslatable as error:
        log.error("the agent cannot read the control topic as kafka-python is set up here: %s", error)
        return Unreachable()


def replace_parts(module: ModuleType) -> None:
    """Have the client make its consumers of the classes above; without a gatekeeper they are as ever.

    Raises ``AttributeError`` for a version of kafka-python that is built otherwise.
    """
    replace_part(subscription_state, _PartitionState, "seek", "reset", "pause", "resume")
    replace_part(module, _Subscription, "_apply_assignment", "unsubscribe")
    replace_part(module, _Coordinator, "_send_offset_commit_request", "ensure_active_group", "need_rejoin")
    for name in ("_poll_once", "_message_generator_v2"):
        if not hasattr(module.KafkaConsumer, name):
            raise AttributeError(f"KafkaConsumer has no {name} in this version")


def install_consumer(module: ModuleType) -> None:
    """Make ``kafka.consumer.group``, just imported or long since, give consumers that obey gates.

    Raises ``SettingsError``.
    """
    plain = module.KafkaConsumer
    note_certificates()
    replace_parts(module)
    replace_class(plain, consumer_class(plain, process.settings(), process.link), module, "kafka.consumer", "kafka")


def install_producer(module: ModuleType) -> None:
    """The same for ``kafka.producer.kafka``."""
    plain = module.KafkaProducer
    replace_class(plain, producer_class(plain), module, "kafka.producer", "kafka")
