"""The runs of a resource that asks for resets: their documents, what they may touch, how a job of one is started."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

from tidegate.audit.codec import ATTRIBUTION_VARIABLE, attribution_said
from tidegate.audit.records import Actor, Attribution
from tidegate.connection.live import Live
from tidegate.jobs.errors import RunnerFailure
from tidegate.jobs.mounts import CLAIMS_FOLDER, SECRETS_FOLDER, JobPlaces, claims_of, secrets_of
from tidegate.jobs.runner import merged_secrets
from tidegate.jobs.storage import environment
from tidegate.kafka.connection import Connection, Registry
from tidegate.kafka.names import narrowed
from tidegate.kube.ports import (
    RESETS,
    NotFound,
    Object,
    connection_named,
    name_of,
    namespace_of,
    owner_reference,
    uid_of,
)
from tidegate.offset_reset import backups
from tidegate.offset_reset.parts import Parts
from tidegate.offset_reset.reading import status_of
from tidegate.reset.binding import Binding, Check, EndBinding, OperatorBinding
from tidegate.reset.confined import ConfinedRunStore, Confines, confined
from tidegate.reset.document import NewerRun
from tidegate.reset.model.request import RunRequest
from tidegate.reset.model.targets import FromCluster, FromGroup
from tidegate.reset.runs import fleet_job
from tidegate.reset.runs.fleet import group_document, group_run_uid
from tidegate.reset.runs.fleet_groups import FLEET_THREADS, SideBySide
from tidegate.reset.runs.fleet_parts import Parts as FleetParts
from tidegate.reset.runs.in_process import ConfinedLaunch
from tidegate.reset.runs.request import launch_number, run_name, run_uid
from tidegate.reset.runs.seen import Seen, is_settled, under_way
from tidegate.reset.store import ForgedRun, Run, RunNotFound, RunStore
from tidegate.resources.conditions import Refusal
from tidegate.resources.offset_reset import OffsetResetSpec, OffsetResetStatus
from tidegate.resources.reset import Engine
from tidegate.resources.targets import BackupTarget
from tidegate.threads import in_thread
from tidegate.versions import RUN, NewerVersion, check, digest_version

_Limit = tuple[str, ...] | None
"""``None``: it is not known."""


@dataclass(frozen=True, slots=True)
class _Allowed:
    """Groups, topics, and groups of another cluster, names and patterns."""

    groups: tuple[str, ...]
    topics: tuple[str, ...]
    other_groups: tuple[str, ...]


def _allowed_then(request: RunRequest) -> _Allowed:
    """What a run was allowed when it began, as far as it makes use of that."""
    target, fleet = request.target, request.fleet
    read = (target.group_id,) if isinstance(target, FromGroup) else ()
    return _Allowed(
        groups=((request.group_id,) if fleet is None else fleet.allowed_groups) + read,
        topics=request.allowed_topics,
        other_groups=(target.group_id,) if isinstance(target, FromCluster) else (),
    )


def _asks_registry(spec: OffsetResetSpec | None) -> bool:
    """Whether its job decodes values by the connection's schema registry."""
    record = spec.to.record if spec is not None else None
    return record is not None and record.value_schema is not None and record.value_schema.registry is not None


def document_of(body: Object) -> str:
    """The name of its run's ConfigMap."""
    return run_name(name_of(body), uid_of(body))


class Runs:
    """What a resource's spec and status say about its runs. Nothing of it is believed of a run's document."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._begun: dict[str, _Allowed] = {}
        """By resource, what its run was allowed when it began, where its document was read."""

    def connection(self, body: Object, seen: Seen) -> Live:
        live = self._parts.live.to_finish(body) if seen.spec is not None else None
        if live is None:
            raise RunnerFailure(f"KafkaConnection {connection_named(body)[1] or '?'} is not open")
        return live

    def other(self, body: Object, spec: OffsetResetSpec | None) -> Live | None:
        """The connection to the cluster that ``to.cluster`` names, where it is open."""
        if spec is None or spec.to.cluster is None:
            return None
        return self._own(body, spec.to.cluster.connection_ref.name)

    def _own(self, body: Object, name: str) -> Live | None:
        """A connection of the resource's namespace."""
        return self._parts.live.used_from(namespace_of(body), (namespace_of(body), name))

    def connection_of_job(self, live: Live, engine: Engine) -> Connection:
        if live.is_foreign:
            # The run's document is in its user's namespace, and only the operator acts by it, which knows the rest.
            return Connection(live.connection.bootstrap_servers)
        in_pods = self._parts.mounts_secrets and engine is Engine.SPARK
        return live.mounted if in_pods and live.mounted is not None else live.connection

    def registry_of_job(self, live: Live) -> Registry | None:
        """The connection's schema registry as a Spark job reaches it; ``None`` where it has none."""
        return live.mounted_registry if self._parts.mounts_secrets else live.registry

    def _mounts(self) -> JobPlaces:
        return JobPlaces(self._parts.mounts_secrets, CLAIMS_FOLDER, SECRETS_FOLDER, self._parts.spark.backups)

    def store(self, body: Object) -> RunStore:
        return self.open_store(body, self.binding(body))

    def open_store(self, body: Object, binding: Check, owner: Mapping[str, Any] | None = None) -> RunStore:
        store = self._parts.open_store(namespace_of(body), document_of(body), owner)
        return ConfinedRunStore(store, self.confines(body), binding)

    def binding(self, body: Object) -> OperatorBinding:
        """By the status as it was written last; to no document at all where that knows of no run under way."""
        current = under_way(status_of(body))
        if current is None:
            return OperatorBinding("")
        return OperatorBinding(current.digest or "", current.approved_digest or "")

    async def load(self, body: Object) -> Run | None:
        """The run under way. Raises ``ForeignRun``, ``ForgedRun`` and ``NewerRun``.

        What it was allowed when it began is in its request, which the digest in the status vouches for. By that it is
        ended, whatever its connection allows by then.
        """
        binding = self.binding(body)
        store = ConfinedRunStore(self._parts.open_store(namespace_of(body), document_of(body), None), None, binding)
        run = await self._load(store, binding.digest)
        if run is None:
            return None
        self._begun[uid_of(body)] = _allowed_then(run.request)
        return confined(run, self.confines(body), store.location)

    async def _load(self, store: RunStore, digest: str) -> Run | None:
        """``digest``: what the operator keeps of the run, empty for nothing; by that, and not by what the document
        says, it is of a newer version."""
        kept = digest_version(digest)
        try:
            check(RUN, kept, store.location)
            return await in_thread(self._parts.executor, store.load)
        except NewerVersion as newer:
            raise NewerRun(newer) from newer
        except RunNotFound:
            return None
        except NewerRun as newer:
            if not digest:
                raise
            raise ForgedRun(
                f"{store.location} says that it is of version {newer.version}, but the operator recorded it as one of "
                f"version {kept}. Tidegate ignores all of it: find out who wrote it"
            ) from newer

    def forget(self, uid: str) -> None:
        """The resource is gone."""
        self._begun.pop(uid, None)

    async def earlier(self, body: Object, run_id: str) -> Object | None:
        """Another ``OffsetReset`` of the namespace; ``None`` where there is no such resource."""
        try:
            return await in_thread(self._parts.executor, self._parts.kube.get, RESETS, namespace_of(body), run_id)
        except NotFound:
            return None

    async def ended(self, earlier: Object) -> Run | None:
        """An earlier run, as it ended; ``None`` where the status of its resource has no digest of it.

        Raises ``ForeignRun``, ``ForgedRun`` and ``NewerRun``.
        """
        status = status_of(earlier)
        if not is_settled(status) or status.result_digest is None:
            return None
        return await self._load(self.open_store(earlier, EndBinding(status.result_digest)), status.result_digest)

    def confines(self, body: Object) -> Confines:
        """By the spec as it is written, also where it can't be read as a whole."""
        spec = body.get("spec") or {}
        live = self._parts.live.to_finish(body)
        begun = self._begun.get(uid_of(body)) if under_way(status_of(body)) is not None else None
        groups, topics, patterns = _limits(body, live, begun)
        to = (spec.get("to") or {}).get("cluster") or {}
        other = self._own(body, str((to.get("connectionRef") or {}).get("name", "")))
        other_groups = other.allow.groups if other is not None else None
        return Confines(
            run_uid=run_uid(uid_of(body), name_of(body)),
            group_id=str(spec.get("group", "")),
            patterns=patterns,
            connection=live.connection if live is not None else None,
            groups=groups,
            topics=topics,
            other=other.connection if other is not None else None,
            other_groups=begun.other_groups if begun is not None else other_groups,
            shown=self.connection_of_job(live, Engine.DIRECT) if live is not None and live.is_foreign else None,
            dead_letter=str((spec.get("deadLetter") or {}).get("topic", "")),
            hides_values=(spec.get("evidence") or {}).get("showValues") is not True,
            attribution=attribution_of(body, status_of(body), live),
        )

    def groups(self, body: Object) -> tuple[str, ...]:
        """Which groups its run may change, names and patterns."""
        confines = self.confines(body)
        if confines.patterns is None:
            return (confines.group_id,)
        return confines.patterns if confines.groups is None else narrowed(confines.patterns, confines.groups)

    def is_connected(self, body: Object, run: Run) -> bool:
        """Whether the connections that a job of this run acts through are open; another cluster is read for the plan
        only."""
        confines = self.confines(body)
        reads_other = isinstance(run.request.target, FromCluster) and run.plan is None
        return confines.connection is not None and not (reads_other and confines.other is None)

    def is_withdrawn(self, body: Object) -> bool:
        """Whether nothing is begun any more through its connection."""
        live = self._parts.live.to_finish(body)
        return live is not None and live.withdrawn

    async def backup(self, body: Object, backup: BackupTarget, live: Live) -> backups.Found | Refusal:
        """Where the backup is that ``to.backup`` means."""
        kube, namespace = self._parts.kube, namespace_of(body)
        return await in_thread(self._parts.executor, backups.find, kube, namespace, backup, live, self._mounts())

    def launch(
        self,
        body: Object,
        spec: OffsetResetSpec | None,
        current: OffsetResetStatus,
        name: str,
        backup: backups.Found | None = None,
    ) -> ConfinedLaunch:
        """``backup``: what its job reads to make the plan, where the target is one."""
        document = name.removesuffix(f"-{launch_number(name)}")
        live = self._parts.live.to_finish(body) if spec is not None else None
        if live is not None and live.is_foreign and current.engine is not Engine.DIRECT:
            raise RunnerFailure(
                f"the credentials of KafkaConnection {live.label} may not be given to a job of another namespace"
            )
        in_pods = self._parts.mounts_secrets and current.engine is Engine.SPARK
        used = [live, self.other(body, spec)] if in_pods else []
        secrets = [open_.secrets for open_ in used if open_ is not None]
        asked = live.registry_secrets if in_pods and live is not None and _asks_registry(spec) else {}
        storage = backup.storage if backup is not None else None
        # The status that is about to be written may be the first that has an approval.
        attribution = attribution_of(body, current, self._parts.live.to_finish(body))
        said = {ATTRIBUTION_VARIABLE: attribution_said(attribution)} if attribution is not None else {}
        return ConfinedLaunch(
            name=name,
            namespace=namespace_of(body),
            store=self._parts.open_store(namespace_of(body), document, None).location,
            owner=owner_reference(body),
            spark=spec.spark.to_json() if spec is not None and spec.spark is not None else {},
            connection_secrets=merged_secrets([*secrets, *([secrets_of(storage)] if in_pods else ())]),
            driver_secrets=asked,
            confines=replace(self.confines(body), attribution=attribution),
            reads_records=spec is not None and spec.to.kind.reads_records,
            claims=claims_of(storage, written=False) if in_pods else {},
            environment={
                **(environment(backup.target.storage) if backup is not None else {}),
                **Binding(current.digest or "", current.approved_digest or "").environment(),
                **said,
            },
        )

    def fleet_parts(self, body: Object, seen: Seen, live: Live) -> FleetParts | None:
        """What a fleet's run is fenced and settled through; ``None`` where the run is of one group."""
        if seen.run is None or seen.run.request.fleet is None:
            return None
        owner = owner_reference(body)
        return fleet_job.parts_of(
            seen.run_document,
            self.confines(body),
            seen.run.request.fleet.undoes,
            lambda document: self._parts.open_store(namespace_of(body), document, owner),
            live.finishing,
            self._parts.clock,
            SideBySide(
                lambda: closing(self._parts.open_kafka(live.connection)), self._parts.clock, threads=FLEET_THREADS
            ),
        )

    def runs_beneath(self, body: Object, ends: Mapping[str, str]) -> Callable[[str], Run | None]:
        """``ends``: by group, the digest of how its run ended."""
        confines = self.confines(body)

        def load(group_id: str) -> Run | None:
            uid = group_run_uid(confines.run_uid, group_id)
            document = group_document(document_of(body), uid)
            store = self._parts.open_store(namespace_of(body), document, None)
            try:
                return ConfinedRunStore(
                    store, confines.of_group(uid, group_id), EndBinding(ends.get(group_id, ""))
                ).load()
            except RunNotFound:
                return None

        return load


def attribution_of(body: Object, status: OffsetResetStatus, live: Live | None) -> Attribution | None:
    """In whose name its run changes offsets; ``None`` where its connection records nothing."""
    if live is None or live.audit is None:
        return None
    return Attribution(
        topic=live.audit,
        by=Actor(RESETS.kind, name_of(body), namespace_of(body)),
        requester=status.requester or "",
        approver=status.approval.approver if status.approval is not None else "",
        approved=status.approved_digest or "",
    )


def _limits(body: Object, live: Live | None, begun: _Allowed | None) -> tuple[_Limit, _Limit, _Limit]:
    """The groups and topics that a run may touch, and the patterns of a fleet. ``begun``: what it was allowed then."""
    named = (body.get("spec") or {}).get("groups")
    patterns = tuple(map(str, named)) if named else None
    if live is None:
        return None, None, patterns
    groups = begun.groups if begun is not None else live.allow.groups
    topics = begun.topics if begun is not None else live.allow.topics
    if patterns is not None and live.is_foreign:
        # What else the patterns match is for others, who do not want to be told of.
        patterns = narrowed(patterns, groups)
    return groups, topics, patterns
