"""One pass over an ``OffsetResetPolicy``: see, decide, write the status, act once.

What is decided about its run is in :mod:`tidegate.reset.runs.decisions`.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Final, TypeVar, assert_never

from tidegate.clock import Clock
from tidegate.cluster import Kafka
from tidegate.connection.allow import (
    GROUP_NOT_ALLOWED,
    STORAGE_NOT_ALLOWED,
    TOPIC_NOT_ALLOWED,
    group_not_allowed,
    storage_not_allowed,
    topic_not_allowed,
)
from tidegate.connection.live import Live, LiveConnections, unmounted
from tidegate.connection.observer import NotLookedAt, Observer
from tidegate.jobs.availability import SPARK_UNAVAILABLE, why_not
from tidegate.jobs.errors import RunnerFailure
from tidegate.jobs.mounts import CLAIMS_FOLDER, SECRETS_FOLDER, JobPlaces, claims_of, secrets_of
from tidegate.jobs.runner import Runner, RunnerState, merged_secrets
from tidegate.jobs.settings import SparkSettings
from tidegate.jobs.storage import environment
from tidegate.kafka.connection import Connection
from tidegate.kafka.errors import KafkaFailure
from tidegate.kafka.names import is_pattern
from tidegate.kube.loop import Pass
from tidegate.kube.ports import (
    CONNECTIONS,
    POLICIES,
    Kube,
    KubeFailure,
    NotFound,
    Object,
    label_of,
    name_of,
    namespace_of,
    owner_reference,
    uid_of,
)
from tidegate.policy.ends import RUN_ENDS
from tidegate.policy.feature import Feature, PolicyView
from tidegate.reset.binding import Binding, Check, EndBinding, OperatorBinding
from tidegate.reset.confined import ConfinedRunStore, Confines
from tidegate.reset.model import (
    FailurePolicy,
    FleetRequest,
    FromCluster,
    FromFile,
    FromGroup,
    FromSnapshot,
    Phase,
    RecordSchema,
    RunResult,
    SchemaFormat,
    Target,
    Undo,
)
from tidegate.reset.planning.offsets_csv import BadOffsetsFile, parse_offsets
from tidegate.reset.runs import decisions, fleet_job, job
from tidegate.reset.runs.decisions import (
    AddFinalizer,
    Approve,
    CreateRun,
    Decision,
    Fence,
    Halt,
    RemoveFinalizer,
    RunnerSeen,
    Seen,
    Start,
    TakeOver,
    awaits_approval,
    decide,
    history_of,
    is_settled,
    run_id_of,
    under_way,
)
from tidegate.reset.runs.fleet import group_document, group_run_uid
from tidegate.reset.runs.fleet_job import FLEET_THREADS, undone_groups
from tidegate.reset.runs.in_process import ConfinedLaunch
from tidegate.reset.runs.queue import Claim, blocker
from tidegate.reset.runs.request import (
    NOTHING_TO_UNDO,
    Refusal,
    cluster_target,
    launch_number,
    make_request,
    record_target,
    run_name,
    run_uid,
    selections,
    simple_target,
    snapshot_target,
    undo_not_found,
    undo_target,
)
from tidegate.reset.store import ForeignRun, ForgedRun, Run, RunNotFound, RunStore, StaleAttempt
from tidegate.reset.stores import StoreFailure
from tidegate.resources.base import InvalidResource, parse_spec, read_status
from tidegate.resources.conditions import RESET, STALLED, find_condition, is_true
from tidegate.resources.policy import (
    ClusterTarget,
    ConfigMapTarget,
    Engine,
    OffsetResetPolicySpec,
    PolicyStatus,
    ResetPhase,
    ResetSpec,
    ResetStatus,
    SnapshotTarget,
)
from tidegate.service.metrics import Metrics
from tidegate.threads import in_thread

_log = logging.getLogger(__name__)

CONFIG_MAP_NOT_FOUND: Final = "ConfigMapNotFound"
BAD_OFFSETS_FILE: Final = "BadOffsetsFile"

_WAIT_A_PASS_S: Final = 2.0
"""How long one pass waits for a run to be taken over before it looks around again."""

_BRIEFLY_S: Final = 10.0
"""How long its job may take to stop, and then its gates to open, where nobody shall wait for a run any longer."""

_LISTING_S: Final = 1.0
_KEEP_AGAIN_S: Final = 2.0

T = TypeVar("T")

OpenStore = Callable[[str, str, Mapping[str, Any] | None], RunStore]
"""(namespace, name, owner reference)"""


@dataclass(frozen=True, slots=True)
class Parts:
    """What the reconciler acts through. ``runners``: those that this operator has; ``Auto`` is none of them.

    ``executor`` is for calls of moments, ``patient_executor`` for taking runs over. ``mounts_secrets``: Spark jobs run
    in pods, which get the connection's Secrets mounted.
    """

    kube: Kube
    live: LiveConnections
    observer: Observer
    open_store: OpenStore
    open_kafka: Callable[[Connection], Kafka]
    runners: Mapping[Engine, Runner]
    executor: Executor
    patient_executor: Executor
    clock: Clock
    metrics: Metrics
    spark: SparkSettings
    mounts_secrets: bool
    active_tick_s: float
    idle_tick_s: float
    deletion_limit: timedelta
    max_launches: int
    features: Sequence[Feature] = ()


@dataclass(slots=True)
class _Memory:
    """What this process knows of a policy beyond the API server; losing it costs nothing but a look."""

    told: set[str] = field(default_factory=set)
    launched: set[str] = field(default_factory=set)
    dead: str = ""
    died_at: datetime | None = None
    fenced: int = 0
    trouble: str = ""
    keeping: str = ""
    """Why a feature failed last."""
    finished: set[str] = field(default_factory=set)
    forged: str = ""
    """Why what the run under way goes by is forged, where an effect has found that out."""
    halted: str = ""
    """The id of the run all of whose work was ended."""
    unhalted: str = ""
    """Why a brief try at that failed."""
    taking_over: asyncio.Future[RunResult] | None = None


@dataclass(frozen=True, slots=True)
class _Listing:
    """``cluster_ids`` by a connection's namespace and name; empty for one that was never ready."""

    at_s: float
    cluster_ids: Mapping[tuple[str, str], str]
    policies: tuple[Object, ...]


class PolicyReconciler:
    """Implements ``tidegate.kube.loop.Reconciler``."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._memories: dict[str, _Memory] = {}
        # One policy at a time may go from asked for to begun: who is in whose way is decided in here.
        self._admission = asyncio.Lock()
        self._listing: _Listing | None = None
        parts.metrics.runs_may_end(RUN_ENDS)

    async def reconcile(self, body: Object) -> Pass:
        spec, invalid = _spec(body)
        status = read_status(PolicyStatus, body)
        wanted = spec.reset if spec is not None else None
        self._want(body, spec, active=run_id_of(status, wanted) is not None)
        current = under_way(status)
        begins = wanted is not None and current is None and not is_settled(status, wanted)
        may_go_ahead = (
            current is not None and current.approved_digest is None and decisions.APPROVE in _annotations(body)
        )
        if (begins or may_go_ahead) and not body["metadata"].get("deletionTimestamp"):
            async with self._admission:
                return await self._pass(body, spec, invalid, status)
        return await self._pass(body, spec, invalid, status)

    async def forget(self, body: Object) -> None:
        uid = uid_of(body)
        for feature in self._parts.features:
            await feature.forget(uid)
        self._parts.observer.drop(uid)
        self._parts.metrics.run_is(uid, None)
        self._memories.pop(uid, None)

    async def refresh(self, body: Object) -> Object | None:
        try:
            fresh = await in_thread(
                self._parts.executor, self._parts.kube.get, POLICIES, namespace_of(body), name_of(body)
            )
        except NotFound:
            return None
        return fresh if uid_of(fresh) == uid_of(body) else None

    async def _pass(self, body: Object, spec: OffsetResetPolicySpec | None, invalid: str, status: PolicyStatus) -> Pass:
        seen = await self._see(body, spec, invalid, status)
        decision = await self._kept(body, seen, decide(seen))
        body = await self._say(body, seen, decision)
        memory = self._memory(body)
        try:
            body = await self._act(body, seen, decision)
        except (KafkaFailure, StoreFailure, RunnerFailure, TimeoutError) as error:
            # Said in the condition by the next pass, which the loop's backoff delays.
            memory.trouble = str(error)
            raise
        except ForgedRun as forged:
            # Of a fleet, this may be the document of one of its groups, which no pass looks at by itself.
            memory.forged = str(forged)
            return Pass(body, 0)
        except (RunNotFound, StaleAttempt) as error:
            _log.info("%s: %s", label_of(body), error)
        else:
            if decision.action is not None:
                memory.trouble = ""
        return Pass(body, decision.again_after_s)

    # --- keep ---------------------------------------------------------------------------------------------------------

    async def _kept(self, body: Object, seen: Seen, decision: Decision) -> Decision:
        """The decision, with what the features did beside it. One that fails does not hold up the reset."""
        spec, memory = seen.spec, self._memory(body)
        live = self._parts.live.get(namespace_of(body), spec.connection_ref.name) if spec is not None else None
        if spec is None or seen.deleting_since is not None or spec.groups is not None:
            return decision
        if live is None:
            for feature in self._parts.features:
                await feature.disconnected(seen.uid)
        if live is None or live.trouble is not None:
            again_after_s = _KEEP_AGAIN_S if spec.keeps_something else decision.again_after_s
            return replace(decision, again_after_s=min(decision.again_after_s, again_after_s))
        for feature in self._parts.features:
            policy = PolicyView(
                body, spec, decision.status, live, seen.now, resetting=under_way(decision.status) is not None
            )
            try:
                kept = await feature.reconcile(policy)
            except (KafkaFailure, KubeFailure, NotLookedAt) as failure:
                if str(failure) != memory.keeping:
                    memory.keeping = str(failure)
                    _log.warning("%s: %s; again soon", label_of(body), failure)
                decision = replace(decision, again_after_s=min(decision.again_after_s, _KEEP_AGAIN_S))
            else:
                memory.keeping = ""
                decision = replace(
                    decision,
                    status=kept.status,
                    happenings=(*decision.happenings, *kept.happenings),
                    again_after_s=min(decision.again_after_s, kept.again_after_s),
                )
        return decision

    # --- see ----------------------------------------------------------------------------------------------------------

    def _want(self, body: Object, spec: OffsetResetPolicySpec | None, *, active: bool) -> None:
        uid = uid_of(body)
        live = self._parts.live.get(namespace_of(body), spec.connection_ref.name) if spec is not None else None
        if spec is None or live is None or body["metadata"].get("deletionTimestamp"):
            self._parts.observer.drop(uid)
        else:
            self._parts.observer.want(uid, live.uid, spec.group, active=active)

    async def _see(self, body: Object, spec: OffsetResetPolicySpec | None, invalid: str, status: PolicyStatus) -> Seen:
        parts, metadata, annotations = self._parts, body["metadata"], _annotations(body)
        deleting = metadata.get("deletionTimestamp")
        wanted = spec.reset if spec is not None else None
        run_id = run_id_of(status, wanted)
        seen = Seen(
            uid=uid_of(body),
            generation=int(metadata["generation"]),
            spec=spec,
            status=status,
            now=parts.clock.now(),
            invalid=invalid,
            approval=annotations.get(decisions.APPROVE),
            abandoned=str(annotations.get(decisions.ABANDON, "")).lower() == "true",
            deleting_since=datetime.fromisoformat(deleting) if deleting else None,
            has_finalizer=decisions.FINALIZER in (metadata.get("finalizers") or ()),
            deletion_limit=parts.deletion_limit,
            max_launches=parts.max_launches,
            tick_s=parts.active_tick_s,
            trouble=self._memory(body).trouble,
            unhalted=self._memory(body).unhalted,
        )
        if run_id is None:
            return seen
        if under_way(status) is None and history_of(status, run_id) is not None:
            return seen  # an id that ran before: its document is not looked at
        document = run_name(name_of(body), uid_of(body), run_id)
        memory = self._memory(body)
        try:
            run = await self._load(body, run_id)
        except ForgedRun as forged:
            return replace(seen, run_document=document, forged=str(forged), halted=memory.halted == run_id)
        except ForeignRun as foreign:
            return replace(seen, run_document=document, foreign=str(foreign), halted=memory.halted == run_id)
        current = under_way(status)
        found_out = memory.forged if current is not None else ""
        seen = replace(seen, run_document=document, run=run, forged=found_out, halted=memory.halted == run_id)
        if current is not None and run is not None:
            runner = await self._runner_seen(body, spec, current)
            seen = replace(seen, runner=runner, connected=self._is_connected(body, run))
            if seen.approval is not None and seen.approval == run.digest and current.approved_digest is None:
                return replace(seen, behind=await self._ahead_of(body, spec))
            return seen
        if run is None and spec is not None and wanted is not None and wanted.id == run_id and not deleting:
            return replace(seen, start=await self._start(body, spec, wanted, current))
        return seen

    async def _load(self, body: Object, run_id: str) -> Run | None:
        """The run under way. Raises ``ForeignRun`` and ``ForgedRun``."""
        store = self._open_store(body, run_id, self._binding(body, run_id))
        try:
            return await in_thread(self._parts.executor, store.load)
        except RunNotFound:
            return None

    async def _ended(self, body: Object, run_id: str) -> Run | None:
        """An earlier run, as it ended; ``None`` where status.history has no digest of it.

        Raises ``ForeignRun`` and ``ForgedRun``.
        """
        kept = history_of(read_status(PolicyStatus, body), run_id)
        if kept is None or kept.digest is None:
            return None
        store = self._open_store(body, run_id, EndBinding(kept.digest))
        try:
            return await in_thread(self._parts.executor, store.load)
        except RunNotFound:
            return None

    async def _runner_seen(
        self, body: Object, spec: OffsetResetPolicySpec | None, current: ResetStatus
    ) -> RunnerSeen | None:
        memory = self._memory(body)
        engine = current.engine
        runner = self._parts.runners.get(engine) if engine is not None else None
        if runner is None or engine is None:
            return None
        if current.application is None:
            return RunnerSeen(engine)
        launch = self._launch(body, spec, current, current.application)
        status = await in_thread(self._parts.executor, runner.status, launch)
        if status.state is not RunnerState.RUNNING and memory.dead != launch.name:
            memory.dead, memory.died_at = launch.name, self._parts.clock.now()
        return RunnerSeen(
            engine=engine,
            status=status,
            started_here=launch.name in memory.launched,
            fenced=memory.fenced,
            died_at=memory.died_at,
        )

    # --- see: may it begin? -------------------------------------------------------------------------------------------

    async def _start(
        self, body: Object, spec: OffsetResetPolicySpec, reset: ResetSpec, current: ResetStatus | None
    ) -> Start:
        """What a new run needs, or the first reason why it can't begin. ``current``: it has begun, by the status."""
        live = self._parts.live.get(namespace_of(body), spec.connection_ref.name)
        other = self._other(body, reset)
        waits = _connection_to_wait_for(spec.connection_ref.name, live)
        refusal = None if live is None else _not_allowed(spec, reset, live)
        if reset.to.cluster is not None:
            waits = waits or _connection_to_wait_for(reset.to.cluster.connection_ref.name, other)
            refusal = refusal or (None if other is None else _not_allowed_over_there(reset.to.cluster, other))
        if refusal is not None:
            return Start(refusal=refusal)
        if waits is not None or live is None:
            return Start(waits_for=waits)
        # Again: the connection may have been opened while this pass waited for its turn.
        self._want(body, spec, active=True)
        engine = self._engine(spec, reset, live, other)
        if isinstance(engine, Refusal):
            return Start(refusal=engine)
        target = await self._target(body, spec, reset)
        if isinstance(target, Refusal):
            return Start(refusal=target)
        fleet = await self._fleet(body, spec, reset, live)
        if isinstance(fleet, Refusal):
            return Start(refusal=fleet)
        if current is None:
            in_the_way = await self._in_the_way(body, spec, live)
            if in_the_way is not None:
                return Start(waits_for=in_the_way)
        started_at = current.started_at if current is not None and current.started_at else self._parts.clock.now()
        request = make_request(
            spec,
            reset,
            policy=body,
            connection=self._connection_of_job(live, engine),
            connection_uid=live.uid,
            allowed_topics=live.allow.topics,
            target=target,
            started_at=started_at,
            fleet=fleet,
        )
        return Start(engine=engine, request=request)

    async def _ahead_of(self, body: Object, spec: OffsetResetPolicySpec | None) -> Refusal | None:
        """Why a plan that is approved has to wait for its turn, or for its connection."""
        if spec is None:
            return None
        live = self._parts.live.get(namespace_of(body), spec.connection_ref.name)
        if live is None:
            return _connection_to_wait_for(spec.connection_ref.name, live)
        return await self._in_the_way(body, spec, live)

    def _other(self, body: Object, reset: ResetSpec | None) -> Live | None:
        """The connection to the cluster that ``to.cluster`` names, where it is open."""
        if reset is None or reset.to.cluster is None:
            return None
        return self._parts.live.get(namespace_of(body), reset.to.cluster.connection_ref.name)

    def _is_connected(self, body: Object, run: Run) -> bool:
        """Whether the connections that a job of this run acts through are open; another cluster is read for the plan
        only."""
        confines = self._confines(body, run.request.run_id)
        reads_other = isinstance(run.request.target, FromCluster) and run.plan is None
        return confines.connection is not None and not (reads_other and confines.other is None)

    def _connection_of_job(self, live: Live, engine: Engine) -> Connection:
        in_pods = self._parts.mounts_secrets and engine is Engine.SPARK
        return live.mounted if in_pods and live.mounted is not None else live.connection

    def _engine(
        self, spec: OffsetResetPolicySpec, reset: ResetSpec, live: Live, other: Live | None
    ) -> Engine | Refusal:
        if reset.to.kind.needs_spark and Engine.SPARK not in self._parts.runners:
            return Refusal(
                SPARK_UNAVAILABLE,
                f"spec.reset.to.{reset.to.kind.value} is found by Spark, and this operator has no Spark runner: "
                "configure one (TIDEGATE_SPARK_RUNNER), or use another target, such as timestamp",
            )
        if reset.engine is Engine.DIRECT or (reset.engine is Engine.AUTO and Engine.SPARK not in self._parts.runners):
            return Engine.DIRECT
        if Engine.SPARK not in self._parts.runners:
            return Refusal(
                SPARK_UNAVAILABLE,
                "spec.reset.engine is Spark and this operator has no Spark runner: use engine Auto or Direct, or "
                "configure one (TIDEGATE_SPARK_RUNNER)",
            )
        used = [live] if other is None else [live, other]
        refused = why_not(spec.spark, unmounted(used), self._parts.spark, in_pods=self._parts.mounts_secrets)
        if refused is not None:
            reason, message = refused
            return Refusal(reason, f"{message}, or use engine Direct" if reason == SPARK_UNAVAILABLE else message)
        return Engine.SPARK

    async def _target(self, body: Object, spec: OffsetResetPolicySpec, reset: ResetSpec) -> Target | Refusal:
        to = reset.to
        if to.group is not None:
            return FromGroup(to.group)
        if to.undo is not None and spec.groups is not None:
            return Undo(to.undo, ())  # what each group goes back to is in its own document
        if to.undo is not None:
            try:
                return undo_target(to.undo, await self._ended(body, to.undo))
            except ForgedRun as forged:
                return Refusal(decisions.FORGED, f"spec.reset.to.undo: {forged}")
            except ForeignRun as foreign:
                return Refusal(decisions.FOREIGN_RUN, f"spec.reset.to.undo: {foreign}")
        if to.record is not None:
            if to.record.value_schema is None:
                return record_target(to.record, None)
            named = to.record.value_schema
            text = await self._text(body, "spec.reset.to.record.valueSchema.configMap", named.config_map)
            if isinstance(text, Refusal):
                return text
            source = f"ConfigMap {named.config_map.name}, key {named.config_map.key}"
            return record_target(to.record, RecordSchema(SchemaFormat(named.format.value), text, source))
        if to.cluster is not None:
            other = self._other(body, reset)
            if other is None:
                raise ValueError("a run from another cluster begins once that connection is open")
            return cluster_target(to.cluster, self._connection_of_job(other, Engine.SPARK), other.allow.topics)
        if to.snapshot is not None:
            return snapshot_target(to.snapshot, self._places())
        target = simple_target(to)
        if target is not None:
            return target
        if to.config_map is None:
            raise ValueError(f"spec.reset.to.{to.kind} names no target")
        text = await self._text(body, "spec.reset.to.configMap", to.config_map)
        if isinstance(text, Refusal):
            return text
        source = f"ConfigMap {to.config_map.name}, key {to.config_map.key}"
        try:
            return FromFile(parse_offsets(text, spec.only_group), source)
        except BadOffsetsFile as bad:
            return Refusal(BAD_OFFSETS_FILE, f"spec.reset.to.configMap: {source}: {bad}")

    async def _fleet(
        self, body: Object, spec: OffsetResetPolicySpec, reset: ResetSpec, live: Live
    ) -> FleetRequest | Refusal | None:
        if spec.groups is None:
            return None
        policy = (
            FailurePolicy(reset.failure_policy.value) if reset.failure_policy is not None else FailurePolicy.ISOLATE
        )
        fleet = FleetRequest(spec.groups, policy, live.allow.groups)
        undone = reset.to.undo
        if undone is None:
            return fleet
        try:
            earlier = await self._ended(body, undone)
            if earlier is None or earlier.fleet is None:
                return undo_not_found(undone)
            ends = dict(earlier.result.ends) if earlier.result is not None else {}
            runs = self._runs_beneath(body, undone, ends)
            groups = await in_thread(self._parts.patient_executor, undone_groups, earlier, runs)
        except ForgedRun as forged:
            return Refusal(decisions.FORGED, f"spec.reset.to.undo: {forged}")
        except ForeignRun as foreign:
            return Refusal(decisions.FOREIGN_RUN, f"spec.reset.to.undo: {foreign}")
        if not groups:
            return Refusal(
                NOTHING_TO_UNDO,
                f"spec.reset.to.undo: run {undone} has left no group's offsets changed, or has not ended",
            )
        undoes = run_name(name_of(body), uid_of(body), undone)
        return replace(fleet, groups=groups, undoes=undoes, ends=tuple((g, ends[g]) for g in groups))

    def _runs_beneath(self, body: Object, run_id: str, ends: Mapping[str, str]) -> Callable[[str], Run | None]:
        """``ends``: by group, the digest of how its run ended."""
        confines = self._confines(body, run_id)

        def load(group_id: str) -> Run | None:
            uid = group_run_uid(confines.run_uid, group_id)
            document = group_document(run_name(name_of(body), uid_of(body), run_id), uid)
            store = self._parts.open_store(namespace_of(body), document, None)
            try:
                return ConfinedRunStore(
                    store, confines.of_group(uid, group_id), EndBinding(ends.get(group_id, ""))
                ).load()
            except RunNotFound:
                return None

        return load

    def _fleet_parts(self, body: Object, seen: Seen, live: Live) -> fleet_job.Parts | None:
        """What a fleet's run is fenced and settled through; ``None`` where the run is of one group."""
        if seen.run is None or seen.run.request.fleet is None:
            return None
        owner = owner_reference(body)
        return fleet_job.parts_of(
            seen.run_document,
            self._confines(body, seen.run.request.run_id),
            seen.run.request.fleet.undoes,
            lambda document: self._parts.open_store(namespace_of(body), document, owner),
            live.kafka,
            self._parts.clock,
            fleet_job.SideBySide(
                lambda: closing(self._parts.open_kafka(live.connection)), self._parts.clock, threads=FLEET_THREADS
            ),
        )

    async def _text(self, body: Object, path: str, named: ConfigMapTarget) -> str | Refusal:
        try:
            texts = await in_thread(self._parts.executor, self._parts.kube.config_map, namespace_of(body), named.name)
        except NotFound:
            return Refusal(CONFIG_MAP_NOT_FOUND, f"{path}: there is no ConfigMap {named.name} in this namespace")
        text: str | None = texts.get(named.key)
        if text is None:
            return Refusal(CONFIG_MAP_NOT_FOUND, f"{path}: ConfigMap {named.name} has no key {named.key}")
        return text

    async def _in_the_way(self, body: Object, spec: OffsetResetPolicySpec, live: Live) -> Refusal | None:
        """The policy that resets, or is to reset first, a group that this one wants."""
        try:
            snapshot = await self._parts.observer.newest(live.uid, group=spec.group)
        except NotLookedAt:
            return _not_ready(live.name, "it is just being replaced")
        if snapshot.failure is not None:
            return _not_ready(live.name, "its cluster does not answer")
        mine = Claim(
            uid_of(body),
            label_of(body),
            _created(body),
            live.cluster_id,
            spec.group_patterns,
            under_way=False,
        )
        listing = await self._listed()
        claims = (_claim(other, listing.cluster_ids) for other in listing.policies)
        first = blocker(mine, (claim for claim in claims if claim is not None))
        if first is None:
            return None
        doing = "is resetting" if first.under_way else "was there first to reset"
        return Refusal(
            decisions.WAITING_FOR_POLICY,
            f"OffsetResetPolicy {first.holder} {doing} {_whose(spec)}; one at a time may, so this one waits",
        )

    async def _listed(self) -> _Listing:
        """All policies as the API server has them, at most a moment old. Only under the admission lock.

        Nobody but this process begins a run, and a run that begins makes the listing void: so a hundred that wait cost
        one listing a moment, and none of them overlooks another.
        """
        now = asyncio.get_running_loop().time()
        if self._listing is None or now - self._listing.at_s > _LISTING_S:
            connections = await in_thread(self._parts.executor, self._parts.kube.list, CONNECTIONS)
            policies = await in_thread(self._parts.executor, self._parts.kube.list, POLICIES)
            cluster_ids = {
                (namespace_of(c), name_of(c)): str((c.get("status") or {}).get("clusterId", "")) for c in connections
            }
            self._listing = _Listing(now, cluster_ids, tuple(policies))
        return self._listing

    # --- say ----------------------------------------------------------------------------------------------------------

    async def _say(self, body: Object, seen: Seen, decision: Decision) -> Object:
        parts, memory = self._parts, self._memory(body)
        for happening in decision.happenings:
            if happening.key not in memory.told:
                await in_thread(self._parts.executor, parts.kube.record, body, happening)
                memory.told.add(happening.key)
        reset = decision.status.reset
        parts.metrics.run_is(seen.uid, None if reset is None else reset.phase.value, waiting=decision.waiting)
        if decision.status != seen.status:
            if _goes_ahead(seen, decision):
                self._listing = None
            body = await in_thread(
                self._parts.executor, parts.kube.replace_status, POLICIES, body, decision.status.to_json()
            )
            parts.metrics.wrote_status(POLICIES.kind)
            self._count_end(memory, seen, decision)
        return body

    def _count_end(self, memory: _Memory, seen: Seen, decision: Decision) -> None:
        reset = decision.status.reset
        if reset is None or seen.under_way is None or not Phase(reset.phase.value).is_final:
            return
        plan, said = reset.plan, find_condition(decision.status.conditions, RESET)
        self._parts.metrics.run_finished(
            reset.phase.value,
            said.reason if said is not None else reset.phase.value,
            standstill_s=reset.standstill.max.total_seconds() if reset.standstill is not None else None,
            replayed=(plan.records_replayed or 0) if plan is not None else 0,
            skipped=(plan.records_skipped or 0) if plan is not None else 0,
        )
        memory.launched.clear()
        memory.fenced, memory.dead, memory.died_at, memory.forged = 0, "", None, ""
        memory.halted, memory.unhalted = "", ""

    # --- act ----------------------------------------------------------------------------------------------------------

    async def _act(self, body: Object, seen: Seen, decision: Decision) -> Object:
        parts, action = self._parts, decision.action
        finalizers = [f for f in body["metadata"].get("finalizers") or () if f != decisions.FINALIZER]
        match action:
            case None:
                pass
            case AddFinalizer():
                return await in_thread(
                    self._parts.executor, parts.kube.set_finalizers, POLICIES, body, [*finalizers, decisions.FINALIZER]
                )
            case RemoveFinalizer():
                body = await in_thread(self._parts.executor, parts.kube.set_finalizers, POLICIES, body, finalizers)
                if under_way(decision.status) is not None and seen.run is not None:
                    # The policy goes with its run in mid-flight: nobody will see how that ends.
                    parts.metrics.run_finished(
                        ResetPhase.FAILED.value, decisions.ABANDONED, standstill_s=None, replayed=0, skipped=0
                    )
                return body
            case CreateRun(request):
                binding = self._binding(body, request.run_id)
                store = self._open_store(body, request.run_id, binding, owner_reference(body))
                await in_thread(self._parts.executor, store.create, request)
            case decisions.Launch(name):
                await self._start_job(body, seen, decision, name)
            case Approve():
                await in_thread(self._parts.executor, self._store(body, seen).approve)
            case Fence(number):
                await self._fence(body, seen, number)
            case Halt(briefly=True):
                await self._halt_briefly(body, seen)
            case Halt():
                unstopped = await self._halt(body, seen)
                if unstopped is not None:
                    raise unstopped
            case TakeOver(reason, message):
                await self._take_over(body, seen, reason, message)
            case _:
                assert_never(action)
        return body

    async def _start_job(self, body: Object, seen: Seen, decision: Decision, name: str) -> None:
        reset = decision.status.reset
        if reset is None or reset.engine is None or reset.digest is None:
            raise ValueError("a job is started for a run that has an engine and a digest")
        launch = self._launch(body, seen.spec, reset, name)
        if reset.engine is Engine.SPARK and seen.run is not None:
            await self._check_connections(body, seen, planned=seen.run.plan is not None)
        await in_thread(self._parts.executor, self._parts.runners[reset.engine].start, launch)
        memory = self._memory(body)
        memory.launched.add(name)
        memory.halted = ""
        self._parts.metrics.job_launched(reset.engine.value)
        _log.info("%s: started job %s", label_of(body), name)

    async def _fence(self, body: Object, seen: Seen, number: int) -> None:
        live = self._connection(body, seen)
        store = self._store(body, seen)
        fleet = self._fleet_parts(body, seen, live)
        if fleet is None:
            await in_thread(self._parts.patient_executor, job.fence, store, live.kafka, self._parts.clock)
        else:
            await in_thread(self._parts.patient_executor, fleet_job.fence, store, fleet, live.kafka)
        self._memory(body).fenced = number
        if seen.runner is not None:
            self._parts.metrics.job_died(seen.runner.engine.value)
            _log.warning(
                "%s: job %d of %s ended without a result: %s",
                label_of(body),
                number,
                seen.run_document,
                seen.runner.status.message or seen.runner.status.state.value,
            )

    async def _halt_briefly(self, body: Object, seen: Seen) -> None:
        memory = self._memory(body)
        try:
            unstopped = await self._halt(body, seen, _BRIEFLY_S)
        except (KafkaFailure, RunnerFailure, TimeoutError) as error:
            memory.unhalted = str(error) or f"not within {_BRIEFLY_S:g} s"
        else:
            if unstopped is not None:
                # Not needed for safety: it is fenced, and without a document to go by.
                _log.warning("%s: %s", label_of(body), str(unstopped) or "its job did not stop in time")

    async def _halt(
        self, body: Object, seen: Seen, limit_s: float | None = None
    ) -> TimeoutError | RunnerFailure | None:
        """By what the policy says, since nothing of the run's document is believed. ``limit_s``: for each of the two.

        Why the job did not stop, where it did not; then it is halted all the same.
        """
        current = seen.under_way
        if current is None:
            raise ValueError("there is no run to halt")
        runner = self._parts.runners.get(current.engine) if current.engine is not None else None
        unstopped: TimeoutError | RunnerFailure | None = None
        if runner is not None and current.application is not None:
            launch = self._launch(body, seen.spec, current, current.application)
            try:
                async with asyncio.timeout(limit_s):
                    await in_thread(self._parts.patient_executor, runner.stop, launch)
            except (TimeoutError, RunnerFailure) as error:
                unstopped = error  # consumers need not wait for that, too
        confines, live = self._confines(body, current.id), self._connection(body, seen)

        def halt() -> None:
            uid = confines.run_uid
            runs = {confines.group_id: uid}
            if confines.patterns is not None:
                groups = [g for g in sorted(live.kafka.group_ids()) if not confines.outside(g)]
                runs = {g: group_run_uid(uid, g) for g in groups}
            job.halt(live.kafka, self._parts.clock, uid, runs)

        async with asyncio.timeout(limit_s):
            await in_thread(self._parts.patient_executor, halt)
        if unstopped is None or limit_s is not None:
            self._memory(body).halted = current.id
            _log.error("%s: %s: its job was ended, its gates are open", label_of(body), seen.run_document)
        return unstopped

    async def _take_over(self, body: Object, seen: Seen, reason: str, message: str) -> None:
        """Settle the run in a thread; passes look in on it, so that an abandoned deletion is not held up."""
        memory = self._memory(body)
        if memory.taking_over is None:
            live = self._connection(body, seen)
            work = functools.partial(self._settle, body, seen, live, reason, message)
            memory.taking_over = asyncio.get_running_loop().run_in_executor(self._parts.patient_executor, work)
        done, _ = await asyncio.wait([memory.taking_over], timeout=_WAIT_A_PASS_S)
        if done:
            settled, memory.taking_over = memory.taking_over, None
            result = settled.result()
            _log.info("%s: settled as %s: %s", label_of(body), result.phase, result.message)

    def _settle(self, body: Object, seen: Seen, live: Live, reason: str, message: str) -> RunResult:
        runner = self._parts.runners.get(seen.runner.engine) if seen.runner is not None else None
        current = seen.under_way
        if runner is not None and current is not None and current.application is not None:
            try:
                runner.stop(self._launch(body, seen.spec, current, current.application))
            except (TimeoutError, RunnerFailure) as error:
                # Not needed for safety: from here on its writes are refused, by the store and by Kafka.
                _log.warning("%s: %s; it is fenced", label_of(body), error)
        store, fleet = self._store(body, seen), self._fleet_parts(body, seen, live)
        if fleet is not None:
            return fleet_job.settle(store, fleet, reason=reason, message=message)
        return job.settle(store, live.kafka, self._parts.clock, reason=reason, message=message)

    # --- parts --------------------------------------------------------------------------------------------------------

    def _connection(self, body: Object, seen: Seen) -> Live:
        name = seen.spec.connection_ref.name if seen.spec is not None else ""
        live = self._parts.live.get(namespace_of(body), name)
        if live is None:
            raise RunnerFailure(f"KafkaConnection {name or '?'} is not open")
        return live

    async def _check_connections(self, body: Object, seen: Seen, *, planned: bool) -> None:
        """A Spark job connects as the run's document says: to the KafkaConnection's brokers, with its files. So that is
        read as it is, and not within its confines."""
        document = run_name(name_of(body), uid_of(body), run_id_of(seen.status, seen.wanted) or "")
        store = self._parts.open_store(namespace_of(body), document, None)
        request = (await in_thread(self._parts.executor, store.load)).request
        used = [(self._connection(body, seen), request.connection)]
        if isinstance(request.target, FromCluster) and not planned:
            other = self._other(body, seen.wanted)
            if other is None:
                raise RunnerFailure("the KafkaConnection of spec.reset.to.cluster is not open")
            used.append((other, request.target.connection))
        if isinstance(request.target, FromSnapshot) and not planned:
            wanted = seen.wanted.to.snapshot if seen.wanted is not None else None
            live = self._connection(body, seen)
            path = "spec.reset.to.snapshot.from"
            refused = storage_not_allowed(live.name, live.allow, path, wanted.from_) if wanted is not None else None
            if refused is not None:
                raise RunnerFailure(refused)
            if wanted is None or request.target != snapshot_target(wanted, self._places()):
                raise RunnerFailure(
                    f"the run's ConfigMap {seen.run_document} reads another snapshot than spec.reset.to.snapshot says: "
                    "give reset.id a new value to run it anew"
                )
        for live, connection in used:
            if connection not in (live.connection, live.mounted):
                raise RunnerFailure(
                    f"the run's ConfigMap {seen.run_document} connects otherwise than KafkaConnection {live.name} "
                    "does: its job is started when they agree again; give reset.id a new value to run it anew"
                )

    def _store(self, body: Object, seen: Seen) -> RunStore:
        run_id = run_id_of(seen.status, seen.wanted)
        if run_id is None:
            raise ValueError("there is no run to act on")
        return self._open_store(body, run_id, self._binding(body, run_id))

    def _open_store(
        self, body: Object, run_id: str, binding: Check, owner: Mapping[str, Any] | None = None
    ) -> RunStore:
        document = run_name(name_of(body), uid_of(body), run_id)
        store = self._parts.open_store(namespace_of(body), document, owner)
        return ConfinedRunStore(store, self._confines(body, run_id), binding)

    def _binding(self, body: Object, run_id: str) -> OperatorBinding:
        """By the status as it was written last; to no document at all where that knows of no such run under way."""
        current = under_way(read_status(PolicyStatus, body))
        if current is None or current.id != run_id:
            return OperatorBinding("")
        return OperatorBinding(current.digest or "", current.approved_digest or "")

    def _confines(self, body: Object, run_id: str) -> Confines:
        """By the policy as it is written, also where it can't be read as a whole."""
        spec = body.get("spec") or {}
        live = self._parts.live.get(namespace_of(body), str((spec.get("connectionRef") or {}).get("name", "")))
        to = ((spec.get("reset") or {}).get("to") or {}).get("cluster") or {}
        other = self._parts.live.get(namespace_of(body), str((to.get("connectionRef") or {}).get("name", "")))
        return Confines(
            run_uid=run_uid(uid_of(body), run_id),
            group_id=str(spec.get("group", "")),
            patterns=tuple(map(str, spec["groups"])) if spec.get("groups") else None,
            connection=live.connection if live is not None else None,
            groups=live.allow.groups if live is not None else None,
            topics=live.allow.topics if live is not None else None,
            other=other.connection if other is not None else None,
            other_groups=other.allow.groups if other is not None else None,
            hides_values=_hides_values(spec.get("reset") or {}, run_id),
        )

    def _launch(
        self, body: Object, spec: OffsetResetPolicySpec | None, reset: ResetStatus, name: str
    ) -> ConfinedLaunch:
        document = name.removesuffix(f"-{launch_number(name)}")
        live = self._parts.live.get(namespace_of(body), spec.connection_ref.name) if spec is not None else None
        in_pods = self._parts.mounts_secrets and reset.engine is Engine.SPARK
        used = [live, self._other(body, spec.reset if spec is not None else None)] if in_pods else []
        secrets = [open_.secrets for open_ in used if open_ is not None]
        snapshot = _snapshot_of(spec, reset)
        storage = snapshot.from_ if snapshot is not None else None
        target = snapshot_target(snapshot, self._places()) if snapshot is not None else None
        return ConfinedLaunch(
            name=name,
            namespace=namespace_of(body),
            store=self._parts.open_store(namespace_of(body), document, None).location,
            owner=owner_reference(body),
            spark=spec.spark.to_json() if spec is not None and spec.spark is not None else {},
            connection_secrets=merged_secrets([*secrets, *([secrets_of(storage)] if in_pods else ())]),
            confines=self._confines(body, reset.id),
            reads_records=_reads_records(spec, reset),
            claims=claims_of(storage, written=False) if in_pods else {},
            environment={
                **(environment(target.storage) if isinstance(target, FromSnapshot) else {}),
                **Binding(reset.digest or "", reset.approved_digest or "").environment(),
            },
        )

    def _places(self) -> JobPlaces:
        return JobPlaces(self._parts.mounts_secrets, CLAIMS_FOLDER, SECRETS_FOLDER, self._parts.spark.snapshots)

    def _memory(self, body: Object) -> _Memory:
        return self._memories.setdefault(uid_of(body), _Memory())


# --- checks before a run ----------------------------------------------------------------------------------------------


def _reads_records(spec: OffsetResetPolicySpec | None, current: ResetStatus) -> bool:
    wanted = spec.reset if spec is not None else None
    return wanted is not None and wanted.id == current.id and wanted.to.kind.reads_records


def _snapshot_of(spec: OffsetResetPolicySpec | None, current: ResetStatus) -> SnapshotTarget | None:
    wanted = spec.reset if spec is not None else None
    return wanted.to.snapshot if wanted is not None and wanted.id == current.id else None


def _connection_to_wait_for(name: str, live: Live | None) -> Refusal | None:
    if live is None:
        return Refusal(
            decisions.WAITING_FOR_CONNECTION,
            f"there is no usable KafkaConnection {name} in this namespace: it waits for it",
        )
    return None if live.trouble is None else _not_ready(name, live.trouble[0])


def _not_ready(name: str, why: str) -> Refusal:
    return Refusal(decisions.WAITING_FOR_CONNECTION, f"KafkaConnection {name} is not ready ({why}): it waits for it")


def _not_allowed(spec: OffsetResetPolicySpec, reset: ResetSpec, live: Live) -> Refusal | None:
    groups = [("spec.group", spec.group)] if spec.group is not None else []
    # What a fleet's patterns match beside what is allowed is left out of its plan.
    groups += [("spec.groups", name) for name in spec.groups or () if not is_pattern(name)]
    if reset.to.group is not None:
        groups.append(("spec.reset.to.group", reset.to.group))
    for path, group in groups:
        message = group_not_allowed(live.name, live.allow, path, group)
        if message is not None:
            return Refusal(GROUP_NOT_ALLOWED, message)
    for selection in selections(spec, reset):
        message = topic_not_allowed(live.name, live.allow, selection.topic)
        if message is not None:
            return Refusal(TOPIC_NOT_ALLOWED, message)
    if reset.to.snapshot is not None:
        path = "spec.reset.to.snapshot.from"
        message = storage_not_allowed(live.name, live.allow, path, reset.to.snapshot.from_)
        if message is not None:
            return Refusal(STORAGE_NOT_ALLOWED, message)
    return None


def _not_allowed_over_there(cluster: ClusterTarget, other: Live) -> Refusal | None:
    message = group_not_allowed(other.name, other.allow, "spec.reset.to.cluster.group", cluster.group)
    return None if message is None else Refusal(GROUP_NOT_ALLOWED, message)


def _whose(spec: OffsetResetPolicySpec) -> str:
    return f"group {spec.group}" if spec.group is not None else f"groups {', '.join(spec.group_patterns)}"


def _hides_values(reset: Mapping[str, Any], run_id: str) -> bool:
    """What an earlier run was asked to show, this spec does not tell."""
    return reset.get("id") == run_id and (reset.get("evidence") or {}).get("showValues") is not True


# --- other policies ---------------------------------------------------------------------------------------------------


def _claim(body: Object, cluster_ids: Mapping[tuple[str, str], str]) -> Claim | None:
    """What another policy wants.

    ``None``: nothing, or nothing it could get: it has run, was refused, its connection was never ready, or its plan
    waits to be approved.
    """
    spec, _ = _spec(body)
    if spec is None:
        return None
    status = read_status(PolicyStatus, body)
    current, wanted = under_way(status), spec.reset
    cluster_id = cluster_ids.get((namespace_of(body), spec.connection_ref.name), "")
    if not cluster_id:
        return None
    if current is None:
        refused = is_true(status.conditions, STALLED) and status.observed_generation == body["metadata"]["generation"]
        if wanted is None or is_settled(status, wanted) or refused or body["metadata"].get("deletionTimestamp"):
            return None
    elif awaits_approval(current):
        return None
    return Claim(
        uid=uid_of(body),
        holder=label_of(body),
        created=_created(body),
        cluster_id=cluster_id,
        groups=spec.group_patterns,
        under_way=current is not None,
    )


def _goes_ahead(seen: Seen, decision: Decision) -> bool:
    """Whether others have to wait from now on."""
    before, now = seen.under_way, under_way(decision.status)
    return now is not None and not awaits_approval(now) and (before is None or awaits_approval(before))


def _annotations(body: Object) -> Mapping[str, str]:
    return body["metadata"].get("annotations") or {}


def _spec(body: Object) -> tuple[OffsetResetPolicySpec | None, str]:
    try:
        return parse_spec(OffsetResetPolicySpec, body), ""
    except InvalidResource as invalid:
        return None, str(invalid)


def _created(body: Object) -> datetime:
    return datetime.fromisoformat(str(body["metadata"]["creationTimestamp"]))
