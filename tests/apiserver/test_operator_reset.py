"""Resets, carried out by the operator itself (engine Direct) against a real broker: by themselves, and for a policy."""

import secrets
import time
from typing import Any

import pytest

from apiserver.offsets import committed, leave_at, live_group, produce
from devstack import ApiServer, KafkaCluster
from support.clients import ConsumerFleet
from support.operator_process import OperatorProcess, Resources, condition_of, until, writes_in
from support.stack_fixtures import MakeTopic, Unique

pytestmark = pytest.mark.at_once(3)

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
def p() -> str:
    """The name of the test's resource, short enough for that of a policy."""
    return f"p-{secrets.token_hex(4)}"


@pytest.fixture
def group(kafka: KafkaCluster, make_topic: MakeTopic, unique: Unique) -> Group:
    return Group(kafka, make_topic(PARTITIONS), unique("group"))


# --- from beginning to end --------------------------------------------------------------------------------------------


def test_an_empty_group_is_reset_and_undone(shared: Resources, group: Group, p: str) -> None:
    shared.reset(p, group.name, {"offset": 10})
    done = shared.wait_phase(p, *FINAL)

    status = done["status"]
    assert status["phase"] == "Succeeded"
    assert status["engine"] == "Direct"
    assert status["way"] == "Unowned"
    assert status["plan"]["partitions"] == PARTITIONS
    assert status["plan"]["recordsReplayed"] == 120
    assert status["plan"]["configMap"] in shared.run_documents(p)
    assert condition_of(done, "Ready")["status"] == "True"
    assert condition_of(done, "Complete")["status"] == "True"
    assert condition_of(done, "Reconciling") == {}
    assert group.offsets == AT_10

    shared.reset(f"{p}-undo", group.name, {"undo": p})
    undone = shared.wait_phase(f"{p}-undo", *FINAL)

    assert undone["status"]["phase"] == "Succeeded"
    assert group.offsets == AT_50
    for name in (p, f"{p}-undo"):
        until(lambda name=name: "finalizers" not in shared.get_reset(name)["metadata"], "its finalizer is gone")
        assert [reason for reason, _ in shared.events(name)] == ["Pending", "Planning", "Applying", "Succeeded"]


def test_offsets_from_a_config_map(shared: Resources, group: Group, p: str) -> None:
    shared.config_map("offsets", csv=f"{group.topic},0,7\n{group.topic},2,9\n")
    shared.reset(p, group.name, {"configMap": {"name": "offsets", "key": "csv"}})

    shared.wait_phase(p, "Succeeded")

    assert group.offsets == {0: 7, 1: 50, 2: 9}


def test_one_whose_status_was_lost_is_not_run_again(
    connected: Resources, group: Group, p: str, operator: OperatorProcess
) -> None:
    connected.reset(p, group.name, {"offset": 10})
    connected.wait_phase(p, "Succeeded")
    group.stand_at(AT_50)

    connected.lose_status(p)
    # Without the digest that was in the status nobody knows whose document that is.
    refused = connected.wait_refused(p, "Forged")
    operator.kill()
    operator.start()
    connected.wait_connection("kafka")
    passes = operator.metric("tidegate_reconcile_seconds_count", kind="OffsetReset")
    until(
        lambda: operator.metric("tidegate_reconcile_seconds_count", kind="OffsetReset") >= passes + 3,
        "the next operator has looked at it",
    )

    assert group.offsets == AT_50
    assert "ask for another reset" in condition_of(refused, "Complete")["message"]
    assert condition_of(connected.get_reset(p), "Ready")["reason"] == "Forged"
    assert len(connected.run_documents(p)) == 1


# --- for a policy -----------------------------------------------------------------------------------------------------


def test_a_policy_creates_an_offset_reset_for_each_id_and_any_of_them_can_be_undone(
    shared: Resources, group: Group, p: str
) -> None:
    policy = shared.policy(p, group.name, {"id": "back", "to": {"offset": 10}})
    created = shared.wait_phase(f"{p}-back", "Succeeded")
    told = shared.wait_policy(p, reason="Succeeded")

    assert created["metadata"]["labels"]["tidegate.io/policy"] == p
    [owner] = created["metadata"]["ownerReferences"]
    assert (owner["uid"], owner["controller"]) == (policy["metadata"]["uid"], True)
    reset = told["status"]["reset"]
    assert (reset["id"], reset["name"], reset["phase"]) == ("back", f"{p}-back", "Succeeded")
    assert reset["recordsReplayed"] == 120
    assert condition_of(told, "Reset")["status"] == "True"
    assert group.offsets == AT_10

    shared.reset(f"{p}-by-hand", group.name, {"offset": 20})
    shared.wait_phase(f"{p}-by-hand", "Succeeded")
    shared.reset(f"{p}-by-hand-undo", group.name, {"undo": f"{p}-by-hand"})
    shared.wait_phase(f"{p}-by-hand-undo", "Succeeded")
    assert group.offsets == AT_10

    shared.patch_policy(p, reset={"id": "undo", "to": {"offset": None, "undo": "back"}})
    undone = shared.wait_phase(f"{p}-undo", *FINAL)

    assert undone["spec"]["to"] == {"undo": f"{p}-back"}
    assert undone["status"]["phase"] == "Succeeded"
    assert group.offsets == AT_50
    until(lambda: shared.get_policy(p)["status"]["reset"]["phase"] == "Succeeded", "the policy tells it")
    assert "finalizers" not in shared.get_policy(p)["metadata"]
    assert [reason for reason, _ in shared.events(p)] == ["Created", "Created"]


def test_a_reset_that_fails_leaves_its_policy_ready(shared: Resources, group: Group, p: str, unique: Unique) -> None:
    missing = [{"topic": unique("missing")}]
    shared.policy(p, group.name, {"id": "back", "to": {"offset": 10}, "partitions": missing})

    told = shared.wait_policy(p, reason="Failed")

    assert shared.get_reset(f"{p}-back")["status"]["phase"] == "Failed"
    assert (condition_of(told, "Reset")["status"], condition_of(told, "Reset")["reason"]) == ("False", "UnknownTopic")
    assert condition_of(told, "Stalled") == {}
    assert f"OffsetReset {p}-back" in condition_of(told, "Ready")["message"]
    assert group.offsets == AT_50


def test_a_policy_that_is_restored_does_not_run_its_id_again(
    connected: Resources, group: Group, p: str, operator: OperatorProcess
) -> None:
    """From a backup, or by Git in another Kubernetes cluster: what has run is known to Kafka."""
    asked = {"id": "once", "to": {"offset": 10}}
    connected.policy(p, group.name, asked)
    connected.wait_phase(f"{p}-once", "Succeeded")
    connected.wait_policy(p, reason="Succeeded")
    group.stand_at(AT_50)

    connected.delete_policy(p)
    connected.delete_reset(f"{p}-once")  # the garbage collector's work, where there is one
    until(lambda: connected.get("offsetresets", f"{p}-once") is None, "the reset is gone")
    operator.kill()
    connected.policy(p, group.name, asked)
    operator.start()
    told = connected.wait_policy(p, reason="AlreadyRan")

    assert told["status"]["reset"]["phase"] == "Succeeded"
    assert "does not run again" in condition_of(told, "Reset")["message"]
    assert connected.get("offsetresets", f"{p}-once") is None
    assert group.offsets == AT_50
    connected.patch_policy(p, reset={"id": "anew", "to": {"offset": 10}})
    connected.wait_phase(f"{p}-anew", "Succeeded")
    assert group.offsets == AT_10


def test_another_id_takes_back_the_reset_before_it(shared: Resources, group: Group, p: str) -> None:
    shared.policy(p, group.name, {"id": "first", "to": {"offset": 10}, "approval": "Manual"})
    shared.wait_phase(f"{p}-first", "AwaitingApproval")

    shared.patch_policy(p, reset={"id": "second", "to": {"offset": 20}, "approval": "Automatic"})
    shared.wait_phase(f"{p}-second", "Succeeded")

    assert shared.get("offsetresets", f"{p}-first") is None
    assert "Superseded" in [reason for reason, _ in shared.events(p)]
    assert group.offsets == dict.fromkeys(range(PARTITIONS), 20)


# --- approval, deadline -----------------------------------------------------------------------------------------------


def test_a_manual_reset_waits_for_its_approval_and_applies_the_stored_plan(
    shared: Resources, group: Group, p: str
) -> None:
    shared.reset(p, group.name, {"shiftBy": -10}, approval="Manual")
    waiting = shared.wait_phase(p, "AwaitingApproval")
    assert condition_of(waiting, "Reconciling")["reason"] == "AwaitingApproval"
    digest = waiting["status"]["digest"]
    assert f"tidegate approve {p} --plan {digest}" in condition_of(waiting, "Complete")["message"]

    shared.annotate_reset(p, approve=digest)
    group.stand_at(dict.fromkeys(range(PARTITIONS), 80))  # after the plan: it must not be made anew
    time.sleep(1.5)
    still = shared.get_reset(p)
    assert still["status"]["phase"] == "AwaitingApproval"
    assert "tidegate.io/approve no longer approves anything" in condition_of(still, "Complete")["message"]
    assert "AnnotationApprovesNothing" in [reason for reason, _ in shared.events(p)]

    shared.approve(p)
    shared.wait_phase(p, "Succeeded")
    assert group.offsets == dict.fromkeys(range(PARTITIONS), 40)


def test_a_plan_that_nobody_approves_fails_at_its_deadline(shared: Resources, group: Group, p: str) -> None:
    shared.reset(p, group.name, {"offset": 10}, approval="Manual", deadline="4s")

    failed = shared.wait_phase(p, *FINAL)

    assert failed["status"]["phase"] == "Failed"
    assert condition_of(failed, "Failed")["reason"] == "DeadlineExceeded"
    assert group.offsets == AT_50


def test_a_run_past_its_deadline_leaves_the_offsets_as_they_were(shared: Resources, group: Group, p: str) -> None:
    with live_group(group.bootstrap, group.name, group.topic, PARTITIONS) as fleet:
        fleet.wait_read_to({(group.topic, number): 99 for number in range(PARTITIONS)})
        shared.reset(p, group.name, {"offset": 10}, deadline="1s")

        ended = shared.wait_phase(p, "Failed", "RolledBack", timeout_s=90)

    assert condition_of(ended, "Failed")["reason"] in ("DeadlineExceeded", "DeadlinePassed")
    until(lambda: group.offsets == dict.fromkeys(range(PARTITIONS), 100), "the group stands at the end again")


# --- refusals and queues ----------------------------------------------------------------------------------------------


def test_a_group_and_a_topic_that_the_connection_does_not_allow_are_refused(
    connected: Resources, group: Group, p: str
) -> None:
    connected.patch("kafkaconnections", "kafka", {"spec": {"allow": {"groups": ["other-*"], "topics": ["*"]}}})
    connected.wait_connection("kafka")
    connected.reset(p, group.name, {"offset": 10})
    refused = connected.wait_refused(p, "GroupNotAllowed")
    assert "other-*" in condition_of(refused, "Stalled")["message"]

    connected.patch("kafkaconnections", "kafka", {"spec": {"allow": {"groups": ["*"], "topics": ["none"]}}})
    connected.wait_connection("kafka")
    connected.patch("offsetresets", p, {"spec": {"topics": [group.topic]}})
    connected.wait_refused(p, "TopicNotAllowed")

    assert group.offsets == AT_50
    assert [reason for reason, _ in connected.events(p)] == ["GroupNotAllowed", "TopicNotAllowed"]
    assert connected.run_documents(p) == {}


def test_what_cannot_be_done_is_refused_with_its_reason(shared: Resources, group: Group, p: str) -> None:
    cases: dict[str, tuple[dict[str, Any], str]] = {
        "record": ({"to": {"record": {"where": "key = 'x'"}}}, "SparkUnavailable"),
        "spark": ({"to": {"offset": 1}, "engine": "Spark"}, "SparkUnavailable"),
        "file": ({"to": {"configMap": {"name": "none", "key": "csv"}}}, "ConfigMapNotFound"),
    }
    for name, (spec, _) in cases.items():
        shared.reset(f"{p}-{name}", group.name, **spec)

    for name, (_, reason) in cases.items():
        body = shared.wait_refused(f"{p}-{name}", reason)
        assert condition_of(body, "Stalled")["status"] == "True"
    assert group.offsets == AT_50


def test_a_plan_that_nobody_has_approved_holds_up_no_other_reset(shared: Resources, group: Group, p: str) -> None:
    """And it is checked again once it is approved: what it was to replay has moved."""
    older, younger = f"{p}-older", f"{p}-younger"
    only: dict[str, Any] = {"partitions": [{"topic": group.topic, "partitions": [1]}]}
    shared.reset(older, group.name, {"offset": 10}, approval="Manual", topics=[group.topic])
    shared.wait_phase(older, "AwaitingApproval")
    time.sleep(1.1)  # creationTimestamp has whole seconds

    shared.reset(younger, group.name, {"offset": 5}, **only)
    shared.wait_phase(younger, "Succeeded")
    assert group.offsets == {0: 50, 1: 5, 2: 50}

    shared.approve(older)
    shared.wait_refused(older, "PlanOutdated")
    assert group.offsets == {0: 50, 1: 5, 2: 50}


def test_resets_that_are_approved_at_once_go_one_after_the_other(shared: Resources, group: Group, p: str) -> None:
    resets = {f"{p}-{n}": n for n in range(3)}
    for name, n in resets.items():
        only = [{"topic": group.topic, "partitions": [n]}]
        shared.reset(name, group.name, {"offset": 10 + n}, approval="Manual", partitions=only)
    for name in resets:
        shared.wait_phase(name, "AwaitingApproval")

    for name in resets:
        shared.approve(name)

    for name in resets:
        shared.wait_phase(name, "Succeeded")
    assert group.offsets == {0: 10, 1: 11, 2: 12}


def test_a_reset_waits_for_its_connection(
    resources: Resources, operator: OperatorProcess, group: Group, p: str
) -> None:
    resources.reset(p, group.name, {"offset": 10})
    resources.wait_refused(p, "WaitingForConnection")

    resources.connection("kafka", group.bootstrap)

    resources.wait_phase(p, "Succeeded")
    assert group.offsets == AT_10


# --- interrupted ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "phase",
    [
        pytest.param("Pending", marks=pytest.mark.nightly),
        "Pausing",
        pytest.param("Verifying", marks=pytest.mark.nightly),
    ],
)
def test_an_operator_that_is_killed_in_mid_run_is_followed_by_one_that_finishes_it(
    connected: Resources, group: Group, p: str, operator: OperatorProcess, phase: str
) -> None:
    with live_group(group.bootstrap, group.name, group.topic, PARTITIONS) as fleet:
        ends = {(group.topic, number): 99 for number in range(PARTITIONS)}
        fleet.wait_read_to(ends)
        asked = time.time()
        connected.reset(p, group.name, {"offset": 10}, inFlight="2s")
        until(lambda: has_reached(connected, p, phase), f"the run is in {phase}", pause_s=0.01)
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
        firsts = first_offsets(fleet, asked)

    assert done["status"]["phase"] == "Succeeded", done["status"]
    assert firsts == AT_10
    assert len(connected.run_documents(p)) == 1


def first_offsets(fleet: ConsumerFleet, since: float) -> dict[int, int]:
    """The first offset that each partition's owner got since then."""

    def first() -> dict[int, int]:
        found: dict[int, int] = {}
        for record in sorted(fleet.records(since=since), key=lambda r: r.t):
            found.setdefault(record.partition, record.offset)
        return found if len(found) == PARTITIONS else {}

    offsets: dict[int, int] = until(first, "every partition is read again")
    return offsets


def has_reached(resources: Resources, p: str, phase: str) -> bool:
    if phase == "Pending":
        return bool(resources.get_reset(p).get("status", {}).get("startedAt"))
    return any(f'"phase":"{phase}"' in document.get("journal.jsonl", "") for document in _documents(resources, p))


def _documents(resources: Resources, p: str) -> list[dict[str, str]]:
    return list(resources.run_documents(p).values())


def test_deleting_it_in_mid_run_puts_the_offsets_back(shared: Resources, group: Group, p: str) -> None:
    with live_group(group.bootstrap, group.name, group.topic, PARTITIONS) as fleet:
        fleet.wait_read_to({(group.topic, number): 99 for number in range(PARTITIONS)})
        shared.reset(p, group.name, {"offset": 10}, inFlight="20s")
        until(lambda: has_reached(shared, p, "Pausing"), "its consumers are paused")

        shared.delete_reset(p)

        until(lambda: shared.get("offsetresets", p) is None, "it goes", timeout_s=90)
        until(lambda: group.offsets == dict.fromkeys(range(PARTITIONS), 100), "the offsets are back")


def test_an_abandoned_reset_goes_at_once(shared: Resources, group: Group, p: str) -> None:
    shared.reset(p, group.name, {"offset": 10}, approval="Manual")
    shared.wait_phase(p, "AwaitingApproval")

    shared.annotate_reset(p, abandon="true")
    shared.delete_reset(p)

    until(lambda: shared.get("offsetresets", p) is None, "it goes")
    assert group.offsets == AT_50


def test_a_run_whose_document_was_removed_fails_and_is_not_begun_again(shared: Resources, group: Group, p: str) -> None:
    shared.reset(p, group.name, {"offset": 10}, approval="Manual")
    shared.wait_phase(p, "AwaitingApproval")

    for name in shared.run_documents(p):
        shared.core.delete_namespaced_config_map(name, shared.namespace)
    shared.approve(p)  # a plan that waits is left alone until then

    body = shared.wait_refused(p, "RunLost")
    assert body["status"]["phase"] == "Failed"
    assert group.offsets == AT_50


# --- at rest ----------------------------------------------------------------------------------------------------------


def test_nothing_is_written_when_nothing_changes(
    connected: Resources, group: Group, p: str, apiserver: ApiServer, operator: OperatorProcess
) -> None:
    connected.policy(p, group.name, {"id": "one", "to": {"offset": 10}})
    connected.policy("idle", group.name)
    connected.wait_phase(f"{p}-one", "Succeeded")
    connected.wait_policy(p, reason="Succeeded")
    connected.wait_policy("idle")
    until(lambda: "finalizers" not in connected.get_reset(f"{p}-one")["metadata"], "its finalizer is gone")
    passes = operator.metric("tidegate_reconcile_seconds_count", kind="KafkaConnection")
    since = len(apiserver.audit_log.read_text().splitlines())

    until(
        lambda: operator.metric("tidegate_reconcile_seconds_count", kind="KafkaConnection") >= passes + 4,
        "four more passes",
    )

    assert list(writes_in(apiserver.audit_log, connected.namespace, since)) == []


def test_twenty_plans_that_wait_to_be_approved_ask_for_nothing(
    connected: Resources, group: Group, operator: OperatorProcess
) -> None:
    connection = f"{connected.namespace}/kafka"
    for number in range(20):
        connected.reset(f"p{number:02}", group.name, {"offset": number}, approval="Manual")
    for number in range(20):
        connected.wait_phase(f"p{number:02}", "AwaitingApproval")

    began, looks = time.monotonic(), operator.metric("tidegate_observations_total", connection=connection)
    until(lambda: time.monotonic() > began + 5, "five seconds", pause_s=1)
    looked = operator.metric("tidegate_observations_total", connection=connection) - looks

    ticks = (time.monotonic() - began) / 0.3
    assert looked <= ticks + 2
    assert operator.metric("tidegate_observed_groups", connection=connection) == 0


def test_health_says_that_all_is_observed_and_what_is_not(connected: Resources, operator: OperatorProcess) -> None:
    assert operator.get("/healthz")[0] == 200
    assert "tidegate_runs" in operator.get("/metrics")[1]
    assert operator.get("/nothing")[0] == 404


def test_a_stopped_operator_ends_orderly(connected: Resources, operator: OperatorProcess) -> None:
    assert operator.stop() == 0

    assert not operator.runtime_directory.exists()
