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
from tidegate.cli.review import FleetReview, Review, fleet_review, review
from tidegate.cli.screen import Screen
from tidegate.clock import SystemClock
from tidegate.kube.api import NoCluster, default_api_client
from tidegate.kube.client import KubeClient
from tidegate.kube.ports import POLICIES, KubeFailure, NotFound, Object, name_of, uid_of
from tidegate.printable import visible
from tidegate.reset.binding import Binding, Check, EndBinding, OperatorBinding
from tidegate.reset.codec import encode_evidence, encode_fleet_plan, encode_plan, encode_result
from tidegate.reset.config_map_store import ConfigMapRunStore
from tidegate.reset.confined import ConfinedRunStore, Confines
from tidegate.reset.document import StoreFailure
from tidegate.reset.runs.fleet import group_document, group_run_uid
from tidegate.reset.runs.progress import phase_of
from tidegate.reset.runs.request import run_name, run_uid
from tidegate.reset.runs.seen import history_of
from tidegate.reset.store import ForeignRun, ForgedRun, Run, RunNotFound
from tidegate.resources.base import read_status
from tidegate.resources.policy import PolicyStatus

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
    parser.add_argument("--group", metavar="GROUP", help="of a fleet: the plan of this one group")
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
        run = _stored(options.namespace, options.policy, options.run, options.group)
        if not run.is_planned:
            raise CommandFailed(_no_plan(run))
        _write(options, run, clock.now(), screen)
    except (CommandFailed, KubeFailure, NoCluster, StoreFailure, RunNotFound, ForeignRun, ForgedRun) as failure:
        screen.note(f"tidegate plan: {visible(str(failure))}")
        return 1
    return 0


def _write(options: argparse.Namespace, run: Run, now: datetime, screen: Screen) -> None:
    if options.output == "json":
        screen.show(json.dumps(as_json(options.namespace, options.policy, run), indent=2) + "\n")
    if options.html is not None:
        try:
            options.html.write_text(page(_reviewed(options, run, now)), encoding="utf-8")
        except OSError as error:
            raise CommandFailed(f"can't write {options.html}: {error.strerror}") from error
        screen.note(f"written: {options.html}")
    elif options.output == "text":
        if isinstance(screen.out, io.TextIOWrapper):
            screen.out.reconfigure(errors="backslashreplace")  # a terminal without UTF-8
        show(_reviewed(options, run, now), screen.out)


def _reviewed(options: argparse.Namespace, run: Run, now: datetime) -> Review | FleetReview:
    return (review if run.fleet is None else fleet_review)(options.namespace, options.policy, run, now)


def as_json(namespace: str, policy: str, run: Run) -> dict[str, Any]:
    """The stored plan with its evidence, as it is; ``json.dumps`` makes ASCII of it, which drives no terminal."""
    head = {
        "policy": {"namespace": namespace, "name": policy},
        "run": run.request.run_id,
        "digest": run.digest,
        "phase": str(run.result.phase if run.result is not None else phase_of(run)),
        "result": None if run.result is None else json.loads(encode_result(run.result)),
    }
    if run.fleet is not None:
        return {**head, "fleet": json.loads(encode_fleet_plan(run.fleet))}
    if run.plan is None:
        raise ValueError(f"run {run.request.run_id} has no plan")
    return {
        **head,
        "group": run.request.group_id,
        "plan": json.loads(encode_plan(run.plan)),
        "evidence": None if run.evidence is None else json.loads(encode_evidence(run.evidence)),
    }


def _no_plan(run: Run) -> str:
    run_id = run.request.run_id
    if run.result is not None:
        return f"run {run_id} ended without a plan: {run.result.message}"
    return f"run {run_id} has no plan yet: it is being made"


def _stored(namespace: str, name: str, run_id: str | None, group_id: str | None) -> Run:
    """Raises what the command says."""
    client = default_api_client()
    try:
        policy = KubeClient(client, SystemClock(), [namespace]).get(POLICIES, namespace, name)
    except NotFound:
        raise CommandFailed(f"there is no OffsetResetPolicy {name} in namespace {namespace}") from None
    wanted = run_id or _current(policy)
    if wanted is None:
        raise CommandFailed(f"OffsetResetPolicy {name} asks for no reset: name one of status.history by --run")
    spec = policy.get("spec") or {}
    uid, document = run_uid(uid_of(policy), wanted), run_name(name, uid_of(policy), wanted)
    patterns = tuple(map(str, spec["groups"])) if spec.get("groups") else None
    confines = Confines(uid, str(spec.get("group", "")), patterns=patterns)

    def load(document: str, confines: Confines, check: Check, missing: str) -> Run:
        store = ConfigMapRunStore(namespace, document, api_client=client, patience_s=_PATIENCE_S)
        try:
            return ConfinedRunStore(store, confines, check).load()
        except RunNotFound:
            raise CommandFailed(missing) from None

    missing = f"run {wanted} of OffsetResetPolicy {name} has not begun, or is no longer stored"
    if group_id is not None and patterns is None:
        raise CommandFailed(f"--group: OffsetResetPolicy {name} is of one group, and not of a fleet")
    run = load(document, confines, _binding(policy, wanted), missing)
    if group_id is None:
        return run
    if run.fleet is None:
        raise CommandFailed(_no_plan(run))
    uid, missing = group_run_uid(uid, group_id), f"run {wanted} of OffsetResetPolicy {name} has no group {group_id}"
    digest = run.fleet.digests.get(group_id)
    if digest is None:
        raise CommandFailed(missing)
    return load(group_document(document, uid), confines.of_group(uid, group_id), Binding(digest), missing)


def _binding(policy: Object, run_id: str) -> Check:
    """To the run as the operator knows it: what is shown here is what an approval would approve."""
    status = read_status(PolicyStatus, policy)
    current, ended = status.reset, history_of(status, run_id)
    if current is not None and current.id == run_id and current.digest is not None:
        return OperatorBinding(current.digest, current.approved_digest or "")
    if ended is not None and ended.digest is not None:
        return EndBinding(ended.digest)
    raise CommandFailed(
        f"run {run_id} has not begun, or the status of OffsetResetPolicy {name_of(policy)} keeps no digest of it: what "
        "its ConfigMap says could not be checked"
    )


def _current(policy: Object) -> str | None:
    """The run that is asked for, or else the last one."""
    asked = ((policy.get("spec") or {}).get("reset") or {}).get("id")
    last = ((policy.get("status") or {}).get("reset") or {}).get("id")
    found = asked or last
    return None if found is None else str(found)
