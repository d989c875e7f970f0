"""``tidegate plan``: what a policy's reset would replay and skip, for whoever is to approve it."""

from __future__ import annotations

import argparse
import io
import json
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from tidegate.cli.errors import CommandFailed, Parser
from tidegate.cli.plan_page import page
from tidegate.cli.plan_screen import show
from tidegate.cli.review import review
from tidegate.cli.screen import Screen
from tidegate.kube.client import KubeClient
from tidegate.kube.ports import POLICIES, KubeFailure, NotFound, Object, uid_of
from tidegate.reset.clock import SystemClock
from tidegate.reset.confined import Confines, confined
from tidegate.reset.request import run_name, run_uid
from tidegate.reset.run import phase_of
from tidegate.reset.store import ForeignRun, Run, RunNotFound
from tidegate.reset.stores import (
    ConfigMapRunStore,
    StoreFailure,
    default_api_client,
    encode_evidence,
    encode_plan,
    encode_result,
)
from tidegate.visible import visible

_PATIENCE_S: Final = 10.0


def plan_parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="tidegate plan",
        description="Show what an OffsetResetPolicy's reset would read again and skip.",
        allow_abbrev=False,
    )
    parser.add_argument("policy", help="the policy's name")
    parser.add_argument("--namespace", "-n", default="default", help="its namespace (default: default)")
    parser.add_argument("--run", metavar="ID", help="an earlier run, by its id (default: the one asked for now)")
    parser.add_argument("--html", type=Path, metavar="FILE", help="write a self-contained page instead")
    parser.add_argument(
        "--output", "-o", choices=("text", "json"), default="text", help="for a person (default), or for programs"
    )
    return parser


def run_plan(arguments: Sequence[str], screen: Screen) -> int:
    """0, or 1 where there is no plan to show. Raises ``UsageError``."""
    options = plan_parser().parse_args(list(arguments))
    clock = SystemClock()
    try:
        run = _stored(options.namespace, options.policy, options.run)
        if run.plan is None:
            raise CommandFailed(_no_plan(run))
        _write(options, run, clock.now(), screen)
    except (CommandFailed, KubeFailure, StoreFailure, RunNotFound, ForeignRun) as failure:
        screen.note(f"tidegate plan: {visible(str(failure))}")
        return 1
    return 0


def _write(options: argparse.Namespace, run: Run, now: datetime, screen: Screen) -> None:
    if options.output == "json":
        screen.show(json.dumps(as_json(options.namespace, options.policy, run), indent=2) + "\n")
    if options.html is not None:
        try:
            options.html.write_text(page(review(options.namespace, options.policy, run, now)), encoding="utf-8")
        except OSError as error:
            raise CommandFailed(f"can't write {options.html}: {error.strerror}") from error
        screen.note(f"written: {options.html}")
    elif options.output == "text":
        if isinstance(screen.out, io.TextIOWrapper):
            screen.out.reconfigure(errors="backslashreplace")  # a terminal without UTF-8
        show(review(options.namespace, options.policy, run, now), screen.out)


def as_json(namespace: str, policy: str, run: Run) -> dict[str, Any]:
    """The stored plan with its evidence, as it is; ``json.dumps`` makes ASCII of it, which drives no terminal."""
    if run.plan is None:
        raise ValueError(f"run {run.request.run_id} has no plan")
    return {
        "policy": {"namespace": namespace, "name": policy},
        "run": run.request.run_id,
        "group": run.request.group_id,
        "phase": str(run.result.phase if run.result is not None else phase_of(run)),
        "plan": json.loads(encode_plan(run.plan)),
        "evidence": None if run.evidence is None else json.loads(encode_evidence(run.evidence)),
        "result": None if run.result is None else json.loads(encode_result(run.result)),
    }


def _no_plan(run: Run) -> str:
    run_id = run.request.run_id
    if run.result is not None:
        return f"run {run_id} ended without a plan: {run.result.message}"
    return f"run {run_id} has no plan yet: it is being made"


def _stored(namespace: str, name: str, run_id: str | None) -> Run:
    """Raises what the command says."""
    client = default_api_client()
    try:
        policy = KubeClient(client, SystemClock(), [namespace]).get(POLICIES, namespace, name)
    except NotFound:
        raise CommandFailed(f"there is no OffsetResetPolicy {name} in namespace {namespace}") from None
    wanted = run_id or _current(policy)
    if wanted is None:
        raise CommandFailed(f"OffsetResetPolicy {name} asks for no reset: name one of status.history by --run")
    store = ConfigMapRunStore(
        namespace, run_name(name, uid_of(policy), wanted), api_client=client, patience_s=_PATIENCE_S
    )
    try:
        run = store.load()
    except RunNotFound:
        raise CommandFailed(f"run {wanted} of OffsetResetPolicy {name} has not begun, or is no longer stored") from None
    group = str((policy.get("spec") or {}).get("group", ""))
    return confined(run, Confines(run_uid(uid_of(policy), wanted), group), store.location)


def _current(policy: Object) -> str | None:
    """The run that is asked for, or else the last one."""
    asked = ((policy.get("spec") or {}).get("reset") or {}).get("id")
    last = ((policy.get("status") or {}).get("reset") or {}).get("id")
    found = asked or last
    return None if found is None else str(found)
