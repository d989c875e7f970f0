"""How a cluster is reached: a value without secrets, and the files that hold them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Final

ACKS_SUFFIX: Final = "_acks"


def acks_topic(control_topic: str) -> str:
    """The ack topic that belongs to a control topic, where none is named."""
    return control_topic + ACKS_SUFFIX


class AuthenticationType(StrEnum):
    NONE = "none"
    SCRAM_SHA_256 = "scram-sha-256"
    SCRAM_SHA_512 = "scram-sha-512"
    PLAIN = "plain"
    TLS = "tls"
    OAUTH = "oauth"


@dataclass(frozen=True, slots=True)
class Authentication:
    """Who we are. Secrets are named by the files that hold them, never by value: this travels to Spark executors."""

    type: AuthenticationType = AuthenticationType.NONE
    username: str | None = None
    password_file: Path | None = None
    certificate_file: Path | None = None
    key_file: Path | None = None
    token_endpoint_uri: str | None = None
    client_id: str | None = None
    client_secret_file: Path | None = None
    scope: str | None = None


@dataclass(frozen=True, slots=True)
class Registry:
    """The schema registry of a cluster's topics. ``ca_file``: as a connection's; the password is named by its file."""

    url: str
    ca_file: Path | None = None
    username: str | None = None
    password_file: Path | None = None


@dataclass(frozen=True, slots=True)
class Connection:
    """Where the cluster is. ``ca_file``: PEM of trusted certificates; ``tls`` without it trusts the system's.

    ``control_topic``: where holds are written; ``ack_topic``: where the agents' acks are read, absent: the control
    topic's name followed by ``_acks``; ``control_replication_factor``: what the two get when they have to be created,
    absent: 3, or the number of brokers where there are fewer.
    """

    bootstrap_servers: str
    tls: bool = False
    ca_file: Path | None = None
    authentication: Authentication = field(default_factory=Authentication)
    properties: Mapping[str, str] = field(default_factory=dict)
    control_topic: str = "__tidegate"
    ack_topic: str | None = None
    control_replication_factor: int | None = None

    @property
    def acks_topic(self) -> str:
        """The ack topic, whether it was named or not."""
        return self.ack_topic or acks_topic(self.control_topic)
