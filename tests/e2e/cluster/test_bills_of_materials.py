"""Each image's bill of materials names what is in it: Debian packages, Python packages and jars, in their versions.

What is there is told by dpkg, by Python's own metadata and by the files' names, in the image as it is unpacked.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from email.parser import HeaderParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from devstack.images import unpacked
from devstack.sbom import TARGETS, write_sboms
from tidegate import __version__

pytestmark = pytest.mark.nightly


@pytest.fixture(scope="module")
def documents(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    written = write_sboms(tmp_path_factory.mktemp("sbom"))
    return {path.name.partition(".")[0]: json.loads(path.read_text()) for path in written}


@pytest.fixture(scope="module", params=TARGETS)
def image(
    request: pytest.FixtureRequest, documents: dict[str, dict[str, Any]]
) -> Iterator[tuple[Path, dict[str, Any]]]:
    """An image's files, and its document."""
    with unpacked(request.param) as files:
        yield files, documents[request.param]


def _named(document: dict[str, Any], kind: str) -> set[tuple[str, str]]:
    """Name and version of the components of a kind, out of their package URLs."""
    found = set[tuple[str, str]]()
    for component in document["components"]:
        if match := re.match(rf"pkg:{kind}/(?:[^@]*/)?([^@/]+)@([^?]+)", component.get("purl", "")):
            found.add((unquote(match[1]), unquote(match[2])))
    return found


def _places(component: dict[str, Any]) -> set[str]:
    return {
        entry["value"]
        for entry in component.get("properties", ())
        if re.fullmatch(r"syft:location:\d+:path", entry["name"])
    }


def test_it_is_a_document_of_its_standard(image: tuple[Path, dict[str, Any]]) -> None:
    _, document = image
    assert (document["bomFormat"], document["specVersion"][:2]) == ("CycloneDX", "1.")
    assert document["metadata"]["component"]["type"] == "container"


def test_it_names_the_debian_packages(image: tuple[Path, dict[str, Any]]) -> None:
    files, document = image
    admin = files / "var/lib/dpkg"
    if (admin / "status").exists():
        query = ["dpkg-query", f"--admindir={admin}", "--show", "--showformat=${Package} ${Version}\n"]
        told = subprocess.run(query, capture_output=True, text=True, check=True).stdout
        there = {tuple(line.split(" ")) for line in told.splitlines()}
    else:  # of Debian it has one program, which says itself which it is
        program = subprocess.run([files / "bin/busybox"], capture_output=True, text=True, check=True).stdout
        [version] = re.findall(r"^BusyBox v\S+ \(Debian (\S+)\)", program)
        there = {("busybox-static", version)}
    assert there
    assert _named(document, "deb") == there


def test_it_names_the_python_packages(image: tuple[Path, dict[str, Any]]) -> None:
    files, document = image
    there = set[tuple[str, str]]()
    for metadata in files.rglob("*.dist-info/METADATA"):
        headers = HeaderParser().parsestr(metadata.read_text())
        there.add((_normal(headers["Name"]), headers["Version"]))
    assert {name for name, _ in there} & {"tidegate", "wrapt"}
    assert {(_normal(name), version) for name, version in _named(document, "pypi")} == there


def _normal(name: str) -> str:
    """PEP 503."""
    return re.sub(r"[-_.]+", "-", name).lower()


def test_it_names_the_jars(image: tuple[Path, dict[str, Any]]) -> None:
    files, document = image
    jars = {"/" + str(jar.relative_to(files)) for jar in files.rglob("*.jar") if not jar.is_symlink()}
    named = [part for part in document["components"] if part.get("purl", "").startswith("pkg:maven/")]
    inside: dict[str, set[str]] = {jar: set() for jar in jars}
    elsewhere = set[str]()
    for part in named:
        label = f"{part['name']}-{part['version']}"
        for place in _places(part):
            if place.endswith(".jar"):
                inside[place].add(label)
            else:
                elsewhere.add(label)
    lacking = {
        jar
        for jar, labels in inside.items()
        if not any(Path(jar).stem == label or Path(jar).stem.startswith(f"{label}-") for label in labels | elsewhere)
    }
    # Their files' names say no version, or not as others do.
    named_otherwise = r"(py4j[\d.]+|jrt-fs|ca-certificates-java|tidegate-agent)\.jar"
    odd = {jar for jar in lacking if re.fullmatch(named_otherwise, Path(jar).name)}
    assert lacking - odd == set()
    assert all(inside[jar] for jar in odd)


def test_together_they_name_all_three_kinds(documents: dict[str, dict[str, Any]]) -> None:
    for kind in ("deb", "pypi", "maven"):
        assert _named(documents["spark"], kind)
    assert ("kafka-clients", "3.9.2") in _named(documents["spark"], "maven")
    assert {name for name, _ in _named(documents["agent"], "maven")} >= {"byte-buddy", "jackson-core"}
    assert ("tidegate", __version__) in _named(documents["operator"], "pypi")
