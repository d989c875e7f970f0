"""Looks at a pause's connector, and asks Connect's workers for what was decided about it."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import Final

from tidegate.connect.ports import ConnectFailure, ConnectUnavailable, ConnectWorkers, TargetState
from tidegate.connection.live import Live
from tidegate.kube.ports import Kube
from tidegate.pause.model import LookedAtConnector, SetConnector
from tidegate.pause.others import connector_of, other_pauses
from tidegate.resources.conditions import Refusal
from tidegate.resources.pause import PausePhase, StoppedConnector

CONNECT_CLUSTER_NOT_FOUND: Final = "ConnectClusterNotFound"
CONNECT_CLUSTER_UNUSABLE: Final = "ConnectClusterUnusable"
CONNECT_UNAVAILABLE: Final = "ConnectUnavailable"
CONNECT_REFUSES: Final = "ConnectRefuses"

LATE_S: Final = 90.0
"""For so long workers may keep a request that they have not answered: their own time-out
(``DEFAULT_REST_REQUEST_TIMEOUT_MS`` of Connect's REST server)."""

_MAY_BE_ASKED: Final = (PausePhase.PAUSING, PausePhase.RESUMING)
"""What an earlier process has recorded of a connector that it had not seen stopped, as far as anybody knows."""

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class StopperMemory:
    """What this process knows of a pause's connector beyond Connect itself; losing it costs little but a try.

    ``refused``: what its workers have refused to do, and when, in seconds. ``asked``: to what they have agreed
    last, and when. ``unanswered``: what they have not agreed to since. ``late_stop``: when a stop was asked for that
    may come yet. ``has_looked``: whether this process has looked at it before.
    """

    refused: tuple[Refusal, float] | None = field(default=None)
    asked: tuple[TargetState, float] | None = field(default=None)
    unanswered: tuple[TargetState, Refusal] | None = field(default=None)
    late_stop: float | None = field(default=None)
    has_looked: bool = field(default=False)


@dataclass(frozen=True, slots=True)
class Stopper:
    """Blocking. ``retry_s``: for so long something that was refused is not tried again, nor is asked for again what
    the workers have agreed to."""

    kube: Kube
    workers: ConnectWorkers
    retry_s: float

    def look(
        self,
        pause_uid: str,
        live: Live,
        cluster: str,
        name: str,
        record: StoppedConnector | None,
        memory: StopperMemory,
        now_s: float,
    ) -> LookedAtConnector:
        """The connector ``name`` of that Connect cluster and, where that matters, what other pauses have recorded."""
        if not memory.has_looked and record is not None and record.phase in _MAY_BE_ASKED:
            # An earlier process may have asked it to stop just before it ended, and have got no answer.
            memory.late_stop = now_s
        memory.has_looked = True
        reached = live.connect.get(cluster)
        if reached is None:
            return LookedAtConnector(live.uid, trouble=_out_of_reach(live, cluster))
        if record is None:
            memory.asked = None
        if memory.late_stop is not None:
            memory.late_stop = min(memory.late_stop, now_s)  # of a clock that was set back: all of it again
        if memory.refused is not None and _is_within(self.retry_s, memory.refused[1], now_s):
            return LookedAtConnector(live.uid, reached, trouble=memory.refused[0])
        try:
            connector = self.workers.look(reached, name)
            is_new = record is None and connector is not None
            can_stop = self.workers.can_stop(reached, name) if is_new else None
        except ConnectFailure as failure:
            return LookedAtConnector(live.uid, reached, trouble=_refusal(failure, live, cluster))
        # It is about to be recorded, or to go back.
        depends = connector is not None and (record is None or record.phase is PausePhase.RESUMING)
        others = self._records_of_others(pause_uid, (live.uid, cluster, name)) if depends else ()
        return LookedAtConnector(
            live.uid,
            reached,
            connector,
            can_stop=can_stop,
            others=others,
            asked=memory.asked[0] if memory.asked is not None else None,
            is_recent=memory.asked is not None and _is_within(self.retry_s, memory.asked[1], now_s),
            unanswered=memory.unanswered,
            may_stop_yet=memory.late_stop is not None and _is_within(LATE_S, memory.late_stop, now_s),
        )

    def do(self, action: SetConnector, live: Live, memory: StopperMemory, now_s: float) -> None:
        """Whether it is done the next look tells."""
        try:
            self.workers.set_state(action.cluster, action.name, action.state)
        except ConnectFailure as failure:
            memory.asked = None
            refusal = _refusal(failure, live, action.cluster.name)
            if not isinstance(failure, ConnectUnavailable):
                memory.refused = refusal, now_s
            else:
                memory.unanswered = action.state, refusal
                memory.late_stop = now_s if action.state is TargetState.STOPPED else memory.late_stop
            _log.warning("connector %s of Connect cluster %s: %s", action.name, action.cluster.name, failure)
            return
        memory.refused = memory.unanswered = None
        memory.asked = action.state, now_s
        if action.state is TargetState.STOPPED:
            memory.late_stop = None  # the leader works off stops one after the other
        _log.info("connector %s of Connect cluster %s: %s", action.name, action.cluster.name, action.state.value)

    def _records_of_others(self, pause_uid: str, key: tuple[str, str, str]) -> tuple[StoppedConnector, ...]:
        records = (connector_of(body) for body in other_pauses(self.kube, pause_uid))
        return tuple(r for r in records if r is not None and (r.connection_uid, r.cluster, r.name) == key)


def _is_within(seconds: float, since_s: float, now_s: float) -> bool:
    # A clock that was set back does not prolong it.
    return 0 <= now_s - since_s < seconds


def _out_of_reach(live: Live, cluster: str) -> Refusal:
    """Why a Connect cluster of this name can't be asked."""
    lack = live.connect_lacks.get(cluster)
    if lack is None:
        text = f"KafkaConnection {live.label} has no Connect cluster {cluster}: add it to spec.connect there"
        return Refusal(CONNECT_CLUSTER_NOT_FOUND, text)
    # What its Secrets are called is no business of who uses it from elsewhere.
    why = "a Secret that it needs can't be used: ask whoever owns the connection" if live.is_foreign else lack[1]
    return Refusal(CONNECT_CLUSTER_UNUSABLE, f"Connect cluster {cluster} of KafkaConnection {live.label}: {why}")


def _refusal(failure: ConnectFailure, live: Live, cluster: str) -> Refusal:
    told = str(failure)
    if live.is_foreign:
        # Where its workers are, and how they answer, is no business of who uses it from elsewhere.
        told = f"Connect cluster {cluster} of KafkaConnection {live.label} did not answer as it should"
    if isinstance(failure, ConnectUnavailable):
        return Refusal(CONNECT_UNAVAILABLE, f"{told}: this pause waits for it")
    return Refusal(CONNECT_REFUSES, f"{told}: ask whoever owns the connection" if live.is_foreign else told)
