"""The web site: produces its requests, most of the past at once and the rest at a steady pace."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Sequence
from datetime import datetime
from itertools import islice
from types import TracebackType
from typing import Final, Self

from confluent_kafka import KafkaError, Message, Producer

from demo.access_log import Request
from support.deliveries import Partition

_FLUSH_S: Final = 30.0


class TrafficError(Exception):
    """The broker did not take a record."""


class Traffic:
    """Produces ``requests`` onto ``topic``, keyed by client, from ``begin`` until ``stop`` or the last one.

    Remembers which offsets were acknowledged: no acknowledged record may ever be missing at a consumer.
    """

    def __init__(self, bootstrap: str, topic: str, requests: Iterable[Request], *, per_second: float) -> None:
        self._topic = topic
        self._requests = iter(requests)
        self._interval_s = 1 / per_second
        # The Java clients' partitioner: a key's partition is the same whoever produces it.
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "partitioner": "murmur2_random",
                "linger.ms": 5,
                # What goes wrong is raised; a coordinator that is still loading is not worth a line on the screen.
                "log_level": 2,
            }
        )
        self._lock = threading.Lock()
        self._acked: dict[Partition, dict[int, int]] = {}
        self._refused: list[str] = []
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="traffic", daemon=True)

    def send_past(self, count: int) -> int:
        """Produce the next ``count`` requests at once; returns how many there were. Raises ``TrafficError``."""
        past = list(islice(self._requests, count))
        for request in past:
            self._send(request)
        self._flush()
        return len(past)

    def begin(self) -> None:
        """Go on at the steady pace, in a thread of its own."""
        self._thread.start()

    def stop(self) -> None:
        """End, and wait until everything is acknowledged. May be called twice. Raises ``TrafficError``."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join()
        self._flush()

    def acked(self) -> dict[Partition, frozenset[int]]:
        """The acknowledged offsets so far."""
        with self._lock:
            return {partition: frozenset(offsets) for partition, offsets in sorted(self._acked.items())}

    def ends(self, partitions: Sequence[Partition]) -> dict[Partition, int]:
        """For each partition the offset after the last acknowledged record."""
        with self._lock:
            return {p: max(self._acked.get(p, ()), default=-1) + 1 for p in partitions}

    def first_offsets_at(self, at: datetime, partitions: Iterable[Partition]) -> dict[Partition, int]:
        """For each partition the offset of its first record whose own time is ``at`` or later; else its end."""
        asked_ms = round(at.timestamp() * 1000)
        with self._lock:
            return {
                p: min(
                    (offset for offset, ms in self._acked.get(p, {}).items() if ms >= asked_ms),
                    default=max(self._acked.get(p, {}), default=-1) + 1,
                )
                for p in partitions
            }

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join()
        self._producer.purge()

    def _run(self) -> None:
        due = time.monotonic()
        for request in self._requests:
            self._send(request)
            due += self._interval_s
            if self._stopping.wait(max(0.0, due - time.monotonic())):
                return

    def _send(self, request: Request) -> None:
        while True:
            try:
                self._producer.produce(
                    self._topic,
                    request.line,
                    request.client_ip,
                    timestamp=request.timestamp_ms,
                    on_delivery=self._delivered,
                )
                break
            except BufferError:  # the queue is full: wait for acknowledgements
                self._producer.poll(0.1)
        self._producer.poll(0)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        offset, partition, (_, timestamp_ms) = message.offset(), message.partition(), message.timestamp()
        with self._lock:
            if error is not None or offset is None or partition is None:
                self._refused.append(str(error))
            else:
                self._acked.setdefault((self._topic, partition), {})[offset] = timestamp_ms

    def _flush(self) -> None:
        left = self._producer.flush(_FLUSH_S)
        with self._lock:
            if left or self._refused:
                raise TrafficError(
                    f"{left} records without an answer, {len(self._refused)} refused: {self._refused[:3]}"
                )
