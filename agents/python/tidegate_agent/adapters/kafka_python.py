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
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType
from typing import Any, Final, cast

import kafka.errors as errors
from kafka.consumer import subscription_state
from kafka.consumer.subscription_state import SubscriptionState, TopicPartitionState
from kafka.coordinator.consumer import ConsumerCoordinator
from kafka.protocol.consumer import OffsetFetchRequest, OffsetResetStrategy
from kafka.structs import OffsetAndMetadata, TopicPartition
from kafka.util import Timer

from tidegate_agent import process
from tidegate_agent.adapters.certificates import note_certificates
from tidegate_agent.adapters.client_settings import Untranslatable, librdkafka_settings
from tidegate_agent.adapters.consumer_gate import ConsumerGate, Link, Passed, Unreachable, transaction_begins
from tidegate_agent.adapters.replacing import named_as, replace_class, replace_part
from tidegate_agent.adapters.reset_options import OwnOptions, take_out
from tidegate_agent.core import Core
from tidegate_agent.effects import Begin, Commit, Committed, Effect, Forget, Pause, Position, Resume, Seek, SendAcks
from tidegate_agent.gates import Partition
from tidegate_agent.settings import Settings
from tidegate_agent.start import Rule, RuleError, Start

log = logging.getLogger("tidegate_agent")

IDLE_MS: Final = 100
"""How long a poll without records may wait before it looks at the gates again."""

BUSY_MS: Final = 10
"""The same while a gate is being closed or opened."""

REQUEST_S: Final = 10.0
"""After so many seconds without an answer an effect is tried again."""

UNSTABLE_OFFSET_COMMIT: Final = 88

_STRATEGY_OF: Final = {Start.EARLIEST: OffsetResetStrategy.EARLIEST, Start.LATEST: OffsetResetStrategy.LATEST}

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


def consumer_class(plain: type[Any], settings: Settings, open_link: OpenLink) -> type[Any]:
    """A subclass of ``KafkaConsumer`` whose consumers of a group obey gates."""

    class KafkaConsumer(plain):  # type: ignore[misc]
        _gatekeeper: Gatekeeper | None = None

        def __init__(self, *topics: str, **configs: Any) -> None:
            own = _own_options(configs, plain.DEFAULT_CONFIG)
            super().__init__(*topics, **own.rest)
            if self.config["group_id"] is not None and isinstance(self._subscription, _Subscription):
                group, reset = self.config["group_id"], self.config["auto_offset_reset"]
                rule = own.rule(group, reset, settings.new_partitions_of(group))
                self._gatekeeper = Gatekeeper(self, _link(own.rest, open_link), settings, rule)
                weakref.finalize(self, self._gatekeeper.close).atexit = False
                self._subscription.gatekeeper = self._gatekeeper

        def close(self, *args: Any, **kwargs: Any) -> None:
            if self._gatekeeper is not None:
                self._gatekeeper.close()
            super().close(*args, **kwargs)

        def poll(self, timeout_ms: float = 0, max_records: int | None = None, update_offsets: bool = True) -> Any:
            records = super().poll(timeout_ms, max_records, update_offsets)
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
                if last is not None and (record.partition != last.partition or record.topic != last.topic):
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
