"""The jobs that copy for OffsetMirrors with ``engine: Spark``: ordered, started, followed and ended.

What will be done is written down before it is done: an order comes into its document, the job's name into the status,
then the job is started. So whoever is killed in between, the next pass finds what is next. Several jobs at once do no
harm, so none is waited for that can't be ended.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from typing import Final

from tidegate.clock import Clock
from tidegate.jobs.application import MIRROR_ORDER_VARIABLE
from tidegate.jobs.errors import RunnerFailure
from tidegate.jobs.runner import Launch, Runner, RunnerState
from tidegate.jobs.settings import SparkSettings
from tidegate.kafka.errors import Unavailable
from tidegate.kube.objects import is_surely_gone
from tidegate.kube.ports import MIRRORS, Kube, KubeFailure, NotFound, Object, label_of, name_of, namespace_of, uid_of
from tidegate.offset_mirror.order import (
    BadOrder,
    MirrorOrder,
    decode_document,
    digest,
    encode_document,
    location_of,
    name_of_document,
    name_of_launch,
    name_of_report,
    number_of_launch,
)
from tidegate.offset_mirror.preparing import Prepared
from tidegate.offset_mirror.replacing import Begin, Follow, Replace, decide
from tidegate.offset_mirror.report import BadReport, LastWords, Report, decode_report, encode_report
from tidegate.offset_mirror.topics import Copied
from tidegate.offset_mirror.turn import TURN_S
from tidegate.printable import visible
from tidegate.resources.mirror_engine import MirrorJob
from tidegate.resources.offset_mirror import OffsetMirrorStatus
from tidegate.threads import in_thread
from tidegate.versions import NewerVersion

_log = logging.getLogger(__name__)

_WAIT_A_PASS_S: Final = 2.0
"""How long one pass waits for a job to be ended before it looks around again."""
FIRST_BACKOFF_S: Final = 5.0
MOST_BACKOFF_S: Final = 300.0
LIVED_S: Final = 300.0
"""A job that has lived so long has not ended because it can't live."""


@dataclass(frozen=True, slots=True)
class JobParts:
    """What jobs are started through. ``runner``: Spark's, if there is one; ``died``: told of each job that has ended
    by itself."""

    kube: Kube
    runner: Runner | None
    settings: SparkSettings
    in_pods: bool
    executor: Executor
    patient_executor: Executor
    clock: Clock
    died: Callable[[], None]


@dataclass(frozen=True, slots=True)
class Wanted:
    """A pass's wish. ``order``: without the job's name; ``launch``: what else its launch says; ``settled``: no more is
    about to be added to it; ``lost``: a task of the job is, so that another job has to be started."""

    order: MirrorOrder
    launch: Launch
    settled: bool
    lost: bool = False


@dataclass(slots=True)
class _Memory:
    """What this process knows of a mirror's job beyond the document; losing it costs a look."""

    body: Object
    order: MirrorOrder | None = None
    fresh: str = ""
    """The launch that this process has ordered last."""
    started: str = ""
    """The launch that this process has started."""
    started_at_s: float = 0.0
    deaths: int = 0
    """In a row, each soon after the start."""
    again_at_s: float = 0.0
    trouble: str = ""
    last: LastWords = field(default_factory=dict)
    """Kept as long as the job is followed, however often the mirror is begun anew: what was heard is no news again."""
    stopping: asyncio.Future[None] | None = None
    not_ended: str = ""
    """Why the job could not be ended, where that was tried in vain."""
    not_ended_since_s: float = 0.0


class MirrorJobs:
    """Of all mirrors. Belongs to the event loop's thread, but for ``reports``."""

    def __init__(self, parts: JobParts) -> None:
        self._parts = parts
        self._memories: dict[str, _Memory] = {}

    @property
    def parts(self) -> JobParts:
        return self._parts

    async def keep(
        self, body: Object, told: MirrorJob | None, wanted: Wanted, begin: Callable[[], None]
    ) -> tuple[MirrorJob, bool]:
        """Do what is next for the job to copy as it is wanted; what the status has to say of it, and whether it has
        been started. ``told``: what the status says now; ``begin``: called as the last thing before a job is started,
        in the thread that does, may raise.

        Raises ``KubeFailure``, ``NewerVersion``.
        """
        memory, document = await self._memory(body), name_of_document(name_of(body), uid_of(body))
        named = "" if told is None else told.name
        now_s = self._parts.clock.monotonic()
        since_s = now_s - memory.started_at_s
        step = decide(memory.order, wanted.order, named, memory.fresh, settled=wanted.settled, since_s=since_s)
        if isinstance(step, Replace):
            ordered = memory.order.launch if memory.order is not None else ""
            former = named or ordered
            if former and not await self._ended(memory, former):
                tasks = wanted.order.tasks if told is None else told.tasks
                return MirrorJob(name=former, tasks=tasks, message=f"it is being ended, because {step.why}"), False
            number = 1 + max(number_of_launch(document, each) for each in (named, ordered))
            order = replace(wanted.order, launch=name_of_launch(document, number))
            await self._write(body, document, order)
            memory.order, memory.fresh, memory.trouble = order, order.launch, ""
            memory.last, memory.again_at_s = _unheard(order), 0.0
            _log.info(
                "%s: ordered job %s with %d task(s), because %s", label_of(body), order.launch, order.tasks, step.why
            )
            return MirrorJob(name=order.launch, tasks=order.tasks), False
        order = step.order
        if isinstance(step, Begin):  # the status has to name it first
            return MirrorJob(name=order.launch, tasks=order.tasks), False
        memory.trouble = await self._follow(body, memory, step, wanted, begin)
        job = MirrorJob(name=order.launch, tasks=order.tasks, message=visible(memory.trouble[:500]))
        return job, memory.started == order.launch

    def copies(self, body: Object, status: OffsetMirrorStatus) -> frozenset[str]:
        """The topics that a job may be copying; all that have a copy where this process has not looked yet."""
        memory = self._memories.get(uid_of(body))
        if memory is not None and memory.order is not None:
            return frozenset(topic.source.name for topic in memory.order.topics)
        return frozenset(row.name for row in status.topics if row.target_id) if status.job is not None else frozenset()

    def going_on(self, body: Object, prepared: Prepared) -> Sequence[Copied]:
        """What the job copies on though it is not ready: by what was done for it just now nothing is copied otherwise.
        Without it, each setting of a topic that changes would end the job for all."""
        memory = self._memories.get(uid_of(body))
        if memory is None or memory.order is None:
            return ()
        ids = {name: (prepared.sources[name].topic_id, target_id) for name, target_id in prepared.changed.items()}
        return [t for t in memory.order.topics if ids.get(t.source.name) == (t.source.topic_id, t.target.topic_id)]

    async def _follow(
        self, body: Object, memory: _Memory, step: Follow, wanted: Wanted, begin: Callable[[], None]
    ) -> str:
        """What keeps it from running, if anything does."""
        parts, order, runner = self._parts, step.order, self._runner()
        launch = replace(
            wanted.launch,
            name=order.launch,
            store=location_of(order),
            environment={MIRROR_ORDER_VARIABLE: digest(order)},
        )
        try:
            found = await in_thread(parts.executor, runner.status, launch)
            now_s = parts.clock.monotonic()
            if found.state is RunnerState.RUNNING and not (wanted.lost or memory.again_at_s):
                return found.message
            if found.state is RunnerState.LOST and memory.started != order.launch:
                await in_thread(parts.executor, self._start, runner, launch, begin)
                memory.started, memory.started_at_s = order.launch, now_s
                _log.info("%s: started job %s", label_of(body), launch.name)
                return ""
            why = found.message or ("a task is lost" if wanted.lost else "it ended on its own")
            if not memory.again_at_s:
                memory.deaths = 1 if now_s - memory.started_at_s > LIVED_S else memory.deaths + 1
                memory.again_at_s = now_s + min(MOST_BACKOFF_S, FIRST_BACKOFF_S * 2 ** (min(memory.deaths, 10) - 1))
                parts.died()
                _log.warning("%s: job %s has ended: %s", label_of(body), launch.name, why)
            if now_s < memory.again_at_s or not await self._ended(memory, order.launch):
                return f"the job has ended, and another one will start soon: {why}"
            document = name_of_document(name_of(body), uid_of(body))
            number = number_of_launch(document, order.launch) + 1
            following = replace(order, launch=name_of_launch(document, number))
            await self._write(body, document, following)
            memory.order, memory.fresh, memory.again_at_s = following, following.launch, 0.0
            memory.last = _unheard(following)
        except (RunnerFailure, TimeoutError) as failure:
            return str(failure)
        return f"the job has ended, and another one is starting: {why}"

    @staticmethod
    def _start(runner: Runner, launch: Launch, begin: Callable[[], None]) -> None:
        begin()
        runner.start(launch)

    async def end(self, body: Object, told: MirrorJob | None) -> str:
        """Have no job copy any more: why that is not so yet; nothing once it is. A job that can't be ended has tasks
        that end by themselves, and is waited for as long as that may take them."""
        launch = self._launch_to_end(body, told)
        if not launch:
            return ""
        memory = self._memories[uid_of(body)]
        if not await self._ended(memory, launch):
            return f"job {launch} is being ended"
        if memory.not_ended and self._parts.clock.monotonic() - memory.not_ended_since_s < TURN_S:
            why = visible(memory.not_ended[:200])
            return f"job {launch} could not be ended ({why}), but its tasks end on their own within {TURN_S:g} s"
        del self._memories[uid_of(body)]
        return ""

    async def ended(self, body: Object, told: MirrorJob | None) -> None:
        """As ``end``, about a minute at most, and without waiting for tasks of a job that can't be ended: for who holds
        them back in another way."""
        launch = self._launch_to_end(body, told)
        if launch:
            memory = self._memories[uid_of(body)]
            while not await self._ended(memory, launch):
                pass
            del self._memories[uid_of(body)]

    def _launch_to_end(self, body: Object, told: MirrorJob | None) -> str:
        """What is to be ended, if anything is; then there is a memory of it."""
        memory = self._memories.get(uid_of(body)) or _Memory(body)
        launch = told.name if told is not None else memory.order.launch if memory.order is not None else ""
        if not launch or self._parts.runner is None:
            self._memories.pop(uid_of(body), None)
            return ""
        self._memories[uid_of(body)] = memory
        return launch

    async def forget(self, body: Object) -> None:
        """Where it is gone, its documents and its SparkApplication go with it, and a job of this machine is ended.
        Where it is there, another operator looks after it from now on, and after its job."""
        memory = self._memories.pop(uid_of(body), None)
        if not await is_surely_gone(self._parts.kube, self._parts.executor, MIRRORS, body):
            return
        told = (body.get("status") or {}).get("job") or {}
        launch = memory.order.launch if memory is not None and memory.order is not None else str(told.get("name") or "")
        if launch and self._parts.runner is not None:
            try:
                named = Launch(launch, namespace_of(body), "")
                await in_thread(self._parts.patient_executor, self._parts.runner.stop, named)
            except (RunnerFailure, TimeoutError) as failure:
                _log.warning("%s: its job could not be stopped, but ends on its own: %s", label_of(body), failure)

    async def _ended(self, memory: _Memory, launch: str) -> bool:
        """Whether the job was ended, or could not be: its tasks end by themselves then, and until then do no harm.
        Ending it goes on in a thread, and passes look in on it."""
        if memory.stopping is None:
            call = functools.partial(self._runner().stop, Launch(launch, namespace_of(memory.body), ""))
            memory.stopping = asyncio.get_running_loop().run_in_executor(self._parts.patient_executor, call)
        done, _ = await asyncio.wait([memory.stopping], timeout=_WAIT_A_PASS_S)
        if not done:
            return False
        stopping, memory.stopping = memory.stopping, None
        try:
            stopping.result()
            memory.not_ended = ""
        except (RunnerFailure, TimeoutError) as failure:
            _log.warning(
                "%s: its job could not be ended, but its tasks end on their own: %s", label_of(memory.body), failure
            )
            if not memory.not_ended:
                memory.not_ended_since_s = self._parts.clock.monotonic()
            memory.not_ended = str(failure) or "no answer in time"
        return True

    def _runner(self) -> Runner:
        if self._parts.runner is None:
            raise RunnerFailure("this operator has no Spark runner")
        return self._parts.runner

    # --- documents ----------------------------------------------------------------------------------------------------

    async def _memory(self, body: Object) -> _Memory:
        uid = uid_of(body)
        if uid not in self._memories:
            self._memories[uid] = _Memory(body, await self._ordered(body))
        return self._memories[uid]

    async def _ordered(self, body: Object) -> MirrorOrder | None:
        namespace, name = namespace_of(body), name_of_document(name_of(body), uid_of(body))
        try:
            data = await in_thread(self._parts.executor, self._parts.kube.own_config_map, body, name)
            order = decode_document(data, f"ConfigMap {namespace}/{name}")
        except NotFound:
            return None
        except BadOrder as bad:
            _log.warning("%s: %s. The operator writes it again", label_of(body), bad)
            return None
        return order if number_of_launch(name, order.launch) else None

    async def _write(self, body: Object, document: str, order: MirrorOrder) -> None:
        """First where its tasks say something: they can't make that themselves."""
        put = self._parts.kube.put_config_map
        empty = encode_report(Report(order.launch))
        for place in range(order.tasks):
            await in_thread(self._parts.executor, put, body, name_of_report(document, place), empty)
        await in_thread(self._parts.executor, put, body, document, encode_document(order))

    def last(self, body: Object) -> LastWords:
        """Of the job's tasks; to be added to."""
        memory = self._memories.get(uid_of(body))
        return {} if memory is None else memory.last

    def reports(self, body: Object) -> Sequence[Report]:
        """What the tasks of the newest job have said last; blocking, from any thread. Raises ``Unavailable``."""
        memory = self._memories.get(uid_of(body))
        order = None if memory is None else memory.order
        if order is None:
            return ()
        document = name_of_document(order.name, order.uid)
        found = []
        for place in range(order.tasks):
            try:
                found.append(self._report(body, order, name_of_report(document, place)))
            except KubeFailure as failure:
                raise Unavailable(str(failure)) from failure
        return found

    def _report(self, body: Object, order: MirrorOrder, name: str) -> Report:
        try:
            report = decode_report(self._parts.kube.own_config_map(body, name), name)
        except (NewerVersion, BadReport) as bad:
            return Report(order.launch, trouble=str(bad))
        except NotFound:
            self._parts.kube.put_config_map(body, name, encode_report(Report(order.launch)))
            return Report(order.launch)
        return report if report.launch == order.launch else Report(order.launch)


def _unheard(order: MirrorOrder) -> LastWords:
    """Of a job that is not there yet: all that it says is news."""
    return {(order.launch, place): (Report(order.launch), None) for place in range(order.tasks)}
