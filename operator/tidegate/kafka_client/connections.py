"""kafka-python's connections to the brokers, opened to any request: bounded in time, failures in our terms.

librdkafka's admin client has methods for most of these requests, and aborts the process when a broker dies while one is
under way (librdkafka issue 4605): see ``docs/adr/0015-raw-requests.md``.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Final

from kafka import errors as wire_errors
from kafka.admin import KafkaAdminClient
from kafka.net.compat import KafkaNetClient
from kafka.net.manager import KafkaConnectionManager
from kafka.net.selector import NetworkSelector

from tidegate.kafka.connection import Connection
from tidegate.kafka.errors import KafkaFailure, NotAuthenticated, Unavailable
from tidegate.kafka_client.failures import RAISED, failure_of, is_refusal
from tidegate.kafka_client.settings import kafka_python_config

# At DEBUG kafka-python prints its whole configuration, passwords included; what connections meet is in our failures.
logging.getLogger("kafka").setLevel(logging.ERROR)
for _layer in ("kafka.net", "kafka.cluster"):
    logging.getLogger(_layer).setLevel(logging.CRITICAL)

_SLACK_MS: Final = 1000
_CONNECT_MS: Final = 6000
"""For connection, TLS and login: others are there to be asked when a broker does not get that far."""

_NOT_SENT: Final = (wire_errors.NodeNotReadyError, wire_errors.IncompatibleBrokerVersion)
"""By a connection that stands: it is told to wait, or the broker does not know the request."""


class Connections:
    """To all brokers of a cluster. Thread-safe; connects on first use, and anew after :meth:`close`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._lock = threading.Lock()
        self._opened: Future[_Client] | None = None

    def close(self) -> None:
        with self._lock:
            opened, self._opened = self._opened, None
        if opened is not None:
            opened.add_done_callback(_close)  # at once, or as soon as another thread has connected

    def nodes(self, timeout_s: float | None = None) -> list[int]:
        """The node ids of the brokers, as far as known. Raises ``Unavailable`` when there are none, or when nobody lets
        us in within ``timeout_s``."""
        nodes = [broker.node_id for broker in self._client(timeout_s)._manager.cluster.brokers()]
        if not nodes:
            raise Unavailable(f"look for brokers at {self._connection.bootstrap_servers}: none is known")
        return nodes

    def versions(self) -> Mapping[int, tuple[int, int]]:
        """Oldest and newest version by API key (ApiVersions)."""
        versions: Mapping[int, tuple[int, int]] = self._client()._manager.broker_version_data.api_versions
        return versions

    def call(
        self,
        node_id: int,
        requests: Sequence[Any],
        *,
        what: str,
        timeout_s: float,
        writes: bool = False,
        link: Link | None = None,
    ) -> list[Any]:
        """Send requests to one broker, back to back on one connection, and wait for all their answers.

        Raises ``Unavailable`` when nothing was sent, and also when no answer came, unless that matters (``writes``):
        then it is ``OutcomeUnknown``. ``NotAuthenticated``: the next call logs in anew, with what the files hold then.
        ``Refused``: the broker does not know the request. ``link``: on no other connection than this one.
        """
        [outcome] = self.call_all(
            {node_id: requests}, what=what, timeout_s=timeout_s, writes=writes, link=link
        ).values()
        if isinstance(outcome, KafkaFailure):
            raise outcome
        return outcome

    def call_all(
        self,
        requests: Mapping[int, Sequence[Any]],
        *,
        what: str,
        timeout_s: float,
        writes: bool = False,
        link: Link | None = None,
    ) -> dict[int, list[Any] | KafkaFailure]:
        """As :meth:`call` for several brokers at once, by node id; what ``call`` would raise is among the values."""
        until = time.monotonic() + timeout_s
        client = self._client(timeout_s)
        outcomes: dict[int, list[Any] | KafkaFailure] = {}
        try:
            for node_id, told in client.exchange(requests, until, link).items():
                if told.error is None:
                    outcomes[node_id] = told.answers
                else:
                    outcomes[node_id] = failure_of(told.error, what, unknown=told.sent and writes)
        except RAISED as error:
            # Whether anything was sent, only the other thread that closed the connections could tell.
            return {node_id: failure_of(error, what, unknown=writes) for node_id in requests}
        if any(isinstance(outcome, NotAuthenticated) for outcome in outcomes.values()):
            self.close()  # kafka-python would repeat the refusal for ever
        return outcomes

    def link(self, node_id: int, *, what: str, timeout_s: float) -> Link:
        """The connection to one broker as it stands, or a new one. Raises ``Unavailable``."""
        try:
            return Link(node_id, self._client(timeout_s).connected(node_id, time.monotonic() + timeout_s))
        except RAISED as error:
            raise failure_of(error, what) from error

    def start(self, node_id: int, request: Any, *, what: str, timeout_s: float, answer_s: float) -> Answer:
        """Send, within ``timeout_s``, without waiting for the answer. Raises ``Unavailable``.

        An answer that takes longer than ``answer_s`` closes the connection.
        """
        try:
            until = time.monotonic() + timeout_s
            return Answer(self._client(timeout_s).start(node_id, request, until, answer_s), what)
        except RAISED as error:
            raise failure_of(error, what) from error

    def _client(self, timeout_s: float | None = None) -> _Client:
        """Whoever comes while another thread connects shares what comes of it, and waits for it in its own time."""
        with self._lock:
            opened, mine = self._opened, self._opened is None
            if opened is None:
                opened = self._opened = Future()
        if mine:
            try:
                opened.set_result(self._connect(timeout_s))
            except BaseException as error:
                with self._lock:
                    self._opened = None if self._opened is opened else self._opened
                opened.set_exception(error)
                raise
        try:
            return opened.result(timeout_s)
        except TimeoutError as error:
            if opened.done():
                raise
            raise Unavailable(f"connect to {self._connection.bootstrap_servers}: not within {timeout_s} s") from error

    def _connect(self, timeout_s: float | None) -> _Client:
        what = f"connect to {self._connection.bootstrap_servers}"
        try:
            config = kafka_python_config(self._connection)
            if timeout_s is not None:
                config["bootstrap_timeout_ms"] = min(config["bootstrap_timeout_ms"], timeout_s * 1000)
            return _Client(**config)
        except RAISED as error:
            raise failure_of(error, what) from error


@dataclass(frozen=True, slots=True)
class Link:
    """One connection to a broker: once it is closed there is no other that is the same."""

    node_id: int
    connection: Any


class Answer:
    """An answer that is still to come."""

    def __init__(self, told: Future[Any], what: str) -> None:
        self._told = told
        self._what = what

    def get(self) -> Any | None:
        """``None`` until it is there. Raises ``Unavailable`` when it will not come."""
        if not self._told.done():
            return None
        try:
            return self._told.result()
        except RAISED as error:
            raise failure_of(error, self._what) from error


@dataclass(frozen=True, slots=True)
class _Outcome:
    """Answers, or what went wrong instead, and whether anything was sent before."""

    answers: list[Any]
    error: Exception | None = None
    sent: bool = True


class _Client(KafkaAdminClient):  # type: ignore[misc]
    """kafka-python's admin client, for its thread and its connections: it runs the coroutines here."""

    def __init__(self, **config: Any) -> None:
        try:
            super().__init__(kafka_client=_net_client, **config)
        except BaseException:
            self.close()  # its thread is running
            raise

    def close(self) -> None:
        """Nobody waits for a thread that is deaf, see ``_Manager.run_within``."""
        if hasattr(self, "_net"):
            closing = threading.Thread(target=self._close, name="tidegate-kafka-close", daemon=True)
            closing.start()
            closing.join(_SLACK_MS / 1000)

    def _close(self) -> None:
        with contextlib.suppress(wire_errors.KafkaError, RuntimeError):
            self._manager.run(self._manager.close)
        self._net.close()
        self._metrics.close()

    def exchange(
        self, requests: Mapping[int, Sequence[Any]], until: float, link: Link | None = None
    ) -> Mapping[int, _Outcome]:
        """What came of the requests to each node. ``until``: as the monotonic clock has it."""

        async def all_of_them() -> dict[int, _Outcome]:
            begun = {n: self._manager.call_soon(self._exchange, n, some, until, link) for n, some in requests.items()}
            return {node_id: await outcome for node_id, outcome in begun.items()}

        outcomes: dict[int, _Outcome] = self._manager.run_within(_left_ms(until) + _SLACK_MS, all_of_them)
        return outcomes

    def connected(self, node_id: int, until: float) -> Any:
        """The connection that requests to a broker are sent on."""

        async def connect() -> Any:
            return await self._connected(node_id, until)

        return self._manager.run_within(_left_ms(until) + _SLACK_MS, connect)

    async def _exchange(
        self, node_id: int, requests: Sequence[Any], until: float, link: Link | None = None
    ) -> _Outcome:
        sent = False
        try:
            connection = await self._connected(node_id, until)
            if link is not None and link.connection is not connection:
                raise wire_errors.NodeNotReadyError("the connection was made anew meanwhile")
            left_ms = _left_ms(until)
            # At its end kafka-python closes the connection: what else waits for that broker is not answered either.
            answers = [connection.send_request(request, request_timeout_ms=left_ms) for request in requests]
            sent = True
            return _Outcome([await self._manager.wait_for(answer, left_ms + _SLACK_MS) for answer in answers])
        except RAISED as error:
            return _Outcome([], error, sent and not isinstance(error, _NOT_SENT))

    def start(self, node_id: int, request: Any, until: float, answer_s: float) -> Future[Any]:
        """Send without waiting for the answer."""
        told: Future[Any] = Future()

        async def send() -> None:
            connection = await self._connected(node_id, until)
            answer = connection.send_request(request, request_timeout_ms=answer_s * 1000)
            answer.add_callback(told.set_result)
            answer.add_errback(told.set_exception)

        self._manager.run_within(_left_ms(until) + _SLACK_MS, send)
        return told

    async def _connected(self, node_id: int, until: float) -> Any:
        manager = self._manager
        if manager.cluster.broker_metadata(node_id) is None:
            await manager.wait_for(manager.call_soon(manager.cluster.refresh_metadata), _left_ms(until))
        connection = manager.get_connection(node_id)
        await manager.wait_for(connection.init_future, _left_ms(until))
        if time.monotonic() >= until:
            raise wire_errors.KafkaTimeoutError("connected too late")  # perhaps nobody waits for it any more
        return connection


class _Manager(KafkaConnectionManager):  # type: ignore[misc]
    """Makes kafka-python's connections, with what it leaves out: an end to TLS handshakes, and what went wrong."""

    _trouble: Exception | None = None
    """Why the last connection that came to nothing did so."""

    def bootstrap(self, timeout_ms: float, refresh: bool = True) -> None:
        async def bootstrapped() -> None:
            await self.wait_for(self.bootstrap_async(timeout_ms, refresh), timeout_ms + _SLACK_MS)

        try:
            self.run_within(timeout_ms + 2 * _SLACK_MS, bootstrapped)
        except wire_errors.KafkaTimeoutError as error:
            raise self._trouble or error from error

    def run_within(self, timeout_ms: float, coroutine: Callable[[], Awaitable[Any]]) -> Any:
        """As ``run``, but waits no longer than that. Raises ``KafkaTimeoutError``.

        The connections' thread looks names up and fetches tokens itself, and is deaf meanwhile: where a name server is
        away, for minutes.
        """
        net, done = self._net, threading.Event()
        state: dict[str, Any] = {"value": None, "exception": None}

        def noting(key: str) -> Callable[[Any], None]:
            def note(what: Any) -> None:
                state[key] = what
                done.set()

            return note

        with net._pending_waiters_lock:
            net._pending_waiters[done] = state  # so that who closes the connections ends the wait
        try:
            running = self.call_soon(coroutine)
            running.add_callback(noting("value"))
            running.add_errback(noting("exception"))
            if not done.wait(timeout_ms / 1000):
                raise wire_errors.KafkaTimeoutError(f"the connections' thread was busy for {timeout_ms / 1000:.1f} s")
        finally:
            with net._pending_waiters_lock:
                net._pending_waiters.pop(done, None)
        if state["exception"] is not None:
            raise state["exception"]
        return state["value"]

    def get_connection(self, node_id: Any, timeout_ms: float | None = None, **options: Any) -> Any:
        limit_ms = _CONNECT_MS if timeout_ms is None else min(timeout_ms, _CONNECT_MS)
        return super().get_connection(node_id, timeout_ms=limit_ms, **options)

    async def _build_transport(self, node: Any, timeout_at: float) -> Any:
        building = self.call_soon(super()._build_transport, node, timeout_at)
        try:
            transport = await self.wait_for(building, max(0.0, timeout_at - time.monotonic()) * 1000)
        except wire_errors.KafkaTimeoutError:
            building.add_callback(lambda transport: transport.close())  # nobody waits for it any more
            raise
        receive = transport._sock_recv
        transport._sock_recv = lambda: _last_words_first(*receive())
        return transport

    async def _connect(self, node: Any, conn: Any, **options: Any) -> None:
        await super()._connect(node, conn, **options)
        error = conn.init_future.exception
        if error is not None:
            self._trouble = error
            if is_refusal(error):
                self._auth_failures[node.node_id] = error  # which ends bootstrapping


def _close(opened: Future[_Client]) -> None:
    if opened.exception() is None:
        opened.result().close()


def _left_ms(until: float) -> float:
    return max(1.0, (until - time.monotonic()) * 1000)


def _last_words_first(data: bytes, error: Exception | None) -> tuple[bytes, Exception | None]:
    """What a broker said before it closed the connection, as after a refused login; kafka-python drops it. Who reads
    again meets the error again."""
    return data, None if data else error


def _net_client(**config: Any) -> KafkaNetClient:
    net = NetworkSelector(**config)
    return KafkaNetClient(net=net, manager=_Manager(net, **config))
