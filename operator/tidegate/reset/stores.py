"""The run stores: a folder of JSON documents, and ConfigMaps of a cluster.

Both change a run by pure functions ``Run → Run`` (below), so a rule such as "a run never gets a second plan" is
written once; they differ in how a change is made atomic: an exclusive lock and a rename, or a compare-and-swap by
``resourceVersion``. A write whose answer was lost is done again after looking, so every change is idempotent.

Documents hold no secrets: a ``Connection`` names the files that do.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import tempfile
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import unquote, urlsplit

from pydantic import Field, TypeAdapter, ValidationError

from tidegate.clock import Clock, SystemClock
from tidegate.compressed import pack, unpack
from tidegate.kube.api import ApiUnavailable, NoCluster, PatientCalls, default_api_client
from tidegate.kube.labels import label_value
from tidegate.reset.evidence import Evidence, fitted, left_out
from tidegate.reset.model import (
    FleetPlan,
    PartitionPlan,
    Plan,
    Progress,
    Roster,
    RunRequest,
    RunResult,
    Target,
    noted,
)
from tidegate.reset.store import Run, RunNotFound, RunStore, StaleAttempt

CONFIG_MAP_LIMIT_BYTES = 1024 * 1024
"""What the API server takes as the sum of all values (``MaxSecretSize`` in its validation)."""

INLINE_LIMIT_BYTES = 64 * 1024
"""A part of the document up to this size stays readable text in a ConfigMap; a larger one is compressed."""

LOCK_PATIENCE_S = 30.0
API_PATIENCE_S = 60.0

MAX_CONFLICTS = 50


class StoreFailure(Exception):
    """The store could not be read or written; the message says where and why."""


class StoreUnavailable(StoreFailure):
    """Nobody answered within the patience: whether the last write happened is unknown, reading it again tells."""


class DocumentTooLarge(StoreFailure):
    """The run does not fit; the message says what takes the room."""


# --- JSON -------------------------------------------------------------------------------------------------------------

_TARGET: TypeAdapter[Target] = TypeAdapter(Annotated[Target, Field(discriminator="kind")])
_REQUEST = TypeAdapter(RunRequest)
_PLAN = TypeAdapter(Plan)
_PARTITION = TypeAdapter(PartitionPlan)
_PROGRESS = TypeAdapter(Progress)
_RESULT = TypeAdapter(RunResult)
_EVIDENCE = TypeAdapter(Evidence)
_ROSTER = TypeAdapter(Roster)
_FLEET = TypeAdapter(FleetPlan)


def encode_request(request: RunRequest) -> str:
    return _REQUEST.dump_json(request).decode()


def decode_request(text: str | bytes) -> RunRequest:
    """Raises ``ValueError`` for anything that :func:`encode_request` did not write."""
    return _request_from(json.loads(text))


def _request_from(fields: dict[str, Any]) -> RunRequest:
    # The target is read on its own: by its kind, so that a bad one is named instead of nine mismatches.
    return _REQUEST.validate_python(fields | {"target": _TARGET.validate_python(fields.get("target"))})


def encode_plan(plan: Plan) -> str:
    """JSON with one line a partition, so that a person can read it, and ``diff`` and ``grep`` are of use."""
    head = _PLAN.dump_json(replace(plan, partitions=())).decode()
    if not plan.partitions:
        return head
    lines = ",\n".join(_PARTITION.dump_json(p, exclude_defaults=True).decode() for p in plan.partitions)
    return head.replace('"partitions":[]', f'"partitions":[\n{lines}\n]', 1)


def decode_plan(text: str | bytes) -> Plan:
    """Raises ``ValueError`` for anything that :func:`encode_plan` did not write."""
    return _PLAN.validate_json(text)


def encode_progress(progress: Progress) -> str:
    """One line of JSON."""
    return _PROGRESS.dump_json(progress, exclude_defaults=True).decode()


def encode_result(result: RunResult) -> str:
    return _RESULT.dump_json(result).decode()


def encode_roster(roster: Roster) -> str:
    return _ROSTER.dump_json(roster).decode()


def encode_fleet_plan(plan: FleetPlan) -> str:
    """JSON; members that say nothing are left out, since there are many groups."""
    return _FLEET.dump_json(plan, exclude_defaults=True).decode()


def encode_evidence(evidence: Evidence) -> str:
    """JSON; members that say nothing are left out, since there are many of them."""
    return _EVIDENCE.dump_json(evidence, exclude_defaults=True).decode()


def _evidence_from(fields: Any) -> Evidence | None:
    """``None`` for what this version can't read: nothing but its being shown depends on it."""
    try:
        return _EVIDENCE.validate_python(fields)
    except ValidationError:
        return None


# --- changes ----------------------------------------------------------------------------------------------------------

Change = Callable[[Run], Run]
"""A pure change of a run. Returns the very same object when there is nothing to do."""


def _checked(run: Run, attempt: int) -> None:
    if attempt != run.attempt:
        raise StaleAttempt(f"attempt {attempt} of run {run.request.run_uid} was followed by attempt {run.attempt}")


def _begun(run: Run) -> Run:
    return replace(run, attempt=run.attempt + 1)


def _approved(run: Run) -> Run:
    return run if run.approved else replace(run, approved=True)


def _planned(plan: Plan, attempt: int) -> Change:
    def change(run: Run) -> Run:
        _checked(run, attempt)
        if run.plan is None:
            return replace(run, plan=plan)
        if run.plan != plan:
            raise ValueError(f"run {run.request.run_uid} has a plan already, made at {run.plan.made_at.isoformat()}")
        return run

    return change


def _listed(roster: Roster, attempt: int) -> Change:
    def change(run: Run) -> Run:
        _checked(run, attempt)
        if run.roster is not None and run.roster != roster:
            raise ValueError(f"run {run.request.run_uid} has a roster already, of {run.roster.at.isoformat()}")
        return run if run.roster is not None else replace(run, roster=roster)

    return change


def _fleet_planned(plan: FleetPlan, attempt: int) -> Change:
    def change(run: Run) -> Run:
        _checked(run, attempt)
        if run.fleet is not None and run.fleet != plan:
            raise ValueError(f"run {run.request.run_uid} has a plan already, made at {run.fleet.made_at.isoformat()}")
        return run if run.fleet is not None else replace(run, fleet=plan)

    return change


def _shown(evidence: Evidence, attempt: int) -> Change:
    kept = fitted(evidence, lambda e: len(encode_evidence(e).encode()))

    def change(run: Run) -> Run:
        _checked(run, attempt)
        return run if run.evidence == kept else replace(run, evidence=kept)

    return change


def _noted(progress: Progress, attempt: int) -> Change:
    def change(run: Run) -> Run:
        _checked(run, attempt)
        return run if run.last == progress else replace(run, journal=noted(run.journal, progress))

    return change


def _finished(result: RunResult, attempt: int) -> Change:
    def change(run: Run) -> Run:
        _checked(run, attempt)
        return run if run.result is not None else replace(run, result=result)

    return change


class _Document(ABC):
    """What both stores share: every write is a change of the document."""

    @property
    @abstractmethod
    def location(self) -> str: ...

    @abstractmethod
    def create(self, request: RunRequest) -> Run: ...

    @abstractmethod
    def load(self) -> Run: ...

    @abstractmethod
    def _change(self, change: Change) -> Run:
        """Apply atomically and durably. Raises ``RunNotFound``, and what ``change`` raises (then nothing changes)."""

    def begin_attempt(self) -> int:
        return self._change(_begun).attempt

    def approve(self) -> None:
        self._change(_approved)

    def write_plan(self, plan: Plan, *, attempt: int) -> None:
        self._write(_planned(plan, attempt))

    def write_roster(self, roster: Roster, *, attempt: int) -> None:
        self._write(_listed(roster, attempt))

    def write_fleet_plan(self, plan: FleetPlan, *, attempt: int) -> None:
        self._write(_fleet_planned(plan, attempt))

    def write_evidence(self, evidence: Evidence, *, attempt: int) -> None:
        self._write(_shown(evidence, attempt))

    def append(self, progress: Progress, *, attempt: int) -> None:
        self._write(_noted(progress, attempt))

    def finish(self, result: RunResult, *, attempt: int) -> None:
        self._write(_finished(result, attempt))

    def _write(self, change: Change) -> None:
        try:
            self._change(change)
        except RunNotFound as gone:
            # Whoever has an attempt has seen the run: it was removed since, and its writer has to stop.
            raise StaleAttempt(f"the run was removed: {gone}") from gone

    def _same(self, run: Run, request: RunRequest) -> Run:
        if run.request.run_uid != request.run_uid:
            raise ValueError(f"{self.location} holds run {run.request.run_uid}, not {request.run_uid}")
        return run


# --- nothing ----------------------------------------------------------------------------------------------------------


class MemoryRunStore(_Document):
    """A run that nobody goes on with when this process ends: whoever wants it done begins it anew. Thread-safe."""

    def __init__(self, request: RunRequest) -> None:
        self._lock = threading.Lock()
        self._run = Run(request)

    @property
    def location(self) -> str:
        return f"memory:{self._run.request.run_uid}"

    def create(self, request: RunRequest) -> Run:
        return self._same(self._run, request)

    def load(self) -> Run:
        return self._run

    def _change(self, change: Change) -> Run:
        with self._lock:
            self._run = change(self._run)
            return self._run


# --- a folder ---------------------------------------------------------------------------------------------------------


class DirectoryRunStore(_Document):
    """``file:///folder/name``: the document ``/folder/name.json`` of a folder that only its owner may read.

    A change is written to a temporary file, synced and renamed, under an exclusive ``flock`` that the kernel lets go
    of when its holder dies. For one machine: not for network file systems.
    """

    def __init__(self, directory: Path, name: str, *, clock: Clock | None = None) -> None:
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name):
            raise ValueError(f"{name!r} can't name a run's document: letters, digits, '.', '_' and '-' only")
        self._directory = directory.absolute()
        self._name = name
        self._file = self._directory / f"{name}.json"
        self._clock = clock or SystemClock()

    @property
    def location(self) -> str:
        return (self._directory / self._name).as_uri()

    def create(self, request: RunRequest) -> Run:
        try:
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise StoreFailure(f"can't make {self._directory}: {error.strerror}") from error
        with self._locked():
            try:
                return self._same(self._read(), request)
            except RunNotFound:
                run = Run(request)
                self._replace(run)
                return run

    def load(self) -> Run:
        return self._read()

    def _change(self, change: Change) -> Run:
        with self._locked():
            run = self._read()
            changed = change(run)
            if changed is not run:
                self._replace(changed)
            return changed

    def _read(self) -> Run:
        try:
            text = self._file.read_bytes()
        except FileNotFoundError:
            raise RunNotFound(f"there is no run at {self._file}") from None
        except OSError as error:
            raise StoreFailure(f"can't read {self._file}: {error.strerror}") from error
        try:
            fields = json.loads(text)
            plan, result, evidence = fields["plan"], fields["result"], fields.get("evidence")
            roster, fleet = fields.get("roster"), fields.get("fleet")
            return Run(
                request=_request_from(fields["request"]),
                attempt=fields["attempt"],
                plan=None if plan is None else _PLAN.validate_python(plan),
                journal=tuple(_PROGRESS.validate_python(p) for p in fields["journal"]),
                result=None if result is None else _RESULT.validate_python(result),
                approved=fields["approved"],
                evidence=None if evidence is None else _evidence_from(evidence),
                roster=None if roster is None else _ROSTER.validate_python(roster),
                fleet=None if fleet is None else _FLEET.validate_python(fleet),
            )
        except (ValueError, KeyError, TypeError) as error:
            raise StoreFailure(f"{self._file} is not a run's document: {error}") from error

    def _replace(self, run: Run) -> None:
        journal = ",\n".join(encode_progress(p) for p in run.journal)
        text = (
            f'{{"attempt":{run.attempt},"approved":{json.dumps(run.approved)},\n'
            f'"request":{encode_request(run.request)},\n'
            f'"plan":{"null" if run.plan is None else encode_plan(run.plan)},\n'
            f'"roster":{"null" if run.roster is None else encode_roster(run.roster)},\n'
            f'"fleet":{"null" if run.fleet is None else encode_fleet_plan(run.fleet)},\n'
            f'"evidence":{"null" if run.evidence is None else encode_evidence(run.evidence)},\n'
            f'"journal":[\n{journal}\n],\n'
            f'"result":{"null" if run.result is None else encode_result(run.result)}}}\n'
        )
        try:
            # mkstemp makes files that only the owner may read.
            descriptor, temporary = tempfile.mkstemp(prefix=f".{self._name}.", suffix=".tmp", dir=self._directory)
            try:
                with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                    file.write(text)
                    file.flush()
                    os.fsync(file.fileno())
                Path(temporary).replace(self._file)
            except OSError:
                Path(temporary).unlink(missing_ok=True)
                raise
            # The rename itself is durable only once the folder is.
            folder = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
        except OSError as error:
            raise StoreFailure(f"can't write {self._file}: {error.strerror}") from error

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        # Not the document itself is locked: a rename would leave the next writer with a lock on the old file.
        path = self._directory / f".{self._name}.lock"
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except FileNotFoundError:
            raise RunNotFound(f"there is no folder {self._directory}") from None
        except OSError as error:
            raise StoreFailure(f"can't lock {path}: {error.strerror}") from error
        try:
            deadline = self._clock.monotonic() + LOCK_PATIENCE_S
            while True:
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if self._clock.monotonic() > deadline:
                        raise StoreUnavailable(f"{path} has been locked for {LOCK_PATIENCE_S:.0f} s") from None
                    self._clock.sleep(0.005)
            yield
        finally:
            os.close(descriptor)


# --- ConfigMaps -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Stored:
    """A ConfigMap as read: the API's object, and the run in it."""

    config_map: Any
    run: Run


class ConfigMapRunStore(_Document):
    """``configmap://namespace/name``: a ConfigMap with a key for each part of the run.

    ``owner`` is an owner reference (``apiVersion``, ``kind``, ``name``, ``uid``): the ConfigMap goes with it. Only
    :meth:`create` needs it. ``api_client``: a ``kubernetes.client.ApiClient``; without it, that of ``KUBECONFIG`` or
    of the pod's service account.

    Its callers may stand in the middle of an apply, so an API server that is away is asked again for ``patience_s``
    before ``StoreUnavailable`` is raised.
    """

    def __init__(
        self,
        namespace: str,
        name: str,
        *,
        api_client: Any = None,
        owner: Mapping[str, Any] | None = None,
        clock: Clock | None = None,
        patience_s: float = API_PATIENCE_S,
    ) -> None:
        from kubernetes.client import CoreV1Api  # a second of imports, for those who use it only

        self._namespace = namespace
        self._name = name
        self._core = CoreV1Api(api_client if api_client is not None else _default_client())
        self._owner = dict(owner or {})
        self._clock = clock or SystemClock()
        self._patient = PatientCalls(self.location, self._clock, patience_s)

    def _call(self, method: Callable[..., Any], *arguments: Any) -> tuple[int | None, Any]:
        """``PatientCalls``, whose failure is the store's. Raises ``StoreUnavailable``."""
        try:
            return self._patient(method, *arguments)
        except ApiUnavailable as error:
            raise StoreUnavailable(str(error)) from error

    @property
    def location(self) -> str:
        return f"configmap://{self._namespace}/{self._name}"

    def create(self, request: RunRequest) -> Run:
        run = Run(request)
        labels = {"app.kubernetes.io/managed-by": "tidegate", "tidegate.io/run": label_value(request.run_id)}
        metadata: dict[str, Any] = {"name": self._name, "namespace": self._namespace, "labels": labels}
        if self._owner:
            metadata["ownerReferences"] = [self._owner]
            labels["tidegate.io/policy"] = label_value(str(self._owner["name"]))
        data, binary = self._encode(run, None)
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data, "binaryData": binary}
        status, answer = self._call(self._core.create_namespaced_config_map, self._namespace, body)
        if status == 409:
            return self._same(self.load(), request)
        if status is not None:
            raise StoreFailure(f"can't create {self.location}: {answer}")
        return run

    def load(self) -> Run:
        return self._read().run

    def read_owner(self) -> Mapping[str, Any] | None:
        """The owner reference of the ConfigMap, as the API has it; ``None`` where it has none."""
        stored = self._core.api_client.sanitize_for_serialization(self._read().config_map.metadata)
        return next(iter(stored.get("ownerReferences") or ()), None)

    def _change(self, change: Change) -> Run:
        for conflicts in range(MAX_CONFLICTS):
            stored = self._read()
            changed = change(stored.run)
            if changed is stored.run:
                return changed
            config_map = stored.config_map
            config_map.data, config_map.binary_data = self._encode(changed, stored)
            status, answer = self._call(
                self._core.replace_namespaced_config_map, self._name, self._namespace, config_map
            )
            if status is None:
                return changed
            if status == 404:
                raise RunNotFound(f"{self.location} was removed")
            if status != 409:
                raise StoreFailure(f"can't write {self.location}: {answer}")
            # Somebody else was faster (or our own write arrived and its answer did not): look again.
            self._clock.sleep(0.005 * min(conflicts, 10))
        raise StoreUnavailable(f"{self.location} was changed by others {MAX_CONFLICTS} times in a row")

    def _read(self) -> _Stored:
        status, answer = self._call(self._core.read_namespaced_config_map, self._name, self._namespace)
        if status == 404:
            raise RunNotFound(f"there is no ConfigMap {self._namespace}/{self._name}")
        if status is not None:
            raise StoreFailure(f"can't read {self.location}: {answer}")
        return _Stored(answer, self._decode(answer.data or {}, answer.binary_data or {}))

    def _decode(self, data: Mapping[str, str], binary: Mapping[str, str]) -> Run:
        def part(name: str) -> bytes | None:
            if name in data:
                return data[name].encode()
            packed = binary.get(f"{name}.gz")
            return None if packed is None else unpack(packed)

        try:
            request, plan, result = part("request.json"), part("plan.json"), part("result.json")
            evidence, roster, fleet = part("evidence.json"), part("roster.json"), part("fleet.json")
            if request is None:
                raise ValueError("it has no request.json")
            return Run(
                request=decode_request(request),
                attempt=int(data.get("attempt", "0")),
                plan=None if plan is None else decode_plan(plan),
                journal=tuple(_PROGRESS.validate_json(line) for line in (part("journal.jsonl") or b"").splitlines()),
                result=None if result is None else _RESULT.validate_json(result),
                approved=data.get("approved") == "true",
                evidence=None if evidence is None else _evidence_from(json.loads(evidence)),
                roster=None if roster is None else _ROSTER.validate_json(roster),
                fleet=None if fleet is None else _FLEET.validate_json(fleet),
            )
        except (ValidationError, ValueError) as error:
            raise StoreFailure(f"{self.location} is not a run's ConfigMap: {error}") from error

    def _encode(self, run: Run, stored: _Stored | None) -> tuple[dict[str, str], dict[str, str]]:
        """``data`` and ``binaryData``; parts that did not change since ``stored`` are taken over as they are."""
        before = stored.run if stored else None
        old_data: Mapping[str, str] = (stored.config_map.data or {}) if stored else {}
        old_binary: Mapping[str, str] = (stored.config_map.binary_data or {}) if stored else {}
        data = {"attempt": str(run.attempt), "approved": json.dumps(run.approved)}
        binary: dict[str, str] = {}

        def put(name: str, value: object, old: object, encode: Callable[[], str]) -> None:
            if not value:
                return
            if before is not None and value is old:
                data.update({k: v for k, v in old_data.items() if k == name})
                binary.update({k: v for k, v in old_binary.items() if k == f"{name}.gz"})
                return
            text = encode()
            raw = text.encode()
            if len(raw) <= INLINE_LIMIT_BYTES:
                data[name] = text
            else:
                binary[f"{name}.gz"] = pack(raw)

        put("request.json", run.request, before and before.request, lambda: encode_request(run.request))
        if run.plan is not None:
            plan = run.plan
            put("plan.json", plan, before and before.plan, lambda: encode_plan(plan))
        journal = run.journal
        put("journal.jsonl", journal, before and before.journal, lambda: "\n".join(map(encode_progress, journal)))
        if run.result is not None:
            result = run.result
            put("result.json", result, before and before.result, lambda: encode_result(result))
        if run.roster is not None:
            roster = run.roster
            put("roster.json", roster, before and before.roster, lambda: encode_roster(roster))
        if run.fleet is not None:
            fleet = run.fleet
            put("fleet.json", fleet, before and before.fleet, lambda: encode_fleet_plan(fleet))
        if run.evidence is not None:
            evidence = run.evidence
            put("evidence.json", evidence, before and before.evidence, lambda: encode_evidence(evidence))

        sizes = {k: len(v.encode()) for k, v in data.items()}
        sizes |= {k: len(v) * 3 // 4 for k, v in binary.items()}
        if sum(sizes.values()) > CONFIG_MAP_LIMIT_BYTES:
            if run.evidence is not None and run.evidence != left_out(run.evidence):
                # It must never be in the way of the run.
                return self._encode(replace(run, evidence=left_out(run.evidence)), stored)
            worst = ", ".join(f"{k} {n:,} bytes" for k, n in sorted(sizes.items(), key=lambda i: -i[1]) if n > 1024)
            raise DocumentTooLarge(
                f"the run does not fit into {self.location}, which takes {CONFIG_MAP_LIMIT_BYTES:,} bytes: {worst}. "
                "Reset fewer partitions at once, for example topic by topic"
            )
        return data, binary


def _default_client() -> Any:
    try:
        return default_api_client()
    except NoCluster as error:
        raise StoreFailure(str(error)) from error


# --- locations --------------------------------------------------------------------------------------------------------


def open_store(location: str, *, api_client: Any = None, owner: Mapping[str, Any] | None = None) -> RunStore:
    """The store at ``file:///folder/name`` or ``configmap://namespace/name``; nothing is read yet.

    ``api_client`` and ``owner``: see :class:`ConfigMapRunStore`. Raises ``ValueError`` for any other location.
    """
    url = urlsplit(location)
    match url.scheme:
        case "file" if url.netloc in ("", "localhost") and url.path not in ("", "/"):
            path = Path(unquote(url.path))
            return DirectoryRunStore(path.parent, path.name)
        case "configmap" if url.netloc and re.fullmatch(r"/[^/]+", url.path):
            return ConfigMapRunStore(url.netloc, url.path[1:], api_client=api_client, owner=owner)
    raise ValueError(f"{location!r} is not a run store: file:///folder/name or configmap://namespace/name")


def open_beside(location: str, *, owned: bool = False) -> Callable[[str], RunStore]:
    """Opens other runs' documents by name, next to the one at ``location``. ``owned``: with its owner, if it has one,
    so that what is created there goes with it as well; that is read at once, and raises as ``RunStore.load``.
    """
    folder, _, name = location.rpartition("/")
    if not location.startswith("configmap://"):
        return lambda other: open_store(f"{folder}/{other}")
    client = _default_client()
    here = ConfigMapRunStore(urlsplit(location).netloc, name, api_client=client)
    owner = here.read_owner() if owned else None
    return lambda other: open_store(f"{folder}/{other}", api_client=client, owner=owner)
