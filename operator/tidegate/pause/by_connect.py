"""Pausing a whole group by stopping the sink connector whose tasks are its members."""

from __future__ import annotations

from typing import Final

from tidegate.pause.connectors import ConnectorStep, stop
from tidegate.pause.model import Decision, LookedAtConnector, Observed, Seen
from tidegate.pause.release import refuse
from tidegate.pause.report import PAUSING
from tidegate.pause.whole_group import Stopping, decided, not_allowed, without_members
from tidegate.resources.conditions import Refusal
from tidegate.resources.pause import ConsumerGroupPauseSpec, PauseMethod, PausePhase, PauseStatus

RESUMED_BY_OTHERS: Final = "ResumedByOthers"


def is_by_connect(spec: ConsumerGroupPauseSpec) -> bool:
    """Whether this pause is one of a connector."""
    return spec.method is PauseMethod.CONNECT


def pause(seen: Seen, spec: ConsumerGroupPauseSpec, status: PauseStatus, observed: Observed) -> Decision:
    """The connector is stopped, and then nobody of the group is there any more."""
    refusal = not_allowed(seen, spec, observed, "stopping a connector")
    if refusal is not None:
        return refuse(seen, status, refusal)
    step = stop(seen, spec, has_members=observed.group.has_members)
    phase, why = _phase(seen, spec, observed, step)
    record = step.record
    stopping = Stopping(
        method=PauseMethod.CONNECT,
        records={"connector": record},
        action=step.action,
        happenings=step.happenings,
        troubles=(step.trouble,) if step.trouble is not None else (),
        is_down=step.is_stopped,
        since=record.stopped_at if record is not None else None,
        is_slow=_is_slow(seen.connector),
    )
    return decided(seen, spec, status, observed, stopping, phase, why)


def _is_slow(looked: LookedAtConnector) -> bool:
    """Whether its workers take longer than they do on a good day."""
    is_late = looked.asked is not None and not looked.is_recent
    return is_late or looked.unanswered is not None


def _phase(
    seen: Seen, spec: ConsumerGroupPauseSpec, observed: Observed, step: ConnectorStep
) -> tuple[PausePhase, Refusal]:
    """The phase, and its condition's reason and message."""
    record = step.record
    if step.trouble is not None:
        was_down = record is not None and record.phase is PausePhase.PAUSED
        return PausePhase.DEGRADED if was_down else PausePhase.PENDING, step.trouble
    if record is not None and record.phase is PausePhase.DEGRADED:
        text = (
            f"the operator stopped {spec.connector} {record.stopped} times, each less than an hour after the one "
            "before, and somebody else resumed it each time: find out who does that. The operator tries again after an "
            "hour"
        )
        return PausePhase.DEGRADED, Refusal(RESUMED_BY_OTHERS, text)
    if not step.is_stopped:
        unanswered = seen.connector.unanswered
        why = f": {unanswered[1].message}" if unanswered is not None else ""
        return PausePhase.PAUSING, Refusal(PAUSING, f"{spec.connector} is being stopped{why}")
    advice = "They are not this connector's tasks, or belong to a worker that was cut off: stop them"
    since = record.stopped_at if record is not None else None
    return without_members(seen, spec, observed, since, f"{spec.connector} is stopped", advice)
