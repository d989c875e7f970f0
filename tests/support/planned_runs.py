"""Stored runs with plans and evidence, as a policy's ConfigMap has them."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from tidegate.kafka.connection import Connection
from tidegate.reset.binding import digest_of
from tidegate.reset.evidence import (
    Amount,
    Content,
    Evidence,
    Histogram,
    HistogramSource,
    Sample,
    TopicEvidence,
)
from tidegate.reset.model.fleet import FleetPlan, GroupPlan
from tidegate.reset.model.plan import Clamped, PartitionPlan, Plan
from tidegate.reset.model.progress import Progress
from tidegate.reset.model.request import EvidenceLevel, EvidenceSettings, FleetRequest, RunRequest
from tidegate.reset.model.targets import ToTimestamp
from tidegate.reset.store import Run
from tidegate.resources.reset import ResetPhase, Way

PLANNED = datetime(2026, 11, 22, 2, 40, tzinfo=UTC)
FROM = datetime(2026, 11, 20, 14, 0, tzinfo=UTC)

NOTES = (
    "Targets outside the log were moved to its nearer end: refunds-0 to 120 (Earliest)",
    "2 member(s) are made to leave and rejoin: records that they have read but not committed are read again in "
    "1 partition outside this run, too (invoices-0)",
)


def a_fleets_run() -> Run:
    """Two groups that move, one that stays, one without a plan; it waits for its approval."""
    plan = FleetPlan(
        "replay-2026-11-20",
        PLANNED,
        (
            GroupPlan("payments-at", 3, way=Way.UNOWNED),
            GroupPlan("payments-eu", 6, 5, 1, 1_904_880, 6_500, way=Way.HANDOVER),
            GroupPlan("payments-us", 6, 6, 0, 40, 0),
            GroupPlan("payments-x", refused="NothingToReset", message="group payments-x has no offsets"),
        ),
        ("Left out 1 group that the connection does not allow: payments-secret",),
    )
    request = RunRequest(
        run_uid="uid/replay-2026-11-20",
        run_id="replay-2026-11-20",
        group_id="",
        connection=Connection("kafka:9092"),
        selections=(),
        target=ToTimestamp(FROM),
        manual_approval=True,
        fleet=FleetRequest(("payments-*",)),
    )
    return checked(Run(request, 1, journal=(Progress(ResetPhase.PLANNING, PLANNED, 1),), fleet=plan))


def checked(run: Run) -> Run:
    """As a store hands it out that has compared it with the digest in the status."""
    return replace(run, digest=digest_of(run))


def a_plan() -> Plan:
    """Orders go back, refunds go on and back, one partition stays, one has no commit."""

    def row(
        topic: str, partition: int, committed: int | None, target: int, latest: int, **more: object
    ) -> PartitionPlan:
        plan = PartitionPlan(topic, partition, f"id-of-{topic}", committed, target, 120, latest)
        return replace(plan, **more)  # type: ignore[arg-type]

    last = FROM + timedelta(hours=19, minutes=13, seconds=11)
    partitions = (
        row("orders", 0, 1_900_000, 700_000, 1_950_000, span_from=FROM, span_to=last),
        row("orders", 1, 1_100_000, 400_000, 1_110_000, span_from=FROM + timedelta(seconds=2), span_to=last),
        row("orders", 2, 500_000, 500_000, 500_040),
        row("orders", 3, None, 10_000, 20_000),
        row("refunds", 0, 5_000, 120, 9_000, clamped=Clamped.EARLIEST, span_from=FROM, span_to=last),
        row("refunds", 1, 2_000, 8_500, 9_000, span_from=FROM, span_to=last),
    )
    return Plan("replay-2026-11-20", "payments-eu", PLANNED, partitions, Way.HANDOVER, NOTES)


def a_run(
    *, plan: Plan | None = None, evidence: Evidence | None = None, settings: EvidenceSettings | None = None
) -> Run:
    """One that waits for approval."""
    request = RunRequest(
        run_uid="uid/replay-2026-11-20",
        run_id="replay-2026-11-20",
        group_id="payments-eu",
        connection=Connection("kafka:9092"),
        selections=(),
        target=ToTimestamp(FROM),
        manual_approval=True,
        evidence=settings or EvidenceSettings(EvidenceLevel.RECORDS),
    )
    journal = (
        Progress(ResetPhase.PLANNING, PLANNED - timedelta(seconds=2), 1),
        Progress(ResetPhase.AWAITING_APPROVAL, PLANNED, 1),
    )
    return checked(Run(request, 1, plan or a_plan(), journal, evidence=evidence))


def some_evidence() -> Evidence:
    """Of ``a_plan``, contents hidden but for one record."""
    day = [(n % 24) * (24 - n % 24) for n in range(14, 14 + 39)]
    orders = tuple(1_900_000 * n // sum(day) for n in day)
    return Evidence(
        gathered_at=PLANNED + timedelta(seconds=9),
        topics=(
            TopicEvidence(
                "orders",
                replayed=Amount(1_900_000, 1_000_000, 999_800, 1_440_000_000, 118_404, 0, 1_204),
                histogram=Histogram(FROM, timedelta(minutes=30), orders, (0,) * 39, HistogramSource.INDEX),
            ),
            TopicEvidence(
                "refunds",
                replayed=Amount(4_880, 4_880, 4_880, 1_220_000, 3_100, 12, 0),
                skipped=Amount(6_500, 6_500, 6_480, 1_625_000, 4_000, 0, 3),
                histogram=Histogram(
                    FROM,
                    timedelta(hours=1),
                    (900, 300, 200, 100, 60, 20, 10, 0, 0, 40, 200, 400, 600, 600, 500, 400, 250, 150, 100, 50),
                    (10, 60, 80, 100, 150, 200, 250, 300, 300, 350, 400, 420, 460, 480, 500, 540, 600, 650, 500, 130),
                    HistogramSource.RECORDS,
                ),
            ),
        ),
        samples=(
            sample(699_998, -3, Content(36, "77ab01c29e3f"), Content(212, "0b5d93a1f6c2")),
            sample(699_999, -1, Content(36, "9e02d1c1aa70"), None),
            sample(700_000, 0, Content(36, "77ab01c29e3f"), Content(219, "c55c1f00d2e8")),
            sample(700_003, 1, None, Content(204, "5f3a7be0c191")),
        ),
        read=1_011_380,
        took_s=6.2,
        notes=("Read were 1,000,000 of 1,900,000 offsets of orders, at most 1,000,000 in all (maxRecords)",),
    )


def sample(offset: int, seconds: int, key: Content | None, value: Content | None) -> Sample:
    return Sample("orders", 0, offset, FROM + timedelta(seconds=seconds), seconds >= 0, key, value)
