"""Looks at how a pause's group is led, and has it led or not, as was decided."""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_never

from tidegate.connection.live import Live
from tidegate.kafka.model import Seat
from tidegate.kube.ports import PAUSES, Kube, uid_of
from tidegate.leading.leaders import Leaders, Led
from tidegate.leading.wishes import Covers
from tidegate.pause.model import LeadGroup, LookedAtLead, StopLeading
from tidegate.resources.base import read_status
from tidegate.resources.leading import LeaderSeat
from tidegate.resources.pause import PauseStatus


@dataclass(frozen=True, slots=True)
class Leads:
    """``kube``: tells which other pauses have noted that they withhold something of the same group."""

    kube: Kube
    leaders: Leaders

    def look(
        self, pause_uid: str, group: str, record: LeaderSeat | None, live: Live | None, covers: Covers | None
    ) -> LookedAtLead:
        """``record``: the seat in the pause's status; ``live``: the connection as it is open now; ``covers``: what the
        pause is about, where it goes on.

        What was led through a connection that was deleted since is led no more, also where another one has its name.
        """
        led = Led(live.uid, group) if live is not None else None
        self.leaders.forget(pause_uid, but=led)
        session_s = self.leaders.pacing.session_s
        if led is None or live is None:
            return LookedAtLead(session_s=session_s, is_out_of_reach=True)
        found = self.leaders.look(led, pause_uid, live.finishing, covers)
        is_gone = record is not None and record.connection_uid != live.uid and found.wanted is None
        return LookedAtLead(found, session_s, is_out_of_reach=is_gone)

    def do(self, action: LeadGroup | StopLeading, pause_uid: str, live: Live) -> None:
        """Whether it is done the next look tells. Blocking."""
        led, record = Led(live.uid, action.group), action.known
        if record is not None and record.connection_uid != live.uid:
            record = None  # of a connection that was deleted since
        known = Seat(record.member_id, record.generation, record.assignor) if record is not None else None
        others = self._others(pause_uid, led) if known is not None else ()
        match action:
            case LeadGroup(partitions=partitions):
                self.leaders.want(led, live.finishing, pause_uid, partitions, known, others)
            case StopLeading():
                self.leaders.drop(led, live.finishing, pause_uid, known, others)
            case _:
                assert_never(action)

    def _others(self, pause_uid: str, led: Led) -> tuple[str, ...]:
        found = []
        for body in self.kube.list(PAUSES):
            if uid_of(body) == pause_uid or body["metadata"].get("deletionTimestamp"):
                continue
            record = read_status(PauseStatus, body).leader
            if record is not None and Led(record.connection_uid, str(body["spec"].get("group"))) == led:
                found.append(uid_of(body))
        return tuple(found)
