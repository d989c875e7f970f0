"""A schema registry that is somebody else's, or was taken over: what it can have done, and what it learns."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from support.schema_registry import FakeRegistry, fake_registry
from tidegate.kafka.connection import Registry
from tidegate.kafka.errors import NotAuthorized, Unavailable
from tidegate.reset.planning.refusals import PlanRefused
from tidegate.resources.targets import SchemaFormat
from tidegate.spark import registry as module
from tidegate.spark.registry import RegistryClient
from tidegate.spark.value_schemas import ValueSchemas

SECRET = "not for logs"
ORDER = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}


@pytest.fixture
def registry() -> Iterator[FakeRegistry]:
    with fake_registry() as found:
        yield found


def client(registry: FakeRegistry, kind: SchemaFormat = SchemaFormat.AVRO, **settings: Any) -> RegistryClient:
    return RegistryClient(Registry(registry.url), kind, **settings)


def answering(status: int, body: bytes = b"", **headers: str) -> Callable[[Any], None]:
    def answer(handler: Any) -> None:
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name, value)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    return answer


def test_a_redirect_leads_nowhere(registry: FakeRegistry) -> None:
    with fake_registry() as elsewhere:
        registry.misbehave = answering(302, Location=f"{elsewhere.url}/schemas/ids/1")
        with pytest.raises(PlanRefused, match="status 302: redirects are not followed"):
            client(registry).subject("orders-value", None)
        assert elsewhere.asked == []


def test_a_subject_stays_a_part_of_the_path(registry: FakeRegistry) -> None:
    with pytest.raises(PlanRefused):
        client(registry).subject("../../config?x=/\r\nHost: elsewhere", None)
    assert registry.asked == ["/subjects/..%2F..%2Fconfig%3Fx%3D%2F%0D%0AHost%3A%20elsewhere/versions/latest"]


@pytest.mark.parametrize(
    ("body", "why"),
    [
        pytest.param(b" " * (module.LARGEST + 10), "more than 4,194,304 bytes", id="megabytes"),
        pytest.param(b"[" * 1_000_000, "no JSON object", id="brackets"),
        pytest.param(b"<html>", "no JSON object", id="a page"),
        pytest.param(b'{"schema": 7}', "without a schema", id="no text"),
        pytest.param(b'{"schema": "x", "references": 7}', "references that are none", id="no references"),
        pytest.param(b'{"schema": "x", "references": [{"name": 1}]}', "a reference that is none", id="a reference"),
        pytest.param(
            b'{"schema": "x", "references": [{"name": "n", "subject": "\\ud800", "version": 1}]}',
            "a reference that is none",
            id="half a character",
        ),
        pytest.param(b'{"schema": "x", "schemaType": "JSON"}', "one of JSON, and not of Avro", id="another format"),
        pytest.param(b'{"schema": "x", "schemaType": "\\ud800"}', "one of an unknown format", id="an unknown format"),
        pytest.param(b'{"schema": "x", "id": -1}', "without a schema's id", id="a negative id"),
    ],
)
def test_what_is_no_answer_is_refused(registry: FakeRegistry, body: bytes, why: str) -> None:
    registry.misbehave = answering(200, body)
    with pytest.raises(PlanRefused, match=why):
        client(registry).subject("orders-value", None)


def test_one_that_drips_is_cut_off(registry: FakeRegistry) -> None:
    """Each byte comes in time, and the answer never does."""
    done = threading.Event()

    def drip(handler: Any) -> None:
        handler.send_response(200)
        handler.end_headers()
        while not done.wait(0.05):
            try:
                handler.wfile.write(b" ")
            except OSError:
                return

    registry.misbehave = drip
    try:
        with pytest.raises(Unavailable, match="does not answer"):
            client(registry, patience_s=0.3).subject("orders-value", None)
    finally:
        done.set()


def test_one_that_is_not_there_is_unavailable(registry: FakeRegistry) -> None:
    for status in (500, 503, 429):
        registry.misbehave = answering(status, SECRET.encode())
        with pytest.raises(Unavailable, match=str(status)) as failure:
            client(registry).subject("orders-value", None)
        assert SECRET not in str(failure.value)
    with pytest.raises(Unavailable, match="does not answer"):
        RegistryClient(Registry("http://127.0.0.1:9"), SchemaFormat.AVRO).subject("orders-value", None)


def test_references_in_a_circle_end(registry: FakeRegistry) -> None:
    there_and_back = [{"name": "n", "subject": name, "version": 1} for name in ("a", "b")]
    registry.register("a", ORDER, references=there_and_back)
    registry.register("b", ORDER, references=there_and_back)
    assert len(client(registry).subject("a", None).references) == 2
    assert len(registry.asked) == 3


def test_references_without_end_are_refused(registry: FakeRegistry) -> None:
    for n in range(300):
        registry.register(f"s{n}", ORDER, references=[{"name": "n", "subject": f"s{n + 1}", "version": 1}])
    with pytest.raises(PlanRefused, match="uses more than 100 others"):
        client(registry).subject("s0", None)
    assert len(registry.asked) <= 102


def test_made_up_ids_are_asked_for_no_more_than_so_often(registry: FakeRegistry) -> None:
    from tidegate.spark.decoding import Decoding

    schemas = ValueSchemas(Decoding(SchemaFormat.AVRO, json.dumps(ORDER), framed=True), "", client(registry))
    for start in range(0, 1000, 50):
        schemas.learn(range(start, start + 50))
    assert len(registry.asked) == module.MOST_SCHEMAS
    assert schemas.decoding.closed


def test_references_of_references_are_not_kept_without_end(registry: FakeRegistry) -> None:
    """One schema after the other that uses large ones."""
    large = json.dumps(ORDER) + " " * (1 << 20)
    used = [{"name": f"n{n}", "subject": f"used{n}", "version": 1} for n in range(8)]
    for each in used:
        registry.register(str(each["subject"]), large)
    ids = [registry.register("orders-value", ORDER, references=used) for _ in range(30)]
    asking = client(registry)

    found = [asking.by_id(number) for number in ids if not asking.exhausted]

    assert asking.exhausted
    assert [each is not None for each in found] == [True] * 3 + [False]
    assert len(registry.asked) <= 4 * (1 + len(used))


def test_an_id_that_no_registry_has_is_not_asked_for(registry: FakeRegistry) -> None:
    """A registry may call it a bad request, which would end the search; made-up ones count all the same."""
    asking = client(registry)
    for _ in range(module.MOST_SCHEMAS):
        assert asking.by_id(1 << 31) is None
    assert registry.asked == []
    assert asking.exhausted


def test_one_that_dies_while_it_answers_is_unavailable(registry: FakeRegistry) -> None:
    def die(handler: Any) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", "100")
        handler.end_headers()
        handler.wfile.write(b'{"schema": ')

    registry.misbehave = die
    with pytest.raises(Unavailable, match="does not answer: IncompleteRead"):
        client(registry).by_id(1)


def test_a_password_goes_to_the_registry_alone_and_into_no_message(registry: FakeRegistry, tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text(f"{SECRET}\n")
    expected = "Basic " + base64.b64encode(f"me:{SECRET}".encode()).decode()
    registry.password = expected
    # As over https, where the resource's rule has it: what is sent is the same.
    named = RegistryClient(Registry(registry.url, username="me", password_file=file), SchemaFormat.AVRO)
    registry.register("orders-value", ORDER)

    assert named.subject("orders-value", None).version == 1
    assert registry.authorizations == [expected]
    registry.password = "Basic other"
    with pytest.raises(NotAuthorized, match="status 401") as refused:
        named.subject("orders-value", None)
    assert SECRET not in str(refused.value)
    assert SECRET not in repr(named)


def test_a_descriptor_that_is_none_is_refused(registry: FakeRegistry) -> None:
    for serialized in ("\n\x05Order", "AAAA"):
        registry.register("p", "…", kind="PROTOBUF", serialized=serialized)
        with pytest.raises(PlanRefused, match="as a serialized descriptor"):
            client(registry, SchemaFormat.PROTOBUF).subject("p", None)
