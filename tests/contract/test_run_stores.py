"""One contract for all run stores: a folder's documents, and ConfigMaps of a real API server."""

from __future__ import annotations

import base64
import json
import stat
import threading
import uuid
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from devstack import ApiServer
from support.planned_runs import some_evidence
from tidegate.kafka.connection import Authentication, AuthenticationType, Connection
from tidegate.kafka.model import TopicPartition
from tidegate.kube.labels import label_value
from tidegate.reset import config_map_store
from tidegate.reset.codec import encode_evidence
from tidegate.reset.config_map_store import ConfigMapRunStore
from tidegate.reset.directory_store import DirectoryRunStore
from tidegate.reset.document import DocumentTooLarge, StoreFailure, StoreUnavailable
from tidegate.reset.evidence import EVIDENCE_LIMIT_BYTES, Content, left_out
from tidegate.reset.model.plan import Clamped, PartitionPlan, Plan
from tidegate.reset.model.progress import Progress
from tidegate.reset.model.request import ApplySettings, RunRequest, Selection
from tidegate.reset.model.result import RunResult, Standstill
from tidegate.reset.model.targets import (
    ByDuration,
    FromFile,
    FromGroup,
    PartitionOffset,
    ShiftBy,
    Target,
    ToEarliest,
    ToLatest,
    ToOffset,
    ToTimestamp,
    Undo,
)
from tidegate.reset.store import Run, RunNotFound, RunStore, StaleAttempt
from tidegate.reset.stores import open_store
from tidegate.resources.reset import ResetPhase, Way

NOON = datetime(2026, 11, 20, 12, 0, 0, 123456, tzinfo=UTC)
MakeStore = Callable[[], RunStore]


def a_request(target: Target | None = None) -> RunRequest:
    return RunRequest(
        run_uid=f"{uuid.uuid4()}/replay",
        run_id="replay",
        group_id="payments",
        connection=Connection(
            "kafka-0:9093,kafka-1:9093",
            tls=True,
            ca_file=Path("/etc/tidegate/secrets/kafka-ca/ca.crt"),
            authentication=Authentication(
                AuthenticationType.SCRAM_SHA_512, "tidegate", Path("/etc/tidegate/secrets/kafka/password")
            ),
            properties={"socket.timeout.ms": "20000"},
        ),
        selections=(Selection("orders", frozenset({0, 2})), Selection("refunds-*")),
        target=target or ToEarliest(),
        settings=ApplySettings(timedelta(seconds=1.5), NOON + timedelta(minutes=15)),
        allowed_topics=("orders", "refunds-*"),
        manual_approval=True,
    )


def a_plan(run_id: str = "replay", partitions: int = 3) -> Plan:
    rows = tuple(
        PartitionPlan(
            topic="orders",
            partition=p,
            topic_id="ZXYbL0OQR2mMkbQ4tA1r7w",
            committed=None if p == 0 else 1_000 + p * 7919,
            target=p * 104_729 % 1_000,
            earliest=0,
            latest=10_000_000 + p * 7919,
            clamped=Clamped.LATEST if p == 1 else None,
            span_from=NOON if p == 2 else None,
        )
        for p in range(partitions)
    )
    return Plan(run_id, "payments", NOON, rows, notes=('says "partitions":[] and\nmore \u2028',))


def a_progress(attempt: int, message: str = "") -> Progress:
    return Progress(
        phase=ResetPhase.APPLYING,
        at=NOON,
        attempt=attempt,
        way=Way.HANDOVER,
        round=1,
        before=(PartitionOffset("orders", 1, 8919),),
        releasing=("consumer-1-\u2028",),
        pending=(TopicPartition("orders", 1),),
        message=message,
    )


def a_result(message: str = "3 partitions moved") -> RunResult:
    return RunResult(ResetPhase.SUCCEEDED, "Verified", message, NOON, Way.HANDOVER, 1, 0, Standstill(0.2, 1.5))


@pytest.fixture(
    params=["directory", *(pytest.param(kind, marks=pytest.mark.apiserver) for kind in ("configmap", "own job's"))]
)
def make_store(request: pytest.FixtureRequest, tmp_path: Path) -> MakeStore:
    """Makes stores of one and the same run, as different processes would, or a job of the operator's own."""
    name = f"run-{uuid.uuid4().hex[:8]}"
    if request.param == "directory":
        return lambda: DirectoryRunStore(tmp_path / "runs", name)
    client = request.getfixturevalue("kube_client")
    namespace = request.getfixturevalue("namespace")
    if request.param == "configmap":
        return lambda: ConfigMapRunStore(namespace, name, api_client=client)
    return lambda: ConfigMapRunStore(namespace, name, api_client=client, remembers=True)


def test_a_new_run_is_as_it_was_asked_for(make_store: MakeStore) -> None:
    request = a_request()
    run = make_store().create(request)
    assert run == make_store().load()
    assert (run.request, run.attempt, run.plan, run.journal, run.result, run.approved) == (
        request, 0, None, (), None, False,
    )  # fmt: skip


@pytest.mark.parametrize(
    "target",
    [
        ToEarliest(),
        ToLatest(),
        ToOffset(42),
        ToTimestamp(NOON),
        ByDuration(timedelta(hours=6, microseconds=1)),
        ShiftBy(-100),
        FromFile((PartitionOffset("orders", 0, 5),), "offsets/export.csv"),
        FromGroup("other"),
        Undo("r1", (PartitionOffset("orders", 0, 5),), (TopicPartition("orders", 1),), (("orders", "id"),)),
    ],
    ids=lambda target: target.kind,
)
def test_every_target_comes_back_as_it_was(tmp_path: Path, target: Target) -> None:
    store = DirectoryRunStore(tmp_path, "run")
    store.create(a_request(target))
    assert store.load().request.target == target


def test_creating_a_run_twice_keeps_what_is_there(make_store: MakeStore) -> None:
    request = a_request()
    make_store().create(request)
    make_store().begin_attempt()
    assert make_store().create(request).attempt == 1


def test_another_run_is_not_created_over_one(make_store: MakeStore) -> None:
    make_store().create(a_request())
    with pytest.raises(ValueError, match="holds run"):
        make_store().create(a_request())


def test_a_run_nobody_created_is_not_found(make_store: MakeStore) -> None:
    store = make_store()
    for call in (store.load, store.begin_attempt, store.approve):
        with pytest.raises(RunNotFound):
            call()


def test_writes_to_a_removed_run_are_stale(make_store: MakeStore) -> None:
    store = make_store()
    with pytest.raises(StaleAttempt, match="removed"):
        store.append(a_progress(1), attempt=1)


def test_a_run_goes_its_way(make_store: MakeStore) -> None:
    store = make_store()
    store.create(a_request())
    attempt = store.begin_attempt()
    store.write_plan(a_plan(), attempt=attempt)
    store.approve()
    store.append(a_progress(attempt, "first"), attempt=attempt)
    store.append(a_progress(attempt, "second"), attempt=attempt)
    store.finish(a_result(), attempt=attempt)

    run = make_store().load()
    assert run.attempt == attempt == 1
    assert run.plan == a_plan()
    assert run.approved
    assert run.journal == (a_progress(1, "first"), a_progress(1, "second"))
    assert run.result == a_result()


def test_a_wait_is_in_the_journal_while_it_lasts(make_store: MakeStore) -> None:
    """A step that is tried again and again while Kafka is away does not fill the document."""
    store = make_store()
    store.create(a_request())
    attempt = store.begin_attempt()
    waits = Progress(ResetPhase.APPLYING, NOON, attempt, waits_for="no answer")
    step = a_progress(attempt)
    store.append(step, attempt=attempt)

    for minute in range(3):
        at = NOON + timedelta(minutes=minute)
        store.append(replace(waits, at=at), attempt=attempt)
        store.append(replace(waits, at=at, waits_for="still none"), attempt=attempt)
        assert make_store().load().journal == (step, replace(waits, at=at, waits_for="still none"))
        store.append(replace(step, at=at, before=()), attempt=attempt)
        assert make_store().load().journal == (step,)

    store.append(waits, attempt=attempt)
    store.append(replace(step, round=2), attempt=attempt)
    store.append(replace(step, round=2, again=step.pending), attempt=attempt)

    assert make_store().load().journal == (step, replace(step, round=2), replace(step, round=2, again=step.pending))


def test_an_older_attempt_writes_nothing_more(make_store: MakeStore) -> None:
    store = make_store()
    store.create(a_request())
    old, new = store.begin_attempt(), store.begin_attempt()
    before = store.load()
    for write in (
        lambda: store.write_plan(a_plan(), attempt=old),
        lambda: store.append(a_progress(old), attempt=old),
        lambda: store.finish(a_result(), attempt=old),
    ):
        with pytest.raises(StaleAttempt):
            write()
    assert store.load() == before
    store.append(a_progress(new), attempt=new)


def test_an_attempt_that_nobody_began_writes_nothing(make_store: MakeStore) -> None:
    store = make_store()
    store.create(a_request())
    store.begin_attempt()
    with pytest.raises(StaleAttempt):
        store.append(a_progress(2), attempt=2)


def test_the_plan_is_written_once(make_store: MakeStore) -> None:
    store = make_store()
    store.create(a_request())
    attempt = store.begin_attempt()
    store.write_plan(a_plan(), attempt=attempt)
    store.write_plan(a_plan(), attempt=attempt)  # the same, again: an answer may have been lost
    with pytest.raises(ValueError, match="has a plan already"):
        store.write_plan(replace(a_plan(), made_at=NOON + timedelta(seconds=1)), attempt=attempt)
    later = store.begin_attempt()
    with pytest.raises(ValueError, match="has a plan already"):
        store.write_plan(a_plan(partitions=2), attempt=later)
    assert store.load().plan == a_plan()


def test_the_result_is_written_once(make_store: MakeStore) -> None:
    store = make_store()
    store.create(a_request())
    attempt = store.begin_attempt()
    store.finish(a_result("first"), attempt=attempt)
    store.finish(a_result("second"), attempt=attempt)
    result = store.load().result
    assert result is not None
    assert result.message == "first"


def test_concurrent_attempts_get_different_numbers(make_store: MakeStore) -> None:
    make_store().create(a_request())
    numbers: list[int] = []

    def begin() -> None:
        store = make_store()
        numbers.extend(store.begin_attempt() for _ in range(3))

    _at_once([begin] * 6)
    assert sorted(numbers) == list(range(1, 19))


def test_concurrent_writers_lose_nothing(make_store: MakeStore) -> None:
    make_store().create(a_request())
    attempt = make_store().begin_attempt()

    def write(writer: int) -> Callable[[], None]:
        def run() -> None:
            store = make_store()
            for n in range(5):
                store.append(a_progress(attempt, f"{writer}/{n}"), attempt=attempt)

        return run

    _at_once([write(w) for w in range(4)] + [make_store().approve])
    run = make_store().load()
    assert run.approved
    assert sorted(p.message for p in run.journal) == sorted(f"{w}/{n}" for w in range(4) for n in range(5))
    for writer in range(4):
        mine = [p.message for p in run.journal if p.message.startswith(f"{writer}/")]
        assert mine == [f"{writer}/{n}" for n in range(5)]


def test_only_one_of_two_plans_wins(make_store: MakeStore) -> None:
    make_store().create(a_request())
    attempt = make_store().begin_attempt()
    refused: list[int] = []

    def plan(partitions: int) -> Callable[[], None]:
        def write() -> None:
            try:
                make_store().write_plan(a_plan(partitions=partitions), attempt=attempt)
            except ValueError:
                refused.append(partitions)

        return write

    _at_once([plan(p) for p in range(1, 7)])
    kept = make_store().load().plan
    assert kept is not None
    assert sorted([*refused, len(kept.partitions)]) == list(range(1, 7))


def test_a_large_plan_comes_back_as_it_was(make_store: MakeStore) -> None:
    store = make_store()
    store.create(a_request())
    attempt = store.begin_attempt()
    plan = a_plan(partitions=20_000)
    store.write_plan(plan, attempt=attempt)
    store.append(a_progress(attempt), attempt=attempt)
    assert make_store().load().plan == plan


def test_evidence_comes_back_as_it_was_and_may_be_gathered_again(make_store: MakeStore) -> None:
    store = make_store()
    store.create(a_request())
    attempt = store.begin_attempt()
    store.write_plan(a_plan(), attempt=attempt)
    assert make_store().load().evidence is None
    store.write_evidence(some_evidence(), attempt=attempt)
    store.append(a_progress(attempt), attempt=attempt)
    assert make_store().load().evidence == some_evidence()
    later = store.begin_attempt()
    with pytest.raises(StaleAttempt):
        store.write_evidence(replace(some_evidence(), read=1), attempt=attempt)
    store.write_evidence(replace(some_evidence(), read=2), attempt=later)
    run = make_store().load()
    assert run.evidence is not None
    assert (run.evidence.read, run.plan, len(run.journal)) == (2, a_plan(), 1)


def test_evidence_is_bounded_and_says_what_it_leaves_out(tmp_path: Path) -> None:
    store = DirectoryRunStore(tmp_path, "run")
    store.create(a_request())
    long = replace(some_evidence().samples[0], key=Content(99, "d", "é" * 5_000))
    store.write_evidence(replace(some_evidence(), samples=(long,) * 100), attempt=store.begin_attempt())
    evidence = store.load().evidence
    assert evidence is not None
    assert 0 < len(evidence.samples) < 100
    assert evidence.topics == some_evidence().topics
    assert (
        evidence.notes[-1]
        == f"Left out because there is no room for more: {100 - len(evidence.samples)} sample records"
    )
    assert len(encode_evidence(evidence).encode()) <= EVIDENCE_LIMIT_BYTES


def test_a_run_written_before_there_was_evidence_is_read(tmp_path: Path) -> None:
    store = DirectoryRunStore(tmp_path, "run")
    store.create(a_request())
    file = tmp_path / "run.json"
    fields = json.loads(file.read_text())
    del fields["evidence"], fields["request"]["evidence"]
    file.write_text(json.dumps(fields))
    assert store.load() == Run(store.load().request)
    fields["evidence"] = {"of": "another version"}
    file.write_text(json.dumps(fields))
    assert store.load().evidence is None


def test_the_location_opens_the_same_run(tmp_path: Path) -> None:
    store = DirectoryRunStore(tmp_path / "a folder", "run")
    request = a_request()
    store.create(request)
    assert open_store(store.location).load().request == request


def test_the_folder_is_its_owners_only(tmp_path: Path) -> None:
    DirectoryRunStore(tmp_path / "runs", "run").create(a_request())
    assert stat.S_IMODE((tmp_path / "runs").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "runs" / "run.json").stat().st_mode) == 0o600


def test_a_person_can_read_the_document(tmp_path: Path) -> None:
    store = DirectoryRunStore(tmp_path, "run")
    store.create(a_request())
    store.write_plan(a_plan(), attempt=store.begin_attempt())
    lines = (tmp_path / "run.json").read_text().splitlines()
    assert sum(line.startswith('{"topic":"orders"') for line in lines) == 3


@pytest.mark.parametrize(
    "location",
    ["", "run", "file://", "file:///", "file://host/run", "configmap://ns", "configmap://ns/a/b", "s3://a/b"],
)
def test_other_locations_are_refused(location: str) -> None:
    with pytest.raises(ValueError, match="is not a run store"):
        open_store(location)


@pytest.mark.parametrize("name", ["", "..", ".hidden", "a/b"])
def test_a_name_stays_in_its_folder(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="can't name"):
        DirectoryRunStore(tmp_path, name)


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("replay-2026-11-20", "replay-2026-11-20"),
        ("replay 1", "replay-1-a77f1b5d"),
        ("x" * 63, "x" * 63),
    ],
)
def test_label_values(text: str, label: str) -> None:
    assert label_value(text) == label


def test_long_texts_keep_their_labels_apart() -> None:
    one, other = label_value("x" * 70), label_value("x" * 71)
    assert one != other
    assert len(one) <= 63


# --- ConfigMaps only --------------------------------------------------------------------------------------------------


@pytest.mark.apiserver
def test_a_config_map_tells_whose_run_it_is(kube_client: Any, namespace: str) -> None:
    from kubernetes.client import CoreV1Api

    client = kube_client
    owner = {"apiVersion": "tidegate.io/v1alpha1", "kind": "OffsetResetPolicy", "name": "payments", "uid": "u-1"}
    store = open_store(f"configmap://{namespace}/payments-replay", api_client=client, owner=owner)
    store.create(a_request())
    store.write_plan(a_plan(), attempt=store.begin_attempt())

    config_map = CoreV1Api(client).read_namespaced_config_map("payments-replay", namespace)
    assert config_map.metadata.labels["tidegate.io/policy"] == "payments"
    assert config_map.metadata.labels["tidegate.io/run"] == "replay"
    assert config_map.metadata.owner_references[0].uid == "u-1"
    assert sum(line.startswith('{"topic":"orders"') for line in config_map.data["plan.json"].splitlines()) == 3


@pytest.mark.apiserver
def test_what_others_write_on_the_config_map_stays(kube_client: Any, namespace: str) -> None:
    from kubernetes.client import CoreV1Api

    core = CoreV1Api(kube_client)
    store = ConfigMapRunStore(namespace, "noted", api_client=kube_client)
    store.create(a_request())
    core.patch_namespaced_config_map("noted", namespace, {"metadata": {"annotations": {"team": "payments"}}})
    store.begin_attempt()
    assert core.read_namespaced_config_map("noted", namespace).metadata.annotations["team"] == "payments"


@pytest.mark.apiserver
def test_a_run_that_does_not_fit_says_what_takes_the_room(kube_client: Any, namespace: str) -> None:
    store = ConfigMapRunStore(namespace, "large", api_client=kube_client)
    store.create(a_request())
    attempt = store.begin_attempt()
    noise = base64.b64encode(uuid.uuid4().bytes * 4).decode()
    partitions = tuple(
        PartitionPlan(f"{uuid.uuid4()}-{noise}", p, str(uuid.uuid4()), None, p, 0, p) for p in range(40_000)
    )
    with pytest.raises(DocumentTooLarge, match=r"plan\.json\.gz"):
        store.write_plan(replace(a_plan(), partitions=partitions), attempt=attempt)
    store.append(a_progress(attempt), attempt=attempt)


@pytest.mark.apiserver
def test_evidence_makes_room_for_the_run(kube_client: Any, namespace: str, monkeypatch: pytest.MonkeyPatch) -> None:
    store = ConfigMapRunStore(namespace, "full", api_client=kube_client)
    store.create(a_request())
    attempt = store.begin_attempt()
    store.write_plan(a_plan(), attempt=attempt)
    store.write_evidence(some_evidence(), attempt=attempt)
    size = len(encode_evidence(some_evidence()))
    monkeypatch.setattr(config_map_store, "CONFIG_MAP_LIMIT_BYTES", size + 4_000)
    message = "x" * (size // 2)
    for n in range(3):
        store.append(a_progress(attempt, f"{n}{message}"), attempt=attempt)
    run = store.load()
    assert len(run.journal) == 3
    assert run.evidence == left_out(some_evidence())
    with pytest.raises(DocumentTooLarge):
        store.append(a_progress(attempt, 9 * message), attempt=attempt)


def test_an_api_server_that_stays_away_is_named() -> None:
    from kubernetes import client

    configuration = client.Configuration(host="http://127.0.0.1:9")
    store = ConfigMapRunStore("ns", "run", api_client=client.ApiClient(configuration), patience_s=0.3)
    with pytest.raises(StoreUnavailable, match="configmap://ns/run"):
        store.load()


def _at_once(calls: list[Callable[[], None]]) -> None:
    """Run all in threads that start together; the first failure is raised."""
    start = threading.Barrier(len(calls))
    failures: list[BaseException] = []

    def run(call: Callable[[], None]) -> None:
        start.wait(10)
        try:
            call()
        except BaseException as error:  # noqa: BLE001 - handed to the test's thread
            failures.append(error)

    threads = [threading.Thread(target=run, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    if failures:
        raise failures[0]
    assert not any(thread.is_alive() for thread in threads)


@pytest.mark.apiserver
def test_an_api_server_that_comes_back_is_waited_for() -> None:
    from kubernetes import client, config

    with ApiServer.start() as server:
        api_client = config.new_client_from_config(str(server.kubeconfig))
        client.CoreV1Api(api_client).create_namespace({"metadata": {"name": "prod"}})
        store = ConfigMapRunStore("prod", "patient", api_client=api_client)
        store.create(a_request())
        attempt = store.begin_attempt()
        server.kill()
        back = threading.Timer(1.0, server.restart)
        back.start()
        try:
            store.append(a_progress(attempt, "while it was away"), attempt=attempt)
        finally:
            back.join()
        assert [p.message for p in store.load().journal] == ["while it was away"]


@pytest.mark.apiserver
def test_a_namespace_that_is_not_there_is_named(kube_client: Any) -> None:
    with pytest.raises(StoreFailure, match="nowhere"):
        ConfigMapRunStore("nowhere", "run", api_client=kube_client).create(a_request())
