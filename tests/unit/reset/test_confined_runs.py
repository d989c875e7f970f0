"""A run's document is a ConfigMap that others may write: what decides whom the run touches is not taken from it."""

import tracemalloc
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from support.alone import alone
from tidegate.compressed import pack, unpack
from tidegate.kafka.connection import Authentication, AuthenticationType, Connection
from tidegate.reset.confined import ConfinedRunStore, Confines
from tidegate.reset.directory_store import DirectoryRunStore
from tidegate.reset.model.plan import PartitionPlan, Plan
from tidegate.reset.model.progress import Progress
from tidegate.reset.model.request import EvidenceSettings, RunRequest
from tidegate.reset.model.result import RunResult
from tidegate.reset.model.targets import FromCluster, FromGroup, PartitionOffset, ToOffset
from tidegate.reset.store import ForeignRun, Run
from tidegate.resources.reset import ResetPhase

NOW = datetime(2026, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)
OURS = Connection("kafka:9093", tls=True, properties={"client.id": "tidegate"})
OTHERS = Connection("other:9093", tls=True)
CONFINES = Confines(
    "uid/one",
    "payments",
    OURS,
    ("payments", "payments-*"),
    ("orders", "pay.*"),
    dead_letter="",
    hides_values=True,
    other=OTHERS,
    other_groups=("old-*",),
)
REQUEST = RunRequest("uid/one", "one", "payments", OURS, (), ToOffset(1), allowed_topics=("orders",))
TOKEN = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")


def planned(topic: str, group: str = "payments") -> Plan:
    return Plan("one", group, NOW, (PartitionPlan(topic, 0, "id", 5, 1, 0, 9),))


def progress(topic: str) -> Progress:
    return Progress(ResetPhase.APPLYING, NOW, 1, before=(PartitionOffset(topic, 0, 5),))


def result(topic: str) -> RunResult:
    return RunResult(ResetPhase.SUCCEEDED, "Succeeded", "", NOW, before=(PartitionOffset(topic, 0, 5),))


class Written:
    """A document as somebody has written it."""

    location = "configmap://ns/p-one"

    def __init__(self, **parts: Any) -> None:
        self.run = Run(**{"request": REQUEST, **parts})

    def load(self) -> Run:
        return self.run

    def create(self, _request: RunRequest) -> Run:
        return self.run


@pytest.mark.parametrize(
    ("parts", "flaw"),
    [
        ({"request": replace(REQUEST, run_uid="another/one")}, "run another/one"),
        ({"request": replace(REQUEST, group_id="billing")}, "group billing"),
        ({"request": replace(REQUEST, target=FromGroup("billing"))}, "reads group billing"),
        ({"request": replace(REQUEST, evidence=EvidenceSettings(show_values=True))}, "shows what is in records"),
        ({"request": replace(REQUEST, dead_letter="public.DLT")}, "copies records to topic public.DLT"),
        ({"request": replace(REQUEST, target=FromCluster(OTHERS, "billing", ("key",), HOUR))}, "reads group billing"),
        ({"plan": planned("orders", group="billing")}, "group billing"),
        ({"plan": planned("salaries")}, "topic salaries"),
        ({"plan": planned("__consumer_offsets")}, "topic __consumer_offsets"),
        ({"journal": (progress("salaries"),)}, "topic salaries"),
        ({"result": result("salaries")}, "topic salaries"),
    ],
)
def test_what_reaches_beyond_the_policy_is_not_obeyed(parts: dict[str, Any], flaw: str) -> None:
    store = ConfinedRunStore(Written(**parts), CONFINES)  # type: ignore[arg-type]

    for read in (store.load, lambda: store.create(REQUEST)):
        with pytest.raises(ForeignRun, match=flaw) as caught:
            read()
    assert "configmap://ns/p-one" in str(caught.value)


def test_whom_it_connects_to_and_with_which_files_is_the_connections_to_say() -> None:
    auth = Authentication(AuthenticationType.PLAIN, username="x", password_file=TOKEN)
    forged = replace(REQUEST, connection=Connection("evil.example:9092", authentication=auth), allowed_topics=("*",))

    forged = replace(forged, target=FromCluster(forged.connection, "old-payments", ("key",), HOUR))

    run = ConfinedRunStore(Written(request=forged), CONFINES).load()  # type: ignore[arg-type]

    assert run.request.connection == OURS
    assert isinstance(run.request.target, FromCluster)
    assert run.request.target.connection == OTHERS
    assert run.request.allowed_topics == ("orders", "pay.*")


def test_a_run_as_it_was_written_is_read_as_it_was_written(tmp_path: Path) -> None:
    store = ConfinedRunStore(DirectoryRunStore(tmp_path, "p-one"), CONFINES)
    store.create(replace(REQUEST, allowed_topics=CONFINES.topics or ()))
    attempt = store.begin_attempt()
    store.write_plan(planned("orders"), attempt=attempt)
    store.append(progress("pay.eu"), attempt=attempt)
    store.approve()
    store.finish(result("orders"), attempt=attempt)

    run = store.load()

    assert run == DirectoryRunStore(tmp_path, "p-one").load()
    assert (run.plan, run.approved) == (planned("orders"), True)


def test_a_document_is_not_unpacked_beyond_its_limit() -> None:
    bomb = pack(bytes(5_000_000))

    assert len(bomb) < 10_000
    assert len(unpack(bomb)) == 5_000_000
    with pytest.raises(ValueError, match="longer than 1,000,000 bytes"):
        unpack(bomb, 1_000_000)
    for broken in ("AAAA", bomb[:-8]):
        with pytest.raises(ValueError, match="can't be unpacked"):
            unpack(broken)


@pytest.mark.parametrize("raw", [b"[" + b"[]," * 20_000_000 + b"[]]", b"\n" * 60_000_000], ids=["values", "lines"])
def test_a_document_of_very_many_values_is_refused_before_it_is_read(raw: bytes) -> None:
    """Each takes many times the memory of what it is written in: these would be up to a gigabyte and a half."""
    bomb = pack(raw)

    with pytest.raises(ValueError, match="more than 3,000,000 values"):
        unpack(bomb)


def most_bytes_of_a_refusal(bomb: str) -> int:
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match="longer than 1,000,000 bytes"):
            unpack(bomb, 1_000_000)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_what_is_beyond_the_limit_is_never_in_memory() -> None:
    assert alone(most_bytes_of_a_refusal, pack(bytes(50_000_000))) < 10_000_000
