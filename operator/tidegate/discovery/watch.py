"""One connection's topics, looked at several times a second on behalf of all policies that guard some of them.

Looking, telling agents of a new partition, and giving it its start are three things that do not wait for one another: a
look that takes long delays no start, a control topic that cannot be written delays neither.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from tidegate.audit.records import Action
from tidegate.clock import Clock
from tidegate.connection.freezing import FrozenMeanwhile, begin
from tidegate.connection.live import Live
from tidegate.control.gates import Gates
from tidegate.control.records import PartitionKey, PartitionSeen
from tidegate.discovery import gone
from tidegate.discovery.ages import Ages, Look
from tidegate.discovery.backfill import Backfills
from tidegate.discovery.backoff import backoff_s
from tidegate.discovery.brokertime import BrokerTime
from tidegate.discovery.gone import GoneTopics
from tidegate.discovery.guard import Guard, Wishes
from tidegate.discovery.remembered import Untold
from tidegate.discovery.sightings import Sightings
from tidegate.discovery.starts import Outcome, give_starts
from tidegate.discovery.state import discover, grown, least_interval_s
from tidegate.discovery.tasks import Tasks
from tidegate.discovery.trouble import Trouble
from tidegate.kafka.errors import KafkaFailure
from tidegate.kafka.model import Topic, TopicPartition
from tidegate.policy.recording import attribution_of
from tidegate.reset.store import StaleAttempt
from tidegate.resources.discovery import NewPartition, NewPartitions
from tidegate.resources.reset import ResetPhase
from tidegate.service.metrics import Metrics
from tidegate.threads import in_thread

_log = logging.getLogger(__name__)

CLOCK_S: Final = 5.0
"""How often the broker's time is told to agents."""

_LEAST_WAIT_S: Final = 0.5


@dataclass(frozen=True, slots=True)
class WatchParts:
    """What a watch acts through. ``executor``: for what may take its time; the looks have a thread of their own.

    ``wake``: a policy has something new to say. ``is_frozen``: whether a connection is now, as passes of what is
    guarded may be minutes apart; then no start is given, and nobody sent back. It is thread-safe.
    """

    executor: Executor
    clock: Clock
    wake: Callable[[str], None]
    metrics: Metrics
    backfills: Backfills
    is_frozen: Callable[[Live], bool]


class ConnectionWatch:
    """Belongs to the event loop's thread. Looks for as long as somebody guards something."""

    def __init__(self, live: Live, parts: WatchParts) -> None:
        self.live = live
        self.guards: dict[str, Guard] = {}
        self.topics: Mapping[str, Topic] = {}
        """As last seen; another object whenever something has changed."""
        self.sizes: Mapping[str, int] = {}
        """By topic id, the most partitions that any look has shown."""
        self.sightings = Sightings()
        self._parts = parts
        self._name = f"{live.namespace}/{live.name}"
        self._poller = ThreadPoolExecutor(1, thread_name_prefix="discover")
        self._looking = live.kafka.topic_watch()
        self._wishes: Wishes | None = None
        """What all guards together ask for; ``None``: to be found out."""
        self._least_s = 0.0
        """Between two looks, for a cluster of this size."""
        self._asked: frozenset[str] | None = None
        self._looked_s: float | None = None
        """When the newest look began: what it did not show and a later one for the same topics does was made since."""
        self._ages = Ages()
        self._gone = GoneTopics(live.kafka, parts.executor, parts.clock)
        self._noted: Gates | None = None
        self._moved = False
        """Whether a guard, or what it knows, is another one since it was found out what is unwritten."""
        self._gathering: asyncio.TimerHandle | None = None
        """Until when what is unwritten is found out, where that is called for."""
        self._usable = False
        self._unwritten: dict[PartitionKey, PartitionSeen | None] = {}
        self._news = asyncio.Event()
        self._tasks = Tasks(self._name)
        self._trouble = Trouble(self._name)
        self._closed = False

    def start(self) -> None:
        self._tasks.spawn(self._tasks.always(self._look_always))
        self._tasks.spawn(self._tasks.always(self._tell_always))
        self._tasks.spawn(self._tasks.always(self._take_back_always))

    def note_ages(self, gates: Gates | None) -> None:
        """When partitions were made that others have seen come: a guard that is added goes by that from the first."""
        if gates is not None:
            self._ages.note(gates)

    def go_on_from(self, earlier: ConnectionWatch) -> None:
        """The one of this connection before it was opened anew: topics are no younger for that."""
        self._ages.go_on_from(earlier._ages)
        self.sizes, self.sightings = earlier.sizes, earlier.sightings

    def untold(self, guard: Guard) -> Mapping[TopicPartition, PartitionSeen | None]:
        """What agents were not told of the guard's new partitions."""
        return self._ages.untold(guard)

    def recall(self, guard: Guard, topics: Mapping[str, Topic], untold: Untold) -> None:
        """What an earlier process has not come to tell."""
        self._ages.recall(guard, topics, untold, self._parts.clock.monotonic())

    def guarded(self) -> None:
        """There is another guard, or one fewer, or one wishes something else."""
        self._moved, self._wishes = True, None

    async def close(self) -> None:
        """What is in mid-commit in a thread ends by itself, and its guard is told how: the next watch does not do it
        again beside it. Nothing else begins."""
        self._closed = True
        if self._gathering is not None:
            self._gathering.cancel()
        await self._tasks.close()
        self._poller.submit(self._looking.close)
        self._poller.shutdown(wait=False)

    def note_control(self, gates: Gates | None, *, usable: bool) -> None:
        """What the control topic says, as read by others; ``usable``: whether it may be written."""
        self._usable = usable
        self.note_ages(gates)
        if gates is not None and (gates is not self._noted or self._moved):
            # Found out once for all that are guarded: thousands of groups come here one by one.
            self._noted, self._moved = gates, True
            if self._gathering is None:
                self._gathering = asyncio.get_running_loop().call_later(_LEAST_WAIT_S, self._news.set)

    # --- looking ------------------------------------------------------------------------------------------------------

    async def _look_always(self) -> None:
        loop = asyncio.get_running_loop()
        failures = 0
        while True:
            began = loop.time()
            try:
                await self._look()
            except KafkaFailure as failure:
                failures += 1
                self._trouble.say(f"cannot look for new partitions: {failure}")
            else:
                failures = 0
                self._trouble.say("")
            delay = max(self._wished().interval_s, self._least_s, backoff_s(failures) if failures else 0.0)
            await asyncio.sleep(max(0.0, began + delay - loop.time()))

    async def _look(self) -> None:
        wished = self._wished()
        if wished.names != self._asked:
            # What was not asked for before has not just been made because it is seen now.
            self._asked, self._looked_s = wished.names, None
        began = self._parts.clock.monotonic()
        try:
            told = await asyncio.get_running_loop().run_in_executor(self._poller, self._looking.poll, wished.names)
        except KafkaFailure:
            self._parts.metrics.polled(self._name, self._parts.clock.monotonic() - began, failed=True)
            raise
        self._parts.metrics.polled(self._name, self._parts.clock.monotonic() - began, failed=False)
        look = Look(self._parts.clock.monotonic(), self.sizes, self._looked_s)
        if told is not None:
            self.sightings.note(self.sizes, told, look.at_s)
            self.topics, self.sizes = told, grown(self.sizes, told)
            self._ages.forget_others(self.sizes)
            self._least_s = least_interval_s(told.values())
        self._looked_s = began
        for key, guard in tuple(self.guards.items()):
            # A wish that came meanwhile was not asked for: the next look is the first that tells of its topics.
            is_asked = wished.each.get(key) is guard.wish
            if is_asked and (guard.looked_at is not self.topics or guard.unsettled):
                self._look_for(guard, look)

    def _wished(self) -> Wishes:
        """Kept until a guard changes: looks are frequent."""
        if self._wishes is None:
            self._wishes = Wishes.of({key: guard.wish for key, guard in self.guards.items()})
        return self._wishes

    def _look_for(self, guard: Guard, look: Look) -> None:
        found = discover(guard.state, guard.wish.topics(self.topics, guard.read), guard.existed)
        guard.looked_at, guard.unsettled = self.topics, bool(found.new)
        if found.state != guard.state:
            guard.see(found.state)
            self._stirred(guard)
        new = [p for p in found.new if p not in guard.busy]
        if not new or look.at_s < guard.again_at_s:
            return
        fresh = [p for p in new if p not in guard.announced]
        if fresh:
            self._announce(guard, fresh, look)
        just_made = {p: look.shows_first(p, self.topics) for p in fresh if look.shows_the_making_of(p, self.topics)}
        guard.busy |= {p: self.topics[p.topic].topic_id for p in new}
        self._tasks.spawn_lasting(self._take_care(guard, new, just_made))

    def _announce(self, guard: Guard, new: Collection[TopicPartition], look: Look) -> None:
        rows = {}
        for partition in new:
            # When it was made, by the broker's clock; ``None`` while that is not known.
            just_made = look.shows_the_making_of(partition, self.topics)
            key, bounds = self._key(partition), self._ages.bounds(look, just_made=just_made)
            at = self._parts.clock.now()
            is_to_be_told = guard.wish.tells_agents and key not in self._ages.written
            if is_to_be_told:
                guard.untold.add(partition)
            if bounds is not None and bounds.seen_ms is not None:
                at = datetime.fromtimestamp(bounds.seen_ms / 1000, UTC)
                seen = self._ages.seen.setdefault(key, bounds) if key not in self._ages.written else None
                if is_to_be_told:
                    self._unwritten[key] = seen
                    self._news.set()
            elif is_to_be_told:
                self._ages.date_later(key, look, just_made=just_made)
            rows[partition] = NewPartition(topic=partition.topic, partition=partition.partition, seen_at=at)
        guard.found(new, rows, [p for p in new if self._is_too_old(guard, p)])

    def _is_too_old(self, guard: Guard, partition: TopicPartition) -> bool:
        """Whether the partition is older than ``latest.maxAge`` for sure, by the broker's clock: as agents judge it."""
        max_age = guard.wish.max_age
        least_ms = self._ages.least_ms(self._key(partition), self._parts.clock.monotonic())
        return max_age is not None and least_ms is not None and timedelta(milliseconds=least_ms) > max_age

    # --- giving starts ------------------------------------------------------------------------------------------------

    async def _take_care(
        self, guard: Guard, new: Collection[TopicPartition], just_made: Mapping[TopicPartition, bool]
    ) -> None:
        """``just_made``: and whether no partition of its topic was seen before."""
        try:
            if guard.wish.discovery.new_partitions is NewPartitions.EARLIEST:
                await self._give_starts(guard, [p for p in new if p not in guard.too_old], just_made)
                self._leave(guard, guard.too_old.intersection(new))
            else:
                self._settle(guard, new)
        except FrozenMeanwhile as frozen:
            _log.debug("%s: starts of new partitions for group %s: %s", self._name, guard.wish.group, frozen)
        except (KafkaFailure, StaleAttempt) as failure:
            if guard.failed(self._name, [p for p in new if not self._is_settled(guard, p)], failure):
                self._stirred(guard)
        finally:
            for partition in new:
                guard.busy.pop(partition, None)
            if all(self._is_settled(guard, p) for p in new):
                guard.failures = 0
            else:
                guard.failures += 1
                guard.again_at_s = self._parts.clock.monotonic() + backoff_s(guard.failures)
        self._count_late(guard, guard.to_be_sent_back(new))

    def _count_late(self, guard: Guard, partitions: Collection[TopicPartition]) -> None:
        """Those that are to be sent back, once, and only when they were, or could not be yet: should this process die
        meanwhile, the next one finds and counts them."""
        for _ in guard.newly_late(partitions):
            self._parts.metrics.new_partition(Outcome.OVERTAKEN.value)

    async def _give_starts(
        self, guard: Guard, new: Collection[TopicPartition], just_made: Mapping[TopicPartition, bool]
    ) -> None:
        parts, kafka, wish, audit = self._parts, self.live.kafka, guard.wish, self.live.audit
        unknown = [p for p in new if p not in guard.overtaken]
        if unknown and not parts.is_frozen(self.live):
            give = functools.partial(
                give_starts,
                kafka,
                parts.clock,
                wish.group,
                unknown,
                just_made=[p for p in just_made if p in unknown],
                perhaps_hidden=[p for p, is_first in just_made.items() if is_first and p in unknown],
                agents_decide=wish.tells_agents,
                attribution=attribution_of(guard.policy, audit, Action.START),
            )
            starts = await in_thread(parts.executor, begin, parts.is_frozen, self.live, give)
            settled = guard.stood(starts)
            for partition in settled:
                parts.metrics.new_partition(starts[partition].outcome.value)
            self._settle(guard, settled)
        async with guard.turn:
            await self._send_back(guard, guard.to_be_sent_back(new))

    async def _send_back(self, guard: Guard, late: tuple[TopicPartition, ...]) -> None:
        parts, live, wish = self._parts, self.live, guard.wish
        if late and self._is_guarded(guard) and not guard.resetting and not parts.is_frozen(live):
            asker = guard.asker(live)
            send_back = functools.partial(
                parts.backfills.carry_out, live.kafka, parts.clock, live.connection, asker, wish.group, late
            )
            result = await in_thread(parts.backfills.executor, begin, parts.is_frozen, live, send_back)
            if result.phase is ResetPhase.SUCCEEDED:
                self._count_late(guard, late)
                guard.sent_back(late)
                for _ in late:
                    parts.metrics.new_partition("Backfilled")
                self._settle(guard, late)
            else:
                guard.not_sent_back(late, result.message)
                self._stirred(guard)

    def _leave(self, guard: Guard, too_old: Collection[TopicPartition]) -> None:
        """To the consumers' own setting."""
        for _ in too_old:
            self._parts.metrics.new_partition("TooOld")
        if too_old:
            self._settle(guard, too_old)

    def _settle(self, guard: Guard, partitions: Collection[TopicPartition]) -> None:
        guard.settle(partitions)
        self._stirred(guard)

    def _stirred(self, guard: Guard) -> None:
        """The policy's next pass has something to say of the group."""
        guard.has_news = self._moved = True
        self._parts.wake(guard.uid)

    def _is_guarded(self, guard: Guard) -> bool:
        """Whether its policy still asks for it, through this watch."""
        return not self._closed and any(each is guard for each in self.guards.values())

    def _is_settled(self, guard: Guard, partition: TopicPartition) -> bool:
        known = guard.state.topics.get(partition.topic)
        return known is not None and known.is_settled(partition.partition)

    # --- telling agents -----------------------------------------------------------------------------------------------

    async def _tell_always(self) -> None:
        loop = asyncio.get_running_loop()
        clock_due, failures = loop.time(), 0
        while True:
            self._news.clear()
            try:
                if self._usable and any(guard.wish.tells_agents for guard in self.guards.values()):
                    if loop.time() >= clock_due:
                        await self._tell_time()
                        clock_due = loop.time() + CLOCK_S
                    await self._write()
            except KafkaFailure as failure:
                failures += 1
                _log.warning("%s: cannot tell agents about partitions: %s", self._name, failure)
                await asyncio.sleep(backoff_s(failures))
            else:
                failures = 0
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout_at(max(clock_due, loop.time() + _LEAST_WAIT_S)):
                        await self._news.wait()

    async def _take_back_always(self) -> None:
        """What the control topic says of topics that are gone."""
        while True:
            await asyncio.sleep(gone.LOOK_S)
            if self._usable:
                self._unwritten |= dict.fromkeys(await self._gone.look(self._ages.written, self.topics))

    async def _tell_time(self) -> None:
        clock = self._parts.clock
        sent_s = clock.monotonic()
        at_ms = await in_thread(self._parts.executor, self.live.kafka.control.write_clock)
        self._ages.time = BrokerTime(at_ms, sent_s, clock.monotonic())
        self._unwritten |= self._ages.date()

    async def _write(self) -> None:
        if self._noted is not None and self._moved:
            self._moved, self._gathering = False, None
            self._unwritten |= self._ages.unwritten(self.guards.values(), self.topics, self.sizes)
        # A topic's highest partition first: agents take those above what they have read for newer than all of it.
        keys = sorted(self._unwritten, key=lambda k: (k.topic, k.topic_id, -k.partition))
        records = {key: self._unwritten[key] for key in keys}
        if records:
            await in_thread(self._parts.executor, self.live.kafka.control.write_partitions, records)
            self._unwritten = {key: value for key, value in self._unwritten.items() if records.get(key) != value}

    def _key(self, partition: TopicPartition) -> PartitionKey:
        return PartitionKey(partition.topic, self.topics[partition.topic].topic_id, partition.partition)
