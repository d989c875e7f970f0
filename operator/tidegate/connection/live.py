"""The connections that are open, for whoever acts through one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from tidegate.audit.records import AuditTopic
from tidegate.cluster import Kafka
from tidegate.connect.ports import ConnectCluster
from tidegate.connection.read_only import ReadOnlyKafka
from tidegate.connection.sharing import allowed_from, nothing
from tidegate.control.topics import TopicsChecked
from tidegate.kafka.connection import Connection, Registry, acks_topic
from tidegate.kube.ports import Object, connection_named, namespace_of
from tidegate.resources.connection import AllowSpec


@dataclass(frozen=True, slots=True)
class Live:
    """An open connection. ``kafka`` belongs to this process; ``connection`` says how a job of this machine connects,
    ``mounted`` how a job in a pod does, with ``secrets`` (name → keys) mounted.

    ``observes``: nothing is begun through it that changes anything (:mod:`tidegate.connection.read_only`).
    ``frozen``: who has frozen it, when and why, so that nothing new begins (:mod:`tidegate.connection.freezing`), or
    empty.
    ``trouble``: reason and message while the connection is not ready. ``cluster_id`` is empty until it once was.
    ``topics``: about the control and ack topics, once somebody needed them.

    ``user``: the namespace of the resource that was given it, whose ``allow`` is what that may touch; empty: nobody's.
    ``withdrawn``: it may not be used from there (any more), so that only what was begun is ended.
    """

    uid: str
    namespace: str
    name: str
    digest: str
    connection: Connection
    mounted: Connection | None
    secrets: Mapping[str, tuple[str, ...]]
    allow: AllowSpec
    kafka: Kafka
    observes: bool = False
    frozen: str = ""
    cluster_id: str = ""
    trouble: tuple[str, str] | None = ("Connecting", "the operator has not reached the cluster yet")
    topics: TopicsChecked | None = None
    audit: AuditTopic | None = None
    """Where changes of offsets are recorded; ``None``: nowhere."""
    connect: Mapping[str, ConnectCluster] = field(default_factory=dict)
    """The Kafka Connect clusters, by name."""
    connect_lacks: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """Those that can't be reached, by name: reason and message."""
    borrowed: bool = False
    """It is another shard's, and open here for reading only, because a reset of ours translates offsets from it."""
    user: str = ""
    withdrawn: bool = False
    registry: Registry | None = None
    """The schema registry, as a job of this machine reaches it; ``None``: the connection has none."""
    mounted_registry: Registry | None = None
    """As a job in a pod reaches it, with ``registry_secrets`` mounted."""
    registry_secrets: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def is_foreign(self) -> bool:
        """Whether it is used from another namespace, which must not get its credentials."""
        return self.user not in ("", self.namespace)

    @property
    def label(self) -> str:
        """What its user calls it."""
        return f"{self.namespace}/{self.name}" if self.is_foreign else self.name

    @property
    def own_topics(self) -> frozenset[str]:
        """The control topic, the ack topics and the audit topic: nobody's records but Tidegate's and its agents'."""
        control = self.connection.control_topic
        audit = [self.audit.name] if self.audit is not None else []
        return frozenset({control, acks_topic(control), self.connection.acks_topic, *audit})

    @property
    def finishing(self) -> Kafka:
        """To end what was begun: as ``kafka``, and more than that where the connection ``observes`` meanwhile."""
        return self.kafka.beneath if isinstance(self.kafka, ReadOnlyKafka) else self.kafka


def unmounted(connections: Iterable[Live]) -> list[str]:
    """Names of those whose files can't be mounted into a job's pod."""
    return [live.name for live in connections if live.mounted is None]


class LiveConnections:
    """Open connections by namespace and name."""

    def __init__(self) -> None:
        self._live: dict[tuple[str, str], Live] = {}

    def get(self, namespace: str, name: str) -> Live | None:
        """For those who belong to the connection itself, or to its namespace."""
        return self._live.get((namespace, name))

    def used_from(self, user: str, connection: tuple[str, str]) -> Live | None:
        """A connection, by namespace and name, with what resources in namespace ``user`` may touch through it; ``None``
        where there is none for them."""
        live = self._live.get(connection)
        allow = allowed_from(live.allow, live.namespace, user) if live is not None else None
        return replace(live, allow=allow, user=user) if live is not None and allow is not None else None

    def used_by(self, body: Object) -> Live | None:
        """The connection that a resource names, with what it may touch through it; ``None`` where there is none for it,
        so that it begins nothing."""
        return self.used_from(namespace_of(body), connection_named(body))

    def to_finish(self, body: Object) -> Live | None:
        """The same, for a resource that has begun something: also where it may not use the connection any more. Then
        nothing is allowed, and only ``finishing`` changes anything."""
        used, live = self.used_by(body), self._live.get(connection_named(body))
        if used is not None or live is None:
            return used
        why = f"KafkaConnection {live.name} may not be used from this namespace"
        beneath = ReadOnlyKafka(live.finishing, live.name, why)
        allow = nothing(live.allow)
        return replace(live, kafka=beneath, allow=allow, user=namespace_of(body), withdrawn=True)

    def is_frozen(self, live: Live) -> bool:
        """Whether the connection is frozen now, for whoever was given it a while ago. Thread-safe: what is there is
        replaced and never changed, and a dict is looked into once."""
        newest = self.get(live.namespace, live.name)
        return newest is not None and newest.uid == live.uid and bool(newest.frozen)

    def put(self, live: Live) -> None:
        self._live[live.namespace, live.name] = live

    def drop(self, namespace: str, name: str, *, uid: str) -> Live | None:
        """Take out the connection of this uid; a younger one of the same name stays."""
        live = self._live.get((namespace, name))
        if live is None or live.uid != uid:
            return None
        return self._live.pop((namespace, name))

    def reached(self, live: Live, cluster_id: str) -> None:
        self.put(replace(live, cluster_id=cluster_id, trouble=None))

    def troubled(self, live: Live, reason: str, message: str) -> None:
        self.put(replace(live, trouble=(reason, message)))

    def topics_checked(self, live: Live, checked: TopicsChecked) -> None:
        """Note it about this connection as it is open now; one that was closed meanwhile is nobody's concern."""
        newest = self.get(live.namespace, live.name)
        if newest is not None and newest.uid == live.uid:
            self.put(replace(newest, topics=checked))

    def cluster_id(self, namespace: str, name: str) -> str:
        """The cluster's as this process has seen it; empty where it has not."""
        live = self._live.get((namespace, name))
        return live.cluster_id if live is not None else ""

    def __iter__(self) -> Iterator[Live]:
        return iter(tuple(self._live.values()))
