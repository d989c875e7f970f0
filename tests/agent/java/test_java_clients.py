"""Java's consumers obey gates: the scenes of the Python clients on a real broker, and what only Java's clients have."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from agent.java.conftest import Jvms
from agent.java.matrix import UNGOVERNED
from devstack import KafkaCluster
from support import gate_scenes, java_scenes
from support.gated_applications import Scene
from support.java_applications import SMALLRYE_CLIENT, Java, JavaProcess, Packaging, agent_environment
from support.stack_fixtures import MakeTopic, Unique
from tidegate.reset.model.result import RunResult
from tidegate.reset.planning.refusals import UNSUPPORTED_GROUP
from tidegate.resources.reset import ResetPhase

pytestmark = pytest.mark.at_once(2)

NEWEST = Java("4.3.1", "consumer")
CLASSIC = Java("4.3.1", "classic")
OLDEST = Java("2.8.2", "classic")
BOOT = Java("3.9.2", packaging=Packaging.BOOT)
SMALLRYE = Java(SMALLRYE_CLIENT, packaging=Packaging.SMALLRYE)
QUARKUS = Java(SMALLRYE_CLIENT, packaging=Packaging.QUARKUS)
STREAMS = Java("3.9.2", packaging=Packaging.STREAMS)
BOTH = (NEWEST, OLDEST)


def first_by_day(*values: Any, days: int = 1) -> list[Any]:
    """As parameters; only the first ones are tried outside the nightly run, which takes them all."""
    once = dict.fromkeys(values)
    return [pytest.param(*v, marks=() if number < days else pytest.mark.nightly) for number, v in enumerate(once)]


def of_both(*plays: Callable[..., None], days: int) -> list[Any]:
    """Each with both clients: by day the newest one, in the first plays."""
    newest = [(NEWEST, play) for play in plays]
    return first_by_day(*newest, *((OLDEST, play) for play in plays), days=days)


def named(value: Any) -> str:
    """The test's name has a scene's name, and a Java's words."""
    return str(getattr(value, "__name__", value))


def test_without_the_agent_a_gate_is_not_obeyed(scene: Scene) -> None:
    """What the other tests see is the agent's work."""
    with JavaProcess(NEWEST, {}) as jvm:
        is_not_obeyed(scene, jvm)


@pytest.mark.nightly
def test_a_consumer_that_cannot_be_governed_reads_on_and_the_log_says_so_once(scene: Scene, control_topic: str) -> None:
    with JavaProcess(UNGOVERNED, agent_environment(control_topic)) as jvm:
        is_not_obeyed(scene, jvm)
    assert jvm.log.count("does not govern") == 1, jvm.log
    assert not scene.client.managed_members(scene.group)


def is_not_obeyed(scene: Scene, jvm: JavaProcess) -> None:
    """A gate of a partition that a consumer in this JVM reads."""
    application = scene.application(jvm.application)
    scene.flowing()
    epoch = scene.hold()
    with pytest.raises(AssertionError, match="an ack of epoch"):
        scene.acked(epoch, seconds=3.0)
    held_at = time.monotonic()
    scene.flowing(0, 1, since=held_at)
    application.stop()


@pytest.mark.parametrize(("java", "play"), of_both(*gate_scenes.AT_ANY, days=6), ids=named)
def test_gates_are_obeyed(scene: Scene, jvms: Jvms, java: Java, play: gate_scenes.Play) -> None:
    play(scene, partial(scene.application, jvms(java).application))


@pytest.mark.parametrize(
    ("java", "commit", "play"),
    first_by_day(
        (NEWEST, "auto", gate_scenes.it_stands_still_and_goes_on_where_it_was),
        (OLDEST, "position", gate_scenes.after_a_reset_it_goes_on_at_the_target),
        *(
            (java, how, play)
            for java in BOTH
            for how in java_scenes.commits_of(java)
            for play in (
                gate_scenes.it_stands_still_and_goes_on_where_it_was,
                gate_scenes.after_a_reset_it_goes_on_at_the_target,
            )
        ),
        days=2,
    ),
    ids=named,
)
def test_however_it_commits(scene: Scene, jvms: Jvms, java: Java, commit: str, play: gate_scenes.Play) -> None:
    play(scene, partial(scene.application, jvms(java).application, commit=commit))


@pytest.mark.parametrize(
    ("java", "how"),
    first_by_day(
        (OLDEST, "transaction-of-group"),
        (NEWEST, "transaction"),
        (NEWEST, "manual"),
        *((java, how) for java in BOTH for how in java_scenes.commits_of(java) if how != "auto"),
        days=3,
    ),
    ids=named,
)
def test_commits_of_a_paused_partition_change_nothing(scene: Scene, jvms: Jvms, java: Java, how: str) -> None:
    start = partial(scene.application, jvms(java).application)
    java_scenes.its_commits_of_a_paused_partition_change_nothing(scene, start, how)


@pytest.mark.parametrize(
    ("java", "play"),
    of_both(
        java_scenes.a_batch_in_hand_is_waited_for,
        java_scenes.it_is_woken_while_it_is_paused,
        gate_scenes.a_limit_is_where_it_closes,
        gate_scenes.a_limit_within_a_batch_is_where_it_closes,
        days=1,
    ),
    ids=named,
)
def test_what_it_does_meanwhile(scene: Scene, jvms: Jvms, java: Java, play: gate_scenes.Play) -> None:
    play(scene, partial(scene.application, jvms(java).application))


@pytest.mark.parametrize("java", first_by_day((OLDEST,), (CLASSIC,)), ids=named)
def test_an_offset_that_was_asked_for_before_a_reset(scene: Scene, jvms: Jvms, java: Java) -> None:
    start = partial(scene.application, jvms(java).application)
    java_scenes.an_answer_that_its_client_has_kept_is_not_where_it_goes_on(scene, start)


@pytest.mark.nightly
@pytest.mark.parametrize("java", [CLASSIC, OLDEST], ids=named)
def test_a_cooperative_rebalance(scene: Scene, jvms: Jvms, java: Java) -> None:
    config = {"partition.assignment.strategy": java.class_name(java_scenes.COOPERATIVE)}
    start = partial(scene.application, jvms(java).application, config=config)
    gate_scenes.a_rebalance_commits_nothing_and_the_new_owner_stays_paused(scene, start)


@pytest.mark.nightly
def test_records_polled_by_a_number_of_milliseconds(scene: Scene, jvms: Jvms) -> None:
    start = partial(scene.application, jvms(OLDEST).application, style="number")
    gate_scenes.after_a_reset_it_goes_on_at_the_target(scene, start)


@pytest.mark.parametrize("java", first_by_day((NEWEST,), (OLDEST,)), ids=named)
def test_a_long_poll_delays_neither_the_ack_nor_the_release(quiet_scene: Scene, jvms: Jvms, java: Java) -> None:
    start = partial(quiet_scene.application, jvms(java).application)
    java_scenes.a_long_poll_delays_neither_the_ack_nor_the_release(quiet_scene, start)


@pytest.mark.nightly
@pytest.mark.parametrize("java", BOTH, ids=named)
def test_only_the_group_that_is_held_stands_still(
    scene: Scene, jvms: Jvms, java: Java, unique: Unique, control_topic: str
) -> None:
    jvm = jvms(java)
    other = Scene(scene.bootstrap, scene.topic, unique("other"), writes=False, control_topic=control_topic)
    with closing(other):
        start, start_other = (partial(one.application, jvm.application) for one in (scene, other))
        java_scenes.only_the_group_that_is_held_stands_still(scene, other, start, start_other)


@pytest.mark.parametrize(("style", "commit"), first_by_day(*java_scenes.LISTENERS, days=1))
def test_listeners_of_spring_kafka(scene: Scene, jvms: Jvms, style: str, commit: str) -> None:
    start = partial(scene.application, jvms(BOOT).application, style=style, commit=commit)
    java_scenes.a_listener_is_paused_and_reset(scene, start)


@pytest.mark.parametrize("commit", first_by_day(("throttled",), ("latest",), ("ignore",)))
def test_commits_of_smallrye(quiet_scene: Scene, jvms: Jvms, commit: str) -> None:
    """By each strategy of its Kafka connector, which is Quarkus'."""
    start = partial(quiet_scene.application, jvms(SMALLRYE).application, style="smallrye-listener", commit=commit)
    java_scenes.its_commits_go_on_after_resets(quiet_scene, start)


@pytest.mark.nightly
@pytest.mark.parametrize("commit", ["throttled", "latest", "ignore"])
def test_commits_of_quarkus(quiet_scene: Scene, control_topic: str, commit: str) -> None:
    """The application that Quarkus starts, which a process does once."""
    with JavaProcess(QUARKUS, agent_environment(control_topic)) as jvm:
        start = partial(quiet_scene.application, jvm.application, style="quarkus-listener", commit=commit)
        java_scenes.its_commits_go_on_after_resets(quiet_scene, start)


@pytest.mark.nightly
@pytest.mark.parametrize("group", java_scenes.KINDS_OF_GROUPS)
@pytest.mark.parametrize("commit", ["throttled", "ignore"])
def test_commits_of_quarkus_without_the_agent(quiet_scene: Scene, tmp_path: Path, commit: str, group: str) -> None:
    protocol, config = java_scenes.KINDS_OF_GROUPS[group]
    with JavaProcess(replace(QUARKUS, protocol=protocol), {}) as jvm:
        start = partial(
            quiet_scene.application, jvm.application, style="quarkus-listener", commit=commit, config=config
        )
        java_scenes.its_commits_go_on_after_a_run(quiet_scene, start, tmp_path)


@contextmanager
def smallrye_alone(scene: Scene, commit: str, group: str) -> Iterator[gate_scenes.Start]:
    """Starts its consumers without the agent, by how they commit and their kind of group."""
    protocol, config = java_scenes.KINDS_OF_GROUPS[group]
    with JavaProcess(replace(SMALLRYE, protocol=protocol), {}) as jvm:
        yield partial(scene.application, jvm.application, style="smallrye-listener", commit=commit, config=config)


@pytest.mark.parametrize(
    ("commit", "group"), first_by_day(*product(("throttled", "ignore"), java_scenes.KINDS_OF_GROUPS))
)
def test_commits_of_smallrye_without_the_agent(quiet_scene: Scene, tmp_path: Path, commit: str, group: str) -> None:
    with smallrye_alone(quiet_scene, commit, group) as start:
        java_scenes.its_commits_go_on_after_a_run(quiet_scene, start, tmp_path)


@pytest.mark.nightly
@pytest.mark.parametrize("group", java_scenes.KINDS_OF_GROUPS)
def test_commits_of_smallrye_without_the_agent_by_strategy_latest(
    quiet_scene: Scene, tmp_path: Path, group: str
) -> None:
    """It knows of no rebalance, and goes by the offset that it has committed last."""
    with smallrye_alone(quiet_scene, "latest", group) as start:
        java_scenes.its_commits_go_on_only_after_a_restart(quiet_scene, start, tmp_path)


@pytest.mark.nightly
@pytest.mark.parametrize("commit", ["auto", "transaction"])
@pytest.mark.parametrize(
    "play",
    [gate_scenes.it_goes_on_where_it_was, gate_scenes.after_a_reset_it_goes_on_at_the_target],
    ids=named,
)
def test_topologies_of_kafka_streams(scene: Scene, jvms: Jvms, play: gate_scenes.Play, commit: str) -> None:
    """Without state; they commit by themselves, every 0.3 s or in transactions."""
    play(scene, partial(scene.application, jvms(STREAMS).application, style="streams-listener", commit=commit))


def stopped_streams(scene: Scene, style: str, folder: Path, **job: Any) -> RunResult:
    """How a reset ends of a topology that has committed all and was stopped; nobody runs the agent."""
    with JavaProcess(STREAMS, {}) as jvm:
        job["config"] = {"state.dir": str(folder / "state")}
        java_scenes.at_the_end(scene, partial(scene.application, jvm.application, style=style, **job)).stop()
    scene.until(lambda: not scene.client.groups([scene.group])[scene.group].has_members, "the group has no members")
    return java_scenes.reset_by_a_run(scene, 50, folder)


@pytest.mark.parametrize("commit", first_by_day(("auto",), ("transaction",)))
def test_a_stopped_topology_with_a_state_store_is_not_reset(quiet_scene: Scene, tmp_path: Path, commit: str) -> None:
    result = stopped_streams(quiet_scene, "streams-counting-listener", tmp_path, commit=commit)
    assert (result.phase, result.reason) == (ResetPhase.FAILED, UNSUPPORTED_GROUP), result
    assert f"{quiet_scene.group}-count-changelog" in result.message
    assert quiet_scene.committed() == 200


@pytest.mark.nightly
def test_a_stopped_topology_without_state_is_reset(quiet_scene: Scene, tmp_path: Path) -> None:
    result = stopped_streams(quiet_scene, "streams-listener", tmp_path)
    assert result.phase is ResetPhase.SUCCEEDED, result
    assert quiet_scene.committed() == 50


@pytest.mark.parametrize(
    ("java", "play"),
    of_both(
        java_scenes.one_that_dies_while_it_drains_leaves_the_gate_to_the_next,
        java_scenes.one_that_dies_while_it_opens_is_followed_by_one_that_begins_at_the_target,
        days=1,
    ),
    ids=named,
)
def test_one_that_is_killed(scene: Scene, control_topic: str, java: Java, play: java_scenes.KilledPlay) -> None:
    play(scene, lambda: JavaProcess(java, agent_environment(control_topic)))


@pytest.mark.nightly
@pytest.mark.parametrize("java", BOTH, ids=named)
def test_a_control_topic_that_is_lost_opens_no_gate(
    kafka: KafkaCluster, make_topic: MakeTopic, unique: Unique, java: Java
) -> None:
    name = unique("lost")
    scene = Scene(kafka.bootstrap, make_topic(2), name)
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    topic = scene.settings.control_topic
    with closing(scene), JavaProcess(java, agent_environment(topic)) as jvm:
        application = java_scenes.start_in(scene, jvm)
        scene.flowing()
        ack = scene.close_gate()
        acked_at = time.monotonic()
        admin.delete_topics([topic], operation_timeout=30)[topic].result(30)
        scene.flowing(1)
        scene.until(lambda: not scene.control.ensure() and scene.control.exist, "there is a new topic")
        epoch = scene.hold()
        assert scene.acked(epoch).offset == ack.offset
        assert scene.offsets(0, acked_at) == []
        scene.release()
        scene.flowing(0)
        application.stop()
    assert gate_scenes.is_whole(scene.offsets(0))
