"""The custom resources as models: specs, status and conditions. Imports the standard library and pydantic only."""

from tidegate.resources.approval import OffsetResetApprovalSpec, OffsetResetApprovalStatus
from tidegate.resources.authentication import AuthenticationType
from tidegate.resources.base import (
    API_GROUP,
    API_VERSION,
    ConnectionRef,
    InvalidResource,
    PartitionSelection,
    Problem,
    parse_spec,
    parse_update,
    read_status,
)
from tidegate.resources.conditions import Condition, ConditionStatus
from tidegate.resources.connection import ConnectionStatus, KafkaConnectionSpec
from tidegate.resources.offset_backup import OffsetBackupSpec, OffsetBackupStatus
from tidegate.resources.offset_mirror import OffsetMirrorSpec, OffsetMirrorStatus
from tidegate.resources.offset_reset import OffsetResetSpec, OffsetResetStatus
from tidegate.resources.pause import ConsumerGroupPauseSpec, PauseStatus
from tidegate.resources.policy import OffsetResetPolicySpec, PolicyStatus
from tidegate.resources.reset import ResetSpec
from tidegate.resources.spark import SparkSpec
from tidegate.resources.targets import ResetTo, TargetKind

__all__ = [
    "API_GROUP",
    "API_VERSION",
    "AuthenticationType",
    "Condition",
    "ConditionStatus",
    "ConnectionRef",
    "ConnectionStatus",
    "ConsumerGroupPauseSpec",
    "InvalidResource",
    "KafkaConnectionSpec",
    "OffsetBackupSpec",
    "OffsetBackupStatus",
    "OffsetMirrorSpec",
    "OffsetMirrorStatus",
    "OffsetResetApprovalSpec",
    "OffsetResetApprovalStatus",
    "OffsetResetPolicySpec",
    "OffsetResetSpec",
    "OffsetResetStatus",
    "PartitionSelection",
    "PauseStatus",
    "PolicyStatus",
    "Problem",
    "ResetSpec",
    "ResetTo",
    "SparkSpec",
    "TargetKind",
    "parse_spec",
    "parse_update",
    "read_status",
]
