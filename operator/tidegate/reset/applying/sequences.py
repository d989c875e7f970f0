"""The sequences by which owners let go and a round's targets are committed (docs/explanation/live-reset.md)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final, assert_never

from tidegate.cluster import Kafka
from tidegate.kafka.errors import GroupNotLive, KafkaFailure, Unavailable
from tidegate.kafka.model import Group, GroupState, GroupType, Member, TopicPartition
from tidegate.kafka.ports import Guest, JoinHold
from tidegate.reset.applying.commits import RunCommits
from tidegate.reset.applying.gates import RunGates
from tidegate.reset.applying.joins import Joins, not_back
from tidegate.reset.applying.leading import Lead, NotLed
from tidegate.reset.applying.owners import look
from tidegate.reset.applying.rejoins import Rejoins
from tidegate.reset.applying.rounds import NO_PARTITIONS, Emptied, Outcome, Partitions, Round, Times
from tidegate.reset.applying.timing import DeadlinePassed, Pace
from tidegate.reset.model import Way
from tidegate.reset.ways import COOPERATIVE_SUBSCRIPTION, is_cooperative, keeps_commits_back

MOST_STALE_LOOKS: Final = 3
"""How often a round is put off because a look at the owners had become too old."""


NOTICED_S: Final = 1.0
"""How much later than a heartbeat an owner that was made to leave is back."""

MOST_LEADS: Final = 3
"""How often it is tried to lead a group whose members come and go meanwhile."""

FAST_HEARTBEAT_S: Final = 0.5
LEAVING_S: Final = 0.5
"""How long before a heartbeat a round begins, so that owners have been made to leave by then."""


class JoinNotHeld(Unavailable):
    """A join was not held until the targets were committed, so owners may have gone on from their old positions:
    nothing that was read back since tells, and the round does not count."""


class Sequences:
    """Carries out a round by a way. ``hold_s``: how long owners are held after they let go (``inFlight``)."""

    def __init__(
        self,
        kafka: Kafka,
        commits: RunCommits,
        gates: RunGates,
        pace: Pace,
        times: Times,
        joins: Joins,
        hold_s: float,
    ) -> None:
        self._kafka = kafka
        self._gates = gates
        self._commits = commits
        self._pace = pace
        self._times = times
        self._hold_s = hold_s
        self._joins = joins
        self._group_id = commits.group_id
        self._emptied: Emptied | None = None
        """Of the round that is being carried out."""
        self._kept_at: float | None = None
        """When the generation of the last round was seen, if an owner kept something in it (monotonic seconds)."""
        self._failed_leads = 0
        """How often in a row."""
        self.not_led: str | None = None
        """Why the group cannot be led."""
        self._missed = 0
        """In how many rounds the join was let go just as owners had committed once more."""
        self._stale_looks = 0
        self.disobeyed: str | None = None
        """Why gates were no use."""
        self.went_on: Partitions = frozenset()
        """The partitions of which managed owners have said that they go on from the target."""

    def carry_out(self, way: Way, round_: Round, group: Group) -> Outcome:
        """``group``: as it was when the way was chosen. Raises ``Unavailable`` and ``DeadlinePassed``."""
        self._emptied = None
        self.went_on -= round_.pending
        self._joins.note(group)
        try:
            outcome = self._carried_out(way, round_, group)
        except GroupNotLive:
            # Its members have left since the look at it, or are others now. Nothing was committed yet.
            outcome = Outcome(not_tried=round_.pending)
        return replace(outcome, emptied=self._emptied)

    def _carried_out(self, way: Way, round_: Round, group: Group) -> Outcome:
        match way:
            case Way.DIRECT:
                return self._direct(round_, group)
            case Way.BARRIER:
                return self._barrier(round_)
            case Way.HANDOVER:
                return self._handover(round_, group)
            case Way.GATED:
                return self._gated(round_)
            case Way.LEADING:
                return self._leading(round_, group)
            case _:
                assert_never(way)

    def _direct(self, round_: Round, group: Group) -> Outcome:
        """Nobody owns the partitions: commit, and look whether somebody took them meanwhile, or may have.

        Who did may have started from the old offset; those are done again, as owned partitions.
        """
        self._emptied = None if group.has_members else Emptied()
        self._commits.commit(round_.targets, round_.number)
        late = self._commit_over_transactions(round_)
        now = self._group(round_.pending)
        taken = frozenset(p for p in round_.pending if now.owner(p) is not None)
        return Outcome(overwritten=late, unsure=taken | now.hidden(round_.pending))

    def _gated(self, round_: Round) -> Outcome:
        """Close the gates, wait until every owner has obeyed, commit, open: nobody else in the group notices.

        Whoever holds a partition besides keeps it closed; it goes on at its target when that hold ends.
        """
        self.disobeyed = self._gates.obstacle()
        if self.disobeyed is not None:
            return Outcome(not_tried=round_.pending)
        self._times.stop(round_.pending, self._pace.clock.monotonic())
        try:
            epochs = self._gates.close(round_.pending)
            self.disobeyed = self._gates.wait_obeyed(epochs)
            if self.disobeyed is not None:
                return Outcome(not_tried=round_.pending)
            self._learn_before(round_)
            self._commits.commit(round_.targets, round_.number)
            # Of an application whose producer does not run the agent.
            opened = self._kafka.pending(self._group_id, round_.pending)
            seen = self._committed(round_)
            # Who was given a partition before the offset could be read has begun elsewhere, whatever is committed.
            # A rebalance that has begun behind the gates hides the owners for a moment.
            why = self._gates.wait_obeyed(epochs)
            came_since = self._gates.not_held_by_all(epochs) if why is not None else frozenset()
        finally:
            self._gates.open()
        if came_since:
            self.disobeyed = why
        self._note_reopened({p: epoch for p, epoch in epochs.items() if p not in came_since})
        overwritten = frozenset(p for p, target in round_.targets.items() if seen.get(p) != target)
        return Outcome(overwritten=overwritten, unsure=opened | came_since)

    def _note_reopened(self, epochs: Mapping[TopicPartition, int]) -> None:
        """For the record only: how long they stood still, and who goes on."""
        left = dict(epochs)

        def all_go_on() -> bool:
            try:
                back = self._gates.reopened(left)
            except KafkaFailure:
                return True
            self.went_on |= back.go_on
            over = back.go_on | back.not_expected
            self._times.resume(over, self._pace.clock.monotonic())
            for partition in over:
                del left[partition]
            return not left

        with contextlib.suppress(DeadlinePassed):
            self._pace.until(all_go_on, self._pace.tuning.obey_s, 0.0)

    def _barrier(self, round_: Round) -> Outcome:
        """XH: hold the group at its join, commit, see it, let go once everybody has rejoined.

        Each member commits for the last time before it rejoins, and starts from the committed offsets after. So the
        targets are committed again whenever such a commit replaced one, until the join is let go with all in place.
        What was read is old by then, by several answers of Kafka's: owners that commit and rejoin in between go on from
        where they were. After a rebalance the heartbeats of all members fall together, so all of them may, in one round
        after the other. So a round that follows such a one lets go only when their heartbeats should be over, and from
        then on seldom.
        """
        tuning, clock = self._pace.tuning, self._pace.clock
        held_s, again_s = self._held_for(), self._hold_s
        if self._missed:
            held_s += min(1.5 * tuning.heartbeat_s * 2 ** (self._missed - 1), self._joins.standstill_s / 2)
            again_s = max(again_s, tuning.heartbeat_s / 3)
        with self._hold() as hold:
            started = clock.monotonic()
            self._times.stop(round_.pending, started)

            earliest = started + held_s

            def let_go() -> bool:
                nonlocal earliest
                self._commit_where_needed(round_, hold)
                if clock.monotonic() >= earliest:
                    if hold.blink():
                        return True
                    # Somebody has yet to let go, and what he has in hand counts from then. When that is does not show
                    # while the join is held; what he commits after it is seen in the watch.
                    earliest = clock.monotonic() + again_s
                hold.keep()
                return False

            in_time = self._pace.until(let_go, self._held_for() + self._joins.standstill_s, tuning.probe_s)
            # Perhaps everybody has come since the join was last let go.
            if not in_time and not hold.blink():
                self._joins.make_all_leave(hold.keep)
                self._note_if_empty()
                self._learn_before(round_)
                self._commits.commit(round_.targets, round_.number, hold=hold)
        # What an owner sent to a transaction just before it rejoined may show only now, or later.
        opened = self._kafka.pending(self._group_id, round_.pending)
        seen = dict(self._committed(round_))
        self._times.resume(round_.pending, clock.monotonic())
        left_open = NO_PARTITIONS
        if opened:
            left_open = self._commits.still_open(opened, tuning.watch_at_least_s)
            seen |= self._kafka.committed(self._group_id, opened)
        overwritten = round_.overwritten_at_release(seen)
        self._missed += bool(overwritten)
        return Outcome(overwritten=overwritten, unsure=left_open, left_open=left_open)

    def _handover(self, round_: Round, group: Group) -> Outcome:
        """Commit, then leave in the owners' names; the read-back decides, for then they can commit no more.

        What they had committed in between is replaced before anybody takes their partitions.
        """
        # Whether an owner that is rejoining when it becomes unknown may go on from where it was: cooperative clients
        # keep what they own over a rebalance (kafka-python also then), and so do some of the old ones. Who is alone
        # cannot leave another behind: cooperative ones are looked after once the group was Empty, the old ones rejoin.
        old = self._old_clients(round_, group)
        keeps = is_cooperative(group) or (len(group.members) > 1 and bool(old))
        held = group.type is GroupType.CLASSIC and not keeps
        looked = self._pace.clock.monotonic()
        if held and self._owners_changed(round_, group):
            return Outcome(not_tried=round_.pending)
        rejoins = Rejoins(self._kafka, group, round_.pending) if is_cooperative(group) else None
        began = self._pace.clock.monotonic()
        gone: tuple[Member, ...] = ()
        waits = False

        def are_back() -> bool:
            """Somebody; or all, where members wait for a transaction: librdkafka begins at ``auto.offset.reset`` if a
            second rebalance comes meanwhile (ADR 19)."""
            now = self._group()
            return not not_back(now, gone, group) if waits else now.has_members

        with self._held_join(group, keeps=keeps, rejoins=rejoins, are_back=are_back) as hold:
            # Who owns what shows no more, and a rebalance may have ended between the look and the hold.
            unknown = held and self._pace.clock.monotonic() - looked > self._pace.tuning.fresh_s
            self._commits.commit(round_.targets, round_.number)
            # A held classic group shows no owners, and gives nobody a partition.
            looked = self._pace.clock.monotonic()
            now = group if held else self._group(round_.pending)
            owners, unsure = _owners_now(round_.pending, group, now)
            if unknown:
                # So all are made to leave. To put the round off would cost them a rebalance more.
                now = self._group(round_.pending)
                owners, unsure = now.members, NO_PARTITIONS
                self._times.stop(round_.pending, self._pace.clock.monotonic())
            owners, not_tried = _all_but_one(owners, now, round_.pending) if keeps else (owners, NO_PARTITIONS)
            leaving = self._pace.clock.monotonic()
            for member in owners:
                self._times.stop(member.assignment & round_.pending, leaving)
            left = self._kafka.membership.leave(self._group_id, owners)
            # Also if some of them had left by themselves just before.
            emptied = {m.member_id for m in now.members} <= {m.member_id for m in owners}
            self._emptied = Emptied() if emptied else None
            if keeps and self._is_stale(looked):
                # A rebalance may have begun in between, in which they were rejoining already.
                unsure = round_.pending
            unsure |= _owned_by_others(round_.pending, owners, left)
            gone = tuple(m for m in owners if m.member_id in left)
            if rejoins is not None:
                rejoins.gone = gone
            if hold is not None and keeps and emptied:
                # An Empty group waits for no pending member, and letting go of it later would begin a rebalance.
                hold.release()
            self._wait_until_known([m for m in gone if m.member_id in old], group, hold)
            overwritten = self._commit_over_transactions(round_, hold, but=unsure | not_tried)
            waits = bool(self._kafka.pending(self._group_id, group.assigned))
        kept = NO_PARTITIONS
        if rejoins is None:
            self._end_join(group, began)
        else:
            self._wait_until_back(rejoins)
            kept = rejoins.kept()
            self._kept_at = self._pace.clock.monotonic() if kept else None
        return Outcome(overwritten=overwritten, unsure=unsure | kept, not_tried=not_tried, kept=kept)

    def _leading(self, round_: Round, group: Group) -> Outcome:
        """Lead a generation that gives the partitions to nobody, commit in the barrier of the next, give them back."""
        clock = self._pace.clock
        # What an application commits as its client is about to join shows after that join, also without inFlight.
        kept_back_s = self._pace.tuning.margin_s if keeps_commits_back(group) else 0.0
        lead = Lead(
            self._kafka,
            self._pace,
            group,
            round_.pending,
            held_s=max(self._hold_s, kept_back_s),
            standstill_s=self._joins.standstill_s,
        )
        in_barrier_once = False
        late = NO_PARTITIONS

        def in_barrier(guest: Guest) -> None:
            nonlocal in_barrier_once, late
            in_barrier_once = True
            self._commits.commit(round_.targets, round_.number, hold=guest)
            # What an owner had sent to a transaction before it let go may have come to show over it.
            late = round_.overwritten_at_release(self._committed(round_))
            if late:
                self._commits.commit({p: round_.targets[p] for p in late}, round_.number, hold=guest)
                late = round_.overwritten_at_release(self._committed(round_))

        try:
            lead.carry_out(in_barrier, stopped=lambda: self._times.stop_anew(round_.pending, clock.monotonic()))
        except NotLed as error:
            self._failed_leads += 1
            if error.for_good or self._failed_leads == MOST_LEADS:
                self.not_led = str(error)
            if error.left is not None:
                self._joins.note_left(error.left)
            if not self._pace.until(self._joins.is_over, NOTICED_S, self._pace.tuning.look_s):
                self._free_join()
            return Outcome(not_tried=round_.pending)
        except Unavailable as error:
            # What was committed, or may have been, may show only after the partitions have been given to somebody.
            if not in_barrier_once:
                raise
            raise JoinNotHeld(
                f"group {self._group_id} was not led to the end: its coordinator has moved, or did not answer for too "
                "long"
            ) from error
        self._failed_leads = 0
        self._times.resume(round_.pending, clock.monotonic())
        self._end_join(group, clock.monotonic())
        return Outcome(overwritten=late)

    def wait_for_heartbeat(self) -> bool:
        """Where an owner kept something in the last round: until shortly before it heartbeats; whether that took time.

        Made to leave then, it learns it from that heartbeat and not from its next commit. franz-go's first heartbeat
        comes 0.5 s after it has joined. Raises ``DeadlinePassed``.
        """
        kept_at, self._kept_at = self._kept_at, None
        if kept_at is None:
            return False
        beats_at = kept_at + FAST_HEARTBEAT_S + self._pace.tuning.heartbeat_s
        self._pace.pause(beats_at - LEAVING_S - self._pace.clock.monotonic())
        return True

    def _end_join(self, group: Group, began: float) -> None:
        if self._joins.end(group, began, held_s=self._held_for()):
            self._note_if_empty()

    def _free_join(self, keep: Callable[[], None] = lambda: None) -> None:
        if self._joins.free(keep):
            self._note_if_empty()

    def _note_if_empty(self) -> None:
        if self._emptied is None and not self._group().has_members:
            self._emptied = Emptied()

    def _wait_until_known(self, old: Collection[Member], group: Group, hold: JoinHold | None) -> None:
        """Wait until owners know that they were made to leave whose clients name no member as they send offsets to a
        transaction (aiokafka, ``old``): until then they may send some."""
        if hold is not None and old:
            limit_s = self._back_limit_s
            self._held_until(hold, lambda: not not_back(self._group(), old, group), limit_s, self._pace.tuning.look_s)

    def _commit_over_transactions(
        self, round_: Round, hold: JoinHold | None = None, *, but: Partitions = frozenset()
    ) -> Partitions:
        """Commit again where an owner has committed after the targets and before it was made to leave, or has sent to a
        transaction that is still open: it can send nothing more, and what was sent last wins.

        Returns the partitions that somebody may have taken at another offset by then. ``but``: partitions that are done
        again anyway.
        """
        opened = self._kafka.pending(self._group_id, round_.pending)
        late = (opened | round_.overwritten_at_release(self._committed(round_))) - but
        if not late:
            return late
        self._commits.commit({p: round_.targets[p] for p in late}, round_.number, hold=hold)
        taken = self._group(round_.pending)
        seen = self._committed(round_)
        return frozenset(p for p in late if taken.owner(p) is not None or seen.get(p) != round_.targets[p])

    def _wait_until_back(self, rejoins: Rejoins) -> None:
        """Until the owners that were made to leave are back; one that has died meanwhile is not waited for."""
        tuning, clock = self._pace.tuning, self._pace.clock
        began = clock.monotonic()

        open_since: float | None = None

        def settled() -> bool:
            nonlocal open_since
            self._note_return()
            if rejoins.are_back or rejoins.look():
                return True
            now = clock.monotonic()
            waited = now - began
            open_since = None if self._joins.is_over() else now if open_since is None else open_since
            if open_since is not None and now - open_since > self._joins.standstill_s:
                open_since = None
                self._free_join()
            return (waited > tuning.back_limit_s and rejoins.seen) or (
                waited > tuning.session_s and not self._group().has_members
            )

        # A generation in which partitions move is over within milliseconds.
        self._pace.until(settled, tuning.rejoin_limit_s, tuning.look_s / 4)

    def _note_return(self) -> None:
        if self._emptied is not None and self._emptied.at_return is None and self._group().has_members:
            self._emptied = Emptied(at_return=self._kafka.committed(self._group_id))

    def _is_stale(self, looked: float) -> bool:
        """Whether a look of that moment is too old to act upon; told a few times only, for brokers far away."""
        stale = self._pace.clock.monotonic() - looked > self._pace.tuning.fresh_s
        self._stale_looks += stale
        return stale and self._stale_looks <= MOST_STALE_LOOKS

    def _owners_changed(self, round_: Round, group: Group) -> bool:
        """Whether the owners are others than when the way was chosen, or just changing."""
        now = self._group(round_.pending)
        then = {m.member_id: m.assignment & round_.pending for m in group.owners(round_.pending)}
        return now.state is not GroupState.STABLE or then != {
            m.member_id: m.assignment & round_.pending for m in now.owners(round_.pending)
        }

    def _old_clients(self, round_: Round, group: Group) -> frozenset[str]:
        """Member ids of a classic group's owners whose subscription is from before KIP-429."""
        if group.type is not GroupType.CLASSIC or is_cooperative(group):
            return frozenset()
        versions = self._kafka.membership.subscription_versions(self._group_id)
        owners = (m.member_id for m in group.owners(round_.pending))
        return frozenset(m for m in owners if versions.get(m, 0) < COOPERATIVE_SUBSCRIPTION)

    @contextlib.contextmanager
    def _held_join(
        self, group: Group, *, keeps: bool, rejoins: Rejoins | None, are_back: Callable[[], bool]
    ) -> Iterator[JoinHold | None]:
        """Hold a classic group at its join, so that nobody takes a partition before all is in place.

        Nor does it become Empty where all members leave: to an Empty group anybody may commit without being a member,
        and aiokafka does so before it rejoins.

        ``keeps``: an owner that is rejoining when it becomes unknown may keep its position; one that learns it from a
        heartbeat has lost its partitions. So the rebalance is not begun before they left; and one has to
        stay, for an outstanding member id keeps a group from becoming Empty only once a rebalance is under way.
        ``are_back``: until when an eager group is held.
        """
        if group.type is not GroupType.CLASSIC:
            yield None
            return
        tuning = self._pace.tuning
        with self._hold(rebalance=not keeps) as hold:
            yield hold

            def is_over() -> bool:
                hold.keep()
                self._note_return()
                if rejoins is None:
                    return are_back()
                # Members of a cooperative group read on while they wait for those who left.
                return rejoins.look() or rejoins.have_rejoined(self._group())

            # Who has died is not waited for while the others stand still.
            noticed_s = tuning.heartbeat_s + NOTICED_S
            limit_s = self._back_limit_s if rejoins is None else min(noticed_s, self._back_limit_s)
            self._pace.until(is_over, limit_s, tuning.look_s)
            until = self._pace.clock.monotonic() + self._held_for()
            while self._pace.clock.monotonic() < until:
                hold.keep()
                self._pace.pause(min(tuning.look_s, self._hold_s))

    @contextlib.contextmanager
    def _hold(self, *, rebalance: bool = True) -> Iterator[JoinHold]:
        """A join that was held all the time until it was let go. Raises ``JoinNotHeld`` at its end where it was not."""
        failure: Unavailable | None = None
        with self._kafka.membership.hold(self._group_id, rebalance=rebalance) as hold:
            try:
                yield hold
            except Unavailable as error:
                failure = error
        if hold.lapsed:
            raise JoinNotHeld(
                f"the join of group {self._group_id} was not held to the end: its coordinator has moved, or did not "
                "answer for too long"
            ) from failure
        if failure is not None:
            raise failure

    @property
    def _back_limit_s(self) -> float:
        """How long owners that were made to leave are waited for while others stand still."""
        return min(self._pace.tuning.back_limit_s, self._joins.standstill_s)

    def _held_for(self) -> float:
        """How long to hold a join: an owner may notice a heartbeat later, and only then ``inFlight`` begins."""
        return self._pace.tuning.heartbeat_s + self._hold_s if self._hold_s > 0 else 0.0

    def _held_until(self, hold: JoinHold, reached: Callable[[], bool], limit_s: float, every_s: float) -> bool:
        """Like ``Pace.until``, and owners are held at their join meanwhile."""

        def look() -> bool:
            hold.keep()
            return reached()

        return self._pace.until(look, limit_s, every_s)

    # --- looking ------------------------------------------------------------------------------------------------------

    def _commit_where_needed(self, round_: Round, hold: JoinHold) -> None:
        seen = self._learn_before(round_)
        needed = {p: target for p, target in round_.targets.items() if seen.get(p) != target}
        if needed:
            self._commits.commit(needed, round_.number, hold=hold)

    def _learn_before(self, round_: Round) -> Mapping[TopicPartition, int]:
        """Read what is committed now. Owners that let go commit once more: the newest place is what undo goes to."""
        seen = self._committed(round_)
        if round_.learns:
            for partition, offset in seen.items():
                if offset != round_.targets[partition] and offset > round_.before.get(partition, -1):
                    round_.before[partition] = offset
        return seen

    def _committed(self, round_: Round) -> Mapping[TopicPartition, int]:
        return self._kafka.committed(self._group_id, list(round_.targets))

    def _group(self, partitions: Partitions = frozenset()) -> Group:
        return look(self._kafka, self._group_id, partitions)


def _owners_now(pending: Partitions, group: Group, now: Group) -> tuple[tuple[Member, ...], Partitions]:
    """Who owns what once our offsets are in the way, and the partitions of which that is hidden.

    An owner that takes a partition from now on starts from our offset. One that took it since ``group`` was described
    did not: KIP-848 groups move partitions at any time.
    """
    owners = now.owners(pending)
    if now is group or now.state is GroupState.STABLE:
        return owners, frozenset()
    if now.type is not GroupType.CLASSIC:
        return owners, now.hidden(pending)
    # A rebalance of theirs hides the owners; those we know of are made to leave, and all is done again.
    known = {m.member_id for m in owners}
    return (*owners, *(m for m in group.owners(pending) if m.member_id not in known)), pending


def _owned_by_others(pending: Partitions, owners: Iterable[Member], left: Collection[str]) -> Partitions:
    """Partitions whose owner was another by the time we left in its name: nobody has let those go."""
    return frozenset(p for m in owners if m.member_id not in left for p in m.assignment & pending)


def _all_but_one(
    owners: tuple[Member, ...], group: Group, pending: Partitions
) -> tuple[tuple[Member, ...], Partitions]:
    """Where all of several members own something, one of them stays for now; and its partitions."""
    if len(owners) < len(group.members) or len(group.members) == 1:
        return owners, frozenset()
    stays = min(owners, key=lambda m: (len(m.assignment & pending), m.member_id))
    return tuple(m for m in owners if m is not stays), stays.assignment & pending
