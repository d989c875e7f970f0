"""The control and ack topics of each connection: made when something first needs them, and checked."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import Final

from tidegate.connection.freezing import begin
from tidegate.connection.live import Live
from tidegate.connection.watched import Snapshot
from tidegate.control.ports import ControlTopics
from tidegate.control.topics import TopicsChecked
from tidegate.kafka.errors import KafkaFailure, NotAuthorized, Refused

USABLE: Final = "Usable"
WRONG_SETTINGS: Final = "WrongSettings"
NOT_AUTHORIZED: Final = "NotAuthorized"
REFUSED: Final = "RefusedByKafka"


@dataclass(slots=True)
class _Known:
    control: ControlTopics
    checked: TopicsChecked | None = None
    at_s: float = 0.0
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class TopicsOfConnections:
    """Whether a connection's topics may be used. ``told`` learns of each answer.

    Belongs to the event loop's thread; Kafka is asked in ``executor``.

    Consumers whose agents were told of topics that are not there can't be known as managed, so whoever tells them wants
    the topics of that connection (namespace and name), and its reconciler sees to it.
    """

    def __init__(
        self,
        executor: Executor,
        again_after_s: float,
        told: Callable[[Live, TopicsChecked], None],
        is_frozen: Callable[[Live], bool],
    ) -> None:
        """``is_frozen``: whether a connection is now, so that no topic is made but for what holds something."""
        self._executor = executor
        self._is_frozen = is_frozen
        self._again_after_s = again_after_s
        self._told = told
        self._known: dict[str, _Known] = {}
        self._wanted: set[tuple[str, str]] = set()

    def want(self, namespace: str, name: str) -> bool:
        """Whether that is new."""
        known = (namespace, name) in self._wanted
        self._wanted.add((namespace, name))
        return not known

    def wanted(self, namespace: str, name: str) -> bool:
        return (namespace, name) in self._wanted

    async def checked(self, live: Live, snapshot: Snapshot, *, has_begun: bool = False) -> TopicsChecked:
        """What was found: now, where they are not known, not there, or were wrong a while ago; else before.

        Makes topics that are missing, so whoever asks has looked whether the connection observes. While it is frozen
        they are made only where ``has_begun``: for what may hold something already. Raises ``KafkaFailure`` where Kafka
        does not answer, ``FrozenMeanwhile`` where they are missing and must not be made.
        """
        known = self._known.get(live.uid)
        if known is None or known.control is not live.finishing.control:
            known = self._known[live.uid] = _Known(live.finishing.control)
        async with known.lock:
            if known.checked is None or self._is_due(known, known.checked, snapshot):
                loop = asyncio.get_running_loop()
                check = functools.partial(_check, live)
                if not has_begun and not snapshot.control_topics_exist:
                    check = functools.partial(begin, self._is_frozen, live, check)
                known.checked = await loop.run_in_executor(self._executor, check)
                known.at_s = loop.time()
                self._told(live, known.checked)
            return known.checked

    def forget(self, connection_uid: str) -> None:
        self._known.pop(connection_uid, None)

    def _is_due(self, known: _Known, checked: TopicsChecked, snapshot: Snapshot) -> bool:
        if not checked.usable:
            return asyncio.get_running_loop().time() - known.at_s >= self._again_after_s
        looked_s = snapshot.gates_began_s if snapshot.has_gates else snapshot.began_s
        return not snapshot.control_topics_exist and looked_s > known.at_s


def trouble_of(live: Live, failure: KafkaFailure) -> TopicsChecked | None:
    """What a failed call on the topics says about them; ``None``: nothing, it may be tried again."""
    control, acks = live.connection.control_topic, live.connection.acks_topic
    match failure:
        case NotAuthorized():
            text = (
                f"{failure}. In all, the principal of KafkaConnection {live.name} needs DescribeConfigs, Read and "
                f"Write on topics {control} and {acks}, Create if they do not exist, and Write on transactional ids "
                "that begin with tidegate-control/"
            )
            return TopicsChecked(False, NOT_AUTHORIZED, text)
        case Refused():
            return TopicsChecked(False, REFUSED, str(failure))
        case _:
            return None


def _check(live: Live) -> TopicsChecked:
    control, acks = live.connection.control_topic, live.connection.acks_topic
    try:
        complaints = live.finishing.control.ensure()
    except (NotAuthorized, Refused) as failure:
        trouble = trouble_of(live, failure)
        if trouble is None:
            raise
        return trouble
    if complaints:
        return TopicsChecked(False, WRONG_SETTINGS, "; ".join(complaints))
    return TopicsChecked(True, USABLE, f"topics {control} and {acks} exist and are set up as required")
