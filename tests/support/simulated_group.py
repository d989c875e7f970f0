"""A consumer group as Kafka runs one, simulated from a seed, and its history: correct by construction. Pure.

At-least-once and nothing worse: owners read on from where the group is committed, commit now and then, hand over,
crash, sleep, do not notice at once that they are out; resets move the group to their targets, or put it back.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from support.deliveries import Partition
from support.history import (
    Begin,
    Commit,
    CommitRow,
    Committed,
    End,
    History,
    Hold,
    Operation,
    Outcome,
    Ownership,
    Phase,
    Place,
    Poll,
    Process,
    Record,
    ResetBegin,
    ResetEnd,
    Send,
    in_order,
)

UNAWARE_S = 3.0
TOPIC = "orders"


@dataclass
class _Log:
    """`offsets`: of the records; between them are places that hold none, as transactions leave them."""

    offsets: list[int] = field(default_factory=list)
    end: int = 0


class SimulatedGroup:
    """`random` decides everything. Whatever is called, and in what order, `history` is one that keeps all rules."""

    def __init__(self, random: Random, *, partitions: int = 2, members: int = 3) -> None:
        self.random = random
        self.partitions: list[Partition] = [(TOPIC, number) for number in range(partitions)]
        self.committed = dict.fromkeys(self.partitions, 0)
        self.told = dict.fromkeys(self.partitions, 0)
        """The newest commits that the history tells of."""
        self._members = [f"m{number}" for number in range(members)]
        self._crashed = 0
        self._logs = {partition: _Log() for partition in self.partitions}
        self._owner: dict[Partition, str] = {}
        self._position: dict[tuple[str, Partition], int] = {}
        self._paused: set[Partition] = set()
        self._runs = 0
        self._t = 1.0
        starts = tuple(Place(*partition, 0) for partition in self.partitions)
        self._operations: list[Operation] = [Begin(0.0, "g", 0.001, UNAWARE_S, starts)]
        for partition in self.partitions:
            self.produce(partition)
            self._assign(partition, random.choice(self._members))

    # --- what can happen ----------------------------------------------------------------------------------------------

    def live(self, steps: int, *, resets: bool = True) -> None:
        """Let `steps` things happen."""
        for _ in range(steps):
            what = self.random.choices(
                ["produce", "poll", "commit", "hand over", "crash", "unaware", "sleep", "look", "pause", "reset"],
                [3, 6, 3, 1, 0.5, 0.5, 0.5, 1, 0.7, 1 if resets else 0],
            )[0]
            partition = self.random.choice(self.partitions)
            match what:
                case "produce":
                    self.produce(partition)
                case "poll":
                    self.poll(partition)
                case "commit":
                    self.commit(partition, is_told=self.random.random() < 0.7)
                case "hand over":
                    self.hand_over(partition)
                case "crash":
                    self.crash(self._owner[partition])
                case "unaware":
                    self.take_away_unnoticed(partition, asleep=False)
                case "sleep":
                    self.take_away_unnoticed(partition, asleep=True)
                case "look":
                    self.look()
                case "pause":
                    self.pause(partition)
                case "reset":
                    self.reset()

    def produce(self, partition: Partition) -> None:
        log = self._logs[partition]
        for _ in range(self.random.randint(1, 6)):
            log.end += self.random.random() < 0.1
            self._tell(Send(self._t, *partition, Outcome.ACKED, log.end, f"v{log.end}"))
            log.offsets.append(log.end)
            log.end += 1

    def poll(self, partition: Partition, most: int = 5) -> None:
        """The owner is given some records, if there are any."""
        if partition not in self._paused:
            self._poll(self._owner[partition], partition, most)

    def commit(self, partition: Partition, *, is_told: bool = True) -> None:
        """The owner commits what it was given; the history may not tell, as a crash is faster."""
        owner = self._owner[partition]
        self.committed[partition] = self._position[owner, partition]
        if is_told:
            self.told[partition] = self.committed[partition]
            rows = (CommitRow(*partition, self.committed[partition]),)
            self._tell(Commit(self._later(), owner, rows))

    def hand_over(self, partition: Partition) -> None:
        """A rebalance gives the partition to somebody, with or without a last commit."""
        if self.random.random() < 0.6:
            self.commit(partition, is_told=self.random.random() < 0.5)
        self._tell(Ownership(self._later(), self._owner[partition], (partition,), "revoke"))
        self._assign(partition, self.random.choice(self._members))

    def crash(self, member: str) -> None:
        """It is gone, another has come, and its partitions are given to who is there."""
        self._tell(Process(self._later(), f"p-{member}", (member,), "kill"))
        self._crashed += 1
        self._members[self._members.index(member)] = newcomer = f"n{self._crashed}"
        self._tell(Process(self._later(), f"p-{newcomer}", (newcomer,), "start"))
        for partition, owner in self._owner.items():
            if owner == member:
                self._assign(partition, self.random.choice(self._members))

    def take_away_unnoticed(self, partition: Partition, *, asleep: bool) -> None:
        """Another becomes the owner, and the one before goes on for a while: it does not know, or was asleep."""
        before = self._owner[partition]
        others = [member for member in self._members if member != before]
        if partition in self._paused:
            return
        if asleep:
            self._tell(Process(self._later(), None, (before,), "freeze"))
        self._assign(partition, self.random.choice(others))
        if asleep:
            self._t += self.random.choice([0.0, 20.0])
            self.poll(partition)
            self._tell(Process(self._later(), None, (before,), "thaw"))
        until = self._t + UNAWARE_S - 1.0
        while self._t < until and self.random.random() < 0.7:
            self.poll(partition)
            self._poll(before, partition, 3)
            rows = (CommitRow(*partition, self._position[before, partition], "UNKNOWN_MEMBER_ID"),)
            self._tell(Commit(self._later(), before, rows))
        self._tell(Ownership(self._later(), before, (partition,), "lost"))

    def look(self) -> None:
        """Somebody looks at the committed offsets."""
        places = tuple(Place(*partition, offset) for partition, offset in self.committed.items())
        self._tell(Committed(self._later(), 0.005, places))

    def pause(self, partition: Partition) -> None:
        """The partition stands still, other things happen, and its owner goes on from what is committed."""
        self._paused.add(partition)
        self._tell(Hold(self._later(), (partition,), "pause"))
        for other in self.partitions:
            self.produce(other)
            self.poll(other)
        if self.random.random() < 0.5:
            self.hand_over(partition)
        self._paused.discard(partition)
        self._tell(Hold(self._later(), (partition,), "resume"))
        self._position[self._owner[partition], partition] = self.committed[partition]

    def reset(self, *, target: int | None = None, phase: Phase | None = None, all_of_them: bool = False) -> None:
        """A reset of some partitions: it succeeds, or is put back, or is overtaken by the next.

        `target`: of all of them, drawn if not given.
        """
        random = self.random
        count = len(self.partitions) if all_of_them else random.randint(1, len(self.partitions))
        chosen = random.sample(self.partitions, count)
        targets = {p: random.randint(0, self._logs[p].end) if target is None else target for p in chosen}
        phase = phase or random.choices([*Phase], [3, 1, 1])[0]
        self._runs += 1
        run = f"r{self._runs}"
        self._tell(ResetBegin(self._later(), run, tuple(Place(*p, o) for p, o in targets.items())))
        for partition in self.partitions:
            self.poll(partition)
        before = dict(self.committed)
        unaware: tuple[str, Partition] | None = None
        if phase is Phase.SUCCEEDED or random.random() < 0.5:
            for partition, offset in targets.items():
                self._move(partition, offset)
                if random.random() < 0.3:
                    self.poll(partition)
                    self.commit(partition)
            again = random.choice(chosen)
            if random.random() < 0.3:
                # An owner's old position wins once more, and the partition is done again.
                self._move(again, before[again], may_seek=False)
                self._move(again, targets[again], may_seek=False)
            elif phase is Phase.SUCCEEDED and random.random() < 0.5:
                self._move(again, before[again], may_seek=False)
                unaware = self._move_unnoticed(again, targets[again])
        if phase is not Phase.SUCCEEDED:
            for partition in chosen:
                self._move(partition, before[partition])
        self._tell(ResetEnd(self._later(), run, phase))
        if unaware is not None:
            self._poll(*unaware, 3)
            self._tell(Ownership(self._later(), unaware[0], (unaware[1],), "lost"))

    def _move_unnoticed(self, partition: Partition, offset: int) -> tuple[str, Partition]:
        """Another becomes the owner at `offset`; the one before does not know. Returns that one."""
        before = self._owner[partition]
        self.committed[partition] = self.told[partition] = offset
        self._assign(partition, self.random.choice([member for member in self._members if member != before]))
        return before, partition

    def _move(self, partition: Partition, offset: int, *, may_seek: bool = True) -> None:
        """The committed offset is moved, and the owner made to go there: by a seek, or by a new ownership."""
        self.committed[partition] = self.told[partition] = offset
        if may_seek and self.random.random() < 0.3:
            self._position[self._owner[partition], partition] = offset
        else:
            if self.random.random() < 0.5:
                self.poll(partition)  # the one that is on its way out
            self._tell(Ownership(self._later(), self._owner[partition], (partition,), "lost"))
            self._assign(partition, self.random.choice(self._members))
        if self.random.random() < 0.7:
            self.poll(partition)

    # --- in the end ---------------------------------------------------------------------------------------------------

    def history(self) -> History:
        """Everything is read to the end, some seconds later."""
        self._t += 2 * UNAWARE_S
        for partition in self.partitions:
            self.poll(partition, 10**6)
        ends = tuple(Place(*partition, self._logs[partition].end) for partition in self.partitions)
        return in_order([*self._operations, End(self._later(), ends, drained=True)])

    def _assign(self, partition: Partition, member: str) -> None:
        self._owner[partition] = member
        self._position[member, partition] = self.committed[partition]
        self._tell(Ownership(self._later(), member, (partition,), "assign"))

    def _poll(self, member: str, partition: Partition, most: int) -> None:
        position = self._position[member, partition]
        offsets = [offset for offset in self._logs[partition].offsets if offset >= position]
        given = offsets[: self.random.randint(1, most) if most < 10**6 else most]
        if given:
            self._position[member, partition] = given[-1] + 1
            records = tuple(Record(*partition, offset, f"v{offset}") for offset in given)
            self._tell(Poll(self._later(), member, records))

    def _later(self) -> float:
        self._t += self.random.uniform(0.01, 0.1)
        return self._t

    def _tell(self, operation: Operation) -> None:
        self._operations.append(operation)
