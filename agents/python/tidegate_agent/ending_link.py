"""A link that ends with the last consumer that listens to it.

Most consumers share a link that lasts as long as the process. One whose settings hold a function, such as ``oauth_cb``,
shares it only with consumers that have the same function: an application that makes another one for each consumer would
gather threads and connections.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping
from typing import Final

from tidegate_agent.control import ControlLink
from tidegate_agent.gates import Known, Partition

_ANSWERED_S: Final = 15.0
"""Acks that are on their way are given up by then: see ``ack_writer``."""


class EndingLink:
    """``open_link`` makes what this stands for. ``ended`` is called once the last listener has left, from its thread:
    from then on this is for nobody who has not had it before."""

    def __init__(self, open_link: Callable[[], ControlLink], ended: Callable[[EndingLink], None]) -> None:
        self._open_link = open_link
        self._ended = ended
        self._lock = threading.Lock()
        self._listening = 0
        self._link: ControlLink | None = None
        self._known = Known()
        """What was known last, while there is no link: a consumer that is closed commits once more by it."""

    @property
    def known(self) -> Known:
        link = self._link  # without the lock, which a fork may have left closed
        return self._known if link is None else link.known

    def ask(self, topics: Collection[str] = ()) -> int:
        return self._opened().ask(topics)

    def listen(self, changed: Callable[[], None]) -> None:
        with self._lock:
            self._listening += 1
        self._opened().listen(changed)

    def unlisten(self, changed: Callable[[], None]) -> None:
        with self._lock:
            link, self._listening = self._link, self._listening - 1
            if link is not None:
                link.unlisten(changed)
                self._known = link.known
            if self._listening:
                return
            self._link = None
        self._ended(self)
        if link is not None:
            # Its threads end when they have done what they are at, for which a consumer that is closed does not wait.
            threading.Thread(target=_end, args=(link,), name="tidegate-agent-end", daemon=True).start()

    def send_acks(
        self,
        group: str,
        member: str,
        acks: Mapping[Partition, tuple[int, int]],
        generation: int,
        done: Callable[[bool], None],
    ) -> None:
        with self._lock:
            link = self._link
        if link is None:
            done(False)
        else:
            link.send_acks(group, member, acks, generation, done)

    def set_credentials(self, username: str, password: str) -> None:
        with self._lock:
            link = self._link
        if link is not None:
            link.set_credentials(username, password)

    def settle(self, until: float) -> None:
        with self._lock:
            link = self._link
        if link is not None:
            link.settle(until)

    def close(self) -> None:
        """End the threads, as ``ControlLink.close`` does."""
        with self._lock:
            link = self._link
        if link is not None:
            link.close()

    def _opened(self) -> ControlLink:
        with self._lock:
            if self._link is None:
                self._link = self._open_link()
            return self._link


def _end(link: ControlLink) -> None:
    link.settle(time.monotonic() + _ANSWERED_S)
    link.close()
