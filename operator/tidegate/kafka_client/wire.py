"""Whom a request goes to, and how long its answer is waited for: the coordinator of a group or of a transactional id,
one broker, any, or each.

Requests are kafka-python's request classes, TLS and SASL included. What is asked is in ``cluster_requests``,
``group_requests``, ``offset_requests`` and with whoever asks it alone.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final, TypeVar

from kafka.protocol.metadata import CoordinatorType, FindCoordinatorRequest

from tidegate.kafka.connection import Connection
from tidegate.kafka.errors import KafkaFailure, NotAuthenticated, Unavailable
from tidegate.kafka.rights import Right, on_group
from tidegate.kafka_client.codes import NO_ERROR, NOT_AUTHORIZED, check
from tidegate.kafka_client.connections import Answer, Connections, Link
from tidegate.kafka_client.settings import socket_timeout_ms

_NOT_THERE_NOW: Final = frozenset({14, 15, 16})
"""COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR"""

T = TypeVar("T")


class Wire:
    """Raw requests. Thread-safe; connects on first use. Calls are bounded in time, and raise ``KafkaFailure``s only.

    A request is sent again where its broker has gone, the coordinator has moved or nobody has answered: it has to be
    one that changes nothing when it is repeated, unless said otherwise.
    """

    OVERTIME_S: Final = 2.0
    """How much longer than its time limit a call may take: whoever is asked last gets a moment to answer."""

    _TIMEOUT_S = 15.0
    BROKER_TIMEOUT_S = 5.0
    """For one broker, where any other can be asked."""
    _PATIENT_PART = 2 / 3
    """Of the time, for the only broker that can answer: when that has died its successor is to be heard as well."""
    _LEAST_TIMEOUT_S = 0.5
    _RETRY_PAUSE_S = 0.1
    _BATCH = 200
    """Groups in one request."""
    _AT_ONCE = 1000

    def __init__(self, connection: Connection) -> None:
        self.timeout_s = min(self._TIMEOUT_S, socket_timeout_ms(connection) / 1000)
        self._connections = Connections(connection)
        self._coordinators: dict[tuple[CoordinatorType, str], int] = {}
        self._last_node: int | None = None
        """The broker that answered last what any can answer: it is asked again, as it knows most of what it told."""

    def close(self) -> None:
        self._connections.close()

    # --- to whom, and how long ----------------------------------------------------------------------------------------

    def ask_any(self, build: Callable[[], Any], *, what: str, deadline: float | None = None) -> Any:
        """What any broker answers; one after the other is asked."""

        def attempt(_: bool) -> Any:
            nodes = sorted(self._connections.nodes(left()), key=lambda node: node != self._last_node)
            failure: KafkaFailure = Unavailable(f"{what}: there is no broker")
            for tried, node in enumerate(nodes):
                if tried and time.monotonic() > until:
                    break
                try:
                    answer = self.ask(node, build(), what=what, timeout_s=min(self.BROKER_TIMEOUT_S, left()))
                except NotAuthenticated:
                    raise
                except Unavailable as error:
                    failure = error
                else:
                    self._last_node = node
                    return answer
            raise failure

        def left() -> float:
            return max(self._LEAST_TIMEOUT_S, until - time.monotonic())

        until, began = self.deadline() if deadline is None else deadline, time.monotonic()
        try:
            return self.patiently(attempt, until)
        except Unavailable:
            if time.monotonic() - began >= min(self.BROKER_TIMEOUT_S, self.timeout_s / 2):
                # All may have moved: the next call finds them through the bootstrap servers again. Not where there was
                # hardly time for an answer, as that ends what other threads wait for.
                self.close()
            raise

    def ask(self, node_id: int, request: Any, *, what: str, timeout_s: float) -> Any:
        """What one broker answers, asked once."""
        [answer] = self._connections.call(node_id, [request], what=what, timeout_s=timeout_s)
        return answer

    def link(self, node_id: int, *, what: str) -> Link:
        """A connection to one broker, for requests of which none may be sent on another one."""
        return self._connections.link(node_id, what=what, timeout_s=self.BROKER_TIMEOUT_S)

    def ask_on(self, link: Link, requests: Sequence[Any], *, what: str, timeout_s: float, writes: bool = False) -> Any:
        """What the broker answers to requests that are sent back to back on one connection, once. ``writes``: raises
        ``OutcomeUnknown`` where it is not known whether they were carried out."""
        return self._connections.call(link.node_id, requests, what=what, timeout_s=timeout_s, writes=writes, link=link)

    def start(self, node_id: int, request: Any, *, what: str, answer_s: float) -> Answer:
        """Send to one broker without waiting for the answer, which may take ``answer_s``. Raises ``Unavailable``."""
        timeout_s = self.part_of(self.deadline())
        return self._connections.start(node_id, request, what=what, timeout_s=timeout_s, answer_s=answer_s)

    def ask_each(self, requests: Mapping[int, Any], *, what: str, deadline: float) -> dict[int, Any | KafkaFailure]:
        """What each of several brokers answers to its request, all asked once and at the same time."""
        asked = {node_id: [request] for node_id, request in requests.items()}
        told = self._connections.call_all(asked, what=what, timeout_s=self.part_of(deadline))
        return {node: found if isinstance(found, KafkaFailure) else found[0] for node, found in told.items()}

    def exchange(
        self,
        key: str,
        *requests: Callable[[], Any],
        of: CoordinatorType = CoordinatorType.GROUP,
        code_of: Callable[[Any], int] = lambda answer: int(answer.error_code),
        what: str,
        needs: Right | None = None,
        timeout_s: float | None = None,
        once: bool = False,
    ) -> list[Any]:
        """Send requests to the coordinator of a group or a transactional id, back to back, following it when it moves.

        Returns the answers. ``needs``: the right to name where the principal may not even look for the coordinator.
        ``once``: a request that was sent is not sent again when no answer comes; raises ``OutcomeUnknown``.
        """
        deadline = self.deadline(timeout_s)

        def attempt(again: bool) -> list[Any]:
            node = self._find([key], deadline, of=of, fresh=again, needs=needs)[key]
            sent, limit = [build() for build in requests], self.part_of(deadline)
            answers = self._connections.call(node, sent, what=what, timeout_s=limit, writes=once)
            moved = next((c for c in map(code_of, answers) if c in _NOT_THERE_NOW), NO_ERROR)
            check(moved, what)
            return answers

        try:
            return self.patiently(attempt, deadline)
        except KafkaFailure:
            self._coordinators.pop((of, key), None)
            raise

    def of_coordinators(
        self,
        group_ids: Collection[str],
        build: Callable[[list[str]], Any],
        *,
        what: str,
    ) -> dict[str, Any]:
        """Each group's part of answers whose ``groups`` have ``group_id`` and ``error_code``, as OffsetFetch's.

        One request a coordinator and up to 200 groups; coordinators are followed when they move. The time limit is for
        each thousand.
        """
        ids, found = list(group_ids), dict[str, Any]()
        for start in range(0, len(ids), self._AT_ONCE):
            found |= self._of_coordinators(ids[start : start + self._AT_ONCE], build, what)
        return found

    def _of_coordinators(
        self, group_ids: Collection[str], build: Callable[[list[str]], Any], what: str
    ) -> dict[str, Any]:
        deadline = self.deadline()
        found: dict[str, Any] = {}

        def attempt(again: bool) -> None:
            left = [group_id for group_id in group_ids if group_id not in found]
            by_node: defaultdict[int, list[str]] = defaultdict(list)
            for group_id, node in self._find(left, deadline, fresh=again).items():
                by_node[node].append(group_id)
            failures: list[KafkaFailure] = []
            while by_node:
                batches = {
                    node: [ids.pop() for _ in range(min(len(ids), self._BATCH))] for node, ids in by_node.items()
                }
                requests = {node: build(ids) for node, ids in batches.items()}
                for answer in self.ask_each(requests, what=what, deadline=deadline).values():
                    if isinstance(answer, KafkaFailure):
                        failures.append(answer)
                    else:
                        found.update({g.group_id: g for g in answer.groups if g.error_code not in _NOT_THERE_NOW})
                by_node = defaultdict(list, {node: ids for node, ids in by_node.items() if ids})
            for failure in failures:
                raise failure
            missing = next((group_id for group_id in group_ids if group_id not in found), None)
            if missing is not None:
                raise Unavailable(f"{what}: the coordinator of group {missing} is not there")

        try:
            self.patiently(attempt, deadline)
        except KafkaFailure:
            for group_id in group_ids:
                self._coordinators.pop((CoordinatorType.GROUP, group_id), None)
            raise
        return found

    def deadline(self, timeout_s: float | None = None) -> float:
        return time.monotonic() + (self.timeout_s if timeout_s is None else timeout_s)

    def patiently(self, attempt: Callable[[bool], T], deadline: float) -> T:
        """Try again until the deadline where nobody is there; ``attempt`` is told whether it was tried before."""
        again = False
        while True:
            try:
                return attempt(again)
            except Unavailable as error:
                if isinstance(error, NotAuthenticated) or time.monotonic() > deadline:
                    raise
            time.sleep(self._RETRY_PAUSE_S)
            again = True

    def part_of(self, deadline: float) -> float:
        left = deadline - time.monotonic()
        return max(self._LEAST_TIMEOUT_S, min(left, self.timeout_s * self._PATIENT_PART))

    def _find(
        self,
        keys: Collection[str],
        deadline: float,
        *,
        of: CoordinatorType = CoordinatorType.GROUP,
        fresh: bool = False,
        needs: Right | None = None,
    ) -> dict[str, int]:
        """Node ids by group, or by transactional id."""
        known = {} if fresh else {key: self._coordinators.get((of, key)) for key in keys}
        found = {key: node for key, node in known.items() if node is not None}
        unknown = [key for key in keys if key not in found]
        if unknown:
            looked_up = {row.key: row.node_id for row in self._look_for(unknown, deadline, of=of, needs=needs)}
            self._coordinators |= {(of, key): node for key, node in looked_up.items()}
            found |= looked_up
        return found

    def _look_for(
        self,
        keys: Collection[str],
        deadline: float,
        *,
        of: CoordinatorType = CoordinatorType.GROUP,
        needs: Right | None = None,
    ) -> list[Any]:
        """Key, node id, host and port of each."""
        rows = self._told_of(keys, deadline, of)
        for row in rows:
            what = f"find the coordinator of {named([row.key], of)}"
            check(row.error_code, what, on_group("Describe", row.key) if needs is None else needs)
        return rows

    def _told_of(self, keys: Collection[str], deadline: float, of: CoordinatorType) -> list[Any]:
        """FindCoordinator (KIP-699): key, error code, node id, host and port of each."""
        answer = self.ask_any(
            lambda: FindCoordinatorRequest(key_type=of.value, coordinator_keys=list(keys), min_version=4),
            what=f"find the coordinator of {named(keys, of)}",
            deadline=deadline,
        )
        return list(answer.coordinators)

    # --- the brokers --------------------------------------------------------------------------------------------------

    def brokers(self) -> list[int]:
        """The node ids of the brokers, as far as known. Raises ``Unavailable`` when there are none."""
        return self._connections.nodes()

    def coordinator(
        self, key: str, of: CoordinatorType = CoordinatorType.GROUP, needs: Right | None = None
    ) -> tuple[int, str, int]:
        """Node id, host and port of the coordinator of a group, or of a transactional id. ``needs``: the right on it,
        for a refusal; absent, Describe on the group."""
        deadline = self.deadline()
        [row] = self.patiently(lambda _: self._look_for([key], deadline, of=of, needs=needs), deadline)
        return int(row.node_id), str(row.host), int(row.port)

    def refused(self, keys: Collection[str], of: CoordinatorType = CoordinatorType.GROUP) -> frozenset[str]:
        """Those whose coordinator the principal may not even look for, by one request."""
        if not keys:
            return frozenset()

        def attempt(_: bool) -> frozenset[str]:
            rows = self._told_of(keys, deadline, of)
            for row in rows:
                if row.error_code not in NOT_AUTHORIZED:
                    check(row.error_code, f"find the coordinator of {named([row.key], of)}")
            return frozenset(row.key for row in rows if row.error_code in NOT_AUTHORIZED)

        deadline = self.deadline()
        return self.patiently(attempt, deadline)

    def supports(self, api_key: int) -> bool:
        """Whether the brokers offer an API (ApiVersions)."""
        return api_key in self.versions()

    def versions(self) -> Mapping[int, tuple[int, int]]:
        """Oldest and newest version by API key (ApiVersions)."""
        return self._connections.versions()


def named(keys: Collection[str], of: CoordinatorType = CoordinatorType.GROUP) -> str:
    one = "group" if of is CoordinatorType.GROUP else "transactional id"
    return f"{one} {next(iter(keys))}" if len(keys) == 1 else f"{len(keys)} {one}s"
