"""A schema registry as Confluent documents its API, and ways in which one can be hostile.

``tests/contract/test_schema_registry.py`` holds it to what a real one answers.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit


@dataclass
class Version:
    id: int
    schema: str
    kind: str
    references: Sequence[Mapping[str, Any]] = ()
    serialized: str = ""


@dataclass
class FakeRegistry:
    """``misbehave``: by path, what is done instead of an answer; it gets the handler."""

    url: str = ""
    subjects: dict[str, list[Version]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    authorizations: list[str | None] = field(default_factory=list)
    password: str | None = None
    misbehave: Any = None

    def register(
        self,
        subject: str,
        schema: Any,
        *,
        kind: str = "AVRO",
        references: Sequence[Mapping[str, Any]] = (),
        serialized: str = "",
    ) -> int:
        """The schema's id."""
        text = schema if isinstance(schema, str) else json.dumps(schema)
        number = 1 + sum(map(len, self.subjects.values()))
        self.subjects.setdefault(subject, []).append(Version(number, text, kind, references, serialized))
        return number

    def answer(self, path: str) -> tuple[int, Mapping[str, Any]]:
        url = urlsplit(path)
        serialized = parse_qs(url.query).get("format") == ["serialized"]
        match [unquote(part) for part in url.path.strip("/").split("/")]:
            case ["schemas", "ids", number]:
                for versions in self.subjects.values():
                    for each in versions:
                        if each.id == int(number):
                            return 200, _body(each, serialized)
                return 404, {"error_code": 40403, "message": "Schema not found"}
            case ["subjects", subject, "versions", version]:
                versions = self.subjects.get(subject, [])
                place = len(versions) if version == "latest" else int(version)
                if not 0 < place <= len(versions):
                    return 404, {"error_code": 40402, "message": "Version not found"}
                found = versions[place - 1]
                named = {"subject": subject, "version": place, "id": found.id}
                return 200, {**named, **_body(found, serialized)}
            case _:
                return 404, {"error_code": 404, "message": "HTTP 404 Not Found"}


def _body(version: Version, serialized: bool) -> dict[str, Any]:
    body: dict[str, Any] = {"schema": version.serialized if serialized else version.schema}
    if version.kind != "AVRO":
        body["schemaType"] = version.kind
    if version.references:
        body["references"] = list(version.references)
    return body


@contextmanager
def fake_registry() -> Iterator[FakeRegistry]:
    """Serves on a port of this machine."""
    registry = FakeRegistry()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            registry.asked.append(self.path)
            registry.authorizations.append(self.headers.get("Authorization"))
            if registry.misbehave is not None:
                registry.misbehave(self)
                return
            status, body = registry.answer(self.path)
            if registry.password is not None and self.headers.get("Authorization") != registry.password:
                status, body = 401, {"error_code": 401, "message": "Unauthorized"}
            content = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            """Not to the tests' output."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        registry.url = f"http://127.0.0.1:{server.server_address[1]}"
        try:
            yield registry
        finally:
            server.shutdown()
            thread.join()
