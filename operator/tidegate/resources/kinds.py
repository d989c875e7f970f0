"""The kinds of resources: all that their CRDs say besides what the models of their specs and statuses say."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tidegate.resources import offset_reset, policy
from tidegate.resources.approval import OffsetResetApprovalSpec, OffsetResetApprovalStatus
from tidegate.resources.base import SpecModel, StatusModel
from tidegate.resources.connection import ConnectionStatus, KafkaConnectionSpec
from tidegate.resources.offset_backup import OffsetBackupSpec, OffsetBackupStatus
from tidegate.resources.offset_mirror import OffsetMirrorSpec, OffsetMirrorStatus
from tidegate.resources.offset_reset import OffsetResetSpec, OffsetResetStatus
from tidegate.resources.pause import ConsumerGroupPauseSpec, PauseStatus
from tidegate.resources.policy import OffsetResetPolicySpec, PolicyStatus
from tidegate.resources.rules import Rule


@dataclass(frozen=True, slots=True)
class Column:
    """What ``kubectl get`` shows; with ``wide`` only by ``-o wide``."""

    name: str
    type: str
    description: str
    path: str
    wide: bool = False


@dataclass(frozen=True, slots=True)
class Kind:
    """One CRD. ``columns``: without the last one, the age. ``rules``: about the whole object. ``selectable``: what
    ``kubectl get --field-selector`` takes, which Kubernetes 1.31 and later serve."""

    name: str
    plural: str
    short_name: str
    description: str
    spec: type[SpecModel]
    status: type[StatusModel]
    columns: tuple[Column, ...]
    rules: tuple[Rule, ...] = ()
    selectable: tuple[str, ...] = ()


AGE: Final = Column("Age", "date", "When the resource was created.", ".metadata.creationTimestamp")

_CONNECTION: Final = ".spec.connectionRef.name"

_READY: Final = '.status.conditions[?(@.type=="Ready")].status'

KINDS: Final = (
    Kind(
        "KafkaConnection",
        "kafkaconnections",
        "kconn",
        "KafkaConnection defines how a Kafka cluster is reached, and which groups and topics the resources of its "
        "namespace may use through it.",
        KafkaConnectionSpec,
        ConnectionStatus,
        (
            Column("Ready", "string", "Whether the cluster was reached with these settings.", _READY),
            Column("Brokers", "integer", "How many brokers the cluster has.", ".status.brokers"),
            Column(
                "Resettable",
                "string",
                "The kinds of group whose offsets can be reset on these brokers; a question mark means that it is "
                "not known.",
                ".status.capabilities.resettable",
                wide=True,
            ),
            Column("Cluster", "string", "The cluster's own id.", ".status.clusterId"),
        ),
    ),
    Kind(
        "ConsumerGroupPause",
        "consumergrouppauses",
        "cgp",
        "ConsumerGroupPause pauses partitions of one consumer group: their owners read nothing from them and keep "
        "their position. The partitions resume when the pause is deleted or suspended, or when its time is over. "
        "Single partitions are paused by Tidegate's agent in the consumers' processes or, with the method Leading, "
        "without it for as long as the operator runs. The methods Scale and Connect pause the whole group.",
        ConsumerGroupPauseSpec,
        PauseStatus,
        (
            Column("Group", "string", "The group whose partitions are paused.", ".spec.group"),
            Column("Phase", "string", "The phase of the pause.", ".status.phase"),
            Column("Paused", "string", "How many partitions are paused, out of all.", ".status.paused"),
            Column("Resumes", "string", "When the partitions resume by themselves.", ".status.resumesAt"),
            Column("Reason", "string", "Why they are paused.", ".spec.reason"),
        ),
        selectable=(_CONNECTION, ".spec.group", ".status.phase"),
    ),
    Kind(
        "OffsetResetPolicy",
        "offsetresetpolicies",
        "orp",
        "OffsetResetPolicy defines how the offsets of a consumer group, or of many, are managed: what happens on new "
        "partitions, which consumers get the settings, whether committed offsets are kept from expiring, and the reset "
        "to run, if there is one, for which the operator creates an OffsetReset.",
        OffsetResetPolicySpec,
        PolicyStatus,
        (
            Column(
                "Group",
                "string",
                "The group whose offsets are managed, or the patterns of many.",
                ".spec['group','groups']",
            ),
            Column("Reset", "string", "The id of the reset that is asked for.", ".status.reset.id"),
            Column("Phase", "string", "The phase of that reset.", ".status.reset.phase"),
            Column(
                "Replayed",
                "integer",
                "How many records the group reads again because of that reset.",
                ".status.reset.recordsReplayed",
            ),
            Column(
                "Skipped",
                "integer",
                "How many records the group skips because of that reset.",
                ".status.reset.recordsSkipped",
            ),
            Column(
                "OffsetReset", "string", "The OffsetReset that was created for it.", ".status.reset.name", wide=True
            ),
            Column("Ready", "string", "Whether the state that the resource asks for is reached.", _READY),
        ),
        policy.WHOLE_OBJECT,
        (_CONNECTION, ".spec.group"),
    ),
    Kind(
        "OffsetReset",
        "offsetresets",
        "ors",
        "OffsetReset moves the committed offsets of one consumer group, or of a fleet of groups, to a target. It runs "
        "once, as a Job does, and its status says how it ended. It does not belong in Git: keep an "
        "OffsetResetPolicy there.",
        OffsetResetSpec,
        OffsetResetStatus,
        (
            Column(
                "Group", "string", "The group that is reset, or the patterns of a fleet.", ".spec['group','groups']"
            ),
            Column("Phase", "string", "The phase of the reset.", ".status.phase"),
            Column("Partitions", "integer", "How many partitions the plan has.", ".status.plan.partitions"),
            Column("Replayed", "integer", "How many records the group reads again.", ".status.plan.recordsReplayed"),
            Column("Skipped", "integer", "How many records the group skips.", ".status.plan.recordsSkipped"),
            Column("Replay", "string", "How far a replay with an end has come.", ".status.replay.progress", wide=False),
            Column("Way", "string", "The strategy by which the offsets were changed.", ".status.way", wide=True),
            Column("Wave", "integer", "The wave of a fleet that was begun last.", ".status.fleet.wave", wide=True),
            Column(
                "Standstill",
                "string",
                "The longest time for which a partition was stalled.",
                ".status.standstill.max",
                wide=True,
            ),
            Column("Finished", "date", "When the reset ended.", ".status.finishedAt", wide=True),
            Column("Plan", "string", "The ConfigMap with the whole plan.", ".status.plan.configMap", wide=True),
            Column("Approver", "string", "Who has approved the plan.", ".status.approval.approver", wide=True),
            Column(
                "Reason",
                "string",
                "Why the reset is complete, has failed, or waits.",
                '.status.conditions[?(@.type=="Complete")].reason',
                wide=True,
            ),
        ),
        offset_reset.WHOLE_OBJECT,
        (_CONNECTION, ".spec.group", ".status.phase"),
    ),
    Kind(
        "OffsetResetApproval",
        "offsetresetapprovals",
        "ora",
        "OffsetResetApproval lets the plan of an OffsetReset with approval Manual be applied: exactly the plan whose "
        "digest it names. Creating one is a permission of its own.",
        OffsetResetApprovalSpec,
        OffsetResetApprovalStatus,
        (
            Column("Reset", "string", "The OffsetReset whose plan is approved.", ".spec.reset"),
            Column("Approver", "string", "Who approves the plan.", ".spec.approver"),
            Column(
                "Effective",
                "string",
                "Whether the approval has taken effect.",
                '.status.conditions[?(@.type=="Effective")].status',
            ),
            Column(
                "Reason",
                "string",
                "Why it has taken effect, or why not.",
                '.status.conditions[?(@.type=="Effective")].reason',
            ),
            Column("Plan", "string", "The digest of the plan.", ".spec.plan", wide=True),
        ),
        selectable=(".spec.reset", ".spec.approver"),
    ),
    Kind(
        "OffsetBackup",
        "offsetbackups",
        "obk",
        "OffsetBackup writes the committed offsets of a cluster's groups, with the ends of their partitions' logs, to "
        "Parquet on a schedule. An OffsetReset restores a group from there.",
        OffsetBackupSpec,
        OffsetBackupStatus,
        (
            Column("Schedule", "string", "How often a backup is due.", ".spec.schedule"),
            Column("Suspend", "boolean", "Whether backups are suspended.", ".spec.suspend"),
            Column("Last", "date", "When all offsets of the newest backup had been read.", ".status.last.takenAt"),
            Column("Groups", "integer", "How many groups the newest backup has.", ".status.last.groups"),
            Column("Ready", "string", "Whether backups are taken as the resource asks for.", _READY),
            Column("Offsets", "integer", "How many offsets that backup has.", ".status.last.partitions", wide=True),
            Column("Next", "string", "When the next backup is due.", ".status.next", wide=True),
            Column("Failures", "integer", "How many attempts in a row have failed.", ".status.failures", wide=True),
            Column("Path", "string", "The folder with the newest backup.", ".status.last.path", wide=True),
            Column(
                "Reason",
                "string",
                "Why the groups' offsets are backed up, or why not.",
                '.status.conditions[?(@.type=="BackedUp")].reason',
                wide=True,
            ),
        ),
        selectable=(_CONNECTION,),
    ),
    Kind(
        "OffsetMirror",
        "offsetmirrors",
        "omr",
        "OffsetMirror copies topics to another Kafka cluster with the same offsets, and carries groups' committed "
        "offsets over as they are: consumers continue there with the offsets that they have.",
        OffsetMirrorSpec,
        OffsetMirrorStatus,
        (
            Column("Source", "string", "The connection to the cluster that is copied from.", ".spec.source.name"),
            Column("Target", "string", "The connection to the cluster that is copied to.", ".spec.target.name"),
            Column("InSync", "string", "How many partitions are in sync, out of all.", ".status.inSync"),
            Column("Lag", "integer", "How many offsets the copies lag.", ".status.lag.records"),
            Column("Ready", "string", "Whether all topics are copied and in sync.", _READY),
            Column("Counted", "date", "When the copies were last counted.", ".status.at"),
            Column(
                "Seconds",
                "integer",
                "The longest time since a copy last had all that the source had.",
                ".status.lag.seconds",
                wide=True,
            ),
            Column(
                "Drifted",
                "string",
                "Whether a copy has something at an offset that differs from the source.",
                '.status.conditions[?(@.type=="Drifted")].status',
                wide=True,
            ),
            Column("Groups", "integer", "How many groups are carried over.", ".status.groups.carried", wide=True),
            Column("InUse", "integer", "How many groups are in use at the target.", ".status.groups.inUse", wide=True),
            Column(
                "Reason",
                "string",
                "Why it is ready, or why not.",
                '.status.conditions[?(@.type=="Ready")].reason',
                wide=True,
            ),
        ),
        selectable=(".spec.source.name", ".spec.target.name"),
    ),
)
"""``make crds`` makes a file of each."""
