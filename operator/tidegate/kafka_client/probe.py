"""What brokers take of a producer from outside a group, found out with groups that are made for it."""

from __future__ import annotations

import contextlib
import secrets
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Final

from tidegate.kafka.capabilities import (
    NO_SUCH_GROUPS,
    NO_TOPIC,
    NOT_AUTHORIZED,
    NOT_TRIED,
    PROBE_FAILED,
    PROBE_REFUSED,
    PROBED,
    BrokerApis,
    Capabilities,
    Capability,
    told,
)
from tidegate.kafka.errors import CommitRefused, KafkaFailure, NotAuthorized, Unavailable
from tidegate.kafka.model import Topic, TopicPartition
from tidegate.kafka.ports import OffsetWriter
from tidegate.kafka_client.cluster_requests import describe_topics
from tidegate.kafka_client.codes import NO_ERROR, check
from tidegate.kafka_client.consumer_protocol import assignment
from tidegate.kafka_client.group_heartbeats import (
    JOIN,
    LEAVE,
    ConsumerGroupHeartbeatRequest,
    StreamsGroupHeartbeatRequest,
)
from tidegate.kafka_client.group_requests import (
    delete_group,
    leave_members,
    pending_member_id,
    send_join,
    sync_as_leader,
)
from tidegate.kafka_client.membership import PENDING_SESSION_S
from tidegate.kafka_client.wire import Wire
from tidegate.resources.connection import GroupKind, Support

NAME: Final = "probe/"
PREFIX: Final = "tidegate.probe/"
"""What the ids of probes' groups, and the transactional ids that write them, begin with."""

LOOK_AGAIN_S: Final = 300.0
"""How old the brokers' own words may be."""

TRY_AGAIN_S: Final = 900.0
"""After which a probe is made again that did not succeed: a right may have been granted, a setting changed."""

_UNSUPPORTED_VERSION: Final = 35
TRANSACTION_S: Final = 10.0
"""After which the brokers abort what a probe that died has left open."""

_JOINED_WITHIN_S: Final = 15.0
"""Above the 3 s for which brokers hold a new group's first join (``group.initial.rebalance.delay.ms``)."""
_LOOK_EVERY_S: Final = 0.02
_ASSIGNOR: Final = "range"
_REBALANCE_MS: Final = 30_000

_NOT_TRIED: Final = Capability(
    Support.UNKNOWN, NOT_TRIED, "it takes a try to find out, and nothing may be changed in this cluster now"
)

Leave = Callable[[], bool]
"""Leaves; whether the coordinator still knew the member."""


class _NoSuchGroups(Exception):
    """The coordinator does not know the request by which such a group is joined."""


class KafkaCapabilities:
    """Remembers what the brokers said and what probes found. Thread-safe; ``now_s``: monotonic.

    ``apis``: asks the brokers for their versions. ``probe``: tries one kind of group, and raises nothing.
    """

    def __init__(
        self,
        apis: Callable[[], Collection[BrokerApis]],
        probe: Callable[[GroupKind], Capability],
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ask = apis
        self._probe = probe
        self._now_s = now_s
        self._lock = threading.Lock()
        self._apis: Collection[BrokerApis] = ()
        self._asked_s: float | None = None
        self._found: dict[GroupKind, tuple[float, Capability]] = {}

    def of(self, kinds: Collection[GroupKind], *, probe: bool = True) -> Capabilities:
        """``probe``: whether it may be tried. Raises ``KafkaFailure`` where the brokers do not tell their versions."""
        with self._lock:
            self._look()
            return {kind: self._capability(kind, probe=probe) for kind in kinds}

    def _look(self) -> None:
        if self._asked_s is not None and self._now_s() - self._asked_s < LOOK_AGAIN_S:
            return
        apis = self._ask()
        if not _same(apis, self._apis):
            # Also what worked may work no more, or in another way.
            self._found.clear()
        self._apis, self._asked_s = apis, self._now_s()

    def _capability(self, kind: GroupKind, *, probe: bool) -> Capability:
        said = told(kind, self._apis)
        if said is not None:
            return said
        at_s, found = self._found.get(kind, (0.0, None))
        if not probe:
            return found or _NOT_TRIED
        if found is None or (found.support is not Support.SUPPORTED and self._now_s() - at_s >= TRY_AGAIN_S):
            found = self._probe(kind)
            self._found[kind] = (self._now_s(), found)
        return found


def _same(these: Collection[BrokerApis], those: Collection[BrokerApis]) -> bool:
    """Whether there is nothing new; how many brokers say it does not matter."""
    return all(any(one == other for other in those) for one in these) and all(
        any(one == other for other in these) for one in those
    )


class KafkaProbe:
    """Tries with a group of its own whether offsets are taken from outside, in a transaction that is aborted.

    What is left is the transactional id, which the brokers forget after a week (``transactional.id.expiration.ms``).
    """

    def __init__(
        self,
        control_topic: str,
        wire: Wire,
        new_wire: Callable[[], Wire],
        new_writer: Callable[[str], OffsetWriter],
        topics: Callable[[], Mapping[str, Topic]],
    ) -> None:
        """``new_writer``: with the transactional id of a group of that name."""
        self._control_topic = control_topic
        self._wire = wire
        self._new_wire = new_wire
        self._new_writer = new_writer
        self._topics = topics

    def of(self, kind: GroupKind) -> Capability:
        """Raises nothing: what keeps it from being found out is ``UNKNOWN``, never a no."""
        try:
            partition = self._partition()
            if partition is None:
                return Capability(Support.UNKNOWN, NO_TOPIC, "there is no topic yet whose offsets could be committed")
            return self._tried(kind, partition)
        except NotAuthorized as failure:
            needs = f"Read on groups and Write on transactional ids that begin with {PREFIX}, and Read on a topic"
            return Capability(Support.UNKNOWN, NOT_AUTHORIZED, f"it takes {needs} to find out: {failure}")
        except KafkaFailure as failure:
            return Capability(Support.UNKNOWN, PROBE_FAILED, f"it could not be found out: {failure}")

    def _partition(self) -> TopicPartition | None:
        """Tidegate has the right to read the control topic wherever it has one."""
        control = self._control_topic
        [topic] = describe_topics(self._wire, [control], what=f"look for topic {control}").topics
        name = control if topic.error_code == NO_ERROR else min(self._topics(), default=None)
        return None if name is None else TopicPartition(name, 0)

    def _tried(self, kind: GroupKind, partition: TopicPartition) -> Capability:
        name = f"{kind.value.lower()}-{secrets.token_hex(4)}"
        group_id = f"{PREFIX}{name}"
        # The transactional id is the writer's group's with "tidegate." before it, so it has the prefix as well.
        writer = self._new_writer(f"{NAME}{name}")
        refused: CommitRefused | None = None
        try:
            # First, as the member that joins then stays but for a few seconds.
            writer.fence()
            with self.member(kind, group_id, partition.topic) as leave:
                refused = _refusal(writer, group_id, partition)
                if not leave():
                    raise Unavailable(f"the coordinator had forgotten the member of group {group_id} meanwhile")
        except _NoSuchGroups:
            return Capability(
                Support.NOT_OFFERED, NO_SUCH_GROUPS, f"the brokers have no groups of kind {kind.value}: switched off"
            )
        finally:
            writer.close()
            # Without the right to, the coordinator does so itself at its next clean-up: there is nothing in it.
            with contextlib.suppress(KafkaFailure):
                delete_group(self._wire, group_id)
        if refused is not None:
            return Capability(Support.UNSUPPORTED, PROBE_REFUSED, f"tried with a group of its own: {refused}")
        return Capability(Support.SUPPORTED, PROBED, "tried with a group of its own, and taken")

    # --- members ------------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def member(self, kind: GroupKind, group_id: str, topic: str) -> Iterator[Leave]:
        """A member in a group of this kind, and how it leaves, which it does at the end if not before.

        Raises ``KafkaFailure``.
        """
        match kind:
            case GroupKind.EMPTY:
                yield lambda: True
                return
            case GroupKind.CLASSIC:
                leave = self._join_classic(group_id)
            case GroupKind.CONSUMER:
                leave = self._join_consumer(group_id, topic)
            case GroupKind.STREAMS:
                leave = self._join_streams(group_id, topic)
        left = False

        def leave_now() -> bool:
            nonlocal left
            left = leave()
            return left

        try:
            yield leave_now
        finally:
            if not left:
                _try(leave)

    def _join_classic(self, group_id: str) -> Leave:
        """A generation of one, which is led to the end: only then is the group stable."""
        member_id = pending_member_id(self._wire, group_id, [_ASSIGNOR], PENDING_SESSION_S)

        def leave() -> bool:
            return bool(leave_members(self._wire, group_id, [(member_id, None)]))

        joiner = self._new_wire()
        with contextlib.ExitStack() as unless_joined, contextlib.closing(joiner):
            unless_joined.callback(_try, leave)
            coordinator, _, _ = joiner.coordinator(group_id)
            session_ms = int(PENDING_SESSION_S * 1000)
            answer = send_join(joiner, coordinator, group_id, member_id, [_ASSIGNOR], session_ms)
            deadline = time.monotonic() + _JOINED_WITHIN_S
            while (joined := answer.get()) is None:
                if time.monotonic() > deadline:
                    raise Unavailable(f"join group {group_id}: not answered within {_JOINED_WITHIN_S:.0f} s")
                time.sleep(_LOOK_EVERY_S)
            check(joined.error_code, f"join group {group_id}")
            share = {member_id: assignment((), 0)}
            check(
                sync_as_leader(self._wire, group_id, joined.generation_id, member_id, share),
                f"assign the partitions of group {group_id}",
            )
            unless_joined.pop_all()
        return leave

    def _join_consumer(self, group_id: str, topic: str) -> Leave:
        member_id = secrets.token_urlsafe(16)

        def joining() -> Any:
            return ConsumerGroupHeartbeatRequest(
                group_id=group_id,
                member_id=member_id,
                member_epoch=JOIN,
                rebalance_timeout_ms=_REBALANCE_MS,
                subscribed_topic_names=[topic],
                topic_partitions=[],
            )

        def leaving() -> Any:
            return ConsumerGroupHeartbeatRequest(group_id=group_id, member_id=member_id, member_epoch=LEAVE)

        return self._by_heartbeats(group_id, joining, leaving)

    def _join_streams(self, group_id: str, topic: str) -> Leave:
        member_id = secrets.token_urlsafe(16)
        topology_class = StreamsGroupHeartbeatRequest.Topology

        def joining() -> Any:
            return StreamsGroupHeartbeatRequest(
                group_id=group_id,
                member_id=member_id,
                member_epoch=JOIN,
                endpoint_information_epoch=0,
                rebalance_timeout_ms=_REBALANCE_MS,
                topology=topology_class(
                    epoch=0,
                    subtopologies=[
                        topology_class.Subtopology(
                            subtopology_id="0",
                            source_topics=[topic],
                            source_topic_regex=[],
                            state_changelog_topics=[],
                            repartition_sink_topics=[],
                            repartition_source_topics=[],
                            copartition_groups=[],
                        )
                    ],
                ),
                active_tasks=[],
                standby_tasks=[],
                warmup_tasks=[],
                process_id=member_id,
                client_tags=[],
            )

        def leaving() -> Any:
            return StreamsGroupHeartbeatRequest(
                group_id=group_id, member_id=member_id, member_epoch=LEAVE, endpoint_information_epoch=0
            )

        return self._by_heartbeats(group_id, joining, leaving)

    def _by_heartbeats(self, group_id: str, joining: Callable[[], Any], leaving: Callable[[], Any]) -> Leave:
        what = f"join group {group_id}"
        [answer] = self._wire.exchange(group_id, joining, what=what)
        if answer.error_code == _UNSUPPORTED_VERSION:
            raise _NoSuchGroups
        check(answer.error_code, what, said=answer.error_message)

        def leave() -> bool:
            [left] = self._wire.exchange(group_id, leaving, what=f"leave group {group_id}")
            return bool(left.error_code == NO_ERROR)

        return leave


def _refusal(writer: OffsetWriter, group_id: str, partition: TopicPartition) -> CommitRefused | None:
    """What the coordinator says against an offset, which is not committed in any case."""
    try:
        with writer.transaction() as transaction:
            transaction.send(group_id, {partition: 0})
    except CommitRefused as refused:
        return refused
    return None


def _try(leave: Leave) -> None:
    """Where it fails, the coordinator forgets the member by itself within seconds."""
    with contextlib.suppress(KafkaFailure):
        leave()
