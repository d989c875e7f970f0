"""Judges a trial's history by the rules of Jepsen's Kafka workload, tightened for resets. Pure: a history in, findings
out. It knows nothing of Tidegate.

The rules' names are those of ``jepsen.tests.kafka`` where there is one; ``HISTORY.md`` says what each means here.

How it follows a partition. A *session* is one uninterrupted ownership of the partition by a member. A *lineage* is
what the group's committed offset can be without anybody's interference: it begins at a place (the group's start, or a
reset's target), and leads on as far as its sessions have read. A session may begin anywhere between the lineage's last
commit and the furthest record that was read in it: that is at-least-once. A reset starts a lineage of its own at its
target. While it runs, both are alive, since no client sees when the offset changed. When it ends, one of them is dead:
the old one after ``Succeeded``, the reset's after ``RolledBack`` or ``Failed``. Whoever goes on in a dead one belies
what the reset said of itself.
"""

from __future__ import annotations

import sys
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Final, assert_never

from support.deliveries import Partition
from support.history import (
    Begin,
    Commit,
    Committed,
    End,
    History,
    Hold,
    Ownership,
    Phase,
    Poll,
    Process,
    ResetBegin,
    ResetEnd,
    Send,
    Transaction,
    Untold,
    read,
)


class Rule(StrEnum):
    """What is wrong."""

    LOST_WRITE = "lost-write"
    UNSEEN = "unseen"
    POLL_SKIP = "poll-skip"
    NONMONOTONIC_POLL = "nonmonotonic-poll"
    DUPLICATE = "duplicate"
    INCONSISTENT_OFFSETS = "inconsistent-offsets"
    UNTRUE_SUCCESS = "untrue-success"
    UNTRUE_FAILURE = "untrue-failure"
    MOVED_COMMIT = "moved-commit"
    COMMIT_WITHOUT_OWNERSHIP = "commit-without-ownership"
    DELIVERED_WHILE_PAUSED = "delivered-while-paused"


_SHOWN: Final = 5


@dataclass(frozen=True, slots=True)
class Finding:
    """One breach of a rule. `lines`: of the operations that show it, in their order."""

    rule: Rule
    partition: Partition | None
    offsets: tuple[int, ...]
    member: str | None
    lines: tuple[int, ...]
    why: str

    def __str__(self) -> str:
        where = f" {self.partition[0]}-{self.partition[1]}" if self.partition else ""
        who = f" {self.member}" if self.member is not None else ""
        offsets = f" at {_few(self.offsets)}" if self.offsets else ""
        return f"{self.rule}:{where}{who}{offsets}: {self.why} (lines {_few(self.lines)})"


@dataclass(frozen=True, slots=True)
class Judgement:
    """What a history comes to.

    `reread`: records that were given again for a reason that at-least-once allows, by partition; `stale`: records of a
    position that a reset had ended, given to a member that could not know yet. Neither is an error. `begun`: for each
    run, the partitions in which a member was seen to go on at its target.
    """

    findings: tuple[Finding, ...]
    reread: Mapping[Partition, int]
    stale: Mapping[Partition, int]
    begun: Mapping[str, frozenset[Partition]]

    @property
    def ok(self) -> bool:
        return not self.findings

    @property
    def rules(self) -> frozenset[Rule]:
        return frozenset(finding.rule for finding in self.findings)


def judge(history: History) -> Judgement:
    """Judge a whole history."""
    return _Court(history).judgement()


class _Log:
    """The offsets known to hold records; the ones between them (transaction markers, for one) hold none."""

    def __init__(self, offsets: Iterable[int]) -> None:
        self._offsets = sorted(offsets)

    def first_at(self, offset: int) -> float:
        """The first record at or after an offset; infinity where there is none."""
        i = bisect_left(self._offsets, offset)
        return self._offsets[i] if i < len(self._offsets) else float("inf")

    def between(self, begin: int, end: int) -> list[int]:
        return self._offsets[bisect_left(self._offsets, begin) : bisect_left(self._offsets, end)]


@dataclass(slots=True, eq=False)
class _Run:
    """One reset. `line`, `t`: of its begin; `end_line`, `end_t`: of its end."""

    name: str
    line: int
    t: float
    phase: Phase | None = None
    end_line: int = 0
    end_t: float = 0.0


@dataclass(slots=True, eq=False)
class _Lineage:
    """`floor`: where it began; `reach`: the furthest position in it; `left_at`: how far the group was when its run was
    asked for; `begun`: the line on which a member was seen to go on at its start, 0 before."""

    floor: int
    reach: int
    run: _Run | None = None
    left_at: int = 0
    alive: bool = True
    ended_by: _Run | None = None
    begun: int = 0
    commits: list[tuple[float, int]] = field(default_factory=list)

    def committed_until(self, t: float) -> float | None:
        """When the last commit up to then was told."""
        i = bisect_right(self.commits, t, key=lambda commit: commit[0])
        return self.commits[i - 1][0] if i else None

    def floor_at(self, since: float, until: float) -> int:
        """The lowest offset that somebody can have fetched between the two times."""
        known = [self.floor]
        later = []
        for t, offset in self.commits:
            if t <= since:
                known = [offset]
            elif t <= until:
                later.append(offset)
        return min([*known, *later, self.reach])


@dataclass(slots=True, eq=False)
class _Session:
    """One ownership. `since`: when it began, the clock's beginning where nobody told; `line`: of its latest record."""

    member: str
    since: float = 0.0
    owned: bool = True
    position: int | None = None
    line: int = 0
    t: float = 0.0
    lineages: list[_Lineage] = field(default_factory=list)
    given: dict[int, int] = field(default_factory=dict)


@dataclass(slots=True)
class _Knowledge:
    """Until when a member may be unaware of what happened; `thawed`: when each was last seen to stand still.

    `tells_assignments`: otherwise a member that does not go on where it was may have been given the partition anew.
    """

    unaware_s: float
    precision_s: float
    tells_assignments: bool = True
    thawed: dict[str, float] = field(default_factory=dict)

    def may_be_unaware(self, member: str, t: float, since: float) -> bool:
        """Whether at `t` a member may not have noticed yet what happened at `since`."""
        asleep_until = self.thawed.get(member, 0.0)
        return t <= max(since, asleep_until) + self.unaware_s + self.precision_s


@dataclass(slots=True)
class _Hold:
    """A time in which an owner may be made to seek: `by` a run, or by a pause (``None``)."""

    by: _Run | None
    since: float
    until: float = float("inf")


@dataclass(slots=True)
class _Sent:
    """An offset in somebody's transaction, which a broker may make the committed one at any time between these two."""

    offset: int
    since: float
    until: float = float("inf")


class _Walk:
    """Follows one partition through the history."""

    def __init__(
        self,
        partition: Partition,
        log: _Log,
        delivered: frozenset[int],
        start: int | None,
        log_end: int | None,
        knowledge: _Knowledge,
    ) -> None:
        self.partition = partition
        self.log = log
        self.delivered = delivered
        self.knowledge = knowledge
        self.start = start
        self.log_end = log_end
        self.current = _Lineage(start or 0, start or 0)
        self.is_placed = start is not None
        self.lineages = [self.current]
        self.runs: list[_Run] = []
        self.sessions: dict[str, _Session] = {}
        self.last: _Session | None = None
        self.holds: list[_Hold] = []
        self.sent: dict[str, list[_Sent]] = defaultdict(list)
        self.paused: int | None = None
        self.left_out: list[tuple[int, int]] = []
        self.skipped: dict[int, tuple[int, ...]] = {}
        self.stepped_over: set[int] = set()
        self.reread = 0
        self.stale = 0
        self.findings: dict[tuple[Rule, object], Finding] = {}

    # --- what happens -------------------------------------------------------------------------------------------------

    def assigned(self, member: str, t: float) -> None:
        self.sessions[member] = _Session(member, t)

    def given_up(self, member: str) -> None:
        if member in self.sessions:
            self.sessions[member].owned = False

    def pause(self, line: int, t: float) -> None:
        self.paused = line
        self.holds.append(_Hold(None, t))

    def resume(self, t: float) -> None:
        self.paused = None
        self._release(None, t)

    def requested(self, run: _Run) -> None:
        self.runs.append(run)
        self.holds.append(_Hold(run, run.t))

    def _release(self, by: _Run | None, t: float) -> None:
        for hold in self.holds:
            if hold.by is by:
                hold.until = min(hold.until, t)

    def reset_begins(self, run: _Run, target: int) -> None:
        self.lineages.append(_Lineage(target, target, run, left_at=self.current.reach))

    def reset_ends(self, run: _Run) -> None:
        """`run` has got its phase; also of a run that only requested this partition."""
        self._release(run, run.end_t)
        mine = next((x for x in self.lineages if x.run is run), None)
        if mine is None or not mine.alive:
            return
        if run.phase is not Phase.SUCCEEDED:
            self._bury(mine, run)
            return
        self._leave_out(mine)
        for older in self.lineages[: self.lineages.index(mine)]:
            if older.alive:
                self._bury(older, run)
        self.current = mine
        self.is_placed = True

    def _leave_out(self, lineage: _Lineage) -> None:
        """A reset goes over what lies before its target, and an earlier one's leaving out counts up to there only."""
        self.left_out = [(begin, min(end, lineage.floor)) for begin, end in self.left_out]
        self.left_out.append((lineage.left_at, lineage.floor))

    def _bury(self, lineage: _Lineage, run: _Run) -> None:
        lineage.alive, lineage.ended_by = False, run

    def commits(self, member: str | None, offset: int, t: float) -> None:
        """A commit that the broker took."""
        session = self.sessions.get(member) if member is not None else None
        if session is not None and session.lineages:
            lineages = [x for x in session.lineages if x.alive]
        else:  # it was given nothing yet, and commits where it began; or somebody from outside
            lineages = [x for x in self._alive() if member is None or self._admits(x, offset, 0.0, t)]
        for lineage in lineages:
            lineage.commits.append((t, offset))

    def sends_offset(self, member: str, offset: int, t: float) -> None:
        """To a transaction, as nobody's: it may come after the commit of whoever owns the partition by then."""
        self.sent[member].append(_Sent(offset, t))

    def ends_transaction(self, member: str, t: float) -> None:
        """Its offsets may show a little later."""
        for sent in self.sent[member]:
            sent.until = min(sent.until, t + self.knowledge.unaware_s + self.knowledge.precision_s)

    def seen_committed(self, offset: int, line: int, t: float, took_s: float) -> None:
        """Somebody saw the committed offset. While a reset runs it proves nothing."""
        if not self.is_placed or self._alive() != [self.current]:
            return
        slack = self.knowledge.precision_s
        is_in_log = self.log_end is None or offset <= self.log_end
        if is_in_log and self._admits(self.current, offset, t - took_s - slack, t):
            self.current.commits.append((t, offset))
            return
        places = f"between {self._floor(self.current, t - took_s - slack, t)} and {self.current.reach}"
        ended = self._ended_by(offset, t - took_s - slack, t) if is_in_log else None
        if ended is None:
            self._find(Rule.MOVED_COMMIT, (offset,), None, (line,), f"nobody put the committed offset there; {places}")
        else:
            self._belied(ended, (offset,), None, (line,), f"the committed offset is not {places}")

    def deliver(self, member: str, offset: int, line: int, t: float) -> None:
        if self.paused is not None:
            why = "it is paused"
            self._find(Rule.DELIVERED_WHILE_PAUSED, (offset,), member, (self.paused, line), why, key=self.paused)
        session = self.sessions.get(member)
        if session is None or (not session.owned and session.position != offset):
            # Nobody told when it became the owner; while another still read, or a little before.
            since = self.last.t - self.knowledge.unaware_s - self.knowledge.precision_s if self.last else 0.0
            session = self.sessions[member] = _Session(member, since)
        elif (
            not self.knowledge.tells_assignments
            and session.position is not None
            and not self._leads_on(session.position, offset)
        ):
            session = self.sessions[member] = _Session(member, session.t - self.knowledge.precision_s)
        if not self.is_placed:
            self.current.floor = self.current.reach = offset
            self.start, self.is_placed = offset, True
        if session.position is None:
            self._starts(session, offset, line, t)
        elif not self._leads_on(session.position, offset):
            self._breaks(session, session.position, offset, line, t)
        self._reads(session, offset, line, t)

    # --- positions ----------------------------------------------------------------------------------------------------

    def _alive(self) -> list[_Lineage]:
        return [x for x in self.lineages if x.alive]

    def _leads_on(self, position: int, offset: int) -> bool:
        return offset >= position and self.log.first_at(position) == offset

    def _floor(self, lineage: _Lineage, since: float, until: float) -> int:
        """Where the lineage's last commit is. What owners commit during a run is no bound: it may do its target once
        more, or put back what was committed when it began."""
        for run in reversed(self.runs):
            last = lineage.committed_until(since)
            if last is not None and run.t <= last <= (run.end_t or last):
                since = run.t
        known_at = lineage.committed_until(since) or 0.0
        late = [
            sent.offset
            for of_member in self.sent.values()
            for sent in of_member
            if sent.since <= until and known_at <= sent.until and sent.offset >= lineage.floor
        ]
        return min([lineage.floor_at(since, until), *late])

    def _admits(self, lineage: _Lineage, offset: int, since: float, until: float) -> bool:
        """Whether one who fetched the committed offset between the two times can begin with the record at `offset`."""
        floor = self._floor(lineage, since, until)
        reach = max(lineage.reach, floor)
        return self.log.first_at(floor) <= self.log.first_at(offset) <= self.log.first_at(reach) and offset >= floor

    def _awaits(self, lineage: _Lineage, offset: int) -> bool:
        """Whether a reset may still send somebody to its target, and this is the record there."""
        is_open = lineage.run is not None and (lineage.run.phase is None or not lineage.begun)
        return is_open and offset == self.log.first_at(lineage.floor)

    def _starts(self, session: _Session, offset: int, line: int, t: float) -> None:
        alive = self._alive()
        found = [x for x in alive if self._admits(x, offset, session.since, t) or self._awaits(x, offset)]
        if found:
            session.lineages = found
            return
        unaware = self._unaware(session, offset, t)
        if unaware is not None:
            session.lineages = [unaware]
            return
        floor = self._floor(self.current, session.since, t)
        known = f"the group was between {floor} and {self.current.reach}{self._targets()}"
        ended = self._ended_by(offset, session.since, t)
        if ended is not None:
            self._belied(ended, (offset,), session.member, (line,), f"it began there; {known}")
        elif offset < floor:
            lines = (self.last.line, line) if self.last else (line,)
            self._find(Rule.NONMONOTONIC_POLL, (offset,), session.member, lines, f"it began there; {known}", key=line)
        else:
            self._skips(session, self.current.reach, offset, line, f"it began there; {known}")
        session.lineages = [self.current]

    def _unaware(self, session: _Session, offset: int, t: float) -> _Lineage | None:
        """What a reset has ended since this owner learned where to begin, and it cannot know that yet."""
        for lineage in reversed(self.lineages):
            run = lineage.ended_by
            if (
                run is not None
                and session.since <= run.end_t
                and self.knowledge.may_be_unaware(session.member, t, run.end_t)
                and self._admits(lineage, offset, session.since, t)
            ):
                return lineage
        return None

    def _breaks(self, session: _Session, position: int, offset: int, line: int, t: float) -> None:
        """One and the same owner does not go on where it was."""
        held_since = min((hold.since for hold in self.holds if hold.until >= session.t), default=None)
        found = [x for x in self._alive() if self._awaits(x, offset)]
        if held_since is not None:
            found += [x for x in self._alive() if x not in found and self._admits(x, offset, held_since, t)]
        if found:
            session.lineages = found
            session.given = {}
            return
        why = f"it was to go on at {position}{self._targets()}"
        ended = self._ended_by(offset, held_since, t) if held_since is not None else None
        if ended is not None:
            self._belied(ended, (offset,), session.member, (session.line, line), why)
            return
        lines = (session.line, line)
        if offset in session.given:
            lines = (session.given[offset], line)
            self._find(Rule.DUPLICATE, (offset,), session.member, lines, f"it had it already; {why}", key=line)
        elif offset < position:
            self._find(Rule.NONMONOTONIC_POLL, (offset,), session.member, lines, why, key=line)
        else:
            self._skips(session, position, offset, line, why)

    def _reads(self, session: _Session, offset: int, line: int, t: float) -> None:
        for lineage in self._alive():
            # At the target, to which it was sent, or where it came by itself from before: nobody can tell that apart.
            is_at_target = self._awaits(lineage, offset) and self._may_come(session, lineage, offset)
            if is_at_target:
                lineage.begun = lineage.begun or line
            # And where it could as well have begun, it does not matter where it did.
            if lineage not in session.lineages and (is_at_target or self._admits(lineage, offset, t, t)):
                session.lineages.append(lineage)
        alive = [x for x in session.lineages if x.alive]
        if session.lineages and not alive:
            self._goes_on_dead(session, offset, line, t)
        session.lineages = alive or session.lineages
        self.reread += any(offset < x.reach for x in alive)
        for lineage in alive:
            lineage.reach = max(lineage.reach, offset + 1)
        session.given[offset] = line
        session.position, session.line, session.t = offset + 1, line, t
        self.last = session

    def _may_come(self, session: _Session, lineage: _Lineage, offset: int) -> bool:
        """Whether this owner can have come to the target. One that was put back behind it meanwhile was not sent."""
        assert lineage.run is not None
        was_before = session.since < lineage.run.t or self.log.first_at(lineage.left_at) <= offset
        return was_before or lineage in session.lineages

    def _goes_on_dead(self, session: _Session, offset: int, line: int, t: float) -> None:
        run = session.lineages[-1].ended_by
        assert run is not None
        if self.knowledge.may_be_unaware(session.member, t, run.end_t):
            self.stale += 1
        else:
            self._belied(run, (offset,), session.member, (line,), "it went on as if it had not ended so")

    def _targets(self) -> str:
        targets = [f"{x.floor} ({x.run.name})" for x in self._alive() if x.run is not None]
        return f"; targets: {', '.join(targets)}" if targets else "; it was not reset"

    # --- findings -----------------------------------------------------------------------------------------------------

    def _ended_by(self, offset: int, since: float, until: float) -> _Run | None:
        """The run that ended the newest of the lineages that would have allowed this place."""
        dead = [x.ended_by for x in self.lineages if not x.alive and self._admits(x, offset, since, until)]
        return dead[-1] if dead else None

    def _belied(
        self, run: _Run, offsets: tuple[int, ...], member: str | None, lines: tuple[int, ...], why: str
    ) -> None:
        rule = Rule.UNTRUE_SUCCESS if run.phase is Phase.SUCCEEDED else Rule.UNTRUE_FAILURE
        shown = (run.line, run.end_line, *lines)
        self._find(rule, offsets, member, shown, f"{run.name} ended as {run.phase}; {why}", key=run.name)

    def _skips(self, session: _Session, begin: int, end: int, line: int, why: str) -> None:
        left = self.log.between(begin, end)
        # Up to a target on the way they may be left out; for the rest no reset is the reason.
        targets = [x.floor for x in self._alive() if x.run is not None and x.floor <= end]
        self.stepped_over.update(self.log.between(max([begin, *targets]), end))
        lines = (session.line, line) if session.line else (line,)
        for offset in left:
            self.skipped.setdefault(offset, lines)
        known = tuple(offset for offset in left if offset in self.delivered)
        if known:
            self._find(Rule.POLL_SKIP, known, session.member, lines, why, key=line)

    def _find(
        self,
        rule: Rule,
        offsets: tuple[int, ...],
        member: str | None,
        lines: tuple[int, ...],
        why: str,
        *,
        key: object = None,
    ) -> None:
        """What shows the same breach again is added to it."""
        first = self.findings.get((rule, key))
        if first is not None:
            offsets, lines = (*first.offsets, *offsets), (*first.lines, *lines)
            member, why = first.member if first.member is not None else member, first.why
        self.findings[rule, key] = Finding(
            rule, self.partition, tuple(sorted({*offsets})), member, tuple(sorted({*lines})), why
        )

    def close(self, acked: Mapping[int, int], end_line: int | None, *, drained: bool) -> None:
        """`acked`: the acknowledged offsets and the lines of their sends."""
        nobody_began = drained and self._nobody_began()
        if nobody_began:
            assert self.current.run is not None
            why = f"nobody began at its target {self.current.floor}"
            shown = (end_line,) if end_line else ()
            self._belied(self.current.run, (self.current.floor,), None, shown, why)
        for unfinished in self._alive():
            if unfinished.begun and unfinished is not self.current:
                self._leave_out(unfinished)
        reached = self.current.reach
        if self.last is not None:
            reached = max([reached, *(x.reach for x in self.last.lineages if x.alive)])
        begin = self.start or 0
        furthest = max(reached, max(self.delivered, default=-1) + 1)
        lost = [
            offset
            for offset in sorted(acked)
            if begin <= offset < furthest
            and offset not in self.delivered
            and (offset in self.stepped_over or not any(low <= offset < high for low, high in self.left_out))
        ]
        if lost:
            lines = [line for offset in lost for line in (acked[offset], *self.skipped.get(offset, ()))]
            why = "acknowledged, never given to anybody, and no reset left them out"
            self._find(Rule.LOST_WRITE, tuple(lost), None, tuple(lines), why)
        unseen = [offset for offset in sorted(acked) if offset >= max(reached, begin) and offset not in lost]
        if drained and unseen and not nobody_began:
            lines = [acked[unseen[0]], *([self.last.line] if self.last else []), *([end_line] if end_line else [])]
            why = f"the group was to read to the end and stands at {reached}"
            self._find(Rule.UNSEEN, tuple(unseen), self.last.member if self.last else None, tuple(lines), why)

    def _nobody_began(self) -> bool:
        """Whether the last success is to be seen and is not; an earlier one may have been overtaken by the next."""
        last = self.current
        is_over = last.run is not None and self._alive() == [last]
        return is_over and not last.begun and self.log.first_at(last.floor) < float("inf")


class _Court:
    """Takes the operations in their order, and hands each to the partitions that it is of."""

    def __init__(self, history: History) -> None:
        begin = history.begin
        self._history = history
        self._untold = frozenset(begin.untold)
        tells_assignments = Untold.ASSIGNMENTS not in self._untold
        self._knowledge = _Knowledge(begin.unaware_s, begin.precision_s, tells_assignments)
        self._acked: dict[Partition, dict[int, int]] = defaultdict(dict)
        self._values: dict[Partition, dict[int, dict[str, int]]] = defaultdict(lambda: defaultdict(dict))
        self._sends: Counter[tuple[Partition, str]] = Counter()
        delivered: dict[Partition, set[int]] = defaultdict(set)
        named: set[Partition] = set()
        for line, operation in history.lines():
            if isinstance(operation, Send):
                if operation.value is not None:
                    self._sends[operation.of, operation.value] += 1
                if operation.offset is not None:
                    self._acked[operation.of].setdefault(operation.offset, line)
                    self._value(operation.of, operation.offset, operation.value, line)
            elif isinstance(operation, Poll):
                for record in operation.records:
                    delivered[record.of].add(record.offset)
                    self._value(record.of, record.offset, record.value, line)
            elif isinstance(operation, ResetBegin):
                named |= {*(place.of for place in operation.targets), *operation.requested}
            elif isinstance(operation, (Ownership, Hold)):
                named |= {*operation.partitions}
            elif isinstance(operation, (Commit, Committed, Transaction)):
                named |= {place.of for place in operation.offsets}
        starts = {place.of: place.offset for place in begin.starts}
        ends = {place.of: place.offset for place in history.end.ends} if history.end is not None else {}
        self._walks = {
            p: _Walk(
                p,
                _Log({*self._acked[p], *delivered[p]}),
                frozenset(delivered[p]),
                starts.get(p),
                ends.get(p),
                self._knowledge,
            )
            for p in sorted({*delivered, *self._acked, *named, *starts})
        }
        self._runs: dict[str, _Run] = {}
        self._touched: dict[str, list[_Walk]] = {}
        self._owned: dict[str, set[Partition]] = defaultdict(set)
        self._owned_until: dict[str, float] = {}
        self._findings: list[Finding] = []

    def judgement(self) -> Judgement:
        for line, operation in self._history.lines():
            match operation:
                case Poll():
                    self._poll(operation, line)
                case Commit():
                    self._commit(operation, line)
                case Committed():
                    for place in operation.offsets:
                        self._walks[place.of].seen_committed(place.offset, line, operation.t, operation.took_s)
                case Transaction():
                    self._transaction(operation)
                case Ownership():
                    self._ownership(operation)
                case Process():
                    self._process(operation)
                case ResetBegin():
                    self._reset_begin(operation, line)
                case ResetEnd():
                    self._reset_end(operation, line)
                case Hold():
                    for partition in operation.partitions:
                        walk = self._walks[partition]
                        walk.pause(line, operation.t) if operation.op == "pause" else walk.resume(operation.t)
                case Begin() | End() | Send():
                    pass
                case _:
                    assert_never(operation)
        end = self._history.end
        for partition, walk in self._walks.items():
            line_of_end = len(self._history.operations) if end is not None else None
            walk.close(self._acked[partition], line_of_end, drained=end is not None and end.drained)
        self._judge_values()
        found = [*self._findings, *(f for walk in self._walks.values() for f in walk.findings.values())]
        return Judgement(
            findings=tuple(sorted(found, key=lambda f: (f.lines, f.rule))),
            reread={p: walk.reread for p, walk in self._walks.items() if walk.reread},
            stale={p: walk.stale for p, walk in self._walks.items() if walk.stale},
            begun={
                name: frozenset(p for p, w in self._walks.items() for x in w.lineages if x.run is run and x.begun)
                for name, run in self._runs.items()
            },
        )

    def _poll(self, poll: Poll, line: int) -> None:
        for record in poll.records:
            self._walks[record.of].deliver(poll.member, record.offset, line, poll.t)
            if Untold.ASSIGNMENTS in self._untold:
                self._owned[poll.member].add(record.of)

    def _commit(self, commit: Commit, line: int) -> None:
        rows = [row for row in commit.offsets if commit.error is None and row.error is None and row.offset >= 0]
        for row in rows:
            self._walks[row.of].commits(commit.member, row.offset, commit.t)
        member = commit.member
        if not rows or member is None or self._owned[member]:
            return
        since = self._owned_until.get(member)
        if since is None or not self._knowledge.may_be_unaware(member, commit.t, since):
            why = "the broker took it, and its member owned nothing"
            offsets = tuple(row.offset for row in rows)
            self._findings.append(Finding(Rule.COMMIT_WITHOUT_OWNERSHIP, rows[0].of, offsets, member, (line,), why))

    def _transaction(self, change: Transaction) -> None:
        for place in change.offsets:
            walk = self._walks[place.of]
            if change.op == "offsets-sent":
                walk.sends_offset(change.member, place.offset, change.t)
            else:
                walk.ends_transaction(change.member, change.t)

    def _ownership(self, change: Ownership) -> None:
        owned = self._owned[change.member]
        for partition in change.partitions:
            if change.op == "assign":
                self._walks[partition].assigned(change.member, change.t)
                owned.add(partition)
            else:
                self._walks[partition].given_up(change.member)
                owned.discard(partition)
        if not owned:
            self._owned_until[change.member] = change.t

    def _process(self, process: Process) -> None:
        for member in process.members:
            match process.op:
                case "stop" | "kill":
                    for walk in self._walks.values():
                        walk.given_up(member)
                    self._owned[member].clear()
                    self._owned_until[member] = process.t
                case "freeze" | "thaw":
                    self._knowledge.thawed[member] = process.t
                case "start":
                    pass
                case _:
                    assert_never(process.op)

    def _reset_begin(self, reset: ResetBegin, line: int) -> None:
        run = self._runs[reset.run] = _Run(reset.run, line, reset.t)
        targets = {place.of: place.offset for place in reset.targets}
        self._touched[reset.run] = [self._walks[p] for p in {*targets, *reset.requested}]
        for partition in {*targets, *reset.requested}:
            self._walks[partition].requested(run)
            if partition in targets:
                self._walks[partition].reset_begins(run, targets[partition])

    def _reset_end(self, end: ResetEnd, line: int) -> None:
        run = self._runs[end.run]
        run.phase, run.end_line, run.end_t = end.phase, line, end.t
        for walk in self._touched[end.run]:
            walk.reset_ends(run)

    def _value(self, partition: Partition, offset: int, value: str | None, line: int) -> None:
        if value is not None:
            self._values[partition][offset].setdefault(value, line)

    def _judge_values(self) -> None:
        for partition, values in sorted(self._values.items()):
            for offset, by_value in sorted(values.items()):
                if len(by_value) > 1:
                    lines, why = tuple(sorted(by_value.values())), f"its values: {', '.join(by_value)}"
                    self._findings.append(Finding(Rule.INCONSISTENT_OFFSETS, partition, (offset,), None, lines, why))
            self._judge_copies(partition, values)

    def _judge_copies(self, partition: Partition, values: Mapping[int, Mapping[str, int]]) -> None:
        places: dict[str, dict[int, int]] = defaultdict(dict)
        for offset, by_value in values.items():
            for value, line in by_value.items():
                places[value][offset] = line
        for value, at in places.items():
            if len(at) > max(1, self._sends[partition, value]):
                why = f"the value {value} was sent {self._sends[partition, value]} time(s), and is at all of them"
                offsets, lines = tuple(sorted(at)), tuple(sorted(at.values()))
                self._findings.append(Finding(Rule.DUPLICATE, partition, offsets, None, lines, why))


def _few(numbers: Sequence[int]) -> str:
    more = f" and {len(numbers) - _SHOWN} more" if len(numbers) > _SHOWN else ""
    return ", ".join(map(str, numbers[:_SHOWN])) + more


def main(paths: Sequence[str]) -> int:
    """Judge the files, and tell what was found; 1 if anything was."""
    is_ok = True
    for path in paths:
        judgement = judge(read(Path(path)))
        is_ok = is_ok and judgement.ok
        print(f"{path}: {'no breach' if judgement.ok else f'{len(judgement.findings)} breaches'}")
        for finding in judgement.findings:
            print(f"  {finding}")
    return 0 if is_ok else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
