"""All that an audit has found, and what it could not see. Values, and how they are counted. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from tidegate.inspection.findings import Finding, FindingKind, Severity
from tidegate.inspection.resetting import Possible, Verdict
from tidegate.kafka.capabilities import Capabilities
from tidegate.resources.reset import Way


@dataclass(frozen=True, slots=True)
class Unseen:
    """Something that was left out. ``right``: what would show it, as ``kafka-acls`` names it; empty: no right does."""

    what: str
    why: str
    right: str = ""


@dataclass(frozen=True, slots=True)
class Report:
    """``watched``: how long the two looks were apart, ``None`` for one look. ``probed``: whether brokers might be tried
    with groups of our own. ``settings``: what the brokers have of
    those that matter here, each with its values. Findings are sorted, the worst first."""

    at: datetime
    cluster_id: str
    brokers: int
    groups: int
    partitions: int
    watched: timedelta | None
    probed: bool
    capabilities: Capabilities
    settings: Mapping[str, tuple[str, ...]]
    findings: tuple[Finding, ...]
    verdicts: tuple[Verdict, ...]
    unseen: tuple[Unseen, ...]

    @property
    def counts(self) -> Mapping[Severity, int]:
        found = Counter(finding.severity for finding in self.findings)
        return {severity: found[severity] for severity in Severity}

    @property
    def by_kind(self) -> Mapping[FindingKind, tuple[Finding, ...]]:
        """The kinds whose worst finding is worst first, and in the order in which they are declared."""
        kinds: defaultdict[FindingKind, list[Finding]] = defaultdict(list)
        for finding in self.findings:
            kinds[finding.kind].append(finding)
        order = sorted(kinds, key=lambda kind: (kinds[kind][0].severity.rank, list(FindingKind).index(kind)))
        return {kind: tuple(kinds[kind]) for kind in order}

    @property
    def ways(self) -> Mapping[tuple[Possible, Way | None], tuple[Verdict, ...]]:
        """The groups by what a reset of them takes, those that can be reset first."""
        found: defaultdict[tuple[Possible, Way | None], list[Verdict]] = defaultdict(list)
        for verdict in self.verdicts:
            found[verdict.possible, verdict.way].append(verdict)
        order = sorted(found, key=lambda of: (list(Possible).index(of[0]), of[1] or ""))
        return {of: tuple(found[of]) for of in order}

    def reaches(self, severity: Severity) -> bool:
        """Whether a finding is that bad or worse."""
        return any(finding.severity.rank <= severity.rank for finding in self.findings)


def sorted_findings(findings: list[Finding]) -> tuple[Finding, ...]:
    """The worst first; of like ones those with the most partitions first."""
    kinds = list(FindingKind)
    return tuple(
        sorted(findings, key=lambda f: (f.severity.rank, kinds.index(f.kind), -f.partition_count, f.group or ""))
    )
