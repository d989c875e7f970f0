"""The traces of ``agents/contract``, which say how any agent behaves, replayed against this one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

from agent.unit.simulated import Client, Consumer
from tidegate_agent.ages import Clock, PartitionTable
from tidegate_agent.core import Core
from tidegate_agent.gates import GateTable, KeptGates, Known, Partition
from tidegate_agent.partition_state import Stage
from tidegate_agent.records import ClockKey, PartitionKey, Unreadable, decode
from tidegate_agent.start import Rule, Start

TRACES = json.loads((Path(__file__).parents[3] / "agents" / "contract" / "traces.json").read_text(encoding="utf-8"))
GROUP: Final = "payments"
REBUILT_S: Final = 10.0
"""As the contract has it: how long gates stay closed of which another control topic has no record."""
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


TRACE: Final = {"name", "committed", "log_end", "rule", "topic_ids", "open_unread_after_s", "steps"}
STEP: Final = {"do", "member", "records", "end", "partitions", "partition", "offsets", "seconds", "expect"}
RECORD: Final = {"offset", "key", "value", "timestamp_ms"}


def require_only(body: Mapping[str, Any], known: set[str]) -> None:
    """What nobody here knows would be passed over."""
    assert not body.keys() - known, body


class Replay:
    """The group's members by name, on one control topic and with one set of committed offsets.

    What a reader does with records and times is done here as in ``tidegate_agent.control``, without its threads.
    """

    def __init__(self, trace: Mapping[str, Any]) -> None:
        require_only(trace, TRACE)
        self._trace = trace
        self._committed = offsets_of(trace["committed"])
        self._members: dict[str, Consumer] = {}
        self._answered: set[str] = set()
        self._table, self._partitions, self._kept = GateTable(), PartitionTable(), KeptGates()
        self._clock: Clock | None = None
        self._taken_off: dict[tuple[str, Partition], list[int]] = {}
        self._known = Known(generation=1)
        self._topic_ids: dict[str, str] = {}
        self._is_at_end = False
        self._now = 0.0

    def _member(self, name: str) -> Consumer:
        if name not in self._members:
            log_end = offsets_of(self._trace.get("log_end", {}))
            made = Consumer(client=Client(committed=self._committed, log_end=log_end))
            made.core = Core(GROUP, open_unread_after_s=self._trace.get("open_unread_after_s"), rule=self._rule())
            made.now = self._now
            self._members[name] = made
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
        }
        expected = step.get("expect", {})
        require_only(expected, set(found))
        assert {name: found[name] for name in expected} == expected, step

    def _do(self, step: Mapping[str, Any], name: str, member: Consumer) -> list[str]:
        match step["do"]:
            case "control":
                self._take(step["records"])
            case "read_again":
                self._table = GateTable(self._table)
                self._read_from_start(step, is_another=False)
            case "replaced":
                self._table = GateTable()
                self._read_from_start(step, is_another=True)
            case "read_to_end":
                self._is_at_end = True
                self._answered.add(name)
                self._known = replace(self._known, topic_ids=self._trace.get("topic_ids", {}))
                self._tell_all()
            case "assign":
                member.assign(*map(partition_of, step["partitions"]), answered=False)
            case "revoke":
                lost = [partition_of(name) for name in step["partitions"]]
                member.core.revoked(lost, {p: member.client.position[p] for p in lost})
            case "fetch":
                member.poll(partition_of(step["partition"]), step["offsets"])
            case "take_off":
                partition, offsets = partition_of(step["partition"]), step["offsets"]
                self._taken_off.setdefault((name, partition), []).extend(offsets)
                member.client.next[partition] = member.client.position[partition] = offsets[-1] + 1
            case "hand_over":
                partition = partition_of(step["partition"])
                for offset in self._taken_off.pop((name, partition), []):
                    if not member.core.is_withheld(partition, offset):
                        member.client.delivered.append((partition, offset))
            case "commit":
                named = step["offsets"].items()
                return [name for name, offset in named if not member.commit(partition_of(name), offset)]
            case "reset":
                self._committed.update(offsets_of(step["offsets"]))
            case "advance":
                self._advance(self._now + step["seconds"])
            case other:
                raise AssertionError(f"no step is called {other}")
        return []

    def _advance(self, until: float) -> None:
        kept_until = self._kept.until
        if kept_until is not None and kept_until <= until:
            self._run(kept_until)
            self._kept.release()
            self._known = replace(self._known, gates=self._table.gates(), limits=self._table.limits())
            self._tell_all()
        self._run(until)

    def _run(self, until: float) -> None:
        for each in self._members.values():
            each.run(until - self._now)
        self._now = until

    def _read_from_start(self, step: Mapping[str, Any], *, is_another: bool) -> None:
        self._is_at_end = False
        self._take(step["records"], end=step["end"], is_another=is_another)
        self._is_at_end = True

    def _take(self, records: list[dict[str, Any]], end: int | None = None, *, is_another: bool = False) -> None:
        taken = -1 if end is not None else self._known.taken
        for record in records:
            require_only(record, RECORD)
            key, value = (
                None if body is None else json.dumps(body, sort_keys=True, separators=(",", ":")).encode()
                for body in (record["key"], record["value"])
            )
            taken = record["offset"]
            try:
                read = decode(key, value)
            except Unreadable:
                continue
            self._table.take(*read, taken)
            self._kept.take(read[0])
            if isinstance(read[0], PartitionKey):
                self._partitions.take(read[0], read[1])
            elif isinstance(read[0], ClockKey):
                tells = value is not None and "timestamp_ms" in record
                self._clock = Clock(record["timestamp_ms"], self._now, self._is_at_end) if tells else None
        if end is not None:
            taken = end - 1
            self._table.read_to_end(taken)
        if is_another:
            self._kept.keep(self._known, self._table, self._now + REBUILT_S)
        self._known = replace(
            self._known,
            gates=self._kept.with_gates(self._table.gates()),
            limits=self._kept.with_limits(self._table.limits()),
            moved=self._table.moved(),
            taken=taken,
            generation=self._known.generation + is_another,
            discovered=self._partitions.view(),
            clock=self._clock,
        )
        self._tell_all()

    def _tell_all(self) -> None:
        for name in self._members:
            self._tell(name)

    def _tell(self, name: str) -> None:
        self._members[name].core.know(replace(self._known, answered=int(name in self._answered)))


@pytest.mark.parametrize("trace", TRACES["traces"], ids=lambda trace: trace["name"])
def test_the_agent_does_what_the_trace_says(trace: dict[str, Any]) -> None:
    replay = Replay(trace)
    for step in trace["steps"]:
        replay.step(step)
