"""Whether a run may begin, and with what: connection, what is allowed, engine and target."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Final

from tidegate.connection.freezing import frozen
from tidegate.connection.live import Live
from tidegate.connection.read_only import observes
from tidegate.connection.sharing import is_foreign
from tidegate.connection.sharing import refusal as connection_refused
from tidegate.kafka.errors import KafkaFailure
from tidegate.kube.ports import (
    NotFound,
    Object,
    connection_named,
    name_of,
    namespace_of,
    uid_of,
)
from tidegate.offset_reset.backups import Found
from tidegate.offset_reset.doors import Doors
from tidegate.offset_reset.engines import engine_for
from tidegate.offset_reset.kept import Kept
from tidegate.offset_reset.limits import limits_of_undo, too_large_by_now
from tidegate.offset_reset.once import Once
from tidegate.offset_reset.parts import Parts
from tidegate.offset_reset.pause_at_end import PAUSE_EXISTS, PausesAtEnd
from tidegate.offset_reset.reading import read_spec, status_of
from tidegate.offset_reset.refusals import (
    connection_to_wait_for,
    not_allowed,
    not_allowed_over_there,
    of_foreign_run,
    of_other_group,
    other_to_wait_for,
    plan_not_allowed,
    same_groups,
    suspended,
    undone_to_wait_for,
)
from tidegate.offset_reset.runs import Runs
from tidegate.offset_reset.turns import UNDESCRIBED, Turns, not_ready
from tidegate.reset.document import NewerRun
from tidegate.reset.model.request import FleetRequest, PlanLimits
from tidegate.reset.model.targets import FromFile, FromGroup, RecordSchema, Target, Undo
from tidegate.reset.planning.offsets_csv import BadOffsetsFile, parse_offsets
from tidegate.reset.runs import reasons
from tidegate.reset.runs.fleet_groups import undone_groups
from tidegate.reset.runs.quota import limits_of
from tidegate.reset.runs.request import (
    NOTHING_TO_UNDO,
    cluster_target,
    make_request,
    record_target,
    run_name,
    run_uid,
    simple_target,
    undo_not_found,
    undo_target,
    waves_asked,
)
from tidegate.reset.runs.seen import Start
from tidegate.reset.store import ForeignRun, ForgedRun, Run
from tidegate.resources.conditions import OBSERVING, Refusal
from tidegate.resources.offset_reset import OffsetResetSpec, OffsetResetStatus
from tidegate.resources.reset import Engine, FailurePolicy
from tidegate.resources.targets import ConfigMapTarget, Undecodable, ValueSchema
from tidegate.threads import in_thread
from tidegate.versions import WRITTEN_BY_NEWER_VERSION

CONFIG_MAP_NOT_FOUND: Final = "ConfigMapNotFound"
BAD_OFFSETS_FILE: Final = "BadOffsetsFile"
NO_SCHEMA_REGISTRY: Final = "NoSchemaRegistry"


class Beginning:
    """The checks before a run."""

    def __init__(self, parts: Parts, runs: Runs, once: Once, kept: Kept, pauses: PausesAtEnd) -> None:
        self._parts = parts
        self._pauses = pauses
        self._once = once
        self._kept = kept
        self._runs = runs
        self._turns = Turns(parts)
        self._doors = Doors()

    def want(self, body: Object, spec: OffsetResetSpec | None) -> None:
        """Tell the observer what of the cluster this resource needs to know from now on. ``None``: nothing."""
        uid = uid_of(body)
        live = self._parts.live.used_by(body) if spec is not None else None
        if spec is None or live is None or body["metadata"].get("deletionTimestamp"):
            self._parts.observer.drop(uid)
        else:
            self._parts.observer.want(uid, live.uid, spec.group, active=True)

    def take(self, body: Object) -> None:
        """This is how a reset is, for those that it may be in the way of."""
        self._turns.take(body)

    def forget(self, uid: str) -> None:
        """The reset is gone."""
        self._turns.forget(uid)

    @asynccontextmanager
    async def turn(self, body: Object) -> AsyncIterator[None]:
        """For a pass in which a run may go ahead: few of one connection at once. A turn that the pass was given, and
        has not used, is given back."""
        try:
            if self._parts.live.used_by(body) is None:
                yield  # whatever it names: no broker is asked
            else:
                async with self._doors.through(namespace_of(body), connection_named(body)):
                    yield
        finally:
            self._turns.give_back(uid_of(body))

    def is_written(self, uid: str) -> None:
        """The status is about to say that the run goes ahead."""
        self._turns.is_written(uid)

    def is_not_written(self, uid: str) -> None:
        """It does not go ahead, and nothing was written."""
        self._turns.is_not_written(uid)

    async def start(self, body: Object, spec: OffsetResetSpec, current: OffsetResetStatus | None) -> Start:
        """What a new run needs, or the first reason why it can't begin. ``current``: it has begun, by the status."""
        live, other = self._parts.live.used_by(body), self._runs.other(body, spec)
        held_up = await self._held_up(body, spec, current, live, other)
        if held_up is not None or live is None:
            return held_up or Start()
        # Again: the connection may have been opened while this pass waited for its turn.
        self.want(body, spec)
        engine = engine_for(
            spec,
            live,
            other,
            runners=self._parts.runners,
            spark=self._parts.spark,
            in_pods=self._parts.mounts_secrets,
        )
        if isinstance(engine, Refusal):
            return Start(refusal=engine)
        try:
            undone = await self._undone(body, spec, live)
        except KafkaFailure as failure:
            return Start(waits_for=not_ready(live.label, str(failure)))
        if isinstance(undone, Refusal):
            return Start(refusal=undone)
        waits = undone_to_wait_for(undone)
        if waits is not None:
            return Start(waits_for=waits)
        target = await self._target(body, spec, live, undone)
        if isinstance(target, Refusal):
            return Start(refusal=target)
        fleet = await self._fleet(spec, live, undone)
        if isinstance(fleet, Refusal):
            return Start(refusal=fleet)
        if current is None:
            in_the_way = await self._pauses.refusal(body, spec) or await self._turns.in_the_way(body, spec, live)
            if in_the_way is not None and in_the_way.reason in (PAUSE_EXISTS, *UNDESCRIBED):
                return Start(refusal=in_the_way)
            if in_the_way is not None:
                return Start(waits_for=in_the_way)
        try:
            ran = await self._once.ran_before(body, live)
        except KafkaFailure as failure:
            return Start(waits_for=not_ready(live.label, str(failure)))
        if ran is not None:
            return Start(refusal=ran)
        request = make_request(
            spec,
            requester=body,
            connection=self._runs.connection_of_job(live, engine),
            connection_uid=live.uid,
            allowed_topics=live.allow.topics,
            target=target,
            started_at=(current.started_at if current is not None else None) or self._parts.clock.now(),
            fleet=fleet,
            observed=live.observes,
            limits=await self._limits(body, undone, live),
        )
        return Start(engine=engine, request=request)

    def began_with(self, body: Object) -> None:
        """Its run is under way, and the document of that was read."""
        self._turns.began_with(uid_of(body), self._runs.groups(body))

    async def _held_up(
        self,
        body: Object,
        spec: OffsetResetSpec,
        current: OffsetResetStatus | None,
        live: Live | None,
        other: Live | None,
    ) -> Start | None:
        """Why it does not begin, by its connections and what they allow, or because it is not to."""
        if live is None and is_foreign(body):
            refused = connection_refused(body)
            if current is not None and self._parts.live.to_finish(body) is None:
                # Just after this process was started it is not known yet whether one that has begun may go on.
                return Start(waits_for=refused)
            return Start(refusal=refused, ends=True)
        # Of one that has begun this was so when it did.
        held = (suspended(body) or await self._once.not_asked_for(body)) if current is None else None
        waits = (
            held
            or connection_to_wait_for(body, live)
            or (frozen(live) if live is not None and current is None else None)
        )
        refusal = None if live is None else not_allowed(spec, live)
        if spec.to.cluster is not None:
            waits = waits or other_to_wait_for(spec.to.cluster, other)
            refusal = refusal or (None if other is None else not_allowed_over_there(spec.to.cluster, other))
        if refusal is not None:
            return Start(refusal=refusal, ends=True)
        return Start(waits_for=waits) if waits is not None else None

    async def ahead_of(self, body: Object, spec: OffsetResetSpec | None, run: Run) -> Refusal | None:
        """Why a plan that is approved has to wait for its turn, or for its connection."""
        if spec is None:
            return None
        held = suspended(body)
        if held is not None:
            return held
        live = self._parts.live.used_by(body)
        if live is None:
            return connection_to_wait_for(body, live)
        if live.observes:
            return Refusal(
                OBSERVING,
                f"{observes(live.label)}. This reset's plan is not applied until that connection stops observing",
            )
        if live.frozen:
            return frozen(live)
        refused = not_allowed(spec, live) or plan_not_allowed(spec, run, live)
        if refused is not None:
            return refused
        # What was planned while the connection only observed is not written down yet as executed.
        ran = await self._once.ran_before(body, live) if run.request.observed else None
        too_large = await self._too_large_by_now(body, spec, live)
        return ran or too_large or await self._turns.in_the_way(body, spec, live)

    async def _target(self, body: Object, spec: OffsetResetSpec, live: Live, undone: Object | None) -> Target | Refusal:
        to = spec.to
        if to.group is not None:
            return FromGroup(to.group)
        if to.undo is not None and spec.groups is not None:
            return Undo(to.undo, ())  # what each group goes back to is in its own document
        if to.undo is not None and undone is not None:
            try:
                return undo_target(to.undo, await self._runs.ended(undone))
            except ForgedRun as forged:
                return Refusal(reasons.FORGED, f"spec.to.undo: {forged}")
            except ForeignRun as foreign:
                return of_foreign_run(undone, spec, foreign)
            except NewerRun as newer:
                return Refusal(WRITTEN_BY_NEWER_VERSION, f"spec.to.undo: {newer}")
        if to.record is not None:
            schema = await self._schema(body, to.record.value_schema, live)
            return schema if isinstance(schema, Refusal) else record_target(to.record, schema)
        if to.cluster is not None:
            other = self._runs.other(body, spec)
            if other is None:
                raise ValueError("a run from another cluster begins once that connection is open")
            return cluster_target(to.cluster, self._runs.connection_of_job(other, Engine.SPARK), other.allow.topics)
        if to.backup is not None:
            found = await self._runs.backup(body, to.backup, live)
            return found.target if isinstance(found, Found) else found
        target = simple_target(to)
        if target is not None:
            return target
        if to.config_map is None:
            raise ValueError(f"spec.to.{to.kind} names no target")
        text = await self._text(body, "spec.to.configMap", to.config_map)
        if isinstance(text, Refusal):
            return text
        source = f"ConfigMap {to.config_map.name}, key {to.config_map.key}"
        try:
            return FromFile(parse_offsets(text, spec.only_group), source)
        except BadOffsetsFile as bad:
            return Refusal(BAD_OFFSETS_FILE, f"spec.to.configMap: {source}: {bad}")

    async def _schema(self, body: Object, named: ValueSchema | None, live: Live) -> RecordSchema | Refusal | None:
        if named is None:
            return None
        undecodable = named.undecodable or Undecodable.FAIL
        if named.config_map is not None:
            text = await self._text(body, "spec.to.record.valueSchema.configMap", named.config_map)
            if isinstance(text, Refusal):
                return text
            source = f"ConfigMap {named.config_map.name}, key {named.config_map.key}"
            return RecordSchema(named.format, text, source, named.message or "", undecodable=undecodable)
        subject, registry = named.registry, self._runs.registry_of_job(live)
        if subject is None:
            raise ValueError("spec.to.record.valueSchema names no place")
        if registry is None:
            return Refusal(
                NO_SCHEMA_REGISTRY,
                f"spec.to.record.valueSchema.registry: KafkaConnection {live.label} names no schema registry: add "
                "spec.schemaRegistry there, or put the schema into a ConfigMap",
            )
        return RecordSchema(
            named.format,
            "",
            f"subject {subject.subject} of the schema registry",
            named.message or "",
            registry=registry,
            subject=subject.subject,
            version=subject.version,
            undecodable=undecodable,
        )

    async def _fleet(self, spec: OffsetResetSpec, live: Live, undone: Object | None) -> FleetRequest | Refusal | None:
        if spec.groups is None:
            return None
        policy = spec.failure_policy or FailurePolicy.ISOLATE
        fleet = FleetRequest(spec.groups, policy, live.allow.groups, waves=waves_asked(spec))
        run_id = spec.to.undo
        if run_id is None or undone is None:
            return fleet
        try:
            earlier = await self._runs.ended(undone)
            if earlier is None or earlier.fleet is None:
                return undo_not_found(run_id)
            ends = dict(earlier.result.ends) if earlier.result is not None else {}
            runs = self._runs.runs_beneath(undone, ends)
            groups = await in_thread(self._parts.patient_executor, undone_groups, earlier, runs)
        except ForgedRun as forged:
            return Refusal(reasons.FORGED, f"spec.to.undo: {forged}")
        except ForeignRun as foreign:
            return of_foreign_run(undone, spec, foreign)
        except NewerRun as newer:
            return Refusal(WRITTEN_BY_NEWER_VERSION, f"spec.to.undo: {newer}")
        if not groups:
            return Refusal(
                NOTHING_TO_UNDO,
                f"spec.to.undo: run {run_id} has left no group's offsets changed, or has not ended",
            )
        undoes = run_name(run_id, uid_of(undone))
        undoes_uid = run_uid(uid_of(undone), run_id)
        return replace(
            fleet, groups=groups, undoes=undoes, undoes_uid=undoes_uid, ends=tuple((g, ends[g]) for g in groups)
        )

    async def _undone(self, body: Object, spec: OffsetResetSpec, live: Live) -> Object | Refusal | None:
        """The resource whose run is to be undone; ``None``: this reset undoes none."""
        run_id = spec.to.undo
        if run_id is None:
            return None
        earlier = await self._runs.earlier(body, run_id)
        if earlier is None:
            return await self._kept.find(body, spec, run_id, live) or undo_not_found(run_id)
        asked, _ = read_spec(earlier)
        is_other = connection_named(earlier) != connection_named(body)
        if asked is None or is_other or not same_groups(asked, spec):
            return of_other_group(run_id, spec)
        return earlier

    async def _limits(self, body: Object, undone: Object | None, live: Live) -> PlanLimits | None:
        every = limits_of(live.allow.quota, live.label)
        if undone is None or every is None:
            return every
        earlier = await self._runs.ended(undone)
        if earlier is None or earlier.result is None:
            raise ValueError("what has not ended is not undone")
        again = await self._turns.was_undone(body, name_of(undone), since=earlier.result.finished_at)
        return limits_of_undo(every, earlier, again=again)

    async def _too_large_by_now(self, body: Object, spec: OffsetResetSpec, live: Live) -> Refusal | None:
        undone, began = spec.to.undo, status_of(body).started_at
        again = undone is not None and began is not None and await self._turns.was_undone(body, undone, since=began)
        return too_large_by_now(body, spec, live, again=again)

    async def _text(self, body: Object, path: str, named: ConfigMapTarget) -> str | Refusal:
        try:
            texts = await in_thread(self._parts.executor, self._parts.kube.config_map, namespace_of(body), named.name)
        except NotFound:
            return Refusal(CONFIG_MAP_NOT_FOUND, f"{path}: there is no ConfigMap {named.name} in this namespace")
        text: str | None = texts.get(named.key)
        if text is None:
            return Refusal(CONFIG_MAP_NOT_FOUND, f"{path}: ConfigMap {named.name} has no key {named.key}")
        return text
