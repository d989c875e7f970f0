"""Runs stored in ConfigMaps: part by part, compressed where a part is large."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from pydantic import ValidationError

from tidegate.clock import Clock, SystemClock
from tidegate.compressed import LIMIT_BYTES, pack, unpack
from tidegate.kube.api import NoCluster, PatientCalls, default_api_client
from tidegate.kube.labels import label_value, owner_label
from tidegate.reset.codec import (
    FLEET,
    PROGRESS,
    RESULT,
    ROSTER,
    attempt_from,
    decode_plan,
    decode_request,
    encode_evidence,
    encode_fleet_plan,
    encode_plan,
    encode_progress,
    encode_request,
    encode_result,
    encode_roster,
    evidence_from,
    read_json,
)
from tidegate.reset.document import (
    Change,
    DocumentStore,
    DocumentTooLarge,
    NewerRun,
    StoreFailure,
    StoreUnavailable,
)
from tidegate.reset.evidence import left_out
from tidegate.reset.model.progress import shortened
from tidegate.reset.model.request import RunRequest
from tidegate.reset.store import Run, RunNotFound, StaleAttempt
from tidegate.versions import RUN, VERSION, NewerVersion, check, said

CONFIG_MAP_LIMIT_BYTES = 1024 * 1024
"""What the API server takes as the sum of all values (``MaxSecretSize`` in its validation)."""

INLINE_LIMIT_BYTES = 64 * 1024
"""A part of the document up to this size stays readable text in a ConfigMap; a larger one is compressed."""

API_PATIENCE_S = 60.0

_CONFIG_MAPS = "configmaps"

MAX_CONFLICTS = 50

RECENT_S: Final = 10.0
"""After so long what a job remembers is read again before anything is said by it: somebody else may have changed it."""

_PARTS = ("request.json", "plan.json", "journal.jsonl", "result.json", "evidence.json", "roster.json", "fleet.json")

_KNOWN = frozenset({VERSION, "attempt", "approved", *_PARTS, *(f"{part}.gz" for part in _PARTS)})


@dataclass(frozen=True, slots=True)
class _Stored:
    """A ConfigMap as read or written: the API's object, and the run in it."""

    config_map: Mapping[str, Any]
    run: Run

    @property
    def version(self) -> str:
        return str(self.config_map["metadata"].get("resourceVersion", ""))


class ConfigMapRunStore(DocumentStore):
    """``configmap://namespace/name``: a ConfigMap with a key for each part of the run.

    ``owner`` is an owner reference (``apiVersion``, ``kind``, ``name``, ``uid``): the ConfigMap goes with it. Only
    :meth:`create` needs it. ``api_client``: a ``kubernetes.client.ApiClient``; without it, that of ``KUBECONFIG`` or
    of the pod's service account.

    ``remembers``: for a job, which is the only one to change its run's document as long as nobody takes the run over:
    what it has read or written last is not read again for ``RECENT_S``, and is where its next change begins. All others
    read what there is, since what somebody else has written there is theirs to find.

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
        remembers: bool = False,
    ) -> None:
        from tidegate.kube.core import CoreObjects  # half a second of imports, for those who use it only

        self._namespace = namespace
        self._name = name
        self._core = CoreObjects(api_client if api_client is not None else default_client())
        self._owner = dict(owner or {})
        self._clock = clock or SystemClock()
        self._call = PatientCalls(self.location, self._clock, patience_s, StoreUnavailable)
        self._remembers = remembers
        self._turn = threading.Lock()
        """Held while what is remembered is written."""
        self._newest: _Stored | None = None
        self._seen_s = 0.0
        """When the API server had it last as it is remembered (monotonic seconds)."""

    @property
    def location(self) -> str:
        return f"configmap://{self._namespace}/{self._name}"

    def create(self, request: RunRequest) -> Run:
        run = Run(request)
        labels = {"app.kubernetes.io/managed-by": "tidegate", "tidegate.io/run": label_value(request.run_id)}
        metadata: dict[str, Any] = {"name": self._name, "namespace": self._namespace, "labels": labels}
        if self._owner:
            metadata["ownerReferences"] = [self._owner]
            labels.update(owner_label(self._owner))
        data, binary = self._encode(run, None)
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data, "binaryData": binary}
        status, answer = self._call(self._core.create, _CONFIG_MAPS, self._namespace, body)
        if status == 409:
            return self._same(self.load(), request)
        if status is not None:
            raise StoreFailure(f"can't create {self.location}: {answer}")
        return run

    def load(self) -> Run:
        newest = self._newest
        if newest is not None and self._clock.monotonic() - self._seen_s < RECENT_S:
            return newest.run
        stored = self._read()
        if newest is not None and newest.version == stored.version:
            self._seen_s = self._clock.monotonic()
        return stored.run

    def read_owner(self) -> Mapping[str, Any] | None:
        """The owner reference of the ConfigMap, as the API has it; ``None`` where it has none."""
        metadata = self._read().config_map["metadata"]
        return next(iter(metadata.get("ownerReferences") or ()), None)

    def _change(self, change: Change) -> Run:
        if not self._remembers:
            return self._changed(change).run
        with self._turn:
            # Whatever keeps the write from ending well, what the document is then is not known.
            known, self._newest = self._newest, None
            changed = self._changed_from(known, change) or self._changed(change)
            self._newest, self._seen_s = changed, self._clock.monotonic()
            return changed.run

    def _changed_from(self, known: _Stored | None, change: Change) -> _Stored | None:
        """``None``: what was known is not what there is, or does not suffice to tell that nothing is to be done."""
        if known is None:
            return None
        try:
            changed = change(known.run)
        except (StaleAttempt, ValueError):
            return None
        return None if changed is known.run else self._replaced(known, changed)

    def _changed(self, change: Change) -> _Stored:
        for conflicts in range(MAX_CONFLICTS):
            stored = self._read()
            changed = change(stored.run)
            if changed is stored.run:
                return stored
            replaced = self._replaced(stored, changed)
            if replaced is not None:
                return replaced
            # Somebody else was faster (or our own write arrived and its answer did not): look again.
            self._clock.sleep(0.005 * min(conflicts, 10))
        raise StoreUnavailable(f"{self.location} was changed by others {MAX_CONFLICTS} times in a row")

    def _replaced(self, stored: _Stored, changed: Run) -> _Stored | None:
        """As it is written; ``None`` where it is not as it was stored any more."""
        data, binary = self._encode(changed, stored)
        config_map = {**stored.config_map, "data": data, "binaryData": binary}
        status, answer = self._call(self._core.replace, _CONFIG_MAPS, self._namespace, self._name, config_map)
        if status == 409:
            return None
        if status == 404:
            raise RunNotFound(f"{self.location} was removed")
        if status is not None:
            raise StoreFailure(f"can't write {self.location}: {answer}")
        return _Stored(answer, changed)

    def _read(self) -> _Stored:
        status, answer = self._call(self._core.read, _CONFIG_MAPS, self._namespace, self._name)
        if status == 404:
            raise RunNotFound(f"there is no ConfigMap {self._namespace}/{self._name}")
        if status is not None:
            raise StoreFailure(f"can't read {self.location}: {answer}")
        return _Stored(answer, self._decode(answer.get("data") or {}, answer.get("binaryData") or {}))

    def _decode(self, data: Mapping[str, str], binary: Mapping[str, str]) -> Run:
        left = LIMIT_BYTES  # of all parts together: they are there at the same time

        def part(name: str) -> bytes | None:
            nonlocal left
            if name in data:
                return data[name].encode()
            packed = binary.get(f"{name}.gz")
            if packed is None:
                return None
            raw = unpack(packed, left)
            left -= len(raw)
            return raw

        try:
            check(RUN, data.get(VERSION), self.location)
            request, plan, result = part("request.json"), part("plan.json"), part("result.json")
            evidence, roster, fleet = part("evidence.json"), part("roster.json"), part("fleet.json")
            if request is None:
                raise ValueError("it has no request.json")
            return Run(
                request=decode_request(request),
                attempt=attempt_from(data.get("attempt", "0")),
                plan=None if plan is None else decode_plan(plan),
                journal=tuple(PROGRESS.validate_json(line) for line in (part("journal.jsonl") or b"").splitlines()),
                result=None if result is None else RESULT.validate_json(result),
                approved=data.get("approved") == "true",
                evidence=None if evidence is None else evidence_from(read_json(evidence)),
                roster=None if roster is None else ROSTER.validate_json(roster),
                fleet=None if fleet is None else FLEET.validate_json(fleet),
            )
        except NewerVersion as newer:
            raise NewerRun(newer) from newer
        except (ValidationError, ValueError) as error:
            raise StoreFailure(f"{self.location} is not a run's ConfigMap: {error}") from error

    def _encode(self, run: Run, stored: _Stored | None) -> tuple[dict[str, str], dict[str, str]]:
        """``data`` and ``binaryData``; parts that did not change since ``stored`` are taken over as they are."""
        before = stored.run if stored else None
        old_data: Mapping[str, str] = (stored.config_map.get("data") or {}) if stored else {}
        old_binary: Mapping[str, str] = (stored.config_map.get("binaryData") or {}) if stored else {}
        data = {VERSION: said(RUN), "attempt": str(run.attempt), "approved": json.dumps(run.approved)}
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

        sizes = _sizes(data, binary)
        if sum(sizes.values()) > CONFIG_MAP_LIMIT_BYTES:
            if run.evidence is not None and run.evidence != left_out(run.evidence):
                # It must never be in the way of the run.
                return self._encode(replace(run, evidence=left_out(run.evidence)), stored)
            shorter = shortened(run.journal, is_over=run.result is not None)
            if run.journal != shorter:
                return self._encode(replace(run, journal=shorter), stored)
            worst = ", ".join(f"{k} {n:,} bytes" for k, n in sorted(sizes.items(), key=lambda i: -i[1]) if n > 1024)
            raise DocumentTooLarge(
                f"the run does not fit into {self.location}, which takes {CONFIG_MAP_LIMIT_BYTES:,} bytes: {worst}. "
                "Reset fewer partitions at once, for example topic by topic"
            )
        # What a later release has added without raising the version is not ours to drop; nor may it be in the way.
        others = {key: value for key, value in old_data.items() if key not in _KNOWN}
        packed = {key: value for key, value in old_binary.items() if key not in _KNOWN}
        if sum(sizes.values()) + sum(_sizes(others, packed).values()) <= CONFIG_MAP_LIMIT_BYTES:
            return data | others, binary | packed
        return data, binary


def _sizes(data: Mapping[str, str], binary: Mapping[str, str]) -> dict[str, int]:
    """As the API server counts them."""
    return {k: len(v.encode()) for k, v in data.items()} | {k: len(v) * 3 // 4 for k, v in binary.items()}


def default_client() -> Any:
    try:
        return default_api_client()
    except NoCluster as error:
        raise StoreFailure(str(error)) from error
