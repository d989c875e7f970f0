"""``KafkaConnection``: how a Kafka cluster is reached, and what resources may touch through it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated, Final, Self

from pydantic import AfterValidator, Field, StrictBool, StrictInt, model_validator

from tidegate.resources.base import (
    Count,
    GroupPattern,
    ResourceModel,
    ResourceName,
    SecretKey,
    SpecModel,
    StatusModel,
    TopicPattern,
    matching,
    problem,
    topic,
    unique,
)
from tidegate.resources.conditions import MAX_MESSAGE, Conditions

_ONE_TO_65535: Final = r"([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])"
_SERVER: Final = rf"([A-Za-z0-9]([A-Za-z0-9._-]{{0,252}})?|\[[0-9A-Fa-f:.]{{2,45}}\]):{_ONE_TO_65535}"

BootstrapServers = Annotated[
    str,
    matching(
        rf"{_SERVER}(,{_SERVER})*",
        "must be host:port, or several separated by commas without spaces, such as "
        "kafka-0.kafka:9093,kafka-1.kafka:9093 (no protocol in front, ports 1 to 65535)",
        most=4096,
    ),
]

ControlTopicName = Annotated[
    str,
    topic(
        r"[a-zA-Z0-9._-]+",
        "must be a topic name: letters, digits, '.', '_' and '-', 1 to 244 characters (the ack topic's name is this "
        "one with _acks behind it)",
        most=244,
    ),
]

# --- TLS and authentication -------------------------------------------------------------------------------------------


class CertificateSource(ResourceModel):
    """PEM certificates in a Secret: ``certificate`` is the key that holds them."""

    secret_name: ResourceName
    certificate: SecretKey


class TlsSpec(ResourceModel):
    """TLS to the brokers. Without ``trusted_certificates`` the system's authorities are trusted."""

    trusted_certificates: Annotated[tuple[CertificateSource, ...], Field(max_length=16)] = ()


class PasswordSource(ResourceModel):
    """A password in a Secret: ``password`` is the key that holds it."""

    secret_name: ResourceName
    password: SecretKey


class CertificateAndKeySource(ResourceModel):
    """A client certificate and its private key in a Secret, by their keys."""

    secret_name: ResourceName
    certificate: SecretKey
    key: SecretKey


class SecretKeySource(ResourceModel):
    """One value in a Secret."""

    secret_name: ResourceName
    key: SecretKey


class AuthenticationType(StrEnum):
    SCRAM_SHA_256 = "scram-sha-256"
    SCRAM_SHA_512 = "scram-sha-512"
    PLAIN = "plain"
    TLS = "tls"
    OAUTH = "oauth"

    @property
    def has_password(self) -> bool:
        return self in (AuthenticationType.SCRAM_SHA_256, AuthenticationType.SCRAM_SHA_512, AuthenticationType.PLAIN)


Credential = Annotated[
    str,
    matching(
        r"[^\x00-\x1f\x7f]+", "must be 1 to 255 characters without control characters, such as line breaks", most=255
    ),
]

TokenEndpoint = Annotated[
    str,
    matching(
        r"https?://[^\x00-\x20\x7f]+",
        "must be the http or https URL of the token endpoint, such as https://idp.example/oauth2/token, at most 2048 "
        "characters",
        most=2048,
    ),
]

OauthScope = Annotated[
    str,
    matching(
        r"[\x20-\x7e]+", "must be scopes in printable ASCII, separated by spaces, 1 to 1024 characters", most=1024
    ),
]


class AuthenticationSpec(ResourceModel):
    """Who Tidegate is to the brokers. Which fields belong depends on ``type``."""

    type: AuthenticationType
    username: Credential | None = None
    password_secret: PasswordSource | None = None
    certificate_and_key: CertificateAndKeySource | None = None
    token_endpoint_uri: TokenEndpoint | None = None
    client_id: Credential | None = None
    client_secret: SecretKeySource | None = None
    scope: OauthScope | None = None

    @model_validator(mode="after")
    def _fields_belong_to_type(self) -> Self:
        complaints = tuple(self._complaints())
        if complaints:
            raise problem("; ".join(complaints))
        return self

    def _complaints(self) -> Iterator[str]:
        password = (self.username, self.password_secret)
        if self.type.has_password and None in password:
            yield "types scram-sha-256, scram-sha-512 and plain need username and passwordSecret: add them"
        if not self.type.has_password and any(password):
            yield (
                "username and passwordSecret belong to the types scram-sha-256, scram-sha-512 and plain only: "
                "remove them or change the type"
            )
        if self.type is AuthenticationType.TLS and self.certificate_and_key is None:
            yield "type tls needs certificateAndKey: add it"
        if self.type is not AuthenticationType.TLS and self.certificate_and_key is not None:
            yield "certificateAndKey belongs to type tls only: remove it or change the type"
        oauth = (self.token_endpoint_uri, self.client_id, self.client_secret)
        if self.type is AuthenticationType.OAUTH and None in oauth:
            yield "type oauth needs tokenEndpointUri, clientId and clientSecret: add them"
        if self.type is not AuthenticationType.OAUTH and any((*oauth, self.scope)):
            yield (
                "tokenEndpointUri, clientId, clientSecret and scope belong to type oauth only: "
                "remove them or change the type"
            )


# --- properties -------------------------------------------------------------------------------------------------------

_CHOICES: Final = {
    "socket.keepalive.enable": ("true", "false"),
    "client.dns.lookup": ("use_all_dns_ips", "resolve_canonical_bootstrap_servers_only"),
    "broker.address.family": ("any", "v4", "v6"),
    "ssl.endpoint.identification.algorithm": ("https", "none"),
}
_MILLISECONDS: Final = (
    "broker.address.ttl",
    "connections.max.idle.ms",
    "metadata.max.age.ms",
    "reconnect.backoff.max.ms",
    "reconnect.backoff.ms",
    "request.timeout.ms",
    "retry.backoff.max.ms",
    "retry.backoff.ms",
    "socket.connection.setup.timeout.ms",
    "socket.timeout.ms",
)

ALLOWED_PROPERTIES: Final = tuple(sorted((*_CHOICES, *_MILLISECONDS, "client.id", "client.rack")))
"""The client settings that ``spec.properties`` may carry: none of them can redirect, unmask or weaken a connection's
authentication. ``ssl.endpoint.identification.algorithm: none`` is there for brokers whose certificate lacks their
name; whoever may write the connection may also change its servers."""


def _known_properties(properties: dict[str, str]) -> dict[str, str]:
    unknown = sorted(set(properties) - set(ALLOWED_PROPERTIES))
    if unknown:
        raise problem(
            f"only these client settings can be given: {', '.join(ALLOWED_PROPERTIES)}; remove the others "
            f"(servers, TLS and authentication have their own fields)"
        )
    return properties


def _usable_values(properties: dict[str, str]) -> dict[str, str]:
    for name, value in properties.items():
        if name in _MILLISECONDS and not re.fullmatch("[1-9][0-9]{0,6}", value):
            raise problem('times must be whole milliseconds from 1 to 9999999, in quotes, such as "20000"')
        if name in _CHOICES and value not in _CHOICES[name]:
            raise problem(
                "; ".join(f"{known} must be {', '.join(choices)}" for known, choices in _CHOICES.items())
                + "; each in quotes"
            )
        if not 1 <= len(value) <= 255:
            raise problem("values must have 1 to 255 characters")
    return properties


Properties = Annotated[
    dict[str, str], Field(max_length=32), AfterValidator(_known_properties), AfterValidator(_usable_values)
]

# --- the resource -----------------------------------------------------------------------------------------------------


class ControlTopicSpec(ResourceModel):
    """The control topic. ``replication_factor`` absent: 3, or the number of brokers where there are fewer."""

    name: ControlTopicName = "__tidegate"
    replication_factor: Annotated[StrictInt, Field(ge=1, le=32767)] | None = None


class AllowSpec(ResourceModel):
    """What resources may touch through this connection: patterns with ``*``.

    ``claims`` and ``secrets``: by name, what jobs of policies may be given for their snapshots. Whoever makes a policy
    may choose the job's image, and so would otherwise read every Secret of the namespace.
    """

    groups: Annotated[
        tuple[GroupPattern, ...],
        Field(min_length=1, max_length=100),
        unique(str, "must not repeat a pattern: remove the second one"),
    ] = ("*",)
    topics: Annotated[
        tuple[TopicPattern, ...],
        Field(min_length=1, max_length=100),
        unique(str, "must not repeat a pattern: remove the second one"),
    ] = ("*",)
    claims: Annotated[
        tuple[ResourceName, ...],
        Field(max_length=100),
        unique(str, "must not repeat a name: remove the second one"),
    ] = ()
    secrets: Annotated[
        tuple[ResourceName, ...],
        Field(max_length=100),
        unique(str, "must not repeat a name: remove the second one"),
    ] = ()


class KafkaConnectionSpec(SpecModel):
    """``KafkaConnection.spec``."""

    bootstrap_servers: BootstrapServers
    tls: TlsSpec | None = None
    authentication: AuthenticationSpec | None = None
    properties: Properties = Field(default_factory=dict)
    control_topic: ControlTopicSpec = ControlTopicSpec()
    allow: AllowSpec | None = None

    @model_validator(mode="after")
    def _client_certificate_needs_tls(self) -> Self:
        authentication = self.authentication
        if authentication is not None and authentication.type is AuthenticationType.TLS and self.tls is None:
            raise problem("authentication type tls needs TLS: add spec.tls (tls: {} trusts the system's authorities)")
        return self


class FeaturesStatus(ResourceModel):
    """What the brokers can do: the consumer protocol (KIP-848), the streams protocol (KIP-1071), native pause."""

    consumer_protocol: StrictBool = False
    streams_protocol: StrictBool = False
    native_pause: StrictBool = False


class GroupsKind(StrEnum):
    """Groups without members, and live ones by how their members join."""

    EMPTY = "Empty"
    CLASSIC = "Classic"
    CONSUMER = "Consumer"
    STREAMS = "Streams"


class CapabilitySupport(StrEnum):
    """``NOT_OFFERED``: the brokers have no such groups. ``UNKNOWN``: not found out, which keeps nothing from being
    tried."""

    SUPPORTED = "Supported"
    UNSUPPORTED = "Unsupported"
    NOT_OFFERED = "NotOffered"
    UNKNOWN = "Unknown"


class CapabilityStatus(ResourceModel):
    """Whether offsets of one kind of group can be reset there, and how that is known."""

    groups: GroupsKind
    support: CapabilitySupport
    reason: Annotated[str, Field(min_length=1, max_length=1024)]
    message: Annotated[str, Field(max_length=MAX_MESSAGE)]


class CapabilitiesStatus(ResourceModel):
    """What the brokers allow. ``resettable``: the kinds of group that can be reset, in one line for people; those with
    a question mark perhaps."""

    resettable: str
    resets: Annotated[tuple[CapabilityStatus, ...], Field(max_length=16)] = ()


class ConnectionStatus(StatusModel):
    """``KafkaConnection.status``."""

    cluster_id: str | None = None
    brokers: Count | None = None
    features: FeaturesStatus | None = None
    capabilities: CapabilitiesStatus | None = None
    conditions: Conditions = ()
