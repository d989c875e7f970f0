"""What commands share that make, change or follow a resource: their options, and how they end."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Protocol

from tidegate.cli.errors import CommandFailed, UsageError
from tidegate.cli.reaching import dumped, kube_client, namespace_of_options
from tidegate.cli.screen import Screen
from tidegate.printable import visible

if TYPE_CHECKING:
    from tidegate.kube.client import KubeClient
    from tidegate.kube.ports import Kind, Object


def add_waiting(parser: argparse.ArgumentParser, default: str) -> None:
    parser.add_argument(
        "--no-wait", action="store_true", help="return as soon as the API server has accepted the request"
    )
    parser.add_argument(
        "--timeout",
        default=default,
        metavar="DURATION",
        help=f"how long to wait (default: {default}); what was asked for continues after that",
    )


def add_making(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--dry-run", action="store_true", help="have the API server check the request, and create nothing"
    )
    parser.add_argument("--output", "-o", choices=("yaml", "json"), help="print the resource instead of creating it")


def timeout_of(options: argparse.Namespace) -> float:
    """In seconds. Raises ``UsageError``."""
    from tidegate.resources.durations import parse_duration

    try:
        return parse_duration(options.timeout).total_seconds()
    except ValueError as error:
        raise UsageError(f"--timeout {options.timeout}: {error}") from None


def carried_out(prog: str, options: argparse.Namespace, act: Callable[[KubeClient], bool], screen: Screen) -> int:
    """0 where ``act`` says that it has succeeded, or 1."""
    from tidegate.kube.api import NoCluster
    from tidegate.kube.ports import KubeFailure

    try:
        return 0 if act(kube_client(options)) else 1
    except (CommandFailed, KubeFailure, NoCluster) as failure:
        screen.note(f"{prog}: {visible(str(failure))}")
        return 1


def printed(options: argparse.Namespace, asked: Mapping[str, Any], screen: Screen) -> bool:
    """Whether it was to be printed, and was."""
    if options.output is None:
        return False
    screen.show(dumped(asked, options.output))
    return True


def found(kube: KubeClient, kind: Kind, options: argparse.Namespace, name: str) -> Object:
    """Raises ``CommandFailed`` where it is not there, and ``KubeFailure``."""
    from tidegate.kube.ports import NotFound

    namespace = namespace_of_options(options)
    try:
        return kube.get(kind, namespace, name)
    except NotFound:
        raise CommandFailed(
            f"there is no {kind.kind} {name} in namespace {namespace}: check the name, or give another --namespace"
        ) from None


class Creating(Protocol):
    """What creates as a user does."""

    def create(self, kind: Kind, body: Object, *, dry_run: bool = False) -> Object: ...


def created(
    kube: Creating, kind: Kind, asked: Mapping[str, Any], *, context: str | None = None, dry_run: bool = False
) -> Object:
    """The new object. ``context``: of the kubeconfig, where one was given. Raises ``KubeFailure``, and
    ``CommandFailed`` where it may be there all the same."""
    from tidegate.kube.ports import KubeUnavailable

    try:
        return kube.create(kind, asked, dry_run=dry_run)
    except KubeUnavailable as failure:
        if dry_run:
            raise
        raise CommandFailed(
            f"{failure}. The {kind.kind} may have been created anyway, and a second attempt would create "
            f"another one. To check first: {_looked_for(kind, asked, context)}"
        ) from failure


def _looked_for(kind: Kind, asked: Mapping[str, Any], context: str | None) -> str:
    from tidegate.incident.commands import place_of

    return f"kubectl get {place_of(asked['metadata']['namespace'], context)} {kind.plural}"


def create(kube: Creating, kind: Kind, asked: Mapping[str, Any], options: argparse.Namespace, screen: Screen) -> Object:
    """The new object, whose name is shown. Raises as ``created``."""
    from tidegate.kube.ports import name_of

    try:
        made = created(kube, kind, asked, context=options.context, dry_run=options.dry_run)
    except KeyboardInterrupt:
        if not options.dry_run:
            looked_for = _looked_for(kind, asked, options.context)
            screen.note(f"The {kind.kind} may have been created anyway. To check: {looked_for}")
        raise
    how = " (server dry run)" if options.dry_run else ""
    screen.show(f"{kind.kind.lower()}.{kind.group}/{visible(name_of(made))} created{how}\n")
    return made


TRIES: Final = 20
"""How often a change is tried again where the object was changed meanwhile."""


def delete(kube: KubeClient, kind: Kind, body: Object, check: Callable[[Object], object]) -> None:
    """Delete it as it was when ``check`` let it pass, again where its status was written meanwhile.

    Raises what ``check`` raises, ``CommandFailed`` where it is gone or another, and ``KubeFailure``.
    """
    from tidegate.kube.ports import NotFound, name_of, namespace_of, uid_of

    newest: Object = body
    for _ in range(TRIES):
        check(newest)
        if kube.remove(kind, newest):
            return
        try:
            newest = kube.get(kind, namespace_of(body), name_of(body))
        except NotFound:
            raise CommandFailed(f"{kind.kind} {name_of(body)} is already gone") from None
        if uid_of(newest) != uid_of(body):
            raise CommandFailed(
                f"{kind.kind} {name_of(body)} was deleted, and another one was created with the same name: check the "
                "new one first"
            )
    raise CommandFailed(f"{kind.kind} {name_of(body)} kept changing, so it was not deleted: try again")


class Several:
    """What a command does to several objects: what fails of one is told, and keeps nothing from the others."""

    def __init__(self, kind: Kind, screen: Screen) -> None:
        self._kind, self._screen = kind, screen
        self.failed = 0

    def label(self, body: Object) -> str:
        return f"{self._kind.kind} {visible(str(body['metadata']['name']))}"

    @contextmanager
    def one(self, body: Object) -> Iterator[None]:
        from tidegate.kube.ports import KubeFailure

        try:
            yield
        except (CommandFailed, KubeFailure) as failure:
            self._screen.note(f"{self.label(body)}: {visible(str(failure))}")
            self.failed += 1

    def check(self, all_of_them: int, done: str) -> None:
        """Raises ``CommandFailed`` where something has failed."""
        if self.failed:
            raise CommandFailed(
                f"{self.failed} of {all_of_them} {self._kind.kind}(s) could not be {done}, or were not {done} in time"
            )
