"""``confluent_kafka.Consumer`` that obeys gates: a thread of its own drives the core, and pauses inside librdkafka.

What ``poll`` and ``consume`` return is looked at only while something is closed, or was assigned and its gate has yet
to be read: records may come in the very poll that brings the assignment. What librdkafka does:

* ``pause`` from another thread is safe; it outdates what is queued, also what a ``consume`` has gathered so far.
* ``position`` is unknown (OFFSET_INVALID) from assignment or seek until a record is delivered.
* It commits a stored offset only when that is beyond the newest offset it has committed itself. After the group was
  reset to an earlier offset, it would commit nothing until it has come by: so that offset is committed by it once.
* It may drop a ``pause`` or a ``resume`` that crosses its own start of fetching, without a word (librdkafka issue
  5591): then the partition flows although its gate is closed, or stands still for ever. The call waits until it was
  carried out or dropped, and by then that start is over: so it is told twice at once. Where the partition is as it
  should be, that does nothing at all. It is told once more a second later, and what it returns meanwhile is withheld.
* With ``enable.auto.offset.store`` it stores a record's offset as it takes the record off its queue, and what is stored
  cannot be dropped, not even by a seek. So a record that a poll had taken when its partition was paused is part of what
  is drained and committed, and has to reach the application, however late its thread comes back with it.
* confluent-kafka lets one thread at a time into a consumer (2.16, "reentrancy gate"), and a poll may last for ever. The
  agent's calls go in as the polling thread's own, as a callback's calls do.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from confluent_kafka import cimpl

from tidegate_agent import process
from tidegate_agent.adapters.reset_options import OwnOptions, take_out
from tidegate_agent.control import ControlLink, plain
from tidegate_agent.core import Core
from tidegate_agent.effects import Begin, Commit, Committed, Effect, Forget, Pause, Position, Resume, Seek, SendAcks
from tidegate_agent.gates import Partition
from tidegate_agent.partition_state import Stage
from tidegate_agent.settings import SettingsError
from tidegate_agent.start import RuleError, Start

log = logging.getLogger("tidegate_agent")

_Consumer: Final[Any] = plain(cimpl.Consumer)
_Producer: Final[Any] = plain(cimpl.Producer)
_poll: Final[Any] = _Consumer.poll
_consume: Final[Any] = _Consumer.consume
_TopicPartition: Final[Any] = cimpl.TopicPartition
_OFFSET_INVALID: Final = cimpl.OFFSET_INVALID
_OFFSET_OF: Final = {Start.EARLIEST: cimpl.OFFSET_BEGINNING, Start.LATEST: cimpl.OFFSET_END}

_COMMITTED_S: Final = 1.0
_LET_IN_S: Final = 0.005
_BARGE_S: Final = 0.2
_LET_OUT_S: Final = 5.0
_SETTLE_S: Final = 0.02
_SETTLE_MAX_S: Final = 0.25
_SETTLING_S: Final = 5.0
_KEPT_METADATA: Final = 64

_identity_var: Final[Any] = getattr(cimpl, "_reentry_identity_var", None)
_has_gil: Final[bool] = getattr(sys, "_is_gil_enabled", lambda: True)()


def _identity() -> int:
    """As whom this thread's calls go into a consumer."""
    identity: int = _identity_var.get() if _identity_var is not None else 0
    return identity or threading.get_ident()


def _is_true(value: object, default: bool) -> bool:
    if value is None:
        return default
    return value if isinstance(value, bool) else str(value).strip().lower() in ("true", "t", "1")


def _listed(partitions: Iterable[Partition]) -> list[Any]:
    return [_TopicPartition(topic, number) for topic, number in partitions]


def _key(partition: Any) -> Partition:
    return Partition(partition.topic, partition.partition)


def _key_of(message: Any) -> Partition:
    return Partition(message.topic(), message.partition())


def _tell_twice(call: Callable[[Any, list[Any]], None], consumer: Any, partitions: list[Any]) -> None:
    """Pause or resume. The first one may be dropped, the second one finds done what the first one crossed."""
    call(consumer, partitions)
    call(consumer, partitions)


class _Driver:
    """One consumer's core and the thread that drives it.

    Two locks, taken in this order: ``_calls`` while partitions are stopped, moved, let go or exchanged in the client,
    so that what was decided is still so when it is done; ``_state`` while the core is looked at, never for long.
    """

    def __init__(self, consumer: Any, config: Mapping[str, Any], link: ControlLink, core: Core) -> None:
        self.pid = process.pid()
        self.core = core
        self.link = link
        strategy = str(config.get("partition.assignment.strategy", ""))
        protocol = str(config.get("group.protocol", "classic")).lower()
        self.incremental = protocol == "consumer" or "cooperative" in strategy
        self.assigned_in_callback = False
        self.taken_in_callback = False
        self._consumer: Callable[[], Any] = weakref.ref(consumer, self._collected)
        self._calls = threading.RLock()
        self._state = threading.RLock()
        self._wake = threading.Event()
        self._idle = threading.Event()
        self._idle.set()
        self._let_in = threading.Event()
        self._watched = False
        self._ended = False
        self._barged = False
        self._thread: threading.Thread | None = None
        self._identity = _identity()
        self._highest: dict[Partition, int] = {}
        """The highest offset that librdkafka may believe to be committed, by partition."""
        self._stored: dict[Partition, int] = {}
        """What librdkafka had stored when a partition was closed: it commits that when the partition is taken away."""
        self._sought: dict[Partition, int] = {}
        """Closed and moved there since; librdkafka stores another offset only once a record is delivered."""
        self.last_positions: dict[Partition, int] = {}
        """Of a consumer that is being closed, where librdkafka has forgotten them."""
        self._behind: dict[Partition, int] = {}
        """Reset to an earlier offset, which librdkafka has not committed itself yet."""
        self._settling: dict[Partition, float] = {}
        """Until when the commit of that offset may be on its way: until then the rest is committed by name."""
        self._fresh: set[Partition] = set()
        """Assigned and not resumed yet: librdkafka may have been told of a later committed offset than we have seen."""
        self._settle_s = _SETTLE_S
        self.may_leak = False
        """Whether a partition's records are to be withheld: what the client returns has to be looked at."""
        self._leaked: dict[Partition, tuple[int, int]] = {}
        """What was withheld and is still to be read, by partition: the first offset, and the one after the last."""

    # --- the application's side ---------------------------------------------------------------------------------------

    @contextmanager
    def calls(self, patience_s: float = _BARGE_S) -> Iterator[bool]:
        """Hold ``_calls``, unless the driver has it and is kept out of the consumer by this very thread's poll.

        Whether it is held.
        """
        self._identity = _identity()
        held = self._calls.acquire(timeout=patience_s)
        self._barged = self._barged or not held
        try:
            yield held
        finally:
            if held:
                self._calls.release()

    def delivered(self, consumer: Any) -> dict[Partition, int | None]:
        """The offset after the last record that was delivered of each partition; before any of them is exchanged."""
        with self._state:
            owned = self.core.owned()
        try:
            return self.positions(consumer, owned)
        except (cimpl.KafkaException, RuntimeError):
            return {}

    def read_to(self) -> tuple[int, int]:
        with self._state:
            return self.core.read_to

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
        new = [_key(partition) for partition in partitions]
        sought = {_key(p) for p in partitions if p.offset not in (_OFFSET_INVALID, cimpl.OFFSET_STORED)}
        with self._state:
            self._forget(new if lost is None else self.core.owned(), lost or {})
            stopped: tuple[Partition, ...] = ()
            if new:
                stopped = self.core.assigned(new, self._ask(new), time.monotonic(), sought=sought, known=known)
            self.may_leak |= bool(stopped)
            self._fresh.update(stopped)
        if stopped:
            _tell_twice(_Consumer.pause, consumer, _listed(stopped))
            self._watch(consumer)
            self._start()
        self._wake.set()

    @contextmanager
    def taking(
        self, consumer: Any, partitions: Iterable[Partition], delivered: Mapping[Partition, int | None]
    ) -> Iterator[None]:
        """Around the call by which librdkafka takes these away: the group's offsets stay what they are reset to.

        With auto-commit it commits what it has stored last of each, whatever is committed by then; that is from before
        the reset where nothing has been delivered since. So the right offset is committed again, before anybody else
        can be given the partition.
        """
        back = self._to_commit_again(consumer, self._outdated(partitions, delivered))
        yield
        if not back:
            return
        try:
            _Consumer.commit(consumer, offsets=[_TopicPartition(*p, o) for p, o in back.items()], asynchronous=False)
        except (cimpl.KafkaException, RuntimeError) as error:
            log.warning(
                "group %s: librdkafka may have committed the old offsets of %s over their reset, and to commit the "
                "reset again failed: %s",
                self.core.group,
                sorted(back),
                error,
            )

    def _outdated(
        self, partitions: Iterable[Partition], delivered: Mapping[Partition, int | None]
    ) -> dict[Partition, int]:
        """What librdkafka has stored from before a reset that may have been since."""
        if not (self.core.client_commits and self.core.client_stores):
            return {}
        with self._state:
            sealed = self.core.sealed()
            return {
                p: self._stored[p]
                for p in partitions
                if p in self._stored and (p in sealed or (p in self._sought and delivered.get(p) is None))
            }

    def _to_commit_again(self, consumer: Any, outdated: Mapping[Partition, int]) -> dict[Partition, int]:
        """Where the group stands, of partitions of which librdkafka has stored another offset from before a reset."""
        right = self._look_up(consumer, outdated)
        with self._state:
            for partition in outdated.keys() - right.keys():
                if self._sought.get(partition, _OFFSET_INVALID) >= 0:
                    right[partition] = self._sought[partition]
        if unknown := sorted(outdated.keys() - right.keys()):
            log.warning(
                "group %s: no committed offset of %s is told; where they were reset, librdkafka may commit the old one",
                self.core.group,
                unknown,
            )
        return {p: right[p] for p, offset in outdated.items() if p in right and right[p] != offset}

    def _look_up(self, consumer: Any, partitions: Mapping[Partition, int]) -> dict[Partition, int]:
        """The group's offsets, where there are any and the broker tells them."""
        if not partitions:
            return {}
        try:
            found = _Consumer.committed(consumer, _listed(tuple(partitions)), timeout=_COMMITTED_S)
        except (cimpl.KafkaException, RuntimeError) as error:
            log.debug("group %s: committed offsets: %s", self.core.group, error)
            return {}
        return {_key(p): p.offset for p in found if p.error is None and p.offset >= 0}

    def _ask(self, new: Iterable[Partition]) -> int:
        return self.link.ask({partition.topic for partition in new} if self.core.rule is not None else ())

    def revoked(self, delivered: Mapping[Partition, int | None], partitions: Iterable[Partition] | None = None) -> None:
        """These (``None``: all) are gone; ``delivered``: what it tells of them."""
        with self._state:
            self._forget(self.core.owned() if partitions is None else partitions, delivered)

    def _forget(self, partitions: Iterable[Partition], delivered: Mapping[Partition, int | None]) -> None:
        gone = tuple(partitions)
        self.core.revoked(gone, delivered)
        for partition in gone:
            self._is_settled(partition)
            self._highest.pop(partition, None)
            self._leaked.pop(partition, None)
            self._stored.pop(partition, None)
            self._sought.pop(partition, None)
            self._fresh.discard(partition)

    def pass_commit(
        self, consumer: Any, offsets: Sequence[Any], send: Callable[[list[Any] | None], Any]
    ) -> tuple[Any, list[Any]]:
        """Send what may be committed of ``offsets`` (``None``: all of it); the outcome, and what was dropped."""
        wanted = {_key(p): p.offset for p in offsets}
        with self._state:
            late = self.core.has_late()
        positions = self.positions(consumer, tuple(wanted)) if late else {}
        with self._state:
            dropped = self.core.dropped(wanted, lambda _: positions)
            call = self.core.commit_begins()
            for partition in wanted:
                self._is_settled(partition)
        try:
            if not dropped:
                return send(None), []
            rest = [p for p in offsets if _key(p) not in dropped]
            return send(rest), [p for p in offsets if _key(p) in dropped]
        finally:
            self._commit_ended(call)

    def commit_all(self, consumer: Any, asynchronous: bool) -> Any:
        """The application's commit of everything that is stored."""
        with self._state:
            now = time.monotonic()
            settling = [partition for partition, until in self._settling.items() if now < until]
            odd = {*self.core.sealed(), *self._behind, *settling, *self._leaked}
            call = self.core.commit_begins()
        try:
            if not odd and not self.last_positions:
                return _Consumer.commit(consumer, asynchronous=asynchronous)
            if self.last_positions or not self.core.client_stores:
                return self._commit_stored(consumer, asynchronous)
            return self._commit_positions(consumer, asynchronous)
        finally:
            self._commit_ended(call)

    def _commit_stored(self, consumer: Any, asynchronous: bool) -> Any:
        try:
            return _Consumer.commit(consumer, asynchronous=asynchronous)
        except cimpl.KafkaException as error:
            if error.args[0].code() != cimpl.KafkaError._NO_OFFSET:
                raise
            # What the application stored was dropped: for it, that was committed.
            return None if asynchronous else []

    def _commit_positions(self, consumer: Any, asynchronous: bool) -> Any:
        with self._state:
            free = [p for p in self.core.owned() if p not in self.core.sealed()]
        found = {p: offset for p, offset in self.positions(consumer, free).items() if offset is not None}
        with self._state:
            found = {p: offset for p, offset in found.items() if p not in self.core.sealed()}
            for partition in found:
                self._is_settled(partition)
        if not found:
            return None if asynchronous else []
        offsets = [_TopicPartition(*p, offset) for p, offset in found.items()]
        return _Consumer.commit(consumer, offsets=offsets, asynchronous=asynchronous)

    def _commit_ended(self, call: int) -> None:
        with self._state:
            self.core.commit_ends(call)
            waiting = bool(self.core.sealed())
        if waiting:
            self._wake.set()

    def let_out(self, consumer: Any, messages: list[Any]) -> list[Any]:
        """Of what the client returned that which may reach the application; the rest is read again in its time."""
        # Without a lock first: what was not withheld when it came was delivered in time.
        if not self._withheld(messages):
            return messages
        # The driver may be opening one of them at this moment.
        with self.calls(_LET_OUT_S) as held:
            with self._state:
                withheld = self._withheld(messages)
                for message in withheld:
                    first, end = self._leaked.get(_key_of(message), (message.offset(), 0))
                    self._leaked[_key_of(message)] = min(first, message.offset()), max(end, message.offset() + 1)
                back = {partition: self._leaked[partition][0] for partition in map(_key_of, withheld)}
                if self.core.client_stores:
                    self._note_highest({partition: self._leaked[partition][1] for partition in back})
                self.core.leaked(back, time.monotonic())
            if not back:
                return messages
            log.debug("group %s: withholding records of %s", self.core.group, sorted(back))
            try:
                _tell_twice(_Consumer.pause, consumer, _listed(back))
            except cimpl.KafkaException as error:
                log.debug("group %s: pause: %s", self.core.group, error)
            if held:
                # Otherwise the driver may have sought the place to go on from already.
                self._move(consumer, back)
        self._wake.set()
        return [m for m in messages if m.error() is not None or _key_of(m) not in back]

    def _withheld(self, messages: list[Any]) -> list[Any]:
        return [m for m in messages if m.error() is None and self.core.is_withheld(_key_of(m), m.offset())]

    def sought(self, partition: Partition) -> None:
        """The application itself moved its position."""
        with self._state:
            self.core.app_sought(partition)
            self._leaked.pop(partition, None)
            self._sought.pop(partition, None)

    def positions(self, consumer: Any, partitions: Sequence[Partition]) -> dict[Partition, int | None]:
        found = _Consumer.position(consumer, _listed(partitions)) if partitions else []
        return {_key(p): p.offset if p.offset >= 0 else None for p in found if p.error is None}

    # --- life ---------------------------------------------------------------------------------------------------------

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
            self._idle.wait(5 * _COMMITTED_S)
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
                    _Consumer.incremental_unassign(consumer, _listed(taken))
                else:
                    _Consumer.unassign(consumer)
            # Given back, for the application to be told of them, and to ask where it stands.
            given = [_TopicPartition(*p, _OFFSET_INVALID if (at := stand[p]) is None else at) for p in taken]
            (_Consumer.incremental_assign if self.incremental else _Consumer.assign)(consumer, given)
            with self._state:
                self.last_positions = {p: at for p in taken if (at := stand[p]) is not None}
                for partition in taken:
                    self._stored.pop(partition, None)
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
            self._enter(_Consumer.pause, consumer, _listed(stopped))

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
            self._settle_s = _SETTLE_S
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
                self._enter(_tell_twice, _Consumer.pause, consumer, _listed(effect.partitions))
            case Resume():
                self._go_back(consumer, effect.partitions)
                self._enter(_tell_twice, _Consumer.resume, consumer, _listed(effect.partitions))
                with self._state:
                    self._fresh.difference_update(effect.partitions)
            case Position():
                found = self._enter(self.positions, consumer, effect.partitions)
                self._note_highest(found)
                with self._state:
                    self._stored.update({p: offset for p, offset in found.items() if offset is not None})
                return found  # type: ignore[no-any-return]
            case Commit():
                self._enter(self._commit_stored, consumer, True)
            case Committed():
                committed = self._committed(consumer, effect.partitions)
                self._note_highest(committed)
                return committed
            case Forget():
                if not self.core.client_stores:
                    nothing = [_TopicPartition(*p, _OFFSET_INVALID) for p in effect.partitions]
                    self._enter(_Consumer.store_offsets, consumer, offsets=nothing)
            case Seek():
                return self._seek(consumer, effect.offsets)
            case Begin():
                return self._seek(consumer, dict.fromkeys(effect.partitions, _OFFSET_OF[effect.start]))
            case SendAcks():
                self._send_acks(consumer, effect)
        return []

    def _enter(self, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call into the client as the polling thread does."""
        if _identity_var is None or not _has_gil:
            return call(*args, **kwargs)
        token = _identity_var.set(self._identity)
        try:
            return call(*args, **kwargs)
        finally:
            _identity_var.reset(token)
            self._let_in.set()

    def _note_highest(self, offsets: Mapping[Partition, int | None]) -> None:
        with self._state:
            for partition, offset in offsets.items():
                if offset is not None:
                    self._highest[partition] = max(offset, self._highest.get(partition, 0))

    def _committed(self, consumer: Any, partitions: Sequence[Partition]) -> dict[Partition, int | None]:
        try:
            found = self._enter(_Consumer.committed, consumer, _listed(partitions), timeout=_COMMITTED_S)
        except cimpl.KafkaException as error:
            if error.args[0].code() != cimpl.KafkaError.GROUP_AUTHORIZATION_FAILED:
                raise
            # It may not have a group: it assigns by hand and commits nothing.
            return dict.fromkeys(partitions)
        offsets = {_key(p): p.offset if p.offset >= 0 else None for p in found if p.error is None}
        if self.core.client_stores:
            with self._state:
                for partition, (first, end) in self._leaked.items():
                    # It stored by itself what nobody was given, and that was committed.
                    if first < (offsets.get(partition) or 0) <= end:
                        offsets[partition] = first
        return offsets

    def _go_back(self, consumer: Any, partitions: Sequence[Partition]) -> None:
        """To the first record that was withheld, where no other place was sought since. Raises ``RuntimeError``."""
        with self._state:
            back = {p: self._leaked[p][0] for p in partitions if p in self._leaked}
        if back and (left := back.keys() - set(self._seek(consumer, back))):
            raise RuntimeError(f"{sorted(left)} cannot be sought yet")

    def _move(self, consumer: Any, offsets: Mapping[Partition, int]) -> list[Partition]:
        """Those whose position was changed."""
        sought = []
        for partition, offset in offsets.items():
            try:
                _Consumer.seek(consumer, _TopicPartition(*partition, offset))
            except cimpl.KafkaException as error:
                # "Erroneous state" while the fetcher starts: it will have an answer soon.
                log.debug("group %s: seek %s-%d: %s", self.core.group, *partition, error)
            else:
                sought.append(partition)
        return sought

    def _seek(self, consumer: Any, offsets: Mapping[Partition, int]) -> list[Partition]:
        sought: list[Partition] = self._enter(self._move, consumer, offsets)
        with self._state:
            self._sought |= {p: offsets[p] for p in sought}
            for partition in sought:
                self._leaked.pop(partition, None)
                is_behind = partition in self._fresh or offsets[partition] < self._highest.get(partition, 0)
                if offsets[partition] >= 0 and is_behind:
                    self._behind[partition] = offsets[partition]
                    self._settle_s = _SETTLE_S
        return sought

    def _settle(self, consumer: Any, behind: Mapping[Partition, int]) -> None:
        """Have librdkafka commit the offset it was reset to, as soon as what it has stored is beyond that again."""
        found = self._enter(self.positions, consumer, tuple(behind)) if self.core.client_stores else {}
        with self._state:
            ready = {
                p: offset
                for p, offset in behind.items()
                if self._behind.get(p) == offset
                and self.core.stage(p) is Stage.OPEN
                and (not self.core.client_stores or found.get(p) is not None)
            }
        if not ready:
            return
        offsets = [_TopicPartition(*p, offset) for p, offset in ready.items()]
        self._enter(_Consumer.commit, consumer, offsets=offsets, asynchronous=True)
        with self._state:
            for partition, offset in ready.items():
                if self._behind.get(partition) == offset:
                    self._is_settled(partition)
                    self._settling[partition] = time.monotonic() + _SETTLING_S
                    self._highest[partition] = offset

    def _is_settled(self, partition: Partition) -> None:
        self._behind.pop(partition, None)
        self._settling.pop(partition, None)

    def settle_now(self, consumer: Any) -> None:
        """What is to be taken away is settled first, or what was delivered since would not be committed with it."""
        with self._state:
            behind = dict(self._behind)
        if behind and self.core.client_commits:
            self._settle(consumer, behind)

    def _send_acks(self, consumer: Any, effect: SendAcks) -> None:
        def done(written: bool) -> None:
            with self._state:
                if written:
                    self.core.done(effect, time.monotonic())
                else:
                    self.core.failed(effect, time.monotonic())
            self._wake.set()

        member = self._enter(_Consumer.memberid, consumer) or ""
        self.link.send_acks(self.core.group, member, effect.acks, effect.generation, done)

    # --- who polls ----------------------------------------------------------------------------------------------------

    def _watch(self, consumer: Any) -> None:
        """For the time being see who polls, and let our calls in before the next poll shuts them out."""
        if _identity_var is None or self._watched:
            return
        kind, own = type(consumer), weakref.ref(consumer)

        def watched(method: Callable[..., Any]) -> Callable[..., Any]:
            def call(*args: Any, **kwargs: Any) -> Any:
                self._identity = _identity()
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


_of_metadata: OrderedDict[int, tuple[Any, Any]] = OrderedDict()
"""Consumers' group metadata by identity, and whose it is; kept alive, so that no other object has the same identity."""
_metadata_lock = threading.Lock()


def _forked() -> None:
    global _metadata_lock  # noqa: PLW0603 -- a thread of the parent's may have had it
    _metadata_lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


class ManagedConsumer(_Consumer):  # type: ignore[misc]
    """The library's consumer; its partitions obey the gates of its group."""

    tidegate_plain = _Consumer

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._tidegate: _Driver | None = None
        args, kwargs, own = _own_options(args, kwargs)
        super().__init__(*args, **kwargs)
        self._tidegate = _driver(self, own)

    @property
    def _driven(self) -> _Driver | None:
        driver = self._tidegate
        return driver if driver is not None and process.is_of_this_process(driver.pid) else None

    # The arguments by name: passing on ``*args, **kwargs`` takes as long again.

    def poll(self, timeout: Any = -1) -> Any:
        message = _poll(self, timeout)
        driver = self._tidegate
        if message is None or driver is None or not driver.may_leak:
            return message
        while message is not None and self._driven is not None and not driver.let_out(self, [message]):
            message = _poll(self, timeout)
        return message

    def consume(self, num_messages: Any = 1, timeout: Any = -1) -> Any:
        messages = _consume(self, num_messages, timeout)
        driver = self._tidegate
        if not messages or driver is None or not driver.may_leak:
            return messages
        while messages and self._driven is not None:
            if rest := driver.let_out(self, messages):
                return rest
            messages = _consume(self, num_messages, timeout)
        return messages

    def subscribe(self, topics: Any, *args: Any, **kwargs: Any) -> None:
        driver = self._driven
        if driver is None:
            super().subscribe(topics, *args, **kwargs)
            return
        given = {**dict(zip(("on_assign", "on_revoke", "on_lost"), args, strict=False)), **kwargs}
        if set(given) - {"on_assign", "on_revoke", "on_lost"} or len(args) > 3:
            super().subscribe(topics, *args, **kwargs)  # it says what is wrong
            return
        for callback in given.values():
            if not callable(callback):
                super().subscribe(topics, **given)
                return
        super().subscribe(
            topics,
            on_assign=_on_assign(driver, given.get("on_assign")),
            on_revoke=_on_revoke(driver, given.get("on_revoke")),
            on_lost=_on_lost(driver, given.get("on_lost") or given.get("on_revoke")),
        )

    def assign(self, partitions: Any, *args: Any, **kwargs: Any) -> None:
        driver = self._driven
        if driver is None:
            super().assign(partitions, *args, **kwargs)
            return
        with driver.calls():
            lost, known = driver.delivered(self), driver.read_to()
            with driver.taking(self, lost, lost):
                super().assign(partitions, *args, **kwargs)
            driver.assigned_in_callback = True
            driver.assigned(self, partitions, known, lost)

    def incremental_assign(self, partitions: Any, *args: Any, **kwargs: Any) -> None:
        driver = self._driven
        if driver is None:
            super().incremental_assign(partitions, *args, **kwargs)
            return
        with driver.calls():
            known = driver.read_to()
            super().incremental_assign(partitions, *args, **kwargs)
            driver.assigned_in_callback = True
            driver.assigned(self, partitions, known)

    def unassign(self) -> None:
        driver = self._driven
        if driver is None:
            super().unassign()
            return
        with driver.calls():
            driver.settle_now(self)
            delivered = driver.delivered(self)
            with driver.taking(self, delivered, delivered):
                super().unassign()
            driver.taken_in_callback = True
            driver.revoked(delivered)

    def incremental_unassign(self, partitions: Any, *args: Any, **kwargs: Any) -> None:
        driver = self._driven
        if driver is None:
            super().incremental_unassign(partitions, *args, **kwargs)
            return
        with driver.calls():
            driver.settle_now(self)
            delivered = driver.delivered(self)
            with driver.taking(self, [_key(partition) for partition in partitions], delivered):
                super().incremental_unassign(partitions, *args, **kwargs)
            driver.taken_in_callback = True
            driver.revoked(delivered, [_key(partition) for partition in partitions])

    def position(self, partitions: Any, *args: Any, **kwargs: Any) -> Any:
        found = super().position(partitions, *args, **kwargs)
        driver = self._driven
        if driver is not None and driver.last_positions:
            for partition in found:
                if partition.offset < 0:
                    partition.offset = driver.last_positions.get(_key(partition), partition.offset)
        return found

    def pause(self, partitions: Any, *args: Any, **kwargs: Any) -> None:
        driver = self._driven
        if driver is None:
            super().pause(partitions, *args, **kwargs)
            return
        with driver.calls():
            super().pause(partitions, *args, **kwargs)
            with driver._state:
                driver.core.app_paused([_key(partition) for partition in partitions])

    def resume(self, partitions: Any, *args: Any, **kwargs: Any) -> None:
        driver = self._driven
        if driver is None:
            super().resume(partitions, *args, **kwargs)
            return
        with driver.calls():
            with driver._state:
                free = set(driver.core.app_resumed([_key(partition) for partition in partitions]))
            allowed = [partition for partition in partitions if _key(partition) in free]
            if allowed or not partitions:
                super().resume(allowed, *args, **kwargs)

    def seek(self, partition: Any, *args: Any, **kwargs: Any) -> None:
        driver = self._driven
        if driver is None:
            super().seek(partition, *args, **kwargs)
            return
        with driver.calls():
            super().seek(partition, *args, **kwargs)
            driver.sought(_key(partition))

    def commit(self, *args: Any, **kwargs: Any) -> Any:
        driver = self._driven
        given = {**dict(zip(("message", "offsets", "asynchronous"), args, strict=False)), **kwargs}
        message, offsets = given.pop("message", None), given.pop("offsets", None)
        asynchronous = given.pop("asynchronous", True)
        if driver is None or given or len(args) > 3 or (message is not None and offsets is not None):
            return super().commit(*args, **kwargs)
        if message is None and offsets is None:
            return driver.commit_all(self, asynchronous)
        if message is not None:
            if message.error() is not None:
                return super().commit(*args, **kwargs)
            offsets = [_TopicPartition(message.topic(), message.partition(), message.offset() + 1)]

        def send(rest: list[Any] | None) -> Any:
            if rest is None:
                return _Consumer.commit(self, *args, **kwargs)
            return _Consumer.commit(self, offsets=rest, asynchronous=asynchronous) if rest else None

        outcome, dropped = driver.pass_commit(self, offsets, send)
        # Whoever waits is told that all is well: from a paused partition nothing has to be committed again.
        return outcome if asynchronous or not dropped else [*(outcome or []), *dropped]

    def store_offsets(self, *args: Any, **kwargs: Any) -> None:
        driver = self._driven
        given = {**dict(zip(("message", "offsets"), args, strict=False)), **kwargs}
        message, offsets = given.pop("message", None), given.pop("offsets", None)
        if driver is None or given or (message is None) == (offsets is None):
            super().store_offsets(*args, **kwargs)
            return
        if message is not None:
            offsets = [_TopicPartition(message.topic(), message.partition(), message.offset() + 1)]
        wanted = {_key(p): p.offset for p in offsets}
        with driver._state:
            late = driver.core.has_late()
        positions = driver.positions(self, tuple(wanted)) if late else {}
        # Stored under the lock, or the driver could drop what is stored just before.
        with driver.calls():
            with driver._state:
                dropped = driver.core.dropped(wanted, lambda _: positions)
            if not dropped:
                super().store_offsets(*args, **kwargs)
            else:
                rest = [p for p in offsets if _key(p) not in dropped]
                if rest:
                    super().store_offsets(offsets=rest)

    def consumer_group_metadata(self) -> Any:
        metadata = super().consumer_group_metadata()
        driver = self._driven
        if driver is not None and metadata is not None:
            with _metadata_lock:
                _of_metadata[id(metadata)] = (metadata, weakref.ref(self))
                while len(_of_metadata) > _KEPT_METADATA:
                    _of_metadata.popitem(last=False)
        return metadata

    def set_sasl_credentials(self, username: str, password: str) -> None:
        super().set_sasl_credentials(username, password)
        driver = self._driven
        if driver is not None:
            driver.link.set_credentials(username, password)

    def close(self) -> Any:
        driver = self._driven
        if driver is not None:
            driver.end(self)
        return super().close()

    if hasattr(_Consumer, "__exit__"):

        def __exit__(self, *args: Any) -> Any:
            driver = self._driven
            if driver is not None:
                driver.end(self)
            return super().__exit__(*args)


class ManagedProducer(_Producer):  # type: ignore[misc]
    """The library's producer; its transactions carry no offsets of closed partitions."""

    tidegate_plain = _Producer

    def send_offsets_to_transaction(self, positions: Any, group_metadata: Any, *args: Any, **kwargs: Any) -> Any:
        with _metadata_lock:
            _, ref = _of_metadata.get(id(group_metadata), (None, None))
        consumer = ref() if ref is not None else None
        driver = consumer._driven if consumer is not None else None
        send = super().send_offsets_to_transaction
        if driver is None:
            return send(positions, group_metadata, *args, **kwargs)
        outcome, _dropped = driver.pass_commit(
            consumer,
            positions,
            lambda rest: send(positions if rest is None else rest, group_metadata, *args, **kwargs),
        )
        return outcome


def _own_options(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any], OwnOptions]:
    """What the library is to be made with, and what it would not know. Raises ``KafkaException`` as it would."""
    given = args[0] if args and isinstance(args[0], dict) else None
    try:
        first = take_out(given or {}, str, _is_known)
        named = take_out(kwargs, str, _is_known)
    except RuleError as error:
        raise cimpl.KafkaException(cimpl.KafkaError(cimpl.KafkaError._INVALID_ARG, str(error))) from None
    own = OwnOptions(
        {**first.rest, **named.rest}, named.options.over(first.options), first.is_native or named.is_native
    )
    return (args if given is None else (first.rest, *args[1:])), named.rest, own


_known_properties: dict[str, bool] = {}


def _is_known(name: str, value: Any) -> bool:
    """Whether librdkafka has this property; it is asked once, by a consumer that reaches no broker."""
    if name not in _known_properties:
        try:
            _Consumer({"group.id": "tidegate-agent", name: value, "log_level": 0}).close()
        except cimpl.KafkaException as error:
            # It tells a value that it does not like otherwise.
            _known_properties[name] = "No such configuration property" not in error.args[0].str()
        else:
            _known_properties[name] = True
    return _known_properties[name]


def _auto_offset_reset(config: Mapping[str, Any]) -> object:
    of_topics = config.get("default.topic.config")
    default = of_topics.get("auto.offset.reset") if isinstance(of_topics, Mapping) else None
    return config.get("auto.offset.reset") or default or "largest"


def _driver(consumer: Any, own: OwnOptions) -> _Driver | None:
    config = own.rest
    group = config.get("group.id")
    if not group:
        return None
    try:
        settings = process.settings()
        link = process.link(config)
    except SettingsError as error:
        log.error("the agent stays out: %s", error)
        return None
    core = Core(
        str(group),
        client_commits=_is_true(config.get("enable.auto.commit"), True),
        client_stores=_is_true(config.get("enable.auto.offset.store"), True),
        open_unread_after_s=settings.open_unread_after_s,
        rule=own.rule(str(group), _auto_offset_reset(config), settings.new_partitions_of(str(group))),
        may_drop=True,
    )
    return _Driver(consumer, config, link, core)


def _on_assign(driver: _Driver, own: Callable[..., Any] | None) -> Callable[[Any, Any], None]:
    """What the library calls with new partitions. It assigns itself afterwards where nobody has: here, as it would."""

    def on_assign(consumer: Any, partitions: Any) -> None:
        driver._identity = _identity()
        driver.assigned_in_callback = False
        given = [_TopicPartition(p.topic, p.partition, p.offset) for p in partitions]
        try:
            if own is not None:
                own(consumer, partitions)
        finally:
            if not driver.assigned_in_callback:
                if driver.incremental:
                    ManagedConsumer.incremental_assign(consumer, given)
                else:
                    ManagedConsumer.assign(consumer, given)

    return on_assign


def _on_revoke(driver: _Driver, own: Callable[..., Any] | None) -> Callable[[Any, Any], None]:
    """What the library calls as partitions are taken away. It unassigns itself afterwards where nobody has: here, as it
    would."""

    def on_revoke(consumer: Any, partitions: Any) -> None:
        driver._identity = _identity()
        driver.taken_in_callback = False
        taken = [_TopicPartition(p.topic, p.partition) for p in partitions]
        try:
            if own is not None:
                driver.settle_now(consumer)
                own(consumer, partitions)
        finally:
            if not driver.taken_in_callback:
                if driver.incremental:
                    ManagedConsumer.incremental_unassign(consumer, taken)
                else:
                    ManagedConsumer.unassign(consumer)

    return on_revoke


def _on_lost(driver: _Driver, own: Callable[..., Any] | None) -> Callable[[Any, Any], None]:
    """The same of partitions that others may have already: nothing is committed of them any more."""

    def on_lost(consumer: Any, partitions: Any) -> None:
        driver._identity = _identity()
        driver.settle_now(consumer)
        delivered = driver.delivered(consumer)
        try:
            if own is not None:
                own(consumer, partitions)
        finally:
            driver.revoked(delivered, [_key(partition) for partition in partitions])

    return on_lost


def install(module: Any) -> None:
    """Put the managed classes in the place of the library's in ``confluent_kafka.cimpl``, just imported or before."""
    for plain_class, managed in ((_Consumer, ManagedConsumer), (_Producer, ManagedProducer)):
        managed.__name__ = managed.__qualname__ = plain_class.__name__
        managed.__module__, managed.__doc__ = plain_class.__module__, plain_class.__doc__
        _replace(module, plain_class, managed)
        for other in [m for name, m in sys.modules.items() if name.split(".")[0] == "confluent_kafka"]:
            _replace(other, plain_class, managed)
        for subclass in plain_class.__subclasses__():
            if subclass is not managed:
                name = f"{subclass.__module__}.{subclass.__qualname__}"
                log.warning("the agent came after %s was defined: its partitions are not managed", name)


def _replace(module: Any, plain_class: Any, managed: Any) -> None:
    for name, value in list(vars(module).items()):
        if value is plain_class:
            setattr(module, name, managed)
