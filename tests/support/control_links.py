"""Links to the control topic, of either agent: the Python agent's in this process, the Java agent's in JVMs."""

from __future__ import annotations

import itertools
import json
import subprocess
import threading
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, Self

import pytest

from devstack.java_agent import java_agent
from devstack.java_clients import java_program, kafka_client
from devstack.processes import eventually
from tidegate_agent import control_reading
from tidegate_agent.ages import Clock, Discovered
from tidegate_agent.control import ControlLink
from tidegate_agent.gates import Gate, Known, Partition

_END_S: Final = 60.0


class Link(Protocol):
    """What tests do with a link."""

    @property
    def known(self) -> Known: ...

    @property
    def has_found_it_lost(self) -> bool:
        """Whether it has noticed that the control topic was lost."""

    @property
    def acked(self) -> Mapping[str, bool]:
        """Of acks that were sent, by their tags: whether the broker has them, or need not."""

    def ask(self, topics: Collection[str] = ()) -> int: ...

    def send_ack(
        self, group: str, partition: Partition, epoch: int, offset: int, generation: int, tag: str
    ) -> None: ...

    def let_rebuilding_end(self) -> None:
        """See `Links.shorten`."""

    def close(self) -> None: ...


class Links(Protocol):
    """Opens links of one agent."""

    def open(self, settings: Mapping[str, str], topic: str) -> Link: ...

    def shorten(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """What was lost is waited for until `Link.let_rebuilding_end`, or for a second."""


class _PythonLink(ControlLink):
    def __init__(self, settings: Mapping[str, str], control_topic: str, acks_topic: str) -> None:
        super().__init__(settings, control_topic, acks_topic)
        self.acked: dict[str, bool] = {}

    def send_ack(self, group: str, partition: Partition, epoch: int, offset: int, generation: int, tag: str) -> None:
        def done(is_written: bool) -> None:
            assert tag not in self.acked, "told twice"
            self.acked[tag] = is_written

        self.send_acks(group, "m-1", {partition: (epoch, offset)}, generation, done)

    @property
    def has_found_it_lost(self) -> bool:
        return self._lost_at is not None

    def let_rebuilding_end(self) -> None: ...


class PythonLinks:
    def open(self, settings: Mapping[str, str], topic: str) -> Link:
        return _PythonLink(settings, topic, f"{topic}_acks")

    def shorten(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(control_reading, "REBUILT_S", 1.0)


@dataclass
class JavaLink:
    """One of a `JavaLinks`. ``settings``: the application's, as ``kafka-clients`` has them."""

    name: str
    tell: Callable[..., None]
    known: Known = field(default_factory=Known)
    log: list[tuple[str, str]] = field(default_factory=list)
    """Level and message of the agent's log lines."""
    acked: dict[str, bool] = field(default_factory=dict)
    """By its tag, whether the broker has an ack."""
    tickets: list[int] = field(default_factory=list)
    threads_left: int | None = None
    """Once it is closed: how many of its threads have not ended."""

    @property
    def has_found_it_lost(self) -> bool:
        return any("is gone" in message for _, message in self.log)

    @property
    def warnings(self) -> list[str]:
        return [message for level, message in self.log if level in ("WARNING", "ERROR")]

    def ask(self, topics: Collection[str] = ()) -> int:
        before = len(self.tickets)
        self.tell("ask", **{f"topic {number}": topic for number, topic in enumerate(topics)})
        self._wait(lambda: len(self.tickets) > before, "it has a ticket")
        return self.tickets[before]

    def send_ack(self, group: str, partition: Partition, epoch: int, offset: int, generation: int, tag: str) -> None:
        acked = {"topic": partition.topic, "partition": str(partition.partition), "group": group, "member": "m-1"}
        self.tell("ack", **acked, epoch=str(epoch), offset=str(offset), generation=str(generation), tag=tag)

    def let_rebuilding_end(self) -> None:
        self.tell("advance", seconds="11")

    def close(self) -> None:
        if self.threads_left is None:
            self.tell("close")
            self._wait(lambda: self.threads_left is not None, "it is closed")

    def _wait(self, reached: Callable[[], bool], what: str) -> None:
        assert eventually(reached, _END_S), f"not within {_END_S} s: {what}\n{self.log}"

    def hear(self, event: str, said: Mapping[str, Any]) -> None:
        """What the JVM tells of it."""
        match event:
            case "known":
                self.known = _known(said)
            case "log":
                self.log.append((said["level"], said["message"]))
            case "acked":
                assert said["tag"] not in self.acked, "told twice"
                self.acked[said["tag"]] = said["done"]
            case "asked":
                self.tickets.append(said["ticket"])
            case "closed":
                self.threads_left = said["threads"]
            case _:
                raise ValueError(event)


class JavaLinks:
    """Those of one JVM, with a release of kafka-clients; a context manager that ends it."""

    def __init__(self, client: str) -> None:
        classes = f"{java_agent().folder()}/*:{kafka_client(client).folder()}/*"
        options = ["-Xmx128m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
        logging = ["-Dorg.slf4j.simpleLogger.defaultLogLevel=off"]
        command = [java_program(17), *options, *logging, "-cp", classes, "io.tidegate.agent.runtime.LinkProgram"]
        self._links: dict[str, JavaLink] = {}
        self._names = map(str, itertools.count())
        self._jvm = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
        self._hearing = threading.Thread(target=self._hear, daemon=True)
        self._hearing.start()

    def open(self, settings: Mapping[str, str], topic: str) -> JavaLink:
        name = next(self._names)

        def tell(command: str, **members: str) -> None:
            assert self._jvm.stdin is not None
            self._jvm.stdin.write(json.dumps({"do": command, "link": name, **members}) + "\n")
            self._jvm.stdin.flush()

        link = self._links[name] = JavaLink(name, tell)
        tell("open", **{**settings, "control topic": topic, "ack topic": f"{topic}_acks"})
        return link

    def shorten(self, monkeypatch: pytest.MonkeyPatch) -> None: ...

    def _hear(self) -> None:
        assert self._jvm.stdout is not None
        for line in self._jvm.stdout:
            said = json.loads(line)
            self._links[said["link"]].hear(said["event"], said)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._jvm.stdin is not None
        with suppress(BrokenPipeError):
            self._jvm.stdin.close()
        try:
            self._jvm.wait(_END_S)
        finally:
            self._jvm.kill()
            self._jvm.wait()
        self._hearing.join(_END_S)


def _known(said: Mapping[str, Any]) -> Known:
    clock = said.get("clock")
    return Known(
        gates={
            (gate["group"], Partition(gate["topic"], gate["partition"])): Gate(
                gate["epoch"], gate["drain_timeout_ms"] / 1000, tuple(filter(None, [gate["reason"]]))
            )
            for gate in said["gates"]
        },
        taken=said["taken"],
        answered=said["answered"],
        generation=said["generation"],
        topic_ids=said["topic_ids"],
        discovered={
            topic: tuple(Discovered(each["topic_id"], each["newest"], each["seen_ms"]) for each in topics)
            for topic, topics in said["discovered"].items()
            if topics
        },
        clock=None if clock is None else Clock(clock["broker_ms"], 0.0, clock["is_live"]),
    )
