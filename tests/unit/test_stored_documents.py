"""What is stored says its version; what earlier code has written is read, and what a newer one has is refused (ADR 38).

The documents are in `tests/data/stored`, one folder a kind.
"""

from __future__ import annotations

import ast
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from support.stored_documents import FOLDER, KINDS, NOON, RUN, Kind, of_version, recorded, version_of
from tidegate import versions
from tidegate.compressed import pack
from tidegate.control.codec import Unreadable, encode_value
from tidegate.control.records import Hold
from tidegate.control.records import Run as RunRecord
from tidegate.jobs.errors import RunnerFailure
from tidegate.kafka.model import TopicPartition
from tidegate.offset_backup.manifest import BadManifest
from tidegate.reset import config_map_store
from tidegate.reset.config_map_store import CONFIG_MAP_LIMIT_BYTES, ConfigMapRunStore
from tidegate.reset.document import NewerRun, StoreFailure
from tidegate.reset.model.progress import Progress
from tidegate.reset.model.targets import PartitionOffset
from tidegate.resources.reset import ResetPhase
from tidegate.versions import NewerVersion

ROOT = Path(__file__).parents[2]
OPERATOR = ROOT / "operator" / "tidegate"
OF_TOPICS = {"control-hold", "control-limit", "control-partition", "control-claim", "control-run", "ack"}
REFUSALS = (NewerRun, NewerVersion, BadManifest, RunnerFailure)
DOCUMENTS = {name: kind for name, kind in KINDS.items() if name not in OF_TOPICS}


def newest(name: str) -> int:
    """`run-file` is a run's document as well."""
    return {kind.name: kind.version for kind in versions.ALL}[name.removesuffix("-file")]


# --- what earlier code has written ------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*/*.json")), ids=lambda p: f"{p.parent.name}/{p.stem}")
def test_what_was_written_is_read_as_what_it_said(path: Path) -> None:
    kind = KINDS[path.parent.name]

    assert kind.read(json.loads(path.read_text())) == kind.value


@pytest.mark.parametrize("name", KINDS)
def test_of_each_version_there_is_something_that_was_written(name: str) -> None:
    """A version that is not tried would be a promise only."""
    there = {int(re.match(r"v(\d+)-", path.name)[1]) for path in recorded(name)}  # type: ignore[index]

    assert there == set(range(1, newest(name) + 1))


# --- nothing without a version ----------------------------------------------------------------------------------------


def test_every_kind_that_is_stored_is_tried_here_and_listed_for_people() -> None:
    page = (ROOT / "docs" / "reference" / "stored-documents.md").read_text()

    assert {name.removesuffix("-file") for name in KINDS} == {kind.name for kind in versions.ALL}
    assert set(re.findall(r"^\| `([a-z-]+)` \|", page, re.MULTILINE)) == {kind.name for kind in versions.ALL}


WRITERS = {
    "reset/config_map_store.py": {"run"},
    "reset/directory_store.py": {"run"},
    "policy/memory.py": {"policy-memory"},
    "retention/snapshot.py": {"last-offsets"},
    "offset_backup/attempts.py": {"backup-order"},
    "offset_backup/store.py": {"backup-order"},
    "spark/backup.py": {"backup-manifest"},
    "offset_mirror/jobs.py": {"mirror-order", "mirror-report"},
    "offset_mirror/turn.py": {"mirror-report"},
    "jobs/runner_local.py": {"local-launch"},
    "control/codec.py": OF_TOPICS,
    "reset/applying/audit.py": {"audit-change"},
    "discovery/recording.py": {"audit-change"},
    "retention/recording.py": {"audit-change"},
}
"""By module that writes something for another process to read: which kinds."""

WRITING = {
    *("put_config_map", "change_config_map", "CoreObjects"),
    *("publish", "fsync"),
    "encode_change",
}
NO_DOCUMENTS = {
    "kube/client.py",  # hands on what it is given
    "kube/webhooks.py",
    "kube/injection.py",
    *("kube/pods.py", "kube/workloads_client.py", "jobs/runner_application.py"),  # write no ConfigMaps
    "cli/bundling.py",  # only reads
}


def test_whoever_writes_documents_is_known() -> None:
    """A module that begins to write one has to be added here, with a kind that has a version."""
    found = set()
    for path in OPERATOR.rglob("*.py"):
        names = {
            node.attr if isinstance(node, ast.Attribute) else node.id
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.Attribute | ast.Name)
        }
        if names & WRITING:
            found.add(str(path.relative_to(OPERATOR)))
    assert found - NO_DOCUMENTS - {"spark/files.py"} == set(WRITERS) - {"control/codec.py"}
    assert set().union(*WRITERS.values()) == {kind.name for kind in versions.ALL}


def test_whatever_has_a_value_in_the_topics_is_a_kind_with_a_version() -> None:
    """All of the contract's kinds, but for the clock, which says nothing."""
    contract = (ROOT / "agents" / "contract" / "README.md").read_text()
    kinds = set(re.findall(r"^\| `([a-z]+)` \((?:control|ack)", contract, re.MULTILINE)) - {"clock"}

    assert {name.removeprefix("control-") for name in OF_TOPICS} == kinds


@pytest.mark.parametrize("name", DOCUMENTS)
def test_what_is_written_says_its_version(name: str) -> None:
    kind = KINDS[name]

    assert versions.number_of(version_of(kind, kind.write())) == newest(name)
    assert version_of(kind, kind.write()) is not None


@pytest.mark.parametrize("name", sorted(OF_TOPICS))
def test_a_record_of_version_one_says_none(name: str) -> None:
    """It is written as ever: whoever compares bytes sees no change."""
    assert newest(name) == 1
    assert version_of(KINDS[name], KINDS[name].write()) is None


@pytest.mark.parametrize("value", [Hold("why", 5, version=2), RunRecord("u", 1, version=2)])
def test_a_record_that_is_written_again_keeps_its_version(value: Any) -> None:
    assert json.loads(encode_value(value) or b"")["version"] == 2


# --- what a newer version has written ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_document_of_a_newer_version_is_neither_malformed_nor_absent(name: str) -> None:
    kind = KINDS[name]
    document = of_version(kind, kind.write(), newest(name) + 1)

    with pytest.raises(REFUSALS) as refused:
        kind.read(document)

    says = str(refused.value)
    assert f"of version {newest(name) + 1}" in says
    assert f"up to {newest(name)}" in says
    assert "run that version again" in says
    assert not isinstance(refused.value, NewerVersion) or not isinstance(refused.value, ValueError)


@pytest.mark.parametrize("name", DOCUMENTS)
def test_one_that_is_newer_and_says_nothing_else_that_is_known_is_newer_all_the_same(name: str) -> None:
    """The version is read first: what is below it may be anything."""
    kind = KINDS[name]
    document = of_version(kind, kind.write(), newest(name) + 1)
    if name == "run":
        document["data"] = {"version": document["data"]["version"]}
    elif name == "run-file":
        document = {"version": 2}
    elif name in ("backup-order", "mirror-order", "mirror-report"):
        document = {"version": "2"}
    else:
        document[kind.at[0]] = json.dumps({kind.member: 2})

    with pytest.raises(REFUSALS, match="of version 2"):
        kind.read(document)


@pytest.mark.parametrize("name", sorted(OF_TOPICS))
def test_a_record_of_a_newer_version_is_obeyed_by_what_is_known_of_it(name: str) -> None:
    """As agents do: to them it is a member that they do not know."""
    kind = KINDS[name]

    found = kind.read(of_version(kind, kind.write(), 2))

    assert found == replace(kind.value, version=2) if name in ("control-hold", "control-run") else kind.value
    if name in ("control-hold", "control-run"):
        assert found.is_newer
        assert not kind.value.is_newer


@pytest.mark.parametrize("said", [0, -1, "two", "", "01", True, 1.5, [], 2**31])
@pytest.mark.parametrize("name", sorted(DOCUMENTS.keys() - {"local-launch"}))
def test_what_is_no_version_is_malformed_and_not_newer(name: str, said: Any) -> None:
    kind = KINDS[name]

    with pytest.raises(Exception, match=r"version|not a run|not what|snapshot") as refused:
        kind.read(_says(kind, said))

    assert not isinstance(refused.value, NewerVersion | NewerRun)


def _says(kind: Kind, said: Any) -> dict[str, Any]:
    document = of_version(kind, kind.write(), said)
    if kind is KINDS["run"]:
        document["data"]["version"] = said if isinstance(said, str) else json.dumps(said)
    return document


@pytest.mark.parametrize("said", [0, "two", True, None, [2], -7])
def test_a_record_whose_version_is_none_is_of_version_one(said: Any) -> None:
    """Agents do not look: a gate that is closed for them has to be for readers, too."""
    kind = KINDS["control-hold"]
    document = kind.write()
    value = json.loads(document["value"]) | {"version": said}

    found = kind.read({**document, "value": json.dumps(value)})

    assert (found, found.version) == (kind.value, 1)


@pytest.mark.parametrize("name", sorted(OF_TOPICS))
def test_a_newer_record_that_lacks_a_member_cannot_be_read(name: str) -> None:
    """A newer version keeps the members; another meaning has another kind (agents/contract)."""
    kind = KINDS[name]
    with pytest.raises(Unreadable):
        kind.read({**kind.write(), "value": '{"version":2}'})


# --- members that are not known ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(KINDS))
def test_a_member_that_is_not_known_is_passed_over(name: str) -> None:
    kind = KINDS[name]
    document = of_version(kind, kind.write(), 1)
    if kind.as_text:
        document[kind.at[0]] = json.dumps(json.loads(document[kind.at[0]]) | {"ofALaterVersion": {"a": 1}})
    elif name == "run":
        document["data"]["later.json"] = "{}"
    else:
        document["later.json"] = "{}"

    assert kind.read(document) == kind.value


class OneConfigMap:
    """The API server, as far as one ConfigMap goes."""

    def __init__(self, document: dict[str, Any]) -> None:
        self.data, self.binary = document["data"], document["binaryData"]

    def read(self, *_: Any, **__: Any) -> Any:
        return {"data": dict(self.data), "binaryData": dict(self.binary)}

    def replace(self, _plural: str, _namespace: str, _name: str, body: Any, **_: Any) -> Any:
        self.data, self.binary = body["data"], body["binaryData"]


def store_of(api: OneConfigMap) -> ConfigMapRunStore:
    store = ConfigMapRunStore("ns", "run", api_client=object())
    store._core = api  # type: ignore[assignment]
    return store


def test_parts_of_a_run_that_are_not_known_are_kept_when_it_is_written() -> None:
    document = KINDS["run"].write()
    document["data"]["later.json"] = '{"a":1}'
    document["binaryData"]["more.json.gz"] = "AAAA"
    api = OneConfigMap(document)

    assert store_of(api).begin_attempt() == RUN.attempt + 1

    assert api.data["later.json"] == '{"a":1}'
    assert api.binary["more.json.gz"] == "AAAA"
    assert api.data["attempt"] == str(RUN.attempt + 1)


def test_parts_that_are_not_known_are_never_in_the_way_of_a_run() -> None:
    document = KINDS["run"].write()
    document["data"]["later.json"] = "x" * (CONFIG_MAP_LIMIT_BYTES - 200)
    api = OneConfigMap(document)

    assert store_of(api).begin_attempt() == RUN.attempt + 1

    assert "later.json" not in api.data


def test_the_parts_of_a_run_are_not_unpacked_beyond_what_one_document_may_have() -> None:
    """All of them are in memory at the same time, and each is small where it is packed."""
    document = KINDS["run"].write()
    for name in ("request.json", "plan.json"):
        padded = document["data"].pop(name).encode() + b" " * 40_000_000
        document["binaryData"][f"{name}.gz"] = pack(padded)

    with pytest.raises(StoreFailure, match="unpacked it is longer than"):
        store_of(OneConfigMap(document)).load()


def test_a_run_that_has_room_to_begin_has_room_to_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of partitions, reset in many rounds and then put back in many: the first line of it has just fitted."""
    document = KINDS["run"].write()
    del document["data"]["result.json"]
    api = OneConfigMap(document)
    store = store_of(api)
    pending = tuple(TopicPartition(f"topic-{number:08}", number) for number in range(100))
    before = tuple(PartitionOffset(p.topic, p.partition, 7) for p in pending)
    lines = [
        Progress(
            phase,
            NOON,
            RUN.attempt,
            round=number,
            pending=pending if number < 16 else pending[:1],
            before=before if (number, phase) == (1, ResetPhase.PAUSING) else (),
            releasing=("a", "b"),
            putting_back="Overwritten" if number > 8 else "",
        )
        for number in range(1, 17)
        for phase in (ResetPhase.PAUSING, ResetPhase.VERIFYING)
    ]
    store.append(lines[0], attempt=RUN.attempt)
    size = sum(len(value.encode()) for value in api.data.values())
    monkeypatch.setattr(config_map_store, "CONFIG_MAP_LIMIT_BYTES", size + 32 * 120)

    for line in lines[1:]:
        store.append(line, attempt=RUN.attempt)

    journal = store.load().journal[len(RUN.journal) :]
    assert [(line.phase, line.round) for line in journal] == [(line.phase, line.round) for line in lines]
    assert (journal[0].before, journal[0].pending) == (before, ())
    assert {p for line in journal if line.putting_back for p in line.pending} == set(pending)
    assert journal[-1] == lines[-1]

    assert RUN.result is not None
    result = replace(RUN.result, before=before)
    store.finish(result, attempt=RUN.attempt)
    assert store.load().result == result


def test_nothing_is_written_into_the_document_of_a_newer_version() -> None:
    document = of_version(KINDS["run"], KINDS["run"].write(), 2)
    api = OneConfigMap(document)
    store = store_of(api)

    for write in (store.begin_attempt, store.approve, lambda: store.append(RUN.journal[0], attempt=RUN.attempt)):
        with pytest.raises(NewerRun):
            write()  # type: ignore[no-untyped-call]

    assert api.data == document["data"]


# --- digests ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("digest", "version"),
    [("", 1), ("ab" * 32, 1), ("v1:ab", 1), ("v2:" + "ab" * 32, 2), ("v12:x", 12), ("v0:x", 1), ("v2:", 1), ("x", 1)],
)
def test_a_digest_says_of_which_version_its_document_is(digest: str, version: int) -> None:
    assert versions.digest_version(digest) == version
