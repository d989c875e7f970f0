"""``tidegate-operator``: puts the parts together and runs kopf."""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import os
import signal
import sys
from collections.abc import Sequence
from typing import Any, Final

import kopf

from tidegate.approval import handlers as approval_handlers
from tidegate.connection import handlers as connection_handlers
from tidegate.connection.files import FilesFailure
from tidegate.kube.api import NoCluster
from tidegate.kube.client import KubeClient
from tidegate.kube.ports import APPROVALS, BACKUPS, CONNECTIONS, MIRRORS, PAUSES, POLICIES, RESETS, KubeFailure
from tidegate.kube.uninstall_client import Named
from tidegate.offset_backup import handlers as backup_handlers
from tidegate.offset_mirror import handlers as mirror_handlers
from tidegate.offset_reset import handlers as reset_handlers
from tidegate.pause import handlers as pause_handlers
from tidegate.policy import handlers as policy_handlers
from tidegate.running import Replaced
from tidegate.service.logs import formatter
from tidegate.service.settings import BadSettings, Settings
from tidegate.uninstall import Leave, uninstall
from tidegate.wiring.operator import build

_log = logging.getLogger("tidegate")

_CHATTY: Final = {
    "kopf": logging.WARNING,
    "urllib3": logging.WARNING,
    "kubernetes": logging.WARNING,
    # It warns of each turn of its own loop that a busy machine made slow.
    "kafka": logging.ERROR,
}
"""Libraries whose log is of use only from this level on."""

_SERVED_AGAIN_S: Final = 1.0

_COLLECT_AFTER: Final = (10_000, 10, 10)
"""``gc.set_threshold``. With Python's own, a sixth of the CPU until 1,000 new resources had settled went into looking
through all that is kept, in vain mostly: one listing makes a hundred thousand objects, which soon go by themselves."""


def configure(settings: kopf.OperatorSettings) -> None:
    """kopf's settings. It stores nothing on our objects (``tidegate.kube.loop``); should it ever, under our prefix."""
    settings.persistence.finalizer = "tidegate.io/kopf"
    settings.persistence.progress_storage = kopf.AnnotationsProgressStorage(prefix="tidegate.io")
    settings.persistence.diffbase_storage = kopf.AnnotationsDiffBaseStorage(prefix="tidegate.io", key="last-handled")
    settings.networking.request_timeout = 30
    settings.networking.connect_timeout = 10
    settings.watching.server_timeout = 600
    settings.watching.client_timeout = 660
    settings.watching.connect_timeout = 10
    settings.posting.level = logging.WARNING
    settings.peering.standalone = True
    # Whom it serves is told by its environment, and its kinds are waited for: it needs no right to watch all of the
    # cluster's namespaces and CRDs.
    settings.scanning.disabled = True
    settings.process.ultimate_exiting_timeout = 60


async def _served(kube: KubeClient) -> None:
    """Wait until the API server serves our kinds: kopf looks for them once, when it starts."""
    said = ""
    for kind in (CONNECTIONS, POLICIES, RESETS, APPROVALS, PAUSES, BACKUPS, MIRRORS):
        while True:
            try:
                await asyncio.get_running_loop().run_in_executor(None, kube.list, kind)
                break
            except KubeFailure as failure:
                if str(failure) != said:
                    said = str(failure)
                    _log.warning("%s; install the CRDs, and see docs/reference/permissions.md for rights", failure)
            await asyncio.sleep(_SERVED_AGAIN_S)


async def _served_before(ended: asyncio.Event, kube: KubeClient) -> bool:
    """Whether our kinds are served; not where all is to end before that."""
    serving, ending = asyncio.create_task(_served(kube)), asyncio.create_task(ended.wait())
    try:
        await asyncio.wait((serving, ending), return_when=asyncio.FIRST_COMPLETED)
        if serving.done():
            serving.result()
        return not ended.is_set()
    finally:
        serving.cancel()
        ending.cancel()


def _collect_seldom() -> None:
    """Have the garbage collector leave out what was imported, which stays, and look at the rest less often."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_COLLECT_AFTER)


async def run(settings: Settings) -> None:
    """Run until told to stop (SIGTERM, SIGINT). Raises ``Replaced`` where another process took this one's place."""
    operator = build(settings)
    _collect_seldom()
    registry = kopf.OperatorRegistry()
    connection_handlers.register(registry, operator.connections, operator.connection_changed)
    policy_handlers.register(registry, operator.policies)
    reset_handlers.register(registry, operator.resets, operator.policies, operator.reset_changed)
    approval_handlers.register(registry, operator.approvals, operator.resets)
    pause_handlers.register(registry, operator.pauses)
    backup_handlers.register(registry, operator.backups)
    mirror_handlers.register(registry, operator.mirrors, operator.mirror_changed)
    kopf_settings = kopf.OperatorSettings()
    configure(kopf_settings)

    @kopf.on.login(registry=registry)
    def login(**arguments: Any) -> Any:
        return kopf.login_via_client(**arguments)

    ended = asyncio.Event()

    @kopf.on.cleanup(registry=registry)
    async def stop(**_: Any) -> None:
        # Here and not only below: kopf waits five seconds for whatever still runs on the loop when it has ended. That
        # includes its own wait for the flag, which it does not end where a signal has ended everything else.
        ended.set()
        await operator.stop()

    async def give_way() -> None:
        await operator.replaced.wait()
        # At once, and not only when kopf has ended: nothing more is to be done in another process's place.
        await operator.stop()
        ended.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        # Until kopf takes them. The first process of a container is not even ended by one that nobody takes.
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    await operator.start()
    giving_way = asyncio.create_task(give_way(), name="give way")
    try:
        if await _served_before(ended, operator.kube):
            await kopf.operator(
                registry=registry,
                settings=kopf_settings,
                clusterwide=not settings.namespaces,
                namespaces=settings.namespaces,
                standalone=True,
                stop_flag=ended,
            )
    finally:
        if not operator.replaced.is_set():
            giving_way.cancel()
        await operator.stop()
    if operator.replaced.is_set():
        raise Replaced(operator.why_replaced)


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point. 0: told to stop, or everything was let go of as far as that was possible; 1: nothing is known, do it
    again; 2: the settings or the cluster can't be used; 3: another process of this operator has taken this one's place.
    """
    asked = _arguments(arguments)
    try:
        settings = Settings.from_environment(os.environ)
    except BadSettings as bad:
        print(bad, file=sys.stderr)  # noqa: T201 - nothing is set up to log with yet
        return 2
    log = logging.StreamHandler(sys.stderr)
    log.setFormatter(formatter(settings.log_format))
    logging.basicConfig(level=settings.log_level, handlers=[log])
    for chatty, least in _CHATTY.items():
        logging.getLogger(chatty).setLevel(max(least, logging.getLevelName(settings.log_level)))
    try:
        if asked.command == "uninstall":
            asyncio.run(uninstall(settings, Leave(tuple(asked.deployment), asked.pods_limit)))
        else:
            asyncio.run(run(settings))
    except KubeFailure as failure:
        _log.error("%s", failure)
        return 1
    except Replaced as replaced:
        _log.error("ended: %s", replaced)
        return 3
    except (NoCluster, FilesFailure, OSError) as error:
        _log.error("%s", error)
        return 2
    return 0


def _arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="tidegate-operator", description="Runs the operator. Its settings are in its environment (TIDEGATE_*)."
    )
    commands = parser.add_subparsers(dest="command", metavar="[uninstall]")
    leave = commands.add_parser(
        "uninstall",
        help="end the operator and let go of everything",
        description="Ends the operator, opens all gates, puts back workloads and the offsets of runs in mid-flight, "
        "and takes Tidegate's finalizers off. The resources stay. May be done again.",
    )
    leave.add_argument(
        "--deployment",
        type=Named.parse,
        action="append",
        default=[],
        metavar="NAMESPACE/NAME",
        help="the operator's, to be ended first; may be given several times",
    )
    leave.add_argument(
        "--pods-limit", type=float, default=90.0, metavar="SECONDS", help="how long the operator's pods may take to end"
    )
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
