"""What is kept for a policy beside its reset: the seam between a policy's pass and its features.

A feature looks at what concerns it, does at most what is due, and says what is so now. It is asked in every pass of the
policy, whose timer follows the shortest wish; all that it has to remember beyond this process is in the policy's memory
and in the status that it hands back, which are written after what it did. So whatever a feature does must be harmless
when done again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Protocol

from tidegate.connection.live import Live
from tidegate.kafka.model import Group, Topic
from tidegate.kafka.offset_retention import Commits
from tidegate.kube.ports import KubeEvent, Object, uid_of
from tidegate.policy.memory import Document, GroupMemory
from tidegate.resources.conditions import ConditionStatus, with_condition
from tidegate.resources.many_groups import TroubledGroup
from tidegate.resources.policy import OffsetResetPolicySpec, PolicyStatus

NOT_LOOKED_AT: Final = "NotLookedAt"
"""Of many groups: those of which nothing is known yet, as looks at them fail, or they are being reset."""


@dataclass(frozen=True, slots=True)
class ReadAhead:
    """A group's commits as they were read with those of many others, and then the topics of these ``names``.

    ``at``: after the commits were read.
    """

    at: datetime
    commits: Commits
    names: frozenset[str]
    topics: Mapping[str, Topic]


@dataclass(frozen=True, slots=True)
class PolicyView:
    """One policy as its pass sees it. ``status``: as it would be written without the features still to come.

    ``resetting``: a run is under way, which owns the group's offsets until it ends. ``memory``: what is remembered of
    the group.
    """

    body: Object
    spec: OffsetResetPolicySpec
    status: PolicyStatus
    live: Live
    now: datetime
    resetting: bool
    memory: GroupMemory
    described: Group | None = None
    """The group as it is now, where the pass has asked for many at once."""
    ahead: ReadAhead | None = None
    """Its commits, where the pass has just read those of many at once."""

    @property
    def group(self) -> str:
        return self.memory.group

    @property
    def uid(self) -> str:
        return uid_of(self.body)

    @property
    def is_one_of_many(self) -> bool:
        """Whether the policy is about many groups, each of which has a view and a status of its own."""
        return self.spec.groups is not None

    @property
    def key(self) -> str:
        """What a feature keeps in memory by, for this policy and group."""
        return key_of(self.uid, self.group) if self.is_one_of_many else self.uid

    def told(self, condition: str, verdict: tuple[ConditionStatus, str, str], **part: Any) -> PolicyStatus:
        """The status with a feature's condition (its type; status, reason, message) and its ``part`` in it."""
        return _told(self, condition, verdict, part)


@dataclass(frozen=True, slots=True)
class WholeView:
    """A policy for many groups, once each of them was looked at. ``each``: by group, the status of it alone.

    ``trouble``: why some of what is remembered of them is not kept beyond this process.
    """

    body: Object
    spec: OffsetResetPolicySpec
    status: PolicyStatus
    now: datetime
    each: Mapping[str, PolicyStatus]
    trouble: str = ""

    def told(self, condition: str, verdict: tuple[ConditionStatus, str, str], **part: Any) -> PolicyStatus:
        """As ``PolicyView.told``."""
        return _told(self, condition, verdict, part)


def _told(
    view: PolicyView | WholeView, condition: str, verdict: tuple[ConditionStatus, str, str], part: Mapping[str, Any]
) -> PolicyStatus:
    status, reason, message = verdict
    conditions = with_condition(
        view.status.conditions,
        condition,
        status,
        reason=reason,
        message=message,
        generation=int(view.body["metadata"]["generation"]),
        now=view.now,
    )
    return view.status.model_copy(update={**part, "conditions": conditions})


def key_of(uid: str, group: str) -> str:
    """``PolicyView.key`` of one group of a policy for many."""
    return f"{uid}/{group}"


@dataclass(frozen=True, slots=True)
class FeatureOutcome:
    """What came of a feature's turn: the status with its own part and conditions in it, the Events to record, and when
    to look again. ``trouble``: a reason and a message why it can't do all that is asked for, which no condition of
    its own says."""

    status: PolicyStatus
    happenings: tuple[KubeEvent, ...] = ()
    again_after_s: float = 60.0
    trouble: tuple[str, str] | None = None


class Feature(Protocol):
    """Asked only while the spec is valid, the policy is not being deleted and its connection is ready."""

    async def reconcile(self, policy: PolicyView) -> FeatureOutcome:
        """Raises what a later pass may not meet again (``KafkaFailure``, ``KubeFailure``, ``NotLookedAt``)."""
        ...

    async def forget(self, key: str) -> None:
        """The policy is gone, or no longer wants this: let go of what was kept in this process for it."""
        ...

    async def disconnected(self, key: str) -> None:
        """The policy's connection was removed: nothing can be looked at, or told of, by way of it any more.

        Called in every pass for as long as that is so.
        """
        ...


class GroupFeature(Feature, Protocol):
    """A feature that looks after a group by itself, so that it can look after many, each by a view of its own."""

    part: str
    """What policies compete for (``policy.precedence``)."""

    def with_news(self, uid: str) -> Mapping[str, Document]:
        """The groups of the policy of which there is something new to say, before it is time to look again; and what is
        to be remembered of each, which does not wait for its turn."""
        ...

    async def let_go(self, policy: PolicyView) -> bool:
        """Another policy has this of the group by now, or nobody asks for it: take back what was offered, and forget
        what is known, also beyond this process: it would be out of date should it be this one's turn again.

        Whether that is done; if not, it is asked for again. Costs next to nothing where there is nothing. Raises
        ``KubeFailure``.
        """
        ...

    def without(self, status: PolicyStatus) -> PolicyStatus:
        """The status without what this feature says in it."""
        ...

    def together(self, whole: WholeView) -> tuple[PolicyStatus, Sequence[TroubledGroup]]:
        """The status of the whole, of bounded size, with what this feature says of all groups; and the groups that need
        somebody, the worst first."""
        ...
