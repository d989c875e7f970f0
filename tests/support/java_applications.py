"""Java's consumers as `gated_applications.Application`: of one release of kafka-clients each, in JVMs of their own.

A JVM runs ``tests/agent/java/applications/driven``, where commands and what is told are described; several applications
may share it. The agent comes in by the environment alone, as a user lets it in.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, NamedTuple, Self, assert_never

from devstack.java_agent import agent_jar
from devstack.java_clients import java_program, kafka_client, smallrye_messaging
from support.gated_applications import PATIENCE_S, Application, Given, Job
from support.java_builds import DRIVEN_MAIN, driven_classes, packaged, quarkus_application, smallrye_classes

PACKAGED_CLIENT: Final = "3.9.2"
"""Of jars that have their client inside."""
SMALLRYE_CLIENT: Final = "4.1.2"
"""Of the Quarkus release that is tested, and of its SmallRye."""
_END_S: Final = 60.0


class Packaging(StrEnum):
    """How an application and its client come to the JVM."""

    PLAIN = "plain"
    """Jars on the class path."""
    RELOCATED = "relocated"
    """One jar, in which the client's packages have other names."""
    BOOT = "boot"
    """An executable jar of Spring Boot, which has class loaders of its own."""
    STREAMS = "streams"
    """One jar with Kafka Streams inside, too."""
    SMALLRYE = "smallrye"
    """Jars on the class path, with SmallRye Reactive Messaging, as Quarkus runs it."""
    QUARKUS = "quarkus"
    """As Quarkus packages an application, which has class loaders of its own."""

    @property
    def client(self) -> str | None:
        """The client that it has inside; ``None``: any."""
        match self:
            case Packaging.PLAIN:
                return None
            case Packaging.SMALLRYE | Packaging.QUARKUS:
                return SMALLRYE_CLIENT
            case _:
                return PACKAGED_CLIENT


@dataclass(frozen=True, slots=True)
class Java:
    """What an application runs on. ``protocol``: ``classic`` or ``consumer``. Raises ``ValueError`` for what there is
    not."""

    client: str = "4.3.1"
    protocol: str = "classic"
    packaging: Packaging = Packaging.PLAIN
    jdk: int = 17

    def __post_init__(self) -> None:
        if self.packaging.client not in (None, self.client):
            raise ValueError(f"{self.packaging} has kafka-clients {self.packaging.client} inside")
        if self.packaging in (Packaging.BOOT, Packaging.QUARKUS) and self.jdk < 17:
            raise ValueError("Spring Boot 3 and Quarkus 3 need Java 17")
        if self.protocol == "consumer" and self.version < (3, 7):
            raise ValueError(f"kafka-clients {self.client} has the classic protocol only")

    @property
    def version(self) -> tuple[int, ...]:
        """The client's, to be compared."""
        return tuple(map(int, self.client.split(".")))

    def __str__(self) -> str:
        return f"{self.client}-{self.protocol}-{self.packaging}-jdk{self.jdk}"

    def class_name(self, kafkas: str) -> str:
        """What a class of the client is called there."""
        return f"shop.inside.{kafkas}" if self.packaging is Packaging.RELOCATED else kafkas

    def command(self) -> list[str]:
        """The command line of the process; the agent is let in by its environment."""
        options = ["-Xmx192m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
        logging = ["-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-Dorg.slf4j.simpleLogger.showDateTime=true"]
        match self.packaging:
            case Packaging.PLAIN:
                classes = ["-cp", f"{driven_classes()}:{kafka_client(self.client).folder()}/*", DRIVEN_MAIN]
            case Packaging.RELOCATED:
                classes = ["-cp", str(packaged() / "relocated.jar"), DRIVEN_MAIN]
            case Packaging.STREAMS:
                classes = ["-cp", str(packaged() / "streams.jar"), "streams.StreamsApplication"]
            case Packaging.SMALLRYE:
                path = f"{smallrye_classes()}:{driven_classes()}:{smallrye_messaging().folder()}/*"
                classes = ["-cp", path, "smallrye.SmallRyeApplication"]
            case Packaging.BOOT:
                classes = ["-jar", str(packaged() / "boot.jar")]
            case Packaging.QUARKUS:
                classes = ["-jar", str(quarkus_application() / "quarkus-run.jar")]
            case _:
                assert_never(self.packaging)
        return [java_program(self.jdk), *options, *logging, *classes]


def agent_environment(control_topic: str) -> dict[str, str]:
    """What lets the agent into a JVM."""
    return {
        "JAVA_TOOL_OPTIONS": f"-javaagent:{agent_jar()}",
        "TIDEGATE_AGENT": "1",
        "TIDEGATE_CONTROL_TOPIC": control_topic,
        "TIDEGATE_LOG": "INFO",
    }


class Partition(NamedTuple):
    """As the Python clients' partitions are."""

    topic: str
    partition: int


class JavaError(AssertionError):
    """What a consumer threw when it was asked to do something, or its process died."""


class JavaProcess:
    """A JVM, while the ``with`` block lasts. ``environment``: the agent's, and what else it is to have."""

    def __init__(self, java: Java, environment: Mapping[str, str]) -> None:
        self.java = java
        self._environment = environment
        self._folder = tempfile.TemporaryDirectory(prefix="tidegate-java-")
        self._errors = Path(self._folder.name) / "errors"
        self._last_words: str | None = None
        self._ids = itertools.count(1)
        self._lock = threading.Lock()
        self._waiting: dict[int, Future[Any]] = {}
        self._applications: dict[str, JavaApplication] = {}

    def __enter__(self) -> Self:
        inherited = {
            name: value for name, value in os.environ.items() if not name.startswith(("TIDEGATE_", "JAVA_TOOL"))
        }
        with self._errors.open("wb") as errors:
            self._popen = subprocess.Popen(
                self.java.command(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env={**inherited, **self._environment},
                start_new_session=True,
            )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.end()
        self._last_words = self.log
        for application in self._applications.values():
            application.gone()
        self._folder.cleanup()

    def end(self) -> None:
        """As it ends whose standard input does: consumers are closed."""
        assert self._popen.stdin is not None
        try:
            self._popen.stdin.close()
            self._popen.wait(_END_S)
        except BrokenPipeError:
            self._popen.wait(_END_S)
        finally:
            self._popen.kill()
            self._popen.wait()
            self._reader.join()

    def kill(self) -> None:
        """SIGKILL."""
        self._popen.kill()
        self._popen.wait()
        self._reader.join()

    @property
    def pid(self) -> int:
        return self._popen.pid

    @property
    def log(self) -> str:
        """What it has written to standard error."""
        return self._errors.read_text(errors="replace") if self._last_words is None else self._last_words

    def application(self, job: Job) -> Application:
        """For `Scene.application`: a consumer in this JVM."""
        return JavaApplication(self, job, f"c{next(self._ids)}")

    def call(self, member: str, what: str, **arguments: Any) -> Any:
        """The answer to a command. Raises `JavaError`."""
        number = next(self._ids)
        future: Future[Any] = Future()
        line = json.dumps({"id": number, "do": what, "member": member, **arguments}).encode() + b"\n"
        with self._lock:
            self._waiting[number] = future
            assert self._popen.stdin is not None
            try:
                self._popen.stdin.write(line)
                self._popen.stdin.flush()
            except (BrokenPipeError, ValueError) as gone:
                raise JavaError(f"the JVM has ended\n{self.log}") from gone
        return future.result(PATIENCE_S)

    def open(self, application: JavaApplication, **job: Any) -> None:
        with self._lock:
            self._applications[application.name] = application
        self.call(application.name, "open", **job)

    def _read(self) -> None:
        assert self._popen.stdout is not None
        with self._popen.stdout as lines:
            for line in lines:
                if line.endswith(b"\n"):  # a killed process may leave half a line
                    self._collect(json.loads(line))
        with self._lock:
            waiting = [future for future in self._waiting.values() if not future.done()]
        for future in waiting:
            future.set_exception(JavaError("the JVM has ended"))

    def _collect(self, told: Mapping[str, Any]) -> None:
        if "id" in told:
            with self._lock:
                future = self._waiting.pop(told["id"])
            if "error" in told:
                future.set_exception(JavaError(told["error"]))
            else:
                future.set_result(told["answer"])
            return
        if told["e"] != "ready":
            self._applications[told["m"]].hear(told)


class JavaApplication(Application):
    """One consumer in a JVM.

    Styles: ``batch`` (``poll(Duration)``), ``number`` (``poll(long)``); under Spring Boot also ``record-listener`` and
    ``batch-listener``, with Kafka Streams ``streams-listener`` and
    ``streams-counting-listener``, with SmallRye ``smallrye-listener``. How it commits:
    ``Committing.java``, ``ListenerContainer.java``, ``SmallRyeApplication.java``. ``config`` has the client's own
    settings, and takes precedence.
    """

    def __init__(self, process: JavaProcess, job: Job, name: str) -> None:
        super().__init__(job)
        self.process, self.name = process, name
        self.woken = 0
        """How many of its polls ended by ``wakeup``."""
        self.commits_told = 0
        """How many commits its client has answered."""
        self.commit_errors: list[str] = []
        self._is_open = False

    def start(self) -> None:
        job = self.job
        self.process.open(
            self,
            config={name: str(value) for name, value in self._config().items()},
            topics=list(job.topics),
            partitions=[list(partition) for partition in job.assigned_by_hand],
            commit=job.commit,
            work_ms=round(job.work_s * 1000),
            kind=job.style if job.style.endswith("-listener") else "consumer",
            polls_by_number=job.style == "number",
            poll_ms=job.poll_ms,
        )
        self._is_open = True

    def stop(self) -> None:
        if self._is_open:
            self._is_open = False
            self.process.call(self.name, "stop")

    @property
    def log(self) -> str:
        return self.process.log

    def gone(self) -> None:
        """Its process was killed: there is nothing to stop."""
        self._is_open = False

    def ask(self, question: Callable[[Any], Any]) -> Any:
        return question(Consumer(self))

    def call(self, what: str, **arguments: Any) -> Any:
        """A command of ``DrivenConsumer.java``."""
        return self.process.call(self.name, what, **arguments)

    def commit(self, how: str, offsets: Mapping[Partition, int]) -> None:
        """Once, besides what it does by itself; ``position`` and ``position-async`` take no offsets."""
        self.call("commit", how=how, offsets=[[*partition, offset] for partition, offset in offsets.items()])

    def hear(self, told: Mapping[str, Any]) -> None:
        """What the JVM tells of it: ``Out.java``."""
        match told["e"]:
            case "records":
                self.given.extend(Given(told["t"], *row) for row in told["r"])
            case "committed":
                self.commits_told += 1
                if told["error"] is not None:
                    self.commit_errors.append(told["error"])
            case "woken":
                self.woken += 1
            case "died":
                self.errors.append(JavaError(f"{told['text']}\n{self.log}"))

    def _config(self) -> dict[str, Any]:
        classic = {"heartbeat.interval.ms": 200, "session.timeout.ms": 10_000}
        return {
            "bootstrap.servers": self.job.bootstrap,
            "group.id": self.job.group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": str(self.job.commit == "auto").lower(),
            "auto.commit.interval.ms": 500,
            "fetch.max.wait.ms": 100,
            **(classic if self.process.java.protocol == "classic" else {"group.protocol": "consumer"}),
            **self.job.config,
        }


class Metadata(NamedTuple):
    """As the Python clients' group metadata."""

    member_id: str


class Consumer:
    """A Java consumer with the methods that the Python clients' consumers have."""

    def __init__(self, application: JavaApplication) -> None:
        self._application = application

    def assignment(self) -> set[Partition]:
        return {Partition(*row) for row in self._application.call("assignment")}

    def paused(self) -> set[Partition]:
        return {Partition(*row) for row in self._application.call("paused")}

    def pause(self, *partitions: Partition) -> None:
        self._application.call("pause", partitions=_rows(partitions))

    def resume(self, *partitions: Partition) -> None:
        self._application.call("resume", partitions=_rows(partitions))

    def seek(self, partition: Partition, offset: int) -> None:
        self._application.call("seek", offsets=[[*partition, offset]])

    def position(self, partition: Partition) -> int:
        [[_, _, offset]] = self._application.call("positions", partitions=_rows([partition]))
        return int(offset)

    def group_metadata(self) -> Metadata:
        return Metadata(self._application.call("member_id"))


def _rows(partitions: Iterable[Partition]) -> list[list[str | int]]:
    return [[topic, number] for topic, number in partitions]
