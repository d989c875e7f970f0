"""Writers of one partition that die, are frozen and come back, whose requests arrive late or unanswered."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from support.mirror.source_log import SourceLog
from support.mirror.target_broker import INVALID_EPOCH, NOT_ENOUGH_REPLICAS, TargetBroker
from tidegate.mirror.model import (
    Action,
    Answer,
    Append,
    Appended,
    ClaimProducerId,
    Coordinated,
    DeleteRecords,
    Done,
    FencePredecessors,
    Interrupted,
    ProducerIds,
    ReadSource,
    ReadTail,
    Refusal,
    Transact,
    WriteMarkers,
)
from tidegate.mirror.source import SourceRead
from tidegate.mirror.states import Mirror, Ready, Stopped, Way
from tidegate.mirror.transitions import after, forgotten

MOST_STEPS = 4000


@dataclass(frozen=True, slots=True)
class Faults:
    """Probabilities, each of a step."""

    unsent: float = 0.0
    unanswered: float = 0.0
    late_data: float = 0.0
    late_markers: float = 0.0
    dies: float = 0.0
    freezes: float = 0.0
    """With its next request in hand, which it sends when it comes back, while another one goes on."""
    freezes_before_markers: bool = False
    foreign: float = 0.0
    forgets: float = 0.0
    doubled: float = 0.0
    """A marker, by a broker that is killed while it writes it."""
    refused: float = 0.0
    """Of a batch, for a while; what is sent behind it is not."""


@dataclass
class Writer:
    mirror: Mirror
    in_hand: Action | None = None
    """Decided on before it was frozen."""
    appends_after_drift: int = 0
    born_after_drift: bool = False


@dataclass
class World:
    """Source, target and writers. ``run`` ends when the target has all of the source, or all writers have stopped."""

    rnd: random.Random
    faults: Faults
    source: SourceLog
    compacts: bool = False
    way: Way = Way.MARKERS
    target: TargetBroker = field(default_factory=TargetBroker)
    ids: list[int] = field(default_factory=list)
    late: list[Callable[[], object]] = field(default_factory=list)
    writer: Writer = field(init=False)
    frozen: list[Writer] = field(default_factory=list)
    stopped: list[Stopped] = field(default_factory=list)
    drifted_at: int | None = None
    """The first offset at which the target has something else than the source."""
    agreed: int = 0
    steps: int = 0
    faults_now: Faults = Faults()
    deaths: int = 0
    came_late: int = 0

    def __post_init__(self) -> None:
        self.writer = self._new_writer()

    @property
    def drifted(self) -> bool:
        return self.drifted_at is not None

    def _new_writer(self) -> Writer:
        mirror = Mirror(tuple(self.ids), way=self.way, compacts=self.compacts, filler_key=b"filler")
        return Writer(mirror, born_after_drift=self.drifted)

    def run(self, steps: int) -> None:
        """Faults for so many steps, and then none until all is copied."""
        for _ in range(steps):
            if self.rnd.random() < 0.4:
                self.source.grow()
            self._disturb()
            if self._step(self.faults):
                return
        self.source.settle()
        for writer in self.frozen:
            self._take(writer, Faults())
        while self.late:
            self._arrive()
        self.writer = self._new_writer()
        while self.steps < MOST_STEPS:
            if self._step(Faults()):
                return
            state = self.writer.mirror.state
            if isinstance(state, Ready) and state.idle and state.position.offset == self.source.last_stable:
                return
        raise AssertionError(f"not done after {MOST_STEPS} steps: {self.writer.mirror.state}")

    def _disturb(self) -> None:
        rnd, faults = self.rnd, self.faults
        if rnd.random() < faults.dies:
            self.deaths += 1
            self.writer = self._new_writer()
        action = self.writer.mirror.action()
        holds_marker = isinstance(action, WriteMarkers | Transact) and not faults.freezes_before_markers
        if rnd.random() < faults.freezes and len(self.frozen) < 2 and not holds_marker:
            self.writer.in_hand = action
            self.frozen.append(self.writer)
            self.writer = self._new_writer()
        elif self.frozen and rnd.random() < faults.freezes:
            zombie = self.frozen.pop(rnd.randrange(len(self.frozen)))
            self._take(zombie, faults)
        if self.late and rnd.random() < 0.3:
            self._arrive()
        if rnd.random() < faults.foreign:
            self.target.foreign()
            self._look_for_drift()
        if rnd.random() < faults.forgets and not self.frozen and not self.late:
            # After a day without a batch; a writer does not rely on what it knew that long ago.
            self.target.forget_producers()
            self.writer.mirror = forgotten(self.writer.mirror)

    def _arrive(self) -> None:
        self.came_late += 1
        self.late.pop(self.rnd.randrange(len(self.late)))()
        self._look_for_drift()

    def _step(self, faults: Faults) -> bool:
        """Whether the writer has stopped."""
        self.steps += 1
        self._take(self.writer, faults)
        return isinstance(self.writer.mirror.state, Stopped)

    def _take(self, writer: Writer, faults: Faults) -> None:
        """One action of one writer."""
        action = writer.in_hand or writer.mirror.action()
        writer.in_hand = None
        if action is None:
            return
        self._look_for_drift()
        drifted, appends = self.drifted, self.target.appends
        writer.mirror = after(writer.mirror, action, self._carried_out(action, faults))
        if drifted and self.target.appends > appends:
            writer.appends_after_drift += 1
            assert writer.appends_after_drift <= 1, "a writer went on writing although the target had drifted"
            assert not writer.born_after_drift, "a writer did not see that the target had drifted"
        self._look_for_drift()
        if isinstance(writer.mirror.state, Stopped):
            self.stopped.append(writer.mirror.state)

    def _carried_out(self, action: Action, faults: Faults) -> Answer:
        self.faults_now = faults
        fate = self.rnd.random()
        if fate < faults.unsent:
            return Interrupted("not sent")
        fate -= faults.unsent
        late = faults.late_markers if isinstance(action, WriteMarkers) else faults.late_data
        if isinstance(action, Append | WriteMarkers) and fate < late:
            self.late.append(lambda: self._done(action))
            return Interrupted("no answer in time")
        fate -= late
        answer = self._done(action)
        return Interrupted("no answer") if 0 <= fate < faults.unanswered else answer

    def _done(self, action: Action) -> Answer:
        match action:
            case ClaimProducerId(after=predecessor):
                if predecessor == (self.ids[-1] if self.ids else None):
                    self.ids.append(100 + len(self.ids))
                return ProducerIds(tuple(self.ids))
            case ReadTail(window):
                return self.target.tail(window)
            case ReadSource(offset):
                return self._source_read(offset)
            case Append(batches):
                return Appended(tuple(self._produced(data) for data in batches))
            case WriteMarkers(producer_id, epoch, count):
                written = [self.target.write_marker(producer_id, epoch) for _ in range(count)]
                return Done() if all(written) else INVALID_EPOCH
            case FencePredecessors():
                return self.target.fence_predecessors(doubled=self._doubled())
            case Transact(producer, fillers):
                return self._transacted(producer, fillers)
            case DeleteRecords(offset):
                self.target.delete_records(offset)
                return Done()

    def _transacted(self, producer: Coordinated, fillers: int) -> Answer:
        until = 2 if self.rnd.random() >= self.faults_now.unanswered else self.rnd.randrange(3)
        doubled = self._doubled()
        if not self.target.transact(producer, fillers, until=until, doubled=doubled):
            return INVALID_EPOCH
        return Done() if until == 2 else Interrupted("no answer")

    def _doubled(self) -> bool:
        return self.rnd.random() < self.faults_now.doubled

    def _produced(self, data: bytes) -> int | Refusal:
        return NOT_ENOUGH_REPLICAS if self.rnd.random() < self.faults_now.refused else self.target.produce(data)

    def _source_read(self, offset: int) -> SourceRead:
        return self.source.read(offset, self.rnd.randint(1, 8))

    def _look_for_drift(self) -> None:
        """Whether the target has something else than the source, as far as both have come."""
        if self.drifted_at is not None and not self._still_matters(self.drifted_at):
            self.drifted_at = None
            for writer in (self.writer, *self.frozen):
                writer.appends_after_drift, writer.born_after_drift = 0, False
        until = min(self.target.end, self.source.last_stable)
        begin = max(self.target.start, self.source.start, self.agreed)
        if self.drifted or begin >= until:
            return
        ours, theirs = self.target.visible(begin), self.source.visible(begin)
        for offset in range(begin, until):
            if ours.get(offset) != theirs.get(offset) and not (self.compacts and offset not in theirs):
                self.agreed = self.drifted_at = offset
                return
        self.agreed = until

    def _still_matters(self, offset: int) -> bool:
        """Not where the source has forgotten what it had there."""
        return offset >= self.source.start and not (self.compacts and offset not in self.source.visible(offset))

    def assert_equal(self) -> None:
        """Start, end and every record; of a topic that is compacted those that the source still has."""
        ours, theirs = self.target.visible(), self.source.visible()
        assert (self.target.start, self.target.end) == (self.source.start, self.source.last_stable)
        if self.compacts:
            ours = {offset: record for offset, record in ours.items() if offset in theirs}
        assert ours == theirs
