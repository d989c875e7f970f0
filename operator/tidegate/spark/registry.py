"""A schema registry, as Confluent's Schema Registry answers and others do as well: read only, by Spark's driver.

Where it is, a ``KafkaConnection`` says; what it answers is believed no more than a record is. It follows no redirects,
so that neither a password nor a request goes anywhere else; an answer has at most :data:`LARGEST` bytes, and
:data:`PATIENCE_S` from the first byte sent to the last one received. A search asks for at most :data:`MOST_SCHEMAS`
schemas, however many ids the records have, and for no more once it has :data:`MOST_BYTES`, however many others these
use. What a registry says of a failure is not repeated: only its status is.

Protobuf's schemas are asked for as serialized descriptors (``format=serialized``), since Google's protobuf has no
parser for their text.
"""

from __future__ import annotations

import base64
import binascii
import json
import socket
import ssl
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection, IncompleteRead
from typing import Any, Final
from urllib.parse import quote, urlsplit

from tidegate.kafka.connection import Registry
from tidegate.kafka.errors import NotAuthorized, Unavailable
from tidegate.reset.planning.refusals import BAD_SCHEMA, PlanRefused
from tidegate.resources.targets import SchemaFormat

LARGEST: Final = 4 << 20
PATIENCE_S: Final = 30.0
MOST_SCHEMAS: Final = 200
MOST_BYTES: Final = 32 << 20
MOST_REFERENCES: Final = 100
_IDS: Final = 1 << 31
"""Below which a schema's id is: a registry has it as Java's int."""

_TYPES: Final = {SchemaFormat.AVRO: "AVRO", SchemaFormat.PROTOBUF: "PROTOBUF"}
_KINDS: Final = ("AVRO", "JSON", "PROTOBUF")
_ACCEPT: Final = "application/vnd.schemaregistry.v1+json, application/json"


@dataclass(frozen=True, slots=True)
class Found:
    """A schema. ``text``: Avro's JSON, or a FileDescriptorProto in base64. ``references``: the schemas it uses, each
    after those that it uses itself. ``id`` and ``version`` are the registry's; 0 where it was not asked for them."""

    text: str
    references: tuple[str, ...] = ()
    id: int = 0
    version: int = 0


@dataclass(slots=True)
class RegistryClient:
    """What is asked of one registry, for values of one format.

    All methods raise ``Unavailable`` where it does not answer, or fails by itself; ``NotAuthorized`` where it refuses;
    ``PlanRefused`` where what it answers can't be used, or is not there.
    """

    registry: Registry
    format: SchemaFormat
    patience_s: float = PATIENCE_S
    _asked: int = field(default=0, init=False)
    _received: int = field(default=0, init=False)

    @property
    def exhausted(self) -> bool:
        """Whether it may not be asked for more schemas."""
        return self._asked >= MOST_SCHEMAS or self._received > MOST_BYTES

    def subject(self, subject: str, version: int | None) -> Found:
        """A subject's schema in a version, or in its latest one. Raises ``PlanRefused`` where there is none."""
        answer = self._version(subject, "latest" if version is None else str(version))
        if answer is None:
            asked = "" if version is None else f" in version {version}"
            raise _refused(f"the registry has no subject {subject[:200]}{asked}")
        found = self._found(answer)
        return Found(found.text, found.references, _number(answer, "id"), _number(answer, "version"))

    def by_id(self, number: int) -> Found | None:
        """``None`` where the registry has no schema of this id, or one of another format."""
        self._asked += 1
        if number >= _IDS:
            return None
        answer = self._ask(f"/schemas/ids/{number}")
        if answer is None:
            return None
        try:
            # What a message of Protobuf is called tells its file alone.
            return self._found(answer, references=self.format is SchemaFormat.AVRO)
        except PlanRefused:
            return None

    def _version(self, subject: str, version: str) -> Mapping[str, Any] | None:
        return self._ask(f"/subjects/{quote(subject, safe='')}/versions/{quote(version, safe='')}")

    def _found(self, answer: Mapping[str, Any], *, references: bool = True) -> Found:
        text = self._text(answer)
        if not references:
            return Found(text)
        return Found(text, tuple(self._references(answer, {}, 0)))

    def _text(self, answer: Mapping[str, Any]) -> str:
        kind, text = answer.get("schemaType", "AVRO"), answer.get("schema")
        if kind != _TYPES[self.format]:
            named = kind if kind in _KINDS else "an unknown format"
            raise _refused(f"the registry's schema is one of {named}, and not of {self.format}")
        if not isinstance(text, str):
            raise _refused("the registry has answered without a schema")
        if self.format is SchemaFormat.PROTOBUF:
            _file(text)
        return text

    def _references(self, answer: Mapping[str, Any], seen: dict[tuple[str, int], None], depth: int) -> Iterator[str]:
        """Each once, after those that it uses itself."""
        listed = answer.get("references") or []
        if not isinstance(listed, list):
            raise _refused("the registry has answered with references that are none")
        for each in listed:
            name, subject, version = _reference(each)
            if (subject, version) in seen:
                continue
            seen[subject, version] = None
            if len(seen) > MOST_REFERENCES or depth > MOST_REFERENCES:
                raise _refused(f"the registry's schema uses more than {MOST_REFERENCES} others")
            used = self._version(subject, str(version))
            if self._received > MOST_BYTES:
                raise _refused(f"the registry's schemas and those they use have more than {MOST_BYTES:,} bytes")
            if used is None:
                raise _refused(f"the registry lacks a schema that another one uses: {subject[:200]}, version {version}")
            yield from self._references(used, seen, depth + 1)
            text = self._text(used)
            yield text if self.format is SchemaFormat.AVRO else _named(text, name)

    # --- HTTP ---------------------------------------------------------------------------------------------------------

    def _ask(self, path: str) -> Mapping[str, Any] | None:
        """The answer, a JSON object; ``None`` where there is no such thing (404)."""
        query = "?format=serialized" if self.format is SchemaFormat.PROTOBUF else ""
        try:
            status, body = self._get(path + query)
        except (OSError, HTTPException) as error:
            raise Unavailable(f"the schema registry does not answer: {type(error).__name__}") from error
        self._received += len(body)
        if status == 404:
            return None
        if status in (401, 403):
            raise NotAuthorized(f"the schema registry refuses with status {status}: see its authentication")
        if status >= 500 or status == 429:
            raise Unavailable(f"the schema registry fails with status {status}")
        if status != 200:
            raise _refused(f"the schema registry answers with status {status}: redirects are not followed")
        if len(body) > LARGEST:
            raise _refused(f"the schema registry answers with more than {LARGEST:,} bytes")
        try:
            answer = json.loads(body)
        except (ValueError, RecursionError):
            answer = None
        if not isinstance(answer, dict):
            raise _refused("the schema registry answers with what is no JSON object: see its URL")
        return answer

    def _get(self, path: str) -> tuple[int, bytes]:
        """Status and body; of a body too large, a byte more than may be. Raises ``OSError`` and ``HTTPException``."""
        connection = self._connection()
        over = threading.Event()
        try:
            connection.connect()
            # However slowly bytes come: a timeout of the socket's would begin anew with each of them.
            late = threading.Timer(self.patience_s, _cut, (connection.sock, over))
            late.daemon = True
            late.start()
            try:
                connection.request("GET", urlsplit(self.registry.url).path + path, headers=self._headers())
                answer = connection.getresponse()
                body = _body(answer)
            finally:
                late.cancel()
            if over.is_set():
                raise TimeoutError
            return answer.status, body
        finally:
            connection.close()

    def _connection(self) -> HTTPConnection:
        url, ca_file = urlsplit(self.registry.url), self.registry.ca_file
        if url.hostname is None:
            raise ValueError("the registry's URL has no host")
        if url.scheme != "https":
            return HTTPConnection(url.hostname, url.port, timeout=self.patience_s)
        context = ssl.create_default_context(cafile=None if ca_file is None else str(ca_file))
        return HTTPSConnection(url.hostname, url.port, timeout=self.patience_s, context=context)

    def _headers(self) -> dict[str, str]:
        headers = {"Accept": _ACCEPT}
        if self.registry.username is not None and self.registry.password_file is not None:
            password = self.registry.password_file.read_bytes().rstrip(b"\r\n")
            pair = base64.b64encode(self.registry.username.encode() + b":" + password)
            headers["Authorization"] = f"Basic {pair.decode()}"
        return headers


def _cut(connected: socket.socket, over: threading.Event) -> None:
    over.set()
    try:
        connected.shutdown(socket.SHUT_RDWR)
    except OSError:
        return  # it is closed


def _body(answer: HTTPResponse) -> bytes:
    parts: list[bytes] = []
    left = LARGEST + 1
    while left > 0 and (part := answer.read(min(left, 1 << 16))):
        parts.append(part)
        left -= len(part)
    if left > 0 and answer.length:
        raise IncompleteRead(b"", answer.length)
    return b"".join(parts)


def _reference(each: object) -> tuple[str, str, int]:
    match each:
        case {"name": str(name), "subject": str(subject), "version": int(version)} if _is_text(name + subject):
            return name, subject, version
        case _:
            raise _refused("the registry has answered with a reference that is none")


def _is_text(said: str) -> bool:
    """Whether it has an encoding: JSON may have halves of characters."""
    return not any("\ud800" <= each <= "\udfff" for each in said)


def _number(answer: Mapping[str, Any], name: str) -> int:
    number = answer.get(name)
    if type(number) is not int or not 0 <= number < 1 << 32:
        raise _refused(f"the registry has answered without a schema's {name}")
    return number


def _named(text: str, name: str) -> str:
    """A file under the name by which others import it."""
    file = _file(text)
    file.name = name
    return base64.b64encode(file.SerializeToString()).decode()


def _file(text: str) -> Any:
    from google.protobuf import descriptor_pb2
    from google.protobuf.message import DecodeError

    try:
        return descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(text, validate=True))
    except (DecodeError, binascii.Error, ValueError):
        raise _refused(
            "the registry does not give a Protobuf schema as a serialized descriptor (format=serialized), as "
            "Confluent's does"
        ) from None


def _refused(why: str) -> PlanRefused:
    return PlanRefused(BAD_SCHEMA, f"spec.to.record.valueSchema.registry: {why}")
