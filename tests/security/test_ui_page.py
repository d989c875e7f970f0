"""The page of ``tidegate ui`` against other processes, other web sites, other names of this host, and hostile text."""

from __future__ import annotations

import http.client
import json
import socket
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest

from support.hostile import HOSTILE, Elements
from support.planned_runs import a_plan, a_run
from support.served_ui import TOKEN, Scene, furnish
from tidegate.cli.errors import UsageError
from tidegate.cli.ui import server
from tidegate.cli.ui.board import MOST_LISTENERS
from tidegate.cli.ui.command import HOST, host_of, run_ui, ui_parser
from tidegate.kube.ports import APPROVALS, PAUSES, RESETS
from tidegate.resources.reset import ResetPhase

pytestmark = pytest.mark.pure

Answer = tuple[int, Mapping[str, str], bytes]


@pytest.fixture(scope="module")
def scene() -> Iterator[Scene]:
    made = Scene()
    furnish(made, 2)
    with made:
        yield made


def asked(
    scene: Scene, path: str, *, method: str = "GET", body: Any = None, token: str | None = TOKEN, **headers: str
) -> Answer:
    """With underscores for hyphens in names of headers."""
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    if token is not None:
        given["Authorization"] = f"Bearer {token}"
    if body is not None:
        given.setdefault("Content-Type", "application/json")
    connection = http.client.HTTPConnection(scene.host, timeout=30)
    try:
        connection.request(method, path, None if body is None else json.dumps(body), given)
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read()
    finally:
        connection.close()


def changed(scene: Scene, path: str, body: Any, *, token: str | None = TOKEN, **headers: str) -> Answer:
    """As the page itself asks for a change."""
    return asked(scene, path, method="POST", body=body, token=token, **{"Origin": scene.url, **headers})


READ = ["/api/events", "/api/groups", "/api/group?group=g&connection=shop/prod", "/api/reset/shop/replay-done"]
READ += ["/api/plan/shop/replay-done", "/api/object/kafkaconnections/shop/prod"]


@pytest.mark.parametrize("path", READ)
@pytest.mark.parametrize("token", [None, "", "wrong", f"{TOKEN}x", TOKEN[:-1], "\u00e9"])
def test_nothing_is_read_without_the_token(scene: Scene, path: str, token: str | None) -> None:
    status, _, body = asked(scene, path, token=None if token is None else token.encode().decode("latin-1"))

    assert status == 401
    assert b"prod" not in body
    assert TOKEN.encode() not in body


@pytest.mark.parametrize(
    "path", ["/", "/app.js", "/plan.css", "/api/groups", "/api/nothing", "/nothing", "/api/events"]
)
@pytest.mark.parametrize("token", [None, TOKEN])
def test_every_answer_forbids_what_a_page_should_not_do(scene: Scene, path: str, token: str | None) -> None:
    connection = http.client.HTTPConnection(scene.host, timeout=30)
    connection.request("GET", path, headers={} if token is None else {"Authorization": f"Bearer {token}"})
    found = connection.getresponse()
    headers = dict(found.getheaders())
    connection.close()

    policy = dict(part.strip().partition(" ")[::2] for part in headers["Content-Security-Policy"].split(";"))
    assert policy["default-src"] == "'none'"
    assert {policy[name] for name in ("script-src", "style-src", "img-src", "connect-src")} == {"'self'"}
    assert {policy[name] for name in ("base-uri", "form-action", "frame-ancestors")} == {"'none'"}
    assert policy["require-trusted-types-for"] == "'script'"
    assert headers["Cache-Control"] == "no-store"
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Referrer-Policy"] == "no-referrer"
    assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
    assert "Set-Cookie" not in headers
    assert "Access-Control-Allow-Origin" not in headers


@pytest.mark.parametrize("host", ["evil.example", "localhost", "127.0.0.1", "127.0.0.1:1", "127.0.0.1.evil.example:80"])
@pytest.mark.parametrize("path", ["/", "/api/groups"])
def test_another_name_for_this_host_gets_nothing(scene: Scene, host: str, path: str) -> None:
    status, _, body = asked(scene, path, Host=host)

    assert status == 421
    assert b"script" not in body


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://127.0.0.1:1", "https://127.0.0.1"])
def test_another_origin_gets_nothing_and_changes_nothing(scene: Scene, origin: str) -> None:
    assert asked(scene, "/api/groups", Origin=origin)[0] == 403
    assert asked(scene, "/api/groups", Sec_Fetch_Site="cross-site")[0] == 403
    assert asked(scene, "/api/groups", Sec_Fetch_Site="same-site")[0] == 403
    assert changed(scene, "/api/undo", {}, Origin=origin)[0] == 403


APPROVE = {"namespace": "shop", "name": "replay-2026-11-20", "plan": "a" * 64}


def test_a_form_of_another_site_changes_nothing(scene: Scene) -> None:
    """What a browser sends by itself: no header of ours, a body that is no JSON, no Origin from some."""
    before = scene.kube.writes, len(scene.kube.list(APPROVALS)), len(scene.kube.list(RESETS))

    refused = [
        changed(scene, "/api/approve", APPROVE, token=None),
        changed(scene, "/api/approve", APPROVE, Content_Type="text/plain"),
        changed(scene, "/api/approve", APPROVE, Content_Type="application/x-www-form-urlencoded"),
        asked(scene, "/api/approve", method="POST", body=APPROVE),
        asked(scene, "/api/approve", method="GET"),
        asked(scene, "/api/undo", method="GET"),
    ]

    assert [status for status, _, _ in refused] == [401, 403, 403, 403, 405, 405]
    assert (scene.kube.writes, len(scene.kube.list(APPROVALS)), len(scene.kube.list(RESETS))) == before


@pytest.mark.parametrize(
    "body", [{}, [], "x", {**APPROVE, "plan": 1}, {"namespace": "shop", "name": None, "plan": "a"}, {"name": "x"}]
)
def test_a_body_of_another_shape_is_refused(scene: Scene, body: Any) -> None:
    assert changed(scene, "/api/approve", body)[0] == 400


def test_a_body_without_end_is_refused(scene: Scene) -> None:
    assert changed(scene, "/api/approve", {**APPROVE, "more": "x" * 20_000})[0] == 413


def test_paths_lead_nowhere_else(scene: Scene) -> None:
    paths = ["/../command.py", "/static/app.js", "/%2e%2e/guard.py", "/api/object/secrets/shop/prod"]
    paths += ["/api/object/kafkaconnections/shop/..", "/api/reset/..%2f..%2fapi/x"]

    assert {asked(scene, path)[0] for path in paths} == {404}


def test_only_so_many_tabs_listen(scene: Scene) -> None:
    opened: list[http.client.HTTPConnection] = []
    try:
        for _ in range(MOST_LISTENERS + 1):
            connection = http.client.HTTPConnection(scene.host, timeout=30)
            opened.append(connection)
            connection.request("GET", "/api/events", headers={"Authorization": f"Bearer {TOKEN}"})
            last = connection.getresponse()

        assert last.status == 503
        assert b"close one" in last.read()
    finally:
        for connection in opened:
            connection.close()


def test_a_tab_that_is_closed_makes_room_before_anything_is_sent_to_it(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "_ALIVE_S", 3600.0)
    poll_until_shown(scene, "replay-done")
    for _ in range(2 * MOST_LISTENERS):
        poll_until_shown(scene, "replay-done")


def test_it_listens_on_loopback_only() -> None:
    assert HOST == "127.0.0.1"
    assert not [a for a in ui_parser()._actions if "--host" in a.option_strings or "--address" in a.option_strings]


def test_it_is_called_as_browsers_call_it() -> None:
    """They leave out the port of HTTP, so that a page at ``127.0.0.1:80`` would refuse everybody."""
    assert host_of(80) == "127.0.0.1"
    assert host_of(8765) == "127.0.0.1:8765"


def test_credentials_go_only_to_servers_that_the_command_line_names() -> None:
    """Whoever may write the KafkaConnection could name servers of their own."""
    with pytest.raises(UsageError, match="--bootstrap-server"):
        run_ui(["-c", "prod", "--command-config", "client.properties"], None)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="--connection"):
        run_ui(["--bootstrap-server", "kafka:9092"], None)  # type: ignore[arg-type]


def test_hostile_names_and_messages_are_text(scene: Scene) -> None:
    """The browser's side of it: tests/e2e/browser/test_ui.py."""
    run = a_run(plan=replace(a_plan(), group_id=HOSTILE, notes=(HOSTILE,)))
    scene.runs.runs["shop", "hostile"] = run
    hostile = HOSTILE.replace("\ud800", "")  # which no API server takes
    scene.put(
        RESETS,
        "shop",
        "hostile",
        {"connectionRef": {"name": hostile}, "group": hostile, "to": {"group": hostile}},
        {
            "phase": ResetPhase.AWAITING_APPROVAL.value,
            "digest": run.digest,
            "requester": hostile,
            "conditions": [
                {
                    "type": "Complete",
                    "status": "Unknown",
                    "reason": "R",
                    "message": hostile,
                    "lastTransitionTime": "2026-11-20T11:00:00Z",
                }
            ],
        },
    )
    scene.put(PAUSES, "shop", "hostile", {"connectionRef": {"name": "p"}, "group": hostile, "reason": hostile}, {})
    poll_until_shown(scene, "offsetresets/shop/hostile")
    poll_until_shown(scene, "consumergrouppauses/shop/hostile")

    answers = [asked(scene, path) for path in ("/api/reset/shop/hostile", "/api/plan/shop/hostile")]
    answers += [asked(scene, "/api/object/consumergrouppauses/shop/hostile")]

    for status, headers, body in answers:
        assert status == 200, body
        assert headers["Content-Type"].startswith("application/json")
        text = "".join(texts_of(without_ids(json.loads(body))))
        assert not {"\x1b", "\x9b", "\u202e", "\x07"} & set(text)
    elements = Elements(json.loads(answers[1][2])["html"])
    assert not {"script", "img", "iframe", "link", "style"} & {tag for tag, _ in elements.elements}
    assert not [a for _, attributes in elements.elements for a in attributes if a.startswith("on") or a == "style"]


def without_ids(value: Any) -> Any:
    """Without what identifies a group or a connection, which is asked for again as it is, and only ever set as text."""
    if isinstance(value, dict):
        return {k: without_ids(v) for k, v in value.items() if k not in ("groups", "connection", "group")}
    return [without_ids(each) for each in value] if isinstance(value, list) else value


def texts_of(value: Any) -> Iterator[str]:
    match value:
        case str():
            yield value
        case dict():
            for each in value.values():
                yield from texts_of(each)
        case list():
            for each in value:
                yield from texts_of(each)
        case _:
            return


def poll_until_shown(scene: Scene, line: str) -> None:
    """Listens until it is told of the line; asks again where as many listen as may."""
    until = time.monotonic() + 30
    host, port = scene.host.split(":")
    while time.monotonic() < until:
        with socket.create_connection((host, int(port)), timeout=30) as stream:
            stream.sendall(
                f"GET /api/events HTTP/1.1\r\nHost: {scene.host}\r\nAuthorization: Bearer {TOKEN}\r\n\r\n".encode()
            )
            read = b""
            while b" 503 " not in read and (more := stream.recv(65536)):
                read += more
                if line.encode() in read:
                    return
    raise AssertionError(f"nobody was told of {line}")
