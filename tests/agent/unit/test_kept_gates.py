"""Gates and limits of a control topic that was lost stay until the new one speaks of them, or their time is over."""

from __future__ import annotations

from tidegate_agent.gates import Gate, GateTable, KeptGates, Known, LimitGate, Partition
from tidegate_agent.records import Hold, HoldKey, Limit, LimitKey

P0, P1 = Partition("orders", 0), Partition("orders", 1)
KNOWN = Known(
    gates={("g", P0): Gate(7, 1.0, ()), ("g", P1): Gate(8, 1.0, ())},
    limits={("g", P0): LimitGate(9, 50, 1.0, ()), ("g", P1): LimitGate(10, 60, 1.0, ())},
)


def kept(table: GateTable) -> KeptGates:
    gates = KeptGates()
    gates.keep(KNOWN, table, until=10.0)
    return gates


def test_what_the_new_topic_says_nothing_of_stays_with_an_epoch_of_nobody() -> None:
    table = GateTable()
    table.take(HoldKey("g", *P0, "pause/c/p"), Hold(), 3)
    table.take(LimitKey("g", *P1, "pause/c/p"), Limit(70), 4)

    gates = kept(table)

    assert {where: gate.epoch for where, gate in gates.with_gates(table.gates()).items()} == {
        ("g", P0): 3,
        ("g", P1): 0,
    }
    limits = gates.with_limits(table.limits())
    assert {where: (limit.epoch, limit.offset) for where, limit in limits.items()} == {
        ("g", P0): (0, 50),
        ("g", P1): (4, 70),
    }


def test_a_record_ends_the_keeping_of_its_own_gate_or_limit_only() -> None:
    gates = kept(GateTable())

    gates.take(HoldKey("g", *P0, "pause/c/p"))
    gates.take(LimitKey("g", *P1, "pause/c/p"))

    assert gates.with_gates({}).keys() == {("g", P1)}
    assert gates.with_limits({}).keys() == {("g", P0)}
    assert gates.until == 10.0


def test_nothing_is_kept_once_it_is_released() -> None:
    gates = kept(GateTable())

    gates.release()

    assert (gates.until, gates.with_gates({}), gates.with_limits({})) == (None, {}, {})


def test_there_is_no_time_to_wait_for_where_nothing_was_closed() -> None:
    gates = KeptGates()

    gates.keep(Known(), GateTable(), until=10.0)

    assert gates.until is None
