"""The traces of ``agents/contract``, which say how any agent behaves, replayed against this one."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

from agent.unit.simulated import Client, Consumer
from tidegate_agent.control_reading import ControlReading
from tidegate_agent.core import Core
from tidegate_agent.gates import Partition
from tidegate_agent.partition_state import Stage
from tidegate_agent.start import Rule, Start

TRACES = json.loads((Path(__file__).parents[3] / "agents" / "contract" / "traces.json").read_text(encoding="utf-8"))
GROUP: Final = "payments"
GATES: Final = {
    Stage.UNREAD: "unread",
    Stage.OPEN: "open",
    Stage.DRAINING: "closing",
    Stage.CLOSED: "closed",
    Stage.OPENING: "opening",
}


def partition_of(name: str) -> Partition:
    topic, _, number = name.rpartition("-")
    return Partition(topic, int(number))


def offsets_of(named: Mapping[str, int]) -> dict[Partition, int]:
    return {partition_of(name): offset for name, offset in named.items()}


TRACE: Final = {
    *("name", "committed", "log_end", "begins", "rule", "topic_ids", "open_unread_after_s"),
    *("client_commits", "client_stores", "steps"),
}
STEP: Final = {
    *("do", "member", "records", "end", "partitions", "partition", "offsets", "seconds", "arrive", "is_committed"),
    "expect",
}
RECORD: Final = {"offset", "key", "value", "timestamp_ms"}


def require_only(body: Mapping[str, Any], known: set[str]) -> None:
    """What nobody here knows would be passed over."""
    assert not body.keys() - known, body


class TraceClient(Client):
    """One whose own commits can be lost on their way."""

    loses_commits = False

    def commit_stored(self, partitions: Collection[Partition]) -> None:
        if not self.loses_commits:
            super().commit_stored(partitions)


class Member(Consumer):
    """A consumer, and what its application has under way. ``taken_off``: what left the client's queue."""

    def __init__(self, core: Core, client: TraceClient, unstable: set[Partition], now: float) -> None:
        super().__init__(client=client, auto_commit=client.auto_stores)
        self.core, self.unstable, self.now = core, unstable, now
        self.taken_off: dict[Partition, list[int]] = {}
        self._call: tuple[int, dict[Partition, int]] | None = None
        self._sent: dict[Partition, int] = {}

    def passing(self, offsets: Mapping[Partition, int]) -> dict[Partition, int]:
        """Those of the application's offsets that are not dropped."""
        dropped = self.core.dropped(offsets, lambda ps: {p: self.client.position[p] for p in ps})
        return {partition: offset for partition, offset in offsets.items() if partition not in dropped}

    def begin_commit(self, offsets: Mapping[Partition, int]) -> dict[Partition, int]:
        assert self._call is None, "one commit call at a time"
        passing = self.passing(offsets)
        self._call = self.core.commit_begins(), passing
        return passing

    def end_commit(self) -> None:
        assert self._call is not None
        (call, passing), self._call = self._call, None
        self.client.committed.update(passing)
        self.core.commit_ends(call)

    def send_offsets(self, offsets: Mapping[Partition, int]) -> dict[Partition, int]:
        """Within a transaction: until it ends, the brokers do not tell what is committed."""
        passing = self.passing(offsets)
        self._sent.update(passing)
        self.unstable.update(passing)
        return passing

    def end_transaction(self, *, is_committed: bool) -> None:
        if is_committed:
            self.client.committed.update(self._sent)
        self.unstable.difference_update(self._sent)
        self._sent = {}

    def pause(self, partitions: list[Partition]) -> None:
        self.client.pause(partitions)
        self.core.app_paused(partitions)

    def resume(self, partitions: list[Partition]) -> None:
        self.client.resume(self.core.app_resumed(partitions))

    def seek(self, offsets: Mapping[Partition, int]) -> None:
        for partition, offset in offsets.items():
            self.client.seek(partition, offset)
            self.core.app_sought(partition)


class Replay:
    """The group's members by name, on one control topic and with one set of committed offsets."""

    def __init__(self, trace: Mapping[str, Any]) -> None:
        require_only(trace, TRACE)
        self._trace = trace
        self._committed = offsets_of(trace["committed"])
        self._members: dict[str, Member] = {}
        self._answered: set[str] = set()
        self._unstable: set[Partition] = set()
        self._reading = ControlReading()
        self._control_topics = 1
        self._end = 0
        self._is_at_end = False
        self._now = 0.0
        self._reading.begin("control-1")
        self._reading.read_to(0, self._now)

    def _member(self, name: str) -> Member:
        if name not in self._members:
            trace = self._trace
            commits, stores = trace.get("client_commits", False), trace.get("client_stores", False)
            log_end = offsets_of(trace.get("log_end", {}))
            client = TraceClient(self._committed, log_end=log_end, auto_stores=stores, stores_late=not stores)
            client.begins = Start(trace.get("begins", "latest"))
            core = Core(GROUP, commits, stores, trace.get("open_unread_after_s"), self._rule())
            self._members[name] = Member(core, client, self._unstable, self._now)
            self._tell(name)
        return self._members[name]

    def _rule(self) -> Rule | None:
        said = self._trace.get("rule")
        if said is None:
            return None
        require_only(said, {"start", "max_age_ms"})
        return Rule(Start(said["start"]), said.get("max_age_ms"))

    def step(self, step: Mapping[str, Any]) -> None:
        require_only(step, STEP)
        name = step.get("member", "a")
        member = self._member(name)
        delivered, acks = len(member.client.delivered), len(member.acks)
        dropped = self._do(step, name, member)
        for each in self._members.values():
            each.run()
        found = {
            "gates": {f"{p.topic}-{p.partition}": GATES[s] for p in member.core.owned() if (s := member.core.stage(p))},
            "delivered": [[f"{p.topic}-{p.partition}", offset] for p, offset in member.client.delivered[delivered:]],
            "acks": [[f"{p.topic}-{p.partition}", epoch, offset] for p, epoch, offset in member.acks[acks:]],
            "next": {f"{p.topic}-{p.partition}": offset for p, offset in member.client.next.items()},
            "dropped": dropped,
            "committed": {f"{p.topic}-{p.partition}": offset for p, offset in self._committed.items()},
        }
        expected = step.get("expect", {})
        require_only(expected, set(found))
        assert {name: found[name] for name in expected} == expected, step

    def _do(self, step: Mapping[str, Any], name: str, member: Member) -> list[str]:
        """The partitions whose offsets were not committed."""
        match step["do"]:
            case "control" | "read_again" | "replaced" | "read_to_end":
                self._read(step, name)
            case "assign":
                member.assign(*map(partition_of, step["partitions"]), answered=False)
            case "revoke":
                lost = [partition_of(name) for name in step["partitions"]]
                member.core.revoked(lost, {p: member.client.position[p] for p in lost})
            case "fetch":
                member.poll(partition_of(step["partition"]), step["offsets"])
            case "take_off":
                partition, offsets = partition_of(step["partition"]), step["offsets"]
                member.taken_off.setdefault(partition, []).extend(offsets)
                member.client.next[partition] = member.client.position[partition] = offsets[-1] + 1
            case "hand_over":
                partition = partition_of(step["partition"])
                for offset in member.taken_off.pop(partition, []):
                    if not member.core.is_withheld(partition, offset):
                        member.client.delivered.append((partition, offset))
            case "reset":
                self._committed.update(offsets_of(step["offsets"]))
            case "advance":
                self._advance(self._now + step["seconds"])
            case "pause":
                member.pause([partition_of(name) for name in step["partitions"]])
            case "resume":
                member.resume([partition_of(name) for name in step["partitions"]])
            case "seek":
                member.seek(offsets_of(step["offsets"]))
            case _:
                return self._commit(step, member)
        return []

    def _commit(self, step: Mapping[str, Any], member: Member) -> list[str]:
        """What reaches the brokers of the group's offsets, now or later."""
        offsets = offsets_of(step.get("offsets", {}))
        match step["do"]:
            case "commit":
                passing = member.passing(offsets)
                self._committed.update(passing)
            case "store":
                passing = member.passing(offsets)
                for partition, offset in passing.items():
                    member.client.store(partition, offset)
            case "client_commits":
                passing = {}
                member.client.loses_commits = not step["arrive"]
                member.client.commit_stored(member.core.owned())
            case "begin_commit":
                passing = member.begin_commit(offsets)
            case "end_commit":
                passing = {}
                member.end_commit()
            case "send_offsets":
                passing = member.send_offsets(offsets)
            case "end_transaction":
                passing = {}
                member.end_transaction(is_committed=step["is_committed"])
            case other:
                raise AssertionError(f"no step is called {other}")
        return [f"{p.topic}-{p.partition}" for p in offsets if p not in passing]

    def _read(self, step: Mapping[str, Any], name: str) -> None:
        match step["do"]:
            case "control":
                self._take(step["records"])
            case "read_to_end":
                self._is_at_end = True
                self._answered.add(name)
                self._reading.answer(0, self._trace.get("topic_ids", {}))
                self._tell_all()
            case other:
                self._control_topics += other == "replaced"
                self._reading.begin(f"control-{self._control_topics}")
                self._is_at_end, self._end = False, step["end"]
                self._take(step["records"])
                self._is_at_end = True

    def _advance(self, until: float) -> None:
        kept_until = self._reading.kept_until
        if kept_until is not None and kept_until <= until:
            self._run(kept_until)
            self._reading.release_kept(self._now)
            self._tell_all()
        self._run(until)

    def _run(self, until: float) -> None:
        for each in self._members.values():
            each.run(until - self._now)
        self._now = until

    def _take(self, records: list[dict[str, Any]]) -> None:
        for record in records:
            require_only(record, RECORD)
            key, value = (
                None if body is None else json.dumps(body, sort_keys=True, separators=(",", ":")).encode()
                for body in (record["key"], record["value"])
            )
            appended_ms = record.get("timestamp_ms")
            self._reading.take(
                key, value, record["offset"], appended_ms=appended_ms, is_live=self._is_at_end, now=self._now
            )
            self._end = max(self._end, record["offset"] + 1)
        self._reading.read_to(self._end, self._now)
        self._tell_all()

    def _tell_all(self) -> None:
        for name in self._members:
            self._tell(name)

    def _tell(self, name: str) -> None:
        self._members[name].core.know(replace(self._reading.known, answered=int(name in self._answered)))


@pytest.mark.parametrize("trace", TRACES["traces"], ids=lambda trace: trace["name"])
def test_the_agent_does_what_the_trace_says(trace: dict[str, Any]) -> None:
    replay = Replay(trace)
    for step in trace["steps"]:
        replay.step(step)
