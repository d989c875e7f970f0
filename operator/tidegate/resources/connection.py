"""``KafkaConnection``: how a Kafka cluster is reached, and what resources may touch through it."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final

from pydantic import Field, StrictBool, StrictInt

from tidegate.resources.audit import AuditSpec
from tidegate.resources.authentication import AuthenticationSpec, AuthenticationType, TlsSpec
from tidegate.resources.base import ResourceModel, SpecModel, StatusModel
from tidegate.resources.client_properties import Properties
from tidegate.resources.conditions import MAX_MESSAGE, Conditions
from tidegate.resources.connect import ConnectClusters
from tidegate.resources.fields import Count, GroupPattern, NamespaceName, ResourceName, TopicPattern
from tidegate.resources.freeze import FreezeSpec
from tidegate.resources.rules import (
    described,
    list_map,
    matching,
    rule,
    topic,
    unique,
    unique_by_server,
)
from tidegate.resources.schema_registry import SchemaRegistrySpec

_ONE_TO_65535: Final = r"([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])"
_SERVER: Final = rf"([A-Za-z0-9][A-Za-z0-9._-]{{0,252}}|\[[0-9A-Fa-f:.]{{2,45}}\]):{_ONE_TO_65535}"

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
        "one followed by _acks)",
        most=244,
    ),
]

AckTopicName = Annotated[
    str,
    topic(r"[a-zA-Z0-9._-]+", "must be a topic name: letters, digits, '.', '_' and '-', 1 to 249 characters", most=249),
]

# --- the resource -----------------------------------------------------------------------------------------------------


class ControlTopicSpec(ResourceModel):
    """The control topic, and the ack topic in which agents answer."""

    name: ControlTopicName = "__tidegate"
    """The topic's name."""

    ack_topic: AckTopicName | None = None
    """The name of the ack topic. This connection's managed consumers write to it, and Tidegate reads it. The default is
    the control topic's name followed by _acks. Tenants that share a control topic should each have an ack topic of
    their own, because whoever may write to a Kafka topic may write any record to it."""

    replication_factor: Annotated[StrictInt, Field(ge=1, le=32767)] | None = None
    """The replication factor of both topics. The default is three, or the number of brokers if there are fewer."""

    @rule(
        "!has(self.ackTopic) || self.ackTopic != self.name",
        "ackTopic must not be the control topic: acks in it have no effect",
    )
    def _two_topics(self) -> bool:
        return self.ack_topic != self.name


_NAMESPACES: Final = 250
_PATTERNS: Final = 16


class AllowedNamespace(ResourceModel):
    """What the resources of one other namespace may touch through this connection: what these lists and the
    connection's own lists both allow."""

    name: NamespaceName
    """The name of the namespace."""

    groups: Annotated[
        tuple[GroupPattern, ...],
        Field(min_length=1, max_length=_PATTERNS),
        unique("must not repeat a pattern: remove the second one"),
    ] = ("*",)
    """The groups that may be used from that namespace, out of those that allow.groups allows, as names or patterns with
    '*'. Without this field, all of them."""

    topics: Annotated[
        tuple[TopicPattern, ...],
        Field(min_length=1, max_length=_PATTERNS),
        unique("must not repeat a pattern: remove the second one"),
    ] = ("*",)
    """The topics that may be used from that namespace, out of those that allow.topics allows, as names or patterns with
    '*'. Without this field, all of them."""


class QuotaSpec(ResourceModel):
    """How much the OffsetResets of a namespace may do through this connection, each namespace for itself. A field that
    is absent limits nothing. A reset that undoes another one waits for such resets only, may have all partitions of
    that one, and may once read again what that one had skipped, in addition to recordsReplayedPerReset."""

    concurrent_resets: Annotated[StrictInt, Field(ge=1, le=1000)] | None = None
    """How many resets may run at once. Others wait, and the oldest begins first. A reset does not run while its plan
    waits for approval."""

    partitions_per_reset: Annotated[StrictInt, Field(ge=1, le=100_000_000)] | None = None
    """How many partitions the plan of one reset may have, over all groups of a fleet. A plan with more is refused."""

    concurrent_partitions: Annotated[StrictInt, Field(ge=1, le=100_000_000)] | None = None
    """How many partitions all resets that run may have together. A reset that has no plan yet counts as
    partitionsPerReset, which is required with this field."""

    records_replayed_per_reset: Annotated[StrictInt, Field(ge=0, le=1_000_000_000_000_000)] | None = None
    """How many records may be read again because of one reset's plan, over all groups of a fleet. A plan with more is
    refused."""

    @rule(
        "!has(self.concurrentPartitions) || "
        "(has(self.partitionsPerReset) && self.partitionsPerReset <= self.concurrentPartitions)",
        "concurrentPartitions needs partitionsPerReset, which must not be larger: a reset without a plan counts as "
        "that many",
    )
    def _a_reset_fits(self) -> bool:
        together, each = self.concurrent_partitions, self.partitions_per_reset
        return together is None or (each is not None and each <= together)


class AllowSpec(ResourceModel):
    """What resources may touch through this connection.

    Claims and secrets are allowed by name: whoever makes a policy may choose the image of its jobs, and so would
    otherwise read every Secret of the namespace.
    """

    groups: Annotated[
        tuple[GroupPattern, ...],
        Field(min_length=1, max_length=100),
        unique("must not repeat a pattern: remove the second one"),
    ] = ("*",)
    """The groups that may be used, as names or patterns with '*'."""

    topics: Annotated[
        tuple[TopicPattern, ...],
        Field(min_length=1, max_length=100),
        unique("must not repeat a pattern: remove the second one"),
    ] = ("*",)
    """The topics that may be used, as names or patterns with '*'."""

    claims: Annotated[
        tuple[Annotated[ResourceName, described("The name of one PersistentVolumeClaim in this namespace.")], ...],
        Field(max_length=100),
        unique("must not repeat a name: remove the second one"),
    ] = ()
    """The PersistentVolumeClaims on which OffsetBackups may keep backups, and from which resets may read them. Without
    this field, none."""

    secrets: Annotated[
        tuple[Annotated[ResourceName, described("The name of one Secret in this namespace.")], ...],
        Field(max_length=100),
        unique("must not repeat a name: remove the second one"),
    ] = ()
    """The Secrets that OffsetBackups and resets may name as credentials for backups in S3. Without this field, none."""

    dead_letter_topics: Annotated[
        tuple[TopicPattern, ...],
        Field(max_length=100),
        unique("must not repeat a pattern: remove the second one"),
    ] = ()
    """The topics that resets of this namespace may name as dead-letter topics, as names or patterns with '*'. Without
    this field, none. Whoever may read such a topic may read the records that are copied there."""

    namespaces: Annotated[
        tuple[AllowedNamespace, ...],
        Field(max_length=_NAMESPACES),
        unique_by_server("must name each namespace once: remove the second entry", "name"),
    ] = ()
    """The other namespaces whose ConsumerGroupPauses, OffsetResets and OffsetResetPolicies may use this connection,
    through connectionRef.namespace. The connection's credentials stay in this namespace. Other namespaces can't use
    claims, secrets or whatever needs Spark. An entry for this namespace itself narrows what its own resources may use.
    Without this field, none."""

    quota: QuotaSpec | None = None
    """How much resets may do. Without this field, the operator's default applies (operator.quota of the chart); if it
    has none, resets are not limited. An empty object limits nothing."""


class KafkaConnectionSpec(SpecModel):
    """How the cluster is reached."""

    bootstrap_servers: BootstrapServers
    """The bootstrap servers, as host:port, several separated by commas without spaces. They must be reachable from the
    operator and from Spark's pods."""

    tls: TlsSpec | None = None
    """TLS to the brokers. Without this field connections are in plain text; with an empty object the system's
    certificate authorities are trusted."""

    authentication: AuthenticationSpec | None = None
    """How Tidegate authenticates to the brokers. Without this field it does not authenticate."""

    properties: Properties = Field(default_factory=dict)
    """Settings of the Kafka client. Only settings that cannot redirect a connection or change its identity are allowed.
    All values are strings; times are whole milliseconds."""

    control_topic: ControlTopicSpec = ControlTopicSpec()
    """The topics through which Tidegate controls managed consumers."""

    schema_registry: SchemaRegistrySpec | None = None
    """The schema registry with which resets decode the values of records, if a reset.to.record.valueSchema names a
    subject of the registry."""

    audit: AuditSpec | None = None
    """The topic in which Tidegate records each change of committed offsets that it makes through this connection: who
    requested and approved the change, by which plan it was made, and the offsets before and after it. With an empty
    object, the topic is __tidegate_audit. Without this field, nothing is recorded."""

    connect: ConnectClusters = ()
    """The Kafka Connect clusters whose sink connectors ConsumerGroupPauses may stop through this connection, if
    allow.groups allows the connector's consumer group. Without this field, none."""

    observe: StrictBool = False
    """If true, Tidegate only looks at this cluster: resets stop at their plans, pauses pause nothing, and policies warn
    but keep, restore and inject nothing. What had begun before is finished."""

    freeze: FreezeSpec | None = None
    """While this field is set, nothing new begins through this connection: no reset, pause or mirror is begun, no
    offset is restored, and no new partition gets a start. What is already running continues to its end, and existing
    holds stay."""

    allow: AllowSpec | None = None
    """What the resources of this namespace, and of those that are listed, may use through this connection. Without this
    field, every group and every topic that the broker's own ACLs allow, from this namespace only."""

    @rule(
        "!has(self.audit) || (self.audit.topic != self.controlTopic.name && "
        "self.audit.topic != self.controlTopic.name + '_acks' && "
        "(!has(self.controlTopic.ackTopic) || self.audit.topic != self.controlTopic.ackTopic))",
        "audit.topic must be neither the control topic nor an ack topic: consumers may write acks",
    )
    def _audit_topic_is_another(self) -> bool:
        control = self.control_topic
        theirs = (control.name, f"{control.name}_acks", control.ack_topic)
        return self.audit is None or self.audit.topic not in theirs

    @rule(
        "!has(self.authentication) || self.authentication.type != 'tls' || has(self.tls)",
        "authentication type tls needs TLS: add spec.tls (tls: {} trusts the system's authorities)",
    )
    def _client_certificate_has_tls(self) -> bool:
        authentication = self.authentication
        return authentication is None or authentication.type is not AuthenticationType.TLS or self.tls is not None


class FeaturesStatus(ResourceModel):
    """What the brokers can do."""

    consumer_protocol: StrictBool = False
    """Whether groups may use the consumer protocol (KIP-848)."""

    streams_protocol: StrictBool = False
    """Whether groups may use the streams protocol (KIP-1071)."""

    native_pause: StrictBool = False
    """Whether the brokers themselves can pause partitions of a group."""


class GroupKind(StrEnum):
    """Whose offsets are to be changed: a group without members, or a live one, by how its members join."""

    EMPTY = "Empty"
    CLASSIC = "Classic"
    CONSUMER = "Consumer"
    STREAMS = "Streams"


class Support(StrEnum):
    """``NOT_OFFERED``: the brokers have no such groups. ``UNKNOWN``: not found out, which forbids nothing."""

    SUPPORTED = "Supported"
    UNSUPPORTED = "Unsupported"
    NOT_OFFERED = "NotOffered"
    UNKNOWN = "Unknown"


class CapabilityStatus(ResourceModel):
    """Whether the brokers accept offsets for one kind of group from outside it."""

    groups: GroupKind
    """The kind of group. Empty means groups without members. The other kinds are running groups, by the protocol of
    their members; Consumer is the protocol of KIP-848. Tidegate itself resets no Streams groups, because their state
    would not follow the offsets."""

    support: Support
    """Whether they can be reset. A reset is refused only with Unsupported. NotOffered says that the brokers have no
    such groups, Unknown that it could not be determined."""

    reason: Annotated[str, Field(min_length=1, max_length=1024)]
    """How it is known, or why not, in one word for programs."""

    message: Annotated[str, Field(max_length=MAX_MESSAGE)]
    """The same for people."""


class CapabilitiesStatus(ResourceModel):
    """What the brokers allow."""

    resettable: str
    """The kinds of group whose offsets can be reset, in one line. A question mark means that it is not known."""

    resets: Annotated[tuple[CapabilityStatus, ...], Field(max_length=16), list_map("groups")] = ()
    """The same by kind of group, with the reason."""


class ConnectionStatus(StatusModel):
    """What was found when the cluster was last reached."""

    cluster_id: str | None = None
    """The cluster's own id. Two connections with the same id are to the same cluster."""

    brokers: Count | None = None
    """How many brokers the cluster has."""

    features: FeaturesStatus | None = None
    """What the brokers can do."""

    capabilities: CapabilitiesStatus | None = None
    """What the brokers allow, according to their versions or to probes with groups of Tidegate's own. It is checked
    again every few minutes."""

    conditions: Conditions = ()
    """Ready is True when the cluster was reached with the settings of this generation. Reconciling and Stalled are
    present while they are true."""
