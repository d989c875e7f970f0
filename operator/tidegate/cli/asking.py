"""``tidegate reset``: creates an ``OffsetReset`` in a Kubernetes cluster, and waits until the operator has ended it.

``tidegate groups --reset-offsets`` resets by Kafka alone. This needs the right to create OffsetResets, and none on
Kafka.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from tidegate.cli.acting import add_making, add_waiting, carried_out, create, printed, timeout_of
from tidegate.cli.errors import Parser, UsageError
from tidegate.cli.following import follow, reset_step
from tidegate.cli.options import parse_topic
from tidegate.cli.reaching import add_kubernetes, connection_ref, namespace_of_options, with_namespace
from tidegate.cli.screen import Screen
from tidegate.clock import SystemClock
from tidegate.kube.client import KubeClient
from tidegate.kube.ports import RESETS
from tidegate.printable import visible
from tidegate.resources.base import InvalidResource, parse_spec
from tidegate.resources.offset_reset import OffsetResetSpec, parse_offset_reset
from tidegate.resources.replay import Then
from tidegate.resources.reset import ApprovalMode

_TARGETS: Final[Mapping[str, tuple[str, str, Callable[[str], Any]]]] = {
    "to_offset": ("offset", "N", int),
    "to_datetime": ("timestamp", "TIME", str),
    "by_duration": ("duration", "DURATION", str),
    "shift_by": ("shiftBy", "N", int),
    "to_group": ("group", "GROUP", str),
    "undo": ("undo", "NAME", str),
}
"""By option, the member of ``spec.to``, what it takes, and how that is read."""

_ENDS: Final = ("to_earliest", "to_latest")

_UNTIL: Final[Mapping[str, tuple[str, str, Callable[[str], Any], str]]] = {
    "until": ("timestamp", "TIME", str, "end the replay before the first record at or after this time"),
    "until_offset": ("offset", "N", int, "end the replay before this offset of every partition"),
    "until_records": ("records", "N", int, "end the replay after this many offsets of each partition"),
}
"""By option, the member of ``spec.until``, what it takes, how that is read, and what it means."""


def reset_parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="tidegate reset",
        description="Reset consumer groups by creating an OffsetReset, which the operator carries out.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "group", nargs="+", help="the id of a consumer group; several ids, or a pattern with '*', make a fleet"
    )
    add_kubernetes(parser, of="of the OffsetReset")
    parser.add_argument("--connection", "-c", required=True, metavar="[NAMESPACE/]NAME", help="the KafkaConnection")
    parser.add_argument("--name", help="the name of the OffsetReset (default: one that the API server chooses)")
    parser.add_argument(
        "--topic",
        action="append",
        default=[],
        metavar="TOPIC[:0,1]",
        help="a topic, or some of its partitions; may be given several times (default: the topics that the "
        "group subscribes to)",
    )
    target = parser.add_mutually_exclusive_group(required=True)
    target.add_argument("--to-earliest", action="store_true", help="to the start of the log")
    target.add_argument("--to-latest", action="store_true", help="to the end of the log")
    for option, (_, shown, _read) in _TARGETS.items():
        target.add_argument(f"--{option.replace('_', '-')}", metavar=shown)
    end = parser.add_mutually_exclusive_group()
    for option, (_, shown, _read, meaning) in _UNTIL.items():
        end.add_argument(f"--{option.replace('_', '-')}", metavar=shown, help=meaning)
    parser.add_argument(
        "--then",
        choices=[then.value for then in Then],
        help="where the group continues after the replay: where it was before (Return, the default), or where "
        "the replay ended, at once (Continue) or when a pause is deleted (Pause)",
    )
    parser.add_argument("--within", metavar="DURATION", help="how long the replay may take (default: 24h)")
    parser.add_argument(
        "--dead-letter", metavar="TOPIC", help="first copy the records that are skipped, at most 10, to this topic"
    )
    parser.add_argument(
        "--manual", action="store_true", help="request the reset in your name, and let its plan wait for an approval"
    )
    add_making(parser)
    add_waiting(parser, "15m")
    return parser


def run_reset(arguments: Sequence[str], screen: Screen) -> int:
    """0 once it has succeeded, or was only to be created or printed; 1 otherwise. Raises ``UsageError``."""
    options = with_namespace(reset_parser().parse_args(list(arguments)))
    asked = manifest(options)
    timeout_s = timeout_of(options)
    if printed(options, asked, screen):
        return 0
    return carried_out(
        "tidegate reset", options, lambda kube: made_and_followed(kube, asked, options, timeout_s, screen), screen
    )


def manifest(options: argparse.Namespace) -> dict[str, Any]:
    """The ``OffsetReset`` that the options ask for. Raises ``UsageError``."""
    fleet = len(options.group) > 1 or "*" in options.group[0]
    spec: dict[str, Any] = {
        "connectionRef": connection_ref(options.connection),
        **({"groups": options.group} if fleet else {"group": options.group[0]}),
        "to": _target(options),
    }
    topics = [parse_topic(text) for text in options.topic]
    if topics:
        spec["partitions"] = [
            {"topic": each.topic, **({} if each.partitions is None else {"partitions": [*each.partitions]})}
            for each in topics
        ]
    until = _until(options)
    if until is not None:
        spec["until"] = until
    if options.dead_letter is not None:
        spec["deadLetter"] = {"topic": options.dead_letter}
    if options.manual:
        spec["approval"] = "Manual"
    name = {"name": options.name} if options.name is not None else {"generateName": "reset-"}
    asked = {
        "apiVersion": RESETS.api_version,
        "kind": RESETS.kind,
        "metadata": {"namespace": namespace_of_options(options), **name},
        "spec": spec,
    }
    try:
        if options.name is None:
            parse_spec(OffsetResetSpec, asked)
        else:
            parse_offset_reset(asked)
    except InvalidResource as invalid:
        raise UsageError(str(invalid)) from invalid
    return asked


def made_and_followed(
    kube: KubeClient, asked: Mapping[str, Any], options: argparse.Namespace, timeout_s: float, screen: Screen
) -> bool:
    """Create an ``OffsetReset`` in the caller's name, or print it, and follow it to its end. Whether it has succeeded,
    or was only to be created or printed. Raises ``CommandFailed`` and ``KubeFailure``."""
    asked = in_own_name(asked, kube.own_name)
    if printed(options, asked, screen):
        return True
    made = create(kube, RESETS, asked, options, screen)
    if options.no_wait or options.dry_run:
        return True
    return follow(kube, RESETS, made, reset_step, SystemClock(), timeout_s, screen, context=options.context)


def in_own_name(asked: Mapping[str, Any], own_name: Callable[[], str]) -> Mapping[str, Any]:
    """With whoever asks as the requester, where the plan waits for an approval: that may have to be somebody else's.

    Raises ``KubeFailure``.
    """
    if asked["spec"].get("approval") != ApprovalMode.MANUAL:
        return asked
    return {**asked, "spec": {**asked["spec"], "requester": own_name()}}


def _until(options: argparse.Namespace) -> dict[str, Any] | None:
    """``spec.until``; ``None``: the replay goes on to the end of the log. Raises ``UsageError``."""
    more = {name: value for name in ("then", "within") if (value := getattr(options, name)) is not None}
    for option, (member, shown, read, _) in _UNTIL.items():
        given = getattr(options, option)
        if given is None:
            continue
        try:
            return {member: read(given), **more}
        except ValueError:
            raise UsageError(
                f"--{option.replace('_', '-')} takes a whole number as {shown}, not {visible(given)}"
            ) from None
    if more:
        raise UsageError("--then and --within need --until, --until-offset or --until-records: add one of them")
    return None


def _target(options: argparse.Namespace) -> dict[str, Any]:
    for option in _ENDS:
        if getattr(options, option):
            return {option.removeprefix("to_"): {}}
    option = next(name for name in _TARGETS if getattr(options, name) is not None)
    member, shown, read = _TARGETS[option]
    try:
        return {member: read(getattr(options, option))}
    except ValueError:
        raise UsageError(f"--{option.replace('_', '-')} takes a whole number as {shown}") from None
