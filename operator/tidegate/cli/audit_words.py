"""What the terminal and the page say alike of an audit. Pure."""

from __future__ import annotations

from typing import Final

from tidegate.cli.review import time_text
from tidegate.inspection.brokers import RETENTION
from tidegate.inspection.report import Report
from tidegate.inspection.resetting import Possible
from tidegate.resources.durations import format_duration

NEVER_SEEN: Final = (
    "Settings of clients, such as auto.offset.reset: brokers don't know them.",
    "The positions of consumers between two commits, and the partitions that consumers take with assign().",
    "Topics that the principal may not describe, and their offsets: brokers leave them out without saying so.",
)
"""By no right at all."""


_LIMITS: Final = ("group.max.size", "group.consumer.max.size")
_NO_LIMIT: Final = str(2**31 - 1)
"""Kafka's default."""


def where(report: Report) -> str:
    """How large the cluster is, and when that was."""
    brokers = f"{report.brokers:,} broker{'' if report.brokers == 1 else 's'}"
    return f"{brokers}, {time_text(report.at.replace(microsecond=0))}"


def summary(report: Report) -> str:
    looks = "one look" if report.watched is None else f"two looks, {format_duration(report.watched)} apart"
    kept = report.settings.get(RETENTION)
    retention = [] if kept is None else [f"{RETENTION} is {' and '.join(kept)}"]
    limits = [f"{name} is {' and '.join(report.settings[name])}" for name in _LIMITS if _is_limited(report, name)]
    return "; ".join([f"{report.groups:,} groups, {report.partitions:,} partitions, {looks}", *retention, *limits])


def _is_limited(report: Report, name: str) -> bool:
    return any(value != _NO_LIMIT for value in report.settings.get(name, ()))


def brokers_allow(report: Report) -> str:
    """Whether the brokers take a reset's offsets, by the kind of group; empty where that was not seen."""
    told = ", ".join(f"{kind} {found.support}" for kind, found in report.capabilities.items())
    return told and f"offsets from outside the group, by kind of group: {told}"


def changed(report: Report) -> str:
    """What the audit itself has done to the cluster."""
    if report.probed:
        probes = "groups named tidegate.probe/…"
        return (
            f"Where the brokers' versions don't tell what they allow, it was tried with {probes}; nothing else was "
            "changed."
        )
    return "Nothing was changed."


def possible_text(possible: Possible) -> str:
    match possible:
        case Possible.YES:
            return "yes"
        case Possible.WHEN_STOPPED:
            return "only when it is stopped"
        case Possible.NO:
            return "no"
        case Possible.UNKNOWN:
            return "not known"
