"""A policy's `spec.reset` is a template: one `OffsetReset` for each id, ever."""

import contextlib
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from support.killed import Killed
from support.policy_world import SPEC, PolicyWorld
from support.reset_world import CREATED, T0
from tidegate.control.records import Outcome, Run, RunKey
from tidegate.kafka.errors import NotAuthorized, Unavailable
from tidegate.kube.ports import POLICIES, RESETS, EventType, KubeFailure, KubeUnavailable
from tidegate.policy.feature import FeatureOutcome, PolicyView

KEY = RunKey("ns", "p", "one")


@pytest.fixture
def world(tmp_path: Path) -> Iterator[PolicyWorld]:
    made = PolicyWorld(tmp_path)
    yield made
    made.executor.shutdown()


def executed(world: PolicyWorld) -> dict[RunKey, Run]:
    return world.kafka.control.read().runs


def hang(world: PolicyWorld) -> None:
    """The reset begins, and its job does nothing."""
    world.runner.work = lambda _launch: None
    world.declare()
    while not world.runner.started:
        world.rounds(1)


def test_an_id_becomes_an_offset_reset_whose_outcome_the_policy_repeats(world: PolicyWorld) -> None:
    world.declare(deadline="5m")

    world.rounds()

    assert (world.resets, world.offset) == ({"p-one": "Succeeded"}, 10)
    reset = world.kube.get(RESETS, "ns", "p-one")
    assert reset["spec"] == {
        "connectionRef": {"name": "kafka"},
        "group": "payments",
        "to": {"offset": 10},
        "deadline": "5m",
    }
    assert reset["metadata"]["ownerReferences"][0]["uid"] == world.kube.get(POLICIES, "ns", "p")["metadata"]["uid"]
    told = world.policy["reset"]
    assert (told["id"], told["name"], told["phase"], told["recordsReplayed"]) == ("one", "p-one", "Succeeded", 40)
    assert world.said("Ready") == ("True", "Succeeded")
    assert world.said("Reset") == ("True", "Applied")
    assert executed(world)[KEY].outcome is Outcome.SUCCEEDED


def test_at_rest_nothing_is_written_or_asked(world: PolicyWorld) -> None:
    world.declare()
    world.rounds()
    written = world.kube.writes

    world.rounds(5)

    assert world.kube.writes == written


def test_a_reset_that_failed_leaves_the_policy_ready_and_says_where_to_look(world: PolicyWorld) -> None:
    world.declare(partitions=[{"topic": "no-such-topic"}])

    world.rounds()

    assert world.resets == {"p-one": "Failed"}
    assert world.said("Ready") == ("True", "Failed")
    assert world.said("Reset") == ("False", "UnknownTopic")
    assert "OffsetReset p-one" in world.message("Ready")
    assert world.said("Stalled") is None


def test_a_reset_that_is_refused_needs_somebody_and_the_policy_says_so(world: PolicyWorld) -> None:
    world.declare(to={"configMap": {"name": "none", "key": "offsets.csv"}})

    world.rounds()

    assert world.said("Ready") == ("False", "ConfigMapNotFound")
    assert world.said("Stalled") == ("True", "ConfigMapNotFound")


@pytest.mark.parametrize("steps", range(14))
def test_a_process_that_dies_anywhere_is_followed_by_one_that_runs_it_once(world: PolicyWorld, steps: int) -> None:
    world.declare()
    world.kube.dies_in = steps
    try:
        world.rounds()
    except Killed:
        world.restart()
    world.rounds()

    assert (world.resets, world.offset) == ({"p-one": "Succeeded"}, 10)
    assert world.kube.log.count("create") == 1
    assert world.said("Ready") == ("True", "Succeeded")
    assert executed(world)[KEY].outcome is Outcome.SUCCEEDED


def test_undo_names_an_earlier_id_of_the_policy(world: PolicyWorld) -> None:
    world.declare()
    world.rounds()

    world.declare("back", to={"undo": "one"})
    world.rounds()

    assert world.kube.get(RESETS, "ns", "p-back")["spec"]["to"] == {"undo": "p-one"}
    assert (world.resets, world.offset) == ({"p-one": "Succeeded", "p-back": "Succeeded"}, 50)


def test_the_requester_that_the_policy_names_is_that_of_its_reset(world: PolicyWorld) -> None:
    world.declare(requester="ann", approval="Manual")
    world.rounds()

    assert world.kube.get(RESETS, "ns", "p-one")["spec"]["requester"] == "ann"
    assert world.kube.get(RESETS, "ns", "p-one")["status"]["requester"] == "ann"


def test_an_annotation_of_the_policy_approves_nothing_and_it_is_said(world: PolicyWorld) -> None:
    world.declare(approval="Manual")
    world.rounds()
    digest = world.kube.get(RESETS, "ns", "p-one")["status"]["digest"]

    world.kube.change(POLICIES, "ns", "p", annotations={"tidegate.io/approve": digest})
    world.rounds()

    assert (world.resets, world.offset) == ({"p-one": "AwaitingApproval"}, 50)
    assert "annotations" not in world.kube.get(RESETS, "ns", "p-one")["metadata"]
    [said] = [h for h in world.kube.happenings_of("p") if h.reason == "AnnotationApprovesNothing"]
    assert said.type is EventType.WARNING
    assert "create an OffsetResetApproval instead" in said.message


# --- once -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("elsewhere", [False, True], ids=["restored", "in another Kubernetes cluster"])
def test_a_policy_that_comes_back_does_not_run_its_id_again(
    world: PolicyWorld, tmp_path: Path, elsewhere: bool
) -> None:
    world.declare()
    world.rounds()
    world.kafka.commit_directly("payments", {T0: 70})
    if elsewhere:
        kafka, world = world.kafka, PolicyWorld(tmp_path / "elsewhere")
        world.kafka = kafka
        [live] = world.live
        world.open_connection("kafka", live.uid, world.connection)
        world.reconciler = world.fresh_reconciler()
    else:
        world.remove()
        world.rounds(3)
    world.declare()

    world.rounds()

    assert (world.resets, world.offset) == ({}, 70)
    assert world.policy["reset"]["phase"] == "Succeeded"
    assert world.said("Ready") == ("True", "AlreadyRan")
    assert "give spec.reset.id a new value" in world.message("Reset").replace("Give", "give")

    world.declare("two", to={"offset": 20})
    world.rounds()
    assert world.offset == 20


def test_an_offset_reset_that_was_deleted_after_its_end_is_not_created_again(world: PolicyWorld) -> None:
    world.declare()
    world.rounds()
    world.kube.delete(RESETS, "ns", "p-one", CREATED)
    world.kafka.commit_directly("payments", {T0: 70})
    world.restart()

    world.rounds()

    assert (world.resets, world.offset) == ({}, 70)
    assert world.policy["reset"]["phase"] == "Succeeded"


@pytest.mark.parametrize("record", [True, False], ids=["known to Kafka", "by the status alone"])
def test_one_that_was_deleted_in_mid_run_is_not_created_again(world: PolicyWorld, record: bool) -> None:
    hang(world)
    world.rounds(2)
    world.kube.delete(RESETS, "ns", "p-one", world.clock.now().isoformat())
    for _ in range(30):
        for body in world.kube.list(RESETS):
            world._look(world.reconciler, body)
        world.clock.sleep(1)
    assert world.resets == {}
    if not record:
        world.kafka.control.note_runs({KEY: None})
    world.runner.work = lambda launch: world.runner.end(launch, "must not be started")

    world.rounds()

    assert (world.resets, world.offset) == ({}, 50)
    assert world.said("Reset") == ("False" if record else "Unknown", "AlreadyRan")


def test_how_one_ended_is_told_once_it_is_known(world: PolicyWorld) -> None:
    """The policy was created again while the OffsetReset of the one before was still under way."""
    hang(world)
    world.kube.delete(POLICIES, "ns", "p", CREATED)
    world.declare()
    world.rounds(3)
    assert world.said("Reset") == ("Unknown", "AlreadyRan")
    assert "is not known to have ended" in world.message("Reset")
    written = world.kube.writes
    world.kafka.control.failure = Unavailable("nobody answers")
    world._look(world.policies, world.kube.get(POLICIES, "ns", "p"))
    world.kafka.control.failure = None
    assert world.kube.writes == written

    uid = executed(world)[KEY].uid
    world.kafka.control.note_runs({KEY: Run(uid, 1_000, Outcome.ROLLED_BACK, 2_000)})
    world.rounds(2)

    assert world.policy["reset"]["phase"] == "RolledBack"
    assert world.said("Reset") == ("False", "AlreadyRan")
    assert "ended as RolledBack" in world.message("Ready")


def test_what_a_newer_version_has_noted_of_its_run_is_kept(world: PolicyWorld) -> None:
    world.declare()
    while "p-one" not in world.resets or not world.documents:
        world.rounds(1)
    of_newer = replace(executed(world)[KEY], version=2)
    world.kafka.control.note_runs({KEY: of_newer})

    world.rounds()

    assert world.resets == {"p-one": "Succeeded"}
    assert executed(world)[KEY] == of_newer


def test_one_that_is_gone_is_not_waited_for_while_its_connection_is_away(world: PolicyWorld) -> None:
    hang(world)
    world.rounds(2)
    world.kube.change(RESETS, "ns", "p-one", annotations={"tidegate.io/abandon": "true"})
    world.kube.delete(RESETS, "ns", "p-one", world.clock.now().isoformat())
    [live] = world.live
    world.live.troubled(live, "KafkaUnavailable", "nobody answers")
    for _ in range(40):
        if not world.resets:
            break
        world.rounds(1)

    world.rounds(2)

    assert world.resets == {}
    assert world.said("Ready") == ("True", "AlreadyRan")
    assert "phase" not in world.policy["reset"]


def test_one_that_was_deleted_before_it_began_is_created_again(world: PolicyWorld) -> None:
    world.ask("older", approval="Automatic")
    world.runner.work = lambda _launch: None
    world.declare()
    world.rounds(4)
    assert world.said("Reset") == ("Unknown", "WaitingForReset")
    first = world.kube.get(RESETS, "ns", "p-one")["metadata"]["uid"]

    world.kube.delete(RESETS, "ns", "p-one", CREATED)
    world.rounds(3)

    assert world.kube.get(RESETS, "ns", "p-one")["metadata"]["uid"] != first


def test_of_two_kubernetes_clusters_that_ask_at_once_one_runs_it(world: PolicyWorld) -> None:
    """Neither knows of the other before its OffsetReset is about to begin."""
    world.declare()
    world.rounds(2)
    assert world.resets == {"p-one": "Pending"}
    world.kafka.control.note_runs({KEY: Run("elsewhere/p-one", 1_000)})

    world.rounds()

    assert (world.resets, world.offset) == ({"p-one": "Failed"}, 50)
    assert world.said("Reset") == ("False", "AlreadyRan")
    assert "Nothing was changed" in world.message("Reset")
    assert executed(world)[KEY] == Run("elsewhere/p-one", 1_000)


def test_while_kafka_does_not_tell_whether_it_ran_nothing_is_created(world: PolicyWorld) -> None:
    world.kafka.control.failure = Unavailable("nobody answers")
    world.declare()

    world.rounds(3)

    assert world.resets == {}
    assert world.said("Ready") == ("False", "WaitingForConnection")
    assert "nobody answers" in world.message("Ready")
    world.kafka.control.failure = None
    world.rounds()
    assert world.resets == {"p-one": "Succeeded"}


def test_while_it_cannot_be_written_down_that_it_begins_it_waits_and_says_why(
    world: PolicyWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_records: object) -> None:
        raise NotAuthorized("write to topic c: not authorized: Write on topic c")

    world.declare(deadline="1m")
    with monkeypatch.context() as patched:
        patched.setattr(world.kafka.control, "note_runs", refuse)
        for _ in range(6):
            with contextlib.suppress(NotAuthorized):
                world.rounds(1)
        assert world.said("Ready") == ("False", "WaitingForConnection")
        assert "Write on topic c" in world.message("Ready")
        world.clock.sleep(60)
        world.rounds(3)

    assert (world.resets, world.offset) == ({"p-one": "Failed"}, 50)
    assert world.said("Reset") == ("False", "DeadlineExceeded")
    assert "Write on topic c" in world.message("Reset")


def test_one_that_was_left_behind_when_the_policy_was_deleted_still_counts(world: PolicyWorld) -> None:
    """As by `kubectl delete --cascade=orphan`, or before the garbage collector has come by."""
    world.declare()
    world.rounds()
    world.kube.delete(POLICIES, "ns", "p", CREATED)
    world.kafka.commit_directly("payments", {T0: 70})
    world.declare()

    world.rounds()

    assert (world.resets, world.offset) == ({"p-one": "Succeeded"}, 70)
    assert world.said("Ready") == ("True", "AlreadyRan")


@pytest.mark.parametrize(
    ("name", "approval", "offers", "phase"),
    [
        ("p-skip-0123456789ab", "Manual", True, "AwaitingApproval"),
        ("p-skip-0123456789ab", "Automatic", True, "Pending"),
        ("p-skip-0123456789ab", "Manual", False, "Pending"),
        ("p-other", "Manual", True, "Pending"),
    ],
)
def test_a_skip_that_the_policy_offers_waits_for_somebody_and_nothing_else_begins(
    world: PolicyWorld, name: str, approval: str, offers: bool, phase: str
) -> None:
    spec = {**SPEC, "stuckRecords": {"prepareSkip": offers}}
    world.kube.create(POLICIES, "ns", "p", spec, CREATED)
    body = world.kube.get(POLICIES, "ns", "p")
    world.kube.make(RESETS, body, name, {**SPEC, "to": {"offset": 51}, "approval": approval})

    world.rounds(5)

    assert (world.resets, world.offset) == ({name: phase}, 50)


@pytest.mark.parametrize("owner", ["the policy", "a policy before it", "no policy"])
def test_one_that_its_policy_does_not_ask_for_never_begins_and_blocks_nobody(world: PolicyWorld, owner: str) -> None:
    """Created late by a process that was cut off, or with an owner that somebody made up."""
    world.declare(None)
    body = world.kube.get(POLICIES, "ns", "p")
    metadata = dict(body["metadata"])
    if owner != "the policy":
        metadata["uid"] = "made-up"
    if owner == "no policy":
        metadata["name"] = "q"
    name = f"{metadata['name']}-one"
    world.kube.make(RESETS, {**body, "metadata": metadata}, name, {**SPEC, "to": {"offset": 30}})

    world.rounds(5)

    assert (world.resets, world.offset) == ({name: "Pending"}, 50)
    assert executed(world) == {}
    conditions = world.kube.get(RESETS, "ns", name)["status"]["conditions"]
    assert {c["reason"] for c in conditions if c["type"] == "Complete"} == {"NotAskedFor"}
    world.ask("younger", to={"offset": 20})
    world.rounds()
    assert world.offset == 20


def test_one_that_somebody_has_edited_before_it_began_is_created_anew(world: PolicyWorld) -> None:
    world.ask("older")
    world.runner.work = lambda _launch: None
    world.declare()
    world.rounds(4)
    spec = world.kube.get(RESETS, "ns", "p-one")["spec"]

    world.kube.change(RESETS, "ns", "p-one", spec={**spec, "to": {"offset": 99}})
    world.rounds(3)

    assert world.kube.get(RESETS, "ns", "p-one")["spec"] == spec


# --- another id, or none ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("instead", ["two", None])
def test_one_that_has_not_ended_is_taken_back_before_the_next(world: PolicyWorld, instead: str | None) -> None:
    work = world.runner.work
    hang(world)
    world.rounds(2)
    world.runner.work = work

    world.declare(instead, to={"offset": 20})
    world.rounds()

    assert world.resets == ({"p-two": "Succeeded"} if instead else {})
    assert world.offset == (20 if instead else 50)
    assert "Superseded" in [h.reason for h in world.kube.happenings_of("p")]
    assert world.finished.get(("Failed", "Deleted")) == 1, "it was put back, and not given up"
    assert world.said("Ready") == (("True", "Succeeded") if instead else ("True", "NoReset"))


@pytest.mark.parametrize("instead", ["two", None])
@pytest.mark.parametrize("passes", range(4))
def test_one_that_is_created_while_the_policy_is_changed_is_taken_back(
    world: PolicyWorld, passes: int, instead: str | None
) -> None:
    """A pass goes by the policy as it was read: it may create what nobody asks for any more."""
    world.declare()
    for _ in range(passes):
        world._look(world.policies, world.kube.get(POLICIES, "ns", "p"))
    read_before = world.kube.get(POLICIES, "ns", "p")
    world.declare(instead, to={"offset": 20})
    world._look(world.policies, read_before)

    world.rounds()

    assert world.resets == ({"p-two": "Succeeded"} if instead else {})
    assert world.offset == (20 if instead else 50)


@pytest.mark.parametrize("instead", ["two", None])
def test_one_whose_creation_went_unanswered_is_taken_back(
    world: PolicyWorld, monkeypatch: pytest.MonkeyPatch, instead: str | None
) -> None:
    make = world.kube.make

    def unanswered(*arguments: Any) -> Any:
        make(*arguments)
        raise KubeUnavailable("create OffsetReset ns/p-one: no answer")

    world.declare()
    with monkeypatch.context() as patched:
        patched.setattr(world.kube, "make", unanswered)
        while "p-one" not in world.resets:
            world._look(world.policies, world.kube.get(POLICIES, "ns", "p"))
    world.declare(instead, to={"offset": 20})

    world.rounds()

    assert world.resets == ({"p-two": "Succeeded"} if instead else {})
    assert world.offset == (20 if instead else 50)


def test_one_that_an_earlier_process_creates_late_is_taken_back(world: PolicyWorld) -> None:
    world.declare()
    while not world.kube.get(POLICIES, "ns", "p").get("status", {}).get("reset"):
        world._look(world.policies, world.kube.get(POLICIES, "ns", "p"))
    policy = world.kube.get(POLICIES, "ns", "p")
    assert world.resets == {}, "it is about to be created"
    world.kube.make(RESETS, policy, "p-one", {**SPEC, "to": {"offset": 10}})
    world.declare(None)

    world.rounds()

    assert (world.resets, world.offset) == ({}, 50)


def test_nobody_is_told_that_one_was_deleted_that_had_changed_just_then(
    world: PolicyWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    hang(world)
    monkeypatch.setattr(world.kube, "remove", lambda *_: False)

    world.declare("two", to={"offset": 20})
    world.rounds(2)

    assert "p-one" in world.resets
    assert "Superseded" not in [h.reason for h in world.kube.happenings_of("p")]


def test_one_that_has_ended_stays_when_it_is_asked_for_no_more(world: PolicyWorld) -> None:
    world.declare()
    world.rounds()

    world.declare(None)
    world.rounds(3)

    assert (world.resets, world.offset) == ({"p-one": "Succeeded"}, 10)
    assert world.said("Ready") == ("True", "NoReset")
    assert world.policy["reset"]["id"] == "one"


@pytest.mark.parametrize("instead", ["one", "two", None])
def test_one_whose_status_cannot_be_read_is_left_alone_and_nothing_else_is_begun(
    world: PolicyWorld, instead: str | None
) -> None:
    hang(world)
    world.rounds(2)
    reset = world.kube.get(RESETS, "ns", "p-one")
    world.kube.replace_status(RESETS, reset, {**reset["status"], "phase": "OfALaterVersion"})

    if instead != "one":
        world.declare(instead, to={"offset": 20})
    world.rounds(3)

    assert world.resets == {"p-one": "OfALaterVersion"}
    assert world.said("Stalled") == ("True", "UnreadableStatus")
    assert (world.policy["reset"]["id"], world.policy["reset"]["phase"]) == ("one", "Planning")
    assert "startedAt" in world.policy["reset"]


# --- a policy that is changed under one id ----------------------------------------------------------------------------


def correct(world: PolicyWorld, **spec: Any) -> None:
    reset = world.kube.get(POLICIES, "ns", "p")["spec"]["reset"]
    world.kube.change(POLICIES, "ns", "p", spec={**SPEC, "reset": reset, **spec})


@pytest.mark.parametrize(
    "change", [{"topics": ["orders"]}, {"connectionRef": {"name": "other"}}, {"spark": {"image": "mine"}}]
)
def test_an_offset_reset_that_has_not_begun_follows_its_policy(world: PolicyWorld, change: dict[str, Any]) -> None:
    world.ask("older", approval="Automatic")
    world.runner.work = lambda _launch: None
    world.declare()
    world.rounds(4)
    assert world.said("Reset") == ("Unknown", "WaitingForReset")
    [live] = world.live
    world.open_connection("other", live.uid, world.connection)

    correct(world, **change)
    world.rounds(4)

    reset = world.kube.get(RESETS, "ns", "p-one")
    assert {name: reset["spec"][name] for name in change} == change
    assert world.policy["reset"]["name"] == "p-one"
    assert [h.reason for h in world.kube.happenings_of("p")].count("PolicyChanged") == 1
    writes, uid = world.kube.writes, reset["metadata"]["uid"]
    world.rounds(4)
    assert (world.kube.writes, world.kube.get(RESETS, "ns", "p-one")["metadata"]["uid"]) == (writes, uid)


def test_one_of_which_the_api_server_drops_a_field_is_not_created_again_and_again(
    world: PolicyWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where the CRD of OffsetResets is older than that of policies."""
    make, made = world.kube.make, []

    def drop(kind: Any, owner: Any, name: str, spec: Any) -> Any:
        made.append(name)
        return make(kind, owner, name, {field: value for field, value in spec.items() if field != "spark"})

    monkeypatch.setattr(world.kube, "make", drop)
    world.ask("older", approval="Automatic")
    world.runner.work = lambda _launch: None
    world.declare()
    correct(world, spark={"image": "mine"})

    world.rounds(10)

    assert made == ["p-one"]


def test_an_offset_reset_that_has_begun_goes_on_as_it_is(world: PolicyWorld) -> None:
    hang(world)
    begun = world.kube.get(RESETS, "ns", "p-one")

    correct(world, topics=["orders"])
    world.rounds(3)

    there = world.kube.get(RESETS, "ns", "p-one")
    assert there["metadata"]["uid"] == begun["metadata"]["uid"]
    assert "deletionTimestamp" not in there["metadata"]


def test_an_offset_reset_that_is_suspended_is_not_replaced_by_one_that_is_not(world: PolicyWorld) -> None:
    world.ask("older", approval="Automatic")
    world.runner.work = lambda _launch: None
    world.declare()
    world.rounds(4)
    reset = world.kube.get(RESETS, "ns", "p-one")
    world.kube.change(RESETS, "ns", "p-one", spec={**reset["spec"], "suspend": True})

    correct(world, topics=["orders"])
    world.rounds(3)

    assert world.kube.get(RESETS, "ns", "p-one")["metadata"]["uid"] == reset["metadata"]["uid"]
    assert world.said("Reset") == ("Unknown", "Suspended")


# --- names, refusals --------------------------------------------------------------------------------------------------


def test_an_offset_reset_of_somebody_else_is_left_alone(world: PolicyWorld) -> None:
    world.ask("p-one", to={"offset": 30})
    world.declare()

    world.rounds()

    assert (world.resets, world.offset) == ({"p-one": "Succeeded"}, 30)
    assert world.said("Stalled") == ("True", "OffsetResetExists")
    world.declare("two")
    world.rounds()
    assert world.offset == 10


@pytest.mark.parametrize(
    ("name", "reset_id", "says"), [("a.b", "one", "with another name"), ("a" * 40, "b" * 30, "at most 63 characters")]
)
def test_names_that_do_not_fit_are_refused_with_what_to_do(
    world: PolicyWorld, name: str, reset_id: str, says: str
) -> None:
    world.declare(reset_id, name=name)

    world.rounds(2)

    [stalled] = [c for c in world.kube.get(POLICIES, "ns", name)["status"]["conditions"] if c["type"] == "Stalled"]
    assert stalled["reason"] == "InvalidSpec"
    assert "spec.reset.id" in stalled["message"]
    assert says in stalled["message"]


def test_an_undo_of_an_id_that_no_reset_of_the_policy_can_have_is_refused(world: PolicyWorld) -> None:
    world.declare("back", to={"undo": "x" * 63})

    world.rounds(2)

    assert world.said("Stalled") == ("True", "InvalidSpec")
    assert "spec.reset.to.undo" in world.message("Stalled")


def test_an_api_server_that_refuses_the_offset_reset_is_asked_again(
    world: PolicyWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> Any:
        raise KubeFailure("create OffsetReset ns/p-one: 403 exceeded quota")

    world.declare()
    with monkeypatch.context() as patched:
        patched.setattr(world.kube, "make", refuse)
        world.rounds(2)
        assert world.said("Ready") == ("False", "NotCreated")
        assert "exceeded quota" in world.message("Ready")

    world.rounds()
    assert world.resets == {"p-one": "Succeeded"}


@pytest.mark.parametrize("change", [{"reset": None}, {"topics": ["orders"]}], ids=["not asked for", "changed"])
def test_an_api_server_that_refuses_to_delete_it_keeps_the_policy_from_nothing_else(
    world: PolicyWorld, monkeypatch: pytest.MonkeyPatch, change: dict[str, Any]
) -> None:
    def refuse(*_: Any) -> Any:
        raise KubeFailure("delete OffsetReset ns/p-one: 403 denied by admission")

    feature = with_feature(world)
    [live] = world.live
    world.live.put(replace(live, frozen="somebody has frozen it"))
    world.declare()
    world.rounds(3)
    assert world.resets == {"p-one": "Pending"}
    spec = world.kube.get(POLICIES, "ns", "p")["spec"]
    changed = {name: value for name, value in {**spec, **change}.items() if value is not None}
    world.kube.change(POLICIES, "ns", "p", spec=changed)
    feature.asked.clear()

    with monkeypatch.context() as patched:
        patched.setattr(world.kube, "remove", refuse)
        world.rounds(2)
        assert feature.asked == ["keep", "keep"]
        assert world.said("Ready") == ("False", "NotDeleted")
        assert "denied by admission" in world.message("Reset")

    world.rounds(3)
    assert world.resets == ({} if "reset" in change else {"p-one": "Pending"})


def test_a_reset_that_can_not_be_named_keeps_the_policy_from_nothing_else(world: PolicyWorld) -> None:
    feature = with_feature(world)
    world.declare(to={"undo": "x" * 63})

    world.rounds(1)

    assert world.said("Stalled") == ("True", "InvalidSpec")
    assert feature.asked == ["keep"]


# --- features ---------------------------------------------------------------------------------------------------------


class Noting:
    """A feature that notes what it is asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def reconcile(self, policy: PolicyView) -> FeatureOutcome:
        self.asked.append("resetting" if policy.resetting else "keep")
        return FeatureOutcome(policy.status)

    async def forget(self, uid: str) -> None:
        self.asked.append(f"forget {uid}")

    async def disconnected(self, uid: str) -> None:
        self.asked.append(f"disconnected {uid}")


def with_feature(world: PolicyWorld) -> Noting:
    noting = Noting()
    world.features = (noting,)
    world.reconciler = world.fresh_reconciler()
    return noting


def test_features_are_told_that_the_connection_was_removed_and_not_that_it_is_in_trouble(world: PolicyWorld) -> None:
    feature = with_feature(world)
    world.declare(None)
    [live] = world.live
    uid = world.kube.get(POLICIES, "ns", "p")["metadata"]["uid"]

    world.rounds(1)
    world.live.troubled(live, "KafkaUnavailable", "nobody answers")
    world.rounds(1)
    assert feature.asked == ["keep"]
    world.live.drop("ns", "kafka", uid=live.uid)
    world.rounds(1)
    world.live.put(live)
    world.rounds(1)

    assert feature.asked == ["keep", f"disconnected {uid}", "keep"]


def test_a_policy_whose_connection_is_not_there_is_not_ready(world: PolicyWorld) -> None:
    world.declare(None)
    world.kube.change(POLICIES, "ns", "p", spec={**SPEC, "retention": {}})
    world.rounds(1)
    assert world.said("Ready") == ("True", "NoReset")
    [live] = world.live
    world.live.drop("ns", "kafka", uid=live.uid)

    world.rounds(1)
    assert world.said("Ready") == ("False", "WaitingForConnection")
    assert world.said("Reconciling") == ("True", "WaitingForConnection")
    assert "there is no usable KafkaConnection kafka in this namespace" in world.message("Ready")
    written = world.kube.writes
    world.rounds(3)
    assert world.kube.writes == written

    world.live.put(live)
    world.rounds(1)
    assert world.said("Ready") == ("True", "NoReset")
    assert world.said("Reconciling") is None


def keeping(world: PolicyWorld) -> None:
    """The policy keeps something, and is said to."""
    world.declare(None)
    world.kube.change(POLICIES, "ns", "p", spec={**SPEC, "retention": {}})
    world.rounds(1)
    assert world.said("Ready") == ("True", "NoReset")


def test_a_policy_whose_cluster_has_been_away_for_a_while_is_not_ready(world: PolicyWorld) -> None:
    keeping(world)
    [live] = world.live
    world.live.troubled(live, "KafkaUnavailable", "no broker answers")

    world.rounds(60)

    assert world.said("Ready") == ("False", "WaitingForConnection")
    assert world.said("Reconciling") == ("True", "WaitingForConnection")
    assert "KafkaConnection kafka is not ready (KafkaUnavailable)" in world.message("Ready")
    written = world.kube.writes
    world.live.troubled(live, "NotAuthorized", "the login is refused")
    world.rounds(3)
    assert "(NotAuthorized)" in world.message("Ready")
    assert world.kube.writes == written + 1

    world.live.put(live)
    world.rounds(1)
    assert world.said("Ready") == ("True", "NoReset")
    assert world.said("Reconciling") is None


def test_a_cluster_that_is_away_for_a_moment_now_and_then_leaves_its_policies_ready(world: PolicyWorld) -> None:
    keeping(world)
    [live] = world.live
    written = world.kube.writes

    for _ in range(10):
        world.live.troubled(live, "KafkaUnavailable", "no broker answers")
        world.rounds(20)
        world.live.put(live)
        world.rounds(1)

    assert world.said("Ready") == ("True", "NoReset")
    assert world.kube.writes == written


def test_a_new_process_does_not_call_ready_what_an_earlier_one_has_found_is_not(world: PolicyWorld) -> None:
    keeping(world)
    [live] = world.live
    world.live.troubled(live, "KafkaUnavailable", "no broker answers")
    world.rounds(60)
    world.restart()

    world.rounds(1)

    assert world.said("Ready") == ("False", "WaitingForConnection")


def test_a_policy_whose_spec_became_invalid_does_not_say_any_longer_what_its_features_said(world: PolicyWorld) -> None:
    body = world.kube.create(POLICIES, "ns", "p", {**SPEC, "retention": {"forever": True}}, CREATED)
    condition = {"reason": "Kept", "message": "", "lastTransitionTime": CREATED, "observedGeneration": 1}
    said = [{"type": kind, "status": "True", **condition} for kind in ("Ready", "Retained", "Injected")]
    world.kube.replace_status(POLICIES, body, {"observedGeneration": 1, "conditions": said})

    world.rounds(1)

    assert world.said("Stalled") == ("True", "InvalidSpec")
    assert [world.said(kind) for kind in ("Retained", "Injected")] == [("Unknown", "InvalidSpec")] * 2
    assert world.said("RecordStuck") is None


class Failing(Noting):
    """A feature that can't look while somebody says so."""

    def __init__(self) -> None:
        super().__init__()
        self.why = ""

    async def reconcile(self, policy: PolicyView) -> FeatureOutcome:
        if self.why:
            raise Unavailable(self.why)
        return await super().reconcile(policy)


def test_a_policy_that_can_not_be_looked_at_for_a_while_is_not_ready(world: PolicyWorld) -> None:
    feature = Failing()
    world.features = (feature,)
    world.reconciler = world.fresh_reconciler()
    keeping(world)
    feature.why = "the coordinator of group payments does not answer"
    world.rounds(10)
    assert world.said("Ready") == ("True", "NoReset")

    world.rounds(50)

    assert world.said("Ready") == ("False", "LookFailed")
    assert feature.why in world.message("Ready")
    written = world.kube.writes
    world.rounds(3)
    world.reconciler = world.fresh_reconciler()
    world.rounds(3)
    assert world.kube.writes == written

    feature.why = ""
    world.rounds(1)
    assert world.said("Ready") == ("True", "NoReset")


def test_features_know_of_the_policys_own_reset_also_after_a_restart(world: PolicyWorld) -> None:
    feature = with_feature(world)
    hang(world)
    world.rounds(2)
    world.reconciler = world.fresh_reconciler()
    feature.asked.clear()

    world.rounds(1)

    assert feature.asked == ["resetting"]


# --- what an earlier version has written ------------------------------------------------------------------------------

DATA = Path(__file__).parents[2] / "data" / "earlier"


def left_by(world: PolicyWorld, version: str, stage: str) -> None:
    """The policy as the API server gives it back under this version's schema, which has fewer fields."""
    policy = json.loads((DATA / version / f"{stage}.json").read_text())["policy"]
    status = policy["status"]
    known = ("id", "phase", "startedAt", "finishedAt")
    status["reset"] = {name: value for name, value in status["reset"].items() if name in known}
    known = ("id", "phase", "finishedAt")
    status["history"] = [{n: v for n, v in entry.items() if n in known} for entry in status.get("history", [])]
    world.kube.restore(policy, POLICIES)


def test_a_policy_that_made_backups_is_told_what_to_do_and_not_called_backed_up_any_more(world: PolicyWorld) -> None:
    spec = {**SPEC, "snapshots": {"schedule": "1h", "to": {"folder": {"path": "offsets"}}}}
    body = world.kube.create(POLICIES, "ns", "p", spec, CREATED)
    condition = {"reason": "SnapshotTaken", "message": "", "lastTransitionTime": CREATED, "observedGeneration": 1}
    conditions = [{"type": "Ready", "status": "True", **condition}, {"type": "BackedUp", "status": "True", **condition}]
    world.kube.replace_status(POLICIES, body, {"observedGeneration": 1, "conditions": conditions})

    world.rounds(1)

    assert world.said("Stalled") == ("True", "InvalidSpec")
    assert "spec.snapshots: is no longer part of a policy: make an OffsetBackup" in world.message("Stalled")
    assert {c["type"] for c in world.policy["conditions"]} == {"Ready", "Stalled"}


@pytest.mark.parametrize("version", ["821526f", "f3df9ba"])
def test_a_reset_that_an_earlier_version_has_run_does_not_run_again(world: PolicyWorld, version: str) -> None:
    left_by(world, version, "succeeded")
    world.rounds(3)
    assert (world.resets, world.offset) == ({}, 50)
    assert world.policy["reset"]["phase"] == "Succeeded"
    assert world.said("Ready") == ("True", "Succeeded")

    world.declare("two", to={"offset": 20})
    world.rounds()
    assert world.offset == 20
    world.declare("one", to={"offset": 30})
    world.rounds(3)
    assert world.offset == 20
    assert world.said("Reset") == ("True", "AlreadyRan")


@pytest.mark.parametrize("version", ["821526f", "f3df9ba"])
def test_a_plan_of_an_earlier_version_that_waited_for_approval_is_made_anew(world: PolicyWorld, version: str) -> None:
    left_by(world, version, "awaiting-approval")

    world.rounds()

    assert world.resets == {"p-one": "AwaitingApproval"}
    assert not world.kube.get(POLICIES, "ns", "p")["metadata"].get("finalizers")


@pytest.mark.parametrize("version", ["821526f", "f3df9ba"])
def test_a_reset_that_an_earlier_version_left_in_mid_flight_is_left_to_a_person(
    world: PolicyWorld, version: str
) -> None:
    left_by(world, version, "applying")

    world.rounds(3)

    assert world.resets == {}
    assert world.said("Stalled") == ("True", "BegunByEarlierVersion")
    assert "look at the group's offsets" in world.message("Stalled")
    assert not world.kube.get(POLICIES, "ns", "p")["metadata"].get("finalizers")
    world.declare("two", to={"offset": 20})
    world.rounds()
    assert (world.resets, world.offset) == ({"p-two": "Succeeded"}, 20)
