"""``tidegate plan``: what an ``OffsetReset`` would replay and skip, for whoever is to approve it."""

from __future__ import annotations

import argparse
import contextlib
import io
import json
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from tidegate.cli.errors import CommandFailed, Parser
from tidegate.cli.fleet_review import FleetReview, fleet_review
from tidegate.cli.plan_page import page
from tidegate.cli.plan_screen import show
from tidegate.cli.reaching import add_kubernetes, with_namespace
from tidegate.cli.review import Review, review
from tidegate.cli.screen import Screen
from tidegate.clock import SystemClock
from tidegate.kube.api import NoCluster, default_api_client
from tidegate.kube.client import KubeClient
from tidegate.kube.ports import POLICIES, RESETS, KubeFailure, NotFound, Object, name_of, uid_of
from tidegate.printable import visible
from tidegate.reset.binding import Binding, Check, EndBinding, OperatorBinding
from tidegate.reset.codec import encode_evidence, encode_fleet_plan, encode_plan, encode_result
from tidegate.reset.config_map_store import ConfigMapRunStore
from tidegate.reset.confined import ConfinedRunStore, Confines
from tidegate.reset.document import StoreFailure
from tidegate.reset.runs.fleet import group_document, group_run_uid
from tidegate.reset.runs.progress import phase_of
from tidegate.reset.runs.request import run_name, run_uid
from tidegate.reset.runs.waves import waves_of
from tidegate.reset.store import ForeignRun, ForgedRun, Run, RunNotFound
from tidegate.resources.base import read_status
from tidegate.resources.conditions import COMPLETE, find_condition
from tidegate.resources.offset_reset import OffsetResetStatus
from tidegate.resources.policy import PolicyStatus
from tidegate.resources.reset import has_ended

_PATIENCE_S: Final = 10.0


def plan_parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="tidegate plan",
        description="Show what an OffsetReset would read again and skip.",
        allow_abbrev=False,
    )
    parser.add_argument("name", help="the name of an OffsetReset, or of an OffsetResetPolicy to show its newest reset")
    add_kubernetes(parser, of="of the resource")
    parser.add_argument("--run", metavar="ID", help="for a policy: the reset with this id")
    parser.add_argument("--group", metavar="GROUP", help="for a fleet: the plan of this one group")
    parser.add_argument("--html", type=Path, metavar="FILE", help="write a self-contained HTML page instead of text")
    parser.add_output()
    return parser


def run_plan(arguments: Sequence[str], screen: Screen) -> int:
    """0, or 1 where there is no plan to show. Raises ``UsageError``."""
    options = with_namespace(plan_parser().parse_args(list(arguments)))
    clock = SystemClock()
    try:
        run = stored(options)
        if not run.is_planned:
            raise CommandFailed(_no_plan(run))
        _write(options, run, clock.now(), screen)
    except (CommandFailed, KubeFailure, NoCluster, StoreFailure, RunNotFound, ForeignRun, ForgedRun) as failure:
        screen.note(f"tidegate plan: {visible(str(failure))}")
        return 1
    return 0


def _write(options: argparse.Namespace, run: Run, now: datetime, screen: Screen) -> None:
    if options.output == "json":
        screen.show(json.dumps(as_json(options.namespace, run), indent=2) + "\n")
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
    return (review if run.fleet is None else fleet_review)(
        options.namespace, run.request.run_id, run, now, options.context
    )


def as_json(namespace: str, run: Run) -> dict[str, Any]:
    """The stored plan with its evidence, as it is; ``json.dumps`` makes ASCII of it, which drives no terminal."""
    head = {
        "offsetReset": {"namespace": namespace, "name": run.request.run_id},
        "run": run.request.run_id,
        "digest": run.digest,
        "phase": str(run.result.phase if run.result is not None else phase_of(run)),
        "result": None if run.result is None else json.loads(encode_result(run.result)),
    }
    if run.fleet is not None:
        asked = run.request.fleet
        waves = asked.waves if asked is not None else None
        order = None if waves is None else [[*groups] for groups in waves_of(waves, run.fleet.planned)]
        return {**head, "fleet": json.loads(encode_fleet_plan(run.fleet)), "waves": order}
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
    return f"run {run_id} has no plan yet: the plan is being made"


def stored(options: argparse.Namespace) -> Run:
    """Raises what the command says."""
    client, namespace = default_api_client(options.context), options.namespace
    reset = _found(KubeClient(client, SystemClock(), [namespace]), namespace, options.name, options.run)
    return stored_run(client, namespace, reset, options.group)


def stored_run(client: Any, namespace: str, reset: Object, group_id: str | None = None) -> Run:
    """The run of an OffsetReset, as its status binds it. ``group_id``: of a fleet, the run of this one group.

    Raises ``CommandFailed``, ``KubeFailure``, ``StoreFailure``, ``ForeignRun`` and ``ForgedRun``.
    """
    spec, name = reset.get("spec") or {}, name_of(reset)
    uid, document = run_uid(uid_of(reset), name), run_name(name, uid_of(reset))
    patterns = tuple(map(str, spec["groups"])) if spec.get("groups") else None
    confines = Confines(uid, str(spec.get("group", "")), patterns=patterns)

    def load(document: str, confines: Confines, check: Check, missing: str) -> Run:
        store = ConfigMapRunStore(namespace, document, api_client=client, patience_s=_PATIENCE_S)
        try:
            return ConfinedRunStore(store, confines, check).load()
        except RunNotFound:
            raise CommandFailed(missing) from None

    missing = f"OffsetReset {name} has not begun, or its plan is no longer stored"
    if group_id is not None and patterns is None:
        raise CommandFailed(f"--group: OffsetReset {name} is for one group, not for a fleet: leave --group out")
    run = load(document, confines, _binding(reset), missing)
    if group_id is None:
        return run
    if run.fleet is None:
        raise CommandFailed(_no_plan(run))
    uid, missing = group_run_uid(uid, group_id), f"OffsetReset {name} has no group {group_id}"
    digest = run.fleet.digests.get(group_id)
    if digest is None:
        raise CommandFailed(missing)
    return load(group_document(document, uid), confines.of_group(uid, group_id), Binding(digest), missing)


def _found(kube: KubeClient, namespace: str, name: str, reset_id: str | None) -> Object:
    """The OffsetReset of this name, or that of the policy of this name."""
    if reset_id is None:
        with contextlib.suppress(NotFound):
            return kube.get(RESETS, namespace, name)
    try:
        policy = kube.get(POLICIES, namespace, name)
    except NotFound:
        what = "OffsetResetPolicy" if reset_id is not None else "OffsetReset or OffsetResetPolicy"
        raise CommandFailed(
            f"there is no {what} {name} in namespace {namespace}: check the name, or give another --namespace"
        ) from None
    newest = read_status(PolicyStatus, policy).reset
    wanted = f"{name}-{reset_id}" if reset_id is not None else newest.name if newest is not None else None
    if wanted is None:
        raise CommandFailed(
            f"OffsetResetPolicy {name} has no OffsetReset: give the name of one that kubectl get offsetresets lists"
        )
    try:
        return kube.get(RESETS, namespace, wanted)
    except NotFound:
        raise CommandFailed(
            f"OffsetResetPolicy {name} has no OffsetReset {wanted} in namespace {namespace}: it has not "
            "been created yet, or was deleted"
        ) from None


def _binding(reset: Object) -> Check:
    """To the run as the operator knows it: what is shown here is what an approval would approve."""
    status = read_status(OffsetResetStatus, reset)
    if status.result_digest is not None:
        return EndBinding(status.result_digest)
    if status.digest is not None and not has_ended(status.phase):
        return OperatorBinding(status.digest, status.approved_digest or "")
    said = find_condition(status.conditions, COMPLETE)
    if has_ended(status.phase) and said is not None:
        raise CommandFailed(f"OffsetReset {name_of(reset)} ended as {status.phase}, with no result: {said.message}")
    raise CommandFailed(
        f"OffsetReset {name_of(reset)} has not begun, or its status lacks the digest of its run, "
        "which is needed to check the contents of its ConfigMap"
    )
