"""Records that hang with the transaction they are in: its coordinator calls it complete and has told nobody."""

from __future__ import annotations

import contextlib
from typing import Final

from tidegate.kafka.errors import KafkaFailure
from tidegate.kafka.ports import GroupTransaction

_NOTHING: Final = {b"aborted": b"{}"}
_LIMIT_S: Final = 1.5


def abort_records(transaction: GroupTransaction, topic: str) -> None:
    """Have a transaction that will be aborted decide what an earlier one of its producer has left in the audit topic.

    Its offsets are decided by the groups that it has, its records by the topics. Otherwise nobody who reads committed
    records would get beyond them, and the next record would commit them. Where it fails that is as it was.
    """
    with contextlib.suppress(KafkaFailure):
        transaction.append(topic, _NOTHING, timeout_s=_LIMIT_S)
