"""``/healthz`` and ``/readyz``, and the check behind them.

A watch can die unseen (kopf with narrow rights; a stream that hangs): the operator looks alive and does nothing. So our
resources are listed outside kopf, and one whose generation stays unobserved too long fails the check. So does a
listing, or an event loop, that has not come round for as long; and a process that another one has replaced, for good.

A process that stands by for another one observes nothing. Of it the same check asks whether its watches have told it of
what is there: from that it answers the webhook, and begins when it is its turn.

Many resources at once take longer than that. One that the operator knows of, and only has not come to, counts as busy
for as long as passes over others of its kind end; but not for ever.
"""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

from tidegate.kube.ports import Kind, KubeFailure, Object, name_of, namespace_of, uid_of
from tidegate.service.http_server import Answer, Route

_log = logging.getLogger(__name__)

HEALTH_PATH: Final = "/healthz"
READY_PATH: Final = "/readyz"

_SHOWN: Final = 10
_BUSY_TIMES: Final = 10
"""How many times longer a resource may stay unobserved while the operator is busy with others."""
_AGAIN_S: Final = 1.0
"""After a listing that failed: an API server that has just been told of our kinds answers 429 for a moment."""


@dataclass(frozen=True, slots=True)
class _Unobserved:
    """``since``: when it was first listed so (monotonic seconds)."""

    since: float
    name: str
    busy: bool


class Freshness:
    """Which generations are unobserved since when. Fed from the event loop, asked from any thread."""

    def __init__(self, limit_s: float, monotonic: Callable[[], float]) -> None:
        self._limit_s = limit_s
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._since: dict[tuple[str, int], _Unobserved] = {}
        self._listed_at = monotonic()
        self._failure = ""
        self._begun = False
        self._replaced = ""
        self._knows: Callable[[Kind, Object], bool] | None = None
        self._trouble: tuple[float, str] | None = None

    def stand_by(self, knows: Callable[[Kind, Object], bool]) -> None:
        """Others observe what is there; ``knows``: whether this process was told of a generation."""
        with self._lock:
            self._knows = knows

    def lead(self) -> None:
        """From now on this process observes what is there, and has its time for that."""
        with self._lock:
            self._knows, self._since = None, {}

    @property
    def leads(self) -> bool:
        with self._lock:
            return self._knows is None and not self._replaced

    def troubled(self, trouble: str) -> None:
        """What keeps the Lease from being read or written; empty: nothing does any more."""
        now = self._monotonic()
        with self._lock:
            since = self._trouble[0] if self._trouble is not None else now
            self._trouble = (since, trouble) if trouble else None

    @property
    def begun(self) -> bool:
        """Whether what is there was listed once, and taken in by all who need it."""
        with self._lock:
            return self._begun

    def begin(self) -> None:
        with self._lock:
            self._begun = True

    def replaced(self, why: str) -> None:
        """Another process has taken this one's place: it fails the check until it ends."""
        with self._lock:
            self._replaced = why

    def listed(
        self,
        kinds: Iterable[tuple[Kind, Iterable[Object]]],
        is_busy: Callable[[Kind, Object, float], bool] = lambda _kind, _body, _within_s: False,
        is_ours: Callable[[Kind, Object], bool] = lambda _kind, _body: True,
    ) -> int:
        """Take in a listing of all our resources; returns how many are unobserved.

        ``is_busy``: whether one of them is known and waited for, while others of its kind come round within a time.
        ``is_ours``: whether it is for this process to observe once it leads.
        """
        now, knows = self._monotonic(), self._knows
        unobserved: dict[tuple[str, int], _Unobserved] = {}
        for kind, objects in kinds:
            for body in objects:
                generation = int(body["metadata"]["generation"])
                if body["metadata"].get("deletionTimestamp") or (knows is None and not is_ours(kind, body)):
                    continue
                if _is_observed(body, generation) if knows is None else knows(kind, body):
                    continue
                key = (uid_of(body), generation)
                before = self._since.get(key)
                name = f"{kind.kind} {namespace_of(body)}/{name_of(body)} generation {generation}"
                busy = is_busy(kind, body, self._limit_s)
                unobserved[key] = _Unobserved(now if before is None else before.since, name, busy)
        with self._lock:
            self._since, self._listed_at, self._failure = unobserved, now, ""
        return len(unobserved)

    def failed(self, failure: str) -> None:
        """The listing failed."""
        with self._lock:
            self._failure = failure

    def problems(self) -> list[str]:
        """What is wrong, for a person; empty when all is well."""
        now = self._monotonic()
        with self._lock:
            stale = [one.name for one in self._since.values() if now - one.since > self._limit_of(one)]
            quiet_s, failure = now - self._listed_at, self._failure
            problems = [self._replaced] if self._replaced else []
            trouble = self._trouble
        problems += [f"{name} was not observed within {self._limit_s:.0f} s" for name in sorted(stale)[:_SHOWN]]
        if len(stale) > _SHOWN:
            problems.append(f"and {len(stale) - _SHOWN} more")
        if trouble is not None and now - trouble[0] > self._limit_s:
            problems.append(f"the Lease could not be used for {now - trouble[0]:.0f} s: {trouble[1]}")
        if quiet_s > self._limit_s:
            why = f": {failure}" if failure else ""
            problems.append(f"the operator has not listed its resources for {quiet_s:.0f} s{why}")
        return problems

    def _limit_of(self, unobserved: _Unobserved) -> float:
        return self._limit_s * (_BUSY_TIMES if unobserved.busy else 1)


def _is_observed(body: Object, generation: int) -> bool:
    """Also where only the conditions say so: of a status that this version can't read the rest stays as it is."""
    status = body.get("status") or {}
    said = status.get("conditions")
    conditions = [each for each in said if isinstance(each, Mapping)] if isinstance(said, list) else []
    return any(each.get("observedGeneration") == generation for each in (status, *conditions))


async def keep_fresh(
    freshness: Freshness,
    list_all: Callable[[], Awaitable[list[tuple[Kind, list[Object]]]]],
    interval_s: float,
    listed: Callable[[list[tuple[Kind, list[Object]]], int], Awaitable[None]],
    is_busy: Callable[[Kind, Object, float], bool] = lambda _kind, _body, _within_s: False,
    is_ours: Callable[[Kind, Object], bool] = lambda _kind, _body: True,
) -> None:
    """List our resources for ever; ``listed`` is told of each listing and of the number that is unobserved.
    ``is_busy``, ``is_ours``: see ``Freshness.listed``.

    What fails the check is logged when it changes.
    """
    told: list[str] = []
    while True:
        again_after_s = interval_s
        try:
            found = await list_all()
            await listed(found, freshness.listed(found, is_busy, is_ours))
            found = []  # it is all that there is, and would be kept until the next listing
            freshness.begin()
        except KubeFailure as failure:
            _log.warning("health: %s", failure)
            freshness.failed(str(failure))
            again_after_s = min(interval_s, _AGAIN_S)
        problems = freshness.problems()
        if problems and problems != told:
            _log.error("%s fails: %s", HEALTH_PATH, "; ".join(problems))
        told = problems
        await asyncio.sleep(again_after_s)


def health_route(freshness: Freshness) -> Route:
    """200, or 503 with how many problems there are, and whether this process leads. Anybody may ask, so names and
    failures are in the log only.
    """

    def route(_headers: Mapping[str, str]) -> Answer:
        problems = len(freshness.problems())
        return _answer(not problems, {"healthy": not problems, "problems": problems, "leader": freshness.leads})

    return route


def ready_route(freshness: Freshness) -> Route:
    """200 once the operator knows what is there, and so answers those who come to its webhook, whether or not it leads;
    503 before, and while it is not healthy.
    """

    def route(_headers: Mapping[str, str]) -> Answer:
        is_ready = freshness.begun and not freshness.problems()
        return _answer(is_ready, {"ready": is_ready})

    return route


def _answer(is_well: bool, content: Mapping[str, bool | int]) -> Answer:
    status = HTTPStatus.OK if is_well else HTTPStatus.SERVICE_UNAVAILABLE
    return Answer(status, "application/json", json.dumps(content).encode() + b"\n")
