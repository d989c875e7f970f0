"""The ``OffsetResetApproval``s of a reset, and the one that counts (by ``tidegate.reset.runs.approval_effect``)."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from tidegate.kube.objects import newest_of
from tidegate.kube.ports import (
    APPROVALS,
    Conflict,
    KubeFailure,
    KubeUnavailable,
    NotFound,
    Object,
    label_of,
    name_of,
    namespace_of,
    uid_of,
)
from tidegate.offset_reset.approval_status import has_taken_effect, said
from tidegate.offset_reset.parts import Parts
from tidegate.offset_reset.reading import status_of
from tidegate.reset.runs.approval_effect import Approval, Candidates, ResetSeen, candidates, effect_of
from tidegate.reset.runs.reasons import WAITING_FOR_QUOTA
from tidegate.resources.approval import OffsetResetApprovalSpec, OffsetResetApprovalStatus
from tidegate.resources.base import InvalidResource, parse_spec, read_status
from tidegate.resources.conditions import COMPLETE, find_condition
from tidegate.resources.offset_reset import OffsetResetStatus
from tidegate.threads import in_thread

_log = logging.getLogger(__name__)

_SHOWN: Final = 3
"""So many approvals without effect are named in the reset's conditions; all of them say it of themselves."""


def approval_of(body: Object) -> Approval:
    """What the resource says. Raises ``InvalidResource``."""
    spec = parse_spec(OffsetResetApprovalSpec, body)
    return Approval(
        name=name_of(body),
        uid=uid_of(body),
        created=datetime.fromisoformat(str(body["metadata"]["creationTimestamp"])),
        reset=spec.reset,
        plan=spec.plan,
        approver=spec.approver,
    )


def named_reset(body: Object) -> tuple[str, str]:
    """The namespace and the name of the reset that an approval is of, whether it can be used or not."""
    return namespace_of(body), str((body.get("spec") or {}).get("reset", ""))


@dataclass(frozen=True, slots=True)
class Chosen:
    """The approval that lets the plan be applied, if there is one, and why others that name this plan do not."""

    approval: Approval | None = None
    no_effect: str = ""


class Approvals:
    """Those that this process knows of by its watch. What counts is read again: one that is deleted counts no more."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    def may_approve(self, reset: Object) -> bool:
        """Whether there is one of the reset, of whatever plan, or was when its status was written."""
        return _was_approved(reset) or any(True for _ in _of(reset, self._parts.approvals()))

    async def chosen(self, reset: Object, plan: str) -> Chosen:
        """Of the plan with this digest."""
        bodies, found = self._candidates(reset, plan, self._parts.approvals())
        if not found.eligible and _was_approved(reset):
            # The watch of a process that has just begun may not have told of it yet, and the plan has its place.
            listed = await in_thread(self._parts.executor, self._parts.kube.list, APPROVALS)
            bodies, found = self._candidates(reset, plan, listed)
        no_effect = ". ".join(found.no_effect[:_SHOWN])
        for approval in found.eligible:
            newest = await newest_of(self._parts.kube, self._parts.executor, APPROVALS, bodies[approval.uid])
            if newest is not None and not newest["metadata"].get("deletionTimestamp"):
                return Chosen(approval, no_effect)
        return Chosen(None, no_effect)

    async def tell_effect(self, reset: Object, status: OffsetResetStatus) -> None:
        """Say of the approval by which the plan was applied that it has taken effect, before the reset may go: once it
        is gone nobody knows. The approval's own passes say it too, but may come later.

        Raises ``KubeUnavailable`` and ``Conflict``, to be tried again; not for a reset that is being deleted, which
        nothing may hold up.
        """
        try:
            await self._tell_effect(reset, status)
        except NotFound:
            return
        except (InvalidResource, KubeFailure) as failure:
            is_passing = isinstance(failure, KubeUnavailable | Conflict)
            if is_passing and not reset["metadata"].get("deletionTimestamp"):
                raise
            _log.warning("%s: its approval could not be told that it has taken effect: %s", label_of(reset), failure)

    async def _tell_effect(self, reset: Object, status: OffsetResetStatus) -> None:
        parts, by = self._parts, status.approval
        if by is None:
            return
        body = await in_thread(parts.executor, parts.kube.get, APPROVALS, namespace_of(reset), by.name)
        if uid_of(body) != by.uid or body["metadata"].get("deletionTimestamp") or has_taken_effect(body):
            return
        stands = effect_of(approval_of(body), ResetSeen(None, status), separate=parts.separate_approver)
        before, generation = read_status(OffsetResetApprovalStatus, body), int(body["metadata"]["generation"])
        now = said(before, stands, generation, parts.clock.now())
        await in_thread(parts.executor, parts.kube.replace_status, APPROVALS, body, now.to_json())
        parts.metrics.wrote_status(APPROVALS.kind)

    def _candidates(
        self, reset: Object, plan: str, bodies: Iterable[Object]
    ) -> tuple[Mapping[str, Object], Candidates]:
        of_reset = {uid_of(body): body for body in _of(reset, bodies)}
        requester, separate = status_of(reset).requester, self._parts.separate_approver
        return of_reset, candidates(_readable(of_reset.values()), plan, requester, separate=separate)


def _was_approved(reset: Object) -> bool:
    """Whether its status says that its plan is approved, and in line."""
    said = find_condition(status_of(reset).conditions, COMPLETE)
    return said is not None and said.reason == WAITING_FOR_QUOTA


def _of(reset: Object, bodies: Iterable[Object]) -> Iterator[Object]:
    wanted = (namespace_of(reset), name_of(reset))
    return (body for body in bodies if named_reset(body) == wanted and not body["metadata"].get("deletionTimestamp"))


def _readable(bodies: Iterable[Object]) -> Iterator[Approval]:
    for body in bodies:
        try:
            yield approval_of(body)
        except InvalidResource:
            continue  # its own status says so
