"""The traces of ``agents/contract``, which say how any agent behaves, replayed against this one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest

from agent.unit.simulated import Client, Consumer
from tidegate_agent.core import Core
from tidegate_agent.gates import GateTable, Partition
from tidegate_agent.partition_state import Stage
from tidegate_agent.records import Unreadable, decode

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


@dataclass
class Replay:
    """The group's members by name, on one control topic and with one set of committed offsets."""

    committed: dict[Partition, int]
    members: dict[str, Consumer] = field(default_factory=dict)
    table: GateTable = field(default_factory=GateTable)
    taken: int = -1

    def member(self, name: str) -> Consumer:
        if name not in self.members:
            made = Consumer(client=Client(committed=self.committed))
            made.core = Core(GROUP)
            self.members[name] = made
            self._tell(made)
        return self.members[name]

    def step(self, step: Mapping[str, Any]) -> None:
        member = self.member(step.get("member", "a"))
        delivered, acks = len(member.client.delivered), len(member.acks)
        dropped = self._do(step, member)
        for each in self.members.values():
            each.run()
        found = {
            "gates": {f"{p.topic}-{p.partition}": GATES[s] for p in member.core.owned() if (s := member.core.stage(p))},
            "delivered": [[f"{p.topic}-{p.partition}", offset] for p, offset in member.client.delivered[delivered:]],
            "acks": [[f"{p.topic}-{p.partition}", epoch, offset] for p, epoch, offset in member.acks[acks:]],
            "next": {f"{p.topic}-{p.partition}": offset for p, offset in member.client.next.items()},
            "dropped": dropped,
        }
        expected = step.get("expect", {})
        assert {name: found[name] for name in expected} == expected, step

    def _do(self, step: Mapping[str, Any], member: Consumer) -> list[str]:
        match step["do"]:
            case "control":
                self._take(step["records"])
            case "read_again":
                self.table = GateTable(self.table)
                self._take(step["records"], end=step["end"])
            case "read_to_end":
                member.answered = 1
                self._tell(member)
            case "assign":
                member.assign(*map(partition_of, step["partitions"]), answered=False)
            case "revoke":
                lost = [partition_of(name) for name in step["partitions"]]
                member.core.revoked(lost, {p: member.client.position[p] for p in lost})
            case "fetch":
                member.poll(partition_of(step["partition"]), step["offsets"])
            case "commit":
                named = step["offsets"].items()
                return [name for name, offset in named if not member.commit(partition_of(name), offset)]
            case "reset":
                self.committed.update(offsets_of(step["offsets"]))
            case "advance":
                for each in self.members.values():
                    each.run(step["seconds"])
            case other:
                raise AssertionError(f"no step is called {other}")
        return []

    def _take(self, records: list[dict[str, Any]], end: int | None = None) -> None:
        for record in records:
            key, value = (
                None if body is None else json.dumps(body, sort_keys=True, separators=(",", ":")).encode()
                for body in (record["key"], record["value"])
            )
            self.taken = record["offset"]
            try:
                self.table.take(*decode(key, value), record["offset"])
            except Unreadable:
                continue
        if end is not None:
            self.taken = end - 1
            self.table.read_to_end(self.taken)
        for each in self.members.values():
            self._tell(each)

    def _tell(self, member: Consumer) -> None:
        member.table, member.taken = self.table, self.taken
        member._tell()


@pytest.mark.parametrize("trace", TRACES["traces"], ids=lambda trace: trace["name"])
def test_the_agent_does_what_the_trace_says(trace: dict[str, Any]) -> None:
    replay = Replay(offsets_of(trace["committed"]))
    for step in trace["steps"]:
        replay.step(step)
