"""OffsetResetPolicy.spec.reset, carried out by the operator itself (engine Direct) against a real broker."""

import time

import pytest

from apiserver.offsets import committed, leave_at, live_group, produce
from devstack import ApiServer, KafkaCluster
from support.clients import ConsumerFleet
from support.operator_process import OperatorProcess, Resources, condition_of, until, writes_in
from support.stack_fixtures import MakeTopic, Unique

PARTITIONS = 3
AT_50 = dict.fromkeys(range(PARTITIONS), 50)
AT_10 = dict.fromkeys(range(PARTITIONS), 10)
FINAL = ("Succeeded", "Failed", "RolledBack")
NOBODY_WAITS_LONGER_S = 15.0


class Group:
    """An Empty group that has committed offset 50 of 100 in each of three partitions."""

    def __init__(self, kafka: KafkaCluster, topic: str, group: str) -> None:
        self.bootstrap, self.topic, self.name = kafka.bootstrap, topic, group
        produce(kafka.bootstrap, topic, PARTITIONS, 100)
        self.stand_at(AT_50)

    def stand_at(self, offsets: dict[int, int]) -> None:
        leave_at(self.bootstrap, self.name, self.topic, offsets)

    @property
    def offsets(self) -> dict[int, int]:
        return committed(self.bootstrap, self.name, self.topic, PARTITIONS)


@pytest.fixture
def p(unique: Unique) -> str:
    """The name of the test's policy."""
    return unique("p")


@pytest.fixture
def group(kafka: KafkaCluster, make_topic: MakeTopic, unique: Unique) -> Group:
    return Group(kafka, make_topic(PARTITIONS), unique("group"))


# --- from beginning to end --------------------------------------------------------------------------------------------


def test_an_empty_group_is_reset_and_undone(shared: Resources, group: Group, p: str) -> None:
    shared.policy(p, group.name, {"id": "back", "to": {"offset": 10}})
    done = shared.wait_phase(p, *FINAL)

    reset = done["status"]["reset"]
    assert reset["phase"] == "Succeeded"
    assert reset["engine"] == "Direct"
    assert reset["way"] == "Direct"
    assert reset["plan"]["partitions"] == PARTITIONS
    assert reset["plan"]["recordsReplayed"] == 120
    assert reset["plan"]["configMap"] in shared.run_documents(p)
    assert condition_of(done, "Ready")["status"] == "True"
    assert condition_of(done, "Reset")["status"] == "True"
    assert condition_of(done, "Reconciling") == {}
    assert group.offsets == AT_10

    shared.patch_policy(p, reset={"id": "undo", "to": {"offset": None, "undo": "back"}})
    undone = shared.wait_phase(p, *FINAL, run="undo")

    assert undone["status"]["reset"]["phase"] == "Succeeded"
    assert group.offsets == AT_50
    assert [entry["id"] for entry in undone["status"]["history"]] == ["undo", "back"]
    until(lambda: "finalizers" not in shared.get_policy(p)["metadata"], "its finalizer is gone")
    reasons = [reason for reason, _ in shared.events(p)]
    assert reasons == ["Pending", "Planning", "Applying", "Succeeded"] * 2


def test_offsets_from_a_config_map(shared: Resources, group: Group, p: str) -> None:
    shared.config_map("offsets", csv=f"{group.topic},0,7\n{group.topic},2,9\n")
    shared.policy(p, group.name, {"id": "file", "to": {"configMap": {"name": "offsets", "key": "csv"}}})

    shared.wait_phase(p, "Succeeded")

    assert group.offsets == {0: 7, 1: 50, 2: 9}


def test_one_id_runs_once_whatever_happens_to_the_status(
    connected: Resources, group: Group, p: str, operator: OperatorProcess, kafka: KafkaCluster
) -> None:
    connected.policy(p, group.name, {"id": "once", "to": {"offset": 10}})
    connected.wait_phase(p, "Succeeded")
    group.stand_at(AT_50)

    connected.patch_policy(p, latest={"maxAge": "1h"})  # a new generation, the same id
    connected.wait_policy(p)
    connected.lose_status(p)
    # Without the digest that was in the status nobody knows whose document that is.
    refused = connected.wait_policy(p, ready=False, reason="Forged")
    operator.kill()
    operator.start()
    connected.wait_connection("kafka")
    generation = connected.patch_policy(p, latest={"maxAge": "2h"})["metadata"]["generation"]
    until(
        lambda: condition_of(connected.get_policy(p), "Ready").get("observedGeneration") == generation,
        "the new generation is seen",
    )

    assert group.offsets == AT_50
    assert "ask for another reset" in condition_of(refused, "Reset")["message"]
    assert condition_of(connected.get_policy(p), "Ready")["reason"] == "Forged"
    assert len(connected.run_documents(p)) == 1
    connected.patch_policy(p, reset={"id": "anew", "to": {"offset": 10}})
    connected.wait_phase(p, "Succeeded", run="anew")


def test_an_id_of_the_history_does_not_run_again(shared: Resources, group: Group, p: str) -> None:
    shared.policy(p, group.name, {"id": "first", "to": {"offset": 10}})
    shared.wait_phase(p, "Succeeded", run="first")
    shared.patch_policy(p, reset={"id": "second", "to": {"offset": 20}})
    shared.wait_phase(p, "Succeeded", run="second")
    group.stand_at(AT_50)

    shared.patch_policy(p, reset={"id": "first", "to": {"offset": 10}})
    body = shared.wait_phase(p, "Succeeded", run="first")

    assert group.offsets == AT_50
    assert [entry["id"] for entry in body["status"]["history"]].count("first") == 1


# --- approval, deadline -----------------------------------------------------------------------------------------------


def test_a_manual_reset_waits_for_its_approval_and_applies_the_stored_plan(
    shared: Resources, group: Group, p: str
) -> None:
    shared.policy(p, group.name, {"id": "ask", "to": {"shiftBy": -10}, "approval": "Manual"})
    waiting = shared.wait_phase(p, "AwaitingApproval")
    assert condition_of(waiting, "Reconciling")["reason"] == "AwaitingApproval"
    digest = waiting["status"]["reset"]["digest"]
    assert f"tidegate.io/approve: {digest}" in condition_of(waiting, "Reset")["message"]

    shared.annotate_policy(p, approve="ask")
    group.stand_at(dict.fromkeys(range(PARTITIONS), 80))  # after the plan: it must not be made anew
    time.sleep(1.5)
    still = shared.get_policy(p)
    assert still["status"]["reset"]["phase"] == "AwaitingApproval"
    assert "'ask', it approves nothing" in condition_of(still, "Reset")["message"]

    shared.annotate_policy(p, approve=digest)
    shared.wait_phase(p, "Succeeded")
    assert group.offsets == dict.fromkeys(range(PARTITIONS), 40)


def test_a_plan_that_nobody_approves_fails_at_its_deadline(shared: Resources, group: Group, p: str) -> None:
    shared.policy(p, group.name, {"id": "late", "to": {"offset": 10}, "approval": "Manual", "deadline": "4s"})

    failed = shared.wait_phase(p, *FINAL)

    assert failed["status"]["reset"]["phase"] == "Failed"
    assert condition_of(failed, "Stalled")["reason"] == "DeadlineExceeded"
    assert group.offsets == AT_50


def test_a_run_past_its_deadline_leaves_the_offsets_as_they_were(shared: Resources, group: Group, p: str) -> None:
    with live_group(group.bootstrap, group.name, group.topic, PARTITIONS) as fleet:
        fleet.wait_read_to({(group.topic, number): 99 for number in range(PARTITIONS)})
        shared.policy(p, group.name, {"id": "late", "to": {"offset": 10}, "deadline": "1s"})

        ended = shared.wait_phase(p, "Failed", "RolledBack", timeout_s=90)

    assert condition_of(ended, "Stalled")["reason"] in ("DeadlineExceeded", "DeadlinePassed")
    until(lambda: group.offsets == dict.fromkeys(range(PARTITIONS), 100), "the group stands at the end again")


# --- refusals and queues ----------------------------------------------------------------------------------------------


def test_a_group_and_a_topic_that_the_connection_does_not_allow_are_refused(
    connected: Resources, group: Group, p: str
) -> None:
    connected.patch("kafkaconnections", "kafka", {"spec": {"allow": {"groups": ["other-*"], "topics": ["*"]}}})
    connected.wait_connection("kafka")
    connected.policy(p, group.name, {"id": "no", "to": {"offset": 10}})
    refused = connected.wait_policy(p, ready=False, reason="GroupNotAllowed")
    assert "other-*" in condition_of(refused, "Stalled")["message"]

    connected.patch("kafkaconnections", "kafka", {"spec": {"allow": {"groups": ["*"], "topics": ["none"]}}})
    connected.wait_connection("kafka")
    connected.patch_policy(p, topics=[group.topic])
    connected.wait_policy(p, ready=False, reason="TopicNotAllowed")

    assert group.offsets == AT_50
    assert [reason for reason, _ in connected.events(p)] == ["GroupNotAllowed", "TopicNotAllowed"]
    assert connected.run_documents(p) == {}


def test_what_cannot_be_done_is_refused_with_its_reason(shared: Resources, group: Group, p: str) -> None:
    cases = {
        "record": ({"id": "a", "to": {"record": {"where": "key = 'x'"}}}, "SparkUnavailable"),
        "spark": ({"id": "a", "to": {"offset": 1}, "engine": "Spark"}, "SparkUnavailable"),
        "undo": ({"id": "a", "to": {"undo": "never"}}, "UndoRunNotFound"),
        "file": ({"id": "a", "to": {"configMap": {"name": "none", "key": "csv"}}}, "ConfigMapNotFound"),
    }
    for name, (reset, _) in cases.items():
        shared.policy(f"{p}-{name}", group.name, reset)

    for name, (_, reason) in cases.items():
        body = shared.wait_policy(f"{p}-{name}", ready=False, reason=reason)
        assert condition_of(body, "Stalled")["status"] == "True"
    assert group.offsets == AT_50


def test_a_plan_that_nobody_has_approved_holds_up_no_other_reset(shared: Resources, group: Group, p: str) -> None:
    """And it is checked again once it is approved: what it was to replay has moved."""
    older, younger = f"{p}-older", f"{p}-younger"
    only = {"partitions": [{"topic": group.topic, "partitions": "1"}]}
    shared.policy(older, group.name, {"id": "a", "to": {"offset": 10}, "approval": "Manual"}, topics=[group.topic])
    shared.wait_phase(older, "AwaitingApproval")
    time.sleep(1.1)  # creationTimestamp has whole seconds

    shared.policy(younger, group.name, {"id": "a", "to": {"offset": 5}, **only})
    shared.wait_phase(younger, "Succeeded")
    assert group.offsets == {0: 50, 1: 5, 2: 50}

    shared.approve(older)
    shared.wait_policy(older, ready=False, reason="PlanOutdated")
    assert group.offsets == {0: 50, 1: 5, 2: 50}


def test_policies_that_are_approved_at_once_go_one_after_the_other(shared: Resources, group: Group, p: str) -> None:
    policies = {f"{p}-{n}": n for n in range(3)}
    for policy, n in policies.items():
        reset = {"id": "a", "to": {"offset": 10 + n}, "approval": "Manual"}
        shared.policy(policy, group.name, {**reset, "partitions": [{"topic": group.topic, "partitions": str(n)}]})
    for policy in policies:
        shared.wait_phase(policy, "AwaitingApproval")

    for policy in policies:
        shared.approve(policy)

    for policy in policies:
        shared.wait_phase(policy, "Succeeded")
    assert group.offsets == {0: 10, 1: 11, 2: 12}


def test_a_reset_waits_for_its_connection(
    resources: Resources, operator: OperatorProcess, group: Group, p: str
) -> None:
    resources.policy(p, group.name, {"id": "early", "to": {"offset": 10}})
    resources.wait_policy(p, ready=False, reason="WaitingForConnection")

    resources.connection("kafka", group.bootstrap)

    resources.wait_phase(p, "Succeeded")
    assert group.offsets == AT_10


# --- interrupted ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("phase", ["Pending", "Pausing", "Verifying"])
def test_an_operator_that_is_killed_in_mid_run_is_followed_by_one_that_finishes_it(
    connected: Resources, group: Group, p: str, operator: OperatorProcess, phase: str
) -> None:
    with live_group(group.bootstrap, group.name, group.topic, PARTITIONS) as fleet:
        ends = {(group.topic, number): 99 for number in range(PARTITIONS)}
        fleet.wait_read_to(ends)
        asked = time.time()
        connected.policy(p, group.name, {"id": "hard", "to": {"offset": 10}, "inFlight": "2s"})
        until(lambda: _reached(connected, p, phase), f"the run is in {phase}", pause_s=0.01)
        operator.kill()
        begun = _documents(connected, p)
        attempts = max((int(document.get("attempt", "0")) for document in begun), default=0)
        assert not any("result.json" in document for document in begun), "it had ended before the kill"
        operator.start()

        until(
            lambda: any(int(document.get("attempt", "0")) > attempts for document in _documents(connected, p)),
            "the next operator has taken the run over",
            timeout_s=NOBODY_WAITS_LONGER_S,
        )
        done = connected.wait_phase(p, *FINAL, timeout_s=90)
        firsts = _first_offsets(fleet, asked)

    assert done["status"]["reset"]["phase"] == "Succeeded", done["status"]
    assert firsts == AT_10
    assert len(connected.run_documents(p)) == 1


def test_a_run_goes_on_when_the_api_server_was_away(
    connected: Resources, group: Group, p: str, apiserver: ApiServer
) -> None:
    with live_group(group.bootstrap, group.name, group.topic, PARTITIONS) as fleet:
        ends = {(group.topic, number): 99 for number in range(PARTITIONS)}
        fleet.wait_read_to(ends)
        asked = time.time()
        connected.policy(p, group.name, {"id": "hard", "to": {"offset": 10}, "inFlight": "2s"})
        until(lambda: _reached(connected, p, "Pausing"), "its consumers are paused", pause_s=0.01)
        if not apiserver.attached:  # somebody else's is not ours to kill
            apiserver.kill()
            apiserver.restart()

        done = connected.wait_phase(p, *FINAL, timeout_s=120)
        firsts = _first_offsets(fleet, asked)

    assert done["status"]["reset"]["phase"] == "Succeeded", done["status"]
    assert firsts == AT_10


def _first_offsets(fleet: ConsumerFleet, since: float) -> dict[int, int]:
    """The first offset that each partition's owner got since then."""

    def first() -> dict[int, int]:
        found: dict[int, int] = {}
        for record in sorted(fleet.records(since=since), key=lambda r: r.t):
            found.setdefault(record.partition, record.offset)
        return found if len(found) == PARTITIONS else {}

    offsets: dict[int, int] = until(first, "every partition is read again")
    return offsets


def _reached(resources: Resources, p: str, phase: str) -> bool:
    if phase == "Pending":
        return bool(resources.get_policy(p).get("status", {}).get("reset", {}).get("startedAt"))
    return any(f'"phase":"{phase}"' in document.get("journal.jsonl", "") for document in _documents(resources, p))


def _documents(resources: Resources, p: str) -> list[dict[str, str]]:
    return list(resources.run_documents(p).values())


def test_deleting_the_policy_in_mid_run_puts_the_offsets_back(shared: Resources, group: Group, p: str) -> None:
    with live_group(group.bootstrap, group.name, group.topic, PARTITIONS) as fleet:
        fleet.wait_read_to({(group.topic, number): 99 for number in range(PARTITIONS)})
        shared.policy(p, group.name, {"id": "gone", "to": {"offset": 10}, "inFlight": "20s"})
        until(lambda: _reached(shared, p, "Pausing"), "its consumers are paused")

        shared.delete_policy(p)

        until(lambda: shared.get("offsetresetpolicies", p) is None, "the policy goes", timeout_s=90)
        until(lambda: group.offsets == dict.fromkeys(range(PARTITIONS), 100), "the offsets are back")


def test_an_abandoned_policy_goes_at_once(shared: Resources, group: Group, p: str) -> None:
    shared.policy(p, group.name, {"id": "gone", "to": {"offset": 10}, "approval": "Manual"})
    shared.wait_phase(p, "AwaitingApproval")

    shared.annotate_policy(p, abandon="true")
    shared.delete_policy(p)

    until(lambda: shared.get("offsetresetpolicies", p) is None, "the policy goes")
    assert group.offsets == AT_50


def test_another_id_in_mid_run_settles_the_first_before_it_begins(shared: Resources, group: Group, p: str) -> None:
    shared.policy(p, group.name, {"id": "first", "to": {"offset": 10}, "approval": "Manual"})
    shared.wait_phase(p, "AwaitingApproval")

    shared.patch_policy(p, reset={"id": "second", "to": {"offset": 20}, "approval": "Automatic"})
    body = shared.wait_phase(p, "Succeeded", run="second")

    assert [(entry["id"], entry["phase"]) for entry in body["status"]["history"]] == [
        ("second", "Succeeded"),
        ("first", "Failed"),
    ]
    assert group.offsets == dict.fromkeys(range(PARTITIONS), 20)


def test_a_run_whose_document_was_removed_fails_and_is_not_begun_again(shared: Resources, group: Group, p: str) -> None:
    shared.policy(p, group.name, {"id": "lost", "to": {"offset": 10}, "approval": "Manual"})
    shared.wait_phase(p, "AwaitingApproval")

    for name in shared.run_documents(p):
        shared.core.delete_namespaced_config_map(name, shared.namespace)

    body = shared.wait_policy(p, ready=False, reason="RunLost")
    assert body["status"]["reset"]["phase"] == "Failed"
    assert group.offsets == AT_50


# --- at rest ----------------------------------------------------------------------------------------------------------


def test_nothing_is_written_when_nothing_changes(
    connected: Resources, group: Group, p: str, apiserver: ApiServer, operator: OperatorProcess
) -> None:
    connected.policy(p, group.name, {"id": "one", "to": {"offset": 10}})
    connected.policy("idle", group.name)
    connected.wait_phase(p, "Succeeded")
    connected.wait_policy("idle")
    until(lambda: "finalizers" not in connected.get_policy(p)["metadata"], "its finalizer is gone")
    passes = operator.metric("tidegate_reconcile_seconds_count", kind="KafkaConnection")
    since = len(apiserver.audit_log.read_text().splitlines())

    until(
        lambda: operator.metric("tidegate_reconcile_seconds_count", kind="KafkaConnection") >= passes + 4,
        "four more passes",
    )

    assert list(writes_in(apiserver.audit_log, connected.namespace, since)) == []


def test_twenty_policies_cost_one_describe_a_tick(
    connected: Resources, group: Group, p: str, operator: OperatorProcess
) -> None:
    connection = f"{connected.namespace}/kafka"
    for number in range(20):
        # They wait to be approved, so that twenty want to know at once.
        connected.policy(f"p{number:02}", group.name, {"id": "a", "to": {"offset": number}, "approval": "Manual"})
    for number in range(20):
        connected.wait_phase(f"p{number:02}", "AwaitingApproval")

    began, looks = time.monotonic(), operator.metric("tidegate_observations_total", connection=connection)
    until(lambda: time.monotonic() > began + 5, "five seconds", pause_s=1)
    looked = operator.metric("tidegate_observations_total", connection=connection) - looks

    ticks = (time.monotonic() - began) / 0.3
    assert 2 <= looked <= ticks + 2
    assert operator.metric("tidegate_observed_groups", connection=connection) == 1


def test_health_says_that_all_is_observed_and_what_is_not(connected: Resources, operator: OperatorProcess) -> None:
    assert operator.get("/healthz")[0] == 200
    assert "tidegate_runs" in operator.get("/metrics")[1]
    assert operator.get("/nothing")[0] == 404


def test_a_stopped_operator_ends_orderly(connected: Resources, operator: OperatorProcess) -> None:
    began = time.monotonic()

    assert operator.stop() == 0

    assert time.monotonic() - began < 15
    assert not operator.runtime_directory.exists()
