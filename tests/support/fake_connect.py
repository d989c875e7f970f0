"""Connect's workers in memory; `tests/contract/test_connect_workers.py` runs against them and real ones."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace

from tidegate.connect.ports import (
    FAILED,
    PAUSED,
    RUNNING,
    STOPPED,
    ConnectCluster,
    ConnectFailure,
    Connector,
    ConnectRefused,
    TargetState,
)

_STATES = {TargetState.RUNNING: RUNNING, TargetState.PAUSED: PAUSED, TargetState.STOPPED: STOPPED}


class FakeConnectWorkers:
    """Implements `tidegate.connect.ports.ConnectWorkers`, for one cluster. Thread-safe.

    `create`, `delete` and `asked` are what others do. ``told`` hears of each change of a connector. ``failure``: what
    each call ends with. ``before``: called before Tidegate sets a state, and may raise. ``stale``: what is told of a
    connector by a worker who has not read of its last change yet.
    """

    def __init__(self, *, knows_stop: bool = True) -> None:
        self._lock = threading.RLock()
        self._connectors: dict[str, Connector] = {}
        self._knows_stop = knows_stop
        self.failure: ConnectFailure | None = None
        self.stale: dict[str, Connector] = {}
        self.told: Callable[[Connector], None] = lambda _: None
        self.before: Callable[[str, TargetState], None] = lambda _name, _state: None

    # --- others -------------------------------------------------------------------------------------------------------

    def create(
        self, name: str, *, kind: str = "sink", group: str = "", state: str = RUNNING, task: str | None = None
    ) -> None:
        with self._lock:
            tasks = (task or state,) if state != STOPPED else ()
            self._connectors[name] = Connector(name, kind, state, tasks, group)

    def delete(self, name: str) -> None:
        with self._lock:
            del self._connectors[name]

    def asked(self, name: str, state: TargetState) -> None:
        """Somebody else asks for a state."""
        self._put(name, state)

    # --- the port -----------------------------------------------------------------------------------------------------

    def look(self, cluster: ConnectCluster, name: str) -> Connector | None:
        self._answers(cluster)
        with self._lock:
            return self.stale.get(name) or self._connectors.get(name)

    def can_stop(self, cluster: ConnectCluster, name: str) -> bool:
        # Workers tell of the path, whatever the name in it.
        self._answers(cluster)
        return self._knows_stop and bool(name)

    def set_state(self, cluster: ConnectCluster, name: str, state: TargetState) -> None:
        self.before(name, state)
        self._answers(cluster)
        with self._lock:
            if name not in self._connectors or (state is TargetState.STOPPED and not self._knows_stop):
                raise ConnectRefused(f"Connect cluster {cluster.name} at {cluster.url} has no connector {name}")
        self._put(name, state)

    def _answers(self, cluster: ConnectCluster) -> None:
        assert cluster.url.startswith("http")
        if self.failure is not None:
            raise self.failure

    def _put(self, name: str, state: TargetState) -> None:
        with self._lock:
            there = self._connectors[name]
            if there.state == FAILED:
                # Its tasks are what is asked for; it itself stays as it is until it is restarted.
                self._connectors[name] = replace(there, tasks=() if state is TargetState.STOPPED else there.tasks)
                return
            if there.state == STOPPED and state is TargetState.PAUSED:
                tasks: tuple[str, ...] = ()  # they are made once it runs
            else:
                tasks = () if state is TargetState.STOPPED else (_STATES[state],)
            changed = replace(there, state=_STATES[state], tasks=tasks)
            self._connectors[name] = changed
        self.told(changed)
