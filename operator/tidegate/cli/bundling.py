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
    from tidegate.kube.ports import Kind, Object

_LOG_LINES: Final = 5_000
_LOG_BYTES: Final = 1024 * 1024
_EVENTS: Final = 1_000


def bundle_parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="tidegate bundle",
        description="Write a support archive: resources with their statuses, Events, versions, the operator's log and "
        "groups, without credentials and records. index.json in it says what is there, and what could not be read.",
        allow_abbrev=False,
    )
    parser.add_argument("--output", "-o", type=Path, metavar="FILE", help="absent, tidegate-bundle-TIME.tar.gz here")
    parser.add_argument("--group", action="append", default=[], metavar="GROUP", help="to describe, by Kafka")
    parser.add_argument(
        "--operator-namespace", default="tidegate-system", metavar="NAMESPACE", help="of its log (tidegate-system)"
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
        screen.note(f"tidegate bundle: {visible(str(path))} exists already: give another name by --output")
        return 1
    except OSError as failure:
        screen.note(f"tidegate bundle: {visible(str(failure))}")
        return 1
    for unseen in index["notIncluded"]:
        screen.note(f"Not included: {visible(unseen['what'])}: {visible(unseen['why'])}")
    screen.show(f"{path}: {len(index['files'])} file(s); look at them before you hand them on\n")
    return 0


@dataclass(frozen=True, slots=True)
class _Collecting:
    options: argparse.Namespace
    archive: Archive
    screen: Screen
    at: datetime

    def all(self) -> None:
        """Each part by itself: what can't be read is said in the index. Raises ``UsageError``."""
        from tidegate.kube.api import NoCluster

        self.archive.add_json(("versions.json",), "of what made this archive", _versions())
        try:
            kube = kube_client(self.options, everywhere=self.options.all_namespaces)
            core = self._core()
        except NoCluster as failure:
            self._left_out("resources, Events and logs", str(failure))
        else:
            self._resources(kube, core)
            self._logs(core)
        for group in self.options.group:
            self._group(group)

    def _resources(self, kube: KubeClient, core: CoreObjects) -> None:
        from tidegate.incident.redaction import redacted
        from tidegate.kube.ports import name_of, namespace_of

        namespaces = set() if self.options.all_namespaces else {namespace_of_options(self.options)}
        for kind, body in self._listed(kube):
            namespaces.add(namespace_of(body))
            where = ("resources", kind.plural, f"{namespace_of(body)}.{name_of(body)}.json")
            self.archive.add_json(where, f"a {kind.kind}", redacted(body))
        for namespace in sorted(namespaces):
            self._events(core, namespace)

    def _listed(self, kube: KubeClient) -> Iterator[tuple[Kind, Object]]:
        from tidegate.kube.ports import APPROVALS, BACKUPS, CONNECTIONS, MIRRORS, PAUSES, POLICIES, RESETS

        for kind in (CONNECTIONS, PAUSES, POLICIES, RESETS, APPROVALS, BACKUPS, MIRRORS):
            for body in self._asked(kind.plural, lambda kind=kind: kube.list(kind)) or ():  # type: ignore[misc]
                yield kind, body

    def _events(self, core: CoreObjects, namespace: str) -> None:
        from tidegate.incident.redaction import redacted
        from tidegate.kube.client import bounded_object

        what = f"Events in {namespace}"
        found = self._asked(what, lambda: bounded_object(what, core.list, "events", namespace, limit=_EVENTS))
        ours = [each for each in (found or {}).get("items", ()) if _is_ours(each)]
        if ours:
            told = {"items": [redacted(each) for each in ours]}
            self.archive.add_json(("events", f"{namespace}.json"), f"Events about resources in {namespace}", told)

    def _logs(self, core: CoreObjects) -> None:
        from tidegate.incident.redaction import text_redacted
        from tidegate.kube.client import bounded_call, bounded_object

        namespace = self.options.operator_namespace
        what, label = f"the operator's pods in {namespace}", "app.kubernetes.io/name=tidegate"
        found = self._asked(
            what, lambda: bounded_object(what, core.list, "pods", namespace, label_selector=label, limit=10)
        )
        if found is not None and not found["items"]:
            self._left_out(what, f"there is none with label {label}: name another by --operator-namespace")
        for pod in (found or {"items": ()})["items"]:
            name = str(pod["metadata"]["name"])
            which = f"the log of pod {namespace}/{name}"
            lines: dict[str, Any] = {"container": "operator", "tail_lines": _LOG_LINES, "limit_bytes": _LOG_BYTES}
            log = self._asked(which, lambda w=which, n=name, o=lines: bounded_call(w, core.log, namespace, n, **o))  # type: ignore[misc]
            if log is not None:
                self.archive.add(("operator", f"{name}.log"), which, text_redacted(log))

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
        self.archive.add_json(("groups", f"{group}.json"), f"group {group}, by Kafka", told)

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


def _is_ours(event: Mapping[str, Any]) -> bool:
    return str((event.get("involvedObject") or {}).get("apiVersion", "")).startswith("tidegate.io/")


def _versions() -> dict[str, str]:
    from importlib.metadata import PackageNotFoundError, version

    found = {"tidegate": __version__, "python": platform.python_version(), "platform": platform.platform()}
    for package in ("kubernetes", "confluent-kafka", "kafka-python", "pydantic"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found
