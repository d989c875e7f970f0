"""`tidegate why`: what is said of a group, by Kafka and by its resources, and what is said to be unknown."""

from __future__ import annotations

import json
import re
import unicodedata
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from support.fake_consumer import FakeConsumer
from support.fake_kafka import START, FakeKafka
from support.fake_kube import FakeKube
from tidegate.cli import why
from tidegate.cli.main import main
from tidegate.control.records import Claim, ClaimKey, Hold, HoldKey, Limit, LimitKey
from tidegate.incident.account import account_of
from tidegate.incident.as_json import as_json
from tidegate.incident.gather_kafka import look_at_kafka
from tidegate.incident.gather_kube import approvals_by_reset, kube_seen, of_cluster
from tidegate.incident.holders import HolderKind, holder_named
from tidegate.incident.listings import about_group
from tidegate.incident.seen import KafkaSeen, KubeSeen, Seen, Unseen
from tidegate.incident.sentences import Section, sections
from tidegate.kafka.errors import NotAuthorized, Unavailable
from tidegate.kafka.model import TopicPartition
from tidegate.kube.ports import CONNECTIONS, PAUSES, POLICIES, RESETS, KubeFailure, KubeUnavailable, uid_of

GROUP = "payments"
TOPIC = "__tidegate"
ORDERS = tuple(TopicPartition("orders", n) for n in range(3))
CREATED = "2026-11-20T11:00:00Z"
DIGEST = "ab" * 32


@pytest.fixture
def kafka() -> FakeKafka:
    kafka = FakeKafka()
    kafka.create_topic("orders", 3)
    kafka.fill("orders", 100, at=START - timedelta(seconds=100), every=timedelta(seconds=1))
    kafka.commit_directly(GROUP, {ORDERS[0]: 10, ORDERS[1]: 20})
    kafka.control.ensure()
    return kafka


@pytest.fixture
def kube() -> FakeKube:
    kube = FakeKube()
    kube.create(CONNECTIONS, "shop", "prod", {"bootstrapServers": "kafka:9092"}, CREATED)
    return kube


def said(kafka: KafkaSeen | None, kube: KubeSeen | None = None, *unseen: Unseen) -> str:
    return "\n".join(f"{s.title}\n" + "\n".join(s.sentences) for s in told(kafka, kube, *unseen))


def told(kafka: KafkaSeen | None, kube: KubeSeen | None = None, *unseen: Unseen) -> tuple[Section, ...]:
    seen = Seen(GROUP, START + timedelta(minutes=5), kafka, kube, unseen)
    return sections(seen, account_of(seen))


def by(kafka: FakeKafka) -> KafkaSeen:
    return look_at_kafka(kafka, GROUP, TOPIC)


def resources(kube: FakeKube, connection: tuple[str, str] | None = None) -> KubeSeen:
    return kube_seen(about_group(kube, GROUP, connection), where="namespace shop", connection=connection)


def condition(kind: str, value: str, reason: str, message: str) -> dict[str, Any]:
    return {"type": kind, "status": value, "reason": reason, "message": message, "lastTransitionTime": CREATED}


def with_status(kube: FakeKube, kind: Any, name: str, status: dict[str, Any]) -> None:
    kube.replace_status(kind, kube.get(kind, "shop", name), status)


# --- by Kafka ---------------------------------------------------------------------------------------------------------


def test_a_group_without_members_and_holds(kafka: FakeKafka) -> None:
    text = said(by(kafka))

    assert "No partition is held." in text
    assert "The group has no members, so nobody reads as a member. Consumers that assign partitions to" in text
    assert (
        "It has committed offsets for 2 partitions. Its lag, counted in offsets from there to the ends of the logs, "
        "is 170 records." in text
    )
    assert "orders-0 90 (committed 10, end 100)" in text
    assert "Not seen" not in text


def test_a_group_that_nobody_knows(kafka: FakeKafka) -> None:
    seen = Seen("nobody", START, look_at_kafka(kafka, "nobody", TOPIC), None)

    text = "\n".join(line for s in sections(seen, account_of(seen)) for line in s.sentences)

    assert 'The brokers know no group "nobody": it has neither members nor committed offsets.' in text


def test_who_owns_what_and_who_runs_the_agent(kafka: FakeKafka) -> None:
    FakeConsumer(kafka, GROUP, ["orders"], managed=True).start()
    kafka.clock.sleep(10)

    text = said(by(kafka))

    assert "Stable (classic protocol" in text
    assert "(runs the agent) owns orders 0-2" in text


def test_a_pause_that_is_obeyed_is_told_with_its_resource_reason_and_offset(kafka: FakeKafka, kube: FakeKube) -> None:
    pause = kube.create(
        PAUSES, "shop", "poison", {"connectionRef": {"name": "prod"}, "group": GROUP, "reason": "INC-1"}, CREATED
    )
    FakeConsumer(kafka, GROUP, ["orders"], managed=True).start()
    kafka.clock.sleep(10)
    kafka.control.hold({HoldKey(GROUP, "orders", 1, f"pause/c-1/{uid_of(pause)}"): Hold("INC-1")})
    kafka.clock.sleep(10)

    text = said(by(kafka), resources(kube))

    assert "1 partition of 3 is held, by 1 holder." in text
    assert re.search(r'orders 1: held by ConsumerGroupPause shop/poison since .+: "INC-1"\.', text)
    assert "  Paused: " in text
    assert "has acknowledged it, at offset " in text


def test_an_owner_without_the_agent_is_told_to_read_on(kafka: FakeKafka) -> None:
    FakeConsumer(kafka, GROUP, ["orders"]).start()
    kafka.clock.sleep(10)
    kafka.control.hold({HoldKey(GROUP, "orders", 0, "cli"): Hold()})

    text = said(by(kafka))

    assert "orders 0: held by a pause from a command line" in text
    assert "  NOT paused: " in text
    assert "It runs no agent and reads on, or has only just joined." in text


@pytest.mark.parametrize(
    ("name", "kind", "uid", "run"),
    [
        ("cli", HolderKind.PAUSE_BY_HAND, "", ""),
        ("pause/conn/u-1", HolderKind.PAUSE, "u-1", ""),
        ("reset/u-2/replay", HolderKind.RESET, "u-2", "replay"),
        ("reset/u-2/replay/g", HolderKind.RESET, "u-2", "replay"),
        ("reset/starts/u-3/x", HolderKind.DISCOVERY, "u-3", ""),
        ("reset/cli/cli-2026", HolderKind.RESET_BY_HAND, "", "cli-2026"),
        ("nightly", HolderKind.PROGRAM, "", ""),
        ("pause/u-1", HolderKind.PROGRAM, "", ""),
        ("reset/", HolderKind.PROGRAM, "", ""),
        ("reset/cli", HolderKind.PROGRAM, "", ""),
    ],
)
def test_a_holder_is_told_by_its_name(name: str, kind: HolderKind, uid: str, run: str) -> None:
    holder = holder_named(name)

    assert (holder.kind, holder.uid, holder.run) == (kind, uid, run)


def test_a_resource_that_is_not_found_is_not_invented(kafka: FakeKafka, kube: FakeKube) -> None:
    kafka.control.hold({HoldKey(GROUP, "orders", 0, "pause/c-1/gone"): Hold()})

    assert "(its name and state are unknown: Kubernetes was not asked)" in said(by(kafka))
    assert "(not among this group's resources in namespace shop: it may be in another namespace" in said(
        by(kafka), resources(kube)
    )


def test_what_is_not_listed_is_not_said_to_be_gone(kafka: FakeKafka) -> None:
    kafka.control.hold({HoldKey(GROUP, "orders", 0, "pause/c-1/gone"): Hold()})
    kube = Forbidding(KubeFailure("403 forbidden"), "consumergrouppauses")

    text = said(by(kafka), resources(kube))

    assert "with uid gone (unknown whether it exists: not all of namespace shop could be read)" in text


def test_a_member_that_has_acknowledged_nothing_is_not_said_to_run_the_agent(kafka: FakeKafka) -> None:
    FakeConsumer(kafka, GROUP, ["orders"]).start()
    kafka.clock.sleep(10)
    without_acks = replace(by(kafka), gates=None)

    assert "(has acknowledged nothing: it runs no agent, or has only just joined) owns orders 0-2" in said(by(kafka))
    assert "(unknown whether it runs the agent) owns orders 0-2" in said(without_acks)
    assert "It is unknown whether any partition is held" in said(without_acks)


def test_limits_and_turns_are_told(kafka: FakeKafka) -> None:
    seen = by(kafka)
    assert seen.gates is not None
    seen.gates.take(LimitKey(GROUP, "orders", 2, "replay"), Limit(40, "until noon"), 100, 1_000)
    for number, run in enumerate(("first", "second")):
        at_ms = int(START.timestamp() * 1000)
        seen.gates.take(ClaimKey(GROUP, run), Claim(run, "replay of May", 60_000), 101 + number, at_ms)

    text = said(seen)

    assert 'orders-2 is delivered only before offset 40, because of a limit of "replay": "until noon".' in text
    assert "Nothing, according to the control topic" not in text
    assert 'run "first" ("replay of May") has the group' in text
    assert "it may have died" in text
    assert 'run "second" ("replay of May") waits for its turn' in text


def test_what_kafka_refuses_is_said_to_be_unknown_and_the_rest_is_told(kafka: FakeKafka) -> None:
    kafka.fail("committed", NotAuthorized("describe group payments"))
    kafka.fail("groups", NotAuthorized("describe group payments"))

    text = said(by(kafka))

    assert "It is unknown whether the group has members." in text
    assert "Its committed offsets are unknown." in text
    assert "No partition is held." in text
    assert "the committed offsets: describe group payments" in text
    assert "2 things could not be seen, so this account is incomplete" in text


def test_brokers_that_are_away_are_asked_once(kafka: FakeKafka) -> None:
    kafka.fail("cluster", Unavailable("no broker has answered"))

    text = said(by(kafka))

    assert "Kafka was not reached: who owns what, the lag, and what is held are unknown." in text
    assert "Kafka: no broker has answered" in text


def test_without_a_control_topic_nothing_is_claimed_about_holds() -> None:
    kafka = FakeKafka()

    text = said(by(kafka))

    told = 'There is no control topic "__tidegate" on this cluster, or Tidegate is not allowed to read it, '
    assert f"{told}so no hold was seen." in text
    assert "No partition is held." not in text


# --- by Kubernetes ----------------------------------------------------------------------------------------------------


def test_a_reset_that_waits_for_a_person_is_told_with_the_command(kube: FakeKube) -> None:
    spec = {"connectionRef": {"name": "prod"}, "group": GROUP, "to": {"earliest": {}}, "approval": "Manual"}
    kube.create(RESETS, "shop", "replay", spec, CREATED)
    with_status(
        kube,
        RESETS,
        "replay",
        {
            "phase": "AwaitingApproval",
            "startedAt": "2026-11-20T12:00:00Z",
            "digest": DIGEST,
            "conditions": [condition("Complete", "Unknown", "AwaitingApproval", "it is planned")],
        },
    )

    text = said(None, resources(kube))

    assert "Kafka was not reached" in text
    assert "OffsetReset shop/replay waits for an approval." in text
    assert f"  To approve it: tidegate approve replay -n shop --plan {DIGEST}" in text
    assert "It is stopped and rolled back at 2026-11-20T12:15:00Z (in 10 minutes)" in text


def test_policies_and_connections_that_only_observe_are_told(kube: FakeKube) -> None:
    spec = {"connectionRef": {"name": "quiet"}, "groups": ["pay*"], "retention": {}, "discovery": {}}
    kube.create(CONNECTIONS, "shop", "quiet", {"bootstrapServers": "kafka:9092", "observe": True}, CREATED)
    kube.create(POLICIES, "shop", "keep", spec, CREATED)
    kube.create(POLICIES, "shop", "others", {**spec, "groups": ["orders-*"]}, CREATED)
    kube.create(POLICIES, "shop", "not-this", {**spec, "exclude": [GROUP]}, CREATED)

    text = said(None, resources(kube))

    assert "OffsetResetPolicy shop/keep looks every 200ms for new partitions" in text
    assert "keeps committed offsets from expiring" in text
    assert "others" not in text
    assert "not-this" not in text
    assert "It only observes (spec.observe)" in text


def test_a_record_that_the_group_does_not_get_past_is_told(kube: FakeKube) -> None:
    spec = {"connectionRef": {"name": "prod"}, "group": GROUP, "stuckRecords": {"prepareSkip": True}}
    kube.create(POLICIES, "shop", "look", spec, CREATED)
    record = {"topic": "orders", "partition": 1, "offset": 20, "committed": 20, "since": CREATED}
    record |= {"size": 7, "headers": 0, "skip": "look-skip-0123456789ab"}
    message = "group payments does not get past record orders-1@20 (7 bytes, 0 header(s)): since then it stands"
    stuck = condition("RecordStuck", "True", "Stuck", message)
    with_status(kube, POLICIES, "look", {"conditions": [stuck], "stuckRecords": {"stuck": 1, "records": [record]}})

    text = said(None, resources(kube))

    assert "looks for records that consumers do not get past" in text
    assert message in text
    assert "To look at the reset that would skip orders-1@20: tidegate plan look-skip-0123456789ab -n shop" in text


def test_a_frozen_connection_is_told(kube: FakeKube) -> None:
    freeze = {"reason": "INC-4711\x1b[2J", "by": "alice"}
    kube.create(CONNECTIONS, "shop", "ice", {"bootstrapServers": "kafka:9092", "freeze": freeze}, CREATED)
    kube.create(PAUSES, "shop", "p", {"connectionRef": {"name": "ice"}, "group": GROUP}, CREATED)

    before = said(None, resources(kube))
    told = {"conditions": [condition("Frozen", "True", "Frozen", "frozen by alice: INC-4711. Nothing new begins")]}
    with_status(kube, CONNECTIONS, "ice", told)
    after = said(None, resources(kube))

    assert "KafkaConnection shop/ice is frozen: nothing new begins through it." in before
    assert "It is to be frozen (spec.freeze): INC-4711\\x1b[2J. The operator has not confirmed that yet." in before
    assert "It is frozen by alice: INC-4711. Nothing new begins. tidegate thaw ice -n shop ends that." in after


def test_resources_of_another_cluster_are_left_out_and_counted(kube: FakeKube) -> None:
    kube.create(CONNECTIONS, "shop", "other", {"bootstrapServers": "other:9092"}, CREATED)
    with_status(kube, CONNECTIONS, "other", {"clusterId": "theirs"})
    for name, connection in (("ours", "prod"), ("theirs", "other")):
        kube.create(PAUSES, "shop", name, {"connectionRef": {"name": connection}, "group": GROUP}, CREATED)

    seen = of_cluster(resources(kube), "mine")
    only = resources(kube, connection=("shop", "other"))

    assert [p.common.name for p in seen.pauses] == ["ours"]
    assert [p.common.name for p in only.pauses] == ["theirs"]
    assert "1 resource for a group of this name" in said(None, seen)


class Forbidding(FakeKube):
    def __init__(self, failure: KubeFailure, *plurals: str) -> None:
        super().__init__()
        self._failure, self._plurals = failure, plurals
        self.asked: list[str] = []

    def list(self, kind: Any) -> Any:
        self.asked.append(kind.plural)
        if not self._plurals or kind.plural in self._plurals:
            raise self._failure
        return super().list(kind)


def test_what_may_not_be_listed_is_said_and_nothing_is_concluded_from_it() -> None:
    text = said(None, resources(Forbidding(KubeFailure("list offsetresets: 403 forbidden"), "offsetresets")))

    assert "offsetresets: list offsetresets: 403 forbidden" in text
    assert "No OffsetReset of the group" not in text


def test_an_api_server_that_is_away_is_asked_once() -> None:
    kube = Forbidding(KubeUnavailable("connection refused"))

    seen = resources(kube)

    assert (len(kube.asked), seen.listed) == (1, 0)
    assert len(seen.unseen) == 1


def test_a_status_of_another_version_is_not_read_as_an_empty_one(kube: FakeKube) -> None:
    kube.create(
        RESETS, "shop", "newer", {"connectionRef": {"name": "prod"}, "group": GROUP, "to": {"latest": {}}}, CREATED
    )
    with_status(kube, RESETS, "newer", {"phase": "Levitating"})

    assert "its status was written by another version of Tidegate, and can't be read" in said(None, resources(kube))


# --- hostile text -----------------------------------------------------------------------------------------------------

HOSTILE = "\x1b[2J\u202eevil\nsecond"


def test_foreign_text_drives_no_terminal(kafka: FakeKafka, kube: FakeKube) -> None:
    kafka.control.hold(
        {HoldKey(GROUP, "orders", 0, f"x{HOSTILE}".replace("\x1b", "").replace("\n", "")): Hold(HOSTILE)}
    )
    spec = {"connectionRef": {"name": "prod"}, "group": GROUP, "to": {"latest": {}}}
    kube.create(RESETS, "shop", "replay", spec, CREATED)
    with_status(kube, RESETS, "replay", {"conditions": [condition("Complete", "Unknown", "R", HOSTILE)]})

    for section in told(by(kafka), resources(kube), Unseen(HOSTILE, HOSTILE)):
        for line in (section.title, *section.sentences):
            assert not [c for c in line if unicodedata.category(c) in ("Cc", "Cf", "Zl", "Zp")], line


def test_programs_get_all_of_it(kafka: FakeKafka, kube: FakeKube) -> None:
    kafka.control.hold({HoldKey(GROUP, "orders", 0, "cli"): Hold(HOSTILE)})
    seen = Seen(GROUP, START, by(kafka), resources(kube), (Unseen("a", "b"),))
    account = account_of(seen)

    found = json.loads(json.dumps(as_json(seen, account, sections(seen, account))))

    assert (found["kind"], found["version"]) == ("GroupExplanation", 1)
    assert found["lag"] == 170
    assert [p["lag"] for p in found["partitions"]] == [90, 80]
    assert found["partitions"][0]["holds"][0]["reason"] == HOSTILE
    assert found["partitions"][0]["holds"][0]["holderKind"] == "PauseByHand"
    assert found["notSeen"] == [{"what": "a", "why": "b"}]
    assert found["resources"]["complete"] is True


# --- what is wrong on the command line --------------------------------------------------------------------------------


def test_a_bad_command_config_is_told_before_anything_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[object] = []
    monkeypatch.setattr(why, "kube_client", lambda *_, **__: asked.append("Kubernetes"))
    config = tmp_path / "client.properties"
    config.write_text("security.protocol=SASL_SSL\nssl.engine.factory.class=x\n")

    for more in ([], ["-c", "prod"], ["--bootstrap-server", "127.0.0.1:1"]):
        assert main(["why", "g", *more, "--command-config", str(config)]) == 1
        assert f"--command-config {config}: " in capsys.readouterr().err

    config.write_text("request.timeout.ms=soon\n")
    for more in ([], ["-c", "prod"], ["--bootstrap-server", "127.0.0.1:1"]):
        assert main(["why", "g", *more, "--command-config", str(config)]) == 1
        said = capsys.readouterr().err
        assert f"--command-config {config}: a setting is refused: Invalid value for configuration property" in said
        assert "(request.timeout.ms in Kafka's terms)" in said
        assert "Correct it in that file, or leave it out" in said
    assert asked == []
    config.write_text("security.protocol=SSL\n")
    for more, what in (
        ([], "no servers are known: give --bootstrap-server, or --connection"),
        (["-c", "prod"], "its servers are in the KafkaConnection, which was not read: give --bootstrap-server"),
    ):
        main(["why", "g", *more, "--command-config", str(config)])
        assert f"Kafka: not asked, because {what}" in capsys.readouterr().out
    assert len(asked) == 2


def test_a_connection_without_a_cluster_to_read_it_from_is_refused_and_what_to_do_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)

    assert main(["why", "g", "-c", "shop/prod"]) == 1
    told = capsys.readouterr()
    assert "--connection shop/prod is read from Kubernetes" in told.err
    assert "with KUBECONFIG or --context, or give --bootstrap-server" in told.err
    assert "Kafka was not reached" not in told.out

    # Given the servers, it only says whose resources are meant.
    main(["why", "g", "-c", "shop/prod", "--bootstrap-server", "127.0.0.1:1"])
    assert "resources in Kubernetes: no cluster is configured" in capsys.readouterr().out


def test_a_limit_that_stops_a_partition_is_told_in_short(kafka: FakeKafka) -> None:
    kafka.control.limit({LimitKey(GROUP, "orders", 0, "reset/5f/one"): Limit(30, "offset reset one")})

    [short] = [section for section in told(by(kafka)) if section.title == "In short"]

    assert "No partition is held." in short.sentences
    assert "1 partition has a limit: from some offset on, nothing is delivered." in short.sentences


def test_a_lag_that_is_not_known_is_no_lag_of_zero(kafka: FakeKafka) -> None:
    """A program that waits until a group has caught up would be told that it has."""
    kafka.fail("log_bounds", NotAuthorized("describe topic orders"))
    seen = Seen(GROUP, START, by(kafka), None)
    account = account_of(seen)

    found = as_json(seen, account, sections(seen, account))

    assert [p["committed"] for p in found["partitions"]] == [10, 20]
    assert found["lag"] is None
    seen = Seen(GROUP, START, by(kafka), None)
    assert as_json(seen, account_of(seen), ())["lag"] == 170


def test_commands_to_copy_are_for_the_cluster_that_was_asked(kube: FakeKube) -> None:
    """The current context may be another one, with resources of the same names."""
    spec = {"connectionRef": {"name": "prod"}, "group": GROUP, "to": {"earliest": {}}, "approval": "Manual"}
    for name, phase in (("waits", "AwaitingApproval"), ("done", "Succeeded")):
        kube.create(RESETS, "shop", name, spec, CREATED)
        with_status(kube, RESETS, name, {"phase": phase, "digest": DIGEST})
    frozen = condition("Frozen", "True", "Frozen", "frozen by alice")
    with_status(kube, CONNECTIONS, "prod", {"conditions": [frozen]})
    listed = about_group(kube, GROUP, ("shop", "prod"))

    text = said(None, kube_seen(listed, where="namespace shop", connection=("shop", "prod"), context="dr"))

    for command in ("tidegate plan waits", "tidegate approve waits", "tidegate undo done", "tidegate thaw prod"):
        assert f"{command} -n shop --context dr" in text
    assert "--context" not in said(None, kube_seen(listed, where="namespace shop", connection=("shop", "prod")))


def test_an_approval_whose_status_cannot_be_read_is_not_said_to_wait_for_the_operator() -> None:
    approval = {
        "metadata": {"namespace": "shop", "name": "a"},
        "spec": {"reset": "r"},
        "status": {"conditions": "in another form"},
    }

    (told,) = approvals_by_reset([approval])["shop", "r"]

    assert told == "OffsetResetApproval a: its status was written by another version of Tidegate, and can't be read"
