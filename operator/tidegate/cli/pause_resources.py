"""``tidegate pause`` and ``tidegate resume``: by ``ConsumerGroupPause``s, which the operator carries out.

``tidegate groups --pause`` pauses by Kafka alone.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from tidegate.cli.acting import (
    TRIES,
    Several,
    add_making,
    add_waiting,
    carried_out,
    create,
    delete,
    found,
    timeout_of,
)
from tidegate.cli.errors import CommandFailed, Parser, UsageError
from tidegate.cli.reaching import add_kubernetes, connection_ref, dumped, namespace_of_options
from tidegate.cli.screen import Screen
from tidegate.printable import visible

if TYPE_CHECKING:
    from tidegate.cli.following import Step
    from tidegate.clock import Clock
    from tidegate.kube.client import KubeClient
    from tidegate.kube.ports import Object


def pause_parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="tidegate pause",
        description="Pause partitions of consumer groups by creating a ConsumerGroupPause for each group, and wait "
        "until they are paused.",
        allow_abbrev=False,
    )
    parser.add_argument("group", nargs="+", metavar="GROUP", help="the id of a consumer group")
    parser.add_argument("--connection", "-c", required=True, metavar="[NAMESPACE/]NAME", help="the KafkaConnection")
    parser.add_argument(
        "--name", metavar="NAME", help="the name of the ConsumerGroupPause (default: one that the API server chooses)"
    )
    parser.add_argument(
        "--topic",
        action="append",
        default=[],
        metavar="TOPIC[:0,1]",
        help="a topic, or some of its partitions; may be given several times (default: all that the group reads)",
    )
    parser.add_argument("--reason", metavar="TEXT", help="the reason, for whoever finds the partitions paused")
    parser.add_argument(
        "--resume-after", metavar="DURATION", help="after how long the partitions resume automatically, such as 2h"
    )
    parser.add_argument(
        "--drain-timeout",
        metavar="DURATION",
        help="how long owners may take to finish the records that they were handed (default: 30s)",
    )
    parser.add_argument(
        "--workload",
        action="append",
        default=[],
        metavar="KIND/NAME",
        help="a workload of apps/v1 to scale to 0 if consumers run no agent, which pauses the whole group; may "
        "be given several times",
    )
    add_kubernetes(parser, of="of the ConsumerGroupPause")
    add_making(parser)
    add_waiting(parser, "2m")
    return parser


def run_pause(arguments: Sequence[str], screen: Screen) -> int:
    """0 once all are paused, or were only to be created or printed; 1 otherwise. Raises ``UsageError``."""
    options = pause_parser().parse_args(list(arguments))
    timeout_s = timeout_of(options)
    asked = [pause_of(options, group) for group in dict.fromkeys(options.group)]
    if options.name is not None and len(asked) > 1:
        raise UsageError("--name can be given for one group only: leave it out, or name one group")
    if options.output is not None:
        _check(asked)
        whole = {"apiVersion": "v1", "kind": "List", "items": asked} if len(asked) > 1 else asked[0]
        screen.show(dumped(whole, options.output))
        return 0

    def act(kube: KubeClient) -> bool:
        from tidegate.kube.ports import PAUSES

        if len(asked) > 1 and not options.dry_run:
            for pause in asked:  # all of them are judged before one is created
                kube.create(PAUSES, pause, dry_run=True)
        made = [create(kube, PAUSES, pause, options, screen) for pause in asked]
        if options.no_wait or options.dry_run:
            return True

        from tidegate.cli.following import follow, pause_step
        from tidegate.clock import SystemClock

        clock = SystemClock()
        until = clock.monotonic() + timeout_s
        done = True
        for body in made:
            left_s = max(0.0, until - clock.monotonic())
            done &= follow(kube, PAUSES, body, pause_step, clock, left_s, screen, context=options.context)
        return done

    return carried_out("tidegate pause", options, act, screen)


def pause_of(options: argparse.Namespace, group: str) -> dict[str, Any]:
    """The ``ConsumerGroupPause`` that the options ask for. Raises ``UsageError``."""
    from tidegate.cli.options import parse_topic
    from tidegate.kube.ports import PAUSES

    spec: dict[str, Any] = {"connectionRef": connection_ref(options.connection), "group": group}
    if options.topic:
        spec["partitions"] = [
            {"topic": each.topic, **({} if each.partitions is None else {"partitions": [*each.partitions]})}
            for each in map(parse_topic, options.topic)
        ]
    given = {"reason": options.reason, "resumeAfter": options.resume_after, "drainTimeout": options.drain_timeout}
    spec |= {member: value for member, value in given.items() if value is not None}
    if options.workload:
        spec["workloadRefs"] = [_workload(text) for text in options.workload]
    return {
        "apiVersion": PAUSES.api_version,
        "kind": PAUSES.kind,
        "metadata": {
            "namespace": namespace_of_options(options),
            **({"name": options.name} if options.name is not None else {"generateName": "pause-"}),
        },
        "spec": spec,
    }


def _check(asked: Sequence[Mapping[str, Any]]) -> None:
    """What is only printed no API server has judged. Raises ``UsageError``."""
    from tidegate.resources.base import InvalidResource, parse_spec
    from tidegate.resources.pause import ConsumerGroupPauseSpec

    try:
        for each in asked:
            parse_spec(ConsumerGroupPauseSpec, each)
    except InvalidResource as invalid:
        raise UsageError(str(invalid)) from invalid


def _workload(text: str) -> dict[str, str]:
    kind, slash, name = text.partition("/")
    if not slash or not name:
        raise UsageError(f"--workload {text}: must be KIND/NAME, such as Deployment/payments")
    return {"apiVersion": "apps/v1", "kind": kind, "name": name}


# --- resume -----------------------------------------------------------------------------------------------------------


def resume_parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="tidegate resume",
        description="Resume the partitions of a ConsumerGroupPause by deleting it, and wait until they are resumed.",
        allow_abbrev=False,
    )
    parser.add_argument("name", nargs="+", metavar="NAME", help="the name of the ConsumerGroupPause")
    parser.add_argument("--keep", action="store_true", help="set spec.suspend instead of deleting it")
    add_kubernetes(parser, of="of the ConsumerGroupPause")
    add_waiting(parser, "2m")
    return parser


def run_resume(arguments: Sequence[str], screen: Screen) -> int:
    """0 once all are resumed, or it was only to be asked for; 1 otherwise, also where one went without having resumed
    all. Raises ``UsageError``."""
    options = resume_parser().parse_args(list(arguments))
    timeout_s = timeout_of(options)

    def act(kube: KubeClient) -> bool:
        # All of them are there before anything is done to one, and all are asked for before one is waited for.
        from tidegate.clock import SystemClock
        from tidegate.kube.ports import PAUSES

        clock, several = SystemClock(), Several(PAUSES, screen)
        bodies = [found(kube, PAUSES, options, name) for name in dict.fromkeys(options.name)]
        end = clock.monotonic() + timeout_s
        asked: list[Object] = []
        for body in bodies:
            with several.one(body):
                asked.append(_asked_to_resume(kube, body, options))
        for body in asked:
            with several.one(body):
                _await_resumed(kube, body, options, clock, max(0.0, end - clock.monotonic()), screen)
        several.check(len(bodies), "resumed")
        return True

    return carried_out("tidegate resume", options, act, screen)


def _asked_to_resume(kube: KubeClient, body: Object, options: argparse.Namespace) -> Object:
    """Raises ``CommandFailed`` and ``KubeFailure``."""
    from tidegate.kube.ports import PAUSES, Conflict, name_of, uid_of

    if not options.keep:
        delete(kube, PAUSES, body, lambda _: None)
        return body
    newest = body
    for _ in range(TRIES):
        try:
            return kube.change_spec(PAUSES, newest, {"suspend": True})
        except Conflict:
            newest = found(kube, PAUSES, options, name_of(body))  # its status was written meanwhile
        if uid_of(newest) != uid_of(body):
            raise CommandFailed(
                "it was deleted, and another one was created with the same name: check the new one first"
            )
    raise CommandFailed("it kept changing, so it was not suspended: try again")


def _await_resumed(
    kube: KubeClient, body: Object, options: argparse.Namespace, clock: Clock, timeout_s: float, screen: Screen
) -> None:
    """Raises ``CommandFailed`` and ``KubeFailure``."""
    from tidegate.cli.following import follow, follow_deletion, pause_step
    from tidegate.kube.ports import PAUSES, name_of

    name, step = visible(name_of(body)), partial(pause_step, resumed=True)
    if options.keep:
        if not options.no_wait:
            follow(kube, PAUSES, body, step, clock, timeout_s, screen, context=options.context)
        screen.show(f"consumergrouppause.tidegate.io/{name} suspended\n")
        return
    last = None if options.no_wait else follow_deletion(kube, PAUSES, body, step, clock, timeout_s, screen)
    screen.show(f"consumergrouppause.tidegate.io/{name} {'is being deleted' if options.no_wait else 'deleted'}\n")
    if not options.no_wait:
        _check_left(kube, body, last, options)


def _check_left(kube: KubeClient, body: Object, last: Step | None, options: argparse.Namespace) -> None:
    """A deletion waits for so long only, and says in an Event what it has left. Raises ``CommandFailed``.

    ``last``: what its status said last, if anything.
    """
    from tidegate.incident.commands import place_of
    from tidegate.kube.ports import KubeFailure, name_of, namespace_of
    from tidegate.pause.release import LEFT_BEHIND

    try:
        told = kube.told_of(body, LEFT_BEHIND)
    except KubeFailure as failure:
        if last is not None and last.is_hindered:
            raise CommandFailed(
                "it is gone, but something of it may be left paused or stopped, as its Events say: kubectl get events "
                f"{place_of(namespace_of(body), options.context)} --field-selector involvedObject.name="
                f"{name_of(body)}. They were not seen: {failure}. Its last status was {last.line}"
            ) from failure
        return
    if told:
        raise CommandFailed(f"it is gone, and has left something: {'; '.join(told)}")
