"""What is asked of a schema registry, of a fake one and of Apicurio Registry, which has Confluent's API.

Apicurio's is fetched from Maven Central, and needs Java 21 or later: by night only.
"""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import tarfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import Request, urlopen

import pytest

from support.schema_registry import fake_registry
from tidegate.kafka.connection import Registry
from tidegate.reset.planning.refusals import PlanRefused
from tidegate.resources.targets import SchemaFormat
from tidegate.spark.avro_schema import Record, parse
from tidegate.spark.registry import Found, RegistryClient

APICURIO = "io.apicurio:apicurio-registry-app:3.3.3:tar.gz:all"
JSON = "application/vnd.schemaregistry.v1+json"
ADDRESS = {"type": "record", "name": "shop.Address", "fields": [{"name": "city", "type": "string"}]}
ORDER = {"type": "record", "name": "shop.Order", "fields": [{"name": "to", "type": "shop.Address"}]}
USES_ADDRESS = {"name": "shop.Address", "subject": "contract address", "version": 1}

Register = Callable[..., int]
World = tuple[str, Register]


@contextmanager
def fake() -> Iterator[World]:
    with fake_registry() as registry:
        yield registry.url, registry.register


def java() -> str:
    """One that is new enough."""
    found = [*Path("/usr/lib/jvm").glob("*/bin/java"), Path(os.environ.get("JAVA_HOME", "/nowhere"), "bin/java")]
    for program in found:
        if program.is_file():
            said = subprocess.run([program, "-version"], capture_output=True, text=True, check=False).stderr
            version = re.search(r'version "(\d+)', said)
            if version is not None and int(version[1]) >= 21:
                return str(program)
    pytest.skip("there is no Java 21 or later below /usr/lib/jvm or in JAVA_HOME")


@contextmanager
def apicurio(folder: Path) -> Iterator[World]:
    program = java()
    fetch = ["mvn", "-q", "-B", "-ntp", "dependency:copy", f"-Dartifact={APICURIO}", f"-DoutputDirectory={folder}"]
    subprocess.run(fetch, check=True, timeout=600)
    (archive,) = folder.glob("*.tar.gz")
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")
    ports = [free_port(), free_port()]
    settings = {"QUARKUS_HTTP_HOST": "127.0.0.1", "QUARKUS_MANAGEMENT_HOST": "127.0.0.1"}
    settings |= {"QUARKUS_HTTP_PORT": str(ports[0]), "QUARKUS_MANAGEMENT_PORT": str(ports[1])}
    url = f"http://127.0.0.1:{ports[0]}/apis/ccompat/v7"
    with (folder / "log").open("wb") as log:
        command = [program, "-Xmx512m", "-jar", "quarkus-run.jar"]
        process = subprocess.Popen(command, cwd=folder, env={**os.environ, **settings}, stdout=log, stderr=log)
        try:
            until(lambda: answers(url), process)
            yield url, lambda subject, schema, **more: post(url, subject, schema, **more)
        finally:
            process.terminate()
            process.wait(30)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def until(done: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 120
    while not done():
        assert process.poll() is None, "the registry has ended: see its log"
        assert time.monotonic() < deadline, "the registry does not answer"
        time.sleep(0.5)


def answers(url: str) -> bool:
    try:
        with urlopen(f"{url}/subjects", timeout=5) as answer:  # noqa: S310 - this machine's
            return bool(answer.status == 200)
    except URLError:
        return False


def post(url: str, subject: str, schema: Any, **more: Any) -> int:
    body = json.dumps({"schema": json.dumps(schema), **more}).encode()
    path = f"{url}/subjects/{subject.replace(' ', '%20')}/versions"
    request = Request(path, body, {"Content-Type": JSON})  # noqa: S310 - this machine's
    with urlopen(request, timeout=30) as answer:  # noqa: S310 - this machine's
        number: int = json.load(answer)["id"]
        return number


@pytest.fixture(
    scope="module",
    params=["fake", pytest.param("apicurio", marks=[pytest.mark.nightly, pytest.mark.maven])],
)
def world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with fake() if request.param == "fake" else apicurio(tmp_path_factory.mktemp("apicurio")) as found:
        yield found


@pytest.fixture(scope="module")
def numbers(world: World) -> Mapping[str, int]:
    """Ids of what is registered: an order uses an address, and has two versions."""
    _, register = world
    later = {**ORDER, "fields": [*ORDER["fields"], {"name": "by", "type": "string", "default": "web"}]}
    return {
        "address": register("contract address", ADDRESS),
        "order": register("contract order", ORDER, references=[USES_ADDRESS]),
        "later": register("contract order", later, references=[USES_ADDRESS]),
    }


def understood(found: Found) -> Record:
    """Registries may spell a schema otherwise than it was registered."""
    return parse(found.text, found.references)


@pytest.fixture
def client(world: World) -> RegistryClient:
    return RegistryClient(Registry(world[0]), SchemaFormat.AVRO)


def test_a_subject_has_a_latest_version_and_earlier_ones(client: RegistryClient, numbers: Mapping[str, int]) -> None:
    latest, first = client.subject("contract order", None), client.subject("contract order", 1)

    assert (latest.id, latest.version) == (numbers["later"], 2)
    assert (first.id, first.version) == (numbers["order"], 1)
    assert understood(first) == parse(json.dumps(ORDER), (json.dumps(ADDRESS),))
    assert [field.name for field in understood(latest).fields] == ["to", "by"]


def test_a_schema_is_there_by_its_id(client: RegistryClient, numbers: Mapping[str, int]) -> None:
    found = client.by_id(numbers["order"])
    assert found is not None
    assert understood(found) == parse(json.dumps(ORDER), (json.dumps(ADDRESS),))


def test_what_is_not_there_is_none_or_refused(client: RegistryClient, numbers: Mapping[str, int]) -> None:
    assert client.by_id(max(numbers.values()) + 1000) is None
    for subject, version in (("contract nothing", None), ("contract order", 99)):
        with pytest.raises(PlanRefused, match=f"the registry has no subject {subject}"):
            client.subject(subject, version)
