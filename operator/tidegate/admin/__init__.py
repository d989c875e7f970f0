"""Pausing and resuming partitions of live consumer groups from a program: what the pause KIP (KIP-1249) adds to Kafka's
``Admin``, on the brokers there are. See :class:`tidegate.admin.client.TidegateAdmin`.
"""

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
