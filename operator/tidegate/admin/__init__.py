"""A Python library that pauses and resumes partitions of live groups, as the pause KIP adds it to Kafka's ``Admin``."""

from tidegate.admin.client import TidegateAdmin
from tidegate.admin.errors import (
    ControlTopicUnfit,
    HoldTakenBack,
    NotConfirmed,
    PartitionsFailed,
    PauseFailure,
    UnknownPartition,
    UnmanagedOwner,
    UnsupportedGroup,
)
from tidegate.admin.results import ListPausedPartitionsResult, PausePartitionsResult, ResumePartitionsResult
from tidegate.admin.service import HeldBy, PausedPartition, Resumed

__all__ = [
    "ControlTopicUnfit",
    "HeldBy",
    "HoldTakenBack",
    "ListPausedPartitionsResult",
    "NotConfirmed",
    "PartitionsFailed",
    "PauseFailure",
    "PausePartitionsResult",
    "PausedPartition",
    "ResumePartitionsResult",
    "Resumed",
    "TidegateAdmin",
    "UnknownPartition",
    "UnmanagedOwner",
    "UnsupportedGroup",
]
