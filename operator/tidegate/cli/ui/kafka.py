"""Looks at the groups of one Kafka cluster for the page: that of the KafkaConnection which the command line names.

Servers that a resource names are asked only where the person who started the page has named that resource, and
credentials go only to servers that the command line names: whoever may write a KafkaConnection gets neither.
"""

from __future__ import annotations

import argparse
import threading
from collections.abc import Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final, Protocol

from tidegate.clock import Clock
from tidegate.incident.seen import KafkaSeen, Named
from tidegate.kafka.errors import KafkaFailure
from tidegate.kafka.model import ListedGroup
from tidegate.printable import visible

if TYPE_CHECKING:
    from tidegate.cli.screen import Screen
    from tidegate.kafka.connection import Connection
    from tidegate.kube.client import KubeClient

_FRESH_S: Final = 1.0
"""So long one look serves all tabs."""
_MOST_KEPT: Final = 64

NOT_ASKED: Final = (
    "Kafka is not asked: start the page with --connection, and with --bootstrap-server and "
    "--command-config if the cluster needs credentials"
)


class Eye(Protocol):
    """``connection``: the KafkaConnection whose cluster is asked; ``None``: none is, as ``why`` says."""

    connection: Named | None
    why: str

    def group(self, group_id: str) -> KafkaSeen:
        """Raises nothing for what Kafka refuses or does not answer."""
        ...

    def groups(self) -> Sequence[ListedGroup]:
        """All of them, by name. Raises ``KafkaFailure``."""
        ...

    def close(self) -> None: ...


class ClosedEye:
    """Asks nobody."""

    connection: Named | None = None

    def __init__(self, why: str = NOT_ASKED) -> None:
        self.why = why

    def group(self, group_id: str) -> KafkaSeen:
        raise KafkaFailure(f"group {group_id}: {self.why}")

    def groups(self) -> Sequence[ListedGroup]:
        return ()

    def close(self) -> None:
        pass


class KafkaEye:
    """One client for as long as the page is served; one question at a time. ``until``: closes what it needs."""

    why = ""

    def __init__(self, connection: Connection, named: Named, clock: Clock, until: ExitStack) -> None:
        from tidegate.kafka_client.client import KafkaClient
        from tidegate.kafka_client.group_details import KafkaGroupDetails

        self.connection: Named | None = named
        self._control_topic = connection.control_topic
        self._clock = clock
        self._turn = threading.Lock()
        self._kafka = KafkaClient(connection)
        self._details = KafkaGroupDetails(connection)
        self._until = until
        self._kept: dict[str, tuple[float, KafkaSeen]] = {}
        self._listing: tuple[float, Sequence[ListedGroup]] | None = None

    def group(self, group_id: str) -> KafkaSeen:
        from tidegate.incident.gather_kafka import look_at_kafka

        with self._turn:
            kept = self._kept.get(group_id)
            if kept is not None and self._clock.monotonic() - kept[0] < _FRESH_S:
                return kept[1]
            seen = look_at_kafka(self._kafka, group_id, self._control_topic)
            if len(self._kept) >= _MOST_KEPT:
                self._kept.clear()
            self._kept[group_id] = self._clock.monotonic(), seen
            return seen

    def groups(self) -> Sequence[ListedGroup]:
        with self._turn:
            if self._listing is None or self._clock.monotonic() - self._listing[0] >= _FRESH_S:
                found = sorted(self._details.listing(), key=lambda group: group.group_id)
                self._listing = self._clock.monotonic(), found
            return self._listing[1]

    def close(self) -> None:
        with self._turn:
            self._kafka.close()
            self._details.close()
        self._until.close()


def eye(options: argparse.Namespace, kube: KubeClient, clock: Clock, screen: Screen) -> Eye:
    """Raises ``UsageError``."""
    from tidegate.cli.errors import UsageError
    from tidegate.cli.reaching import named, namespace_of_options
    from tidegate.cli.why import Look
    from tidegate.kafka_client.settings import BadConnection

    if options.connection is None:
        return ClosedEye()
    with ExitStack() as until:
        connection, unseen = Look(options, screen, until).reach(kube)
        if connection is None:
            return ClosedEye("; ".join(visible(f"{u.what}: {u.why}") for u in unseen) or NOT_ASKED)
        try:
            return KafkaEye(
                connection, named(options.connection, namespace_of_options(options)), clock, until.pop_all()
            )
        except BadConnection as error:
            raise UsageError(str(error)) from error
