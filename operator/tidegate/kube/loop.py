"""Level-triggered reconciling: a resource gets a pass for its watch events, a jittered timer, or a colleague.

kopf's own timers and change handlers are not used for this, for three reasons (kopf 1.45): ``kopf.timer`` always puts
its finalizer on the object (``kopf/on.py``: ``requires_finalizer=True``), while ours has to be there only during a run;
``on.create`` and ``on.update`` write an annotation to every object they have handled; and neither sees our own status
writes, on which a run's next step depends. So kopf watches, and ``@kopf.on.event`` feeds this loop: the listing at the
start (resume), ADDED (create), MODIFIED (update) and DELETED all end in one coroutine. A worker makes one pass at a
time: that is the lock per UID. It ends where there is nothing to do, and a timer is all that there is of thousands of
resources at rest.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection
from contextvars import Context
from dataclasses import dataclass
from typing import Final, Protocol

from tidegate.kube.objects import lean_of, version_of
from tidegate.kube.ports import Conflict, NotFound, Object, kept_of, name_of, namespace_of, uid_of

_log = logging.getLogger(__name__)

_JITTER: Final = 0.15
_SELDOM_S: Final = 30.0
_SLOT_S: Final = 5.0
"""Passes that are made seldom are made at the same few moments, as long as they may wait anyway: what they ask Kafka
for is then asked for all of them at once."""
_AT_REST_A_SECOND: Final = 10
_LONGEST_REST_S: Final = 300.0
_FIRST_BACKOFF_S: Final = 0.5
_LAST_BACKOFF_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Pass:
    """What a pass left: the object as it is now, and when to look again (0: at once)."""

    body: Object
    again_after_s: float


class Reconciler(Protocol):
    """What a loop drives. A pass is idempotent and has at most one effect."""

    async def reconcile(self, body: Object) -> Pass: ...

    async def forget(self, body: Object) -> None:
        """The object is gone: let go of what was kept in memory for it."""
        ...

    async def refresh(self, body: Object) -> Object | None:
        """Read the object again; ``None`` when it is gone."""
        ...


@dataclass(slots=True)
class _Item:
    body: Object
    woken: bool = False
    """Whether something came up since the newest pass began."""
    gone: bool = False
    missed: bool = False
    """Whether a listing did not have it."""
    begun: bool = False
    """Whether something may be kept of it: it is ours, and its first pass may begin."""
    failures: int = 0
    began_s: float = 0.0
    """When the newest step of its worker began."""
    task: asyncio.Task[None] | None = None
    """Its worker: at work, or ended by a defect and to be started anew. ``None``: it is at rest."""
    timer: asyncio.TimerHandle | None = None
    """What ends its rest."""


async def _at_once(_body: Object) -> None:
    return


def _always(_body: Object) -> bool:
    return True


def _nobody(_body: Object) -> None:
    return


class LevelLoop:
    """One kind's workers. All methods belong to the event loop's thread.

    ``expected``: failures that a later pass may not meet again, logged in one line and retried with backoff. Anything
    else is a defect of the code: logged with its traceback, and the worker starts anew, so one resource can't stop
    the others. ``observe_pass`` is told of every pass: its seconds, and whether it failed. ``before_first``: what an
    object's first pass waits for. ``gone``: told of each that is gone, also where its watch has not said so.

    ``is_ours``: whether this process makes passes over an object; asked before each pass. What is another's is taken in
    and watched, and let go of where it was ours. Whoever knows that the answer has changed wakes the object.

    A loop that stands by takes in what is told of its objects, and makes no pass over them until it begins. ``begins``
    is told of those that are ours by then, before the first pass over any of them: for what is decided between several.
    """

    def __init__(
        self,
        reconciler: Reconciler,
        *,
        expected: tuple[type[Exception], ...],
        observe_pass: Callable[[float, bool], None] = lambda _seconds, _failed: None,
        before_first: Callable[[Object], Awaitable[None]] = _at_once,
        is_ours: Callable[[Object], bool] = _always,
        gone: Callable[[Object], None] = _nobody,
        begins: Callable[[Collection[Object]], None] | None = None,
    ) -> None:
        self._reconciler = reconciler
        self._expected = expected
        self._observe_pass = observe_pass
        self._before_first = before_first
        self._is_ours = is_ours
        self._gone = gone
        self._begins = begins
        self._items: dict[str, _Item] = {}
        self._standing_by = False
        self._uids: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
        """By namespace and name. For a moment there may be one that was deleted and one that was made anew."""
        self._passed_s: float | None = None
        """When a pass over any object ended last."""
        self._stopping = False
        self._context = Context()
        """Of all timers. Set by a handler of kopf's, one would keep what that was told of."""

    def stand_by(self) -> None:
        """Before anything is told of."""
        self._standing_by = True

    def begin(self) -> None:
        """Make passes over all objects that are known, and over those still to come. Idempotent."""
        if not self._standing_by or self._stopping:
            return
        self._standing_by = False
        if self._begins is not None:
            self._begins([body for body in self.bodies if self._is_ours(body)])
        for uid, item in self._items.items():
            self._start(uid, item)

    def notice(self, event_type: str | None, body: Object) -> None:
        """Take in a watch event. ``event_type`` is ``None`` for the listing at the start."""
        if self._stopping:
            return
        body, uid = lean_of(kept_of(body)), uid_of(body)
        item = self._items.get(uid)
        if event_type == "DELETED":
            if item is not None:
                item.body = body
                self._is_gone(uid, item)
            return
        if item is None:
            item = self._items[uid] = _Item(body)
            self._uids[namespace_of(body), name_of(body)].add(uid)
        elif version_of(body) >= version_of(item.body):
            item.body = body
        self._stir(uid, item)

    def wake(self, uid: str) -> None:
        """Look at this object now."""
        item = self._items.get(uid)
        if item is not None:
            self._stir(uid, item)

    def wake_named(self, namespace: str, name: str) -> None:
        """Look at the object of this name now, where it is known."""
        for uid in self._uids.get((namespace, name), ()):
            self.wake(uid)

    def named(self, namespace: str, name: str) -> Object | None:
        """The newest object of this name as it was last seen, unless it is gone."""
        items = [self._items[uid] for uid in self._uids.get((namespace, name), ())]
        return max((item.body for item in items if not item.gone), key=version_of, default=None)

    def is_busy(self, body: Object, within_s: float) -> bool:
        """Whether it is only a matter of time until a pass is over this object, as it is here: it is known, its own
        passes do not fail, and some pass has ended within that time."""
        item = self._items.get(uid_of(body))
        if item is None or item.failures or self._passed_s is None:
            return False
        is_known = int(item.body["metadata"]["generation"]) >= int(body["metadata"]["generation"])
        return is_known and asyncio.get_running_loop().time() - self._passed_s <= within_s

    def wake_all(self) -> None:
        for uid, item in tuple(self._items.items()):
            self._stir(uid, item)

    async def retain(self, listed: Collection[str], known: Collection[str]) -> None:
        """Let go of objects that a listing no longer has, unless they are there when looked for one by one. ``known``:
        the ``uids`` when the listing began; what came since need not be in it.

        Its worker looks for each, so that whoever lists does not wait behind passes.
        """
        for uid in frozenset(known).difference(listed):
            item = self._items.get(uid)
            if item is None or item.gone:
                continue
            if not self._standing_by:
                item.missed = True
                self._stir(uid, item)
            elif await self._reconciler.refresh(item.body) is None:
                self._is_gone(uid, item)

    def knows(self, body: Object) -> bool:
        """Whether this generation of the object was told of."""
        item = self._items.get(uid_of(body))
        return item is not None and item.body["metadata"].get("generation") == body["metadata"].get("generation")

    @property
    def uids(self) -> frozenset[str]:
        return frozenset(self._items)

    @property
    def size(self) -> int:
        return len(self._items)

    @property
    def bodies(self) -> list[Object]:
        """The objects as they were last seen, without those that are gone."""
        return [item.body for item in self._items.values() if not item.gone]

    def halt(self) -> list[asyncio.Task[None]]:
        """Begin to end all workers, which make no further step; a call that is on its way in a thread goes on."""
        self._stopping = True
        tasks = [item.task for item in self._items.values() if item.task is not None]
        for item in self._items.values():
            if item.timer is not None:
                item.timer.cancel()
        for task in tasks:
            task.cancel()
        return tasks

    async def stop(self) -> None:
        """End all workers; a call that is on its way in a thread is not waited for."""
        tasks = self.halt()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._items.clear()
        self._uids.clear()

    def _is_gone(self, uid: str, item: _Item) -> None:
        if self._standing_by:
            # Nothing is kept of it that a pass would have to let go of.
            self._drop(uid, item)
        item.gone = True
        self._stir(uid, item)

    def _stir(self, uid: str, item: _Item) -> None:
        item.woken = True
        if item.task is None and not self._standing_by and not self._stopping:
            self._start(uid, item)

    def _start(self, uid: str, item: _Item) -> None:
        if item.timer is not None:
            item.timer.cancel()
            item.timer = None
        context, name = Context(), f"reconcile {namespace_of(item.body)}/{uid}"
        item.task = asyncio.create_task(self._work(uid, item), name=name, context=context)
        item.task.add_done_callback(lambda task: self._ended(uid, item, task), context=context)

    def _ended(self, uid: str, item: _Item, task: asyncio.Task[None]) -> None:
        if task.cancelled() or self._stopping or self._items.get(uid) is not item:
            return
        error = task.exception()
        if error is not None:
            self._passed(item, failed=True)
            item.failures += 1
            delay = _backoff(item.failures)
            _log.error(
                "%s/%s: a pass ended with an unexpected error; the next one is in %.1f s",
                namespace_of(item.body),
                name_of(item.body),
                delay,
                exc_info=error,
            )
            asyncio.get_running_loop().call_later(delay, self._restart, uid, item)

    def _restart(self, uid: str, item: _Item) -> None:
        if not self._stopping and self._items.get(uid) is item:
            self._start(uid, item)

    async def _work(self, uid: str, item: _Item) -> None:
        while not item.gone:
            item.woken, item.began_s = False, asyncio.get_running_loop().time()
            if item.missed:
                item.missed = False
                item.gone = await self._is_lost(item)
            elif not self._is_ours(item.body):
                if not item.begun:
                    item.task = None
                    return
                # What could not be let go of is let go of by the next attempt.
                await self._reconciler.forget(item.body)
                item.begun = False
            elif not item.begun:
                # It may be another's once that is over.
                item.begun = True
                await self._before_first(item.body)
            else:
                delay = await self._pass(item)
                if delay > 0 and not item.woken and not item.gone:
                    item.task, loop = None, asyncio.get_running_loop()
                    item.timer = loop.call_later(delay, self._start, uid, item, context=self._context)
                    return
        item.began_s = asyncio.get_running_loop().time()
        await self._reconciler.forget(item.body)
        self._drop(uid, item)

    def _drop(self, uid: str, item: _Item) -> None:
        self._items.pop(uid, None)
        named = (namespace_of(item.body), name_of(item.body))
        self._uids[named].discard(uid)
        if not self._uids[named]:
            del self._uids[named]
        self._gone(item.body)

    async def _pass(self, item: _Item) -> float:
        """One pass; seconds until the next. One that is ended with the operator has not failed, and one that a defect
        ends is seen to where the worker has ended."""
        try:
            done = await self._reconciler.reconcile(item.body)
        except (Conflict, NotFound) as error:
            # Somebody changed or removed it (kopf never tells of an object that went while its watch was down).
            self._passed(item, failed=True)
            item.failures += 1
            _log.debug("%s/%s: %s; reading it again", namespace_of(item.body), name_of(item.body), error)
            return await self._refreshed(item)
        except self._expected as error:
            self._passed(item, failed=True)
            item.failures += 1
            delay = _backoff(item.failures)
            _log.warning("%s/%s: %s; again in %.1f s", namespace_of(item.body), name_of(item.body), error, delay)
            return delay
        self._passed(item, failed=False)
        item.failures = 0
        if version_of(done.body) >= version_of(item.body):
            item.body = done.body
        return delay_s(done.again_after_s, asyncio.get_running_loop().time())

    def _passed(self, item: _Item, *, failed: bool) -> None:
        self._passed_s = asyncio.get_running_loop().time()
        self._observe_pass(self._passed_s - item.began_s, failed)

    async def _is_lost(self, item: _Item) -> bool:
        try:
            return await self._reconciler.refresh(item.body) is None or item.gone
        except self._expected as error:
            # The next listing misses it again.
            _log.warning("%s/%s: %s", namespace_of(item.body), name_of(item.body), error)
            return item.gone

    async def _refreshed(self, item: _Item) -> float:
        before = item.body
        try:
            fresh = await self._reconciler.refresh(item.body)
        except self._expected as error:
            _log.warning("%s/%s: %s", namespace_of(item.body), name_of(item.body), error)
            return _backoff(item.failures)
        if fresh is None:
            item.gone = True
        elif item.body is before or version_of(fresh) >= version_of(item.body):
            # Not over what a watch has told of meanwhile, which it does once.
            item.body = fresh
        return 0 if item.failures < 3 else _backoff(item.failures)


def delay_s(again_after_s: float, now_s: float) -> float:
    """How long to wait for a pass that was asked for in ``again_after_s``; ``now_s`` is of the clock that the waiting
    goes by. Never longer: what is to be said at a certain time comes in time, and an early pass asks again."""
    delay = again_after_s * random.uniform(1 - _JITTER, 1)  # noqa: S311 - not a secret
    return delay if delay < _SELDOM_S else delay - (now_s + delay) % _SLOT_S


def rest_s(least_s: float, resources: int) -> float:
    """How long each of so many resources at rest is left alone, of which all that matters at once is told of: their
    passes are for figures, and come no more than ten times a second in all, as long as that is no more than five
    minutes for each."""
    return max(least_s, min(_LONGEST_REST_S, resources / _AT_REST_A_SECOND))


def _backoff(failures: int) -> float:
    return float(min(_LAST_BACKOFF_S, _FIRST_BACKOFF_S * 2 ** min(failures - 1, 10)))
