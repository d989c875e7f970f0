"""An account of a group in plain sentences. Pure; what is not known is said to be unknown."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Final, assert_never

from tidegate.control.standing import Flow
from tidegate.incident.account import Account, HoldTold, MemberTold, PartitionTold
from tidegate.incident.holders import HolderKind
from tidegate.incident.resource_sentences import in_short_of_resources, resources_told
from tidegate.incident.seen import KafkaSeen, KubeSeen, Seen
from tidegate.incident.words import (
    counted,
    holder_text,
    listed,
    member_text,
    partitions_text,
    quoted,
    time_text,
)
from tidegate.kafka.model import Group, GroupState, GroupType
from tidegate.printable import visible

_MOST_MEMBERS: Final = 20
_MOST_LAGS: Final = 10


@dataclass(frozen=True, slots=True)
class Section:
    title: str
    sentences: tuple[str, ...]


def sections(seen: Seen, account: Account) -> tuple[Section, ...]:
    """What somebody wants to know first, first. Sections with nothing to say are left out."""
    told = (
        Section("In short", tuple(_in_short(seen, account))),
        Section("The group", tuple(_state(seen, account))),
        Section("Who owns what", tuple(_owners(account))),
        Section("What is held", tuple(_held(seen, account))),
        Section("Runs that have the group or wait for it", tuple(_claims(account, seen.at))),
        *(Section(title, sentences) for title, sentences in resources_told(seen.kube, seen.at)),
        Section("Not seen", tuple(f"{visible(u.what)}: {visible(u.why)}" for u in seen.all_unseen)),
    )
    return tuple(section for section in told if section.sentences)


# --- in short ---------------------------------------------------------------------------------------------------------


def _in_short(seen: Seen, account: Account) -> Iterator[str]:
    kafka = seen.kafka
    if kafka is None or not kafka.is_reached:
        yield "Kafka was not reached: who owns what, the lag, and what is held are unknown."
    else:
        yield from _in_short_of_kafka(kafka, account)
    yield from in_short_of_resources(seen.kube)
    if seen.all_unseen:
        unseen = counted(len(seen.all_unseen), "thing")
        yield f"{unseen} could not be seen, so this account is incomplete (see below)."


def _in_short_of_kafka(kafka: KafkaSeen, account: Account) -> Iterator[str]:
    if kafka.gates is None:
        yield "It is unknown whether any partition is held: the control topic could not be read."
    elif account.held:
        holders = {h.holder.name for p in account.held for h in p.holds}
        yield (
            f"{counted(len(account.held), 'partition')} of {len(account.partitions)} "
            f"{'is' if len(account.held) == 1 else 'are'} held, by {counted(len(holders), 'holder')}."
        )
    elif kafka.has_control_topics:
        yield "No partition is held."
    limited = sum(bool(p.limits) for p in account.partitions)
    if limited:
        yield (
            f"{counted(limited, 'partition')} {'has' if limited == 1 else 'have'} a limit: from some offset "
            "on, nothing is delivered."
        )
    group = account.group
    if group is None:
        yield "It is unknown whether the group has members."
    elif not group.members and group.type not in (GroupType.STREAMS, GroupType.SHARE):
        yield (
            "The group has no members, so nobody reads as a member. Consumers that assign partitions to "
            "themselves can't be seen."
        )
    elif group.state is not GroupState.STABLE and group.members:
        yield f"The group is not stable: its coordinator says {group.state.value}."
    if any(p.is_pending for p in account.partitions):
        yield "A transaction that commits offsets of the group is open."


# --- the group --------------------------------------------------------------------------------------------------------


def _state(seen: Seen, account: Account) -> Iterator[str]:
    kafka = seen.kafka
    if kafka is None or not kafka.is_reached:
        return
    if account.group is not None:
        yield from _described(account.group, bool(kafka.committed))
    if kafka.committed is None:
        yield "Its committed offsets are unknown."
        return
    known = [p for p in account.partitions if p.lag is not None]
    if known:
        yield (
            f"It has committed offsets for {counted(len(kafka.committed), 'partition')}. Its lag, "
            f"counted in offsets from there to the ends of the logs, is {counted(account.lag, 'record')}."
        )
        worst = sorted((p for p in known if p.lag), key=lambda p: (-(p.lag or 0), p.partition))[:_MOST_LAGS]
        if worst:
            told = (f"{visible(str(p.partition))} {p.lag:,} (committed {p.committed}, end {p.log_end})" for p in worst)
            yield f"The largest lags: {listed(told)}."
    yield from _odd_partitions(kafka, account)


def _described(group: Group, has_offsets: bool) -> Iterator[str]:
    name = quoted(group.group_id)
    if group.type in (GroupType.STREAMS, GroupType.SHARE):
        yield f"Group {name} is a {group.type.value} group, whose members can't be seen here."
    elif group.state is GroupState.DEAD and not has_offsets:
        yield f"The brokers know no group {name}: it has neither members nor committed offsets."
    elif group.state is GroupState.DEAD:
        yield f"Group {name} has committed offsets, but no members."
    else:
        assignor = f", assignor {visible(group.assignor)}" if group.assignor else ""
        members = counted(len(group.members), "member")
        yield f"Group {name} is {group.state.value} ({group.type.value} protocol{assignor}), with {members}."
    if group.state.is_rebalancing:
        yield "While the group rebalances, its coordinator does not say who owns what."


def _odd_partitions(kafka: KafkaSeen, account: Account) -> Iterator[str]:
    without = [p.partition for p in account.partitions if p.committed is None and not p.is_gone and p.owner is not None]
    if without:
        yield f"No offset is committed for {partitions_text(without)}: their lag is unknown."
    lost = [
        p.partition
        for p in account.partitions
        if p.committed is not None and p.log_start is not None and p.committed < p.log_start
    ]
    if lost:
        yield f"The committed offsets of {partitions_text(lost)} are before the start of the log: records were deleted."
    beyond = [
        p.partition
        for p in account.partitions
        if p.committed is not None and p.log_end is not None and p.committed > p.log_end
    ]
    if beyond:
        yield f"The committed offsets of {partitions_text(beyond)} are past the end of the log."
    if kafka.gone:
        yield f"{partitions_text(kafka.gone)} do not exist, or may not be described."
    if kafka.pending is None:
        yield "It is unknown whether a transaction that commits its offsets is open."
    elif kafka.pending:
        yield (
            f"A transaction that commits offsets of {partitions_text(kafka.pending)} is open. Consumers "
            "that use only stable offsets (as Java's do) do not begin to read there until it ends."
        )


# --- owners -----------------------------------------------------------------------------------------------------------


def _owners(account: Account) -> Iterator[str]:
    for told in account.members[:_MOST_MEMBERS]:
        yield _member(told)
    if len(account.members) > _MOST_MEMBERS:
        yield (
            f"There {'is' if len(account.members) - _MOST_MEMBERS == 1 else 'are'} "
            f"{counted(len(account.members) - _MOST_MEMBERS, 'more member')}: -o json has all of them."
        )
    group = account.group
    if group is None or not group.members or group.state.is_rebalancing:
        return
    unowned = [p.partition for p in account.partitions if p.owner is None and not p.is_gone]
    if unowned:
        yield f"No member owns {partitions_text(unowned)}."


def _member(told: MemberTold) -> str:
    agent = {
        True: "runs the agent",
        False: "has acknowledged nothing: it runs no agent, or has only just joined",
        None: "unknown whether it runs the agent",
    }[told.runs_agent]
    if not told.partitions:
        return f"{member_text(told.member)} ({agent}) owns no partition."
    lags = [p.lag for p in told.partitions]
    lag = f"{counted(sum(n for n in lags if n is not None), 'record')} of lag"
    unknown = sum(n is None for n in lags)
    lag = f"{lag}, and an unknown lag of {counted(unknown, 'partition')}" if unknown else lag
    return (
        f"{member_text(told.member)} ({agent}) owns {partitions_text([p.partition for p in told.partitions])}: {lag}."
    )


# --- holds ------------------------------------------------------------------------------------------------------------

_Alike = tuple[tuple[tuple[str, str], ...], Flow | None, str]


def _held(seen: Seen, account: Account) -> Iterator[str]:
    kafka = seen.kafka
    if kafka is None or not kafka.is_reached or kafka.gates is None:
        return
    topic = quoted(kafka.control_topic)
    if not kafka.has_control_topics:
        yield (
            f"There is no control topic {topic} on this cluster, or Tidegate is not allowed to read it, so no hold was "
            "seen."
        )
        return
    alike: defaultdict[_Alike, list[PartitionTold]] = defaultdict(list)
    for p in account.held:
        owner = p.owner.member_id if p.owner is not None else ""
        flow = p.standing.flow if p.standing is not None else None
        alike[tuple((h.holder.name, h.reason) for h in p.holds), flow, owner].append(p)
    for partitions in alike.values():
        yield from _held_alike(partitions, seen.kube, seen.at)
    for p in account.partitions:
        for limit in p.limits:
            why = f": {quoted(limit.reason)}" if limit.reason else ""
            yield (
                f"{visible(str(p.partition))} is delivered only before offset {limit.offset}, because of a "
                f"limit of {quoted(limit.holder)}{why}."
            )
    if not account.held and not any(p.limits for p in account.partitions):
        yield f"Nothing, according to the control topic {topic}."
    if kafka.unreadable:
        yield (
            f"{counted(kafka.unreadable, 'record')} of the control topics can't be read by this version of Tidegate."
        )


def _held_alike(partitions: list[PartitionTold], kube: KubeSeen | None, now: datetime) -> Iterator[str]:
    first, where = partitions[0], partitions_text([p.partition for p in partitions])
    for at, hold in enumerate(first.holds):
        since = [p.holds[at].since for p in partitions]
        known = [each for each in since if each is not None]
        reason = f": {quoted(hold.reason)}" if hold.reason else ", without a reason"
        by, at_least = holder_text(hold.holder, kube), time_text(min(known, default=None), now)
        yield f"{where}: held by {by} since {at_least}{reason}."
        yield f"  {_remedy(hold)}"
    yield f"  {_obeyed(partitions)}"


def _obeyed(partitions: list[PartitionTold]) -> str:
    """Whether the holds do what they are for."""
    standing = partitions[0].standing
    if standing is None:
        return "It is unknown whether this is obeyed, because the group could not be described."
    who = member_text(standing.owner) if standing.owner is not None else "a consumer that assigned it to itself"
    match standing.flow:
        case Flow.CLOSED:
            return f"Paused: {who} has acknowledged it{_stopped_at(partitions)}."
        case Flow.CLOSING:
            return f"Not paused yet: {who} runs the agent and has not acknowledged this hold."
        case Flow.UNOWNED:
            return "Paused, because nobody owns it. A member that runs the agent will obey once it owns it."
        case Flow.UNMANAGED:
            return (
                f"NOT paused: {who} has acknowledged nothing. It runs no agent and reads on, or has only just joined."
            )
        case Flow.UNDECIDED:
            return "It is unknown whether this is obeyed, because the group is rebalancing, which hides who owns what."
        case Flow.OPEN:
            return "Not held any more."
        case _:
            assert_never(standing.flow)


def _stopped_at(partitions: list[PartitionTold]) -> str:
    offsets = [(p.partition, p.standing.offset) for p in partitions if p.standing is not None]
    if len(offsets) == 1 and offsets[0][1] is not None:
        return f", at offset {offsets[0][1]}"
    return ""


def _remedy(hold: HoldTold) -> str:
    match hold.holder.kind:
        case HolderKind.PAUSE:
            return "It resumes when that pause is deleted, is suspended or is over."
        case HolderKind.RESET | HolderKind.DISCOVERY:
            return "It is released when the run ends."
        case HolderKind.RESET_BY_HAND:
            return "It is released when the command ends, or by the next reset of the group on that machine."
        case HolderKind.PAUSE_BY_HAND:
            return "`tidegate groups --resume` releases it."
        case HolderKind.PROGRAM:
            return "That program releases it, and so does `tidegate groups --release-all`."
        case _:
            assert_never(hold.holder.kind)


# --- claims -----------------------------------------------------------------------------------------------------------


def _claims(account: Account, now: datetime) -> Iterator[str]:
    has_it = True
    for claim in account.claims:
        whose = f"run {quoted(claim.run)}" + (f" ({quoted(claim.reason)})" if claim.reason else "")
        heard = f"last heard of at {time_text(claim.renewed_at, now)}, by the brokers' clock"
        if claim.has_lapsed:
            yield f"{whose} had the group or waited for it, and its claim has expired: {heard}."
        elif has_it:
            has_it = False
            late = (
                ". By this machine's clock, that is longer ago than its lease, so it may have died"
                if now - claim.renewed_at > claim.lease
                else ""
            )
            yield f"{whose} has the group: {heard}{late}."
        else:
            yield f"{whose} waits for its turn: {heard}."
