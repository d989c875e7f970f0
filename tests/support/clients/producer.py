"""Producers that remember what the broker has acknowledged."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from confluent_kafka import KafkaError, Message, Producer

from support.deliveries import Partition, digest
from support.history import Outcome, Send

_CLOSE_S = 60.0


@dataclass(frozen=True, slots=True)
class Line:
    """A record to be produced: its value, and, where given, its own timestamp (epoch milliseconds) and key."""

    value: bytes
    timestamp_ms: int | None = None
    key: bytes | None = None


class ProduceError(AssertionError):
    """The broker has not acknowledged a record; what was acknowledged no longer tells what is in the log."""


class _Ledger:
    """Counts records a partition, and keeps number and offset of each acknowledged one, where the offset is known."""

    def __init__(
        self, bootstrap: str, config: Mapping[str, str | int | float | bool], *, keeps_sends: bool = False
    ) -> None:
        self._lock = threading.Lock()
        self._acked: dict[Partition, dict[int, int]] = {}
        self._sends: dict[tuple[Partition, int], Send] | None = {} if keeps_sends else None
        self._sent: dict[Partition, int] = {}
        self._failed: list[str] = []
        self._closed = False
        # Idempotent, so that a retry leaves neither a second copy nor another order.
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "acks": "all", "enable.idempotence": True, "linger.ms": 0, **config}
        )

    def send(self, partition: Partition, line: Line | None) -> None:
        number = self._sent.get(partition, 0)
        self._sent[partition] = number + 1
        given = line or Line(f"{partition[0]}-{partition[1]} {number}".encode())

        def answered(outcome: Outcome, offset: int | None = None) -> None:
            if self._sends is not None:
                value = f"{digest(given.key, given.value):08x}"
                self._sends[partition, number] = Send(time.time(), *partition, outcome, offset, value)

        def delivered(error: KafkaError | None, message: Message) -> None:
            with self._lock:
                if error is not None:
                    self._failed.append(f"{partition} record {number}: {error}")
                    # What came too late may be in the log all the same.
                    late = error.code() in (KafkaError._MSG_TIMED_OUT, KafkaError._PURGE_INFLIGHT)
                    answered(Outcome.UNKNOWN if late else Outcome.FAILED)
                elif (offset := message.offset()) is not None:
                    self._acked.setdefault(partition, {})[offset] = number
                    answered(Outcome.ACKED, offset)
                # Otherwise the broker had it from an earlier try already (DUPLICATE_SEQUENCE_NUMBER, whose answer names
                # no offset): it is in the log, but at a place that nobody told.

        with self._lock:
            answered(Outcome.UNKNOWN)
        more: dict[str, Any] = {} if given.timestamp_ms is None else {"timestamp": given.timestamp_ms}
        while True:
            try:
                self._producer.produce(
                    partition[0], given.value, given.key, partition[1], on_delivery=delivered, **more
                )
            except BufferError:  # the queue is full: wait for acknowledgements
                self._producer.poll(0.1)
            else:
                return

    def serve(self) -> None:
        self._producer.poll(0)

    def close(self) -> None:
        """Give up what has no answer yet, and reconnect no more: whoever listens there later is somebody else."""
        if not self._closed:
            self._closed = True
            self._producer.purge()
            self._producer.close()

    def flush(self) -> None:
        """Wait for all answers, and close. May be called twice."""
        left = 0 if self._closed else self._producer.flush(_CLOSE_S)
        self.close()
        with self._lock:
            if left or self._failed:
                raise ProduceError(
                    f"{left} records without an answer after {_CLOSE_S:g} s; refused: {self._failed[:5]}"
                )

    def sends(self) -> list[Send]:
        with self._lock:
            return list((self._sends or {}).values())

    def acked(self) -> dict[Partition, dict[int, int]]:
        with self._lock:
            return {partition: dict(offsets) for partition, offsets in self._acked.items()}


class SteadyProducer:
    """Produces to each partition at an even rate, from entering the ``with`` block (or `start`) until `stop`.

    `lines` gives the records, one after the other whatever the partition; when they are used up, nothing more is
    produced. Without it a value is ``<topic>-<partition> <number>``. Records of the partitions are sent together, one a
    partition each ``1 / rate_per_partition`` seconds. `keeps_sends`: for a history; `sends` has nothing without it.
    """

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        partitions: int | Sequence[int],
        rate_per_partition: float,
        *,
        lines: Iterable[Line] | None = None,
        config: Mapping[str, str | int | float | bool] | None = None,
        keeps_sends: bool = False,
    ) -> None:
        numbers = range(partitions) if isinstance(partitions, int) else partitions
        self._partitions = [(topic, number) for number in numbers]
        self._interval = 1 / rate_per_partition
        self._lines = iter(lines) if lines is not None else None
        self._ledger = _Ledger(bootstrap, config or {}, keeps_sends=keeps_sends)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"producer-{topic}", daemon=True)
        self._error: BaseException | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is None:
            self.stop()
        else:
            self.give_up()

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> dict[Partition, frozenset[int]]:
        """End, wait for all acknowledgements, and return the acknowledged offsets; may be called twice.

        Raises `ProduceError` when a record was refused or not answered within 60 s.
        """
        self._stopping.set()
        self._thread.join()
        if self._error is not None:
            raise ProduceError(f"the producer's thread ended: {self._error!r}") from self._error
        self._ledger.flush()
        return self.acked_offsets()

    def give_up(self) -> None:
        """End, and wait for no acknowledgement: the cluster is gone."""
        self._stopping.set()
        self._thread.join()
        self._ledger.close()

    def acked(self) -> dict[Partition, dict[int, int]]:
        """For each partition, the acknowledged offsets so far and each one's number (from 0, as sent)."""
        return self._ledger.acked()

    def sends(self) -> list[Send]:
        """All records so far, and what came of each, where `keeps_sends`."""
        return self._ledger.sends()

    def acked_offsets(self) -> dict[Partition, frozenset[int]]:
        """For each partition, the acknowledged offsets so far."""
        return {partition: frozenset(offsets) for partition, offsets in self._ledger.acked().items()}

    def ends(self) -> dict[Partition, int]:
        """For each partition with an acknowledged record, the offset after the last one."""
        return {partition: max(offsets) + 1 for partition, offsets in self._ledger.acked().items()}

    def _run(self) -> None:
        try:
            due = time.monotonic()
            while not self._stopping.is_set():
                for partition in self._partitions:
                    line = next(self._lines, None) if self._lines is not None else None
                    if self._lines is not None and line is None:
                        return
                    self._ledger.send(partition, line)
                self._ledger.serve()
                due += self._interval
                self._stopping.wait(max(0.0, due - time.monotonic()))
        except BaseException as failed:
            self._error = failed
            raise


def produce_all(
    bootstrap: str,
    topic: str,
    partitions: int | Sequence[int],
    lines: Iterable[Line],
    *,
    config: Mapping[str, str | int | float | bool] | None = None,
) -> dict[Partition, frozenset[int]]:
    """Produce a fixed set of records, in turns over the partitions, and return the acknowledged offsets.

    Raises `ProduceError` unless every record was acknowledged.
    """
    numbers = range(partitions) if isinstance(partitions, int) else partitions
    ledger = _Ledger(bootstrap, {"linger.ms": 20, **(config or {})})
    for partition, line in zip(_forever([(topic, number) for number in numbers]), lines, strict=False):
        ledger.send(partition, line)
        ledger.serve()
    ledger.flush()
    return {partition: frozenset(offsets) for partition, offsets in ledger.acked().items()}


def _forever(partitions: Sequence[Partition]) -> Iterator[Partition]:
    while True:
        yield from partitions
