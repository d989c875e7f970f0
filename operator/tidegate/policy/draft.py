"""A policy's status in the making: what one pass has to say, step by step."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, TypedDict

from tidegate.kube.ports import EventType, KubeEvent
from tidegate.resources.conditions import (
    BACKED_UP,
    FROZEN,
    INJECTED,
    OBSERVING,
    OVERRIDDEN,
    READY,
    RECONCILING,
    RECORD_STUCK,
    RESET,
    RETAINED,
    STALLED,
    Condition,
    Conditions,
    ConditionStatus,
    Refusal,
    is_true,
    ready,
    reconciling,
    stalled,
    with_condition,
    without_condition,
)
from tidegate.resources.policy import PolicyStatus
from tidegate.resources.reset import RequestedReset

_SUMMARY: Final = (READY, RECONCILING, STALLED)
_OF_FEATURES: Final = (RETAINED, RECORD_STUCK, INJECTED)


class _Stamp(TypedDict):
    generation: int
    now: datetime


@dataclass(slots=True)
class Draft:
    """``again_after_s``: when to look again, by the shortest wish; watches tell of what nobody wishes to look for.
    ``told``: the keys of Events that are recorded. ``is_left_alone``: a newer version has written what the policy
    remembers."""

    status: PolicyStatus
    generation: int
    now: datetime
    happenings: list[KubeEvent] = field(default_factory=list)
    again_after_s: float = 300.0
    told: Container[str] = ()
    is_left_alone: bool = False
    _before: Conditions = ()

    def begin(self) -> None:
        """It is about this generation; and what policies of an earlier version did, nobody keeps true any more."""
        self.status = self.status.model_copy(update={"observed_generation": self.generation})
        self._set(without_condition(self.status.conditions, BACKED_UP))
        self._before = self.status.conditions

    def moving(self, reason: str, message: str) -> None:
        self._set(reconciling(self.status.conditions, reason=reason, message=message, **self._stamp()))

    def stuck(self, reason: str, message: str) -> None:
        self._set(stalled(self.status.conditions, reason=reason, message=message, **self._stamp()))

    def stuck_after_all(self, reason: str, message: str) -> None:
        """The same, whatever was said in this pass."""
        self._unsay()
        self.stuck(reason, message)

    def not_ready_after_all(self, reason: str, message: str) -> None:
        """Something has still to come, where only that it is well was said in this pass."""
        if is_true(self.status.conditions, READY):
            self._unsay()
            self.moving(reason, message)

    def was_moving(self, reason: str) -> bool:
        """Whether that was so before this pass, for this reason."""
        return any(
            c.type == RECONCILING and c.status is ConditionStatus.TRUE and c.reason == reason for c in self._before
        )

    def _unsay(self) -> None:
        """What was so before the pass has not changed in between."""
        said = {c.type: c for c in self.status.conditions if c.type not in _SUMMARY}
        said |= {c.type: c for c in self._before if c.type in _SUMMARY}
        order = dict.fromkeys([*(c.type for c in self._before), *said])
        self._set(tuple(said[each] for each in order if each in said))

    def well(self, reason: str, message: str) -> None:
        self._set(ready(self.status.conditions, reason=reason, message=message, **self._stamp()))

    def reset_is(self, value: ConditionStatus | bool | None, reason: str, message: str) -> None:
        self._set(with_condition(self.status.conditions, RESET, value, reason=reason, message=message, **self._stamp()))

    def observing_is(self, message: str | None) -> None:
        """Why nothing is kept for the policy; ``None``: it is."""
        if message is None:
            self._set(without_condition(self.status.conditions, OBSERVING))
        else:
            told = with_condition(
                self.status.conditions, OBSERVING, True, reason=OBSERVING, message=message, **self._stamp()
            )
            self._set(told)

    def frozen_is(self, why: Refusal | None) -> None:
        """Why nothing new is begun for the policy; ``None``: it is."""
        if why is None:
            self._set(without_condition(self.status.conditions, FROZEN))
            return
        self._set(
            with_condition(
                self.status.conditions, FROZEN, True, reason=why.reason, message=why.message, **self._stamp()
            )
        )

    def overridden_is(self, reason: str, message: str) -> None:
        """``message``: which policies hold instead of this one; empty: none does."""
        if message:
            yes = ConditionStatus.TRUE
            told = with_condition(
                self.status.conditions, OVERRIDDEN, yes, reason=reason, message=message, **self._stamp()
            )
            self._set(told)
        else:
            self._set(without_condition(self.status.conditions, OVERRIDDEN))

    def keeps_nothing(self, reason: str, message: str) -> None:
        """What the features said last is not looked at any more."""
        for one in self.status.conditions:
            if one.type in _OF_FEATURES:
                status = ConditionStatus.UNKNOWN
                told = with_condition(
                    self.status.conditions, one.type, status, reason=reason, message=message, **self._stamp()
                )
                self._set(told)

    def show(self, reset: RequestedReset | None) -> None:
        self.status = self.status.model_copy(update={"reset": reset})
        if reset is None:
            self._set(without_condition(self.status.conditions, RESET))

    def tell(self, kind: EventType, reason: str, message: str, key: str) -> None:
        self.happenings.append(KubeEvent(kind, reason, message, key))

    def look_in(self, seconds: float) -> None:
        self.again_after_s = min(self.again_after_s, seconds)

    def _set(self, conditions: tuple[Condition, ...]) -> None:
        self.status = self.status.model_copy(update={"conditions": conditions})

    def _stamp(self) -> _Stamp:
        return _Stamp(generation=self.generation, now=self.now)
