"""A run's own holds: close the gates of its partitions, wait until their owners have obeyed, open them again."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from tidegate.cluster import Kafka
from tidegate.control.gates import Gates
from tidegate.control.ports import ControlTopics
from tidegate.control.records import Hold, HoldKey
from tidegate.control.standing import Flow, standings
from tidegate.kafka.errors import NotAuthorized, Unavailable
from tidegate.kafka.model import TopicPartition
from tidegate.reset.applying.owners import look
from tidegate.reset.applying.timing import Pace
from tidegate.reset.model.request import RunRequest

BY_HAND: Final = "cli"
"""What the uids of runs begin with that no operator carries out: ``cli/<id>``."""

BY_DISCOVERY: Final = "starts"
"""What the uids of runs begin with that send owners back to new partitions' starts: ``starts/<policy uid>/<any>``."""

_KIND: Final = "reset/"

_LOOK_S: Final = 0.02
"""How long one look at the topics waits for an ack."""


def holder(run_uid: str) -> str:
    """Whose holds these are; the same for every writer of a run, so that a successor can let go of them."""
    return f"{_KIND}{run_uid}"


def run_of(of: str) -> str | None:
    """The uid of the run whose holder this is; ``None``: it is none's."""
    return of.removeprefix(_KIND) if of.startswith(_KIND) else None


def hold_of(request: RunRequest) -> Hold:
    """What a run's holds say: to a person who asked for it, and to an operator whether it is one of its own."""
    by = f" by {request.asked_by}" if request.asked_by else ""
    drain_ms = request.settings.drain_timeout // timedelta(milliseconds=1)
    return Hold(f"offset reset {request.run_id}{by}", drain_ms, request.connection_uid)


def open_gates_of(control: ControlTopics, run_uid: str) -> None:
    """Let go of all that a run holds and limits, and of what the runs of its groups hold where it is a fleet's."""
    own, gates = holder(run_uid), control.read()
    # The limits first: whoever is let go of goes on.
    control.release([*(key for key in gates.limits if key.holder == own), *_held(gates, own)])


def _held(gates: Gates, own: str) -> list[HoldKey]:
    return [key for key in gates.holds if key.holder == own or key.holder.startswith(f"{own}/")]


def insistently(pace: Pace, call: Callable[[], object]) -> None:
    """Try for a while whatever the run's deadline says: consumers stand still until it is done. Raises ``Unavailable``
    when that was not enough."""
    clock, tuning = pace.clock, pace.tuning
    limit = clock.monotonic() + tuning.open_limit_s
    while True:
        try:
            call()
            return
        except Unavailable:
            if clock.monotonic() > limit:
                raise
            clock.sleep(tuning.retry_s)


@dataclass(frozen=True, slots=True)
class Reopened:
    """``go_on``: whose owners say that they do. ``not_expected``: nobody owns them, or others hold them."""

    go_on: frozenset[TopicPartition]
    not_expected: frozenset[TopicPartition]


class RunGates:
    """The gates of one run. ``hold``: what it says of them, and how long owners may take to finish."""

    def __init__(self, kafka: Kafka, pace: Pace, group_id: str, run_uid: str, hold: Hold) -> None:
        self._kafka = kafka
        self._pace = pace
        self._group_id = group_id
        self._holder = holder(run_uid)
        self._hold = hold
        self._limit_s = hold.drain_timeout_ms / 1000 + pace.tuning.obey_s
        self._held: set[HoldKey] = set()
        """What this writer has written and not released; a write whose answer is missing counts."""

    @property
    def _control(self) -> ControlTopics:
        return self._kafka.control

    def obstacle(self) -> str | None:
        """Why gates cannot be closed on this cluster, for a person."""
        try:
            complaints = self._control.ensure()
        except NotAuthorized as error:
            return str(error)
        return "; ".join(complaints) or None

    def close(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Hold them; the holds' epochs."""
        holds = {self._key(p): self._hold for p in partitions}
        self._held |= holds.keys()
        epochs = self._control.hold(holds)
        return {key.topic_partition: epoch for key, epoch in epochs.items()}

    def wait_obeyed(self, epochs: Mapping[TopicPartition, int]) -> str | None:
        """Until nobody delivers or commits any of them; else why that was not reached, for a person."""
        clock = self._pace.clock
        # An owner that has joined just now speaks within moments; one that does not runs no agent.
        grace = clock.monotonic() + self._pace.tuning.obey_s
        why: str | None = None

        def settled() -> bool:
            nonlocal why
            # In this order: an owner that comes in between must not look as if it had said nothing.
            group = look(self._kafka, self._group_id, epochs)
            stand = standings(self._control.read([self._group_id], wait_s=_LOOK_S), group, list(epochs), epochs)
            late = {p: s for p, s in stand.items() if not s.is_paused}
            if not late:
                why = None
                return True
            partition, first = min(late.items())
            who = f" (member {first.owner.client_id})" if first.owner is not None else ""
            if first.flow is Flow.OPEN:
                why = f"somebody else released the hold on {partition}"
                return True
            why = f"{len(late)} partition(s) were not released in time, e.g. {partition} by its owner{who}"
            if any(s.flow is Flow.UNMANAGED for s in late.values()) and clock.monotonic() > grace:
                why = f"the owner of {partition}{who} runs no agent"
                return True
            return False

        self._pace.until(settled, self._limit_s, 0.0)
        return why

    def not_held_by_all(self, epochs: Mapping[TopicPartition, int]) -> frozenset[TopicPartition]:
        """Of the partitions that were closed, those that an owner may deliver or commit all the same: it has come since
        (it runs no agent), or somebody has taken the hold away."""
        group = look(self._kafka, self._group_id, epochs)
        stand = standings(self._control.read([self._group_id], wait_s=_LOOK_S), group, list(epochs), epochs)
        return frozenset(p for p, s in stand.items() if not s.is_paused)

    def open_all(self, *, insist: bool = True) -> None:
        """Let go of all that the run holds, whichever writer of it closed them.

        Raises as ``open``, and at once unless it ``insist``s.
        """
        if insist:
            insistently(self._pace, self._find)
            self.open()
        else:
            self._find()
            self._release()

    def open(self) -> None:
        """Let go of all that this writer holds.

        Tries for a while whatever the run's deadline says: consumers stand still until it is done. Raises
        ``Unavailable`` when that was not enough.
        """
        insistently(self._pace, self._release)

    def _release(self) -> None:
        if self._held:
            self._control.release(sorted(self._held))
            self._held.clear()

    def _find(self) -> None:
        held = (key for key, _ in self._control.read().of_group(self._group_id))
        self._held |= {key for key in held if key.holder == self._holder}

    def reopened(self, epochs: Mapping[TopicPartition, int]) -> Reopened:
        """What has become of partitions since the gates were opened, by the holds' epochs."""
        group = self._kafka.groups([self._group_id])[self._group_id]
        gates = self._control.read([self._group_id], wait_s=_LOOK_S)
        owners = {p: member.member_id for member in group.members for p in member.assignment}
        go_on, not_expected = set(), set()
        for partition, epoch in epochs.items():
            if partition not in owners or gates.holders(self._group_id, partition):
                not_expected.add(partition)
                continue
            ack = gates.ack(self._group_id, partition, owners[partition])
            if ack is not None and ack.epoch > epoch:
                go_on.add(partition)
        return Reopened(frozenset(go_on), frozenset(not_expected))

    def _key(self, partition: TopicPartition) -> HoldKey:
        return HoldKey(self._group_id, partition.topic, partition.partition, self._holder)
