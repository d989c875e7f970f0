"""What a stored run may be about. Pure.

A run's document is a ConfigMap in its resource's namespace: whoever may write ConfigMaps there can write one, and an
operator that believed it would lend its own rights, and its files, to whoever cannot make a policy or a connection. So
what decides whom a run touches is taken from the policy and its connection, each time the document is read; what the
connection allowed when the run began, from its request, once a digest that only the operator writes has vouched for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from tidegate.audit.records import Attribution
from tidegate.kafka.connection import Connection
from tidegate.kafka.names import is_allowed, is_internal
from tidegate.reset.binding import Binding, Check, digest_of
from tidegate.reset.evidence import Evidence
from tidegate.reset.marker import is_marker_group
from tidegate.reset.model.fleet import FleetPlan, Roster
from tidegate.reset.model.plan import Plan
from tidegate.reset.model.progress import Progress
from tidegate.reset.model.request import RunRequest
from tidegate.reset.model.result import RunResult
from tidegate.reset.model.targets import FromCluster, FromGroup
from tidegate.reset.store import ForeignRun, ForgedRun, Run, RunStore


@dataclass(frozen=True, slots=True)
class Confines:
    """Of the run of one OffsetReset. ``connection``: as the operator itself connects; ``groups`` and ``topics``: what
    ``spec.allow`` allows. ``None`` where its KafkaConnection is not open: then nothing is done with Kafka.

    ``other`` and ``other_groups``: likewise of the connection to another cluster, where its target has one.
    ``hides_values``: the OffsetReset asks for this very run, and not for records' contents.
    """

    run_uid: str
    group_id: str
    connection: Connection | None = None
    groups: tuple[str, ...] | None = None
    topics: tuple[str, ...] | None = None
    other: Connection | None = None
    other_groups: tuple[str, ...] | None = None
    dead_letter: str | None = None
    """Where the OffsetReset asks for copies of what it skips, empty for nowhere; ``None``: not known."""
    hides_values: bool = False
    attribution: Attribution | None = None
    """In whose name changes are recorded in the audit log; ``None``: nothing is."""
    patterns: tuple[str, ...] | None = None
    """Of a fleet: which groups it may be of, beside ``groups``; then ``group_id`` is empty."""
    shown: Connection | None = None
    """What documents that are created say of ``connection``, where not everybody who may read them may know all of it.
    """

    def of_group(self, run_uid: str, group_id: str) -> Confines:
        """Those of the run of one group of the fleet. Raises ``ForeignRun`` for a group that is none of it."""
        if flaw := self.outside(group_id):
            raise ForeignRun(f"group {group_id} has no run in this fleet: {flaw}")
        return replace(self, run_uid=run_uid, group_id=group_id, patterns=None)

    def outside(self, group_id: str) -> str:
        """Why a group cannot be one of the fleet; empty: it can."""
        if self.patterns is None or not is_allowed(group_id, self.patterns):
            return "the resource's groups do not match it"
        if self.groups is not None and not is_allowed(group_id, self.groups):
            return "the connection does not allow it"
        return "it is Tidegate's own" if is_marker_group(group_id) else ""


def confined(run: Run, confines: Confines, location: str) -> Run:
    """The run, with connection and allowed topics as in its confines. Raises ``ForeignRun``."""
    flaw = next(_flaws(run, confines), None)
    if flaw is not None:
        raise ForeignRun(
            f"{location} can't be the document of this resource's run: {flaw}. Tidegate ignores all of it: find out "
            "who wrote it, and remove it"
        )
    request, target = run.request, run.request.target
    if isinstance(target, FromCluster) and confines.other is not None:
        target = replace(target, connection=confines.other)
    fleet = request.fleet
    if fleet is not None and confines.patterns is not None:
        allowed = fleet.allowed_groups if confines.groups is None else confines.groups
        fleet = replace(fleet, patterns=confines.patterns, allowed_groups=allowed)
    return replace(
        run,
        request=replace(
            request,
            target=target,
            fleet=fleet,
            connection=confines.connection or request.connection,
            allowed_topics=request.allowed_topics if confines.topics is None else confines.topics,
        ),
        attribution=confines.attribution,
    )


def _flaws(run: Run, confines: Confines) -> Iterator[str]:
    request, plan = run.request, run.plan
    if request.run_uid != confines.run_uid:
        yield f"it is run {request.run_uid}"
    for group in (request.group_id, *((plan.group_id,) if plan is not None else ())):
        if group != confines.group_id:
            yield f"it is about group {group}"
    if (request.fleet is None) != (confines.patterns is None):
        yield (
            "it is for a fleet, but the resource is for one group"
            if request.fleet is not None
            else "it is for one group, but the resource is for a fleet"
        )
    for name in _groups(run):
        if why := confines.outside(name):
            yield f"it is about group {name}: {why}"
    other = request.target.group_id if isinstance(request.target, FromGroup) else None
    if other is not None and confines.groups is not None and not is_allowed(other, confines.groups):
        yield f"it reads group {other}, which the connection does not allow"
    over_there = request.target.group_id if isinstance(request.target, FromCluster) else None
    if (
        over_there is not None
        and confines.other_groups is not None
        and not is_allowed(over_there, confines.other_groups)
    ):
        yield f"it reads group {over_there} of another cluster, which the connection to that cluster does not allow"
    if confines.dead_letter is not None and request.dead_letter != confines.dead_letter:
        yield f"it copies records to topic {request.dead_letter or 'none'}, which the resource does not ask for"
    if confines.hides_values and request.evidence.show_values:
        yield "it shows what is in records, which the resource does not ask for"
    if confines.topics is not None:
        for topic in sorted(_topics(run)):
            if is_internal(topic) or not is_allowed(topic, confines.topics):
                yield f"it is about topic {topic}, which the connection does not allow"


def _groups(run: Run) -> list[str]:
    """The groups of a fleet's run, by whichever part of it."""
    fleet = run.request.fleet
    named = {*(fleet.groups or ())} if fleet is not None else set()
    named |= {*run.roster.groups} if run.roster is not None else set()
    return sorted(named | ({g.group_id for g in run.fleet.groups} if run.fleet is not None else set()))


def _topics(run: Run) -> set[str]:
    """All that its writer would commit offsets for, going forward or putting back."""
    found = {p.topic for p in run.plan.partitions} if run.plan is not None else set()
    for progress in run.journal:
        found |= {p.topic for p in progress.before} | {p.topic for p in (*progress.pending, *progress.again)}
        found |= {p.topic for p in progress.held.before} if progress.held is not None else set()
    return found | ({p.topic for p in run.result.before} if run.result is not None else set())


class ConfinedRunStore:
    """A run store that hands out only what is within the confines, and is the document that the binding names.

    Implements ``tidegate.reset.store.RunStore``. Without ``binding``: whichever document is there. Who writes a plan
    through it is bound to that plan from then on. Reads raise ``ForgedRun`` and ``ForeignRun``; ``write_plan`` and
    ``write_fleet_plan`` raise ``ForgedRun`` where somebody else has put another plan there.
    """

    def __init__(
        self,
        store: RunStore,
        confines: Confines | None,
        binding: Check | None = None,
        attribution: Attribution | None = None,
    ) -> None:
        """``attribution``: where there are no confines that tell it."""
        self._store = store
        self._attribution = attribution
        self._confines = confines
        self._binding = binding
        self._read: Run | None = None
        """The document when it was last checked, as it is stored."""

    @property
    def location(self) -> str:
        return self._store.location

    def create(self, request: RunRequest) -> Run:
        shown = self._confines.shown if self._confines is not None else None
        return self._checked(self._store.create(request if shown is None else replace(request, connection=shown)))

    def load(self) -> Run:
        return self._checked(self._store.load())

    def begin_attempt(self) -> int:
        return self._store.begin_attempt()

    def approve(self) -> None:
        self._store.approve()

    def write_plan(self, plan: Plan, *, attempt: int) -> None:
        self._write_only(lambda: self._store.write_plan(plan, attempt=attempt))
        if self._read is not None:
            self._bind(replace(self._read, plan=plan))

    def write_roster(self, roster: Roster, *, attempt: int) -> None:
        self._store.write_roster(roster, attempt=attempt)

    def write_fleet_plan(self, plan: FleetPlan, *, attempt: int) -> None:
        self._write_only(lambda: self._store.write_fleet_plan(plan, attempt=attempt))
        if self._read is not None:
            self._bind(replace(self._read, fleet=plan))

    def write_evidence(self, evidence: Evidence, *, attempt: int) -> None:
        self._store.write_evidence(evidence, attempt=attempt)

    def append(self, progress: Progress, *, attempt: int) -> None:
        self._store.append(progress, attempt=attempt)

    def finish(self, result: RunResult, *, attempt: int) -> None:
        self._store.finish(result, attempt=attempt)

    def _checked(self, stored: Run) -> Run:
        run = stored if self._binding is None else self._binding.checked(stored, self.location)
        if self._binding is not None:
            self._read = stored
        if self._confines is not None:
            return confined(run, self._confines, self.location)
        return run if self._attribution is None else replace(run, attribution=self._attribution)

    def _write_only(self, write: Callable[[], None]) -> None:
        try:
            write()
        except ValueError as error:
            if self._binding is None:
                raise
            raise ForgedRun(f"{self.location} has a plan that this job did not make: {error}") from error

    def _bind(self, planned: Run) -> None:
        approved = self._binding.approved if isinstance(self._binding, Binding) else ""
        self._binding = Binding(digest_of(planned), approved)
