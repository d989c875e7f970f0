"""Which holds were left behind: this operator's own, of a pause or a run that is over or gone. Pure.

A control topic may be shared: with people, with their programs, with operators of other Kubernetes clusters. Whose a
hold is tells the uid of the KafkaConnection that it was made through, which no two Kubernetes clusters share: a pause
has it in its holder, a run in its record. A run's hold of an earlier version does not say it, and is known by its
resource's uid for as long as there is that resource. What is not known to be this operator's own is never left behind,
nor is what a person or a program holds, the runs of ``tidegate groups`` included.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from tidegate.control.gates import Gates, Held, Limited
from tidegate.control.records import HoldKey, LimitKey
from tidegate.kafka.model import TopicPartition
from tidegate.pause.holds import pause_of
from tidegate.reset.applying.gates import BY_DISCOVERY, BY_HAND, run_of


class Kind(StrEnum):
    """What had the holds."""

    PAUSE = "pause"
    RESET = "reset"


@dataclass(frozen=True, slots=True)
class There:
    """What there is, looked at after the holds were read: uids.

    ``pauses``, ``requesters``: of resources that go through the connection; the latter ask for resets. ``runs``: of all
    resets under way.
    ``unsure``: of requesters whose status cannot be read, so that any of their runs may be under way. ``backfills``: of
    the runs of discovery in this process; there is no other that has any.
    """

    pauses: frozenset[str] = frozenset()
    requesters: frozenset[str] = frozenset()
    runs: frozenset[str] = frozenset()
    unsure: frozenset[str] = frozenset()
    backfills: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Suspect:
    """A hold that a look has found left behind: its epoch, and when the first such look was (seconds)."""

    epoch: int
    since_s: float


@dataclass(frozen=True, slots=True)
class LeftBehind:
    """All that one holder has left behind of one group, sorted. ``epoch``: of the newest of these holds."""

    holder: str
    group: str
    keys: tuple[HoldKey | LimitKey, ...]
    epoch: int
    why: str

    @property
    def kind(self) -> Kind:
        return Kind.PAUSE if run_of(self.holder) is None else Kind.RESET

    @property
    def partitions(self) -> tuple[TopicPartition, ...]:
        return tuple(sorted({key.topic_partition for key in self.keys}))


def may_be_left(gates: Gates, connection_uid: str, pauses: frozenset[str] = frozenset()) -> bool:
    """Whether anything is held that an operator could have left behind: only then it takes a look at what there is.

    ``pauses``: uids of those that are known to be there.
    """
    holders = {key.holder for key in (*gates.holds, *gates.limits)}
    return any(
        pause_of(holder, connection_uid) not in pauses for holder in holders if _is_operators(holder, connection_uid)
    )


def judge(
    gates: Gates,
    connection_uid: str,
    there: There,
    suspects: Mapping[HoldKey | LimitKey, Suspect],
    now_s: float,
    settle_s: float,
) -> tuple[tuple[LeftBehind, ...], Mapping[HoldKey | LimitKey, Suspect]]:
    """What is to be released, and what is suspected from now on.

    ``gates`` were read before ``there`` was looked at. ``suspects``: of the looks before; a hold is released once it
    was found left behind, untouched, in a look ``settle_s`` or longer ago as well.
    """
    found: dict[HoldKey | LimitKey, Suspect] = {}
    ripe: defaultdict[tuple[str, str, str], list[HoldKey | LimitKey]] = defaultdict(list)
    here: dict[HoldKey | LimitKey, Held | Limited] = dict(gates.holds) | dict(gates.limits)
    for key, held in here.items():
        why = why_left(key.holder, held, connection_uid, there)
        if not why:
            continue
        before = suspects.get(key)
        same = before is not None and before.epoch == held.epoch
        found[key] = before if before is not None and same else Suspect(held.epoch, now_s)
        if now_s - found[key].since_s >= settle_s:
            ripe[key.holder, key.group, why].append(key)
    return tuple(
        LeftBehind(holder, group, _in_order(keys), max(here[key].epoch for key in keys), why)
        for (holder, group, why), keys in sorted(ripe.items())
    ), found


def _in_order(keys: Iterable[HoldKey | LimitKey]) -> tuple[HoldKey | LimitKey, ...]:
    """Limits first: whoever is let go of goes on."""
    return tuple(sorted(keys, key=lambda key: (isinstance(key, HoldKey), key.topic, key.partition)))


def why_left(holder: str, held: Held | Limited, connection_uid: str, there: There) -> str:
    """Why nobody will let go of it, for a person; empty: somebody may, or it is not known to be this operator's."""
    says = held.hold if isinstance(held, Held) else held.limit
    if says.is_newer:
        return ""  # whether its resource is over is for the version to say that has written it
    pause_uid = pause_of(holder, connection_uid)
    if pause_uid is not None:
        return "" if pause_uid in there.pauses else "its ConsumerGroupPause is gone, or uses another connection"
    run_uid = run_of(holder)
    if run_uid is None or not _is_operators(holder, connection_uid):
        return ""
    first, _, rest = run_uid.partition("/")
    through = says.connection
    if first == BY_DISCOVERY:
        if through != connection_uid or run_uid in there.backfills:
            return ""
        return "the operator that sent owners back to the start of new partitions ended before it was done"
    is_own = through == connection_uid if through else first in there.requesters
    if not is_own or first in there.unsure or any(run_uid == u or run_uid.startswith(f"{u}/") for u in there.runs):
        return ""
    run_id = rest.partition("/")[0]
    return (
        f"reset {run_id} is over"
        if first in there.requesters
        else f"the resource that asked for reset {run_id} is gone"
    )


def _is_operators(holder: str, connection_uid: str) -> bool:
    run_uid = run_of(holder)
    return pause_of(holder, connection_uid) is not None or (
        run_uid is not None and run_uid.partition("/")[0] != BY_HAND
    )
