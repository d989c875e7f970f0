"""``tidegate ui``: serves the page on loopback until it is interrupted."""

from __future__ import annotations

import argparse
import asyncio
import os
import secrets
import signal
import socket
import sys
import tempfile
import webbrowser
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tidegate.cli.errors import Parser, UsageError
from tidegate.cli.reaching import add_kafka, add_kubernetes, namespace_of_options
from tidegate.cli.screen import Screen
from tidegate.printable import visible

if TYPE_CHECKING:
    from tidegate.cli.ui.server import Parts

HOST: Final = "127.0.0.1"
_THREADS: Final = 8
_WATCH_S: Final = 60
"""After so long each watch is asked for anew: one whose connection died unnoticed is not taken for quiet for long."""


def ui_parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="tidegate ui",
        description="Serve a page on this machine that shows connections, groups, resets as they happen, plans and "
        "pauses, and can approve and undo. It sees and does what your kubeconfig allows, until you end it "
        "with Ctrl-C.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--port", type=int, default=0, metavar="PORT", help="the port on 127.0.0.1 (default: a free one)"
    )
    parser.add_argument("--no-browser", action="store_true", help="only print the address")
    parser.add_argument(
        "--connection",
        "-c",
        metavar="[NAMESPACE/]NAME",
        help="the KafkaConnection whose cluster is asked for its groups, offsets and holds",
    )
    add_kafka(parser)
    add_kubernetes(parser, of="of the resources", all_namespaces=True)
    return parser


def run_ui(arguments: Sequence[str], screen: Screen) -> int:
    """0 once it was ended; 1 where it could not begin. Raises ``UsageError``."""
    options = ui_parser().parse_args(list(arguments))
    if options.connection is None and (options.bootstrap_server or options.command_config):
        raise UsageError("--bootstrap-server and --command-config need --connection, which says whose cluster it is")
    if options.command_config is not None and options.bootstrap_server is None:
        # A KafkaConnection could name anybody's servers, also after the page was started.
        raise UsageError("--command-config needs --bootstrap-server: credentials go only to servers that you name")
    if not 0 <= options.port <= 65535:
        raise UsageError("--port is a number up to 65535")

    from tidegate.kube.api import NoCluster

    try:
        with ExitStack() as until_ended, closing(_listening(options.port)) as listening:
            return asyncio.run(_served(options, listening, screen, until_ended))
    except NoCluster as failure:
        screen.note(f"tidegate ui: {visible(str(failure))}")
        return 1
    except OSError as failure:
        screen.note(f"tidegate ui: can't listen on {HOST}:{options.port}: {failure.strerror}")
        return 1


def _listening(port: int) -> socket.socket:
    """Raises ``OSError``."""
    made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((HOST, port))
    except OSError:
        made.close()
        raise
    return made


def host_of(port: int) -> str:
    """As browsers write it in ``Host`` and ``Origin``: without the port that HTTP has by itself."""
    return HOST if port == 80 else f"{HOST}:{port}"


async def _served(options: argparse.Namespace, listening: socket.socket, screen: Screen, until_ended: ExitStack) -> int:
    from aiohttp import web

    from tidegate.cli.ui.guard import Guard
    from tidegate.cli.ui.server import Page, runner_of

    parts = _parts(options, screen, until_ended)
    host, token = host_of(listening.getsockname()[1]), secrets.token_urlsafe(32)
    runner = runner_of(Page(parts).application(Guard(host, token)))
    await runner.setup()
    try:
        await web.SockSite(runner, listening).start()
        # In the part that no browser sends, and no server or proxy logs.
        address = f"http://{host}/#token={token}"
        screen.show(f"{address}\n")
        screen.out.flush()
        screen.note(
            "Open this address in a browser on this machine. Whoever has it can do what you may do. Ctrl-C ends "
            "the page."
        )
        if not options.no_browser:
            _open(address, until_ended)
        await _interrupted()
    finally:
        await runner.cleanup()
    return 0


def _parts(options: argparse.Namespace, screen: Screen, until_ended: ExitStack) -> Parts:
    """Raises ``NoCluster`` and ``UsageError``."""
    from tidegate.cli.ui.actions import StoredRuns
    from tidegate.cli.ui.board import Board
    from tidegate.cli.ui.following import Following
    from tidegate.cli.ui.kafka import eye
    from tidegate.cli.ui.rows import WATCHED
    from tidegate.cli.ui.server import Parts
    from tidegate.clock import SystemClock
    from tidegate.kube.api import default_api_client
    from tidegate.kube.client import KubeClient
    from tidegate.kube.watching import WatchClient

    clock, api_client = SystemClock(), default_api_client(options.context)
    namespace = "" if options.all_namespaces else namespace_of_options(options)
    kube = KubeClient(api_client, clock, [namespace] if namespace else [])
    kafka = until_ended.enter_context(closing(eye(options, kube, clock, screen)))
    board = Board(WATCHED)
    following = Following(WATCHED, WatchClient(api_client, namespace, seconds=_WATCH_S), board)
    until_ended.callback(following.stop)
    following.start()
    executor = ThreadPoolExecutor(_THREADS, thread_name_prefix="tidegate-ui")
    # One question at a time, as the eye asks them.
    looking = ThreadPoolExecutor(1, thread_name_prefix="tidegate-ui-kafka")
    for each in (executor, looking):
        until_ended.callback(each.shutdown, wait=False, cancel_futures=True)
    about = {
        "you": _own_name(kube),
        "where": f"namespace {namespace}" if namespace else "all namespaces",
        "server": visible(str(api_client.configuration.host)),
    }
    return Parts(board, kube, StoredRuns(api_client), kafka, clock, executor, looking, about, options.context)


def _own_name(kube: Any) -> str:
    from tidegate.kube.ports import KubeFailure

    try:
        return visible(kube.own_name())
    except KubeFailure:
        return "not known to the API server, or it does not answer"


def _open(address: str, until_ended: ExitStack) -> None:
    """By a file that only its owner can read: everybody can read with which arguments a browser is started."""
    if sys.platform == "linux" and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        return  # what would be opened is a browser in this terminal
    folder = until_ended.enter_context(tempfile.TemporaryDirectory(prefix="tidegate-ui-"))
    page = Path(folder) / "open.html"
    page.write_text(f'<!doctype html><meta http-equiv="refresh" content="0;url={escape(address)}">', encoding="utf-8")
    webbrowser.open(page.as_uri())


async def _interrupted() -> None:
    over, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, over.set)
    await over.wait()
