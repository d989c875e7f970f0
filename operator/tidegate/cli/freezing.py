"""``tidegate freeze`` and ``tidegate thaw``: nothing new begins through KafkaConnections, by their ``spec.freeze``."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from tidegate.cli.acting import TRIES, Several, add_waiting, carried_out, found, timeout_of
from tidegate.cli.errors import CommandFailed, Parser, UsageError
from tidegate.cli.reaching import add_kubernetes, namespace_of_options
from tidegate.cli.screen import Screen
from tidegate.incident.seen import UNREADABLE
from tidegate.printable import visible

if TYPE_CHECKING:
    from tidegate.cli.following import Step
    from tidegate.kube.client import KubeClient
    from tidegate.kube.ports import Object

_UNKNOWN: Final = "unknown"


def freeze_parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="tidegate freeze",
        description="Freeze a KafkaConnection, so that nothing new begins through it: no reset, pause or mirror, and "
        "no restored offset or start of a new partition. What is running continues to its end, and what is held "
        "stays held.",
        allow_abbrev=False,
    )
    _add_which(parser)
    parser.add_argument(
        "--reason", required=True, metavar="TEXT", help="the reason, for whoever waits because of the freeze"
    )
    _add_rest(parser)
    return parser


def thaw_parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="tidegate thaw",
        description="End the freeze of a KafkaConnection, so that what waits because of it can begin.",
        allow_abbrev=False,
    )
    _add_which(parser)
    _add_rest(parser)
    return parser


def _add_which(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("connection", nargs="?", metavar="NAME", help="the name of the KafkaConnection")
    parser.add_argument("--all", action="store_true", help="every KafkaConnection of the namespace, instead of NAME")


def _add_rest(parser: argparse.ArgumentParser) -> None:
    add_kubernetes(parser, of="of the KafkaConnection")
    add_waiting(parser, "1m")


def run_freeze(arguments: Sequence[str], screen: Screen) -> int:
    """0 once the operator goes by it, or it was only to be asked for; 1 otherwise. Raises ``UsageError``."""
    options = freeze_parser().parse_args(list(arguments))

    def wish(kube: KubeClient) -> dict[str, str]:
        from tidegate.clock import SystemClock
        from tidegate.resources.timestamps import format_timestamp

        since = format_timestamp(SystemClock().now().replace(microsecond=0))
        return {"by": _own_name(kube, screen), "since": since, "reason": options.reason}

    return _changed(options, screen, _Way("freeze", "frozen", wish, frozen_step))


def run_thaw(arguments: Sequence[str], screen: Screen) -> int:
    """0 once the operator goes by it, or it was only to be asked for; 1 otherwise. Raises ``UsageError``."""
    options = thaw_parser().parse_args(list(arguments))
    return _changed(options, screen, _Way("thaw", "thawed", lambda _kube: None, thawed_step))


def _own_name(kube: KubeClient, screen: Screen) -> str:
    """Older API servers do not tell whoever asks, and some may not ask: nobody waits for a name in an incident."""
    from tidegate.kube.ports import KubeFailure

    try:
        return kube.own_name()[:256] or _UNKNOWN
    except KubeFailure as failure:
        screen.note(
            f"your user name is recorded as {_UNKNOWN}, because the API server did not say who you are: "
            f"{visible(str(failure))}"
        )
        return _UNKNOWN


@dataclass(frozen=True, slots=True)
class _Way:
    """``command``: ``freeze`` or ``thaw``; ``wish``: what ``spec.freeze`` is to be."""

    command: str
    done: str
    wish: Callable[[KubeClient], dict[str, str] | None]
    step: Callable[[Object], Step]

    def why_not(self, body: Object) -> str:
        """Why nothing is to be done about a connection; empty: something is."""
        freeze = _freeze_of(body)
        if self.command == "thaw":
            return "" if freeze is not None else "it is not frozen"
        return f"it is already frozen{_by(freeze)}. tidegate thaw ends the freeze" if freeze is not None else ""


def _freeze_of(body: Object) -> Mapping[str, Any] | None:
    freeze: Mapping[str, Any] | None = (body.get("spec") or {}).get("freeze")
    return freeze


def _by(freeze: Mapping[str, Any]) -> str:
    by = f", by {freeze['by']}" if freeze.get("by") else ""
    return f"{by}: {freeze.get('reason', '')}"


def _changed(options: argparse.Namespace, screen: Screen, way: _Way) -> int:
    timeout_s, prog = timeout_of(options), f"tidegate {way.command}"
    if options.all is (options.connection is not None):
        raise UsageError("give the NAME of a KafkaConnection, or --all")
    act = _all_of if options.all else _one_of
    return carried_out(prog, options, lambda kube: act(kube, options, timeout_s, way, screen), screen)


def _one_of(kube: KubeClient, options: argparse.Namespace, timeout_s: float, way: _Way, screen: Screen) -> bool:
    from tidegate.kube.ports import CONNECTIONS

    body = found(kube, CONNECTIONS, options, options.connection)
    why_not = way.why_not(body)
    if not why_not:
        body, why_not = _set(kube, body, way, way.wish(kube))
    if why_not:
        raise CommandFailed(why_not)
    if not options.no_wait:
        _wait(kube, body, way.step, timeout_s, options.context, screen)
    _show(body, way, screen)
    return True


def _all_of(kube: KubeClient, options: argparse.Namespace, timeout_s: float, way: _Way, screen: Screen) -> bool:
    """First all are asked for, and then waited for: with one that fails the others are frozen all the same."""
    from tidegate.clock import SystemClock
    from tidegate.kube.ports import CONNECTIONS, name_of

    bodies = sorted(kube.list(CONNECTIONS), key=name_of)
    if not bodies:
        raise CommandFailed(
            f"there is no KafkaConnection in namespace {namespace_of_options(options)}: give another --namespace"
        )
    wish, clock, several = way.wish(kube), SystemClock(), Several(CONNECTIONS, screen)
    asked, end = [], clock.monotonic() + timeout_s
    for first in bodies:
        with several.one(first):
            body, why_not = _set(kube, first, way, wish)
            if why_not:
                screen.note(f"{several.label(body)}: {visible(why_not)}")
            elif way.command == "thaw":
                screen.note(f"{several.label(body)}: it was frozen{visible(_by(first['spec']['freeze']))}")
            if not why_not or way.command == "freeze":
                asked.append(body)
    for body in asked:
        with several.one(body):
            if not options.no_wait:
                left_s, prefix = max(0.0, end - clock.monotonic()), f"{several.label(body)}: "
                _wait(kube, body, way.step, left_s, options.context, screen, prefix)
            _show(body, way, screen)
    several.check(len(bodies), way.done)
    return True


def _set(kube: KubeClient, body: Object, way: _Way, wish: dict[str, str] | None) -> tuple[Object, str]:
    """The connection with that ``spec.freeze``, also where it is changed at the same time; or as it is, and why nothing
    was done about it.

    Raises ``KubeFailure``, and ``CommandFailed`` where the freeze that was to be ended is another one by now, where the
    connection is another one, and where it changes all the time.
    """
    from tidegate.kube.ports import CONNECTIONS, Conflict, name_of, namespace_of, uid_of

    first = body
    for _ in range(TRIES):
        if why_not := way.why_not(body):
            return body, why_not
        try:
            return kube.change_spec(CONNECTIONS, body, {"freeze": wish}), ""
        except Conflict:
            body = kube.get(CONNECTIONS, namespace_of(body), name_of(body))
        if uid_of(body) != uid_of(first):
            raise CommandFailed(
                "it was deleted, and another one was created with the same name: check the new one first"
            )
        freeze = _freeze_of(body)
        if freeze == wish:
            return body, ""  # by somebody else, or by us: the answer to a change may be lost
        if way.command == "thaw" and freeze is not None and freeze != _freeze_of(first):
            by = _by(freeze)
            raise CommandFailed(f"somebody else has frozen it again{by}. To end that freeze too, thaw it once more")
    raise CommandFailed("it kept changing, so its spec.freeze was not changed: try again")


def _wait(
    kube: KubeClient,
    body: Object,
    step: Callable[[Object], Step],
    timeout_s: float,
    context: str | None,
    screen: Screen,
    prefix: str = "",
) -> None:
    from tidegate.cli.following import follow
    from tidegate.clock import SystemClock
    from tidegate.kube.ports import CONNECTIONS

    def labelled(newest: Object) -> Step:
        said = step(newest)
        return replace(said, line=prefix + said.line)

    follow(kube, CONNECTIONS, body, labelled, SystemClock(), timeout_s, screen, context=context)


def _show(body: Object, way: _Way, screen: Screen) -> None:
    screen.show(f"kafkaconnection.tidegate.io/{visible(str(body['metadata']['name']))} {way.done}\n")


def frozen_step(body: Object) -> Step:
    """Done once the operator says of this generation that it is frozen."""
    from tidegate.cli.following import Step
    from tidegate.resources.base import has_readable_status, read_status
    from tidegate.resources.conditions import FROZEN, find_condition
    from tidegate.resources.connection import ConnectionStatus

    if not has_readable_status(ConnectionStatus, body):
        return Step(UNREADABLE)
    said = find_condition(read_status(ConnectionStatus, body).conditions, FROZEN)
    if said is not None and said.observed_generation == body["metadata"].get("generation"):
        return Step(f"Frozen: {said.message}", done=True)
    return Step(
        "the operator has not confirmed the freeze yet; one that starts later reads it before it begins anything"
    )


def thawed_step(body: Object) -> Step:
    """Done once the operator has looked at this generation, and says nothing of being frozen."""
    from tidegate.cli.following import Step
    from tidegate.resources.base import has_readable_status, read_status
    from tidegate.resources.conditions import FROZEN, find_condition
    from tidegate.resources.connection import ConnectionStatus

    if not has_readable_status(ConnectionStatus, body):
        return Step(UNREADABLE)
    status = read_status(ConnectionStatus, body)
    is_seen = status.observed_generation == body["metadata"].get("generation")
    if is_seen and find_condition(status.conditions, FROZEN) is None:
        return Step("what was waiting begins", done=True)
    return Step("the operator has not looked at the change yet")
