"""One pass over a ``KafkaConnection``: read its Secrets, keep it open, look at the cluster, say so."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from typing import Final, TypeVar

from tidegate.clock import Clock
from tidegate.cluster import Kafka
from tidegate.connection import status
from tidegate.connection.audit_topics import AuditTopics
from tidegate.connection.connect_clusters import connect_clusters
from tidegate.connection.control_topics import TopicsOfConnections
from tidegate.connection.credentials import (
    SECRET_NOT_READABLE,
    Secrets,
    Unread,
    UnusableSecret,
    audit_topic_of,
    connect_clusters_in,
    connection_in,
    connection_with_mounts,
    digest_of,
    file_contents,
    keys_by_secret,
    keys_for_kafka,
    keys_for_registry,
    registry_by,
    unusable_clusters,
)
from tidegate.connection.files import ConnectionFiles
from tidegate.connection.first_looks import FirstLooks
from tidegate.connection.freezing import FrozenMeanwhile, frozen_by, frozen_said
from tidegate.connection.live import Live, LiveConnections
from tidegate.connection.observer import Observer
from tidegate.connection.permissions import PermissionsOfConnections
from tidegate.connection.read_only import ReadOnlyKafka
from tidegate.connection.shared_acks import sharing
from tidegate.connection.status import Said, Trouble
from tidegate.control.topics import TopicsChecked
from tidegate.jobs.mounts import secret_file
from tidegate.kafka.capabilities import Capabilities
from tidegate.kafka.connection import Connection
from tidegate.kafka.errors import Fenced, KafkaFailure
from tidegate.kafka.model import Cluster
from tidegate.kafka_client.settings import BadConnection
from tidegate.kube.loop import Pass
from tidegate.kube.objects import newest_of, tell_all
from tidegate.kube.ports import (
    CONNECTIONS,
    Kube,
    KubeFailure,
    KubeUnavailable,
    NotFound,
    Object,
    label_of,
    name_of,
    namespace_of,
    uid_of,
)
from tidegate.resources.base import InvalidResource, parse_spec, read_status
from tidegate.resources.conditions import PERMISSIONS
from tidegate.resources.connection import AllowSpec, ConnectionStatus, GroupKind, KafkaConnectionSpec, QuotaSpec
from tidegate.service.metrics import Metrics
from tidegate.threads import in_thread

_log = logging.getLogger(__name__)

_FIRST_RETRY_S: Final = 1.0
_LAST_RETRY_S: Final = 30.0
_AS_OLD: Final = 0.8
"""Of an idle tick: how old a look may be that a pass goes by."""
_REFUSED_S: Final = 60.0
"""How long it is not said of what is open that one of its Secrets may not be read any more."""
_CONFIRM_S: Final = 30.0
"""How long a process may go without hearing that another one has replaced it. Asking takes a write of the brokers'."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Parts:
    """What the reconciler acts through. ``patient_executor``: for what may take many seconds."""

    kube: Kube
    files: ConnectionFiles
    live: LiveConnections
    topics: TopicsOfConnections
    observer: Observer
    open_kafka: Callable[[Connection, str], Kafka]
    """With the connection's uid, by which a new process of the operator fences an earlier one."""
    executor: Executor
    patient_executor: Executor
    clock: Clock
    metrics: Metrics
    idle_tick_s: float
    observe: bool = False
    """Whether every connection is taken as one with ``spec.observe``."""
    quota: QuotaSpec | None = None
    """What a connection has that gives no ``spec.allow.quota``."""
    looks: FirstLooks = field(default_factory=FirstLooks)
    is_borrowed: Callable[[Object], bool] = lambda _body: False
    """Whether a connection is another shard's, and only read from here."""
    changed: Callable[[str, str], None] = lambda _namespace, _name: None
    """Told, by namespace and name, of a connection that was opened or is gone, or allows something else: those at rest
    that go through it would find that out minutes later."""


class ConnectionReconciler:
    """Implements ``tidegate.kube.loop.Reconciler``."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._failures: dict[str, int] = {}
        self._audit_topics = AuditTopics(parts.patient_executor, parts.live.is_frozen)
        self._permissions = PermissionsOfConnections(parts.patient_executor)
        self._refused_s: dict[str, float] = {}
        """By connection, since when one of its Secrets may not be read."""
        self._confirmed_s: dict[str, float] = {}
        """By connection, when it was last asked whether this process may still write the control topic."""

    async def reconcile(self, body: Object) -> Pass:
        if body["metadata"].get("deletionTimestamp"):
            with contextlib.suppress(InvalidResource):
                self._limit(body, parse_spec(KafkaConnectionSpec, body))
            self._parts.looks.looked(uid_of(body))
            return Pass(body, self._parts.idle_tick_s)
        seen = await self._see(body)
        self._remember(body, seen)
        live = self._live(body)
        if live is not None and live.borrowed:
            # What its status says, its own shard says.
            return Pass(body, self._again_after(uid_of(body), seen))
        self._parts.looks.looked(uid_of(body))
        capabilities = await self._capabilities(body) if isinstance(seen, Cluster) else None
        live = self._live(body)
        audit = await self._audit_topics.checked(live) if live is not None and isinstance(seen, Cluster) else None
        body = await self._say(body, seen, capabilities, audit, await self._also(body, seen))
        return Pass(body, self._again_after(uid_of(body), seen))

    async def forget(self, body: Object) -> None:
        parts, uid = self._parts, uid_of(body)
        live = parts.live.drop(namespace_of(body), name_of(body), uid=uid)
        parts.observer.disconnect(uid)
        parts.looks.forget(uid)
        self._audit_topics.forget(uid)
        parts.metrics.connection_gone(label_of(body))
        self._failures.pop(uid, None)
        self._confirmed_s.pop(uid, None)
        self._refused_s.pop(uid, None)
        self._permissions.forget(uid)
        if live is not None:
            parts.changed(live.namespace, live.name)
            await in_thread(self._parts.executor, live.kafka.close)
        await in_thread(self._parts.executor, parts.files.remove, uid)

    async def refresh(self, body: Object) -> Object | None:
        return await newest_of(self._parts.kube, self._parts.executor, CONNECTIONS, body)

    # --- see ----------------------------------------------------------------------------------------------------------

    async def _see(self, body: Object) -> Cluster | Trouble:
        try:
            spec = parse_spec(KafkaConnectionSpec, body)
            self._limit(body, spec)
            secrets = await self._secrets(body, spec)
            lacks = {name: (it.reason, str(it)) for name, it in unusable_clusters(spec, secrets).items()}
            await self._keep_open(body, spec, file_contents(spec, secrets), lacks)
        except InvalidResource as invalid:
            return Trouble(status.INVALID_SPEC, str(invalid), needs_help=True)
        except UnusableSecret as unusable:
            return Trouble(unusable.reason, str(unusable), needs_help=True)
        except BadConnection as bad:
            return Trouble(status.BAD_SETTINGS, str(bad), needs_help=True)
        # The next pass comes a little earlier than a tick, and is to see more than the last one.
        since_s = asyncio.get_running_loop().time() - _AS_OLD * self._parts.idle_tick_s
        snapshot = await self._parts.observer.newest(uid_of(body), since_s=since_s)
        if snapshot.failure is not None:
            return status.trouble_of(snapshot.failure)
        if snapshot.cluster is None:
            raise RuntimeError("a look without a failure has a cluster")
        live = self._live(body)
        if live is not None and not live.borrowed:
            await self._confirm(live)
        makes_topics = live is not None and not live.observes and not live.frozen
        if live is not None and makes_topics and self._parts.topics.wanted(live.namespace, live.name):
            try:
                await self._parts.topics.checked(live, snapshot)
            except FrozenMeanwhile:
                pass  # they are made once it is thawed
            except KafkaFailure as failure:
                return status.trouble_of(failure)
        return snapshot.cluster

    async def _confirm(self, live: Live) -> None:
        """Raises ``Fenced`` where another process of the operator has taken over, so that an idle one hears of it."""
        now_s = self._parts.clock.monotonic()
        if now_s - self._confirmed_s.get(live.uid, -_CONFIRM_S) < _CONFIRM_S:
            return
        try:
            await in_thread(self._parts.patient_executor, live.kafka.control.confirm)
        except Fenced:
            raise
        except KafkaFailure as failure:
            # Nothing is known: asked again by the next pass. What is written meanwhile is fenced all the same.
            _log.debug("%s/%s: %s", live.namespace, live.name, failure)
            return
        self._confirmed_s[live.uid] = now_s

    async def _capabilities(self, body: Object) -> Capabilities | None:
        """``None``: nothing new. The client remembers them, so that most passes ask nobody."""
        live = self._live(body)
        if live is None:
            return None
        try:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._parts.patient_executor, live.kafka.capabilities, tuple(GroupKind))
        except KafkaFailure:
            # The cluster answered a moment ago; whether it still does is for the next look.
            return None

    async def _also(self, body: Object, seen: Cluster | Trouble) -> list[Said]:
        """What else is said of a connection; but for being frozen, what was said of one that does not answer stays."""
        live, frozen = self._live(body), _frozen(body)
        said = [frozen] if frozen is not None else []
        if live is not None:
            said.append(connect_clusters(live))
        if live is None or not isinstance(seen, Cluster):
            return said
        if live.observes:
            # It needs less, and consumers of others' connections may write the topic all the same.
            return [*said, Said(PERMISSIONS, None), sharing(live, self._parts.live)]
        permissions = await self._permissions.of(live)
        return [*said, sharing(live, self._parts.live), *([permissions] if permissions is not None else [])]

    async def _secrets(self, body: Object, spec: KafkaConnectionSpec) -> Secrets:
        """Those that it names. Raises ``KubeFailure``, also for a while where one of what is open is refused, as an API
        server that just came up refuses everybody. All else is said: what stays unobserved fails the health check."""
        found = {name: await self._secret(namespace_of(body), name) for name in keys_by_secret(spec)}
        refused = next((secret for secret in found.values() if isinstance(secret, Unread)), None)
        uid, now_s = uid_of(body), self._parts.clock.monotonic()
        if refused is None:
            self._refused_s.pop(uid, None)
        elif now_s - self._refused_s.setdefault(uid, now_s) < _REFUSED_S and self._live(body) and _is_unsaid(body):
            raise KubeFailure(refused.why)
        return found

    async def _secret(self, namespace: str, name: str) -> Mapping[str, bytes] | Unread | None:
        try:
            return await in_thread(self._parts.executor, self._parts.kube.secret, namespace, name)
        except NotFound:
            return None
        except KubeUnavailable:
            raise
        except KubeFailure as refusal:
            return Unread(str(refusal))

    def _limit(self, body: Object, spec: KafkaConnectionSpec) -> None:
        """What is open goes on, also where it could not be opened anew, within what is allowed now, and begins nothing
        while it is frozen."""
        live, allow, frozen = self._live(body), self._allowed(spec), frozen_by(spec)
        if live is not None and (live.allow, live.frozen) != (allow, frozen):
            self._parts.live.put(replace(live, allow=allow, frozen=frozen))
            self._parts.changed(live.namespace, live.name)

    async def _keep_open(
        self,
        body: Object,
        spec: KafkaConnectionSpec,
        contents: dict[str, bytes],
        lacks: Mapping[str, tuple[str, str]],
    ) -> None:
        """Open the connection, or open it anew after how it connects or a Secret has changed. ``lacks``: of the Connect
        clusters. Raises ``BadConnection``."""
        parts, uid = self._parts, uid_of(body)
        namespace, name = namespace_of(body), name_of(body)
        digest, borrowed = digest_of(spec, contents), parts.is_borrowed(body)
        open_now = parts.live.get(namespace, name)
        if open_now is not None and open_now.uid == uid and (open_now.digest, open_now.borrowed) == (digest, borrowed):
            if open_now.connect_lacks != lacks:
                parts.live.put(replace(open_now, connect_lacks=lacks))
            return
        folder = await in_thread(self._parts.executor, parts.files.put, uid, contents)
        connection = connection_in(spec, folder)
        kafka, observes = await in_thread(self._parts.executor, parts.open_kafka, connection, uid), self._observes(spec)
        observes = observes or borrowed
        if observes:
            kafka = ReadOnlyKafka(kafka, name)
        parts.live.put(
            Live(
                uid=uid,
                namespace=namespace,
                name=name,
                digest=digest,
                connection=connection,
                mounted=connection_with_mounts(spec, secret_file),
                secrets=keys_for_kafka(spec),
                connect=connect_clusters_in(spec, folder, lacks),
                connect_lacks=lacks,
                allow=self._allowed(spec),
                audit=audit_topic_of(spec),
                kafka=kafka,
                observes=observes,
                frozen=frozen_by(spec),
                borrowed=borrowed,
                registry=registry_by(spec, lambda secret, key: folder / secret / key),
                mounted_registry=registry_by(spec, secret_file),
                registry_secrets=keys_for_registry(spec),
            )
        )
        parts.observer.connect(uid, label_of(body), kafka, kafka.control)
        parts.changed(namespace, name)
        _log.info("%s/%s: %s", namespace, name, "opened" if open_now is None else "reopened: it has changed")
        if open_now is not None:
            if open_now.uid != uid:
                parts.observer.disconnect(open_now.uid)
            await in_thread(self._parts.executor, open_now.kafka.close)

    def _allowed(self, spec: KafkaConnectionSpec) -> AllowSpec:
        allow = spec.allow or AllowSpec()
        return allow if allow.quota is not None else allow.model_copy(update={"quota": self._parts.quota})

    def _observes(self, spec: KafkaConnectionSpec) -> bool:
        return spec.observe or self._parts.observe

    # --- say ----------------------------------------------------------------------------------------------------------

    def _remember(self, body: Object, seen: Cluster | Trouble) -> None:
        uid = uid_of(body)
        live, said = self._live(body), _frozen(body)
        # Also of one that could not be opened; of one whose spec can't be read, as it was before.
        frozen = bool(said.holds) if said is not None else live is not None and bool(live.frozen)
        self._parts.metrics.connection_is(label_of(body), up=isinstance(seen, Cluster), frozen=frozen)
        self._failures[uid] = 0 if isinstance(seen, Cluster) else self._failures.get(uid, 0) + 1
        if live is None:
            return
        if isinstance(seen, Cluster):
            self._parts.live.reached(live, seen.cluster_id)
        else:
            self._parts.live.troubled(live, seen.reason, seen.message)
            if live.trouble is None:
                self._parts.changed(live.namespace, live.name)

    async def _say(
        self,
        body: Object,
        seen: Cluster | Trouble,
        capabilities: Capabilities | None,
        audit: TopicsChecked | None,
        also: Collection[Said],
    ) -> Object:
        parts = self._parts
        generation = int(body["metadata"]["generation"])
        before = read_status(ConnectionStatus, body)
        live = self._live(body)
        topics = live.topics if live is not None else None
        now, audited = parts.clock.now(), live is not None and live.audit is not None
        after = status.status_of(before, seen, topics, capabilities, also, generation=generation, now=now)
        after = status.with_audit(after, audit, wanted=audited, generation=generation, now=now)
        if after == before:
            return body
        await tell_all(parts.kube, parts.executor, body, status.happenings(before, after, generation), set())
        body = await in_thread(self._parts.executor, parts.kube.replace_status, CONNECTIONS, body, after.to_json())
        parts.metrics.wrote_status(CONNECTIONS.kind)
        return body

    def _live(self, body: Object) -> Live | None:
        """This object's; a younger one may have its name."""
        live = self._parts.live.get(namespace_of(body), name_of(body))
        return live if live is not None and live.uid == uid_of(body) else None

    def _again_after(self, uid: str, seen: Cluster | Trouble) -> float:
        if isinstance(seen, Cluster):
            return self._parts.idle_tick_s
        return float(min(_LAST_RETRY_S, _FIRST_RETRY_S * 2 ** min(self._failures[uid] - 1, 10)))


def _is_unsaid(body: Object) -> bool:
    """Whether its generation was observed, and it was not said then that a Secret may not be read."""
    status = read_status(ConnectionStatus, body)
    is_observed = status.observed_generation == body["metadata"]["generation"]
    return is_observed and all(each.reason != SECRET_NOT_READABLE for each in status.conditions)


def _frozen(body: Object) -> Said | None:
    """Whether it is frozen; ``None``: its spec can't be read."""
    try:
        return frozen_said(parse_spec(KafkaConnectionSpec, body))
    except InvalidResource:
        return None
