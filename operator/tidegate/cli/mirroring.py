"""``tidegate mirror failover`` and ``tidegate mirror failback``: by an OffsetMirror's spec, which the operator carries
out.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tidegate.cli.acting import TRIES, add_making, add_waiting, carried_out, create, found, printed, timeout_of
from tidegate.cli.errors import CommandFailed, Parser, UsageError
from tidegate.cli.reaching import add_kubernetes, namespace_of_options
from tidegate.cli.screen import Screen
from tidegate.incident.seen import UNREADABLE
from tidegate.printable import visible

if TYPE_CHECKING:
    from tidegate.cli.following import Step
    from tidegate.kube.client import KubeClient
    from tidegate.kube.ports import Object
    from tidegate.resources.mirror_failover import MirrorFailover


def failover_parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="tidegate mirror failover",
        description="End the copying of an OffsetMirror for good, wait until nothing more from it can arrive at the "
        "target, and report what has arrived. The failover waits for as long as the copies lack records.",
        allow_abbrev=False,
    )
    parser.add_argument("name", metavar="NAME", help="the name of the OffsetMirror")
    parser.add_argument(
        "--accept-loss",
        action="store_true",
        help="fail over even if the copies lack records of the source, or the source does not answer",
    )
    add_kubernetes(parser, of="of the OffsetMirror")
    add_waiting(parser, "5m")
    return parser


def run_failover(arguments: Sequence[str], screen: Screen) -> int:
    """0 once it has failed over, or was only to be asked for; 1 otherwise. Raises ``UsageError``."""
    options = failover_parser().parse_args(list(arguments))
    timeout_s = timeout_of(options)

    def act(kube: KubeClient) -> bool:
        from tidegate.cli.following import follow
        from tidegate.clock import SystemClock
        from tidegate.kube.ports import MIRRORS
        from tidegate.resources.base import read_status
        from tidegate.resources.offset_mirror import OffsetMirrorStatus

        body = _asked_for(kube, options)
        if options.no_wait:
            screen.show(f"offsetmirror.tidegate.io/{options.name} is being failed over\n")
            return True
        clock, context = SystemClock(), options.context
        if not follow(kube, MIRRORS, body, failover_step, clock, timeout_s, screen, context=context):
            return False
        failover = read_status(OffsetMirrorStatus, found(kube, MIRRORS, options, options.name)).failover
        if failover is not None:
            screen.show(failover_table(failover))
        return True

    return carried_out("tidegate mirror failover", options, act, screen)


def _asked_for(kube: KubeClient, options: argparse.Namespace) -> Object:
    """The OffsetMirror, with the failover in its spec. Raises ``CommandFailed`` and ``KubeFailure``."""
    from tidegate.kube.ports import MIRRORS, Conflict

    for _ in range(TRIES):
        body = found(kube, MIRRORS, options, options.name)
        before = body["spec"].get("failover")
        wanted = {"acceptLoss": options.accept_loss or bool((before or {}).get("acceptLoss"))}
        if before is not None and {"acceptLoss": False, **before} == wanted:
            return body
        try:
            return kube.change_spec(MIRRORS, body, {"failover": wanted})
        except Conflict:
            continue  # its status was written meanwhile
    raise CommandFailed(f"OffsetMirror {options.name} kept changing, so its spec.failover was not set: try again")


def failover_step(body: Object) -> Step:
    from tidegate.cli.following import Step
    from tidegate.resources.base import has_readable_status, read_status
    from tidegate.resources.conditions import READY, STALLED, find_condition, is_true
    from tidegate.resources.mirror_failover import FailoverPhase
    from tidegate.resources.offset_mirror import OffsetMirrorStatus

    if not has_readable_status(OffsetMirrorStatus, body):
        return Step(UNREADABLE)
    status = read_status(OffsetMirrorStatus, body)
    said = find_condition(status.conditions, READY)
    line = "not begun" if said is None else f"{said.reason}: {said.message}"
    if status.failover is not None and status.failover.phase is FailoverPhase.DONE:
        return Step(line, done=True)
    if status.observed_generation != body["metadata"].get("generation"):
        return Step("not begun")
    if is_true(status.conditions, STALLED):
        accepts_loss = (body["spec"].get("failover") or {}).get("acceptLoss") is True
        return Step(line, refused="resolve the cause" + ("" if accepts_loss else ", or fail over with --accept-loss"))
    return Step(line)


def failover_table(failover: MirrorFailover) -> str:
    """A row for each partition, and what is wrong."""
    header = ("TOPIC", "PARTITION", "COPIED-UNTIL", "NOT-COPIED")
    rows = [header]
    for topic in failover.topics:
        for number, end in enumerate(topic.ends):
            lacks = str(topic.lacks[number]) if topic.lacks is not None and number < len(topic.lacks) else "unknown"
            rows.append((visible(topic.name), str(number), str(end), lacks))
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    lines = ["  ".join([*(c.ljust(w) for c, w in zip(row, widths, strict=False)), row[-1]]).rstrip() for row in rows]
    lines += [f"{topic.name}: {topic.message}" for topic in failover.topics if topic.message]
    lines += [
        f"{t.name}: it is not known what was not copied, because {t.unknown}" for t in failover.topics if t.unknown
    ]
    if not failover.source_answered:
        lines.append("The source did not answer, so it is not known what it has beyond these offsets.")
    elif failover.not_copied is None:
        lines.append("There may be more that was not copied: compare both clusters.")
    return "".join(f"{visible(line)}\n" for line in lines)


# --- failback ---------------------------------------------------------------------------------------------------------


def failback_parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="tidegate mirror failback",
        description="Copy back what was written after an OffsetMirror failed over, by creating another OffsetMirror "
        "in the other direction.",
        allow_abbrev=False,
    )
    parser.add_argument("failed_over", metavar="NAME", help="the name of the OffsetMirror that has failed over")
    parser.add_argument("--name", required=True, metavar="NAME", help="the name of the OffsetMirror to create")
    add_kubernetes(parser, of="of both OffsetMirrors")
    add_making(parser)
    return parser


def run_failback(arguments: Sequence[str], screen: Screen) -> int:
    """0 once it is created, or printed; 1 otherwise. Raises ``UsageError``."""
    options = failback_parser().parse_args(list(arguments))
    if options.name == options.failed_over:
        raise UsageError("--name must differ from the name of the OffsetMirror that has failed over")

    def act(kube: KubeClient) -> bool:
        from tidegate.kube.ports import MIRRORS

        body = found(kube, MIRRORS, options, options.failed_over)
        if not failover_step(body).done:
            raise CommandFailed(
                f"OffsetMirror {options.failed_over} has not failed over: run tidegate mirror failover first"
            )
        asked = failback_of(options, body)
        if not printed(options, asked, screen):
            create(kube, MIRRORS, asked, options, screen)
        return True

    return carried_out("tidegate mirror failback", options, act, screen)


def failback_of(options: argparse.Namespace, body: Object) -> dict[str, Any]:
    """The OffsetMirror in the other direction, of the same topics and groups."""
    from tidegate.kube.ports import MIRRORS

    same = ("topics", "groups", "engine", "spark", "seed", "parity", "onDrift", "rateLimit")
    spec = body["spec"]
    return {
        "apiVersion": MIRRORS.api_version,
        "kind": MIRRORS.kind,
        "metadata": {"namespace": namespace_of_options(options), "name": options.name},
        "spec": {
            "source": dict(spec["target"]),
            "target": dict(spec["source"]),
            **{member: spec[member] for member in same if member in spec},
            "failbackFrom": {"name": options.failed_over},
        },
    }
