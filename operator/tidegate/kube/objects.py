"""What every reconciler does with its objects, from the event loop: read one again, and tell of it once."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from concurrent.futures import Executor
from typing import Any, Final, cast

from tidegate.kube.ports import (
    Conflict,
    Kind,
    Kube,
    KubeEvent,
    KubeFailure,
    KubeUnavailable,
    NotFound,
    Object,
    label_of,
    name_of,
    namespace_of,
    uid_of,
)
from tidegate.texts import Texts
from tidegate.threads import in_thread

_log = logging.getLogger(__name__)

_texts: Final = Texts()


async def newest_of(kube: Kube, executor: Executor, kind: Kind, body: Object) -> Object | None:
    """The object as it is now; ``None`` when it is gone, also where another one has its name."""
    try:
        newest = await in_thread(executor, kube.get, kind, namespace_of(body), name_of(body))
    except NotFound:
        return None
    return newest if uid_of(newest) == uid_of(body) else None


async def is_surely_gone(kube: Kube, executor: Executor, kind: Kind, body: Object) -> bool:
    """Whether an object is gone, so that its Spark job is to be ended. Where nobody can tell it is not: the job then
    ends by itself."""
    try:
        return await newest_of(kube, executor, kind, body) is None
    except KubeFailure as failure:
        _log.warning("%s: %s; its job ends by itself where it is gone", label_of(body), failure)
        return False


def lean_of(body: Object) -> Object:
    """The same object in half the memory: texts that thousands of objects have, such as the names of fields, are there
    once."""
    return cast("Object", _lean(body))


def _lean(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {_texts.once(name): _lean(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_lean(part) for part in value]
    return _texts.once(value) if isinstance(value, str) else value


def naming(body: Object) -> Object:
    """What names an object and nothing else of it, for whoever keeps it for as long as the object is there."""
    named = {name: body[name] for name in ("apiVersion", "kind") if name in body}
    return named | {"metadata": {name: body["metadata"][name] for name in ("namespace", "name", "uid")}}


class Told:
    """The keys of the Events that were recorded last; one that is let go of is at worst recorded again."""

    def __init__(self, most: int = 10_000) -> None:
        self._most = most
        self._keys: dict[str, None] = {}

    def __contains__(self, key: object) -> bool:
        return key in self._keys

    def add(self, key: str) -> None:
        self._keys[key] = None
        if len(self._keys) > self._most:
            del self._keys[next(iter(self._keys))]


async def tell_once(kube: Kube, executor: Executor, body: Object, happening: KubeEvent, told: set[str] | Told) -> None:
    """Record an Event about the object, unless its key is among those that this process has recorded (``told``).

    One that the API server does not take (a quota, an admission rule, a store of its own for Events that does not
    answer) is told in the log, and nothing else waits for it: the object's status says the same.
    """
    await tell_all(kube, executor, body, (happening,), told)


async def tell_all(
    kube: Kube, executor: Executor, body: Object, happenings: Iterable[KubeEvent], told: set[str] | Told
) -> None:
    """The same for several. Where one got no answer, the others are not sent after it: each would wait as long.

    Those without an answer are recorded later, where the next pass tells of them again; one that was refused is not.
    """
    silent: KubeFailure | None = None
    for happening in happenings:
        if happening.key in told:
            continue
        failure = silent
        if failure is None:
            try:
                await in_thread(executor, kube.record, body, happening)
            except (KubeUnavailable, Conflict) as unsure:  # a Conflict: another writer, of the quota's count perhaps
                failure = unsure
                silent = unsure if isinstance(unsure, KubeUnavailable) else None
            except KubeFailure as refused:
                failure = refused
                told.add(happening.key)
            else:
                told.add(happening.key)
        if failure is not None:
            what = f"{happening.type.value} {happening.reason}: {happening.message}"
            _log.warning("%s: an Event was not recorded: %s; it says: %s", label_of(body), failure, what)


def version_of(body: Object) -> int:
    """resourceVersions of one kind are comparable integers (KEP-5504); anything else counts as oldest."""
    text = str(body["metadata"].get("resourceVersion", ""))
    return int(text) if text.isdigit() else -1
