"""What librdkafka has stored of a consumer's partitions, commits by itself and has to go back to, and the calls that
keep the group's offsets what they were reset to.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from confluent_kafka import cimpl

from tidegate_agent import process
from tidegate_agent.adapters import confluent_client as client
from tidegate_agent.adapters.confluent_client import (
    HAS_GIL,
    TopicPartition,
    identity,
    identity_var,
    key,
    listed,
)
from tidegate_agent.control import ControlLink
from tidegate_agent.core import Core
from tidegate_agent.gates import Partition
from tidegate_agent.partition_state import Stage

log = logging.getLogger("tidegate_agent")

COMMITTED_S: Final = 1.0
_BARGE_S: Final = 0.2
SETTLE_S: Final = 0.02
_SETTLING_S: Final = 5.0


class ConsumerOffsets:
    """One consumer's core and offsets, and the calls into the client; a ``Driver`` makes them.

    Two locks, taken in this order: ``_calls`` while partitions are stopped, moved, let go or exchanged in the client,
    so that what was decided is still so when it is done; ``_state`` while the core is looked at, never for long.
    """

    def __init__(self, link: ControlLink, core: Core) -> None:
        self.pid = process.pid()
        self.core = core
        self.link = link
        self._calls = threading.RLock()
        self._state = threading.RLock()
        self._wake = threading.Event()
        self._let_in = threading.Event()
        self._barged = False
        self._identity = identity()
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
        self._settle_s = SETTLE_S
        self._leaked: dict[Partition, tuple[int, int]] = {}
        """What was withheld and is still to be read, by partition: the first offset, and the one after the last."""
        self._returned: dict[Partition, tuple[int, int]] = {}
        """The same, of partitions that were moved since, as long as the group may stand after it."""

    @contextmanager
    def calls(self, patience_s: float = _BARGE_S) -> Iterator[bool]:
        """Hold ``_calls``, unless the driver has it and is kept out of the consumer by this very thread's poll.

        Whether it is held.
        """
        self._identity = identity()
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
            client.Consumer.commit(
                consumer, offsets=[TopicPartition(*p, o) for p, o in back.items()], asynchronous=False
            )
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
        """What librdkafka has stored from before a reset that may have been since, or of what was withheld."""
        if not (self.core.client_commits and self.core.client_stores):
            return {}
        with self._state:
            moved = {p for p in self._sought if delivered.get(p) is None} | self.core.sealed()
            found = {p: self._stored[p] for p in partitions if p in self._stored and p in moved}
            unread = self._unread(delivered)
            return found | {p: unread[p][1] for p in partitions if p in unread}

    def _unread(self, delivered: Mapping[Partition, int | None]) -> dict[Partition, tuple[int, int]]:
        """What was withheld, has not been delivered since, and may be what librdkafka goes by as it commits."""
        left = [(p, max(first, delivered.get(p) or 0), end) for p, (first, end) in self._returned.items()]
        self._returned = {p: (first, end) for p, first, end in left if first < end and p in self._behind}
        return self._returned | self._leaked

    def _to_commit_again(self, consumer: Any, outdated: Mapping[Partition, int]) -> dict[Partition, int]:
        """Where the group stands, of partitions of which librdkafka has stored another offset from before a reset."""
        found = self._look_up(consumer, outdated)
        with self._state:
            unread = self._unread({})
            told = {p: _unskipped(o, unread[p]) if p in unread else o for p, o in found.items()}
            right = {p: o for p, o in told.items() if o >= 0}
            places = {p: o for p, o in self._sought.items() if o >= 0} | {p: first for p, (first, _) in unread.items()}
            # While one is closed, the group may have been reset anew: where it stands is not known then.
            right |= {p: places[p] for p in outdated.keys() & places.keys() - right.keys() - self.core.sealed()}
        if unknown := sorted(outdated.keys() - right.keys()):
            log.warning(
                "group %s: no committed offset of %s is told; where they were reset, librdkafka may commit the old one",
                self.core.group,
                unknown,
            )
        return {p: right[p] for p, offset in outdated.items() if p in right and right[p] != offset}

    def _look_up(self, consumer: Any, partitions: Mapping[Partition, int]) -> dict[Partition, int]:
        """The group's offsets, where the broker tells them; below 0: it has none."""
        if not partitions:
            return {}
        try:
            found = client.Consumer.committed(consumer, listed(tuple(partitions)), timeout=COMMITTED_S)
        except (cimpl.KafkaException, RuntimeError) as error:
            log.debug("group %s: committed offsets: %s", self.core.group, error)
            return {}
        return {key(p): p.offset for p in found if p.error is None}

    def _forget(self, partitions: Iterable[Partition], delivered: Mapping[Partition, int | None]) -> None:
        gone = tuple(partitions)
        self.core.revoked(gone, delivered)
        for partition in gone:
            self._is_settled(partition)
            for offsets in (self._highest, self._stored, self._sought):
                offsets.pop(partition, None)
            for unread in (self._leaked, self._returned):
                unread.pop(partition, None)
            self._fresh.discard(partition)

    def pass_commit(
        self, consumer: Any, offsets: Sequence[Any], send: Callable[[list[Any] | None], Any]
    ) -> tuple[Any, list[Any]]:
        """Send what may be committed of ``offsets`` (``None``: all of it); the outcome, and what was dropped."""
        wanted = {key(p): p.offset for p in offsets}
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
            rest = [p for p in offsets if key(p) not in dropped]
            return send(rest), [p for p in offsets if key(p) in dropped]
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
                return client.Consumer.commit(consumer, asynchronous=asynchronous)
            if self.last_positions or not self.core.client_stores:
                return self._commit_stored(consumer, asynchronous)
            return self._commit_positions(consumer, asynchronous)
        finally:
            self._commit_ended(call)

    def _commit_stored(self, consumer: Any, asynchronous: bool) -> Any:
        try:
            return client.Consumer.commit(consumer, asynchronous=asynchronous)
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
            # Moved back to a record at its limit, a partition has no position, and what is before it may be committed.
            found = self.core.passed() | found
            found = {p: offset for p, offset in found.items() if p not in self.core.sealed()}
            for partition in found:
                self._is_settled(partition)
        if not found:
            return None if asynchronous else []
        offsets = [TopicPartition(*p, offset) for p, offset in found.items()]
        return client.Consumer.commit(consumer, offsets=offsets, asynchronous=asynchronous)

    def _commit_before_limits(self, consumer: Any) -> None:
        """Of partitions that are being closed at their limits: what librdkafka does not commit by itself while it takes
        a later offset for committed, from before the group was reset.

        Where it has stored a record that was withheld, that is what is committed. Otherwise it would do so later, and
        replace what the group is reset to meanwhile.
        """
        if not self.core.client_stores:
            return
        with self._state:
            found = {
                p: self._leaked.get(p, (0, offset))[1]
                for p, offset in self.core.passed().items()
                if (p in self._behind or p in self._leaked)
                and self.core.stage(p) is Stage.DRAINING
                and p not in self.core.sealed()
            }
            for partition, offset in found.items():
                self._is_settled(partition)
                self._settling[partition] = time.monotonic() + _SETTLING_S
                self._highest[partition] = offset
        if found:
            offsets = [TopicPartition(*p, offset) for p, offset in found.items()]
            self._enter(client.Consumer.commit, consumer, offsets=offsets, asynchronous=True)

    def _commit_ended(self, call: int) -> None:
        with self._state:
            self.core.commit_ends(call)
            waiting = bool(self.core.sealed())
        if waiting:
            self._wake.set()

    def sought(self, partition: Partition) -> None:
        """The application itself moved its position."""
        with self._state:
            self.core.app_sought(partition)
            self._sought.pop(partition, None)
            unread = self._leaked.pop(partition, None)
            if unread is not None and self.core.client_commits and self.core.client_stores:
                self._returned[partition], self._behind[partition] = unread, unread[0]

    def positions(self, consumer: Any, partitions: Sequence[Partition]) -> dict[Partition, int | None]:
        found = client.Consumer.position(consumer, listed(partitions)) if partitions else []
        return {key(p): p.offset if p.offset >= 0 else None for p in found if p.error is None}

    def _enter(self, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call into the client as the polling thread does."""
        if identity_var is None or not HAS_GIL:
            return call(*args, **kwargs)
        token = identity_var.set(self._identity)
        try:
            return call(*args, **kwargs)
        finally:
            identity_var.reset(token)
            self._let_in.set()

    def _note_highest(self, offsets: Mapping[Partition, int | None]) -> None:
        with self._state:
            for partition, offset in offsets.items():
                if offset is not None:
                    self._highest[partition] = max(offset, self._highest.get(partition, 0))

    def _committed(self, consumer: Any, partitions: Sequence[Partition]) -> dict[Partition, int | None]:
        try:
            found = self._enter(client.Consumer.committed, consumer, listed(partitions), timeout=COMMITTED_S)
        except cimpl.KafkaException as error:
            if error.args[0].code() != cimpl.KafkaError.GROUP_AUTHORIZATION_FAILED:
                raise
            # It may not have a group: it assigns by hand and commits nothing.
            return dict.fromkeys(partitions)
        offsets = {key(p): p.offset if p.offset >= 0 else None for p in found if p.error is None}
        if self.core.client_stores:
            delivered = self._enter(self.positions, consumer, [p for p in partitions if p in self._returned])
            with self._state:
                unread = self._unread(delivered)
            offsets |= {p: _unskipped(o, unread[p]) for p, o in offsets.items() if o is not None and p in unread}
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
                client.Consumer.seek(consumer, TopicPartition(*partition, offset))
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
                first, end = self._leaked.pop(partition, self._returned.pop(partition, (0, 0)))
                if first <= offsets[partition] < end:
                    self._returned[partition] = offsets[partition], end
                self._behind.pop(partition, None)
                is_behind = partition in self._fresh or offsets[partition] < self._highest.get(partition, 0)
                if offsets[partition] >= 0 and is_behind:
                    self._behind[partition] = offsets[partition]
                    self._settle_s = SETTLE_S
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
        offsets = [TopicPartition(*p, offset) for p, offset in ready.items()]
        self._enter(client.Consumer.commit, consumer, offsets=offsets, asynchronous=True)
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


def _unskipped(committed: int, unread: tuple[int, int]) -> int:
    """Where a group stands: librdkafka may have committed what it stored by itself and nobody was given."""
    first, end = unread
    return first if committed < 0 or first < committed <= end else committed
