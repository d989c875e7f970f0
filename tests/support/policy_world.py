"""A policy and the OffsetResets that it creates, on a fake cluster, with an operator that may die and come back."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Any

from support.reset_world import CREATED, World, policy_parts
from tidegate.kube.loop import Reconciler
from tidegate.kube.ports import POLICIES, RESETS, Conflict, Object, name_of, namespace_of
from tidegate.offset_reset.parts import Parts
from tidegate.offset_reset.passes import ResetPasses
from tidegate.offset_reset.reconcile import OffsetResetReconciler
from tidegate.policy.feature import Feature, GroupFeature
from tidegate.policy.keeping import Features
from tidegate.policy.reconcile import PolicyReconciler

SPEC = {"connectionRef": {"name": "kafka"}, "group": "payments"}


class PolicyWorld(World):
    """The policy ``p`` of an Empty group that stands at 50 of 100."""

    def __init__(self, folder: Path) -> None:
        self.features: tuple[Feature, ...] = ()
        self.group_features: tuple[GroupFeature, ...] = ()
        super().__init__(folder)
        self.kafka.control.ensure()

    def reconciler_of(self, parts: Parts) -> Reconciler:
        passes = ResetPasses(parts)
        self.policies = PolicyReconciler(policy_parts(parts), passes, Features(self.features, self.group_features))
        return OffsetResetReconciler(passes, parts)

    def declare(self, reset_id: str | None = "one", name: str = "p", **reset: Any) -> None:
        """Apply the policy, with this reset in it or with none."""
        asked = {} if reset_id is None else {"reset": {"id": reset_id, "to": {"offset": 10}, **reset}}
        spec = {**SPEC, **asked}
        if any(name_of(body) == name for body in self.kube.list(POLICIES)):
            self.kube.change(POLICIES, "ns", name, spec=spec)
        else:
            self.kube.create(POLICIES, "ns", name, spec, CREATED)

    def rounds(self, number: int = 20) -> None:
        """So many passes over everything there is, as the events of a watch would bring them about."""
        for _ in range(number):
            for kind, reconciler in ((POLICIES, self.policies), (RESETS, self.reconciler)):
                for body in self.kube.list(kind):
                    self._look(reconciler, body)
            self.clock.sleep(1)

    def _look(self, reconciler: Reconciler, body: Object) -> None:
        with contextlib.suppress(Conflict):
            asyncio.run(reconciler.reconcile(body))

    @property
    def policy(self) -> dict[str, Any]:
        """The policy's status."""
        found: dict[str, Any] = self.kube.get(POLICIES, "ns", "p")["status"]
        return found

    def said(self, condition: str) -> tuple[str, str] | None:
        """(status, reason) of the policy's condition."""
        for found in self.policy["conditions"]:
            if found["type"] == condition:
                return found["status"], found["reason"]
        return None

    def message(self, condition: str) -> str:
        return next(str(c["message"]) for c in self.policy["conditions"] if c["type"] == condition)

    @property
    def resets(self) -> dict[str, str | None]:
        """The OffsetResets there are, with their phases."""
        return {name_of(body): (body.get("status") or {}).get("phase") for body in self.kube.list(RESETS)}

    def remove(self) -> None:
        """Delete the policy; what it owns goes with it, as Kubernetes' garbage collector sees to."""
        uid = self.kube.get(POLICIES, "ns", "p")["metadata"]["uid"]
        assert self.kube.delete(POLICIES, "ns", "p", CREATED) is None
        for body in self.kube.list(RESETS):
            if any(owner["uid"] == uid for owner in body["metadata"].get("ownerReferences", ())):
                self.kube.delete(RESETS, namespace_of(body), name_of(body), self.clock.now().isoformat())
