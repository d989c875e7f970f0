"""Starts of new partitions are recorded in the audit topic, in the transaction that commits them (ADR 43)."""

from __future__ import annotations

import logging
import uuid
from typing import Final

from tidegate.audit.codec import encode_change
from tidegate.audit.records import Attribution, Change, Moved, State
from tidegate.kafka.errors import Fenced, KafkaFailure
from tidegate.kafka.model import Offsets
from tidegate.kafka.ports import OffsetWriter

_log = logging.getLogger(__name__)

_REQUIRED_S: Final = 4.0
_WANTED_S: Final = 0.5
"""Where it goes on without: a consumer may be about to begin at the end."""


def commit_starts(writer: OffsetWriter, group_id: str, offsets: Offsets, attribution: Attribution | None) -> None:
    """Of partitions without a commit, in one transaction. Raises ``KafkaFailure``, also where a record is required and
    can't be written."""
    if attribution is not None and _committed_with_record(writer, group_id, offsets, attribution):
        return
    with writer.transaction() as transaction:
        transaction.send(group_id, offsets)
        transaction.commit()


def _committed_with_record(writer: OffsetWriter, group_id: str, offsets: Offsets, attribution: Attribution) -> bool:
    topic = attribution.topic
    change = Change(
        id=f"{attribution.by.namespace}/{attribution.by.name}#{uuid.uuid4()}",
        action=attribution.action,
        state=State.COMMITTED,
        group=group_id,
        by=attribution.by,
        offsets={p: Moved(None, offset) for p, offset in offsets.items()},
    )
    with writer.transaction() as transaction:
        try:
            transaction.append(
                topic.name, encode_change(change), timeout_s=_REQUIRED_S if topic.required else _WANTED_S
            )
        except Fenced:
            raise
        except KafkaFailure as failure:
            if topic.required:
                raise
            _log.warning("starts of group %s are committed without a record in the audit log: %s", group_id, failure)
            return False
        transaction.send(group_id, offsets)
        transaction.commit()
    return True
