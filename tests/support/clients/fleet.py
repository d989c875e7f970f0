"""Ordinary consumers in processes of their own, and what they did."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from devstack.java_agent import agent_jar
from support.clients.go import go_command
from support.clients.java import java_command
from support.clients.node import node_command
from support.clients.options import (
    ClientKind,
    CommitMode,
    ConfigValue,
    ConsumerOptions,
    GroupProtocol,
    member_names,
)
from support.deliveries import Delivery, Partition

_WORKER = Path(__file__).with_name("worker.py")
_AGENT = Path(__file__).resolve().parents[3] / "agents" / "python"
_STOP_S = 30.0  # more than a worker gives its members to close


class FleetError(AssertionError):
    """The consumers did not do in time what was waited for, or one of their processes died."""


class EventKind(StrEnum):
    """What a member tells besides its records.

    ``SENT``: offsets, to a transaction that names no member; ``OVER``: that transaction has ended. ``DIED``: an
    exception ended it. ``KILLED``, ``FROZEN`` and ``THAWED`` are told by the fleet, of a process that it killed or
    stopped for a while.
    """

    READY = "ready"
    ASSIGN = "assign"
    REVOKE = "revoke"
    LOST = "lost"
    COMMIT = "commit"
    SENT = "sent"
    OVER = "over"
    ERROR = "error"
    DIED = "died"
    CLOSED = "closed"
    KILLED = "killed"
    FROZEN = "frozen"
    THAWED = "thawed"


@dataclass(frozen=True, slots=True)
class Commit:
    """One partition's part of a commit: the offset, and the library's name for what was wrong with it."""

    partition: Partition
    offset: int
    error: str | None


@dataclass(frozen=True, slots=True)
class Event:
    """Something a member did at `t` (epoch seconds).

    `partitions` of an assignment or revocation (incremental ones with cooperative assignors: only what changes),
    `commits` and `error` (``None``: it went well) of a commit, `error` as text of an error. A library's auto-commits
    are told by librdkafka and kafka-python only: Java and aiokafka offer no callback for them. franz-go's
    consumers tell neither those nor revocations: with a callback for revocations, franz-go leaves the commit before
    them to it. sarama's tell no commits at all, kafka-go's neither assignments nor revocations: who was given a record
    is taken for its partition's owner.
    """

    t: float
    member: str
    kind: EventKind
    partitions: tuple[Partition, ...] = ()
    commits: tuple[Commit, ...] = ()
    error: str | None = None


@dataclass(slots=True)
class _Process:
    popen: subprocess.Popen[bytes]
    members: list[str]
    errors: Path
    reader: threading.Thread = field(init=False)
    ended_by_us: bool = False

    @property
    def stdin(self) -> IO[bytes]:
        assert self.popen.stdin is not None
        return self.popen.stdin

    def tell(self, command: str) -> None:
        self.stdin.write(command.encode() + b"\n")
        self.stdin.flush()

    def close_stdin(self) -> None:
        with contextlib.suppress(BrokenPipeError):  # it is gone already
            self.stdin.close()


def _agent_environment(kind: ClientKind, control_topic: str | None) -> dict[str, str]:
    topic = {"TIDEGATE_CONTROL_TOPIC": control_topic} if control_topic is not None else {}
    if kind is ClientKind.JAVA:
        return {"TIDEGATE_AGENT": "1", "JAVA_TOOL_OPTIONS": f"-javaagent:{agent_jar()}", **topic}
    path = os.pathsep.join(p for p in (str(_AGENT), os.environ.get("PYTHONPATH")) if p)
    return {"TIDEGATE_AGENT": "1", "PYTHONPATH": path, **topic}


class ConsumerFleet:
    """The members of one group, of one kind, in `processes` processes, while the ``with`` block lasts.

    Everything a member reports is collected by a thread a process; all methods may be called at any time from any
    thread. The options are those of `ConsumerOptions`. Times are epoch seconds or seconds.

    `agent`: the processes run Tidegate's agent, as a user lets it in: by environment alone. `control_topic`: where it
    looks for holds, if not at its default. `environment`: more for the processes. `worker`: another program that does
    what ``worker.py`` does. `client_version`: Java's, if not the broker's own.
    """

    def __init__(
        self,
        kind: ClientKind | str,
        bootstrap: str,
        group: str,
        topics: Sequence[str],
        members: int | Sequence[str],
        processes: int = 1,
        *,
        protocol: GroupProtocol | str = GroupProtocol.CLASSIC,
        assignor: str | None = None,
        static: bool = False,
        isolation: str | None = None,
        heartbeat_s: float | None = None,
        heartbeat_spread: float = 0.0,
        session_s: float | None = None,
        commit: CommitMode | str = CommitMode.AUTO,
        auto_commit_interval_s: float | None = None,
        commit_every_s: float = 0.2,
        hold_s: float = 3.0,
        auto_offset_reset: str | None = "earliest",
        client_ids: bool = False,
        stagger_s: float = 0.0,
        config: Mapping[str, ConfigValue] | None = None,
        agent: bool = False,
        control_topic: str | None = None,
        environment: Mapping[str, str] | None = None,
        worker: Path = _WORKER,
        client_version: str | None = None,
    ) -> None:
        self._worker = worker
        self._client_version = client_version
        self._agent, self._control_topic = agent, control_topic
        self._environment = dict(environment or {})
        self.options = ConsumerOptions(
            kind=ClientKind(kind),
            bootstrap=bootstrap,
            group=group,
            topics=tuple(topics),
            protocol=GroupProtocol(protocol),
            assignor=assignor,
            static=static,
            isolation=isolation,
            heartbeat_s=heartbeat_s,
            heartbeat_spread=heartbeat_spread,
            session_s=session_s,
            commit=CommitMode(commit),
            auto_commit_interval_s=auto_commit_interval_s,
            commit_every_s=commit_every_s,
            hold_s=hold_s,
            auto_offset_reset=auto_offset_reset,
            client_ids=client_ids,
            stagger_s=stagger_s,
            config=config or {},
        )
        self._first = member_names(members)
        if not 1 <= processes <= max(1, len(self._first)):
            raise ValueError(f"{len(self._first)} members cannot be spread over {processes} processes")
        self._first_processes = processes
        self._processes: list[_Process] = []
        self._named: list[str] = []
        self._changed = threading.Condition()
        self._deliveries: list[Delivery] = []
        self._events: list[Event] = []
        self._last: dict[Partition, Delivery] = {}
        self._claims: dict[str, dict[Partition, float]] = {}
        self._alive: set[str] = set()
        self._logs = tempfile.TemporaryDirectory(prefix="tidegate-consumers-")

    def __enter__(self) -> Self:
        specs = [self._spec(name, i, len(self._first)) for i, name in enumerate(self._first)]
        try:
            for i in range(self._first_processes):
                self._start_process(specs[i :: self._first_processes], self.options)
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    # What happened.

    def records(self, since: float | None = None) -> list[Delivery]:
        """All deliveries so far, or those after `since`, in the order of their time."""
        with self._changed:
            found = list(self._deliveries)
        found.sort(key=lambda delivery: delivery.t)
        return found if since is None else [d for d in found if d.t > since]

    def events(self, since: float | None = None) -> list[Event]:
        """All events so far, or those after `since`, in the order of their time."""
        with self._changed:
            found = list(self._events)
        found.sort(key=lambda event: event.t)
        return found if since is None else [e for e in found if e.t > since]

    def owners(self) -> dict[Partition, str]:
        """Who has which partition, by the members' own word; of two who claim one, the later."""
        with self._changed:
            return self._owners()

    def members(self) -> tuple[str, ...]:
        """The members that are running (started and neither closed nor killed)."""
        with self._changed:
            return tuple(name for name in self._named if name in self._alive)

    def processes(self) -> tuple[tuple[str, ...], ...]:
        """The members of each process, by its index; also of those that have ended."""
        return tuple(tuple(process.members) for process in self._processes)

    def pids(self) -> tuple[int, ...]:
        """The process ids, in the order of the indices."""
        return tuple(process.popen.pid for process in self._processes)

    def process_of(self, member: str) -> int:
        """The index of the process that `member` runs in, for `kill_process`. Raises ``KeyError``."""
        for i, process in enumerate(self._processes):
            if member in process.members:
                return i
        raise KeyError(member)

    def last_delivery(self, partition: Partition) -> Delivery | None:
        """The newest record of `partition`, or ``None``."""
        with self._changed:
            return self._last.get(partition)

    # Waiting. Every wait raises `FleetError` at its deadline, or as soon as a process died by itself.

    def wait_assigned(self, partitions: Collection[Partition], timeout: float = 60, members: int | None = None) -> None:
        """Until every partition has an owner, and at least `members` members own one.

        `members`: by default all that run, or as many as there are partitions.
        """

        def reached() -> bool:
            owners = self._owners()
            wanted = min(len(self._alive), len(partitions)) if members is None else members
            return all(p in owners for p in partitions) and len(set(owners.values())) >= wanted

        self._wait(reached, timeout, lambda: f"assigned: {len(partitions)} partitions wanted, owners {self._owners()}")

    def wait_flowing(self, partitions: Collection[Partition], since: float | None = None, timeout: float = 60) -> None:
        """Until every partition has delivered a record after `since` (default: now)."""
        after = time.time() if since is None else since

        def dry() -> list[Partition]:
            return [p for p in partitions if p not in self._last or self._last[p].t <= after]

        self._wait(lambda: not dry(), timeout, lambda: f"flowing: nothing from {dry()}; owners {self._owners()}")

    def wait_read_to(self, ends: Mapping[Partition, int], timeout: float = 60) -> None:
        """Until the newest delivery of each partition is its last record or later; `ends`: the offsets after it.

        `timeout`: seconds in which none comes nearer to its end. A client that commits each record takes its time.
        """

        def missing() -> dict[Partition, tuple[int | None, int]]:
            found: dict[Partition, tuple[int | None, int]] = {}
            for partition, end in ends.items():
                last = self._last.get(partition)
                if end > 0 and (last is None or last.offset < end - 1):
                    found[partition] = (last.offset if last else None, end)
            return found

        def left() -> int:
            return sum(end - 1 - (-1 if last is None else last) for last, end in missing().values())

        def nearer() -> bool:
            return left() < fewest

        fewest = left()
        while fewest > 0:
            self._wait(nearer, timeout, lambda: f"nearer to the end: (last, end) {missing()}")
            fewest = min(fewest, left())

    def wait_for(self, condition: Callable[[], bool], timeout: float, what: str) -> None:
        """Until `condition`, which is looked at again after everything that a member reports."""
        self._wait(condition, timeout, lambda: what)

    # Doing something to them.

    def add(
        self,
        member: str | None = None,
        process: int | None = None,
        *,
        forked: bool = False,
        config: Mapping[str, ConfigValue] | None = None,
        kind: ClientKind | None = None,
    ) -> str:
        """Join one more member, in a process of its own or in the existing one of that index; returns its name.

        `forked`: in a process that is forked off that one. `config`: settings that only this member has. `kind`:
        another library than the others', in a process of its own.
        """
        options = self.options if kind is None else replace(self.options, kind=kind)
        with self._changed:
            name = member or next(n for n in (f"c{i}" for i in range(len(self._named) + 1)) if n not in self._named)
            if name in self._named:
                raise ValueError(f"there was a member {name} already")
        spec = {"name": name, "config": {**options.member_config(name, 0, 1), **(config or {})}, "delay_s": 0.0}
        if process is None:
            self._start_process([spec], options)
        else:
            target = self._processes[process]
            with self._changed:
                self._named.append(name)
                self._alive.add(name)
                target.members.append(name)
            target.tell(("fork " if forked else "start ") + json.dumps(spec))
        return name

    def stop_member(self, member: str, timeout: float = _STOP_S) -> None:
        """Close one consumer gracefully and wait for it; its process goes on."""
        self._processes[self.process_of(member)].tell(f"stop {member}")
        self._wait(lambda: member not in self._alive, timeout, lambda: f"{member} closed")

    def kill_process(self, index: int) -> float:
        """SIGKILL: a crash of all members in it. Returns when, epoch seconds; what it had reported is collected."""
        process = self._processes[index]
        process.ended_by_us = True
        process.popen.send_signal(signal.SIGKILL)
        killed = time.time()
        process.popen.wait()
        process.reader.join()
        with self._changed:
            for name in process.members:
                if name in self._alive:
                    self._gone(name)
                    self._events.append(Event(killed, name, EventKind.KILLED))
            self._changed.notify_all()
        process.close_stdin()
        return killed

    def pause_process(self, index: int) -> None:
        """SIGSTOP: the process hangs, heartbeats included, until `resume_process`."""
        self._processes[index].popen.send_signal(signal.SIGSTOP)
        self._tell_of(index, EventKind.FROZEN)

    def resume_process(self, index: int) -> None:
        """SIGCONT."""
        self._tell_of(index, EventKind.THAWED)
        self._processes[index].popen.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        """Close all members gracefully and collect what they still report; may be called twice.

        A process that does not end within 30 s is killed.
        """
        running = [process for process in self._processes if process.popen.poll() is None]
        for process in self._processes:
            process.ended_by_us = True
            process.close_stdin()
        deadline = time.monotonic() + _STOP_S
        for process in running:
            process.popen.send_signal(signal.SIGCONT)
            try:
                process.popen.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.popen.kill()
                process.popen.wait()
        for process in self._processes:
            process.reader.join()
        with self._changed:
            for name in tuple(self._alive):
                self._gone(name)
        self._logs.cleanup()

    def log(self, index: int) -> str:
        """What the process with this index wrote to standard error, while the fleet runs."""
        return self._processes[index].errors.read_text(errors="replace")

    # Inside.

    def _spec(self, name: str, index: int, members: int) -> dict[str, Any]:
        config = self.options.member_config(name, index, members)
        return {"name": name, "config": config, "delay_s": index * self.options.stagger_s}

    def _start_process(self, specs: Sequence[Mapping[str, Any]], options: ConsumerOptions) -> None:
        job = {
            "kind": options.kind,
            "topics": options.topics,
            "commit": options.commit,
            "commit_every_s": options.commit_every_s,
            "hold_s": options.hold_s,
            "members": specs,
        }
        match options.kind:
            case ClientKind.JAVA:
                command = java_command(len(specs), self._client_version)
            case ClientKind.FRANZ_GO | ClientKind.SARAMA | ClientKind.KAFKA_GO:
                command = go_command()
            case ClientKind.KAFKAJS:
                command = node_command()
            case _:
                # -P: the worker's folder must not come before the libraries in its module path.
                command = [sys.executable, "-P", str(self._worker)]
        agent = _agent_environment(options.kind, self._control_topic) if self._agent else {}
        errors = Path(self._logs.name) / f"process-{len(self._processes)}.err"
        with errors.open("wb") as stderr:
            popen = subprocess.Popen(
                [*command, json.dumps(job)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                env={**os.environ, "PYTHONUNBUFFERED": "1", **agent, **self._environment},
                start_new_session=True,  # a Ctrl-C at the terminal is ours to turn into a graceful stop
            )
        process = _Process(popen, [str(spec["name"]) for spec in specs], errors)
        process.reader = threading.Thread(target=self._read, args=(process,), daemon=True)
        with self._changed:
            self._processes.append(process)
            self._named.extend(process.members)
            self._alive.update(process.members)
        process.reader.start()

    def _read(self, process: _Process) -> None:
        assert process.popen.stdout is not None
        with process.popen.stdout as lines:
            for line in lines:
                if line.endswith(b"\n"):  # a killed process may leave half a line
                    self._collect(json.loads(line))
        with self._changed:
            self._changed.notify_all()

    def _collect(self, told: Mapping[str, Any]) -> None:
        member = told["m"]
        with self._changed:
            if told["e"] == "record":
                for t, partition, offset, topic, value in told["r"]:
                    delivery = Delivery(t, member, topic, partition, offset, value)
                    self._deliveries.append(delivery)
                    if self.options.kind is ClientKind.KAFKA_GO:
                        self._claims.setdefault(member, {})[topic, partition] = t
                    before = self._last.get((topic, partition))
                    if before is None or before.t <= t:
                        self._last[topic, partition] = delivery
            else:
                event = _event(told)
                self._events.append(event)
                self._follow(event)
            self._changed.notify_all()

    def _follow(self, event: Event) -> None:
        claims = self._claims.setdefault(event.member, {})
        match event.kind:
            case EventKind.ASSIGN:
                claims.update(dict.fromkeys(event.partitions, event.t))
            case EventKind.REVOKE | EventKind.LOST:
                for partition in event.partitions:
                    claims.pop(partition, None)
            case EventKind.CLOSED:
                self._gone(event.member)
            case _:
                pass

    def _tell_of(self, index: int, kind: EventKind) -> None:
        t = time.time()
        with self._changed:
            running = [name for name in self._processes[index].members if name in self._alive]
            self._events += [Event(t, name, kind) for name in running]
            self._changed.notify_all()

    def _gone(self, member: str) -> None:
        self._alive.discard(member)
        self._claims.pop(member, None)

    def _owners(self) -> dict[Partition, str]:
        latest: dict[Partition, tuple[float, str]] = {}
        for member, claims in self._claims.items():
            for partition, t in claims.items():
                if partition not in latest or latest[partition][0] < t:
                    latest[partition] = (t, member)
        return {partition: member for partition, (_, member) in sorted(latest.items())}

    def _wait(self, reached: Callable[[], bool], timeout: float, what: Callable[[], str]) -> None:
        deadline = time.monotonic() + timeout
        with self._changed:
            while not reached():
                self._refuse_dead()
                left = deadline - time.monotonic()
                if left <= 0:
                    raise FleetError(f"not within {timeout:g} s: {what()}\n{self._troubles()}")
                self._changed.wait(left)

    def _refuse_dead(self) -> None:
        for i, process in enumerate(self._processes):
            if not process.ended_by_us and not process.reader.is_alive():
                code = process.popen.wait()
                tail = "\n".join(self.log(i).splitlines()[-15:])
                raise FleetError(f"process {i} ({', '.join(process.members)}) ended with {code}\n{tail}")
        died = [f"{event.member}: {event.error}" for event in self._events if event.kind is EventKind.DIED]
        if died:
            raise FleetError(f"an exception ended {'; '.join(died)}")

    def _troubles(self) -> str:
        last = {e.member: f"{e.member}: {e.kind} at {e.t:.3f}" for e in self._events if e.kind is not EventKind.COMMIT}
        silent = [f"{member}: nothing yet" for member in sorted(self._alive - last.keys())]
        errors = [f"{e.member}: {e.error}" for e in self._events if e.kind in (EventKind.ERROR, EventKind.DIED)][-5:]
        logs = [line for i in range(len(self._processes)) for line in self.log(i).splitlines()[-15:]]
        return "\n".join([f"now: {time.time():.3f}", *last.values(), *silent, *errors, *logs])


def _event(told: Mapping[str, Any]) -> Event:
    def partitions(rows: Iterable[Sequence[Any]]) -> tuple[Partition, ...]:
        return tuple((str(row[0]), int(row[1])) for row in rows)

    commits = tuple(Commit((topic, p), offset, error) for topic, p, offset, error in told.get("o", ()))
    return Event(told["t"], told["m"], EventKind(told["e"]), partitions(told.get("p", ())), commits, told.get("error"))
