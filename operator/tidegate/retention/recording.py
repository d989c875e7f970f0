"""Offsets that are put back after they expired are recorded in the audit topic (ADR 43).

Brokers take an offset with a retention of its own by a request that is part of no transaction. So there are two
records: before it what is intended, after it what was done.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import replace
from typing import Final

from tidegate.audit.codec import encode_change
from tidegate.audit.records import Attribution, Change, Moved, State
from tidegate.cluster import Kafka
from tidegate.kafka.errors import KafkaFailure
from tidegate.kafka.model import TopicPartition
from tidegate.kafka.offset_retention import Commit
from tidegate.kafka.ports import OffsetWriter

_log = logging.getLogger(__name__)

PURPOSE: Final = "audit"
"""Of the writer: a reset of the group that is under way must not be fenced."""
_TRANSACTION_S: Final = 10.0


def commit_recorded(
    kafka: Kafka,
    group_id: str,
    wanted: Mapping[TopicPartition, Commit],
    commit: Callable[[], frozenset[TopicPartition]],
    attribution: Attribution | None,
) -> frozenset[TopicPartition]:
    """What ``commit`` returns, the partitions that were. Raises what it raises, and ``KafkaFailure`` where a record is
    required and what is intended can't be written."""
    if attribution is None:
        return commit()
    intended = Change(
        id=f"{attribution.by.namespace}/{attribution.by.name}#{uuid.uuid4()}",
        action=attribution.action,
        state=State.INTENDED,
        group=group_id,
        by=attribution.by,
        offsets={p: Moved(None, wanted[p].offset) for p in wanted},
    )
    with closing(kafka.writer(group_id, transaction_timeout_s=_TRANSACTION_S, purpose=PURPOSE)) as writer:
        try:
            _record(writer, attribution, intended)
        except KafkaFailure as failure:
            if attribution.topic.required:
                raise
            _log.warning("offsets of group %s are restored without a record in the audit log: %s", group_id, failure)
            return commit()
        done = commit()
        try:
            offsets = {p: intended.offsets[p] for p in done}
            _record(writer, attribution, replace(intended, state=State.DONE, offsets=offsets))
        except KafkaFailure as failure:
            _log.warning("the audit log does not say which offsets of group %s were restored: %s", group_id, failure)
    return done


def _record(writer: OffsetWriter, attribution: Attribution, change: Change) -> None:
    with writer.transaction() as transaction:
        transaction.append(attribution.topic.name, encode_change(change))
        transaction.commit()
