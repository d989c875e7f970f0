"""What the audit log needs of a Kafka cluster, beside the transactions that records are appended in."""

from __future__ import annotations

from typing import Protocol

from tidegate.audit.records import AuditTopic


class AuditLog(Protocol):
    """Audit topics of one cluster.

    Calls block, are bounded in time and thread-safe; they raise subclasses of ``tidegate.kafka.errors.KafkaFailure``.
    """

    def ensure(self, topic: AuditTopic) -> tuple[str, ...]:
        """Create the topic where it is missing, and change nothing of one that is there; what is wrong with it.

        Raises ``NotAuthorized`` where it may not be created, described or written.
        """
        ...

    def check_writable(self, name: str) -> None:
        """Raise ``Refused`` where there is no such topic, ``NotAuthorized`` where the brokers say that the principal
        may not write it, and ``Unavailable`` where nobody could just now. Writes nothing."""
        ...
