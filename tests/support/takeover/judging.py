"""Judges what came of resets and pauses whose leaders were killed or frozen. Pure: values in, complaints out.

Each function returns a line for each thing that is not as it should be, and nothing where all is.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from support.deliveries import Delivery, Partition
from tidegate.resources.reset import ResetPhase

FINAL: Final = ("Succeeded", "Failed", "RolledBack")

_OF_A_PAUSE: Final = re.compile(r"(Pending )?(Pausing )?(Paused )?(Resuming )?(Resumed )?")
"""A pause goes forward only; each phase but its end may have gone by unseen."""


@dataclass(frozen=True, slots=True)
class HoldRecord:
    """A record of the control topic about one hold; `t`: its LogAppendTime, epoch seconds; else it is released."""

    t: float
    key: str
    holds: bool


@dataclass(frozen=True, slots=True)
class Standing:
    """A pause of one partition. Times are epoch seconds by this machine's clock, as are the broker's.

    `paused`: when its status was seen to say so. `let_go`: when somebody asked for its end.
    """

    name: str
    hold: str
    partition: Partition
    paused: float
    let_go: float


@dataclass(frozen=True, slots=True)
class Mark:
    """A run's own commit of its marker, which is in the transaction of its targets; `t`: epoch seconds."""

    t: float
    round: int


@dataclass(frozen=True, slots=True)
class Write:
    """A request that an API server has carried out, or refused with `code`; `t`: when it came, epoch seconds."""

    t: float
    who: str
    verb: str
    what: str
    code: int


def deduplicated(phases: Iterable[str]) -> list[str]:
    """Each phase once for as long as it lasted."""
    found: list[str] = []
    for phase in phases:
        if not found or found[-1] != phase:
            found.append(phase)
    return found


def flapping_reset(name: str, statuses: Sequence[Mapping[str, Any]], journal: Sequence[str]) -> Iterator[str]:
    """A status tells what the run's journal does, in its order, and an end is the end. `journal`: its phases."""
    told = deduplicated(p for status in statuses if (p := str(status.get("phase", ""))))
    # A phase may last too short to be told, and each look at the run shows its newest.
    truth = iter([ResetPhase.PENDING, ResetPhase.PLANNING, *journal])
    if not all(any(phase == known for known in truth) for phase in told if phase not in FINAL):
        yield f"reset {name}: its status went {' → '.join(told)}, and its run {' → '.join(deduplicated(journal))}"
    if any(phase in FINAL for phase in told[:-1]):
        yield f"reset {name}: its status went on after an end: {' → '.join(told)}"
    complete = deduplicated(s for status in statuses if (s := _condition(status, "Complete").get("status", "")))
    if len([each for each in complete if each != "Unknown"]) > 1 or "Unknown" in complete[1:]:
        yield f"reset {name}: its condition Complete went {' → '.join(complete)}"
    stalled = [s for s in statuses if _condition(s, "Stalled").get("status") == "True"]
    if any(status.get("phase") not in FINAL for status in stalled):
        yield f"reset {name}: it was called stalled before its end"


def flapping_pause(name: str, statuses: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """It goes from phase to phase once, and what it says of a partition that is paused stays."""
    told = deduplicated(p for status in statuses if (p := str(status.get("phase", ""))))
    if _OF_A_PAUSE.fullmatch("".join(f"{phase} " for phase in told)) is None:
        yield f"pause {name}: its status went {' → '.join(told)}"
    paused = [status for status in statuses if status.get("phase") == "Paused"]
    for what in ("paused", "method"):
        said = deduplicated(str(status.get(what)) for status in paused)
        if len(said) > 1:
            yield f"pause {name}: while it was paused, {what} was {' → '.join(said)}"
    since = deduplicated(str([row.get("since") for row in status.get("partitions", ())]) for status in paused)
    if len(since) > 1:
        yield f"pause {name}: while it was paused, it said since {' → '.join(since)}"
    for kind in ("Ready", "Paused"):
        said = deduplicated(_condition(status, kind).get("status", "") for status in paused)
        if said not in ([], ["True"]):
            yield f"pause {name}: while it was paused, condition {kind} was {' → '.join(said)}"


def _condition(status: Mapping[str, Any], kind: str) -> Mapping[str, str]:
    return next((c for c in status.get("conditions", ()) if c["type"] == kind), {})


def told_twice(name: str, reasons: Sequence[str]) -> Iterator[str]:
    """Each Event once."""
    if len(reasons) != len(set(reasons)):
        yield f"{name}: an Event was recorded twice: {', '.join(reasons)}"


def lost_holds(pauses: Sequence[Standing], records: Sequence[HoldRecord]) -> Iterator[str]:
    """Each pause's hold was written once, and released once, after somebody had asked for that."""
    for pause in pauses:
        mine = [record for record in records if record.key == pause.hold]
        if [record.holds for record in mine] != [True, False]:
            told = ", ".join("held" if record.holds else "released" for record in mine)
            yield f"pause {pause.name}: its hold was {told or 'never written'}"
        elif mine[1].t < pause.let_go:
            yield f"pause {pause.name}: its hold was released {pause.let_go - mine[1].t:.3f} s before its end"


def left_held(records: Sequence[HoldRecord]) -> Iterator[str]:
    """In the end nothing is held."""
    for key, holds in {record.key: record.holds for record in records}.items():
        if holds:
            yield f"{key} is held still"


def read_while_paused(pauses: Sequence[Standing], deliveries: Iterable[Delivery]) -> Iterator[str]:
    """Nothing was read of a partition from when its pause was called paused until somebody asked for its end."""
    by_partition: dict[Partition, list[Delivery]] = {}
    for delivery in deliveries:
        by_partition.setdefault((delivery.topic, delivery.partition), []).append(delivery)
    for pause in pauses:
        leaked = [d for d in by_partition.get(pause.partition, ()) if pause.paused < d.t < pause.let_go]
        if leaked:
            yield f"pause {pause.name}: {len(leaked)} records were read while it stood, the first at {leaked[0].t:.3f}"


def read_twice(whose: str, deliveries: Iterable[Delivery]) -> Iterator[str]:
    """Of a group that is only paused, no record is read again."""
    read = [(d.topic, d.partition, d.offset) for d in deliveries]
    if len(read) != len(set(read)):
        yield f"{whose}: {len(read) - len(set(read))} records were read twice"


def applied_twice(
    name: str, marks: Sequence[Mark], rounds: Collection[int], over: float, *, once: bool
) -> Iterator[str]:
    """What the run committed belongs to rounds of its journal, in their order, and ends with the run.

    `over`: when its result was stored, epoch seconds. `once`: nobody is held while it commits, so that each round
    commits once; otherwise a round repeats its commit where an owner's last one came after it.
    """
    numbers = [mark.round for mark in marks]
    if not set(numbers) <= set(rounds):
        yield f"reset {name}: it committed rounds {sorted(set(numbers))}, and its journal has {sorted(rounds)}"
    if numbers != sorted(numbers):
        yield f"reset {name}: it committed its rounds in the order {numbers}"
    if once and len(numbers) != len(set(numbers)):
        yield f"reset {name}: it committed a round twice: {numbers}"
    late = [mark for mark in marks if mark.t > over]
    if late:
        yield f"reset {name}: it committed {late[0].t - over:.3f} s after its end"


def late_writes(who: str, woken: float, writes: Iterable[Write]) -> Iterator[str]:
    """Who was frozen and replaced changes nothing when it wakes."""
    for write in writes:
        if write.who == who and write.t > woken and write.code < 300:
            yield f"{who}, {write.t - woken:.3f} s after it woke: {write.verb} {write.what}"
