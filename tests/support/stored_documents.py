"""One document of each kind that is stored (`tidegate.versions`): as values, as it is written, and how it is read.

`tests/data/stored` has what earlier code has written of the same values. To record what the code of a folder writes:

    PYTHONPATH=<its operator folder>:tests python -m support.stored_documents <commit>
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

from tidegate.audit.codec import decode_change, encode_change
from tidegate.audit.records import Action, Actor, Change, Moved, State
from tidegate.control.codec import decode as decode_record
from tidegate.control.codec import encode_key, encode_value
from tidegate.control.records import (
    Ack,
    AckKey,
    Claim,
    ClaimKey,
    Hold,
    HoldKey,
    Key,
    Limit,
    LimitKey,
    Outcome,
    PartitionKey,
    PartitionSeen,
    RunKey,
    Value,
)
from tidegate.control.records import Run as RunRecord
from tidegate.discovery import remembered
from tidegate.discovery.state import DiscoveryState, KnownTopic
from tidegate.jobs import runner_local
from tidegate.jobs.storage import Folder
from tidegate.kafka.connection import Connection
from tidegate.kafka.model import Topic, TopicPartition
from tidegate.kafka.offset_retention import Commit
from tidegate.offset_backup import document as backups
from tidegate.offset_backup import manifest as manifests
from tidegate.offset_backup.order import Order
from tidegate.offset_mirror import order as mirror_order
from tidegate.offset_mirror import report as mirror_report
from tidegate.offset_mirror.topics import Copied
from tidegate.policy import memory
from tidegate.reset.config_map_store import ConfigMapRunStore
from tidegate.reset.directory_store import DirectoryRunStore
from tidegate.reset.model.plan import PartitionPlan, Plan
from tidegate.reset.model.progress import Progress
from tidegate.reset.model.request import ApplySettings, RunRequest, Selection
from tidegate.reset.model.result import RunResult, Standstill
from tidegate.reset.model.targets import PartitionOffset, ToOffset
from tidegate.reset.store import Run
from tidegate.resources.reset import ResetPhase, Way
from tidegate.retention import last_offsets

FOLDER: Final = Path(__file__).parents[1] / "data" / "stored"
NOON: Final = datetime(2026, 11, 26, 12, tzinfo=UTC)
_T0 = TopicPartition("orders", 0)
_STORAGE = Folder(Path("/backups"))

REQUEST = RunRequest(
    run_uid="5f0e/replay",
    run_id="replay",
    group_id="payments",
    connection=Connection("kafka-0:9092"),
    selections=(Selection("orders", frozenset({0, 1})),),
    target=ToOffset(10),
    settings=ApplySettings(deadline=NOON + timedelta(minutes=15)),
    allowed_topics=("orders",),
    manual_approval=True,
)
PLAN = Plan(
    "replay",
    "payments",
    NOON,
    (
        PartitionPlan("orders", 0, "ZXYbL0OQR2mMkbQ4tA1r7w", committed=50, target=10, earliest=0, latest=100),
        PartitionPlan("orders", 1, "ZXYbL0OQR2mMkbQ4tA1r7w", committed=None, target=10, earliest=0, latest=100),
    ),
    notes=("a note",),
)
RUN = Run(
    REQUEST,
    attempt=2,
    plan=PLAN,
    journal=(
        Progress(ResetPhase.PLANNING, NOON, 1),
        Progress(ResetPhase.APPLYING, NOON, 2, way=Way.HANDOVER, round=1, before=(PartitionOffset("orders", 0, 50),)),
    ),
    result=RunResult(ResetPhase.SUCCEEDED, "Verified", "done", NOON, Way.HANDOVER, 1, 0, Standstill(0.2, 1.5)),
    approved=True,
)
PLACES = last_offsets.Places(
    {_T0: last_offsets.Place(Commit(11, "m"), "ZXYbL0OQR2mMkbQ4tA1r7w", 1_000, kept_ms=2_000, lost_ms=3_000)},
    looked_ms=4_000,
    vacant=True,
)
REMEMBERED = remembered.Remembered(
    DiscoveryState(True, {"orders": KnownTopic("ZXYbL0OQR2mMkbQ4tA1r7w", 2, 3, ("old",))}),
    ("orders",),
    remembered.Counts(1, 2, 3),
    ("orders", "refunds-*"),
)
MEMORY = {
    "payments": {
        "discovery": remembered.encode(REMEMBERED),
        "retention": last_offsets.to_document(PLACES),
        "gone": {"sinceS": 5.5},
    }
}
_ORDER = Order(Connection("kafka-0:9092"), _STORAGE, "5f0e", NOON, "nightly-1", keep=None)
BACKUP = backups.Backup(_STORAGE, "cluster", NOON, NOON, "/backups/x", 3, 30, 300)
ORDERED = backups.Document(_ORDER, backups.Asked(7, NOON, made=BACKUP), backups.Result(NOON, BACKUP))
MANIFEST = manifests.Manifest("cluster", "5f0e", NOON, NOON, NOON, "data/x-1", 3, 30, 300, {"g": "why"})

CHANGE = Change(
    "5f0e/replay#1.1",
    Action.RESET,
    State.COMMITTED,
    "payments",
    Actor("OffsetReset", "replay", "ns"),
    {_T0: Moved(11, 10)},
    "5f0e/replay",
    1,
    "Handover",
    "ab12",
    "ann",
    "bob",
    "ab12",
)

MIRROR_ORDER = mirror_order.MirrorOrder(
    namespace="kafka",
    name="to-new",
    uid="5f0e",
    launch="to-new-mirror-0a1b2c3d-4",
    source=Connection("old-0:9092"),
    target=Connection("new-0:9092"),
    clusters=("old", "new"),
    settings="6c9d",
    topics=(Copied(Topic("orders", "id-old", 3), Topic("orders", "id-new", 3), False, None, (7, 8, 9)),),
    left_out=(TopicPartition("orders", 2),),
    tasks=2,
    max_fill=1000,
    bytes_per_second=1_000_000,
    former_ids=(4000,),
)
MIRROR_REPORT = mirror_report.Report(
    "to-new-mirror-0a1b2c3d-4",
    3,
    17,
    {
        TopicPartition("orders", 0): mirror_report.Row(9, 4001),
        TopicPartition("orders", 1): mirror_report.Row(stopped="full"),
    },
    4001,
    100,
    20_000,
    "the source does not answer",
)

Document = dict[str, Any]


@dataclass(frozen=True)
class Kind:
    """`value`: what is stored. `write` gives it as a document, JSON; `read` reads one, as the operator does.

    `at`: where in the document the version is said, from the outside in; the last one may be text that is JSON.
    """

    value: Any
    write: Callable[[], Document]
    read: Callable[[Document], Any]
    at: tuple[str, ...]
    as_text: bool = False
    member: str = "version"


def _written_run() -> Document:
    store = ConfigMapRunStore("ns", "run", api_client=object())
    data, binary = store._encode(RUN, None)
    return {"data": data, "binaryData": binary}


def _read_run(document: Document) -> Run:
    store = ConfigMapRunStore("ns", "run", api_client=object())
    store._core = SimpleNamespace(  # type: ignore[assignment]
        read=lambda *_, **__: {"data": document["data"], "binaryData": document["binaryData"]}
    )
    return store.load()


def _written_file() -> Document:
    with tempfile.TemporaryDirectory() as folder:
        store = DirectoryRunStore(Path(folder), "run")
        store._replace(RUN)
        found: Document = json.loads((Path(folder) / "run.json").read_text())
        return found


def _read_file(document: Document) -> Run:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "run.json").write_text(json.dumps(document))
        return DirectoryRunStore(Path(folder), "run").load()


def _record(key: Key, value: Value) -> Kind:
    def write() -> Document:
        said = encode_value(value)
        assert said is not None
        return {"key": encode_key(key).decode(), "value": said.decode()}

    def read(document: Document) -> Value:
        read_key, found = decode_record(document["key"].encode(), document["value"].encode())
        assert read_key == key
        return found

    return Kind(value, write, read, ("value",), as_text=True)


def _written_note() -> str:
    note: str = runner_local._note_of(runner_local._Process(4711, 815))
    return note


def _read_note(document: Document) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "process.json"
        path.write_text(document["process.json"])
        return runner_local._noted(path)


_HOLDER = ("payments", "orders", 0, "reset/5f0e/replay")

KINDS: Final[Mapping[str, Kind]] = {
    "run": Kind(RUN, _written_run, _read_run, ("data",)),
    "run-file": Kind(RUN, _written_file, _read_file, ()),
    "policy-memory": Kind(MEMORY, lambda: memory.encode(MEMORY), memory.decode, (memory.PLAIN,), as_text=True),
    "last-offsets": Kind(
        PLACES,
        lambda: last_offsets.encode(PLACES, "payments"),
        lambda d: last_offsets.decode(d, "payments"),
        (last_offsets.PLAIN,),
        as_text=True,
    ),
    "backup-order": Kind(ORDERED, lambda: backups.encode_document(ORDERED), backups.decode_document, ()),
    "backup-manifest": Kind(
        MANIFEST,
        lambda: {"manifest": manifests.encode(MANIFEST).decode()},
        lambda d: manifests.decode(d["manifest"].encode()),
        ("manifest",),
        as_text=True,
        member="format",
    ),
    "mirror-order": Kind(
        MIRROR_ORDER, lambda: mirror_order.encode_document(MIRROR_ORDER), mirror_order.decode_document, ()
    ),
    "mirror-report": Kind(
        MIRROR_REPORT, lambda: mirror_report.encode_report(MIRROR_REPORT), mirror_report.decode_report, ()
    ),
    "local-launch": Kind(
        runner_local._Process(4711, 815),
        lambda: {"process.json": _written_note()},
        _read_note,
        ("process.json",),
        as_text=True,
    ),
    "control-hold": _record(HoldKey(*_HOLDER), Hold("why", 5_000, "6c9d")),
    "control-limit": _record(LimitKey(*_HOLDER), Limit(7, "why", 5_000)),
    "control-partition": _record(PartitionKey("orders", "ZXYbL0OQR2mMkbQ4tA1r7w", 0), PartitionSeen(9, 8)),
    "control-claim": _record(ClaimKey("payments", "c-1"), Claim("reset/5f0e/replay", "why", 30_000, 4, 5)),
    "control-run": _record(
        RunKey("ns", "", "replay"), RunRecord("5f0e/replay", 1, Outcome.SUCCEEDED, 2, "ab12", "6c9d", 3)
    ),
    "audit-change": Kind(
        CHANGE,
        lambda: {"value": next(iter(encode_change(CHANGE).values())).decode()},
        lambda d: decode_change(d["value"].encode()).change,
        ("value",),
        as_text=True,
    ),
    "ack": _record(AckKey("payments", "orders", 0), Ack(4, 17, "consumer-1")),
}


def of_version(kind: Kind, document: Document, version: object) -> Document:
    """The document, saying that it is of this version; `None`: it says none."""
    copy: Document = json.loads(json.dumps(document))
    holder = copy
    for step in kind.at[:-1] if kind.as_text else kind.at:
        holder = holder[step]
    said = json.loads(holder[kind.at[-1]]) if kind.as_text else holder
    said.pop(kind.member, None)
    if version is not None:
        # A ConfigMap's data is text.
        in_data = not kind.as_text and kind is not KINDS["run-file"]
        said[kind.member] = str(version) if in_data else version
    if kind.as_text:
        holder[kind.at[-1]] = json.dumps(said, sort_keys=True, separators=(",", ":"))
    return copy


def version_of(kind: Kind, document: Document) -> object:
    """What the document says."""
    said: Any = document
    for step in kind.at:
        said = said[step]
    if kind.as_text:
        said = json.loads(said)
    return said.get(kind.member)


def recorded(name: str) -> list[Path]:
    """What earlier code has written of this kind, by version and commit."""
    return sorted((FOLDER / name).glob("v*.json"))


if __name__ == "__main__":
    for each, stored in KINDS.items():
        place = FOLDER / each
        place.mkdir(parents=True, exist_ok=True)
        written = stored.write()
        found = version_of(stored, written) or 1
        (place / f"v{found}-{sys.argv[1]}.json").write_text(json.dumps(written, indent=1, sort_keys=True) + "\n")
