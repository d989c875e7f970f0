"""The audit topic of a real cluster (``tidegate.audit.ports``)."""

from __future__ import annotations

import time
from typing import Any, Final

from tidegate.audit.records import AuditTopic
from tidegate.audit.topic import CONFIG, complaints
from tidegate.kafka.errors import NotAuthorized, Refused, Unavailable
from tidegate.kafka.rights import on_topics, to_grant
from tidegate.kafka_client.cluster_requests import create_topics, describe_topics, topic_settings
from tidegate.kafka_client.codes import NO_ERROR, NOT_AUTHORIZED, UNKNOWN_PARTITION, check
from tidegate.kafka_client.taking_leader import leader_that_takes
from tidegate.kafka_client.wire import Wire

_WRITE: Final = 4
"""``AclOperation.WRITE`` among the operations that Metadata tells (KIP-430)."""
_DEFAULT_REPLICATION: Final = 3
_ALREADY_EXISTS: Final = 36
_MADE_KNOWN_S: Final = 15.0
_POLL_S: Final = 0.05


class KafkaAuditLog:
    """Implements ``tidegate.audit.ports.AuditLog``."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    def ensure(self, topic: AuditTopic) -> tuple[str, ...]:
        name = topic.name
        described = self._described(name)
        if described is None:
            self._create(topic)
            described = self._made(name)
        _check_write(name, described)
        what = f"read the settings of topic {name}"
        [(code, config)] = topic_settings(self._wire, [name], what=what).values()
        if code in NOT_AUTHORIZED:
            # Whether it may be written is known, and more is not needed.
            return (f"its settings can't be checked{to_grant(on_topics('DescribeConfigs', [name]), None)}",)
        check(code, what)
        return complaints(name, config)

    def check_writable(self, name: str) -> None:
        described = self._described(name)
        if described is None:
            raise Refused(
                f"write to audit topic {name}: there is no such topic, or the principal may not describe it"
                f"{to_grant(on_topics('Write', [name]), None)}"
            )
        _check_write(name, described)
        leader_that_takes(self._wire, name, f"write to audit topic {name}", self._wire.deadline())

    def _described(self, name: str) -> Any | None:
        [topic] = describe_topics(self._wire, [name], what=f"describe topic {name}", authorized=True).topics
        if topic.error_code in UNKNOWN_PARTITION:
            return None
        if topic.error_code != NO_ERROR:
            check(topic.error_code, f"describe topic {name}", *on_topics("Write", [name]))
        return topic

    def _create(self, topic: AuditTopic) -> None:
        name, what = topic.name, f"create topic {topic.name}"
        factor = topic.replication_factor
        if factor is None:
            factor = min(_DEFAULT_REPLICATION, len(describe_topics(self._wire, [], what=what).brokers))
        made = create_topics(self._wire, {name: CONFIG}, partitions=1, replication_factor=factor, what=what)
        for code, said in made.values():
            if code != _ALREADY_EXISTS:
                check(code, what, *on_topics("Create", [name]), said=said)

    def _made(self, name: str) -> Any:
        """A broker hears of a new topic some moments after the controller has made it."""
        deadline = time.monotonic() + _MADE_KNOWN_S
        while (described := self._described(name)) is None:
            if time.monotonic() > deadline:
                raise Unavailable(
                    f"topic {name} is not there, or the principal may not describe it"
                    f"{to_grant(on_topics('Write', [name]), None)}"
                )
            time.sleep(_POLL_S)
        return described


def _check_write(name: str, described: Any) -> None:
    told = described.authorized_operations
    if told is not None and _WRITE not in told:
        needed = on_topics("Write", [name])
        raise NotAuthorized(f"write to audit topic {name}: the principal may not{to_grant(needed, None)}")
