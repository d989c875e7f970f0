"""Copies one partition until the target has reached an offset: a process that tests kill and freeze.

``python writer_process.py SOURCE TARGET TOPIC COPY UNTIL FOLDER WAY``: bootstrap servers of both, the topic and its
copy, the offset, where the producer ids are kept, and how gaps are filled. Prints each state that it comes to, and last
``done`` or ``stopped``.
"""

from __future__ import annotations

import sys
import time
from contextlib import closing
from pathlib import Path

from support.mirror.id_file import IdFile
from tidegate.kafka.connection import Connection
from tidegate.kafka.model import TopicPartition
from tidegate.kafka_client.mirror_clients import MirrorSource, MirrorTarget, new_producer_id
from tidegate.kafka_client.mirror_coordinator import MirrorCoordinator
from tidegate.kafka_client.wire import Wire
from tidegate.mirror.copier import Copier
from tidegate.mirror.model import Interrupted
from tidegate.mirror.states import Mirror, Ready, Way

PAUSE_S = 0.02


def copier(
    source: Wire,
    target: Wire,
    topic: str,
    copy: str,
    folder: Path,
    *,
    compacts: bool = False,
    way: Way = Way.MARKERS,
) -> Copier:
    key = b"filler" if compacts else None
    partition = TopicPartition(copy, 0)
    return Copier(
        Mirror(way=way, compacts=compacts, filler_key=key),
        MirrorSource(source, TopicPartition(topic, 0)),
        MirrorTarget(target, partition),
        IdFile(folder, lambda: new_producer_id(target)),
        MirrorCoordinator(target, f"mirror-{copy}", partition, key),
    )


def run(copier: Copier, until: int) -> str:
    """``done`` once the target has come to the offset, and has forgotten what the source has."""
    said = None
    while True:
        waits_for = copier.step()
        state = copier.mirror.state
        if type(state) is not said:
            said = type(state)
            print(said.__name__, flush=True)
        if copier.stopped is not None:
            return f"stopped: {copier.stopped}"
        if isinstance(state, Ready) and state.idle and state.position.offset >= until:
            return f"done: {state.position}"
        if waits_for is not None:
            time.sleep(PAUSE_S)


def end_of(source: Wire, topic: str) -> int:
    """The source's last stable offset."""
    read = MirrorSource(source, TopicPartition(topic, 0)).read(0)
    assert not isinstance(read, Interrupted), read
    return read.last_stable


def main(source: str, target: str, topic: str, copy: str, until: str, folder: str, way: str) -> None:
    with closing(Wire(Connection(source))) as theirs, closing(Wire(Connection(target))) as ours:
        copying = copier(theirs, ours, topic, copy, Path(folder), way=Way(way))
        print(run(copying, int(until)), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
