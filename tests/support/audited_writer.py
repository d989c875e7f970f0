"""A reset that is recorded in an audit topic, by a process that kills itself just before or just after its commit.

python audited_writer.py FOLDER NAME TOPIC before|after
"""

from __future__ import annotations

import os
import signal
import sys
from contextlib import closing
from pathlib import Path
from unittest.mock import patch

from tidegate.audit.records import Actor, Attribution, AuditTopic
from tidegate.clock import SystemClock
from tidegate.kafka_client.client import KafkaClient
from tidegate.kafka_client.transaction import KafkaTransaction
from tidegate.reset.confined import ConfinedRunStore
from tidegate.reset.directory_store import DirectoryRunStore
from tidegate.reset.runs import job


def attribution(topic: str) -> Attribution:
    return Attribution(AuditTopic(topic, required=True), Actor("Command", "test"), requester="ann")


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def main(folder: str, name: str, topic: str, when: str) -> None:
    store = ConfinedRunStore(DirectoryRunStore(Path(folder), name), None, attribution=attribution(topic))
    commit = KafkaTransaction.commit

    def dying(transaction: KafkaTransaction) -> None:
        if when == "after":
            commit(transaction)
        _die()

    with (
        closing(KafkaClient(store.load().request.connection)) as kafka,
        patch.object(KafkaTransaction, "commit", dying),
    ):
        job.execute(store, kafka, SystemClock())


if __name__ == "__main__":
    main(*sys.argv[1:])
