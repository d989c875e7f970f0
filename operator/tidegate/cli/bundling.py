"""``tidegate bundle``: a support archive of resources, Events, the operator's log and groups, without credentials."""

from __future__ import annotations

import argparse
import os
import platform
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tidegate import __version__
from tidegate.cli.errors import CommandFailed, Parser, UsageError
from tidegate.cli.reaching import add_kafka, add_kubernetes, kube_client, namespace_of_options
from tidegate.cli.screen import Screen
from tidegate.printable import visible

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidegate.incident.archive import Archive
    from tidegate.kube.client import KubeClient
    from tidegate.kube.core import CoreObjects
    from tidegate.kube.ports import Object

_LOG_LINES: Final = 5_000
_LOG_BYTES: Final = 1024 * 1024
_PAGE: Final = 500
"""Events, or pods, in one answer to a listing."""


def bundle_parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="tidegate bundle",
        description="Write a support archive: resources with their statuses, Events, versions, the operator's log and "
        "groups, without credentials or records. The index.json in it says what is there, and what could "
        "not be read.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--output",
        "-o",
        type=Path,
        metavar="FILE",
        help="the archive to write (default: tidegate-bundle-TIME.tar.gz in the current directory)",
    )
    parser.add_argument(
        "--group",
        action="append",
        default=[],
        metavar="GROUP",
        help="a group to describe, as Kafka reports it; may be given several times",
    )
    parser.add_argument(
        "--operator-namespace",
        default="tidegate-system",
        metavar="NAMESPACE",
        help="the namespace of the operator, for its log (default: tidegate-system)",
    )
    add_kafka(parser)
    add_kubernetes(parser, of="of the resources", all_namespaces=True)
    return parser


def run_bundle(arguments: Sequence[str], screen: Screen) -> int:
    """0, or 1 where it could not be written. Raises ``UsageError``."""
    options = bundle_parser().parse_args(list(arguments))
    if options.group and not options.bootstrap_server:
        raise UsageError("--group needs --bootstrap-server")

    from tidegate.clock import SystemClock
    from tidegate.incident.archive import Archive

    at = SystemClock().now()
    folder = f"tidegate-bundle-{at:%Y%m%dT%H%M%SZ}"
    path = options.output or Path(f"{folder}.tar.gz")
    try:
        # Its reader may see less than its writer, so nobody else reads it here; and what is there is not written over.
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with ExitStack() as undoing:
            # Half an archive can't be read, and would be in the way of the next one.
            undoing.callback(path.unlink, missing_ok=True)
            with os.fdopen(descriptor, "wb") as out:
                archive = Archive(out, folder, at)
                _Collecting(options, archive, screen, at).all()
                index = archive.close()
            undoing.pop_all()
    except FileExistsError:
        screen.note(f"tidegate bundle: {visible(str(path))} already exists: give another name with --output")
        return 1
    except OSError as failure:
        screen.note(f"tidegate bundle: {visible(str(failure))}")
        return 1
    for unseen in index["notIncluded"]:
        screen.note(f"Not included: {visible(unseen['what'])}: {visible(unseen['why'])}")
    screen.show(f"{path}: {len(index['files'])} file(s); look at them before you pass them on\n")
    return 0


@dataclass(frozen=True, slots=True)
class _Collecting:
    options: argparse.Namespace
    archive: Archive
    screen: Screen
    at: datetime

    def all(self) -> None:
        """Each part by itself: what can't be read is said in the index. Raises ``UsageError``.

        Resources come last: there may be more of them than an archive holds, and the others are few.
        """
        from tidegate.kube.api import NoCluster

        for group in self.options.group:
            self._group(group)
        try:
            kube = kube_client(self.options, everywhere=self.options.all_namespaces)
            core = self._core()
        except NoCluster as failure:
            self._left_out("resources, Events and logs", str(failure))
            self._versions(None)
            return
        self._versions(core)
        self._logs(core)
        self._events(core)
        self._resources(kube)

    def _versions(self, core: CoreObjects | None) -> None:
        from tidegate.kube.client import bounded_object

        found, what = _versions(), "the version of the API server"
        server = self._asked(what, lambda: bounded_object(what, core.version)) if core is not None else None
        if server is not None:
            found["kubernetesServer"] = str(server.get("gitVersion", ""))
        self.archive.add_json(
            ("versions.json",), "the versions of what made this archive, and of the API server", found
        )

    def _resources(self, kube: KubeClient) -> None:
        from tidegate.incident.redaction import redacted
        from tidegate.kube.ports import (
            APPROVALS,
            BACKUPS,
            CONNECTIONS,
            MIRRORS,
            PAUSES,
            POLICIES,
            RESETS,
            name_of,
            namespace_of,
        )

        # Those that may be very many come last, and of each kind the newest first.
        for kind in (CONNECTIONS, POLICIES, MIRRORS, PAUSES, BACKUPS, RESETS, APPROVALS):
            found = self._asked(kind.plural, lambda kind=kind: kube.list(kind)) or ()  # type: ignore[misc]
            for body in sorted(found, key=_made_at, reverse=True):
                where = ("resources", kind.plural, f"{namespace_of(body)}.{name_of(body)}.json")
                self.archive.add_json(where, f"a {kind.kind}", redacted(body))

    def _events(self, core: CoreObjects) -> None:
        from tidegate.incident.archive import MOST_BYTES_OF_ONE
        from tidegate.incident.events import ABOUT_OURS, newest_events
        from tidegate.kube.client import bounded_object

        namespace = "" if self.options.all_namespaces else namespace_of_options(self.options)
        where = namespace or "all namespaces"

        def list_page(following: str) -> Mapping[str, Any]:
            options: dict[str, Any] = {"field_selector": ABOUT_OURS, "limit": _PAGE, "following": following}
            return bounded_object(f"list Events in {where}", core.list, "events", namespace, **options)

        found = newest_events(list_page, where, MOST_BYTES_OF_ONE)
        for of, events in found.kept.items():
            told = {"items": events}
            self.archive.add_json(("events", f"{of}.json"), f"Events about resources in {of}, newest first", told)
        for unseen in found.unseen:
            self._left_out(unseen.what, unseen.why)

    def _logs(self, core: CoreObjects) -> None:
        from tidegate.incident.redaction import log_redacted

        namespace = self.options.operator_namespace
        what, label = f"the operator's pods in {namespace}", "app.kubernetes.io/name=tidegate"
        names = self._asked(what, lambda: list(_pods(core, namespace, label, what)))
        if names is not None and not names:
            self._left_out(what, f"no pod has the label {label}: name another namespace with --operator-namespace")
        for name in names or ():
            which = f"the log of pod {namespace}/{name}"
            log = self._asked(which, lambda n=name, w=which: self._newest_lines(core, namespace, n, w))  # type: ignore[misc]
            if log is not None:
                self.archive.add(("operator", f"{name}.log"), which, log_redacted(log))

    def _newest_lines(self, core: CoreObjects, namespace: str, pod: str, what: str) -> str:
        """A kubelet answers with the first bytes of the last lines, so fewer lines are asked for until all fit. Raises
        ``KubeFailure``."""
        from tidegate.kube.client import bounded_call

        lines = _LOG_LINES
        while True:
            options: dict[str, Any] = {"container": "operator", "tail_lines": lines, "limit_bytes": _LOG_BYTES}
            log: str = bounded_call(what, core.log, namespace, pod, **options)
            if len(log.encode()) < _LOG_BYTES or lines == 1:
                break
            lines //= 2
        if lines < _LOG_LINES:
            self._left_out(
                f"{what} before its last {lines} line(s)", f"with them, the log would be larger than {_LOG_BYTES} bytes"
            )
        return log

    def _group(self, group: str) -> None:
        from tidegate.cli.why import Look
        from tidegate.incident.account import account_of
        from tidegate.incident.as_json import as_json
        from tidegate.incident.redaction import redacted
        from tidegate.incident.sentences import sections

        asked = {**vars(self.options), "group": group, "connection": None, "no_kubernetes": True}
        with ExitStack() as until_seen:
            seen = Look(argparse.Namespace(**asked), self.screen, until_seen).seen()
        account = account_of(seen)
        for unseen in seen.kafka.unseen if seen.kafka is not None else ():
            self._left_out(f"group {group}: {unseen.what}", unseen.why)
        told = redacted(as_json(seen, account, sections(seen, account)))
        self.archive.add_json(("groups", f"{group}.json"), f"group {group}, as Kafka reports it", told)

    def _core(self) -> CoreObjects:
        from tidegate.kube.api import default_api_client
        from tidegate.kube.core import CoreObjects

        return CoreObjects(default_api_client(self.options.context))

    def _asked(self, what: str, ask: Callable[[], Any]) -> Any:
        from tidegate.kube.ports import KubeFailure

        try:
            return ask()
        except (CommandFailed, KubeFailure) as failure:
            self._left_out(what, str(failure))
            return None

    def _left_out(self, what: str, why: str) -> None:
        from tidegate.incident.redaction import text_redacted
        from tidegate.incident.seen import Unseen

        self.archive.left_out(Unseen(what, text_redacted(why)))


def _pods(core: CoreObjects, namespace: str, label: str, what: str) -> Iterator[str]:
    """Their names. Raises ``KubeFailure``."""
    from tidegate.kube.client import bounded_object

    following = ""
    while True:
        options: dict[str, Any] = {"label_selector": label, "limit": _PAGE, "following": following}
        page = bounded_object(what, core.list, "pods", namespace, **options)
        yield from (str(pod["metadata"]["name"]) for pod in page["items"])
        following = (page.get("metadata") or {}).get("continue") or ""
        if not following:
            return


def _made_at(body: Object) -> str:
    return str(body["metadata"].get("creationTimestamp", ""))


def _versions() -> dict[str, str]:
    from importlib.metadata import PackageNotFoundError, version

    found = {"tidegate": __version__, "python": platform.python_version(), "platform": platform.platform()}
    for package in ("kubernetes", "confluent-kafka", "kafka-python", "pydantic"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found
