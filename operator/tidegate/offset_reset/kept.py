"""What an undo needs of a reset outlives its ``OffsetReset``: the run's document, and a record that vouches for it.

The document is a ConfigMap, which others may write; what is in it counts only if its digest is the one that the
operator keeps. While the ``OffsetReset`` is there, its status has the digest. For afterwards a record in the control
topic has it, which only operators write. See docs/adr/0030.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from datetime import datetime, timedelta

from tidegate.connection.live import Live
from tidegate.connection.read_only import observes
from tidegate.connection.sharing import is_foreign
from tidegate.control.records import Run, RunKey
from tidegate.control.run_records import executed, of_reset
from tidegate.jobs.errors import RunnerFailure
from tidegate.kafka.errors import KafkaFailure
from tidegate.kube.ports import (
    CONNECTIONS,
    RESETS,
    KubeFailure,
    NotFound,
    Object,
    connection_named,
    label_of,
    name_of,
    namespace_of,
    owner_reference,
    uid_of,
)
from tidegate.offset_reset.parts import Parts
from tidegate.offset_reset.reading import ended_run, epoch_ms
from tidegate.offset_reset.runs import Runs, document_of
from tidegate.reset.document import StoreFailure
from tidegate.reset.runs.fleet import group_document, group_run_uid
from tidegate.reset.runs.request import run_uid
from tidegate.reset.store import ForeignRun, ForgedRun
from tidegate.resources.offset_reset import OffsetResetSpec, OffsetResetStatus
from tidegate.resources.reset import has_ended
from tidegate.threads import in_thread

_log = logging.getLogger(__name__)


class Kept:
    """Keeps what an undo needs of resets that end, and finds that of resets whose ``OffsetReset`` was deleted."""

    def __init__(self, parts: Parts, runs: Runs) -> None:
        self._parts = parts
        self._runs = runs

    async def keep(self, body: Object, status: OffsetResetStatus) -> None:
        """Before an ``OffsetReset`` that has ended loses its finalizer, and may go at any moment.

        Doing it again is harmless. Raises ``KafkaFailure``, ``KubeFailure``, ``StoreFailure`` and ``RunnerFailure``, to
        be tried again; not for one that is being deleted, which nothing may hold up.
        """
        if is_foreign(body):
            return  # its document can't be owned by a connection in another namespace
        if not self._parts.undo_kept or status.result_digest is None or not has_ended(status.phase):
            return
        try:
            await self._keep(body, status)
        except (KafkaFailure, KubeFailure, StoreFailure, RunnerFailure) as failure:
            if not body["metadata"].get("deletionTimestamp"):
                raise
            _log.warning("%s: this reset can't be undone after its deletion: %s", label_of(body), failure)
        except (ForgedRun, ForeignRun) as forged:
            _log.warning("%s: this reset can't be undone: %s", label_of(body), forged)

    async def _keep(self, body: Object, status: OffsetResetStatus) -> None:
        parts, namespace = self._parts, namespace_of(body)
        _, name = connection_named(body)
        try:
            connection = await in_thread(parts.executor, parts.kube.get, CONNECTIONS, namespace, name)
        except NotFound:
            return  # no undo goes without it
        live = parts.live.get(namespace, name)
        if live is None or live.uid != uid_of(connection):
            raise RunnerFailure(f"KafkaConnection {name} is not open")
        if live.observes:
            _log.info("%s: %s; this reset can't be undone after its deletion", label_of(body), observes(name))
            return
        groups = await self._groups(body)

        def keep() -> None:
            control = live.kafka.control
            key = of_reset(namespace, name_of(body))
            record = replace(ended_run(body, status, status.finished_at), connection=live.uid)
            earlier = executed(control, key)
            if not control.exist:
                control.ensure()
            if earlier is not None and earlier.is_newer:
                _log.warning(
                    "%s: this reset can't be undone after its deletion: its run record is of a newer version of "
                    "Tidegate",
                    label_of(body),
                )
                return
            if earlier is not None and earlier.uid != record.uid and earlier.connection == live.uid:
                # Of a deleted one of this name, which is undone no more: without its record nobody finds it. Unless
                # this process was replaced, and it is that of a newer one.
                control.ensure()
                parts.kube.remove_config_map(namespace, document_of_record(key, earlier))
            control.note_runs({key: record})
            document = document_of(body)
            kept = parts.kube.add_owner(namespace, document, owner_reference(connection))
            for group in groups:
                beneath = group_document(document, group_run_uid(run_uid(uid_of(body), name_of(body)), group))
                try:
                    parts.kube.add_owner(namespace, beneath, kept)
                except NotFound as gone:
                    _log.info("%s: group %s can't be undone: %s", label_of(body), group, gone)

        try:
            await in_thread(parts.patient_executor, keep)
        except NotFound as gone:
            _log.info("%s: this reset can't be undone: %s", label_of(body), gone)

    async def _groups(self, body: Object) -> tuple[str, ...]:
        """Of a fleet's run, those with a document of their own."""
        if not (body.get("spec") or {}).get("groups"):
            return ()
        run = await self._runs.ended(body)
        return tuple(group for group, _ in run.result.ends) if run is not None and run.result is not None else ()

    async def find(self, body: Object, spec: OffsetResetSpec, run_id: str, live: Live) -> Object | None:
        """A deleted ``OffsetReset`` of this name, as far as it is still known, for ``body`` to undo.

        Its group and connection are those of ``body``: whether they were its own, its document says. Raises
        ``KafkaFailure``.
        """
        kept_for = self._parts.undo_kept
        if not kept_for or live.is_foreign:
            return None
        namespace = namespace_of(body)
        run = await in_thread(self._parts.patient_executor, executed, live.kafka.control, of_reset(namespace, run_id))
        uid, _, name = run.uid.partition("/") if run is not None else ("", "", "")
        if run is None or run.outcome is None or name != run_id or is_over(run, kept_for, self._parts.clock.now()):
            return None
        named = {"group": spec.group} if spec.groups is None else {"groups": [*spec.groups]}
        return {
            "apiVersion": RESETS.api_version,
            "kind": RESETS.kind,
            "metadata": {"namespace": namespace, "name": run_id, "uid": uid},
            "spec": {
                "connectionRef": {"name": spec.connection_ref.name},
                **named,
                # Whatever it showed of records: an undo shows nothing of that.
                "evidence": {"showValues": True},
            },
            "status": {"phase": run.outcome.value, "resultDigest": run.digest},
        }


def is_over(run: Run, kept_for: timedelta, now: datetime) -> bool:
    """Whether a reset can't be undone any more, since its ``OffsetReset`` was deleted too long ago."""
    return run.deleted_ms is not None and epoch_ms(now) - run.deleted_ms >= kept_for / timedelta(milliseconds=1)


def document_of_record(key: RunKey, run: Run) -> str:
    """The name of the ConfigMap that the record vouches for."""
    metadata = {"name": key.id, "uid": run.uid.partition("/")[0]}
    return document_of({"metadata": metadata})
