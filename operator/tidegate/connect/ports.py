"""What Tidegate needs of Kafka Connect: to see a connector, and to set the state that it shall have."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final, Protocol

RUNNING: Final = "RUNNING"
PAUSED: Final = "PAUSED"
STOPPED: Final = "STOPPED"
FAILED: Final = "FAILED"
"""States that Connect's status tells of; there are more, while it changes one to another."""


class TargetState(StrEnum):
    """What a connector can be asked to be, each the last part of the path that asks for it."""

    RUNNING = "resume"
    PAUSED = "pause"
    STOPPED = "stop"


@dataclass(frozen=True, slots=True)
class ConnectCluster:
    """How the workers of one cluster are reached. ``url`` is without a slash at its end.

    ``ca_file``: whom to trust instead of the system's authorities. ``password_file`` is read for each request, and is
    there where ``username`` is.
    """

    name: str
    url: str
    ca_file: Path | None = None
    username: str = ""
    password_file: Path | None = None


@dataclass(frozen=True, slots=True)
class Connector:
    """A connector as its workers tell of it. ``kind`` is ``sink`` or ``source``.

    ``state``: empty as long as nobody has told one. ``tasks``: their states. ``group``: the id of its tasks' consumer
    group as its configuration sets it; empty for none. The worker's own configuration may set another, which it does
    not tell.
    """

    name: str
    kind: str
    state: str
    tasks: tuple[str, ...]
    group: str = ""

    @property
    def consumer_group(self) -> str:
        """Connect's ``SinkUtils.consumerGroupId`` where the connector's configuration sets no other."""
        return self.group or f"connect-{self.name}"

    @property
    def is_stopped(self) -> bool:
        """Whether it is stopped and has no tasks. Just after a worker has died others may still tell of its tasks."""
        return self.state == STOPPED and not self.tasks


class ConnectFailure(Exception):
    """A request that was not answered as it should be. Its words have nothing of what was answered but the code."""


class ConnectUnavailable(ConnectFailure):
    """No answer, or one that says to come again: whether a change was made is unknown, and a look tells."""


class ConnectRefused(ConnectFailure):
    """The workers refuse it, or answer what they should not: somebody has to look at settings or rights."""


class ConnectWorkers(Protocol):
    """Blocking; each call is bounded in time. All raise ``ConnectFailure``."""

    def look(self, cluster: ConnectCluster, name: str) -> Connector | None:
        """The connector; ``None``: there is none of this name."""

    def can_stop(self, cluster: ConnectCluster, name: str) -> bool:
        """Whether the workers know how to stop a connector: since Kafka 3.5 (KIP-875). Changes nothing."""

    def set_state(self, cluster: ConnectCluster, name: str, state: TargetState) -> None:
        """Ask for a state. What was asked for already is no error; a connector that is gone is."""
