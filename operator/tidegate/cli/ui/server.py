"""The HTTP server of the page: its files, what is listed as server-sent events, details, approve and undo."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Final, TypeVar

from aiohttp import web

from tidegate.cli.errors import CommandFailed
from tidegate.cli.plan_page_parts import STYLE
from tidegate.cli.ui.actions import Client, Runs, approve, plan_html, undo
from tidegate.cli.ui.board import Board, TooManyListeners
from tidegate.cli.ui.details import group_detail, object_detail, reset_detail
from tidegate.cli.ui.guard import Guard, guarded, with_headers
from tidegate.cli.ui.kafka import Eye
from tidegate.cli.ui.rows import SHOWN
from tidegate.clock import Clock
from tidegate.incident.gather_kube import approvals_by_reset
from tidegate.incident.seen import KafkaSeen
from tidegate.kafka.errors import KafkaFailure
from tidegate.kube.ports import (
    APPROVALS,
    RESETS,
    Kind,
    KubeFailure,
    KubeUnavailable,
    NotFound,
    Object,
    connection_named,
)
from tidegate.printable import visible
from tidegate.reset.document import StoreFailure
from tidegate.reset.store import ForeignRun, ForgedRun, Run
from tidegate.resources.base import InvalidResource
from tidegate.threads import in_thread

T = TypeVar("T")

_FILES: Final = {
    "/": ("index.html", "text/html"),
    "/app.css": ("app.css", "text/css"),
    "/icon.svg": ("icon.svg", "image/svg+xml"),
    **{f"/{name}": (name, "text/javascript") for name in ("app.js", "dom.js", "lists.js", "live.js", "detail.js")},
}
_LARGEST_BODY: Final = 16 * 1024
MOST_GROUPS: Final = 20_000
"""That are listed for a page, by name; how many more there are is said."""
_ALIVE_S: Final = 15.0
"""A comment is sent after so long without news: a browser that went away is noticed."""
_SHUTDOWN_S: Final = 0.5
LEAST_S: Final = 0.25
"""Between two pieces of news to one tab."""


@dataclass(frozen=True, slots=True)
class Parts:
    """``about``: who asks which cluster, for the head of the page; ``context``: of the kubeconfig, where one was given.
    ``runs``: where plans are read.

    ``looking``: for what Kafka is asked; whoever waits for brokers that do not answer keeps nobody from approving."""

    board: Board
    kube: Client
    runs: Runs
    eye: Eye
    clock: Clock
    executor: Executor
    looking: Executor
    about: Mapping[str, str]
    context: str | None = None


class Page:
    """Handlers. Each blocking call is made in a thread of the executor."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._kinds = {kind.plural: kind for kind in SHOWN}

    def application(self, guard: Guard) -> web.Application:
        app = web.Application(middlewares=[guarded(guard)], client_max_size=_LARGEST_BODY)
        app.on_response_prepare.append(with_headers)
        for path, (name, content_type) in _FILES.items():
            app.router.add_get(
                path, _text((files("tidegate.cli.ui") / "static" / name).read_text("utf-8"), content_type)
            )
        app.router.add_get("/plan.css", _text(STYLE, "text/css"))
        app.router.add_get("/api/events", self.events)
        app.router.add_get("/api/groups", _answering(self.groups))
        app.router.add_get("/api/group", _answering(self.group))
        app.router.add_get("/api/reset/{namespace}/{name}", _answering(self.reset))
        app.router.add_get("/api/plan/{namespace}/{name}", _answering(self.plan))
        app.router.add_get("/api/object/{plural}/{namespace}/{name}", _answering(self.object))
        app.router.add_post("/api/approve", _answering(self.approve))
        app.router.add_post("/api/undo", _answering(self.undo))
        return app

    # --- live ---------------------------------------------------------------------------------------------------------

    async def events(self, request: web.Request) -> web.StreamResponse:
        """All lines, then those that change, as ``text/event-stream``."""
        try:
            listener = self._parts.board.listen()
        except TooManyListeners as error:
            return web.json_response({"message": str(error)}, status=503)
        answer = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
        try:
            await answer.prepare(request)
            await answer.write(_event("about", {**self._parts.about, "aliveS": _ALIVE_S}))
            while True:
                news = await listener.news(_ALIVE_S)
                if news is None:
                    await answer.write(b": alive\n\n")
                    continue
                await answer.write(_event("lines" if news.whole else "changes", news.as_json()))
                await asyncio.sleep(LEAST_S)
        except ConnectionResetError:
            return answer
        finally:
            listener.close()

    async def groups(self, _request: web.Request) -> Mapping[str, Any]:
        """The groups of the cluster that is asked."""
        eye = self._parts.eye
        if eye.connection is None:
            return {"groups": [], "groupsOmitted": 0, "connection": None, "why": eye.why}
        found = await in_thread(self._parts.looking, eye.groups)
        return {
            "groups": [
                {"group": g.group_id, "type": visible(g.type), "state": visible(g.state)} for g in found[:MOST_GROUPS]
            ],
            "groupsOmitted": max(0, len(found) - MOST_GROUPS),
            "connection": "/".join(eye.connection),
            "why": "",
        }

    # --- details ------------------------------------------------------------------------------------------------------

    async def group(self, request: web.Request) -> Mapping[str, Any]:
        group_id = request.query.get("group", "")
        namespace, _, name = request.query.get("connection", "").partition("/")
        eye = self._parts.eye
        asked = eye.connection == (namespace, name)
        seen = await self._looked_at(group_id) if asked else None
        why = (
            eye.why or "only the cluster of --connection is asked, and this group is reached through another connection"
        )
        parts, connection = self._parts, (namespace, name)
        return await self._called(
            lambda: group_detail(group_id, connection, parts.board, seen, why, parts.clock.now(), parts.context)
        )

    async def reset(self, request: web.Request) -> Mapping[str, Any]:
        namespace, name = request.match_info["namespace"], request.match_info["name"]
        body = await self._body(RESETS, namespace, name)
        of_fleet = request.query.get("group")
        run, problem = await self._run(body, of_fleet)
        group_id = run.request.group_id if run is not None and run.plan is not None else ""
        asked = bool(group_id) and self._parts.eye.connection == connection_named(body)
        seen = await self._looked_at(group_id) if asked else None
        approvals = approvals_by_reset(self._approvals()).get((namespace, name), ())
        detail = reset_detail(body, run, problem, seen, approvals)
        # What is approved is the fleet's plan, and never that of one of its groups.
        return {**detail, "digest": None} if of_fleet else detail

    def _approvals(self) -> list[Object]:
        try:
            return list(self._parts.board.list(APPROVALS))
        except KubeFailure:
            return []  # which is said on the page, as for each kind

    async def plan(self, request: web.Request) -> Mapping[str, Any]:
        namespace, name = request.match_info["namespace"], request.match_info["name"]
        body = await self._body(RESETS, namespace, name)
        run, problem = await self._run(body, request.query.get("group"))
        if run is None:
            raise CommandFailed(problem)
        html = plan_html(namespace, run, self._parts.clock.now(), self._parts.context)
        return {"digest": run.digest, "html": html}

    async def object(self, request: web.Request) -> Mapping[str, Any]:
        kind = self._kinds.get(request.match_info["plural"])
        if kind is None:
            raise web.HTTPNotFound(reason="There is no such kind")
        body = await self._body(kind, request.match_info["namespace"], request.match_info["name"])
        return object_detail(kind, body, self._parts.clock.now(), self._parts.context)

    async def _body(self, kind: Kind, namespace: str, name: str) -> Object:
        """As it was seen last, or as it is where it was not seen: created just now, or without the right to list."""
        try:
            return self._parts.board.get(kind, namespace, name)
        except NotFound:
            return await self._called(lambda: self._parts.kube.get(kind, namespace, name))

    async def _run(self, body: Object, group_id: str | None) -> tuple[Run | None, str]:
        """The stored run, or why there is none to be shown."""
        namespace = str(body["metadata"]["namespace"])
        try:
            return await self._called(lambda: self._parts.runs.run(namespace, body, group_id or None)), ""
        except (CommandFailed, KubeFailure, StoreFailure, ForeignRun, ForgedRun) as failure:
            return None, str(failure)

    async def _looked_at(self, group_id: str) -> KafkaSeen | None:
        try:
            return await in_thread(self._parts.looking, self._parts.eye.group, group_id)
        except KafkaFailure:
            return None

    # --- changes ------------------------------------------------------------------------------------------------------

    async def approve(self, request: web.Request) -> Mapping[str, Any]:
        asked, parts = await _asked(request, "namespace", "name", "plan"), self._parts
        done = await self._called(
            lambda: approve(parts.kube, parts.clock, asked["namespace"], asked["name"], asked["plan"], parts.context)
        )
        return done.as_json()

    async def undo(self, request: web.Request) -> Mapping[str, Any]:
        asked = await _asked(request, "namespace", "name", "uid", "approval")
        kube, context, manual = self._parts.kube, self._parts.context, asked["approval"] != "Automatic"
        done = await self._called(
            lambda: undo(kube, asked["namespace"], asked["name"], asked["uid"], manual=manual, context=context)
        )
        return done.as_json()

    async def _called(self, call: Callable[[], T]) -> T:
        return await in_thread(self._parts.executor, call)


def runner_of(app: web.Application) -> web.AppRunner:
    """Ends what it does for a browser that goes away: a tab that listens is told of nothing for a long time."""
    return web.AppRunner(
        app, access_log=None, handle_signals=False, shutdown_timeout=_SHUTDOWN_S, handler_cancellation=True
    )


# --- answers ----------------------------------------------------------------------------------------------------------


def _answering(
    handler: Callable[[web.Request], Awaitable[Mapping[str, Any]]],
) -> Callable[[web.Request], Awaitable[web.Response]]:
    """As JSON; what was refused with its reason, as the API server or the operator gives it."""

    async def answer(request: web.Request) -> web.Response:
        try:
            return web.json_response(await handler(request))
        except NotFound as failure:
            return _failed(404, failure)
        except KubeUnavailable as failure:
            return _failed(502, failure)
        except (CommandFailed, InvalidResource, KubeFailure, KafkaFailure) as failure:
            return _failed(409, failure)

    return answer


def _failed(status: int, failure: Exception) -> web.Response:
    return web.json_response({"message": visible(str(failure))}, status=status)


async def _asked(request: web.Request, *names: str) -> dict[str, str]:
    """The members of the body, each a text. Raises ``HTTPBadRequest``."""
    try:
        body = await request.json()
    except ValueError:
        raise web.HTTPBadRequest(reason="The body is not JSON") from None
    if not isinstance(body, dict) or {type(body.get(name)) for name in names} != {str}:
        raise web.HTTPBadRequest(reason=f"The body must have {', '.join(names)}, each a string")
    return {name: body[name] for name in names}


def _event(kind: str, value: Mapping[str, Any]) -> bytes:
    """JSON in ASCII has no line breaks, so that one ``data`` line holds it."""
    return f"event: {kind}\ndata: {json.dumps(value, separators=(',', ':'))}\n\n".encode()


def _text(text: str, content_type: str) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def answer(_request: web.Request) -> web.Response:
        return web.Response(text=text, content_type=content_type, charset="utf-8")

    return answer
