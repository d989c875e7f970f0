"""A fleet of live groups, reset by the operator itself (engine Direct) on a real broker: one plan, one approval."""

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AdminClient

from apiserver.offsets import commit, committed, leave_at, live_group, produce
from devstack import ApiServer, KafkaCluster
from support.operator_process import Resources, condition_of, until
from support.stack_fixtures import MakeTopic, Unique

PARTITIONS = 2
AT_10, AT_50, AT_END = (dict.fromkeys(range(PARTITIONS), at) for at in (10, 50, 100))
FINAL = ("Succeeded", "Failed", "RolledBack")


class Groups:
    """Groups `<base>-a` and so on, each of which has read all of one topic, or stands at 50 where it has no members."""

    def __init__(self, kafka: KafkaCluster, topic: str, base: str) -> None:
        self.bootstrap, self.topic, self.base = kafka.bootstrap, topic, base
        produce(kafka.bootstrap, topic, PARTITIONS, 100)

    def __getitem__(self, name: str) -> str:
        return f"{self.base}-{name}"

    def empty(self, *names: str) -> None:
        for name in names:
            leave_at(self.bootstrap, self[name], self.topic, AT_50)

    @contextlib.contextmanager
    def live(self, *names: str) -> Iterator[None]:
        with contextlib.ExitStack() as members:
            for name in names:
                fleet = members.enter_context(live_group(self.bootstrap, self[name], self.topic, PARTITIONS))
                fleet.wait_read_to({(self.topic, number): 99 for number in range(PARTITIONS)})
            for name in names:
                self.wait_at(AT_END, name)
            yield

    def at(self, name: str) -> dict[int, int]:
        return committed(self.bootstrap, self[name], self.topic, PARTITIONS)

    def wait_at(self, offsets: dict[int, int], name: str) -> None:
        until(lambda: self.at(name) == offsets, f"{self[name]} stands at {offsets}")


@pytest.fixture
def groups(kafka: KafkaCluster, make_topic: MakeTopic, unique: Unique) -> Groups:
    return Groups(kafka, make_topic(PARTITIONS), unique("payments"))


def test_live_groups_are_reset_by_one_plan_and_one_approval_and_undone(
    connected: Resources, kafka: KafkaCluster, apiserver: ApiServer, groups: Groups
) -> None:
    def plan(*options: str) -> str:
        command = [sys.executable, "-m", "tidegate.cli.main", "plan", "p", "-n", connected.namespace, *options]
        environment = os.environ | {"KUBECONFIG": str(apiserver.kubeconfig)}
        return subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout

    connected.patch("kafkaconnections", "kafka", {"spec": {"allow": {"groups": [groups["l*"], groups["e*"]]}}})
    connected.wait_connection("kafka")
    groups.empty("empty", "secret")
    with groups.live("left", "live"):
        connected.reset("p", [groups["*"]], {"offset": 10}, approval="Manual")
        waiting = connected.wait_phase("p", "AwaitingApproval")
        assert [groups.at(name) for name in ("empty", "left", "live")] == [AT_50, AT_END, AT_END]
        assert waiting["status"]["plan"]["partitions"] == 3 * PARTITIONS
        assert waiting["status"]["plan"]["recordsReplayed"] == PARTITIONS * (40 + 90 + 90)
        shown = plan()
        assert all(groups[name] in shown for name in ("empty", "left", "live"))
        assert f"Left out 1 group that the connection does not allow: {groups['secret']}" in " ".join(shown.split())
        read = json.loads(plan("--output", "json", "--group", groups["live"]))
        assert [p["target"] for p in read["plan"]["partitions"]] == [10] * PARTITIONS

        connected.approve("p")
        done = connected.wait_phase("p", *FINAL)

        assert (done["status"]["phase"], done["status"]["engine"]) == ("Succeeded", "Direct")
        assert done["status"]["fleet"]["reset"] == 3
        # Read again from there, in another round of the same members.
        for name in ("left", "live"):
            groups.wait_at(AT_END, name)
        assert (groups.at("empty"), groups.at("secret")) == (AT_10, AT_50)

    until(lambda: not connected.get_reset("p")["metadata"].get("finalizers"), "the reset is over")
    stored = connected.core.list_namespaced_config_map(
        connected.namespace, label_selector="tidegate.io/offset-reset=p"
    ).items
    owners = sorted([owner.kind for owner in document.metadata.owner_references] for document in stored)
    assert owners == [*3 * [["OffsetReset", "ConfigMap"]], ["OffsetReset", "KafkaConnection"]]
    connected.delete_reset("p")
    connected.reset("undo", [groups["*"]], {"undo": "p"})
    undone = connected.wait_phase("undo", *FINAL)

    assert undone["status"]["phase"] == "Succeeded"
    assert [groups.at(name) for name in ("empty", "left", "live")] == [AT_50, AT_END, AT_END]


@pytest.mark.parametrize(
    ("policy", "phase", "reason", "left"),
    [("Isolate", "Failed", "GroupsFailed", (AT_10, 9, 0)), ("All", "RolledBack", "OtherGroupFailed", (AT_50, 0, 9))],
    ids=["isolate", "all"],
)
def test_a_group_that_fails_leaves_the_others_as_planned_or_puts_all_back(
    shared: Resources,
    groups: Groups,
    kafka: KafkaCluster,
    make_topic: MakeTopic,
    unique: Unique,
    policy: str,
    phase: str,
    reason: str,
    left: tuple[dict[int, int], int, int],
) -> None:
    p, own, names = unique("p"), make_topic(1), [f"e{n}" for n in range(8)]
    groups.empty(*names)
    produce(kafka.bootstrap, own, 1, 100)
    # Behind more groups than are reset side by side: others are done before it is begun.
    commit(kafka.bootstrap, groups["z"], own, {0: 50})
    with groups.live("live"):
        shared.reset(p, [groups["*"]], {"offset": 10}, approval="Manual", failurePolicy=policy)
        shared.wait_phase(p, "AwaitingApproval")
        # What was planned for it is void: the topic is another one of the same name.
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
        admin.delete_topics([own])[own].result(30)
        until(lambda: own not in admin.list_topics(timeout=10).topics, f"{own} is gone")
        make_topic(1, name=own)
        shared.approve(p)

        ended = shared.wait_phase(p, *FINAL)

        counts = ended["status"]["fleet"]
        assert ended["status"]["phase"] == phase, ended["status"]
        assert condition_of(ended, "Failed")["reason"] == reason
        assert [f["group"] for f in counts["failures"]] == [groups["z"]]
        assert (counts["reset"], counts["failed"], counts["putBack"]) == (left[1], 1, left[2])
        assert [groups.at(name) for name in names] == [left[0]] * 8
        groups.wait_at(AT_END, "live")
