"""Runs stored as files in a folder, for one machine: of the command line, and in tests."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tidegate.clock import Clock, SystemClock
from tidegate.reset.codec import (
    FLEET,
    PLAN,
    PROGRESS,
    RESULT,
    ROSTER,
    attempt_from,
    encode_evidence,
    encode_fleet_plan,
    encode_plan,
    encode_progress,
    encode_request,
    encode_result,
    encode_roster,
    evidence_from,
    read_json,
    request_from,
)
from tidegate.reset.document import Change, DocumentStore, NewerRun, StoreFailure, StoreUnavailable
from tidegate.reset.model.request import RunRequest
from tidegate.reset.store import Run, RunNotFound
from tidegate.versions import RUN, VERSION, NewerVersion, check

LOCK_PATIENCE_S = 30.0


class DirectoryRunStore(DocumentStore):
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
            fields = read_json(text)
            check(RUN, fields.get(VERSION), str(self._file))
            plan, result, evidence = fields["plan"], fields["result"], fields.get("evidence")
            roster, fleet = fields.get("roster"), fields.get("fleet")
            return Run(
                request=request_from(fields["request"]),
                attempt=attempt_from(fields["attempt"]),
                plan=None if plan is None else PLAN.validate_python(plan),
                journal=tuple(PROGRESS.validate_python(p) for p in fields["journal"]),
                result=None if result is None else RESULT.validate_python(result),
                approved=fields["approved"] is True,
                evidence=None if evidence is None else evidence_from(evidence),
                roster=None if roster is None else ROSTER.validate_python(roster),
                fleet=None if fleet is None else FLEET.validate_python(fleet),
            )
        except NewerVersion as newer:
            raise NewerRun(newer) from newer
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise StoreFailure(f"{self._file} is not a run's document: {error}") from error

    def _replace(self, run: Run) -> None:
        journal = ",\n".join(encode_progress(p) for p in run.journal)
        text = (
            f'{{"{VERSION}":{RUN.version},"attempt":{run.attempt},"approved":{json.dumps(run.approved)},\n'
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
