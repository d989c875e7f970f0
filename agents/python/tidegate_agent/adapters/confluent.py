"""``confluent_kafka.Consumer`` that obeys gates: a thread of its own drives the core, and pauses inside librdkafka.

What ``poll`` and ``consume`` return is looked at only while something is closed, or was assigned and its gate has yet
to be read: records may come in the very poll that brings the assignment. What librdkafka does:

* ``pause`` from another thread is safe; it outdates what is queued, also what a ``consume`` has gathered so far.
* ``position`` is unknown (OFFSET_INVALID) from assignment or seek until a record is delivered.
* It commits a stored offset only when that is beyond the newest offset it has committed itself. After the group was
  reset to an earlier offset, it would commit nothing until it has come by: so that offset is committed by it once.
* It may drop a ``pause`` or a ``resume`` that crosses its own start of fetching, without a word (librdkafka issue
  5591): then the partition flows although its gate is closed, or stands still for ever. The call waits until it was
  carried out or dropped, and by then that start is over: so it is told twice at once. Where the partition is as it
  should be, that does nothing at all. It is told once more a second later, and what it returns meanwhile is withheld.
* With ``enable.auto.offset.store`` it stores a record's offset as it takes the record off its queue, and what is stored
  cannot be dropped, not even by a seek. So a record that a poll had taken when its partition was paused is part of what
  is drained and committed, and has to reach the application, however late its thread comes back with it.
* confluent-kafka lets one thread at a time into a consumer (2.16, "reentrancy gate"), and a poll may last for ever. The
  agent's calls go in as the polling thread's own, as a callback's calls do.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import weakref
from collections.abc import Callable
from typing import Any, Final

from tidegate_agent import process
from tidegate_agent.adapters import confluent_client as client
from tidegate_agent.adapters.confluent_client import TopicPartition, identity, key
from tidegate_agent.adapters.confluent_driver import Driver
from tidegate_agent.adapters.confluent_options import driver_of, own_options

log = logging.getLogger("tidegate_agent")

_poll: Final[Any] = client.Consumer.poll
_consume: Final[Any] = client.Consumer.consume

_with_metadata: weakref.WeakSet[Driver] = weakref.WeakSet()
"""Those of consumers that have given their group metadata."""
_metadata_lock = threading.Lock()


def _forked() -> None:
    global _metadata_lock  # noqa: PLW0603 -- a thread of the parent's may have had it
    _metadata_lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


class ManagedConsumer(client.Consumer):  # type: ignore[misc]
    """The library's consumer; its partitions obey the gates of its group."""

    tidegate_plain = client.Consumer

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._tidegate: Driver | None = None
        args, kwargs, own = own_options(args, kwargs)
        super().__init__(*args, **kwargs)
        self._tidegate = driver_of(self, own)

    @property
    def _driven(self) -> Driver | None:
        driver = self._tidegate
        return driver if driver is not None and process.is_of_this_process(driver.pid) else None

    # The arguments by name: passing on ``*args, **kwargs`` takes as long again.

    def poll(self, timeout: Any = -1) -> Any:
        message = _poll(self, timeout)
        driver = self._tidegate
        if message is None or driver is None or not driver.may_leak:
            return message
        while message is not None and self._driven is not None and not driver.let_out(self, [message]):
            message = _poll(self, timeout)
        return message

    def consume(self, num_messages: Any = 1, timeout: Any = -1) -> Any:
        messages = _consume(self, num_messages, timeout)
        driver = self._tidegate
        if not messages or driver is None or not driver.may_leak:
            return messages
        while messages and self._driven is not None:
            if rest := driver.let_out(self, messages):
                return rest
            messages = _consume(self, num_messages, timeout)
        return messages

    def subscribe(self, topics: Any, *args: Any, **kwargs: Any) -> None:
        driver = self._driven
        if driver is None:
            super().subscribe(topics, *args, **kwargs)
            return
        given = {**dict(zip(("on_assign", "on_revoke", "on_lost"), args, strict=False)), **kwargs}
        if set(given) - {"on_assign", "on_revoke", "on_lost"} or len(args) > 3:
            super().subscribe(topics, *args, **kwargs)  # it says what is wrong
            return
        for callback in given.values():
            if not callable(callback):
                super().subscribe(topics, **given)
                return
        super().subscribe(
            topics,
            on_assign=_on_assign(driver, given.get("on_assign")),
            on_revoke=_on_revoke(driver, given.get("on_revoke")),
            on_lost=_on_lost(driver, given.get("on_lost") or given.get("on_revoke")),
        )
        driver.is_subscribed = True

    def unsubscribe(self) -> None:
        super().unsubscribe()
        driver = self._driven
        if driver is not None:
            driver.is_subscribed = False

    def assign(self, partitions: Any, *args: Any, **kwargs: Any) -> None:
        driver = self._driven
        if driver is None:
            super().assign(partitions, *args, **kwargs)
            return
        with driver.calls():
            lost, known = driver.delivered(self), driver.read_to()
            with driver.taking(self, lost, lost):
                super().assign(partitions, *args, **kwargs)
            driver.assigned_in_callback = True
            driver.assigned(self, partitions, known, lost)

    def incremental_assign(self, partitions: Any, *args: Any, **kwargs: Any) -> None:
        driver = self._driven
        if driver is None:
            super().incremental_assign(partitions, *args, **kwargs)
            return
        with driver.calls():
            known = driver.read_to()
            super().incremental_assign(partitions, *args, **kwargs)
            driver.assigned_in_callback = True
            driver.assigned(self, partitions, known)

    def unassign(self) -> None:
        driver = self._driven
        if driver is None:
            super().unassign()
            return
        with driver.calls():
            driver.settle_now(self)
            delivered = driver.delivered(self)
            with driver.taking(self, delivered, delivered):
                super().unassign()
            driver.taken_in_callback = True
            driver.revoked(delivered)

    def incremental_unassign(self, partitions: Any, *args: Any, **kwargs: Any) -> None:
        driver = self._driven
        if driver is None:
            super().incremental_unassign(partitions, *args, **kwargs)
            return
        with driver.calls():
            driver.settle_now(self)
            delivered = driver.delivered(self)
            with driver.taking(self, [key(partition) for partition in partitions], delivered):
                super().incremental_unassign(partitions, *args, **kwargs)
            driver.taken_in_callback = True
            driver.revoked(delivered, [key(partition) for partition in partitions])

    def position(self, partitions: Any, *args: Any, **kwargs: Any) -> Any:
        found = super().position(partitions, *args, **kwargs)
        driver = self._driven
        if driver is not None and driver.last_positions:
            for partition in found:
                if partition.offset < 0:
                    partition.offset = driver.last_positions.get(key(partition), partition.offset)
        return found

    def pause(self, partitions: Any, *args: Any, **kwargs: Any) -> None:
        driver = self._driven
        if driver is None:
            super().pause(partitions, *args, **kwargs)
            return
        with driver.calls():
            super().pause(partitions, *args, **kwargs)
            with driver._state:
                driver.core.app_paused([key(partition) for partition in partitions])

    def resume(self, partitions: Any, *args: Any, **kwargs: Any) -> None:
        driver = self._driven
        if driver is None:
            super().resume(partitions, *args, **kwargs)
            return
        with driver.calls():
            with driver._state:
                free = set(driver.core.app_resumed([key(partition) for partition in partitions]))
            allowed = [partition for partition in partitions if key(partition) in free]
            if allowed or not partitions:
                super().resume(allowed, *args, **kwargs)

    def seek(self, partition: Any, *args: Any, **kwargs: Any) -> None:
        driver = self._driven
        if driver is None:
            super().seek(partition, *args, **kwargs)
            return
        with driver.calls():
            super().seek(partition, *args, **kwargs)
            driver.sought(key(partition))

    def commit(self, *args: Any, **kwargs: Any) -> Any:
        driver = self._driven
        given = {**dict(zip(("message", "offsets", "asynchronous"), args, strict=False)), **kwargs}
        message, offsets = given.pop("message", None), given.pop("offsets", None)
        asynchronous = given.pop("asynchronous", True)
        if driver is None or given or len(args) > 3 or (message is not None and offsets is not None):
            return super().commit(*args, **kwargs)
        if message is None and offsets is None:
            return driver.commit_all(self, asynchronous)
        if message is not None:
            if message.error() is not None:
                return super().commit(*args, **kwargs)
            offsets = [TopicPartition(message.topic(), message.partition(), message.offset() + 1)]

        def send(rest: list[Any] | None) -> Any:
            if rest is None:
                return client.Consumer.commit(self, *args, **kwargs)
            return client.Consumer.commit(self, offsets=rest, asynchronous=asynchronous) if rest else None

        outcome, dropped = driver.pass_commit(self, offsets, send)
        # Whoever waits is told that all is well: from a paused partition nothing has to be committed again.
        return outcome if asynchronous or not dropped else [*(outcome or []), *dropped]

    def store_offsets(self, *args: Any, **kwargs: Any) -> None:
        driver = self._driven
        given = {**dict(zip(("message", "offsets"), args, strict=False)), **kwargs}
        message, offsets = given.pop("message", None), given.pop("offsets", None)
        if driver is None or given or (message is None) == (offsets is None):
            super().store_offsets(*args, **kwargs)
            return
        if message is not None:
            offsets = [TopicPartition(message.topic(), message.partition(), message.offset() + 1)]
        wanted = {key(p): p.offset for p in offsets}
        with driver._state:
            late = driver.core.has_late()
        positions = driver.positions(self, tuple(wanted)) if late else {}
        # Stored under the lock, or the driver could drop what is stored just before.
        with driver.calls():
            with driver._state:
                dropped = driver.core.dropped(wanted, lambda _: positions)
            if not dropped:
                super().store_offsets(*args, **kwargs)
            else:
                rest = [p for p in offsets if key(p) not in dropped]
                if rest:
                    super().store_offsets(offsets=rest)

    def consumer_group_metadata(self) -> Any:
        metadata = super().consumer_group_metadata()
        driver = self._driven
        if driver is not None and metadata is not None:
            with _metadata_lock:
                driver.metadata.append(metadata)
                _with_metadata.add(driver)
        return metadata

    def set_sasl_credentials(self, username: str, password: str) -> None:
        super().set_sasl_credentials(username, password)
        driver = self._driven
        if driver is not None:
            driver.link.set_credentials(username, password)

    def close(self) -> Any:
        driver = self._driven
        if driver is not None:
            driver.end(self)
        return super().close()

    if hasattr(client.Consumer, "__exit__"):

        def __exit__(self, *args: Any) -> Any:
            driver = self._driven
            if driver is not None:
                driver.end(self)
            return super().__exit__(*args)


class ManagedProducer(client.Producer):  # type: ignore[misc]
    """The library's producer; its transactions carry no offsets of closed partitions."""

    tidegate_plain = client.Producer

    def send_offsets_to_transaction(self, positions: Any, group_metadata: Any, *args: Any, **kwargs: Any) -> Any:
        with _metadata_lock:
            given = (each for each in _with_metadata if any(kept is group_metadata for kept in each.metadata))
            consumer = next((each._consumer() for each in given), None)
        driver = consumer._driven if consumer is not None else None
        send = super().send_offsets_to_transaction
        if driver is None:
            return send(positions, group_metadata, *args, **kwargs)
        outcome, _dropped = driver.pass_commit(
            consumer,
            positions,
            lambda rest: send(positions if rest is None else rest, group_metadata, *args, **kwargs),
        )
        return outcome


def _on_assign(driver: Driver, own: Callable[..., Any] | None) -> Callable[[Any, Any], None]:
    """What the library calls with new partitions. It assigns itself afterwards where nobody has: here, as it would."""

    def on_assign(consumer: Any, partitions: Any) -> None:
        driver._identity = identity()
        driver.assigned_in_callback = False
        given = [TopicPartition(p.topic, p.partition, p.offset) for p in partitions]
        try:
            if own is not None:
                own(consumer, partitions)
        finally:
            if not driver.assigned_in_callback:
                if driver.incremental:
                    ManagedConsumer.incremental_assign(consumer, given)
                else:
                    ManagedConsumer.assign(consumer, given)

    return on_assign


def _on_revoke(driver: Driver, own: Callable[..., Any] | None) -> Callable[[Any, Any], None]:
    """What the library calls as partitions are taken away. It unassigns itself afterwards where nobody has: here, as it
    would."""

    def on_revoke(consumer: Any, partitions: Any) -> None:
        driver._identity = identity()
        driver.taken_in_callback = False
        taken = [TopicPartition(p.topic, p.partition) for p in partitions]
        try:
            if own is not None:
                driver.settle_now(consumer)
                own(consumer, partitions)
        finally:
            if not driver.taken_in_callback:
                if driver.incremental:
                    ManagedConsumer.incremental_unassign(consumer, taken)
                else:
                    ManagedConsumer.unassign(consumer)

    return on_revoke


def _on_lost(driver: Driver, own: Callable[..., Any] | None) -> Callable[[Any, Any], None]:
    """The same of partitions that others may have already: nothing is committed of them any more."""

    def on_lost(consumer: Any, partitions: Any) -> None:
        driver._identity = identity()
        driver.settle_now(consumer)
        delivered = driver.delivered(consumer)
        try:
            if own is not None:
                own(consumer, partitions)
        finally:
            driver.revoked(delivered, [key(partition) for partition in partitions])

    return on_lost


def install(module: Any) -> None:
    """Put the managed classes in the place of the library's in ``confluent_kafka.cimpl``, just imported or before."""
    for plain_class, managed in ((client.Consumer, ManagedConsumer), (client.Producer, ManagedProducer)):
        managed.__name__ = managed.__qualname__ = plain_class.__name__
        managed.__module__, managed.__doc__ = plain_class.__module__, plain_class.__doc__
        _replace(module, plain_class, managed)
        for other in [m for name, m in sys.modules.items() if name.split(".")[0] == "confluent_kafka"]:
            _replace(other, plain_class, managed)
        for subclass in plain_class.__subclasses__():
            if subclass is not managed:
                name = f"{subclass.__module__}.{subclass.__qualname__}"
                log.warning("the agent came after %s was defined: its partitions are not managed", name)


def _replace(module: Any, plain_class: Any, managed: Any) -> None:
    for name, value in list(vars(module).items()):
        if value is plain_class:
            setattr(module, name, managed)
