"""Attempts to make a backup: each is ordered in a document, and its job started, followed and ended.

What will be done is written down before it is done: an order comes into the document, then its job is started (twice is
once, by its name), then its result is looked for. So whoever is killed in between, the next pass finds what is next.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from tidegate.jobs.errors import RunnerFailure
from tidegate.jobs.mounts import JobPlaces
from tidegate.jobs.runner import Launch, Runner, RunnerState
from tidegate.jobs.settings import SparkSettings
from tidegate.kube.objects import is_surely_gone
from tidegate.kube.ports import (
    BACKUPS,
    Conflict,
    Kube,
    NotFound,
    NotOwned,
    Object,
    label_of,
    name_of,
    namespace_of,
    uid_of,
)
from tidegate.offset_backup.document import (
    Asked,
    BadDocument,
    Document,
    Result,
    attempt_name,
    decode_document,
    document_name,
    encode_document,
    has_its_name,
)
from tidegate.offset_backup.order import Order
from tidegate.offset_backup.schedule import Take
from tidegate.offset_backup.wanted import View, launch_of, made_of, next_number
from tidegate.threads import in_thread
from tidegate.versions import NewerVersion

_log = logging.getLogger(__name__)


class NewerOrder(Exception):
    """A newer version of Tidegate has ordered a backup (``tidegate.versions``): its document is left as it is."""


class ForeignDocument(Exception):
    """A ConfigMap of the document's name is somebody else's, so that nothing can be written down. The message says
    what to do."""


JOB_LIMIT: Final = timedelta(hours=1)
"""How long a job may take. It takes a minute: one that does not end waits for what does not come."""

_WAIT_A_PASS_S: Final = 2.0
"""How long one pass waits for a job to be stopped before it looks around again."""


@dataclass(frozen=True, slots=True)
class JobParts:
    """What attempts are made through. ``runner``: Spark's, if there is one; ``patient_executor``: for stopping jobs."""

    kube: Kube
    runner: Runner | None
    spark: SparkSettings
    places: JobPlaces
    executor: Executor
    patient_executor: Executor


@dataclass(frozen=True, slots=True)
class Stopping:
    """The job of this attempt is being stopped, in a thread."""

    attempt: str
    done: asyncio.Future[None]


@dataclass(slots=True)
class Memory:
    """What this process knows of an ``OffsetBackup``'s attempts beyond the document; losing it costs a look."""

    namespace: str
    document: Document | None
    started: str = ""
    """The launch that this process has started."""
    trouble: str = ""
    stopping: Stopping | None = None


class Attempts:
    """Of all ``OffsetBackup``s. Belongs to the event loop's thread."""

    def __init__(self, parts: JobParts) -> None:
        self._parts = parts
        self._memories: dict[str, Memory] = {}

    async def memory(self, body: Object) -> Memory:
        """Raises ``NewerOrder`` and ``ForeignDocument``, as all do that read the document."""
        uid = uid_of(body)
        if uid not in self._memories:
            self._memories[uid] = Memory(namespace_of(body), await self._look(body))
        return self._memories[uid]

    async def order(self, view: View, memory: Memory, wanted: Order, take: Take) -> None:
        """Write down what is to be made now."""
        document, name = memory.document, document_name(name_of(view.body), uid_of(view.body))
        number = next_number(view, document)
        same_storage = document is not None and document.order.storage == wanted.storage
        await self._write(
            view.body,
            memory,
            Document(
                replace(wanted, due=take.due, attempt=attempt_name(name, number)),
                Asked(
                    number,
                    view.now,
                    take.missed,
                    document.failures if document is not None and same_storage else 0,
                    made_of(document, wanted, view.live.cluster_id),
                ),
            ),
        )

    async def follow(self, view: View, memory: Memory, document: Document) -> Document:
        """The document after a look at the job: started where it was not, ended where it has ended.

        Raises ``RunnerFailure`` and ``TimeoutError``.
        """
        runner = self._runner()
        launch = launch_of(view, document.order, in_pods=self._parts.places.in_pods)
        status = await in_thread(self._parts.executor, runner.status, launch)
        # After the look at the job: what it stored before it ended is seen then.
        document = await self._read(view.body, memory)
        if not document.is_under_way:
            return document
        # Also where a clock that was ahead has told when it was asked for: nobody would see its time pass.
        over = abs(view.now - document.asked.asked_at) > JOB_LIMIT
        if status.state is RunnerState.LOST and memory.started != launch.name and not over:
            await in_thread(self._parts.executor, runner.start, launch)
            memory.started, memory.trouble = launch.name, ""
            _log.info("%s: started job %s", label_of(view.body), launch.name)
            return document
        if status.state is RunnerState.RUNNING and not over:
            memory.trouble = status.message
            return document
        why = status.message or "the job ended without a result"
        if over:
            why = f"the job did not end within {JOB_LIMIT}: {status.message or status.state.value}"
        if not await self._stopped(memory, document):
            return document
        document = await self._read(view.body, memory)
        if document.is_under_way:
            return await self._write(view.body, memory, replace(document, result=Result(view.now, failure=why)))
        return document

    async def withdraw(self, body: Object, memory: Memory, now: datetime) -> bool:
        """Whether no job is under way any more, and none will be started of what was ordered."""
        document = memory.document
        if document is None or not document.is_under_way:
            return True
        try:
            if self._parts.runner is not None and not await self._stopped(memory, document):
                return False
        except (RunnerFailure, TimeoutError) as failure:
            _log.warning("%s: %s; retrying soon", label_of(body), failure)
            return False
        document = await self._read(body, memory)
        if document.is_under_way:
            await self._write(body, memory, replace(document, result=Result(now, withdrawn=True)))
        return True

    async def forget(self, body: Object) -> None:
        """Where it is gone, its document and its SparkApplication go with it, and a job of this machine is ended. Where
        it is there, another operator looks after it from now on, and after its job."""
        memory = self._memories.pop(uid_of(body), None)
        if memory is None or memory.document is None or not memory.document.is_under_way:
            return
        if self._parts.runner is None or not await is_surely_gone(
            self._parts.kube, self._parts.executor, BACKUPS, body
        ):
            return
        try:
            await in_thread(self._parts.patient_executor, self._parts.runner.stop, _by_name(memory, memory.document))
        except (RunnerFailure, TimeoutError) as failure:
            _log.warning("%s: %s; its job ends on its own", label_of(body), failure)

    async def _stopped(self, memory: Memory, document: Document) -> bool:
        """Whether the job is gone; stopping it goes on in a thread, and passes look in on it."""
        stopping, attempt = memory.stopping, document.order.attempt
        if stopping is None or stopping.attempt != attempt:
            # One of an earlier attempt is looked at by nobody any more: its job has stored a backup meanwhile.
            call = functools.partial(self._runner().stop, _by_name(memory, document))
            done = asyncio.get_running_loop().run_in_executor(self._parts.patient_executor, call)
            done.add_done_callback(_is_seen)
            stopping = memory.stopping = Stopping(attempt, done)
        await asyncio.wait([stopping.done], timeout=_WAIT_A_PASS_S)
        if not stopping.done.done():
            return False
        memory.stopping = None
        stopping.done.result()
        return True

    def _runner(self) -> Runner:
        if self._parts.runner is None:
            raise RunnerFailure("this operator has no Spark runner")
        return self._parts.runner

    # --- the document -------------------------------------------------------------------------------------------------

    async def _read(self, body: Object, memory: Memory) -> Document:
        """As it is now. What was removed or spoilt meanwhile is written again, as this process knows it."""
        found, known = await self._look(body), memory.document
        if known is None:
            raise ValueError("a document is read again once there is one")
        if found is None or (found.order, found.asked) != (known.order, known.asked):
            return await self._write(body, memory, known)
        memory.document = found
        return found

    async def _look(self, body: Object) -> Document | None:
        namespace, name = namespace_of(body), document_name(name_of(body), uid_of(body))
        try:
            document = decode_document(await self._own(body, name), f"ConfigMap {namespace}/{name}")
            if not has_its_name(document, name):
                raise BadDocument(f"it names an attempt {document.order.attempt!r}, which is not one of its own")
            return document
        except NotFound:
            return None
        except NewerVersion as newer:
            raise NewerOrder(str(newer)) from newer
        except BadDocument as bad:
            _log.warning(
                "ConfigMap %s/%s is not a backup's document: %s. The operator writes it again", namespace, name, bad
            )
            return None

    async def _write(self, body: Object, memory: Memory, document: Document) -> Document:
        name, data = document_name(name_of(body), uid_of(body)), encode_document(document)
        try:
            await in_thread(self._parts.executor, self._parts.kube.put_config_map, body, name, data)
        except Conflict:
            # Changed meanwhile, which the next pass sees; or somebody else's, which would be so at each pass.
            await self._own(body, name)
            raise
        memory.document, memory.trouble = document, ""
        return document

    async def _own(self, body: Object, name: str) -> Mapping[str, str]:
        try:
            return await in_thread(self._parts.executor, self._parts.kube.own_config_map, body, name)
        except NotOwned as foreign:
            raise ForeignDocument(
                f"ConfigMap {namespace_of(body)}/{name} does not belong to this OffsetBackup, which needs that name: "
                "no backup begins until that ConfigMap is removed"
            ) from foreign


def _is_seen(done: asyncio.Future[None]) -> None:
    """How it ended is no error of this process, also where no pass looks at it any more."""
    if not done.cancelled():
        done.exception()


def _by_name(memory: Memory, document: Document) -> Launch:
    """Enough to stop the job by."""
    return Launch(document.order.attempt, memory.namespace, "")
