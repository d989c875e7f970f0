"""Writing to the ack topic of one cluster."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from typing import Any, Final

from confluent_kafka.cimpl import KafkaError, KafkaException, Producer

from tidegate_agent.gates import Partition
from tidegate_agent.own_clients import client_log, plain
from tidegate_agent.records import Ack, AckKey, encode_key, encode_value
from tidegate_agent.troubles import Troubles

log = logging.getLogger("tidegate_agent")

_ACK_MS: Final = 10_000


class AckWriter:
    """Its producer is made with the first ack. ``changed``: the lock that ``outstanding`` is looked at with."""

    def __init__(
        self, settings: Mapping[str, Any], topic: str, changed: threading.Condition, troubles: Troubles
    ) -> None:
        """``settings``: librdkafka's, as they are when the producer is made."""
        self._settings = settings
        self._topic = topic
        self._changed = changed
        self._troubles = troubles
        self._producer: Producer | None = None
        self.outstanding = 0
        """Acks that the broker has not answered yet: for that, ``poll`` has to be called."""

    def send(
        self, group: str, member: str, acks: Mapping[Partition, tuple[int, int]], done: Callable[[bool], None]
    ) -> bool:
        """Send acks; ``done`` is called once, maybe from another thread, with whether the broker has them all.

        Whether they are on their way.
        """
        errors: list[KafkaError] = []
        left = [len(acks)]

        def delivered(error: KafkaError | None, _message: object) -> None:
            with self._changed:
                self.outstanding -= 1
                self._changed.notify_all()
            left[0] -= 1
            if error is not None:
                errors.append(error)
                self._troubles.say("acks", f"cannot write acks to topic {self._topic}: {error.str()}")
            if left[0] == 0:
                if not errors:
                    self._troubles.over("acks", f"acks are written to topic {self._topic} again")
                done(not errors)

        try:
            producer = self._writer()
            for partition, (epoch, offset) in acks.items():
                key, value = AckKey(group, *partition), Ack(epoch, offset, member)
                producer.produce(self._topic, encode_value(value), encode_key(key), on_delivery=delivered)
                with self._changed:
                    self.outstanding += 1
        except (KafkaException, BufferError) as error:
            # Those that were produced already come back to ``delivered``, which never sees the last one.
            self._troubles.say("acks", f"cannot write acks to topic {self._topic}: {error}")
            done(False)
            return False
        return True

    def poll(self, seconds: float) -> None:
        """Have the broker's answers delivered."""
        if self._producer is not None:
            self._producer.poll(seconds)

    def set_credentials(self, username: str, password: str) -> None:
        producer = self._producer
        if producer is not None:
            producer.set_sasl_credentials(username, password)

    def _writer(self) -> Producer:
        with self._changed:
            if self._producer is None:
                self._producer = plain(Producer)(
                    {
                        **self._settings,
                        "linger.ms": 2,
                        "message.timeout.ms": _ACK_MS,
                        # The order of a partition's acks is what they mean; with one request at a time it is kept
                        # without the rights that idempotence may need.
                        "acks": "all",
                        "max.in.flight.requests.per.connection": 1,
                        "allow.auto.create.topics": False,
                    },
                    logger=client_log(),
                )
            return self._producer
