"""Snapshots as one of a policy's features: what is due is ordered, its job started, followed and ended.

Each pass does at most one thing, and writes down what it will do before it does it: an order comes into the document,
then its job is started (twice is once, by its name), then its result is looked for. So whoever is killed in between,
the next pass finds what is next to do.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Final, TypeVar

from tidegate.connection.allow import STORAGE_NOT_ALLOWED, storage_not_allowed
from tidegate.connection.live import unmounted
from tidegate.jobs.application import ORDER_VARIABLE
from tidegate.jobs.availability import SPARK_UNAVAILABLE, why_not
from tidegate.jobs.errors import RunnerFailure
from tidegate.jobs.mounts import BAD_SNAPSHOT_STORAGE, JobPlaces, claims_of, secrets_of, snapshot_storage
from tidegate.jobs.runner import Launch, Runner, RunnerState, merged_secrets
from tidegate.jobs.settings import SparkSettings
from tidegate.jobs.storage import environment
from tidegate.kube.ports import Kube, NotFound, label_of, name_of, namespace_of, owner_reference, uid_of
from tidegate.policy.feature import FeatureOutcome, PolicyView
from tidegate.resources.snapshots import SnapshotsSpec, SnapshotsStatus
from tidegate.snapshots.document import (
    Asked,
    BadDocument,
    Document,
    Result,
    Snapshot,
    decode_document,
    digest,
    document_name,
    encode_document,
)
from tidegate.snapshots.manifest import Keep
from tidegate.snapshots.metrics import SnapshotMetrics
from tidegate.snapshots.order import Order
from tidegate.snapshots.schedule import Attempt, Take, Wait, decide, due_at
from tidegate.snapshots.status import Standing, backed_up, refused, without_snapshots
from tidegate.threads import in_thread

_log = logging.getLogger(__name__)

JOB_LIMIT: Final = timedelta(hours=1)
"""How long a job may take. It takes a minute: one that does not end waits for what does not come."""

_NEVER_S: Final = 3600.0
_IDLE_S: Final = 60.0
_ACTIVE_S: Final = 2.0
_LEAST_S: Final = 1.0
_TROUBLED_S: Final = 10.0
_WAIT_A_PASS_S: Final = 2.0
"""How long one pass waits for a job to be stopped before it looks around again."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Parts:
    """What the feature acts through. ``runner``: Spark's, if there is one; ``patient_executor``: for stopping jobs."""

    kube: Kube
    runner: Runner | None
    spark: SparkSettings
    places: JobPlaces
    executor: Executor
    patient_executor: Executor
    metrics: SnapshotMetrics


@dataclass(slots=True)
class _Memory:
    """What this process knows of a policy's snapshots beyond the document; losing it costs a look."""

    namespace: str
    name: str
    document: Document | None
    started: str = ""
    """The launch that this process has started."""
    trouble: str = ""
    stopping: asyncio.Future[None] | None = None


@dataclass(frozen=True, slots=True)
class _Refusal:
    reason: str
    message: str


class SnapshotFeature:
    """Implements ``tidegate.policy.feature.Feature`` for ``spec.snapshots``. Belongs to the event loop's thread."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._memories: dict[str, _Memory] = {}

    async def reconcile(self, policy: PolicyView) -> FeatureOutcome:
        spec = policy.spec.snapshots
        if spec is None:
            return await self._none_wanted(policy)
        if policy.status.snapshots is None:
            # First of all it is written that there is something to look after: without it, an order would be forgotten
            # by a process that finds the policy asking for none.
            status, _ = backed_up(policy, spec, Standing(None, None, None))
            return FeatureOutcome(status, again_after_s=0.0)
        memory = await self._memory(policy)
        wanted = self._wanted(policy, spec)
        if isinstance(wanted, _Refusal):
            if not await self._withdrawn(policy, memory):
                return FeatureOutcome(policy.status, again_after_s=_ACTIVE_S)
            self._tell(spec, memory, None)
            return refused(policy, wanted.reason, wanted.message)
        try:
            return await self._kept(policy, spec, memory, wanted)
        except (RunnerFailure, TimeoutError) as failure:
            if str(failure) != memory.trouble:
                memory.trouble = str(failure)
                _log.warning("%s: %s; again soon", label_of(policy.body), failure)
            return self._said(policy, spec, memory, wanted, again_after_s=_TROUBLED_S)

    async def forget(self, uid: str) -> None:
        """The policy is gone: its document and its SparkApplication go with it, and a job of this machine is ended."""
        memory = self._memories.pop(uid, None)
        if memory is None:
            return
        self._parts.metrics.gone(memory.namespace, memory.name)
        if memory.document is not None and memory.document.is_under_way and self._parts.runner is not None:
            launch = Launch(memory.document.order.attempt, memory.namespace, "")
            try:
                await in_thread(self._parts.patient_executor, self._parts.runner.stop, launch)
            except (RunnerFailure, TimeoutError) as failure:
                _log.warning("%s/%s: %s; its job ends by itself", memory.namespace, memory.name, failure)

    async def disconnected(self, uid: str) -> None:
        """When the newest snapshot was taken stays true, and that it gets late is worth an alert."""

    # --- one pass -----------------------------------------------------------------------------------------------------

    async def _none_wanted(self, policy: PolicyView) -> FeatureOutcome:
        uid = uid_of(policy.body)
        if policy.status.snapshots is None and uid not in self._memories:
            return FeatureOutcome(without_snapshots(policy.status), again_after_s=_NEVER_S)
        if not await self._withdrawn(policy, await self._memory(policy)):
            return FeatureOutcome(policy.status, again_after_s=_ACTIVE_S)
        await self.forget(uid)
        return FeatureOutcome(without_snapshots(policy.status), again_after_s=_NEVER_S)

    async def _kept(self, policy: PolicyView, spec: SnapshotsSpec, memory: _Memory, wanted: Order) -> FeatureOutcome:
        document = memory.document
        if document is not None and document.is_under_way:
            if not _is_same(document.order, wanted):
                done = await self._withdrawn(policy, memory)
                return FeatureOutcome(policy.status, again_after_s=0.0 if done else _ACTIVE_S)
            document = await self._followed(policy, memory, document)
            # How it ended is said before anything else is begun.
            return self._said(policy, spec, memory, wanted, again_after_s=_ACTIVE_S if document.is_under_way else 0.0)
        decision = _decided(policy, spec, document, wanted)
        if isinstance(decision, Take):
            await self._ordered(policy, memory, wanted, decision)
            return self._said(policy, spec, memory, wanted, again_after_s=0.0)
        left_s = (decision.until - policy.now).total_seconds()
        return self._said(policy, spec, memory, wanted, again_after_s=min(_IDLE_S, max(_LEAST_S, left_s)))

    async def _followed(self, policy: PolicyView, memory: _Memory, document: Document) -> Document:
        """The document after a look at the job: started where it was not, ended where it has ended."""
        runner = self._runner()
        launch = self._launch(policy, document.order)
        status = await in_thread(self._parts.executor, runner.status, launch)
        # After the look at the job: what it stored before it ended is seen then.
        document = await self._read(policy, memory)
        if not document.is_under_way:
            return document
        over = policy.now - document.asked.asked_at > JOB_LIMIT
        if status.state is RunnerState.LOST and memory.started != launch.name and not over:
            await in_thread(self._parts.executor, runner.start, launch)
            memory.started, memory.trouble = launch.name, ""
            _log.info("%s: started job %s", label_of(policy.body), launch.name)
            return document
        if status.state is RunnerState.RUNNING and not over:
            memory.trouble = status.message
            return document
        why = status.message or "it ended without a result"
        if over:
            why = f"it did not end within {JOB_LIMIT}: {status.message or status.state.value}"
        if not await self._stopped(policy, memory, document):
            return document
        document = await self._read(policy, memory)
        if document.is_under_way:
            return await self._write(policy, memory, replace(document, result=Result(policy.now, failure=why)))
        return document

    async def _ordered(self, policy: PolicyView, memory: _Memory, wanted: Order, take: Take) -> None:
        """Write down what is to be made now."""
        document, name = memory.document, document_name(name_of(policy.body), uid_of(policy.body))
        before = policy.status.snapshots.launch if policy.status.snapshots is not None else None
        # The status remembers it too: a document that somebody has removed must not have names used twice.
        number = 1 + max(0 if document is None else document.asked.number, _number(before, name))
        same_place = document is not None and document.order.storage == wanted.storage
        await self._write(
            policy,
            memory,
            Document(
                replace(wanted, due=take.due, attempt=f"{name}-{number}"),
                Asked(
                    number,
                    policy.now,
                    take.missed,
                    document.failures if document is not None and same_place else 0,
                    _made(document, wanted, policy),
                ),
            ),
        )

    async def _withdrawn(self, policy: PolicyView, memory: _Memory) -> bool:
        """Whether no job is under way any more, and none will be started of what was ordered."""
        document = memory.document
        if document is None or not document.is_under_way:
            return True
        try:
            if self._parts.runner is not None and not await self._stopped(policy, memory, document):
                return False
        except (RunnerFailure, TimeoutError) as failure:
            _log.warning("%s: %s; again soon", label_of(policy.body), failure)
            return False
        document = await self._read(policy, memory)
        if document.is_under_way:
            await self._write(policy, memory, replace(document, result=Result(policy.now, withdrawn=True)))
        return True

    async def _stopped(self, policy: PolicyView, memory: _Memory, document: Document) -> bool:
        """Whether the job is gone; stopping it goes on in a thread, and passes look in on it."""
        if memory.stopping is None:
            call = functools.partial(self._runner().stop, self._launch(policy, document.order))
            memory.stopping = asyncio.get_running_loop().run_in_executor(self._parts.patient_executor, call)
        done, _ = await asyncio.wait([memory.stopping], timeout=_WAIT_A_PASS_S)
        if not done:
            return False
        stopping, memory.stopping = memory.stopping, None
        stopping.result()
        return True

    # --- what is wanted -----------------------------------------------------------------------------------------------

    def _wanted(self, policy: PolicyView, spec: SnapshotsSpec) -> Order | _Refusal:
        """What an order says now, but for its attempt."""
        parts, live, path = self._parts, policy.live, "spec.snapshots.to"
        message = storage_not_allowed(live.name, live.allow, path, spec.to)
        if message is not None:
            return _Refusal(STORAGE_NOT_ALLOWED, message)
        if parts.runner is None:
            return _Refusal(
                SPARK_UNAVAILABLE,
                "spec.snapshots: snapshots are made by Spark, and this operator has no Spark runner: configure one "
                "(TIDEGATE_SPARK_RUNNER)",
            )
        unavailable = why_not(policy.spec.spark, unmounted([live]), parts.spark, in_pods=parts.places.in_pods)
        if unavailable is not None:
            return _Refusal(*unavailable)
        storage = snapshot_storage(spec.to, path, parts.places)
        if isinstance(storage, str):
            return _Refusal(BAD_SNAPSHOT_STORAGE, storage)
        mounted = live.mounted if parts.places.in_pods else None
        return Order(
            connection=live.connection if mounted is None else mounted,
            storage=storage,
            schedule=uid_of(policy.body),
            due=due_at(policy.now, spec.schedule),
            attempt="none",
            groups=spec.groups or ("*",),
            allowed_groups=live.allow.groups,
            allowed_topics=live.allow.topics,
            keep=None if spec.keep is None else Keep(spec.keep.each, spec.keep.daily),
        )

    def _launch(self, policy: PolicyView, order: Order) -> Launch:
        body, spec, in_pods = policy.body, policy.spec, self._parts.places.in_pods
        storage = spec.snapshots.to if spec.snapshots is not None else None
        namespace = namespace_of(body)
        return Launch(
            name=order.attempt,
            namespace=namespace,
            store=f"configmap://{namespace}/{document_name(name_of(body), uid_of(body))}",
            owner=owner_reference(body),
            spark=spec.spark.to_json() if spec.spark is not None else {},
            connection_secrets=merged_secrets([policy.live.secrets, secrets_of(storage)]) if in_pods else {},
            claims=claims_of(storage, written=True) if in_pods else {},
            environment={**environment(order.storage), ORDER_VARIABLE: digest(order)},
            job="snapshot",
        )

    def _runner(self) -> Runner:
        if self._parts.runner is None:
            raise RunnerFailure("this operator has no Spark runner")
        return self._parts.runner

    # --- saying -------------------------------------------------------------------------------------------------------

    def _said(
        self,
        policy: PolicyView,
        spec: SnapshotsSpec,
        memory: _Memory,
        wanted: Order,
        *,
        again_after_s: float,
    ) -> FeatureOutcome:
        document = memory.document
        made = _made(document, wanted, policy)
        begins = None
        if document is None or not document.is_under_way:
            decision = _decided(policy, spec, document, wanted)
            begins = decision.until if isinstance(decision, Wait) else decision.due
        status, happenings = backed_up(policy, spec, Standing(document, made, begins, memory.trouble))
        self._tell(spec, memory, made)
        self._count(policy.status.snapshots, status.snapshots)
        return FeatureOutcome(status, happenings, again_after_s)

    def _tell(self, spec: SnapshotsSpec, memory: _Memory, made: Snapshot | None) -> None:
        self._parts.metrics.policy_is(
            memory.namespace,
            memory.name,
            taken_at=None if made is None else made.taken_at,
            every_s=spec.schedule.total_seconds(),
            offsets=0 if made is None else made.offsets,
            unread=0 if made is None else made.unread,
        )

    def _count(self, before: SnapshotsStatus | None, now: SnapshotsStatus | None) -> None:
        if before is None or now is None:
            return
        if now.last is not None and now.last != before.last:
            self._parts.metrics.ended(taken=True)
        if (now.failures or 0) > (before.failures or 0):
            self._parts.metrics.ended(taken=False)

    # --- the document -------------------------------------------------------------------------------------------------

    async def _memory(self, policy: PolicyView) -> _Memory:
        uid = uid_of(policy.body)
        if uid not in self._memories:
            memory = _Memory(namespace_of(policy.body), name_of(policy.body), None)
            memory.document = await self._look(policy)
            self._memories[uid] = memory
        return self._memories[uid]

    async def _read(self, policy: PolicyView, memory: _Memory) -> Document:
        """As it is now. What was removed or spoilt meanwhile is written again, as this process knows it."""
        found = await self._look(policy)
        if found is None or (memory.document is not None and found.order != memory.document.order):
            if memory.document is None:
                raise ValueError("a document is read again once there is one")
            return await self._write(policy, memory, memory.document)
        memory.document = found
        return found

    async def _look(self, policy: PolicyView) -> Document | None:
        namespace, name = namespace_of(policy.body), document_name(name_of(policy.body), uid_of(policy.body))
        try:
            return decode_document(await in_thread(self._parts.executor, self._parts.kube.config_map, namespace, name))
        except NotFound:
            return None
        except BadDocument as bad:
            _log.warning("ConfigMap %s/%s is no snapshot's document: %s; it is written anew", namespace, name, bad)
            return None

    async def _write(self, policy: PolicyView, memory: _Memory, document: Document) -> Document:
        name = document_name(name_of(policy.body), uid_of(policy.body))
        await in_thread(
            self._parts.executor, self._parts.kube.put_config_map, policy.body, name, encode_document(document)
        )
        memory.document, memory.trouble = document, ""
        return document


def _is_same(order: Order, wanted: Order) -> bool:
    return replace(wanted, due=order.due, attempt=order.attempt) == order


def _made(document: Document | None, wanted: Order, policy: PolicyView) -> Snapshot | None:
    """The newest snapshot in the place that is asked for, of the cluster that is asked."""
    made = document.made if document is not None else None
    is_meant = made is not None and made.storage == wanted.storage and made.cluster_id == policy.live.cluster_id
    return made if is_meant else None


def _decided(policy: PolicyView, spec: SnapshotsSpec, document: Document | None, wanted: Order) -> Take | Wait:
    made = _made(document, wanted, policy)
    return decide(policy.now, spec.schedule, None if made is None else made.due, _attempt(document, wanted))


def _attempt(document: Document | None, wanted: Order) -> Attempt | None:
    """As the schedule counts it: one that was withdrawn, or asked for something else, is none."""
    if document is None:
        return None
    if document.result is None:
        return Attempt(document.order.due)
    if document.result.snapshot is not None or document.result.withdrawn or not _is_same(document.order, wanted):
        return None
    return Attempt(document.order.due, document.result.ended_at, document.failures)


def _number(launch: str | None, name: str) -> int:
    """The attempt in a launch's name, where it is one of this document's."""
    text = (launch or "").removeprefix(f"{name}-")
    return int(text) if text.isdecimal() else 0
