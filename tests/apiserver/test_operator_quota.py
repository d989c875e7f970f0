"""A KafkaConnection's quota, and a fleet in waves, on a real API server and broker."""

from __future__ import annotations

from confluent_kafka.admin import AdminClient

from apiserver.offsets import commit, committed, leave_at, produce
from devstack import KafkaCluster
from support.operator_process import Resources, condition_of, until
from support.stack_fixtures import MakeTopic, Unique

FINAL = ("Succeeded", "Failed", "RolledBack")


def test_one_runs_at_a_time_and_a_plan_that_is_too_large_changes_nothing(
    shared: Resources, kafka: KafkaCluster, make_topic: MakeTopic, unique: Unique
) -> None:
    topic, groups, name = make_topic(2), [unique("group") for _ in range(5)], unique("limited")
    produce(kafka.bootstrap, topic, 2, 100)
    for group in groups:
        leave_at(kafka.bootstrap, group, topic, dict.fromkeys(range(2), 50))
    quota = {"concurrentResets": 1, "recordsReplayedPerReset": 160}
    shared.connection(name, kafka.bootstrap, allow={"quota": quota})
    through = {"connectionRef": {"name": name}}
    first, second, large = unique("first"), unique("second"), unique("large")

    # It goes on for a while: a fleet that pauses after its first wave.
    shared.reset(first, [groups[0], groups[2]], {"offset": 10}, rollout={"waveSize": 1, "pause": "40s"}, **through)
    until(lambda: (shared.get_reset(first).get("status") or {}).get("fleet", {}).get("reset") == 1, "the first wave")
    shared.reset(second, groups[1], {"offset": 10}, **through)

    def says() -> str:
        return str(condition_of(shared.get_reset(second), "Complete").get("message"))

    until(lambda: "allows 1 reset(s) at once" in says(), "the second waits")
    assert f"/{first})" in says()
    assert condition_of(shared.get_reset(second), "Complete")["reason"] == "WaitingForQuota"
    assert committed(kafka.bootstrap, groups[1], topic, 2) == {0: 50, 1: 50}

    shared.delete_reset(first)
    done = shared.wait_phase(second, *FINAL)

    assert done["status"]["phase"] == "Succeeded", done["status"]
    shared.reset(large, groups[3:], {"offset": 0}, **through)
    refused = shared.wait_phase(large, *FINAL)
    said = condition_of(refused, "Failed")
    assert said["reason"] == "QuotaExceeded"
    assert (
        "200 record(s) read again instead of at most 160 (spec.allow.quota.recordsReplayedPerReset)" in said["message"]
    )
    assert committed(kafka.bootstrap, groups[3], topic, 2) == {0: 50, 1: 50}


def test_a_rollout_pauses_between_waves_and_stops_at_the_first_failure(
    shared: Resources, kafka: KafkaCluster, make_topic: MakeTopic, unique: Unique
) -> None:
    topic, own, base, name = make_topic(1), make_topic(1), unique("payments"), unique("rollout")
    produce(kafka.bootstrap, topic, 1, 100)
    produce(kafka.bootstrap, own, 1, 100)
    for letter in "abef":
        leave_at(kafka.bootstrap, f"{base}-{letter}", topic, {0: 50})
    commit(kafka.bootstrap, f"{base}-c", own, {0: 50})
    rollout = {"waveSize": "40%", "pause": "2s"}
    shared.reset(name, [f"{base}-*"], {"offset": 10}, approval="Manual", rollout=rollout)
    waiting = shared.wait_phase(name, "AwaitingApproval")
    counts = waiting["status"]["fleet"]
    assert (counts["wave"], counts["waves"], counts["notBegun"]) == (0, 3, 5)
    # What was planned for the third group is void: its topic is another one of the same name.
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.delete_topics([own])[own].result(30)
    until(lambda: own not in admin.list_topics(timeout=10).topics, f"{own} is gone")
    make_topic(1, name=own)

    shared.approve(name)
    ended = shared.wait_phase(name, *FINAL)

    counts = ended["status"]["fleet"]
    assert condition_of(ended, "Failed")["reason"] == "RolloutStopped", ended["status"]
    assert (counts["wave"], counts["waves"], counts["failed"]) == (2, 3, 1)
    # The other group of the same wave may have been under way.
    assert (counts["reset"], counts["notBegun"]) in ((2, 2), (3, 1))
    at = {letter: committed(kafka.bootstrap, f"{base}-{letter}", topic, 1)[0] for letter in "abef"}
    assert (at["a"], at["b"], at["f"]) == (10, 10, 50)
