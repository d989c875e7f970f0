"""``tidegate freeze`` and ``tidegate thaw``: nothing new begins through a KafkaConnection, by its ``spec.freeze``."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tidegate.cli.acting import add_waiting, carried_out, found, timeout_of
from tidegate.cli.errors import CommandFailed, Parser
from tidegate.cli.reaching import add_kubernetes
from tidegate.cli.screen import Screen
from tidegate.printable import visible

if TYPE_CHECKING:
    from tidegate.cli.following import Step
    from tidegate.kube.client import KubeClient
    from tidegate.kube.ports import Object


def freeze_parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="tidegate freeze",
        description="Have nothing new begin through a KafkaConnection: no reset, pause, mirror, restored offset or "
        "new partition's start. What runs goes on to its end, and what is held stays held.",
        allow_abbrev=False,
    )
    parser.add_argument("connection", metavar="NAME", help="of the KafkaConnection")
    parser.add_argument("--reason", required=True, metavar="TEXT", help="for whoever waits for it")
    _add_rest(parser)
    return parser


def thaw_parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="tidegate thaw",
        description="Let what waits begin again through a KafkaConnection that is frozen.",
        allow_abbrev=False,
    )
    parser.add_argument("connection", metavar="NAME", help="of the KafkaConnection")
    _add_rest(parser)
    return parser


def _add_rest(parser: argparse.ArgumentParser) -> None:
    add_kubernetes(parser, of="its namespace")
    add_waiting(parser, "1m")


def run_freeze(arguments: Sequence[str], screen: Screen) -> int:
    """0 once the operator goes by it, or it was only to be asked for; 1 otherwise. Raises ``UsageError``."""
    options = freeze_parser().parse_args(list(arguments))

    def change(kube: KubeClient, body: Object) -> dict[str, Any]:
        from tidegate.clock import SystemClock
        from tidegate.resources.timestamps import format_timestamp

        already = (body.get("spec") or {}).get("freeze")
        if already is not None:
            by, reason = (str(already.get(name, "nobody says")) for name in ("by", "reason"))
            raise CommandFailed(f"it is frozen already, by {by}: {reason}. tidegate thaw ends that")
        since = format_timestamp(SystemClock().now().replace(microsecond=0))
        return {"by": kube.own_name()[:256], "since": since, "reason": options.reason}

    return _changed("tidegate freeze", options, change, frozen_step, "frozen", screen)


def run_thaw(arguments: Sequence[str], screen: Screen) -> int:
    """0 once the operator goes by it, or it was only to be asked for; 1 otherwise. Raises ``UsageError``."""
    options = thaw_parser().parse_args(list(arguments))

    def change(_kube: KubeClient, body: Object) -> None:
        if (body.get("spec") or {}).get("freeze") is None:
            raise CommandFailed("it is not frozen")

    return _changed("tidegate thaw", options, change, thawed_step, "thawed", screen)


def _changed(
    prog: str,
    options: argparse.Namespace,
    change: Callable[[KubeClient, Object], dict[str, Any] | None],
    step: Callable[[Object], Step],
    done: str,
    screen: Screen,
) -> int:
    timeout_s = timeout_of(options)

    def act(kube: KubeClient) -> bool:
        from tidegate.kube.ports import CONNECTIONS, name_of

        body = found(kube, CONNECTIONS, options, options.connection)
        body = kube.change_spec(CONNECTIONS, body, {"freeze": change(kube, body)})
        if not options.no_wait:
            from tidegate.cli.following import follow
            from tidegate.clock import SystemClock

            follow(kube, CONNECTIONS, body, step, SystemClock(), timeout_s, screen)
        screen.show(f"kafkaconnection.tidegate.io/{visible(name_of(body))} {done}\n")
        return True

    return carried_out(prog, options, act, screen)


def frozen_step(body: Object) -> Step:
    """Done once the operator says of this generation that it is frozen."""
    from tidegate.cli.following import Step
    from tidegate.resources.base import read_status
    from tidegate.resources.conditions import FROZEN, find_condition
    from tidegate.resources.connection import ConnectionStatus

    said = find_condition(read_status(ConnectionStatus, body).conditions, FROZEN)
    if said is not None and said.observed_generation == body["metadata"].get("generation"):
        return Step(f"Frozen: {said.message}", done=True)
    return Step("the operator has not said so yet; one that starts later reads it before it begins anything")


def thawed_step(body: Object) -> Step:
    """Done once the operator has looked at this generation, and says nothing of being frozen."""
    from tidegate.cli.following import Step
    from tidegate.resources.base import read_status
    from tidegate.resources.conditions import FROZEN, find_condition
    from tidegate.resources.connection import ConnectionStatus

    status = read_status(ConnectionStatus, body)
    is_seen = status.observed_generation == body["metadata"].get("generation")
    if is_seen and find_condition(status.conditions, FROZEN) is None:
        return Step("what waited begins", done=True)
    return Step("the operator has not looked at it yet")
