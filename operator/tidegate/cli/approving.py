"""``tidegate approve``: creates the ``OffsetResetApproval`` of a plan, and says what has come of it."""

from __future__ import annotations

import argparse
import contextlib
import math
import secrets
from collections.abc import Sequence
from typing import Final

from tidegate.cli.errors import CommandFailed, Parser, UsageError
from tidegate.cli.reaching import add_kubernetes, with_namespace
from tidegate.cli.screen import Screen
from tidegate.clock import Clock, SystemClock
from tidegate.incident.commands import place_of
from tidegate.kube.api import NoCluster, default_api_client
from tidegate.kube.client import KubeClient
from tidegate.kube.ports import (
    APPROVALS,
    RESETS,
    Kube,
    KubeFailure,
    KubeUnavailable,
    NotFound,
    Object,
    name_of,
    namespace_of,
)
from tidegate.printable import visible
from tidegate.resources.approval import OffsetResetApprovalSpec, OffsetResetApprovalStatus
from tidegate.resources.base import InvalidResource, parse_spec, read_status
from tidegate.resources.conditions import EFFECTIVE, Condition, ConditionStatus, find_condition

_LOOK_S: Final = 0.5


def approve_parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="tidegate approve",
        description="Approve the plan of an OffsetReset by creating an OffsetResetApproval in your name.",
        allow_abbrev=False,
    )
    parser.add_argument("name", help="the name of the OffsetReset")
    add_kubernetes(parser, of="of the OffsetReset")
    parser.add_argument(
        "--plan", required=True, metavar="DIGEST", help="the plan's digest, as tidegate plan shows it below the plan"
    )
    parser.add_argument(
        "--wait",
        type=float,
        default=10.0,
        metavar="SECONDS",
        help="how long to wait for the operator to report whether the approval is effective (default: 10)",
    )
    return parser


def run_approve(arguments: Sequence[str], screen: Screen) -> int:
    """0, or 1 where the approval could not be created or has no effect. Raises ``UsageError``."""
    options = with_namespace(approve_parser().parse_args(list(arguments)))
    if math.isnan(options.wait):
        raise UsageError("--wait takes a number of seconds")
    clock = SystemClock()
    try:
        kube = KubeClient(default_api_client(options.context), clock, [options.namespace])
        spec = {"reset": options.name, "plan": options.plan, "approver": kube.own_name()}
        made = create(kube, options.namespace, spec, options.context)
        screen.show(f"offsetresetapproval.tidegate.io/{name_of(made)} created, approver {visible(spec['approver'])}\n")
        said = effect(kube, made, clock, options.wait)
    except (CommandFailed, InvalidResource, KubeFailure, NoCluster) as failure:
        screen.note(f"tidegate approve: {visible(str(failure))}")
        return 1
    if said is None:
        screen.note(
            "The operator has not reported yet whether the approval is effective. To check: kubectl get "
            f"{place_of(options.namespace, options.context)} ora"
        )
        return 0
    screen.note(f"{said.reason}: {visible(said.message)}")
    return 1 if said.status is ConditionStatus.FALSE else 0


def create(kube: Kube, namespace: str, spec: dict[str, str], context: str | None = None) -> Object:
    """The new approval, which goes with its reset.

    ``context``: of the kubeconfig, where one was given. Raises ``CommandFailed``, ``InvalidResource``, ``KubeFailure``.
    """
    parsed = parse_spec(OffsetResetApprovalSpec, {"spec": spec})
    try:
        reset = kube.get(RESETS, namespace, parsed.reset)
    except NotFound:
        raise CommandFailed(f"there is no OffsetReset {parsed.reset} in namespace {namespace}") from None
    # A name that nobody knows beforehand, so that nobody can have taken it.
    name = f"{parsed.reset}-{secrets.token_hex(4)}"
    try:
        return kube.make(APPROVALS, reset, name, spec)
    except KubeUnavailable as failure:
        raise CommandFailed(
            f"{failure}. The approval may have been created anyway, and may have approved the plan. "
            f"To check: kubectl get {place_of(namespace, context)} ora {name}"
        ) from failure


def effect(kube: Kube, made: Object, clock: Clock, patience_s: float) -> Condition | None:
    """The condition ``Effective``, once that is certain, or as it was last seen when the time is over. While the API
    server does not answer it is asked again: the approval is there, whether anybody hears of its effect or not."""
    until, said = clock.monotonic() + patience_s, None
    while True:
        with contextlib.suppress(KubeUnavailable):
            body = kube.get(APPROVALS, namespace_of(made), name_of(made))
            said = find_condition(read_status(OffsetResetApprovalStatus, body).conditions, EFFECTIVE)
        if (said is not None and said.status is not ConditionStatus.UNKNOWN) or clock.monotonic() >= until:
            return said
        clock.sleep(_LOOK_S)
