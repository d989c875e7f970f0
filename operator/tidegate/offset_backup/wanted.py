"""What an ``OffsetBackup`` asks for now: the order of a backup, its job, and which attempt comes next. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final

from tidegate.connection.allow import STORAGE_NOT_ALLOWED, storage_not_allowed
from tidegate.connection.live import Live, unmounted
from tidegate.jobs.application import ORDER_VARIABLE
from tidegate.jobs.availability import SPARK_UNAVAILABLE, why_not
from tidegate.jobs.mounts import BAD_BACKUP_STORAGE, JobPlaces, backup_storage, claims_of, secrets_of
from tidegate.jobs.runner import Launch, merged_secrets
from tidegate.jobs.settings import SparkSettings
from tidegate.jobs.storage import environment
from tidegate.kube.ports import Object, name_of, namespace_of, owner_reference, uid_of
from tidegate.offset_backup.document import Backup, Document, digest, document_name
from tidegate.offset_backup.manifest import Keep, schedule_folder
from tidegate.offset_backup.order import Order
from tidegate.offset_backup.schedule import Attempt, Take, Wait, decide, due_at
from tidegate.resources.conditions import Refusal
from tidegate.resources.offset_backup import ASKED_FORMAT, TAKE, OffsetBackupSpec, OffsetBackupStatus

_STORAGE_PATH: Final = "spec.storage"


@dataclass(frozen=True, slots=True)
class View:
    """One ``OffsetBackup`` as its pass sees it, with an open connection that is ready."""

    body: Object
    spec: OffsetBackupSpec
    status: OffsetBackupStatus
    live: Live
    now: datetime


def wanted_order(view: View, spark: SparkSettings, places: JobPlaces, *, has_runner: bool) -> Order | Refusal:
    """What an order says now, but for its attempt."""
    spec, live = view.spec, view.live
    message = storage_not_allowed(live.name, live.allow, _STORAGE_PATH, spec.storage)
    if message is not None:
        return Refusal(STORAGE_NOT_ALLOWED, message)
    if not has_runner:
        return Refusal(
            SPARK_UNAVAILABLE,
            "backups are made by Spark, but this operator has no Spark runner: configure one (TIDEGATE_SPARK_RUNNER)",
        )
    unavailable = why_not(spec.spark, unmounted([live]), spark, in_pods=places.in_pods)
    if unavailable is not None:
        return Refusal(*unavailable)
    storage = backup_storage(spec.storage, _STORAGE_PATH, places)
    if isinstance(storage, str):
        return Refusal(BAD_BACKUP_STORAGE, storage)
    mounted = live.mounted if places.in_pods else None
    return Order(
        connection=live.connection if mounted is None else mounted,
        storage=storage,
        schedule=uid_of(view.body),
        due=due_at(view.now, spec.schedule),
        attempt="none",
        groups=spec.groups or ("*",),
        allowed_groups=live.allow.groups,
        allowed_topics=live.allow.topics,
        keep=None if spec.keep is None else Keep(spec.keep.each, spec.keep.daily),
    )


def launch_of(view: View, order: Order, *, in_pods: bool) -> Launch:
    """The job that carries out the order."""
    body, spec = view.body, view.spec
    namespace = namespace_of(body)
    return Launch(
        name=order.attempt,
        namespace=namespace,
        store=f"configmap://{namespace}/{document_name(name_of(body), uid_of(body))}",
        owner=owner_reference(body),
        spark=spec.spark.to_json() if spec.spark is not None else {},
        connection_secrets=merged_secrets([view.live.secrets, secrets_of(spec.storage)]) if in_pods else {},
        claims=claims_of(spec.storage, written=True) if in_pods else {},
        environment={**environment(order.storage), ORDER_VARIABLE: digest(order)},
        job="backup",
    )


def is_same(order: Order, wanted: Order) -> bool:
    """Whether it is what is asked for now, but for when and under which name."""
    return replace(wanted, due=order.due, attempt=order.attempt) == order


def made_of(document: Document | None, wanted: Order, cluster_id: str) -> Backup | None:
    """The newest backup in the storage that is asked for, of the cluster that is asked."""
    made = document.made if document is not None else None
    is_meant = made is not None and made.storage == wanted.storage and made.cluster_id == cluster_id
    return made if is_meant else None


def remembered(view: View, wanted: Order) -> Backup | None:
    """The newest backup in that storage as the status tells of it: all that is known where the document was removed."""
    last, cluster_id = view.status.last, view.live.cluster_id
    folder = f"{wanted.storage.uri}/{schedule_folder(cluster_id, wanted.schedule)}/"
    if last is None or not last.path.startswith(folder):
        return None
    return Backup(
        wanted.storage,
        cluster_id,
        last.due,
        last.taken_at,
        last.path,
        groups=last.groups,
        offsets=last.partitions,
        size=last.bytes,
        unread=last.unread,
    )


def decided(view: View, document: Document | None, wanted: Order) -> Take | Wait:
    """Whether an attempt is to be begun now."""
    made = made_of(document, wanted, view.live.cluster_id)
    attempt, asked = _attempt(document, wanted), asked_for(view.body)
    since = view.status.since if view.status.since is not None else view.now
    return decide(view.now, view.spec.schedule, None if made is None else made.due, attempt, asked, since)


def asked_for(body: Object) -> datetime | None:
    """When somebody has asked for a backup beside the schedule, by an annotation. ``None`` also where it is no time in
    whole seconds, UTC: nobody is told of a typing error in an annotation, but ``tidegate backup take`` makes none."""
    text = str((body["metadata"].get("annotations") or {}).get(TAKE, ""))
    try:
        return datetime.strptime(text, ASKED_FORMAT).replace(tzinfo=UTC)
    except ValueError:
        return None


def _attempt(document: Document | None, wanted: Order) -> Attempt | None:
    """As the schedule counts it: one that was withdrawn, or asked for something else, is none."""
    if document is None:
        return None
    if document.result is None:
        return Attempt(document.order.due)
    if document.result.backup is not None or document.result.withdrawn or not is_same(document.order, wanted):
        return None
    return Attempt(document.order.due, document.result.ended_at, document.failures)


def next_number(view: View, document: Document | None) -> int:
    """Of the next attempt. The status remembers it too: a document that somebody has removed must not have names used
    twice."""
    name = document_name(name_of(view.body), uid_of(view.body))
    text = (view.status.launch or "").removeprefix(f"{name}-")
    return 1 + max(0 if document is None else document.asked.number, int(text) if text.isdecimal() else 0)
