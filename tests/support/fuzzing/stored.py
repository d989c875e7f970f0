"""Decoders of what is stored: ConfigMaps, folders and object stores that others may write, and files of a command."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

from support.fuzzing.target import OFFSET_MAX, PARTITION_MAX, Target, as_json, config_map, document, members
from support.stored_documents import KINDS, MEMORY, PLAN, REQUEST, RUN
from tidegate.cli import java_text
from tidegate.compressed import pack
from tidegate.discovery import remembered
from tidegate.incident import redaction
from tidegate.inject import certificates
from tidegate.jobs import runner_local
from tidegate.jobs.errors import RunnerFailure
from tidegate.offset_backup import document as backups
from tidegate.offset_backup import manifest, order, wanted
from tidegate.offset_mirror import order as mirror_order
from tidegate.offset_mirror import report as mirror_report
from tidegate.policy import memory
from tidegate.reset import codec
from tidegate.reset.config_map_store import ConfigMapRunStore
from tidegate.reset.directory_store import DirectoryRunStore
from tidegate.reset.document import StoreFailure
from tidegate.reset.planning.offsets_csv import BadOffsetsFile, parse_offsets, write_offsets
from tidegate.reset.store import Run
from tidegate.resources.offset_backup import TAKE
from tidegate.retention import last_offsets
from tidegate.stuck import told
from tidegate.versions import NewerVersion

_GROUP: Final = "payments"
_FOLDER: Final = Path(tempfile.gettempdir())


def _text(data: bytes) -> str:
    return data.decode(errors="replace")


# --- a run ------------------------------------------------------------------------------------------------------------


def _run_of_config_map(data: bytes) -> Run:
    found = config_map(data)
    binary = {name: found.pop(name) for name in list(found) if name.endswith(".gz")}
    store = ConfigMapRunStore("ns", "run", api_client=object())
    store._core = SimpleNamespace(read=lambda *_, **__: {"data": found, "binaryData": binary})  # type: ignore[assignment]
    return store.load()


def _run_of_file(data: bytes) -> Run:
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
        (Path(folder) / "run.json").write_bytes(data)
        return DirectoryRunStore(Path(folder), "run").load()


def _check_run(run: Run) -> None:
    assert codec.decode_request(codec.encode_request(run.request)) == run.request
    assert codec.request_digested(run.request)
    if run.plan is not None:
        _check_plan(run.plan)
    if run.result is not None:
        assert codec.decode_result(codec.encode_result(run.result)) == run.result
    assert 0 <= run.attempt <= PARTITION_MAX


def _check_plan(plan: Any) -> None:
    """What is committed by it is what Kafka can have."""
    for row in plan.partitions:
        assert 0 <= row.partition <= PARTITION_MAX
        for offset in (row.target, row.earliest, row.latest, 0 if row.committed is None else row.committed):
            assert 0 <= offset <= OFFSET_MAX
    assert codec.decode_plan(codec.encode_plan(plan)) == plan


def _evidence(data: bytes) -> Any:
    return codec.evidence_from(document(data))


# --- others -----------------------------------------------------------------------------------------------------------


def _check_places(places: last_offsets.Places) -> None:
    assert all(p.partition >= 0 and 0 <= row.commit.offset < 2**64 for p, row in places.rows.items())
    again = last_offsets.of_document(json.loads(json.dumps(last_offsets.to_document(places))))
    assert again == places


def _check_memory(groups: Any) -> None:
    json.dumps(groups)


def _check_remembered(read: remembered.Remembered) -> None:
    assert remembered.decode(json.loads(json.dumps(remembered.encode(read)))) == read


def _check_told(known: told.Known) -> None:
    assert told.encode(told.decode(json.loads(json.dumps(told.encode(known))))) == told.encode(known)
    assert all(0 <= it.committed <= OFFSET_MAX for it in known.stuck.values())


def _check_order(read: order.Order) -> None:
    assert all(c.isascii() and (c.isalnum() or c == "-") for c in read.schedule + read.attempt), "they name folders"
    assert order.decode_order(order.encode_order(read)) == read


def _check_mirror_order(read: mirror_order.MirrorOrder) -> None:
    assert mirror_order.decode_order(mirror_order.encode_order(read)) == read
    shares = [read.share(place) for place in range(min(read.tasks, 50))]
    assert sum(map(len, shares)) <= mirror_order.MOST_PARTITIONS
    assert all(rate is None or rate > 0 for rate in map(read.rate, range(len(shares))))


def _check_mirror_report(read: mirror_report.Report) -> None:
    assert all(0 <= (row.offset or 0) <= OFFSET_MAX for row in read.rows.values())
    assert mirror_report.decode_report(mirror_report.encode_report(read)).rows.keys() == read.rows.keys()


def _check_manifest(read: manifest.Manifest) -> None:
    folder, slash, name = read.data.partition("/")
    assert (folder, slash) == ("data", "/")
    assert "/" not in name
    assert not name.startswith(".")


def _check_offsets(rows: Any) -> None:
    assert all(0 <= r.partition <= PARTITION_MAX and 0 <= r.offset <= OFFSET_MAX for r in rows)
    if rows:
        assert parse_offsets(write_offsets(rows), _GROUP) == rows


def _note(data: bytes) -> Any:
    with tempfile.NamedTemporaryFile(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as file:
        Path(file.name).write_bytes(data)
        return runner_local._noted(Path(file.name))


def _redact(data: bytes) -> tuple[str, str]:
    return _text(data), redaction.log_redacted(_text(data))


def _check_redacted(read: tuple[str, str]) -> None:
    given, told = (sum(redaction._object_redacted(line) is not None for line in log.split("\n")) for log in read)
    assert told >= given, "objects in lines stay objects in lines"
    read[1].encode()  # an archive is of bytes


def _certificates(data: bytes) -> Any:
    return certificates.read({name: value.encode() for name, value in config_map(data).items()})


_STUCK: Final = {
    "topics": {"orders": "ZXYbL0OQR2mMkbQ4tA1r7w"},
    "pace": {"orders": {"0": [5, 4.5], "1": [2, 0.0]}},
    "judged": 1,
    "stuck": [
        {
            "partition": ["orders", 0],
            "committed": 11,
            "record": [12, 1795773600000, 20, 1],
            "sinceMs": 1795773660000,
            "verdict": "OneOfSeveral",
            "among": [["orders", 0], ["orders", 1]],
            "reset": "",
            "made": False,
        }
    ],
    "withdrawn": ["payments-skip-0123456789ab"],
}
_PROPERTIES: Final = b"bootstrap.servers = a:9092\n! no\nsasl.jaas.config: x \\\n  y\\u0041\nk\\ ey=v\n"

TARGETS: Final = (
    Target(
        "run-config-map",
        (
            "tidegate.reset.config_map_store:ConfigMapRunStore._decode",
            "tidegate.reset.codec:read_json",
            "tidegate.reset.codec:request_from",
            "tidegate.compressed:unpack",
        ),
        (
            members(KINDS["run"].write()["data"]),
            members(
                {"request.json": codec.encode_request(REQUEST), "plan.json.gz": pack(codec.encode_plan(PLAN).encode())}
            ),
        ),
        _run_of_config_map,
        (StoreFailure,),
        _check_run,
    ),
    Target(
        "run-file",
        ("tidegate.reset.directory_store:DirectoryRunStore._read",),
        (as_json(KINDS["run-file"].write()),),
        _run_of_file,
        (StoreFailure,),
        _check_run,
    ),
    Target(
        "request",
        ("tidegate.reset.codec:decode_request",),
        (codec.encode_request(REQUEST).encode(),),
        codec.decode_request,
        (ValueError,),
    ),
    Target(
        "plan",
        ("tidegate.reset.codec:decode_plan",),
        (codec.encode_plan(PLAN).encode(),),
        codec.decode_plan,
        (ValueError,),
        _check_plan,
    ),
    Target(
        "result",
        ("tidegate.reset.codec:decode_result",),
        (codec.encode_result(RUN.result).encode() if RUN.result is not None else b"",),
        codec.decode_result,
        (ValueError,),
    ),
    Target("evidence", ("tidegate.reset.codec:evidence_from",), (b'{"made_at":"2026-11-26T12:00:00Z"}',), _evidence),
    Target(
        "last-offsets",
        ("tidegate.retention.last_offsets:decode",),
        (members(KINDS["last-offsets"].write()),),
        lambda data: last_offsets.decode(config_map(data), _GROUP),
        (NewerVersion, ValueError),
        _check_places,
    ),
    Target(
        "policy-memory",
        ("tidegate.policy.memory:decode",),
        (members(memory.encode(MEMORY)),),
        lambda data: memory.decode(config_map(data)),
        (NewerVersion, ValueError),
        _check_memory,
    ),
    Target(
        "remembered",
        ("tidegate.discovery.remembered:decode",),
        (as_json(MEMORY["payments"]["discovery"]),),
        lambda data: remembered.decode(document(data)),
        (ValueError,),
        _check_remembered,
    ),
    Target(
        "stuck-records",
        ("tidegate.stuck.told:decode",),
        (as_json(_STUCK),),
        lambda data: told.decode(document(data)),
        (ValueError,),
        _check_told,
    ),
    Target(
        "backup-document",
        ("tidegate.offset_backup.document:decode_document",),
        (members(KINDS["backup-order"].write()),),
        lambda data: backups.decode_document(config_map(data)),
        (NewerVersion, backups.BadDocument),
        lambda read: _check_order(read.order),
    ),
    Target(
        "backup-order",
        ("tidegate.offset_backup.order:decode_order",),
        (KINDS["backup-order"].write()["order.json"].encode(),),
        order.decode_order,
        (ValueError,),
        _check_order,
    ),
    Target(
        "mirror-document",
        ("tidegate.offset_mirror.order:decode_document",),
        (members(KINDS["mirror-order"].write()),),
        lambda data: mirror_order.decode_document(config_map(data)),
        (NewerVersion, mirror_order.BadOrder),
        _check_mirror_order,
    ),
    Target(
        "mirror-order",
        ("tidegate.offset_mirror.order:decode_order",),
        (mirror_order.encode_order(KINDS["mirror-order"].value),),
        mirror_order.decode_order,
        (mirror_order.BadOrder,),
        _check_mirror_order,
    ),
    Target(
        "mirror-report",
        ("tidegate.offset_mirror.report:decode_report",),
        (members(KINDS["mirror-report"].write()),),
        lambda data: mirror_report.decode_report(config_map(data)),
        (NewerVersion, mirror_report.BadReport),
        _check_mirror_report,
    ),
    Target(
        "backup-manifest",
        ("tidegate.offset_backup.manifest:decode",),
        (KINDS["backup-manifest"].write()["manifest"].encode(),),
        manifest.decode,
        (manifest.BadManifest,),
        _check_manifest,
    ),
    Target(
        "backup-name",
        ("tidegate.offset_backup.manifest:due_of",),
        (b"manifests/20261126T120000Z.json", b"data/20261126T120000Z-nightly-1"),
        lambda data: manifest.due_of(_text(data)),
    ),
    Target(
        "backup-asked-for",
        ("tidegate.offset_backup.wanted:asked_for",),
        (b"2026-11-26T12:00:00Z",),
        lambda data: wanted.asked_for({"metadata": {"annotations": {TAKE: _text(data)}}}),
    ),
    Target(
        "offsets-csv",
        ("tidegate.reset.planning.offsets_csv:parse_offsets",),
        (b"orders,0,10\norders,1,20\n", b'payments,orders,0,10\r\n"other, one",orders,0,9\r\n'),
        lambda data: parse_offsets(_text(data), _GROUP),
        (BadOffsetsFile,),
        _check_offsets,
    ),
    Target(
        "local-launch",
        ("tidegate.jobs.runner_local:_noted",),
        (KINDS["local-launch"].write()["process.json"].encode(),),
        _note,
        (RunnerFailure,),
    ),
    Target(
        "operator-log",
        ("tidegate.incident.redaction:_object_redacted",),
        (
            b'{"time": "2026-11-26T12:00:00.000Z", "level": "INFO", "message": "sasl.password\\t=\\thunter2"}\nkilled',
            b'2026-11-26 12:00:00,000 INFO    tidegate: {\\"password\\": \\"a b\\"}\\n --token\\x0bx',
            b"-----BEGIN PRIVATE KEY-----\nMII\n-----END PRIVATE KEY-----\npassword: |\n  x",
        ),
        _redact,
        check=_check_redacted,
    ),
    Target(
        "certificates",
        ("tidegate.inject.certificates:read",),
        (members({"tls.crt": "-----BEGIN CERTIFICATE-----\n", "tls.key": "", "ca.crt": ""}),),
        _certificates,
    ),
    Target(
        "java-properties",
        ("tidegate.cli.java_text:parse_properties",),
        (_PROPERTIES,),
        lambda data: java_text.parse_properties(_text(data)),
        (ValueError,),
    ),
    Target(
        "java-datetime",
        ("tidegate.cli.java_text:parse_datetime",),
        (b"2026-11-26T12:00:00.000", b"2026-11-26T12:00:00+01:00"),
        lambda data: java_text.parse_datetime(_text(data)),
        (ValueError,),
    ),
    Target(
        "java-duration",
        ("tidegate.cli.java_text:parse_duration",),
        (b"P1DT2H3M4.5S", b"-PT6H"),
        lambda data: java_text.parse_duration(_text(data)),
        (ValueError,),
    ),
)
