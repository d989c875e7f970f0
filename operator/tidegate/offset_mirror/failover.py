"""Failing a mirror over: when its copying may end, and the fence afterwards."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass

from tidegate.clock import Clock
from tidegate.connection.live import Live, LiveConnections
from tidegate.connection.read_only import observes
from tidegate.kafka.connection import Connection
from tidegate.kafka.errors import KafkaFailure
from tidegate.kafka.model import TopicPartition
from tidegate.kube.ports import Object, namespace_of, uid_of
from tidegate.mirror.ports import MirrorCluster
from tidegate.offset_mirror.carrying import notes_of
from tidegate.offset_mirror.copying import Copying, is_late, not_carried
from tidegate.offset_mirror.course import Course
from tidegate.offset_mirror.ending import Settled, ended, fence_some, lacking, settle
from tidegate.offset_mirror.partitions import Clusters
from tidegate.offset_mirror.rows import with_drift
from tidegate.offset_mirror.setting_back import ends_of, set_back
from tidegate.offset_mirror.status import Before, Told, draining, draining_late, failed_over, fencing, waiting
from tidegate.offset_mirror.topics import wanted
from tidegate.resources.mirror_failover import FailoverPhase, MirrorFailover
from tidegate.resources.offset_mirror import OffsetMirrorSpec
from tidegate.threads import in_thread


@dataclass(frozen=True, slots=True)
class Failover:
    """Belongs to the event loop's thread. Each step is written to the status before the next one is done."""

    live: LiveConnections
    open_cluster: Callable[[Connection, str], MirrorCluster]
    may_write: Callable[[], bool]
    executor: Executor
    clock: Clock

    async def keeps(self, copying: Copying, told: Told, unready: str) -> str:
        """Why the copying must not end yet; nothing where the copies have all that the source has. ``unready``: why not
        every topic that is wanted is being copied."""
        groups = copying.keeps_groups()  # from now on they are being carried over for it
        counts = told.status.partitions
        courses = copying.courses()
        # Of others it does not help that the source comes to rest: they are not in sync.
        written = [course for course in courses if not course.drifted and not course.stopped]
        try:
            missing = await in_thread(self.executor, lacking, copying.clusters.source, written)
        except KafkaFailure as failure:
            return f"could not ask the source what the copies lack: {failure}"
        if missing:
            return _lacks(missing)
        if unready:
            return unready
        if counts is None or not counts.total:
            return "nothing has been copied yet"
        if counts.in_sync < counts.total or counts.total != len(courses):
            return f"only {counts.in_sync} of {counts.total} copies are in sync"
        return groups

    async def begin(
        self, body: Object, before: Before, told: Told, spec: OffsetMirrorSpec, stopped: Copying | None
    ) -> Told:
        """Nothing is copied any more. ``told``: how the copies stand; ``stopped``: what copied, if anything did."""
        source = self._usable(body, spec.source.name, before.status.source_cluster)
        target = self._usable(body, spec.target.name, before.status.target_cluster)
        accepts_loss = spec.failover is not None and spec.failover.accept_loss
        if is_late(stopped):  # a commit that is late would come after those that are to be the last ones
            return draining_late(before)
        if isinstance(target, str) or (isinstance(source, str) and not accepts_loss):
            return waiting(before, str(target if isinstance(target, str) else source))
        ours = self.open_cluster(target.connection, target.cluster_id)
        theirs = None if isinstance(source, str) else self.open_cluster(source.connection, source.cluster_id)
        try:
            last: Settled | str = Settled({}, None)
            if theirs is not None:
                last = await self._settled(theirs, ours, stopped, accepts_loss=accepts_loss)
            # What the last comparison or step has found, no pass has seen.
            halted = _halted(stopped.courses_at_rest if stopped is not None else ())
            why = "" if accepts_loss else halted or _keeps_from_ending(last)
            if why:
                return draining(before, told, why)
            if accepts_loss:  # otherwise it was seen that the copies end where they were left
                notes = notes_of(uid_of(body), fails_back=spec.failback_from is not None)
                ends = await in_thread(self.executor, ends_of, ours, before.status)
                await in_thread(self.executor, set_back, ours, notes, ends, self.may_write)
            fence_id = await in_thread(self.executor, ours.new_producer_id)
        except KafkaFailure as failure:
            return waiting(before, str(failure))
        finally:
            await self._close(theirs, ours)
        groups = last.groups if isinstance(last, Settled) else None
        status = told.status.model_copy(update={"groups": groups or told.status.groups})
        status = with_drift(status, stopped.courses_at_rest if stopped is not None else ())
        # The edit that asks for the failover may also leave topics out: no pass has looked at it in between.
        asked = frozenset(wanted([row.name for row in status.topics], spec.topics))
        status = status.model_copy(update={"topics": tuple(row for row in status.topics if row.name in asked)})
        begun = Before(status, before.generation, before.now)
        return fencing(begun, MirrorFailover(phase=FailoverPhase.FENCING, fence_id=fence_id))

    async def _settled(
        self, source: MirrorCluster, target: MirrorCluster, stopped: Copying | None, *, accepts_loss: bool
    ) -> Settled | str:
        """What is so once nothing is copied any more, or why that can't be told."""
        if stopped is None:
            return Settled({}, None)
        carrier = stopped.carrier(Clusters(source, target, stopped.clusters.ids), self.may_write)
        at_rest = stopped.courses_at_rest, stopped.ids_at_rest, stopped.adopts, stopped.mirrored
        try:
            return await in_thread(self.executor, settle, source, *at_rest, carrier, None if accepts_loss else target)
        except KafkaFailure as failure:
            return str(failure)

    async def fence(self, body: Object, before: Before, failover: MirrorFailover, spec: OffsetMirrorSpec) -> Told:
        source = self._usable(body, spec.source.name, before.status.source_cluster)
        target = self._usable(body, spec.target.name, before.status.target_cluster)
        if isinstance(target, str):
            return fencing(before, failover, target)
        ours = self.open_cluster(target.connection, target.cluster_id)
        theirs = None if isinstance(source, str) else self.open_cluster(source.connection, source.cluster_id)
        allowed = (target.allow.topics, *(() if isinstance(source, str) else (source.allow.topics,)))
        try:
            found = await in_thread(self.executor, fence_some, ours, before.status, self.may_write)
            if found.left:
                return fencing(before, found.failover, found.message)

            def wants(names: Iterable[str]) -> Collection[str]:
                return wanted(names, spec.topics, *allowed)

            done = await in_thread(self.executor, ended, theirs, before.status, found.failover, wants, self.clock.now)
        except KafkaFailure as failure:
            return fencing(before, failover, str(failure))
        finally:
            await self._close(theirs, ours)
        return failed_over(before, done)

    async def _close(self, *clusters: MirrorCluster | None) -> None:
        for cluster in clusters:
            if cluster is not None:
                await in_thread(self.executor, cluster.close)

    def _usable(self, body: Object, name: str, cluster: str | None) -> Live | str:
        """The connection, or why it can't be used. ``cluster``: the id of what it reached before."""
        live = self.live.used_from(namespace_of(body), (namespace_of(body), name))
        if live is None:
            return f"there is no usable KafkaConnection {name} in this namespace: waiting for it"
        if live.trouble is not None or not live.cluster_id:
            return f"KafkaConnection {name} is not ready: waiting for it"
        if cluster is not None and live.cluster_id != cluster:
            return f"KafkaConnection {name} now reaches cluster {live.cluster_id} instead of {cluster}"
        if live.observes and name == _target_of(body):
            return f"{observes(live.label)}: nothing is fenced"
        return live


def _target_of(body: Object) -> str:
    return str(body["spec"]["target"]["name"])


def _lacks(missing: Mapping[TopicPartition, int]) -> str:
    worst = max(missing, key=lambda partition: missing[partition])
    such = f"such as {worst}, which lacks {missing[worst]}"
    says = f"the copies of {len(missing)} partition(s) lack {sum(missing.values())} offset(s), {such}"
    return f"{says}. Stop the producers that write to the source"


def _halted(courses: Iterable[Course]) -> str:
    """Which of these copies must not be written any more, where one must not."""
    halted = next((course for course in courses if course.stopped), None)
    return "" if halted is None else f"the copy of {halted.partition} is stopped: {halted.stopped}"


def _keeps_from_ending(last: Settled | str) -> str:
    if isinstance(last, str):
        return last
    if last.lacking:
        return _lacks(last.lacking)
    return not_carried(last.groups)
