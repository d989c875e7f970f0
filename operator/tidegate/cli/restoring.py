"""``tidegate backup restore``: an ``OffsetReset`` to where a group stood in a backup; and what such a reset would do.

Where a group stands in a backup only jobs of the operator can read. So it is shown by a plan that is never applied.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from tidegate.cli.acting import add_making, add_waiting, carried_out, created, delete, found, timeout_of
from tidegate.cli.backup_time import AT_HELP, at_of
from tidegate.cli.errors import CommandFailed, Parser
from tidegate.cli.reaching import add_kubernetes, dumped, namespace_of_options
from tidegate.cli.screen import Screen
from tidegate.printable import visible

if TYPE_CHECKING:
    from tidegate.cli.following import Step
    from tidegate.kube.client import KubeClient
    from tidegate.kube.ports import Object


# --- restore ----------------------------------------------------------------------------------------------------------


def restore_parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="tidegate backup restore",
        description="Restore a group's offsets from a backup by creating an OffsetReset, which the operator carries "
        "out.",
        allow_abbrev=False,
    )
    parser.add_argument("backup", metavar="NAME", help="the name of the OffsetBackup")
    parser.add_argument("group", metavar="GROUP", help="the id of the consumer group")
    parser.add_argument("--at", metavar="TIME", help=f"{AT_HELP} (default: the newest backup)")
    parser.add_argument(
        "--name", metavar="NAME", help="the name of the OffsetReset (default: one that the API server chooses)"
    )
    parser.add_argument(
        "--topic",
        action="append",
        default=[],
        metavar="TOPIC[:0,1]",
        help="a topic, or some of its partitions; may be given several times (default: all that the backup has "
        "of the group)",
    )
    parser.add_argument(
        "--manual", action="store_true", help="request the restore in your name, and let its plan wait for an approval"
    )
    add_kubernetes(parser, of="of the OffsetBackup and of the OffsetReset")
    add_making(parser)
    add_waiting(parser, "15m")
    return parser


def run_restore(arguments: Sequence[str], screen: Screen) -> int:
    """0 once it has succeeded, or was only to be created or printed; 1 otherwise. Raises ``UsageError``."""
    options = restore_parser().parse_args(list(arguments))
    timeout_s = timeout_of(options)
    at_of(options)

    def act(kube: KubeClient) -> bool:
        from tidegate.cli.asking import made_and_followed
        from tidegate.kube.ports import BACKUPS

        body = found(kube, BACKUPS, options, options.backup)
        metadata = {"name": options.name} if options.name is not None else {"generateName": "restore-"}
        namespace = namespace_of_options(options)
        asked = restore_of(
            body, options.group, options.at, namespace, metadata, topics=options.topic, manual=options.manual
        )
        return made_and_followed(kube, asked, options, timeout_s, screen)

    return carried_out("tidegate backup restore", options, act, screen)


def restore_of(
    body: Object,
    group: str,
    at: str | None,
    namespace: str,
    metadata: dict[str, str],
    *,
    topics: Sequence[str] = (),
    manual: bool = False,
) -> dict[str, Any]:
    """The ``OffsetReset`` that restores a group from a backup of this OffsetBackup, as Git would hold it. Raises
    ``CommandFailed``."""
    from tidegate.kube.ports import RESETS, name_of
    from tidegate.resources.base import InvalidResource, parse_spec
    from tidegate.resources.offset_reset import OffsetResetSpec, parse_offset_reset

    asked = {
        "apiVersion": RESETS.api_version,
        "kind": RESETS.kind,
        "metadata": {"namespace": namespace, **metadata},
        "spec": {
            "connectionRef": dict(body["spec"]["connectionRef"]),
            "group": group,
            "to": {"backup": {"name": name_of(body), **({} if at is None else {"at": at})}},
            **({"partitions": list(_selections(topics))} if topics else {}),
            **({"approval": "Manual"} if manual else {}),
        },
    }
    try:
        if "name" in metadata:
            parse_offset_reset(asked)
        else:
            parse_spec(OffsetResetSpec, asked)
    except InvalidResource as invalid:
        raise CommandFailed(str(invalid)) from invalid
    return asked


def _selections(topics: Sequence[str]) -> Iterator[dict[str, Any]]:
    from tidegate.cli.options import parse_topic

    for each in map(parse_topic, topics):
        yield {"topic": each.topic, **({} if each.partitions is None else {"partitions": [*each.partitions]})}


# --- what it would do -----------------------------------------------------------------------------------------------


def show_group(kube: KubeClient, body: Object, options: argparse.Namespace, timeout_s: float, screen: Screen) -> bool:
    """By the plan of a reset that nobody approves."""
    from tidegate.cli.asking import in_own_name
    from tidegate.cli.following import follow
    from tidegate.clock import SystemClock
    from tidegate.kube.ports import RESETS, name_of, namespace_of

    asked = in_own_name(
        restore_of(
            body,
            options.group,
            options.at,
            namespace_of_options(options),
            {"generateName": "show-backup-"},
            manual=True,
        ),
        kube.own_name,
    )
    try:
        made = created(kube, RESETS, asked, context=options.context)
    except KeyboardInterrupt:
        screen.note(
            f"The OffsetReset may have been created anyway, as show-backup-… in namespace {options.namespace}. {_LEFT}"
        )
        raise
    try:
        screen.note(
            f"OffsetReset {namespace_of(made)}/{visible(name_of(made))} was created to make the plan, and will "
            "be deleted afterwards"
        )
        # Not one that goes on: it is deleted next.
        if not follow(kube, RESETS, made, planned_step, SystemClock(), timeout_s, screen, goes_on=False):
            return False
        _show_plan(made, options, screen)
    finally:
        # Also after an interruption: nobody else knows of it, and an approval would apply it.
        _deleted(kube, made, screen)
    return True


_LEFT: Final = "Delete it, and do not approve its plan: an approval would apply the plan"


def _deleted(kube: KubeClient, made: Object, screen: Screen) -> None:
    """Raises ``KubeFailure`` and ``KeyboardInterrupt``, having said what is left."""
    from tidegate.kube.ports import RESETS, KubeFailure, name_of, namespace_of

    try:
        delete(kube, RESETS, made, lambda _: None)
    except CommandFailed as failure:
        screen.note(visible(str(failure)))  # somebody else has deleted it
    except (KubeFailure, KeyboardInterrupt):
        screen.note(f"OffsetReset {namespace_of(made)}/{visible(name_of(made))} may still exist. {_LEFT}")
        raise


def planned_step(body: Object) -> Step:
    """Done once the plan can be looked at."""
    from tidegate.cli.following import Step, reset_step
    from tidegate.resources.base import has_readable_status, read_status
    from tidegate.resources.offset_reset import OffsetResetStatus
    from tidegate.resources.reset import ResetPhase

    step = reset_step(body)
    if not has_readable_status(OffsetResetStatus, body):
        return step
    if read_status(OffsetResetStatus, body).phase is ResetPhase.AWAITING_APPROVAL:
        return Step("its plan is ready", done=True)
    # One that has ended before has no plan to look at, or changes nothing: its message says which.
    return step


def _show_plan(made: Object, options: argparse.Namespace, screen: Screen) -> None:
    from tidegate.cli.plan_screen import show
    from tidegate.cli.planning import as_json, stored
    from tidegate.cli.review import review
    from tidegate.clock import SystemClock
    from tidegate.kube.ports import name_of
    from tidegate.reset.document import StoreFailure
    from tidegate.reset.store import ForeignRun, ForgedRun, RunNotFound

    name = name_of(made)
    meant = argparse.Namespace(namespace=options.namespace, context=options.context, name=name, run=None, group=None)
    try:
        run = stored(meant)
    except (StoreFailure, RunNotFound, ForeignRun, ForgedRun) as failure:
        raise CommandFailed(str(failure)) from failure
    if options.output == "text":
        show(review(options.namespace, name, run, SystemClock().now(), options.context), screen.out)
    else:
        screen.show(dumped(as_json(options.namespace, run), options.output))
