"""``TidegateAdmin``: pause, resume and list, without waiting."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from types import TracebackType
from typing import Any, Self, TypeVar

from tidegate.admin.results import ListPausedPartitionsResult, PausePartitionsResult, ResumePartitionsResult, promised
from tidegate.admin.secret_files import SecretFiles
from tidegate.admin.service import CLI_HOLDER, DRAIN_TIMEOUT, Pauses, Resumed
from tidegate.admin.settings import connection_from
from tidegate.clock import SystemClock
from tidegate.control.standing import PartitionStanding
from tidegate.kafka.connection import Connection
from tidegate.kafka.model import TopicPartition
from tidegate.kafka_client.client import KafkaClient

T = TypeVar("T")

_THREADS = 8


class TidegateAdmin:
    """Pauses partitions of live consumer groups whose consumers run the agent. Thread-safe; close it, or use ``with``.

    ``connection``: a :class:`Connection`, or the settings of a confluent_kafka client (``bootstrap.servers``,
    ``security.protocol``, ``sasl.*``, ``ssl.*``…). Connects on first use. ``holder``: whose the holds are; programs
    that must not undo each other's pauses need different ones, and ``pause/`` and ``reset/`` belong to the operator.

    Calls return at once; what they ask for is done in threads of this object.
    """

    def __init__(
        self,
        connection: Connection | Mapping[str, Any],
        *,
        control_topic: str | None = None,
        ack_topic: str | None = None,
        holder: str = CLI_HOLDER,
    ) -> None:
        """Raises ``tidegate.kafka_client.settings.BadConnection`` for settings that cannot be used."""
        if not holder or holder.startswith(("pause/", "reset/")):
            raise ValueError(f"holder {holder!r}: must not be empty, nor begin with pause/ or reset/")
        self._secrets = SecretFiles()
        if not isinstance(connection, Connection):
            connection = connection_from(connection, self._secrets)
        if control_topic is not None:
            connection = replace(connection, control_topic=control_topic)
        if ack_topic is not None:
            connection = replace(connection, ack_topic=ack_topic)
        self._kafka = KafkaClient(connection)
        self._pauses = Pauses(self._kafka, SystemClock(), holder)
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="tidegate-admin")

    def pause_partitions(
        self,
        group_id: str,
        partitions: Collection[TopicPartition],
        *,
        reason: str = "",
        drain_timeout: timedelta = DRAIN_TIMEOUT,
        timeout: timedelta | None = None,
    ) -> PausePartitionsResult:
        """Close the gates of partitions. Each one's future is done when its owner has obeyed, or nobody owns it.

        ``reason``: for whoever lists what is paused. ``drain_timeout``: how long owners may take to finish what they
        were given. ``timeout``: how long to wait; absent, a little longer than that.

        A future fails with ``UnmanagedOwner`` (the hold was taken back), ``NotConfirmed`` (the hold stays),
        ``UnknownPartition``, ``HoldTakenBack``; all with ``ControlTopicUnfit``, ``UnsupportedGroup``, ``KafkaFailure``.
        """
        futures: dict[TopicPartition, Future[PartitionStanding]] = {p: promised() for p in partitions}

        def tell(partition: TopicPartition, outcome: PartitionStanding | Exception) -> None:
            if isinstance(outcome, Exception):
                futures[partition].set_exception(outcome)
            else:
                futures[partition].set_result(outcome)

        work = self._threads.submit(
            self._pauses.pause,
            group_id,
            list(futures),
            tell,
            reason=reason,
            drain_timeout=drain_timeout,
            timeout=timeout,
        )
        _fail_with(work, futures)
        return PausePartitionsResult(futures)

    def resume_partitions(self, group_id: str, partitions: Collection[TopicPartition]) -> ResumePartitionsResult:
        """Take our holds back. A gate opens when nobody else holds it; a future's result says who does.

        Does not wait for the owners: they go on from the committed offsets within moments.
        """
        futures: dict[TopicPartition, Future[Resumed]] = {p: promised() for p in partitions}

        def resume() -> None:
            for partition, resumed in self._pauses.resume(group_id, list(futures)).items():
                futures[partition].set_result(resumed)

        _fail_with(self._threads.submit(resume), futures)
        return ResumePartitionsResult(futures)

    def list_paused_partitions(self, group_id: str) -> ListPausedPartitionsResult:
        """All partitions of a group whose gates are closed, whoever holds them."""
        return ListPausedPartitionsResult(self._threads.submit(self._pauses.paused, group_id))

    def close(self) -> None:
        """Waits for the calls that are under way. Holds stay: they end when they are resumed."""
        self._threads.shutdown()
        self._kafka.close()
        self._secrets.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def _fail_with(work: Future[None], futures: Mapping[TopicPartition, Future[T]]) -> None:
    """Whatever ended the work ends what it has left undone."""

    def ended(_: Future[None]) -> None:
        error = work.exception()
        for future in futures.values():
            if not future.done():
                future.set_exception(error if error is not None else RuntimeError("the work ended without a result"))

    work.add_done_callback(ended)
