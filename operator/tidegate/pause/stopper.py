"""Looks at a pause's connector, and asks Connect's workers for what was decided about it."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import Final

from tidegate.connect.ports import ConnectFailure, ConnectUnavailable, ConnectWorkers
from tidegate.connection.live import Live
from tidegate.kube.ports import PAUSES, Kube, uid_of
from tidegate.pause.model import LookedAtConnector, SetConnector
from tidegate.pause.plan import FINALIZER
from tidegate.resources.base import read_status
from tidegate.resources.conditions import Refusal
from tidegate.resources.pause import PauseStatus, StoppedConnector

CONNECT_CLUSTER_NOT_FOUND: Final = "ConnectClusterNotFound"
CONNECT_UNAVAILABLE: Final = "ConnectUnavailable"
CONNECT_REFUSES: Final = "ConnectRefuses"

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class StopperMemory:
    """What this process knows of a pause's connector beyond Connect itself; losing it costs nothing but a try.

    ``refused``: what its workers have refused to do, and when, by the loop's clock.
    """

    refused: tuple[Refusal, float] | None = field(default=None)


@dataclass(frozen=True, slots=True)
class Stopper:
    """Blocking. ``retry_s``: for so long something that was refused is not tried again."""

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
        reached = live.connect.get(cluster)
        if reached is None:
            text = f"KafkaConnection {live.label} has no Connect cluster {cluster}: add it to spec.connect there"
            return LookedAtConnector(live.uid, trouble=Refusal(CONNECT_CLUSTER_NOT_FOUND, text))
        if memory.refused is not None and now_s - memory.refused[1] < self.retry_s:
            return LookedAtConnector(live.uid, reached, trouble=memory.refused[0])
        try:
            connector = self.workers.look(reached, name)
            is_new = record is None and connector is not None
            can_stop = self.workers.can_stop(reached, name) if is_new else None
        except ConnectFailure as failure:
            return LookedAtConnector(live.uid, reached, trouble=_refusal(failure))
        others = self._records_of_others(pause_uid, (live.uid, cluster, name))
        return LookedAtConnector(live.uid, reached, connector, can_stop=can_stop, others=others)

    def do(self, action: SetConnector, memory: StopperMemory, now_s: float) -> None:
        """Whether it is done the next look tells."""
        try:
            self.workers.set_state(action.cluster, action.name, action.state)
        except ConnectFailure as failure:
            if not isinstance(failure, ConnectUnavailable):
                memory.refused = _refusal(failure), now_s
            _log.warning("connector %s of Connect cluster %s: %s", action.name, action.cluster.name, failure)
            return
        memory.refused = None
        _log.info("connector %s of Connect cluster %s: %s", action.name, action.cluster.name, action.state.value)

    def _records_of_others(self, pause_uid: str, key: tuple[str, str, str]) -> tuple[StoppedConnector, ...]:
        others = []
        for body in self.kube.list(PAUSES):
            # One without the finalizer has done nothing yet, and may go without a word: nothing is left to it.
            if uid_of(body) == pause_uid or FINALIZER not in (body["metadata"].get("finalizers") or ()):
                continue
            record = read_status(PauseStatus, body).connector
            if record is not None and (record.connection_uid, record.cluster, record.name) == key:
                others.append(record)
        return tuple(others)


def _refusal(failure: ConnectFailure) -> Refusal:
    if isinstance(failure, ConnectUnavailable):
        return Refusal(CONNECT_UNAVAILABLE, f"{failure}: it waits for it")
    return Refusal(CONNECT_REFUSES, str(failure))
