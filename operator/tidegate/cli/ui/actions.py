"""What the page asks the API server for, each as the command of the same name does it, in the caller's own name."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from tidegate.cli.acting import created
from tidegate.cli.approving import create as create_approval
from tidegate.cli.approving import effect
from tidegate.cli.asking import in_own_name
from tidegate.cli.errors import CommandFailed
from tidegate.cli.fleet_review import fleet_review
from tidegate.cli.plan_page import body as plan_body
from tidegate.cli.planning import stored_run
from tidegate.cli.review import review
from tidegate.cli.undoing import undo_of
from tidegate.clock import Clock
from tidegate.kube.ports import RESETS, Kind, Kube, KubeFailure, NotFound, Object, name_of
from tidegate.printable import visible
from tidegate.reset.store import Run
from tidegate.resources.conditions import ConditionStatus


class Client(Kube, Protocol):
    """The API server as a person asks it (``tidegate.kube.client.KubeClient``)."""

    def own_name(self) -> str: ...

    def create(self, kind: Kind, body: Object, *, dry_run: bool = False) -> Object: ...


class Runs(Protocol):
    def run(self, namespace: str, reset: Object, group_id: str | None) -> Run:
        """Raises what ``tidegate.cli.planning.stored_run`` raises."""
        ...


class StoredRuns:
    """Implements ``Runs`` by the ConfigMaps. ``api_client``: a ``kubernetes.client.ApiClient``."""

    def __init__(self, api_client: Any) -> None:
        self._api_client = api_client

    def run(self, namespace: str, reset: Object, group_id: str | None) -> Run:
        return stored_run(self._api_client, namespace, reset, group_id)


@dataclass(frozen=True, slots=True)
class Done:
    """``name``: of what was created. ``holds``: whether it has taken effect; ``None``: that is not known yet."""

    name: str
    holds: bool | None
    message: str

    def as_json(self) -> Mapping[str, Any]:
        return {"name": visible(self.name), "holds": self.holds, "message": visible(self.message)}


_PATIENCE_S = 8.0


def approve(kube: Client, clock: Clock, namespace: str, reset: str, plan: str, context: str | None = None) -> Done:
    """An ``OffsetResetApproval`` of the plan with this digest. ``context``: of the kubeconfig, where one was given.
    Raises ``CommandFailed``, ``InvalidResource``,
    ``KubeFailure``."""
    spec = {"reset": reset, "plan": plan, "approver": kube.own_name()}
    made = create_approval(kube, namespace, spec, context)
    try:
        said = effect(kube, made, clock, _PATIENCE_S)
    except KubeFailure as failure:
        # Whoever may create one and not read it: it is there all the same, and not to be created once more.
        return Done(name_of(made), None, f"The approval was created. Whether it is effective can't be seen: {failure}")
    if said is None:
        return Done(name_of(made), None, "The operator has not reported yet whether the approval is effective")
    holds = {ConditionStatus.TRUE: True, ConditionStatus.FALSE: False}.get(said.status)
    return Done(name_of(made), holds, f"{said.reason}: {said.message}")


def undo(kube: Client, namespace: str, reset: str, uid: str, *, manual: bool, context: str | None = None) -> Done:
    """An ``OffsetReset`` that undoes this one. ``uid``: of the one that was shown, since a name can be given again.
    ``manual``: its plan waits for an approval. ``context``: of the kubeconfig, where one was given. Raises
    ``CommandFailed``, ``KubeFailure``."""
    options = argparse.Namespace(
        namespace=namespace, context=context, reset=reset, name=None, group=None, connection=None, manual=manual
    )
    try:
        undone = kube.get(RESETS, namespace, reset)
    except NotFound:
        raise CommandFailed(f"there is no OffsetReset {reset} in namespace {namespace}") from None
    if undone["metadata"]["uid"] != uid:
        raise CommandFailed(f"OffsetReset {reset} is not the one that was shown, which has been deleted")
    asked = in_own_name(undo_of(options, undone), kube.own_name)
    made = created(kube, RESETS, asked, context=context)
    return Done(name_of(made), None, "The operator carries it out" if not manual else "Its plan waits for an approval")


def plan_html(namespace: str, run: Run, now: datetime, context: str | None = None) -> str:
    """The plan with its evidence, as the page of ``tidegate plan --html`` has it. ``context``: of the kubeconfig, where
    one was given. Raises ``CommandFailed``."""
    if not run.is_planned:
        raise CommandFailed(f"run {run.request.run_id} has no plan yet")
    shown = (review if run.fleet is None else fleet_review)(namespace, run.request.run_id, run, now, context)
    return "\n".join(plan_body(shown))
