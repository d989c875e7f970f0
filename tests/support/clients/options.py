"""How an ordinary consumer is configured, said once and translated for each client library. Pure: no I/O.

What is not asked for is not set, so that a consumer runs with its library's own defaults.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias, assert_never

ConfigValue: TypeAlias = str | int | float | bool | list[str]
"""A client setting's value, as it goes into a worker's JSON."""


class ClientKind(StrEnum):
    """The client libraries that the fleets are made of."""

    LIBRDKAFKA = "librdkafka"
    JAVA = "java"
    AIOKAFKA = "aiokafka"
    KAFKA_PYTHON = "kafka-python"
    FRANZ_GO = "franz-go"
    SARAMA = "sarama"
    KAFKA_GO = "kafka-go"
    KAFKAJS = "kafkajs"


class CommitMode(StrEnum):
    """How the application commits.

    ``AUTO``: the library does, at its own interval. ``SYNC`` / ``ASYNC``: by hand, ``commit_every_s`` after the first
    record that is not committed yet. ``WORKER``: records are kept for ``hold_s`` and then their offsets are committed
    explicitly, also when the partition is no longer this member's. ``TRANSACTIONS``: it sends the offsets of what it
    still owns to a transaction, which it commits ``hold_s`` later, whatever has happened since, and polls on meanwhile;
    then comes the next one. ``ABORTS``: every other of these is aborted. ``NONE``: never.
    """

    AUTO = "auto"
    SYNC = "sync"
    ASYNC = "async"
    WORKER = "worker"
    TRANSACTIONS = "transactions"
    ABORTS = "aborts"
    NONE = "none"


class GroupProtocol(StrEnum):
    """``group.protocol``: the classic protocol, or KIP-848's."""

    CLASSIC = "classic"
    CONSUMER = "consumer"


_JAVA_ASSIGNORS = {
    "range": "org.apache.kafka.clients.consumer.RangeAssignor",
    "roundrobin": "org.apache.kafka.clients.consumer.RoundRobinAssignor",
    "sticky": "org.apache.kafka.clients.consumer.StickyAssignor",
    "cooperative-sticky": "org.apache.kafka.clients.consumer.CooperativeStickyAssignor",
}

CLASSIC_ASSIGNORS: Mapping[ClientKind, frozenset[str]] = {
    ClientKind.LIBRDKAFKA: frozenset({"range", "roundrobin", "cooperative-sticky"}),
    ClientKind.JAVA: frozenset(_JAVA_ASSIGNORS),
    ClientKind.AIOKAFKA: frozenset({"range", "roundrobin", "sticky"}),
    ClientKind.KAFKA_PYTHON: frozenset({"range", "roundrobin", "sticky", "cooperative-sticky"}),
    ClientKind.FRANZ_GO: frozenset({"range", "roundrobin", "sticky", "cooperative-sticky"}),
    ClientKind.SARAMA: frozenset({"range", "roundrobin", "sticky"}),
    ClientKind.KAFKA_GO: frozenset({"range", "roundrobin"}),
    ClientKind.KAFKAJS: frozenset({"roundrobin"}),
}
"""The client-side assignors each library has, by Kafka's short names."""

REMOTE_ASSIGNORS = frozenset({"uniform", "range"})
"""The assignors a broker has for KIP-848 groups."""

WITHOUT_STATIC_MEMBERS = frozenset({ClientKind.KAFKA_GO, ClientKind.KAFKAJS})

TRANSACTIONAL = frozenset({ClientKind.LIBRDKAFKA, ClientKind.JAVA, ClientKind.AIOKAFKA})

_COMMITS: Mapping[ClientKind, frozenset[CommitMode]] = {
    ClientKind.SARAMA: frozenset({CommitMode.AUTO, CommitMode.SYNC, CommitMode.NONE}),
    ClientKind.KAFKA_GO: frozenset({CommitMode.AUTO, CommitMode.SYNC, CommitMode.WORKER, CommitMode.NONE}),
    ClientKind.KAFKAJS: frozenset({CommitMode.AUTO, CommitMode.SYNC, CommitMode.WORKER, CommitMode.NONE}),
}
"""sarama commits what was marked in a session, and nothing after that; kafka-go tells nobody of commits that it makes
later."""

_DEFAULT_HEARTBEAT_S = 3.0  # the same in all of the libraries


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerOptions:
    """One group's consumers. Times are seconds; ``None`` leaves the library's default.

    ``static`` gives each member a ``group.instance.id``, its name. ``client_ids`` gives it a ``client.id``, its name
    too; otherwise the id is the library's default. ``config`` holds further settings in the library's own spelling
    (``fetch.min.bytes`` for librdkafka and Java, ``fetch_min_bytes`` for the Python libraries; consumers of Go
    libraries and kafkajs know only the settings that these options make) and wins over all others.

    ``stagger_s`` is the time between the starts of successive members. In a KIP-848 group each member's heartbeats run
    from its own join, so they stay out of phase. In a classic group every rebalance answers all members at once and so
    brings their heartbeats into phase again; there ``heartbeat_spread`` (0 to 0.5) gives the members different
    heartbeat intervals, from the full one down to ``(1 - spread)`` of it, and the phases drift apart within a few
    beats.

    Raises ``ValueError`` for what the library cannot do.
    """

    kind: ClientKind
    bootstrap: str
    group: str
    topics: tuple[str, ...]
    protocol: GroupProtocol = GroupProtocol.CLASSIC
    assignor: str | None = None
    static: bool = False
    isolation: str | None = None
    heartbeat_s: float | None = None
    heartbeat_spread: float = 0.0
    session_s: float | None = None
    commit: CommitMode = CommitMode.AUTO
    auto_commit_interval_s: float | None = None
    commit_every_s: float = 0.2
    hold_s: float = 3.0
    auto_offset_reset: str | None = "earliest"
    client_ids: bool = False
    stagger_s: float = 0.0
    config: Mapping[str, ConfigValue] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.commit in (CommitMode.TRANSACTIONS, CommitMode.ABORTS) and self.kind not in TRANSACTIONAL:
            raise ValueError(f"the tests' {self.kind} consumers commit no transactions")
        if self.kind in WITHOUT_STATIC_MEMBERS and self.static:
            raise ValueError(f"{self.kind} has no static members")
        if self.commit not in _COMMITS.get(self.kind, CommitMode):
            raise ValueError(f"the tests' {self.kind} consumers do not commit by {self.commit}")
        if self.protocol is GroupProtocol.CONSUMER:
            if self.kind not in (ClientKind.LIBRDKAFKA, ClientKind.JAVA):
                raise ValueError(f"{self.kind} does not speak the consumer protocol (KIP-848)")
            if self.heartbeat_s is not None or self.heartbeat_spread or self.session_s is not None:
                raise ValueError("in a KIP-848 group the broker sets heartbeat and session (group.consumer.*)")
        known = REMOTE_ASSIGNORS if self.protocol is GroupProtocol.CONSUMER else CLASSIC_ASSIGNORS[self.kind]
        if self.assignor is not None and self.assignor not in known:
            raise ValueError(f"{self.kind}, {self.protocol}: no assignor {self.assignor!r}; it has {sorted(known)}")
        if not 0 <= self.heartbeat_spread <= 0.5:
            raise ValueError(f"heartbeat_spread is {self.heartbeat_spread}; it must be from 0 to 0.5")

    def member_config(self, name: str, index: int, members: int) -> dict[str, ConfigValue]:
        """The library's own settings for member `index` (from 0) of `members`, without deserializers and callbacks."""
        match self.kind:
            case (
                ClientKind.LIBRDKAFKA
                | ClientKind.JAVA
                | ClientKind.FRANZ_GO
                | ClientKind.SARAMA
                | ClientKind.KAFKA_GO
                | ClientKind.KAFKAJS
            ):
                config = self._dotted(name)
            case ClientKind.AIOKAFKA | ClientKind.KAFKA_PYTHON:
                config = self._keywords(name)
            case _:
                assert_never(self.kind)
        heartbeat = self._heartbeat_ms(index, members)
        if heartbeat is not None:
            config[self._spelled("heartbeat.interval.ms")] = heartbeat
        return {**config, **self.config}

    def _spelled(self, setting: str) -> str:
        python = self.kind in (ClientKind.AIOKAFKA, ClientKind.KAFKA_PYTHON)
        return setting.replace(".", "_") if python else setting

    def _heartbeat_ms(self, index: int, members: int) -> int | None:
        if self.heartbeat_s is None and not self.heartbeat_spread:
            return None
        whole = self.heartbeat_s if self.heartbeat_s is not None else _DEFAULT_HEARTBEAT_S
        share = index / (members - 1) if members > 1 else 0.0
        return round(whole * 1000 * (1 - self.heartbeat_spread * share))

    def _shared(self, name: str) -> dict[str, ConfigValue]:
        auto = self.commit is CommitMode.AUTO
        config: dict[str, ConfigValue] = {"bootstrap.servers": self.bootstrap, "group.id": self.group}
        if not auto:
            config["enable.auto.commit"] = False
        elif self.auto_commit_interval_s is not None:
            config["auto.commit.interval.ms"] = round(self.auto_commit_interval_s * 1000)
        if self.auto_offset_reset is not None:
            config["auto.offset.reset"] = self.auto_offset_reset
        if self.static:
            config["group.instance.id"] = name
        if self.client_ids:
            config["client.id"] = name
        if self.isolation is not None:
            config["isolation.level"] = self.isolation
        if self.session_s is not None:
            config["session.timeout.ms"] = round(self.session_s * 1000)
        return config

    def _dotted(self, name: str) -> dict[str, ConfigValue]:
        config = self._shared(name)
        if self.protocol is GroupProtocol.CONSUMER:
            config["group.protocol"] = "consumer"
            if self.assignor is not None:
                config["group.remote.assignor"] = self.assignor
        elif self.assignor is not None:
            java = self.kind is ClientKind.JAVA
            config["partition.assignment.strategy"] = _JAVA_ASSIGNORS[self.assignor] if java else self.assignor
        return config

    def _keywords(self, name: str) -> dict[str, ConfigValue]:
        config = {key.replace(".", "_"): value for key, value in self._shared(name).items()}
        if self.assignor is not None:
            config["partition_assignment_strategy"] = [self.assignor]  # the worker names the library's class
        return config


def member_names(members: int | Sequence[str]) -> tuple[str, ...]:
    """``c0, c1, ...`` for a number, the names themselves otherwise. Raises ``ValueError`` for doubled names."""
    names = tuple(f"c{i}" for i in range(members)) if isinstance(members, int) else tuple(members)
    if len(set(names)) != len(names):
        raise ValueError(f"two members have one name: {names}")
    return names
