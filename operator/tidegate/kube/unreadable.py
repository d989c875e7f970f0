"""What is said of a resource whose status this version can't read: in it, with all that it says kept as it is.

A status has the version of its API, and unknown members in it are a newer version's: what they say of the past (which
run is under way, how many replicas a workload had) must not be lost by writing over it.
"""

from __future__ import annotations

from concurrent.futures import Executor
from datetime import datetime
from typing import Any, Final

from pydantic import ValidationError

from tidegate.kube.objects import Told, tell_once
from tidegate.kube.ports import EventType, Kind, Kube, KubeEvent, Object
from tidegate.resources.conditions import Condition, stalled
from tidegate.threads import in_thread

UNREADABLE_STATUS: Final = "UnreadableStatus"

UNREADABLE_AGAIN_S: Final = 60.0


def message_of(kind: Kind) -> str:
    return (
        "this version of Tidegate can't read the status, so nothing is done: run the version that wrote it, or "
        f"create another {kind.kind}"
    )


async def say_unreadable(
    kube: Kube, executor: Executor, kind: Kind, body: Object, now: datetime, told: set[str] | Told
) -> Object:
    """The object, with conditions that say so, and an Event once."""
    message = message_of(kind)
    await tell_once(
        kube, executor, body, KubeEvent(EventType.WARNING, UNREADABLE_STATUS, message, UNREADABLE_STATUS), told
    )
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
