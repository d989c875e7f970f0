"""Whether it is still the turn of a task of a mirror's job, and what it says and asks meanwhile.

A task looks at its OffsetMirror itself, so that it ends where the operator is gone, or can't reach it. Nobody has to
rely on that: whatever a task does late is a compare-and-set, and is refused where it is fenced.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from tidegate.kafka.model import TopicPartition
from tidegate.kube.ports import MIRRORS, Kube, KubeFailure, NotFound, Object, uid_of
from tidegate.mirror.model import Interrupted, ProducerIds
from tidegate.offset_mirror.course import Course
from tidegate.offset_mirror.ids import known_ids
from tidegate.offset_mirror.order import MirrorOrder, name_of_document, name_of_report
from tidegate.offset_mirror.report import FIRST_ID, BadReport, Report, Row, decode_report, encode_report
from tidegate.resources.base import InvalidResource, has_readable_status, parse_spec, read_status
from tidegate.resources.mirror_engine import MirrorEngine
from tidegate.resources.offset_mirror import OffsetMirrorSpec, OffsetMirrorStatus
from tidegate.versions import NewerVersion

TURN_S: Final = 30.0
"""How long a task goes on copying after it has last seen that it is its turn, or said how its copies stand."""


class Displaced(Exception):
    """By its report, another attempt of the task is at work. So it has failed: where the report is wrong, and there is
    no other one, it is begun again, and in the end the job."""


class Turn:
    """Of one attempt of the task of one place. Thread-safe; ``now_s``: a monotonic clock."""

    def __init__(self, kube: Kube, order: MirrorOrder, place: int, attempt: int, now_s: Callable[[], float]) -> None:
        """``attempt``: larger than those of earlier attempts of the same launch, and above 0."""
        self._kube = kube
        self._order = order
        self._now_s = now_s
        self._lock = threading.Lock()
        self._seen_at_s: float | None = None
        self._said_at_s: float | None = None
        self._report = Report(order.launch, attempt)
        self._report_name = name_of_report(name_of_document(order.name, order.uid), place)
        self._body: Object | None = None
        self._wants_id_after: int | None = None
        self.over = ""
        """Why the task has to end; once it has, it does not begin again."""
        self.is_displaced = False
        """Whether it is over by its report, and not by the OffsetMirror."""
        self.trouble = ""
        """Why it could not look, or say something, the last time."""

    def may_write(self) -> bool:
        """Whether it has lately seen that it is its turn, and been able to say how its copies stand: what the operator
        removes of the producer ids goes by that."""
        since = [self._seen_at_s, self._said_at_s]
        return not self.over and all(at_s is not None and self._now_s() - at_s <= TURN_S for at_s in since)

    def look(self) -> None:
        """At the OffsetMirror; from any thread."""
        asked_at_s = self._now_s()
        try:
            body = self._kube.get(MIRRORS, self._order.namespace, self._order.name)
        except NotFound as gone:
            self.over = str(gone)
            return
        except KubeFailure as failure:
            self.trouble = str(failure)
            return
        self.trouble = ""
        why = self._why_over(body)
        if why is None:
            return
        self.over = self.over or why
        if not why:
            self._body, self._seen_at_s = body, asked_at_s

    def _why_over(self, body: Object) -> str | None:
        """Nothing where it is its turn; ``None``: that can't be told."""
        order = self._order
        if uid_of(body) != order.uid or body["metadata"].get("deletionTimestamp"):
            return "the OffsetMirror is gone"
        if not has_readable_status(OffsetMirrorStatus, body):
            self.trouble = "the status of the OffsetMirror can't be read"
            return None
        try:
            spec = parse_spec(OffsetMirrorSpec, body)
        except InvalidResource as invalid:
            self.trouble = str(invalid)
            return None
        status = read_status(OffsetMirrorStatus, body)
        if spec.engine is not MirrorEngine.SPARK:
            return f"spec.engine is {spec.engine.value}"
        if status.failover is not None or (spec.failover is not None and spec.failover.accept_loss):
            return "the OffsetMirror fails over"
        if spec.suspend and spec.failover is None:
            return "the OffsetMirror is suspended"
        if status.job is None or status.job.name != order.launch:
            return "another job is copying now"
        return ""

    # --- producer ids -------------------------------------------------------------------------------------------------

    def claim(self, after: int | None) -> ProducerIds | Interrupted:
        """Implements ``tidegate.mirror.ports.ProducerIdStore``: what the status has now. A job can't write it, so the
        operator, which hears of it by the report, claims what is missing."""
        with self._lock:
            self.look()
            if self.over or self._body is None or self.trouble:
                return Interrupted(self.over or self.trouble or "the OffsetMirror could not be read")
            found = known_ids(self._body, self._order.uid, self._order.former_ids)
            if isinstance(found, Interrupted):
                return found
            told = read_status(OffsetMirrorStatus, self._body).producer_ids
            if found.ids != told:
                # A failover fences what the status names: former ids are written there before anything is with them.
                self._wants_id_after = FIRST_ID
                return Interrupted("the former producer ids are being written to the status")
            if not found.ids or after == found.ids[-1]:
                self._wants_id_after = FIRST_ID if after is None else after
                return Interrupted("a producer id is being claimed")
            self._wants_id_after = None
            return found

    # --- what it says -------------------------------------------------------------------------------------------------

    def say(self, courses: Mapping[TopicPartition, Course], records: int, size: int, trouble: str) -> None:
        """How the copies stand; from one thread at a time. ``records``, ``size``: written by this attempt so far."""
        rows, began_at_s = {p: _row(course) for p, course in courses.items()}, self._now_s()
        self._report = replace(
            self._report,
            beat=self._report.beat + 1,
            rows=rows,
            wants_id_after=self._wants_id_after,
            records=records,
            size=size,
            trouble=trouble,
        )
        if self._body is None:
            return
        try:
            self._kube.change_config_map(self._body, self._report_name, self._after)
        except NewerVersion as newer:
            self._displace(str(newer))
        except KubeFailure as failure:
            self.trouble = str(failure)
        else:
            self._said_at_s = began_at_s

    def _after(self, data: Mapping[str, str]) -> Mapping[str, str] | None:
        """What follows what was said last, by whichever attempt of whichever job; nothing where that is a later one.
        Raises ``NewerVersion``."""
        try:
            there = decode_report(data, self._report_name)
        except BadReport:
            return encode_report(self._report)
        if there.launch != self._order.launch or there.attempt > self._report.attempt:
            self._displace("another attempt of this task is running")
            return None
        return encode_report(self._report)

    def _displace(self, why: str) -> None:
        self.is_displaced = not self.over
        self.over = self.over or why


def _row(course: Course) -> Row:
    return Row(course.offset, course.producer_id, course.stopped, course.drifted, course.trouble)
