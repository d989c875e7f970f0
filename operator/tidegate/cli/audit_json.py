"""An audit's report as JSON; docs/reference/cluster-audit.md describes it. Pure."""

from __future__ import annotations

from typing import Any, Final

from tidegate.inspection.findings import ABOUT, Finding, PartitionFinding
from tidegate.inspection.report import Report
from tidegate.resources.durations import format_duration
from tidegate.resources.timestamps import format_timestamp

VERSION: Final = 1
"""Raised when a member is removed or changes its meaning; new members may come without that."""


def as_json(report: Report) -> dict[str, Any]:
    """Names are as the brokers tell them; ``json.dumps`` makes ASCII of it, which drives no terminal."""
    return {
        "kind": "ClusterAudit",
        "version": VERSION,
        "at": format_timestamp(report.at.replace(microsecond=0)),
        "watch": None if report.watched is None else format_duration(report.watched),
        "probed": report.probed,
        "cluster": {
            "id": report.cluster_id,
            "brokers": report.brokers,
            "settings": {name: list(values) for name, values in report.settings.items()},
            "capabilities": [
                {"groups": kind.value, "support": found.support.value, "reason": found.reason, "message": found.message}
                for kind, found in report.capabilities.items()
            ],
        },
        "seen": {"groups": report.groups, "partitions": report.partitions},
        "counts": {severity.value: count for severity, count in report.counts.items()},
        "findings": [_finding(finding) for finding in report.findings],
        "about": {
            kind.value: {
                "title": ABOUT[kind].title,
                "meaning": ABOUT[kind].meaning,
                "audience": ABOUT[kind].audience.value,
                "remedy": ABOUT[kind].remedy,
                "resource": ABOUT[kind].resource or None,
                "guide": ABOUT[kind].guide or None,
            }
            for kind in report.by_kind
        },
        "resets": [
            {
                "group": verdict.group,
                "possible": verdict.possible.value,
                "way": None if verdict.way is None else verdict.way.value,
                "because": verdict.because,
            }
            for verdict in report.verdicts
        ],
        "notSeen": [{"what": left.what, "why": left.why, "right": left.right or None} for left in report.unseen],
    }


def _finding(finding: Finding) -> dict[str, Any]:
    return {
        "finding": finding.kind.value,
        "severity": finding.severity.value,
        "group": finding.group,
        "what": finding.what,
        "known": finding.known,
        "partitionCount": finding.partition_count,
        "partitions": [_partition(partition) for partition in finding.partitions],
    }


def _partition(partition: PartitionFinding) -> dict[str, Any]:
    return {
        "topic": partition.topic,
        "partition": partition.partition,
        "committed": partition.committed,
        "logStart": partition.log_start,
        "logEnd": partition.log_end,
        "lag": partition.lag,
        "grown": partition.grown,
        "owner": partition.owner,
        "expiresMs": partition.expires_ms,
    }
