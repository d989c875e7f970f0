"""What is said of a resource whose status this version can't read: in it, with all that it says kept as it is.

A status has the version of its API, and unknown members in it are a newer version's: what they say of the past (which
run is under way, how many replicas a workload had) must not be lost by writing over it.
"""

from __future__ import annotations

from concurrent.futures import Executor
from datetime import datetime, timedelta
from typing import Any, Final

from pydantic import ValidationError

from tidegate.kube.objects import Told, tell_once
from tidegate.kube.ports import EventType, Kind, Kube, KubeEvent, Object
from tidegate.resources.conditions import Condition, stalled
from tidegate.threads import in_thread

UNREADABLE_STATUS: Final = "UnreadableStatus"

UNREADABLE_AGAIN_S: Final = 60.0

ABANDON: Final = "tidegate.io/abandon"


def message_of(kind: Kind, until: datetime | None = None) -> str:
    cannot = "this version of Tidegate can't read the status, so nothing is done: run the version that wrote it"
    if until is None:
        return f"{cannot}, or create another {kind.kind}"
    return (
        f"{cannot}. It is being deleted, and is given up at {until:%Y-%m-%dT%H:%M:%SZ}, or at once with annotation "
        f"{ABANDON}=true"
    )


def is_abandoned(body: Object) -> bool:
    """Whether a person says that nothing is to be undone any more."""
    return str((body["metadata"].get("annotations") or {}).get(ABANDON, "")).lower() == "true"


def gone_by(body: Object, limit: timedelta) -> datetime | None:
    """Until when its deletion waits for the version that can read it; ``None``: it is not being deleted."""
    deleting = body["metadata"].get("deletionTimestamp")
    return datetime.fromisoformat(str(deleting)) + limit if deleting else None


async def say_unreadable(
    kube: Kube,
    executor: Executor,
    kind: Kind,
    body: Object,
    now: datetime,
    told: set[str] | Told,
    until: datetime | None = None,
) -> Object:
    """The object, with conditions that say so, and an Event once. ``until``: when it is given up, being deleted."""
    message = message_of(kind, until)
    key = UNREADABLE_STATUS if until is None else f"{UNREADABLE_STATUS}/deleted"
    await tell_once(kube, executor, body, KubeEvent(EventType.WARNING, UNREADABLE_STATUS, message, key), told)
    status = with_stalled(body, message, now)
    return body if status is None else await in_thread(executor, kube.replace_status, kind, body, status)


def with_stalled(body: Object, message: str, now: datetime) -> dict[str, Any] | None:
    """The status as it is, but for the conditions; ``None``: they say it already, or can't be read either. Pure."""
    status = dict(body.get("status") or {})
    said = status.get("conditions") or []
    try:
        conditions = tuple(Condition.model_validate(dict(each), by_alias=True, by_name=False) for each in said)
        conditions = stalled(
            conditions,
            reason=UNREADABLE_STATUS,
            message=message,
            generation=int(body["metadata"]["generation"]),
            now=now,
        )
    except (ValidationError, TypeError, ValueError):
        return None
    written = [each.to_json() for each in conditions]
    return None if written == said else {**status, "conditions": written}
