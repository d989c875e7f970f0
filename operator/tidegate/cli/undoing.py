"""``tidegate undo``: an ``OffsetReset`` that undoes another one; ``tidegate cancel``: ends one that has not ended."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from tidegate.cli.acting import add_making, add_waiting, carried_out, delete, found, timeout_of
from tidegate.cli.errors import CommandFailed, Parser, UsageError
from tidegate.cli.reaching import add_kubernetes, connection_ref, namespace_of_options
from tidegate.cli.screen import Screen
from tidegate.incident.seen import UNREADABLE
from tidegate.printable import visible

if TYPE_CHECKING:
    from tidegate.kube.client import KubeClient
    from tidegate.kube.ports import Object


def undo_parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="tidegate undo",
        description="Undo an OffsetReset by creating another one, which again commits the offsets from just before "
        "the first one.",
        allow_abbrev=False,
    )
    parser.add_argument("reset", metavar="NAME", help="the name of the OffsetReset to undo")
    parser.add_argument(
        "--name", metavar="NAME", help="the name of the new OffsetReset (default: one that the API server chooses)"
    )
    parser.add_argument(
        "--group", metavar="GROUP", help="the group of the OffsetReset to undo, if that was deleted; needs --connection"
    )
    parser.add_argument(
        "--connection",
        "-c",
        metavar="[NAMESPACE/]NAME",
        help="the KafkaConnection of the OffsetReset to undo, if that was deleted; needs --group",
    )
    parser.add_argument(
        "--manual", action="store_true", help="request the undo in your name, and let its plan wait for an approval"
    )
    add_kubernetes(parser, of="of the OffsetReset")
    add_making(parser)
    add_waiting(parser, "15m")
    return parser


def run_undo(arguments: Sequence[str], screen: Screen) -> int:
    """0 once it has succeeded, or was only to be created or printed; 1 otherwise. Raises ``UsageError``."""
    options = undo_parser().parse_args(list(arguments))
    if (options.group is None) != (options.connection is None):
        raise UsageError("--group and --connection need each other: give both, or neither")
    timeout_s = timeout_of(options)

    def act(kube: KubeClient) -> bool:
        from tidegate.cli.asking import made_and_followed
        from tidegate.kube.ports import RESETS

        undone = None if options.group is not None else found(kube, RESETS, options, options.reset)
        return made_and_followed(kube, undo_of(options, undone), options, timeout_s, screen)

    return carried_out("tidegate undo", options, act, screen)


def undo_of(options: argparse.Namespace, undone: Object | None) -> dict[str, Any]:
    """The ``OffsetReset`` that undoes this one, or the one that is not there any more. Raises ``CommandFailed``."""
    from tidegate.kube.ports import RESETS
    from tidegate.resources.base import InvalidResource, parse_spec
    from tidegate.resources.offset_reset import OffsetResetSpec, parse_offset_reset

    namespace = namespace_of_options(options)
    if undone is not None:
        spec = undone.get("spec") or {}
        of = {name: spec[name] for name in ("connectionRef", "group", "groups") if name in spec}
    else:
        of = {"connectionRef": connection_ref(options.connection), "group": options.group}
    asked = {
        "apiVersion": RESETS.api_version,
        "kind": RESETS.kind,
        "metadata": {
            "namespace": namespace,
            **({"name": options.name} if options.name is not None else {"generateName": "undo-"}),
        },
        "spec": {**of, "to": {"undo": options.reset}, **({"approval": "Manual"} if options.manual else {})},
    }
    try:
        if options.name is None:
            parse_spec(OffsetResetSpec, asked)
        else:
            parse_offset_reset(asked)
    except InvalidResource as invalid:
        raise CommandFailed(str(invalid)) from invalid
    return asked


# --- cancel -----------------------------------------------------------------------------------------------------------


def cancel_parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="tidegate cancel",
        description="Delete an OffsetReset that has not ended. What it has changed is rolled back first.",
        allow_abbrev=False,
    )
    parser.add_argument("name", metavar="NAME", help="the name of the OffsetReset")
    add_kubernetes(parser, of="of the OffsetReset")
    add_waiting(parser, "5m")
    return parser


def run_cancel(arguments: Sequence[str], screen: Screen) -> int:
    """0 once it is gone, or its deletion was only to be asked for; 1 otherwise, also where it had succeeded before, or
    was not rolled back. Raises ``UsageError``."""
    options = cancel_parser().parse_args(list(arguments))
    timeout_s = timeout_of(options)

    def act(kube: KubeClient) -> bool:
        from tidegate.cli.following import follow_deletion, reset_step
        from tidegate.clock import SystemClock
        from tidegate.kube.ports import RESETS

        body = found(kube, RESETS, options, options.name)
        check = partial(cancellable, context=options.context)
        asker = check(body)
        if asker:
            screen.note(
                f"OffsetResetPolicy {asker} has asked for this reset. Remove spec.reset there, or give it "
                "another id: otherwise the policy creates the reset again, unless the reset has begun"
            )
        delete(kube, RESETS, body, check)
        if options.no_wait:
            screen.show(f"offsetreset.tidegate.io/{options.name} is being deleted\n")
            return True
        last = follow_deletion(kube, RESETS, body, reset_step, SystemClock(), timeout_s, screen)
        screen.show(f"offsetreset.tidegate.io/{options.name} deleted\n")
        if last is not None and last.done:
            raise CommandFailed(
                f"the reset succeeded before it could be rolled back, so its targets stay committed"
                f"{_undone_by(body, options.context)}"
            )
        _check_rolled_back(kube, body, screen)
        return True

    return carried_out("tidegate cancel", options, act, screen)


def _check_rolled_back(kube: KubeClient, body: Object, screen: Screen) -> None:
    """A deletion waits for so long only, and says in an Event that it gave up. Raises ``CommandFailed``."""
    from tidegate.kube.ports import KubeFailure
    from tidegate.reset.runs.reasons import ABANDONED

    try:
        told = kube.told_of(body, (ABANDONED,))
    except KubeFailure as failure:
        screen.note(f"whether it was rolled back was not seen: {visible(str(failure))}")
        return
    if told:
        raise CommandFailed(f"it was not rolled back: {'; '.join(told)}")


def _undone_by(body: Object, context: str | None) -> str:
    """How, now that it is gone; empty for a fleet, of which that can't be said in one command."""
    from tidegate.incident.commands import command
    from tidegate.kube.ports import connection_named, name_of, namespace_of

    group = (body.get("spec") or {}).get("group")
    if not isinstance(group, str):
        return ""
    of = shlex.join(("--group", visible(group), "-c", "/".join(connection_named(body))))
    return f". To undo it: {command('tidegate undo', name_of(body), namespace_of(body), context)} {of}"


def cancellable(body: Object, context: str | None = None) -> str:
    """The policy that has asked for it, or nothing. ``context``: of the kubeconfig, where one was given. Raises
    ``CommandFailed`` for one that has ended, or may have."""
    from tidegate.incident.commands import command
    from tidegate.kube.ports import name_of, namespace_of
    from tidegate.resources.base import has_readable_status, read_status
    from tidegate.resources.offset_reset import OffsetResetStatus
    from tidegate.resources.reset import has_ended

    if not has_readable_status(OffsetResetStatus, body):
        raise CommandFailed(f"OffsetReset {name_of(body)}: {UNREADABLE}, so it may have ended: use a newer tidegate")
    phase = read_status(OffsetResetStatus, body).phase
    if has_ended(phase):
        undoes = command("tidegate undo", name_of(body), namespace_of(body), context)
        how = f". To undo it: {undoes}" if phase == "Succeeded" else ""
        raise CommandFailed(f"OffsetReset {name_of(body)} has ended as {phase}, so there is nothing to cancel{how}")
    owners = body["metadata"].get("ownerReferences") or ()
    return next((str(o.get("name", "")) for o in owners if o.get("kind") == "OffsetResetPolicy"), "")
