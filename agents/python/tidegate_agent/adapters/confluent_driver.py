"""The thread that drives one consumer's core, and what the application's calls tell it."""

from __future__ import annotations

import logging
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from confluent_kafka import cimpl

from tidegate_agent import process
from tidegate_agent.adapters import confluent_client as client
from tidegate_agent.adapters.confluent_client import (
    OFFSET_INVALID,
    OFFSET_OF,
    TopicPartition,
    identity,
    identity_var,
    key,
    key_of,
    listed,
    tell_twice,
)
from tidegate_agent.adapters.confluent_offsets import COMMITTED_S, SETTLE_S, ConsumerOffsets
from tidegate_agent.control import ControlLink
from tidegate_agent.core import Core
from tidegate_agent.effects import Begin, Commit, Committed, Effect, Forget, Pause, Position, Resume, Seek, SendAcks
from tidegate_agent.gates import Partition
from tidegate_agent.partition_state import Stage

log = logging.getLogger("tidegate_agent")

_LET_IN_S: Final = 0.005
_LET_OUT_S: Final = 5.0
_SETTLE_MAX_S: Final = 0.25
_KEPT_METADATA: Final = 64


def _ends(messages: Iterable[Any]) -> dict[Partition, int]:
    """The offset after the last of them, by partition."""
    return {key_of(message): message.offset() + 1 for message in messages if message.error() is None}


class Driver(ConsumerOffsets):
    """One consumer's core and the thread that drives it. Locks are those of ``ConsumerOffsets``."""

    def __init__(self, consumer: Any, config: Mapping[str, Any], link: ControlLink, core: Core) -> None:
        super().__init__(link, core)
        strategy = str(config.get("partition.assignment.strategy", ""))
        protocol = str(config.get("group.protocol", "classic")).lower()
        self.incremental = protocol == "consumer" or "cooperative" in strategy
        self.assigned_in_callback = False
        self.taken_in_callback = False
        self.is_subscribed = False
        """Whether it is a member of its group. The member id does not tell: with KIP-848 a client always has one."""
        self._consumer: Callable[[], Any] = weakref.ref(consumer, self._collected)
        self._idle = threading.Event()
        self._idle.set()
        self._watched = False
        self._ended = False
        self._thread: threading.Thread | None = None
        self.metadata: deque[Any] = deque(maxlen=_KEPT_METADATA)
        """The group metadata that the consumer gave last; kept, so that no other object has the same identity."""
        self.may_leak = False
        """Whether a partition's records are to be withheld: what the client returns has to be looked at."""

    def assigned(
        self,
        consumer: Any,
        partitions: Sequence[Any],
        known: tuple[int, int],
        lost: Mapping[Partition, int | None] | None = None,
    ) -> None:
        """The client has just got these; all of them are stopped until their gates are read.

        ``known``: ``read_to`` from before: the client asks at once where to begin. ``lost``: what it had before, as
        ``delivered`` tells, where they take the place of all of it.
        """
        new = [key(partition) for partition in partitions]
        sought = {key(p) for p in partitions if p.offset not in (OFFSET_INVALID, cimpl.OFFSET_STORED)}
        with self._state:
            self._forget(new if lost is None else self.core.owned(), lost or {})
            stopped: tuple[Partition, ...] = ()
            if new:
                stopped = self.core.assigned(new, self._ask(new), time.monotonic(), sought=sought, known=known)
            self.may_leak |= bool(stopped)
            self._fresh.update(stopped)
        if stopped:
            tell_twice(client.Consumer.pause, consumer, listed(stopped))
            self._watch(consumer)
            self._start()
        self._wake.set()

    def _ask(self, new: Iterable[Partition]) -> int:
        return self.link.ask({partition.topic for partition in new} if self.core.rule is not None else ())

    def revoked(self, delivered: Mapping[Partition, int | None], partitions: Iterable[Partition] | None = None) -> None:
        """These (``None``: all) are gone; ``delivered``: what it tells of them."""
        with self._state:
            self._forget(self.core.owned() if partitions is None else partitions, delivered)

    def let_out(self, consumer: Any, messages: list[Any]) -> list[Any]:
        """Of what the client returned that which may reach the application; the rest is read again in its time."""
        # Without a lock first: what was not withheld when it came was delivered in time.
        if not self._withheld(messages):
            if self.core.known.limits:
                self._stop_at_limits(consumer, messages)
            return messages
        # The driver may be opening one of them at this moment.
        with self.calls(_LET_OUT_S) as held:
            with self._state:
                withheld = self._withheld(messages)
                for message in withheld:
                    first, end = self._leaked.get(key_of(message), (message.offset(), 0))
                    self._leaked[key_of(message)] = min(first, message.offset()), max(end, message.offset() + 1)
                back = {partition: self._leaked[partition][0] for partition in map(key_of, withheld)}
                if self.core.client_stores:
                    stored = {partition: self._leaked[partition][1] for partition in back}
                    self._note_highest(stored)
                    self._stored |= stored
                rest = [m for m in messages if m.error() is not None or key_of(m) not in back]
                below = [m for m in messages if m.error() is None and self._is_below_limit(m, back)]
                if self.core.known.limits:
                    self.core.delivers(_ends([*rest, *below]))
                self.core.withheld(back)
                self.core.leaked(back, time.monotonic())
            if not back:
                return messages
            log.debug("group %s: withholding records of %s", self.core.group, sorted(back))
            self._stop(consumer, back)
            if held:
                # Otherwise the driver may have sought the place to go on from already.
                self._move(consumer, back)
        self._wake.set()
        given = {id(m) for m in (*rest, *below)}
        return [m for m in messages if id(m) in given]

    def _is_below_limit(self, message: Any, back: Mapping[Partition, int]) -> bool:
        """Whether it is of a batch in which the limit lies, and comes before it."""
        partition = key_of(message)
        return (
            partition in back
            and message.offset() < back[partition]
            and self.core.is_beyond_limit(partition, back[partition])
        )

    def _stop_at_limits(self, consumer: Any, messages: list[Any]) -> None:
        """Note what is delivered. A partition whose next record is at its limit is paused before librdkafka takes that
        record off its queue, and so stores it."""
        ends = _ends(messages)
        with self._state:
            self.core.delivers(ends)
            if not any(self.core.is_beyond_limit(*end) for end in ends.items()):
                return
        # The driver may be opening one of them at this moment.
        with self.calls(_LET_OUT_S):
            with self._state:
                reached = {p: end for p, end in ends.items() if self.core.is_beyond_limit(p, end)}
                self.core.withheld(reached)
                self.core.leaked(reached, time.monotonic())
            if reached:
                self._stop(consumer, reached)
        self._wake.set()

    def _stop(self, consumer: Any, partitions: Iterable[Partition]) -> None:
        try:
            tell_twice(client.Consumer.pause, consumer, listed(tuple(partitions)))
        except cimpl.KafkaException as error:
            log.debug("group %s: pause: %s", self.core.group, error)

    def _withheld(self, messages: list[Any]) -> list[Any]:
        return [m for m in messages if m.error() is None and self.core.is_withheld(key_of(m), m.offset())]

    def _start(self) -> None:
        if self._thread is None and not self._ended:
            self._thread = threading.Thread(target=self._run, name="tidegate-agent-consumer", daemon=True)
            self.link.listen(self._wake.set)
            self._thread.start()

    def _collected(self, _ref: object) -> None:
        if process.is_of_this_process(self.pid):
            self._ended = True
            self._wake.set()

    def end(self, consumer: Any) -> None:
        """The consumer is about to be closed: no call of the driver's is under way in it, and none will be.

        Partitions of which librdkafka would commit an offset from before a reset are taken away before: a consumer that
        is being closed tells no committed offsets, and may end before the reset can be committed again.
        """
        self._ended = True
        self._wake.set()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            self._idle.wait(5 * COMMITTED_S)
            with self.calls():
                pass
        delivered = self.delivered(consumer)
        wrong = self._to_commit_again(consumer, self._outdated(delivered, delivered))
        if not wrong:
            return
        try:
            self.settle_now(consumer)
            stand = {**self.delivered(consumer), **wrong}
            taken = tuple(wrong) if self.incremental else tuple(stand)
            with self.taking(consumer, taken, delivered):
                if self.incremental:
                    client.Consumer.incremental_unassign(consumer, listed(taken))
                else:
                    client.Consumer.unassign(consumer)
            # Given back, for the application to be told of them, and to ask where it stands.
            given = [TopicPartition(*p, OFFSET_INVALID if (at := stand[p]) is None else at) for p in taken]
            (client.Consumer.incremental_assign if self.incremental else client.Consumer.assign)(consumer, given)
            with self._state:
                self.last_positions = {p: at for p in taken if (at := stand[p]) is not None}
                for partition in taken:
                    self._stored.pop(partition, None)
                    self._leaked.pop(partition, None)
                    self._returned.pop(partition, None)
        except (cimpl.KafkaException, RuntimeError) as error:
            log.warning("group %s: what was reset since could not be settled: %s", self.core.group, error)

    def _run(self) -> None:
        try:
            while not self._ended:
                wait = self._turn()
                if wait is None or wait > 0:
                    self._wake.wait(wait)
                    self._wake.clear()
        finally:
            self.link.unlisten(self._wake.set)

    def _turn(self) -> float | None:
        """Do what is due; seconds until more is, ``None``: not before something happens."""
        consumer = self._consumer()
        if consumer is None:
            return None
        self._idle.clear()
        try:
            while not self._ended:
                with self._state:
                    self.core.know(self.link.known)
                wait = self._do_next(consumer)
                if wait is not None:
                    return wait
            return None
        except (cimpl.KafkaException, RuntimeError) as error:
            # RuntimeError: it was closed by another way than close().
            log.debug("group %s: %s", self.core.group, error)
            return _SETTLE_MAX_S
        finally:
            with self._state:
                is_quiet = self.core.is_quiet()
                self.may_leak = any(map(self.core.may_be_withheld, self.core.owned()))
            if is_quiet or self._ended:
                self._unwatch(consumer)
            self._idle.set()

    def _do_next(self, consumer: Any) -> float | None:
        """One effect; ``None``: look for the next at once, otherwise seconds to wait."""
        with self._calls:
            if self._barged:
                self._stop_again(consumer)
            with self._state:
                effect = self.core.work(time.monotonic())
            if effect is None:
                return self._rest(consumer)
            self._watch(consumer)
            self.may_leak = True
            if not isinstance(effect, Committed):
                self._carry_out(consumer, effect)
                return None
        self._carry_out(consumer, effect)
        return None

    def _stop_again(self, consumer: Any) -> None:
        """Partitions were exchanged while a call of ours was kept out: it may have let something go."""
        self._barged = False
        with self._state:
            stopped = self.core.stopped()
        if stopped:
            self._enter(client.Consumer.pause, consumer, listed(stopped))

    def _rest(self, consumer: Any) -> float | None:
        with self._state:
            at = self.core.wakes_at()
            behind = dict(self._behind)
            left = [p for p in self._leaked if self.core.stage(p) is Stage.OPEN]
        if left:
            # It opened while its records were being withheld, or had been paused by the application as well.
            self._go_back(consumer, left)
        wait = max(0.001, at - time.monotonic()) if at is not None else None
        if behind:
            self._settle(consumer, behind)
            self._settle_s = min(_SETTLE_MAX_S, self._settle_s * 1.5)
            wait = self._settle_s if wait is None else min(wait, self._settle_s)
        else:
            self._settle_s = SETTLE_S
        # ``None`` would mean: look again at once.
        return 3600.0 if wait is None else wait

    def _carry_out(self, consumer: Any, effect: Effect) -> None:
        try:
            result = self._perform(consumer, effect)
        except (cimpl.KafkaException, RuntimeError) as error:
            log.debug("group %s: %s: %s", self.core.group, type(effect).__name__, error)
            with self._state:
                self.core.failed(effect, time.monotonic())
            return
        if not isinstance(effect, SendAcks):
            with self._state:
                self.core.done(effect, time.monotonic(), result)

    def _perform(self, consumer: Any, effect: Effect) -> Mapping[Partition, int | None] | list[Partition]:
        match effect:
            case Pause():
                self._enter(tell_twice, client.Consumer.pause, consumer, listed(effect.partitions))
            case Resume():
                self._go_back(consumer, effect.partitions)
                self._enter(tell_twice, client.Consumer.resume, consumer, listed(effect.partitions))
                with self._state:
                    self._fresh.difference_update(effect.partitions)
            case Position():
                found = self._enter(self.positions, consumer, effect.partitions)
                self._note_highest(found)
                with self._state:
                    stored = {p: offset for p, offset in found.items() if offset is not None}
                    self._stored.update(stored)
                    for partition in stored:  # it was delivered since
                        self._sought.pop(partition, None)
                return found  # type: ignore[no-any-return]
            case Commit():
                self._enter(self._commit_stored, consumer, True)
                self._commit_before_limits(consumer)
            case Committed():
                committed = self._committed(consumer, effect.partitions)
                self._note_highest(committed)
                return committed
            case Forget():
                if not self.core.client_stores:
                    nothing = [TopicPartition(*p, OFFSET_INVALID) for p in effect.partitions]
                    self._enter(client.Consumer.store_offsets, consumer, offsets=nothing)
            case Seek():
                return self._seek(consumer, effect.offsets)
            case Begin():
                return self._seek(consumer, dict.fromkeys(effect.partitions, OFFSET_OF[effect.start]))
            case SendAcks():
                self._send_acks(consumer, effect)
        return []

    def _send_acks(self, consumer: Any, effect: SendAcks) -> None:
        def done(written: bool) -> None:
            with self._state:
                if written:
                    self.core.done(effect, time.monotonic())
                else:
                    self.core.failed(effect, time.monotonic())
            self._wake.set()

        member = self._enter(client.Consumer.memberid, consumer) if self.is_subscribed else ""
        if self.is_subscribed and not member:
            # The group has expelled it: an ack without a member would speak for another one.
            raise RuntimeError("whose the partitions are is not known")
        self.link.send_acks(self.core.group, member, effect.acks, effect.generation, done)

    def _watch(self, consumer: Any) -> None:
        """For the time being see who polls, and let our calls in before the next poll shuts them out."""
        if identity_var is None or self._watched:
            return
        kind, own = type(consumer), weakref.ref(consumer)

        def watched(method: Callable[..., Any]) -> Callable[..., Any]:
            def call(*args: Any, **kwargs: Any) -> Any:
                self._identity = identity()
                if not self._idle.is_set():
                    self._let_in.clear()
                    self._let_in.wait(_LET_IN_S)
                return method(own(), *args, **kwargs)

            return call

        self._watched = True
        vars(consumer).update(poll=watched(kind.poll), consume=watched(kind.consume))

    def _unwatch(self, consumer: Any) -> None:
        self._watched = False
        vars(consumer).pop("poll", None)
        vars(consumer).pop("consume", None)
