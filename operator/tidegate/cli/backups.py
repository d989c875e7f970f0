"""``tidegate backup list``, ``take`` and ``show``: by what OffsetBackups say of the backups that they have taken.

Backups lie where jobs of the operator reach them, and seldom whoever is at a terminal.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from tidegate.cli.acting import Several, add_waiting, carried_out, found, timeout_of
from tidegate.cli.backup_time import AT_HELP, at_of
from tidegate.cli.errors import CommandFailed, Parser
from tidegate.cli.reaching import add_kubernetes, add_output, dumped, namespace_of_options, with_namespace
from tidegate.cli.screen import Screen
from tidegate.incident.seen import UNREADABLE
from tidegate.printable import visible

if TYPE_CHECKING:
    from datetime import datetime, timedelta

    from tidegate.cli.following import Step
    from tidegate.kube.client import KubeClient
    from tidegate.kube.ports import Object
    from tidegate.resources.offset_backup import BackupStatus, OffsetBackupStatus

_HEADER: Final = ("NAME", "DUE", "TAKEN-AT", "GROUPS", "PARTITIONS", "UNREAD", "BYTES")


# --- list -------------------------------------------------------------------------------------------------------------


def list_parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="tidegate backup list",
        description="List the backups that the OffsetBackups of a namespace have taken and keep, the newest first.",
        allow_abbrev=False,
    )
    parser.add_argument("--group", metavar="GROUP", help="only the backups of OffsetBackups that cover this group")
    add_kubernetes(parser, of="of the OffsetBackups")
    add_output(parser)
    return parser


def run_list(arguments: Sequence[str], screen: Screen) -> int:
    """0, also where there are none; 1 where they, or some of them, can't be listed. Raises ``UsageError``."""
    options = list_parser().parse_args(list(arguments))

    def act(kube: KubeClient) -> bool:
        from tidegate.kube.ports import BACKUPS, name_of

        bodies = [
            b for b in sorted(kube.list(BACKUPS), key=name_of) if options.group is None or covers(b, options.group)
        ]
        several = Several(BACKUPS, screen)
        of: list[tuple[Object, tuple[BackupStatus, ...]]] = []
        for body in bodies:
            with several.one(body):
                of.append((body, taken(body)))
        if options.output != "text":
            rows = [_as_json(body, status) for body, statuses in of for status in statuses]
            screen.show(dumped({"kind": "BackupList", "version": 1, "backups": rows}, options.output))
            return not several.failed
        screen.show(_table([(name_of(body), status) for body, statuses in of for status in statuses]))
        for body, statuses in of:
            if not statuses:
                screen.note(f"OffsetBackup {visible(name_of(body))} has not taken a backup yet")
        if not bodies:
            which = "" if options.group is None else f" that covers group {visible(options.group)}"
            screen.note(f"there is no OffsetBackup{which} in namespace {visible(namespace_of_options(options))}")
        return not several.failed

    return carried_out("tidegate backup list", options, act, screen)


def covers(body: Object, group: str) -> bool:
    """Whether the group is one of those that an OffsetBackup names; the connection may allow less."""
    from tidegate.kafka.names import is_allowed

    return is_allowed(group, tuple(map(str, (body.get("spec") or {}).get("groups") or ("*",))))


def taken(body: Object) -> tuple[BackupStatus, ...]:
    """The newest first. An earlier version of the operator names only its newest one. Raises ``CommandFailed``."""
    status = _status(body)
    return status.backups or (() if status.last is None else (status.last,))


def _status(body: Object) -> OffsetBackupStatus:
    """Raises ``CommandFailed`` for one that can't be read: that is not to have taken none."""
    from tidegate.resources.base import has_readable_status, read_status
    from tidegate.resources.offset_backup import OffsetBackupStatus

    if not has_readable_status(OffsetBackupStatus, body):
        raise CommandFailed(UNREADABLE)
    return read_status(OffsetBackupStatus, body)


def _as_json(body: Object, backup: BackupStatus) -> dict[str, Any]:
    from tidegate.kube.ports import name_of, namespace_of

    spec = body.get("spec") or {}
    connection = (spec.get("connectionRef") or {}).get("name")
    head = {"namespace": namespace_of(body), "name": name_of(body), "connection": connection}
    return {**head, **backup.to_json()}


def _table(rows: Sequence[tuple[str, BackupStatus]]) -> str:
    from tidegate.resources.timestamps import format_timestamp

    if not rows:
        return ""
    cells = [_HEADER] + [
        (
            visible(name),
            format_timestamp(one.due),
            format_timestamp(one.taken_at),
            *map(str, (one.groups, one.partitions, one.unread, one.bytes)),
        )
        for name, one in rows
    ]
    widths = [max(len(row[column]) for row in cells) for column in range(len(_HEADER))]
    return "".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() + "\n" for row in cells
    )


# --- take -------------------------------------------------------------------------------------------------------------


def take_parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="tidegate backup take",
        description="Have an OffsetBackup take a backup now, in addition to its schedule, and wait until the backup "
        "is there.",
        allow_abbrev=False,
    )
    parser.add_argument("name", metavar="NAME", help="the name of the OffsetBackup")
    parser.add_argument(
        "--dry-run", action="store_true", help="have the API server check the request, but request no backup"
    )
    add_kubernetes(parser, of="of the OffsetBackup")
    add_output(parser)
    add_waiting(parser, "15m")
    return parser


def run_take(arguments: Sequence[str], screen: Screen) -> int:
    """0 once it is there, or was only to be asked for; 1 otherwise. Raises ``UsageError``."""
    options = take_parser().parse_args(list(arguments))
    timeout_s = timeout_of(options)

    def act(kube: KubeClient) -> bool:
        from tidegate.cli.following import follow
        from tidegate.clock import SystemClock
        from tidegate.kube.ports import BACKUPS
        from tidegate.resources.offset_backup import ASKED_FORMAT, TAKE

        clock, body = SystemClock(), found(kube, BACKUPS, options, options.name)
        if (body.get("spec") or {}).get("suspend"):
            raise CommandFailed(f"OffsetBackup {options.name} is suspended: set its spec.suspend to false first")
        due, before = when_to_take(body, clock.now()), _status(body)
        body = kube.annotate(BACKUPS, body, {TAKE: due.strftime(ASKED_FORMAT)}, dry_run=options.dry_run)
        if options.no_wait or options.dry_run:
            how = " (server dry run)" if options.dry_run else ""
            screen.show(f"offsetbackup.tidegate.io/{options.name} was asked for a backup{how}\n")
            return True

        def step(newest: Object) -> Step:
            return take_step(newest, due, before)

        if not follow(kube, BACKUPS, body, step, clock, timeout_s, screen, context=options.context):
            return False
        newest = found(kube, BACKUPS, options, options.name)
        one = next((each for each in taken(newest) if each.due >= due and each != before.last), None)
        if one is None:
            raise CommandFailed(
                f"OffsetBackup {options.name} now has other storage, so it does not list the backup. "
                f"To see which it lists: {_listed_by(options)}"
            )
        _show_one(newest, one, options.output, screen)
        return True

    return carried_out("tidegate backup take", options, act, screen)


def when_to_take(body: Object, now: datetime) -> datetime:
    """When it is to be due, in whole seconds: after the newest one, also where this machine's clock is behind; but not
    after one that the operator does not count, as a clock that was ahead has made it."""
    from datetime import timedelta

    last = _status(body).last
    whole = now.replace(microsecond=0)
    return whole if last is None or last.due > now + _every(body) else max(whole, last.due + timedelta(seconds=1))


def _every(body: Object) -> timedelta:
    """Between two backups."""
    from datetime import timedelta

    from tidegate.resources.base import InvalidResource, parse_spec
    from tidegate.resources.offset_backup import OffsetBackupSpec

    try:
        return parse_spec(OffsetBackupSpec, body).schedule
    except InvalidResource:
        return timedelta(days=1)  # the operator refuses it, and says why


def take_step(body: Object, due: datetime, before: OffsetBackupStatus) -> Step:
    """``before``: the status when it was asked for. An attempt that was under way then is another one's."""
    from tidegate.cli.following import Step, is_refused
    from tidegate.resources.conditions import BACKED_UP, find_condition

    status = _status(body)
    said = find_condition(status.conditions, BACKED_UP)
    line = "not begun" if said is None else f"{said.reason}: {said.message}"
    if status.last is not None and status.last.due >= due and status.last != before.last:
        return Step(line, done=True)
    if is_refused(body, status):
        return Step(line, refused="resolve the cause")
    waited = _is_under_way(before)
    if waited and status.launch == before.launch:
        return Step("the backup was requested")
    if _is_under_way(status):
        return Step("the backup is being taken")
    if (status.failures or 0) > (0 if waited else before.failures or 0):
        return Step(line, done=False)
    return Step("the backup was requested")


def _is_under_way(status: OffsetBackupStatus) -> bool:
    return status.next is None and status.launch is not None


# --- show -------------------------------------------------------------------------------------------------------------


def show_parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="tidegate backup show",
        description="Show when a backup was taken, and how much is in it. With --group, show that group's offsets "
        "in it, as the plan of a restore: for this, the command creates an OffsetReset that waits for approval, "
        "and deletes it again. Nothing is changed in Kafka.",
        allow_abbrev=False,
    )
    parser.add_argument("name", metavar="NAME", help="the name of the OffsetBackup")
    parser.add_argument("--at", metavar="TIME", help=f"{AT_HELP} (default: the newest backup)")
    parser.add_argument(
        "--group", metavar="GROUP", help="show the partitions of this group, with their offsets in the backup and now"
    )
    add_kubernetes(parser, of="of the OffsetBackup")
    add_output(parser)
    parser.add_argument(
        "--timeout", default="15m", metavar="DURATION", help="with --group: how long to wait (default: 15m)"
    )
    return parser


def run_show(arguments: Sequence[str], screen: Screen) -> int:
    """0; 1 where there is no such backup, or it can't be shown. Raises ``UsageError``."""
    options = with_namespace(show_parser().parse_args(list(arguments)))
    timeout_s, at = timeout_of(options), at_of(options)

    def act(kube: KubeClient) -> bool:
        from tidegate.kube.ports import BACKUPS

        body = found(kube, BACKUPS, options, options.name)
        if options.group is not None:
            from tidegate.cli.restoring import show_group

            return show_group(kube, body, options, timeout_s, screen)
        one = next((each for each in taken(body) if at is None or each.taken_at <= at), None)
        if one is None:
            by = "" if at is None else f" that was taken by {options.at}"
            raise CommandFailed(
                f"OffsetBackup {options.name} lists no backup{by}. To see which it lists: {_listed_by(options)}"
            )
        _show_one(body, one, options.output, screen)
        return True

    return carried_out("tidegate backup show", options, act, screen)


def _listed_by(options: argparse.Namespace) -> str:
    from tidegate.incident.commands import place_of

    return f"tidegate backup list {place_of(namespace_of_options(options), options.context)}"


def _show_one(body: Object, one: BackupStatus, output: str, screen: Screen) -> None:
    told = _as_json(body, one)
    if output != "text":
        screen.show(dumped({"kind": "Backup", "version": 1, **told}, output))
        return
    width = max(map(len, told))
    screen.show("".join(f"{name:<{width}}  {visible(str(value))}\n" for name, value in told.items()))
