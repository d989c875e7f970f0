"""Which of an operator's shards looks after a Kafka cluster, and after what goes through connections to it. Pure."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from tidegate.kube.ports import Object, name_of, namespace_of


@dataclass(frozen=True, slots=True)
class Shard:
    """One of ``count``, by its ``number`` from 0. Each has processes, and a Lease, of its own.

    Connections to one cluster belong to one shard, so that runs of one group meet in one process. Which one, follows
    from the cluster's id alone.
    """

    number: int = 0
    count: int = 1

    def has(self, key: str) -> bool:
        digest = hashlib.sha256(key.encode(errors="replace")).digest()
        return int.from_bytes(digest[:8]) % self.count == self.number


def key_of(connection: Object, seen: str = "") -> str:
    """What tells the shard of a KafkaConnection: its cluster's id, and while that is not known its name.

    ``seen``: the cluster's id as this process has seen it itself, before it is in the status.
    """
    in_status = str((connection.get("status") or {}).get("clusterId") or "")
    return seen or in_status or named(namespace_of(connection), name_of(connection))


def named(namespace: str, connection: str) -> str:
    return f"{namespace}/{connection}"
