"""How a run can end: every outcome and reason. Pure.

Prometheus counts from the first value that it has seen of a series: a counter that begins to exist with the first event
of its kind has not increased. So these are there, at 0, before any run has ended.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from tidegate.connection.allow import GROUP_NOT_ALLOWED
from tidegate.connection.sharing import NO_USABLE_CONNECTION
from tidegate.find.survey import NO_TOPIC_OVER_THERE
from tidegate.reset.applying.apply import APPLIED
from tidegate.reset.applying.failures import APPLY_REASONS
from tidegate.reset.applying.replay import CONTINUED, HELD, RETURNED
from tidegate.reset.planning import refusals
from tidegate.reset.planning.planner import NEEDS_SPARK
from tidegate.reset.runs import fleet, reasons, request
from tidegate.reset.runs.waves import ROLLOUT_STOPPED
from tidegate.resources.reset import ResetPhase

_UNPLANNED: Final = (
    refusals.UNSUPPORTED_GROUP,
    refusals.SAME_GROUP,
    refusals.SOURCE_WITHOUT_OFFSETS,
    refusals.INTERNAL_TOPIC,
    refusals.TOPIC_NOT_ALLOWED,
    refusals.UNKNOWN_TOPIC,
    refusals.UNKNOWN_PARTITION,
    refusals.NOTHING_MATCHES,
    refusals.TOPIC_RECREATED,
    refusals.NO_COMMITTED_OFFSET,
    refusals.NO_MATCHING_RECORD,
    refusals.UNSUPPORTED_BY_BROKERS,
    fleet.NO_GROUP_MATCHES,
    fleet.TOO_MANY_GROUPS,
    fleet.ROLLOUT_TOO_LONG,
    reasons.QUOTA_EXCEEDED,
    GROUP_NOT_ALLOWED,
    NO_USABLE_CONNECTION,
    NEEDS_SPARK,
    reasons.ALREADY_RAN,
    NO_TOPIC_OVER_THERE,
    refusals.NOTHING_TO_REPLAY,
    refusals.BACKUP_NOT_FOUND,
    refusals.BAD_EXPRESSION,
    refusals.BAD_SCHEMA,
    refusals.UNDECODABLE_RECORD,
    refusals.UNREADABLE_TIME,
)
"""There is no plan, so nothing was changed."""

_UNFINISHED: Final = (
    *APPLY_REASONS,
    reasons.DELETED,
    reasons.REPLAY_TIMED_OUT,
    reasons.JOB_FAILED,
    fleet.OTHER_GROUP_FAILED,
    ROLLOUT_STOPPED,
)
"""There may have been something to put back."""

_LEFT: Final = (
    request.NOT_PUT_BACK,
    reasons.RUN_LOST,
    reasons.FOREIGN_RUN,
    reasons.FORGED,
    reasons.ABANDONED,
    fleet.GROUPS_REFUSED,
    fleet.GROUPS_FAILED,
)
"""Some of it may stay as the run has left it."""

RUN_ENDS: Final[Collection[tuple[str, str]]] = (
    *((ResetPhase.SUCCEEDED.value, reason) for reason in (APPLIED, RETURNED, CONTINUED, HELD)),
    *((ResetPhase.FAILED.value, reason) for reason in (*_UNPLANNED, *_UNFINISHED, *_LEFT)),
    *((ResetPhase.ROLLED_BACK.value, reason) for reason in _UNFINISHED),
)
"""(outcome, reason), each once."""
