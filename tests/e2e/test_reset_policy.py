"""Policy, operator, Spark, Kafka, live consumers: from ``kubectl apply`` to ``kubectl wait``, with deaths between."""

from __future__ import annotations

import time
from typing import Final

import pytest

from e2e.conftest import NAMESPACE, PARTITIONS, POLICY, TOPIC, Live
from support.operator_process import condition_of
from tidegate.reset.runs.request import launch_number
from tidegate.resources.reset import ResetPhase

APPLYING: Final = frozenset({ResetPhase.PAUSING, ResetPhase.APPLYING})
"""While the offsets are being changed: with owners to let go the journal calls it Pausing."""

KILLED_IN: Final = {
    "Planning": frozenset({ResetPhase.PLANNING}),
    "Applying": APPLYING,
    "Verifying": frozenset({ResetPhase.VERIFYING}),
}
DEATHS: Final = [(victim, phase) for victim in ("operator", "driver") for phase in KILLED_IN]
NOBODY_WAITS_LONGER_S: Final = 15.0


def test_a_policy_resets_a_live_group_and_undo_puts_it_back(live: Live) -> None:
    live.flowing()

    partitions = [{"topic": TOPIC, "partitions": ["0-1"]}]
    asked = live.apply({"id": "back", "partitions": partitions, "to": {"earliest": {}}, "engine": "Spark"})
    reset = live.wait_ready("back")
    there = live.note("back", asked)
    live.flowing()
    asked = live.apply({"id": "undo-back", "to": {"undo": "back"}})
    undone = live.wait_ready("undo-back")
    back = live.note("undo-back", asked)
    live.flowing()

    status = reset["status"]
    assert (status["phase"], status["engine"], status["way"]) == ("Succeeded", "Spark", "Barrier")
    assert status["plan"]["partitions"] == 2
    assert status["plan"]["recordsReplayed"] > 0
    assert status["standstill"]["max"]
    policy = live.resources.get_policy(POLICY)
    assert condition_of(policy, "Ready")["observedGeneration"] == policy["metadata"]["generation"]
    assert there.plan is not None
    assert set(there.plan.targets.values()) == {0}
    assert undone["spec"]["to"] == {"undo": f"{POLICY}-back"}
    assert undone["status"]["engine"] == "Direct"
    assert back.plan is not None
    assert len(back.plan.targets) == 2
    reasons = [reason for reason, _ in live.resources.events(f"{POLICY}-back")]
    assert [r for r in reasons if r in ("Pending", "Planning", "Pausing", "Verifying", "Succeeded")][:5] == [
        "Pending",
        "Planning",
        "Pausing",
        "Verifying",
        "Succeeded",
    ]
    shown = live.kubectl("get", "-n", NAMESPACE, "orp", POLICY)
    assert "undo-back" in shown
    assert "Succeeded" in shown
    verdict = live.verdict()
    assert verdict.clean, verdict.complaints()


def test_a_policy_goes_back_to_the_record_that_spark_finds(live: Live) -> None:
    live.flowing()
    wanted = next(d for d in live.fleet.records() if d.partition == 1)

    where = f"partition = {wanted.partition} and offset >= {wanted.offset + 5} and string(value) is not null"
    asked = live.apply({"id": "found", "to": {"record": {"where": where, "noMatch": "Keep"}}})
    found = live.wait_ready("found")
    run = live.note("found", asked)
    live.flowing()

    status = found["status"]
    assert (status["phase"], status["engine"]) == ("Succeeded", "Spark")
    assert status["search"]["recordsRead"] == status["search"]["recordsTotal"] > 0
    assert run.plan is not None
    assert {p.partition: offset for p, offset in run.plan.targets.items()} == {1: wanted.offset + 5}
    assert any("no record was found there: 3 partitions" in note for note in run.plan.notes)
    verdict = live.verdict()
    assert verdict.clean, verdict.complaints()


@pytest.mark.nightly  # continuous integration kills each of them once, in pods
@pytest.mark.parametrize(("victim", "phase"), DEATHS)
def test_a_death_in_mid_run_is_finished_by_the_next_one_once(live: Live, phase: str, victim: str) -> None:
    live.flowing()
    run_id = f"{victim}-{phase}".lower()

    asked = live.apply({"id": run_id, "to": {"shiftBy": -40}, "engine": "Spark"})
    live.wait_phase(run_id, KILLED_IN[phase])
    if victim == "operator":
        live.operator.kill()
    else:
        assert live.kill_driver() >= 2, "spark-submit's Java and its Python were not found"
    killed_at = time.time()
    begun = live.document(run_id)
    assert begun is not None
    if victim == "operator":
        live.operator.start()
    reset = live.wait_ready(run_id)
    run = live.note(run_id, asked)
    live.flowing()
    silence = live.longest_silence(killed_at)
    print(f"{victim} killed in {phase}: over {time.time() - killed_at:.1f} s later, longest silence {silence:.1f} s")

    status = reset["status"]
    assert status["phase"] == "Succeeded"
    assert begun.result is None, "it had ended before the kill"
    assert run.result is not None
    assert run.result.finished_at.timestamp() > killed_at
    # A driver survives its operator and goes on; a driver that died is followed by another.
    assert (run.attempt, launch_number(status["application"])) == ((1, 1) if victim == "operator" else (2, 2))
    assert len(live.resources.run_documents(f"{POLICY}-{run_id}")) == 1
    assert run.plan is not None
    assert len(run.plan.targets) == PARTITIONS
    assert silence <= NOBODY_WAITS_LONGER_S
    verdict = live.verdict()
    assert verdict.ok, verdict.complaints()
    # Once: the consumers went to the target, and never again.
    mine = [reset for reset in verdict.resets if reset.run == len(live.runs) - 1]
    assert not any(reset.earlier_jumps or reset.stale for reset in mine), verdict.complaints()
