"""A writer of the campaign, a process that may be killed and frozen: ``python -m support.campaign.writer``.

``job FOLDER DOCUMENT``: carries out the run that is stored there. ``backfill POLICY BOOTSTRAP GROUP TOPIC NUMBERS
IN_FLIGHT``: sends the owners of these partitions back to their start, as discovery does for a policy of that uid with
``discovery.inFlight`` (seconds), and prints the result as JSON. One policy has one backfill of a group at a time, in
whichever process: those of other policies, as other operators may have, wait for it. Exit code 0:
the run is over. 3: another writer has taken over. An exception of its own: as Python ends with one.
"""

from __future__ import annotations

import sys
from contextlib import closing
from datetime import timedelta
from pathlib import Path

from tidegate.clock import SystemClock
from tidegate.discovery.backfill import Asker, Backfills
from tidegate.kafka.connection import Connection
from tidegate.kafka.model import TopicPartition
from tidegate.kafka_client.client import KafkaClient
from tidegate.reset.codec import encode_result
from tidegate.reset.directory_store import DirectoryRunStore
from tidegate.reset.runs import job
from tidegate.reset.store import StaleAttempt

TAKEN_OVER = 3


def main(what: str, *arguments: str) -> int:
    """See above."""
    try:
        if what == "job":
            folder, document = arguments
            store = DirectoryRunStore(Path(folder), document)
            with closing(KafkaClient(store.load().request.connection)) as kafka:
                job.execute(store, kafka, SystemClock())
        else:
            policy, bootstrap, group, topic, numbers, in_flight_s = arguments
            connection = Connection(bootstrap)
            partitions = [TopicPartition(topic, int(number)) for number in numbers.split(",")]
            with closing(KafkaClient(connection)) as kafka:
                asker = Asker(policy, "campaign", "", in_flight=timedelta(seconds=float(in_flight_s)))
                result = Backfills().carry_out(kafka, SystemClock(), connection, asker, group, partitions)
            print(encode_result(result))
    except StaleAttempt as taken_over:
        print(taken_over, file=sys.stderr)
        return TAKEN_OVER
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
